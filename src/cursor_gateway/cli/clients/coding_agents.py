"""Claude Code, Codex, OpenCode and Kilo: clients that are configured for one process by variables and files."""

import json
from collections.abc import Sequence
from functools import partial

from cursor_gateway.cli.clients import base

# --- Claude Code, a client of Anthropic's Messages API -----------------------------------------------


# What would make it use another provider or account instead.
_OTHERS = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)


def _claude_environment(endpoint: base.GatewayAddress) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_AUTH_TOKEN": endpoint.key,
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(base.CONTEXT_TOKENS),
        "ENABLE_TOOL_SEARCH": "false",  # offers all tools at once: the agent reads the list of tools only at its start
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "ANTHROPIC_CUSTOM_HEADERS": "\n".join(f"{name}: {value}" for name, value in endpoint.headers.items()),
        **({} if endpoint.model == "auto" else {"ANTHROPIC_MODEL": _claude_name(endpoint.model)}),
    }


def _claude_name(id: str) -> str:
    """Its picker lists only models whose names say that they are Anthropic's; the gateway accepts these."""
    return id if "claude" in id or "anthropic" in id else f"claude-{id}"


def _start_claude(endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    """Both as variables and as settings: the `env` of the user's settings would win over variables alone."""
    environment = _claude_environment(endpoint)
    return base.StartPlan(
        arguments=("--settings", f"{folder}/settings.json"),
        environment={**dict.fromkeys(_OTHERS), **environment},
        files={"settings.json": base.to_json({"env": {**dict.fromkeys(_OTHERS, ""), **environment}})},
    )


def _keep_claude(endpoint: base.GatewayAddress) -> base.JsonFile:
    folder = base.ConfigFolder("~/.claude", "CLAUDE_CONFIG_DIR")
    values = [(("env", name), value) for name, value in _claude_environment(endpoint).items()]
    return base.JsonFile(folder, "settings.json", values)


CLAUDE = base.ClientProgram(
    name="claude",
    title="Claude Code",
    wire="messages",
    launch=base.LaunchPlan(install="npm install -g @anthropic-ai/claude-code", start=_start_claude),
    keep=_keep_claude,
    then="claude",
    works=(
        "its own tools: the agent requests them, and Claude Code runs them in its folder, with its permissions",
        "sessions: `--continue` and `--resume` continue the agent's session",
        "`/model` lists the gateway's models",
        "titles, summaries, subagents and web searches: see [Messages API](../messages.md)",
    ),
    limits=(
        "Claude's model names are mapped to Cursor's models (setting `model_aliases`); the prices shown do not apply.",
        "A message that is sent again after a rewind, within 5 seconds of its answer, counts as a retry and "
        "gets the old answer.",
    ),
)


# --- Codex, a client of OpenAI's Responses API: its provider, and a file that describes the models ---


_CATALOGUE = "models.json"
_INSTRUCTIONS = "You are a coding agent that works in the user's folder with the tools that it is given."


def _toml(value: object) -> str:
    """Strings and tables of strings: JSON's strings are TOML's, too."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _codex_model(model: base.OfferedModel, priority: int) -> dict[str, object]:
    return {
        "slug": model.id,
        "display_name": model.label,
        "description": f"{model.label}, through cursor-gateway",
        "supported_reasoning_levels": [],
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "availability_nux": None,
        "upgrade": None,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": None,
        "truncation_policy": {"mode": "bytes", "limit": 10_000},
        "supports_parallel_tool_calls": True,
        "context_window": base.CONTEXT_TOKENS,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"],
        "base_instructions": _INSTRUCTIONS,
    }


def _codex_provider(endpoint: base.GatewayAddress) -> dict[str, object]:
    return {
        "name": base.TITLE,
        "base_url": endpoint.openai_url,
        "wire_api": "responses",
        "http_headers": endpoint.headers,
    }


def _start_codex(endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    values = {
        "model_provider": base.PROVIDER,
        "model": endpoint.model,
        "model_catalog_json": f"{folder}/{_CATALOGUE}",
        f"model_providers.{base.PROVIDER}": {**_codex_provider(endpoint), "env_key": base.KEY_VARIABLE},
    }
    models = [_codex_model(model, number) for number, model in enumerate(endpoint.models)]
    return base.StartPlan(
        arguments=[part for name, value in values.items() for part in ("-c", f"{name}={_toml(value)}")],
        environment={base.KEY_VARIABLE: endpoint.key},
        files={_CATALOGUE: base.to_json({"models": models})},
    )


def _keep_codex(endpoint: base.GatewayAddress) -> base.NewFile:
    provider = {**_codex_provider(endpoint), "experimental_bearer_token": endpoint.key}
    lines = [
        f"model_provider = {_toml(base.PROVIDER)}",
        f"model = {_toml(endpoint.model)}",
        "",
        f"[model_providers.{base.PROVIDER}]",
        *(f"{name} = {_toml(value)}" for name, value in provider.items()),
    ]
    return base.NewFile(base.ConfigFolder("~/.codex", "CODEX_HOME"), "cursor.config.toml", "\n".join(lines) + "\n")


CODEX = base.ClientProgram(
    name="codex",
    title="Codex",
    wire="responses",
    launch=base.LaunchPlan(
        install="npm install -g @openai/codex", start=_start_codex, once='exec "What is this project?"'
    ),
    keep=_keep_codex,
    then="codex -p cursor",
    works=(
        "its own tools: the agent requests them, and Codex runs them in its folder, with its sandbox and approvals",
        "sessions: `codex resume` continues the agent's session",
        "`/model` lists the gateway's models (with `launch`)",
        "compaction",
    ),
    limits=(
        "The permanent configuration is a profile; without it, Codex works as before. With the profile, Codex warns "
        "that it has no description of the model; `launch` provides one.",
    ),
)


# --- OpenCode and its fork Kilo: a provider in a configuration that fits in an environment variable --


def _opencode_provider(endpoint: base.GatewayAddress) -> dict[str, object]:
    limit = {"context": base.CONTEXT_TOKENS, "output": base.OUTPUT_TOKENS}
    return {
        "npm": "@ai-sdk/openai-compatible",
        "name": base.TITLE,
        "options": {"baseURL": endpoint.openai_url, "apiKey": endpoint.key, "headers": endpoint.headers},
        "models": {
            model.id: {
                "name": model.label,
                "attachment": True,
                "modalities": {"input": ["text", "image"], "output": ["text"]},
                "limit": limit,
            }
            for model in endpoint.models
        },
    }


def _start_opencode(name: str, endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    model = f"{base.PROVIDER}/{endpoint.model}"
    values = {"provider": {base.PROVIDER: _opencode_provider(endpoint)}, "model": model, "small_model": model}
    return base.StartPlan(environment={f"{name.upper()}_CONFIG_CONTENT": json.dumps(values)})


def _keep_opencode(name: str, endpoint: base.GatewayAddress) -> base.JsonFile:
    folder = base.ConfigFolder(f"~/.config/{name}", below_config=name)
    return base.JsonFile(folder, f"{name}.json", [(("provider", base.PROVIDER), _opencode_provider(endpoint))])


_OPENCODE_WORKS = (
    base.OWN_TOOLS,
    "sessions: `--continue` continues the agent's session",
    "`/models` lists the gateway's models",
    "images, titles and compaction",
)


def _opencode(name: str, title: str, install: str, aliases: Sequence[str] = ()) -> base.ClientProgram:
    return base.ClientProgram(
        name=name,
        title=title,
        launch=base.LaunchPlan(
            install=install, start=partial(_start_opencode, name), once='run "What is this project?"', aliases=aliases
        ),
        keep=partial(_keep_opencode, name),
        then=f"{name} --model {base.PROVIDER}/auto",
        works=_OPENCODE_WORKS,
    )


OPENCODE = _opencode("opencode", "OpenCode", "npm install -g opencode-ai")
KILO = _opencode("kilo", "Kilo", "npm install -g @kilocode/cli", ["kilocode"])
