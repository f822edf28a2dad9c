"""The clients that `launch` starts and `connect` configures, as values."""

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


_SESSIONS = "sessions: the conversation continues in the agent's session"


# --- Qwen Code ------------------------------------------------------------------------------------------


def _qwen_models(endpoint: base.GatewayAddress) -> list[dict[str, object]]:
    return [
        {
            "id": model.id,
            "name": model.label,
            "baseUrl": endpoint.openai_url,
            "envKey": base.KEY_VARIABLE,
            "generationConfig": {"contextWindowSize": base.CONTEXT_TOKENS, "customHeaders": endpoint.headers},
        }
        for model in endpoint.models
    ]


# After each answer, Qwen Code would ask for a suggestion of the next message, and for memories: each a question of its
# own to the agent, the first one within its session.
_QWEN_UI = {"enableFollowupSuggestions": False}
_QWEN_MEMORY = {"enableManagedAutoMemory": False, "enableManagedAutoDream": False}


def _start_qwen(endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": endpoint.model},
        "modelProviders": {"openai": _qwen_models(endpoint)},
        "ui": _QWEN_UI,
        "memory": _QWEN_MEMORY,
    }
    return base.StartPlan(
        environment={base.KEY_VARIABLE: endpoint.key, "QWEN_CODE_SYSTEM_SETTINGS_PATH": f"{folder}/settings.json"},
        files={"settings.json": base.to_json(settings)},
    )


def _keep_qwen(endpoint: base.GatewayAddress) -> base.JsonFile:
    values = [
        (("env", base.KEY_VARIABLE), endpoint.key),
        (("security", "auth", "selectedType"), "openai"),
        (("model", "name"), endpoint.model),
        (("modelProviders", "openai"), _qwen_models(endpoint)),
        *((("ui", name), value) for name, value in _QWEN_UI.items()),
        *((("memory", name), value) for name, value in _QWEN_MEMORY.items()),
    ]
    return base.JsonFile(base.ConfigFolder("~/.qwen"), "settings.json", values)


QWEN = base.ClientProgram(
    name="qwen",
    title="Qwen Code",
    launch=base.LaunchPlan(install="npm install -g @qwen-code/qwen-code", start=_start_qwen),
    keep=_keep_qwen,
    then="qwen",
    works=(
        base.OWN_TOOLS,
        "sessions: `--continue` continues the agent's session, too",
        "`/model` lists the gateway's models",
    ),
    limits=(
        "When started with `launch`, Qwen Code does not read its system-wide settings file.",
        "Suggested messages and automatic memory are off: each would start another agent after every answer.",
    ),
)


# --- pi -------------------------------------------------------------------------------------------------


def _pi_provider(endpoint: base.GatewayAddress) -> dict[str, object]:
    free = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    return {
        "baseUrl": endpoint.openai_url,
        "apiKey": endpoint.key,
        "api": "openai-completions",
        "headers": endpoint.headers,
        "models": [
            {
                "id": model.id,
                "name": model.label,
                "reasoning": False,
                "input": ["text", "image"],
                "cost": free,
                "contextWindow": base.CONTEXT_TOKENS,
                "maxTokens": base.OUTPUT_TOKENS,
            }
            for model in endpoint.models
        ],
    }


def _start_pi(endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    provider = json.dumps(_pi_provider(endpoint), indent=2)
    extension = (
        f"export default function (pi) {{\n  pi.registerProvider({json.dumps(base.PROVIDER)}, {provider});\n}}\n"
    )
    return base.StartPlan(
        arguments=("-e", f"{folder}/provider.js", "--provider", base.PROVIDER, "--model", endpoint.model),
        files={"provider.js": extension},
    )


def _keep_pi(endpoint: base.GatewayAddress) -> base.JsonFile:
    folder = base.ConfigFolder("~/.pi/agent", "PI_CODING_AGENT_DIR")
    return base.JsonFile(folder, "models.json", [(("providers", base.PROVIDER), _pi_provider(endpoint))])


PI = base.ClientProgram(
    name="pi",
    title="pi",
    launch=base.LaunchPlan(install="npm install -g @mariozechner/pi-coding-agent", start=_start_pi),
    keep=_keep_pi,
    then=f"pi --provider {base.PROVIDER} --model auto",
    works=(base.OWN_TOOLS, _SESSIONS, "`/model` lists the gateway's models", "images"),
)


# --- Continue -------------------------------------------------------------------------------------------


def _continue_models(endpoint: base.GatewayAddress) -> list[dict[str, object]]:
    return [
        {
            "name": model.label,
            "provider": "openai",
            "model": model.id,
            "apiBase": endpoint.openai_url,
            "apiKey": endpoint.key,
            "roles": ["chat", "edit", "apply"],
            "capabilities": ["tool_use", "image_input"],
            "defaultCompletionOptions": {"contextLength": base.CONTEXT_TOKENS, "maxTokens": base.OUTPUT_TOKENS},
            "requestOptions": {"headers": endpoint.headers},
        }
        for model in sorted(endpoint.models, key=lambda model: model.id != endpoint.model)  # the first is the default
    ]


def continue_configuration(endpoint: base.GatewayAddress) -> str:
    """YAML, of which JSON is a part."""
    return f"name: {base.TITLE}\nversion: 1.0.0\nschema: v1\nmodels:\n{_yaml_list(_continue_models(endpoint), 2)}"


def _yaml_list(items: Sequence[object], indent: int = 0) -> str:
    return "".join(f"{' ' * indent}- {json.dumps(item, ensure_ascii=False)}\n" for item in items)


def keep_continue(endpoint: base.GatewayAddress) -> base.YamlFile:
    folder, text = base.ConfigFolder("~/.continue", "CONTINUE_GLOBAL_DIR"), continue_configuration(endpoint)
    return base.YamlFile(folder, "config.yaml", text, base.ListItems("models", _continue_models(endpoint)))


def _start_cn(endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    return base.StartPlan(
        arguments=("--config", f"{folder}/config.yaml"), files={"config.yaml": continue_configuration(endpoint)}
    )


CN = base.ClientProgram(
    name="cn",
    title="Continue (command line)",
    launch=base.LaunchPlan(install="npm install -g @continuedev/cli", start=_start_cn),
    keep=keep_continue,
    then="cn",
    works=(base.OWN_TOOLS, _SESSIONS, "`/model` lists the gateway's models"),
    limits=(
        "The agent's thinking and actions are not shown: Continue ignores reasoning.",
        "Continue warns about limited capabilities, as for every model it does not know. You can ignore the warning.",
    ),
)


# --- Cline ----------------------------------------------------------------------------------------------


_COMPATIBLE = "openai-compatible"


def _cline_provider(endpoint: base.GatewayAddress) -> dict[str, object]:
    settings = {
        "provider": _COMPATIBLE,
        "apiKey": endpoint.key,
        "model": endpoint.model,
        "baseUrl": endpoint.openai_url,
        "headers": endpoint.headers,
    }
    return {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}


def _start_cline(endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    saved = {_COMPATIBLE: _cline_provider(endpoint)}
    providers = {"version": 1, "lastUsedProvider": _COMPATIBLE, "modes": {}, "providers": saved}
    return base.StartPlan(
        environment={
            "CLINE_PROVIDER_SETTINGS_PATH": f"{folder}/providers.json",
            "CLINE_SESSION_BACKEND_MODE": "local",  # not its background process, which has settings of its own
        },
        files={"providers.json": base.to_json(providers)},
    )


def _keep_cline(endpoint: base.GatewayAddress) -> base.JsonFile:
    values = [
        (("version",), 1),
        (("lastUsedProvider",), _COMPATIBLE),
        (("providers", _COMPATIBLE), _cline_provider(endpoint)),
    ]
    return base.JsonFile(base.ConfigFolder("~/.cline/data/settings"), "providers.json", values)


CLINE = base.ClientProgram(
    name="cline",
    title="Cline (command line)",
    launch=base.LaunchPlan(install="npm install -g cline", start=_start_cline, once='"What is this project?"'),
    keep=_keep_cline,
    then="cline",
    works=(base.OWN_TOOLS, _SESSIONS),
    limits=(
        "Its model picker does not list the gateway's models; name one with `-m`.",
        "Cline runs its own tools without asking, unless you press Shift+Tab.",
    ),
)


# --- aider ----------------------------------------------------------------------------------------------


def _aider_name(id: str) -> str:
    return f"openai/{id}"


def _aider_models(endpoint: base.GatewayAddress) -> str:
    """It has no tools, and changes files itself, from the answer's text: the agent must only read them."""
    headers = {**endpoint.headers, "x-cursor-mode": "ask"}
    entries = [
        {
            "name": _aider_name(model.id),
            "edit_format": "diff",
            "weak_model_name": _aider_name(model.id),
            "use_repo_map": True,
            "extra_params": {"extra_headers": headers},
        }
        for model in endpoint.models
    ]
    return _yaml_list(entries)


def _start_aider(endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    limits = {
        "max_input_tokens": base.CONTEXT_TOKENS,
        "max_output_tokens": base.OUTPUT_TOKENS,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    return base.StartPlan(
        environment={
            "AIDER_MODEL": _aider_name(endpoint.model),
            "AIDER_OPENAI_API_BASE": endpoint.openai_url,
            "AIDER_OPENAI_API_KEY": endpoint.key,
            "AIDER_MODEL_SETTINGS_FILE": f"{folder}/models.yml",
            "AIDER_MODEL_METADATA_FILE": f"{folder}/limits.json",
        },
        files={
            "models.yml": _aider_models(endpoint),
            "limits.json": base.to_json({_aider_name(model.id): limits for model in endpoint.models}),
        },
    )


def _keep_aider(endpoint: base.GatewayAddress) -> base.YamlFile:
    values = {
        "model": _aider_name(endpoint.model),
        "openai-api-base": endpoint.openai_url,
        "openai-api-key": endpoint.key,
    }
    lines = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items())
    return base.YamlFile(base.ConfigFolder("~"), ".aider.conf.yml", lines, values)


AIDER = base.ClientProgram(
    name="aider",
    title="aider",
    launch=base.LaunchPlan(
        install="uv tool install aider-chat", start=_start_aider, once='--message "What is this project?"'
    ),
    keep=_keep_aider,
    then="aider",
    works=(
        "chat and edits: the agent only reads (mode `ask`), and aider applies the edits that it proposes",
        "the agent's thinking is shown",
    ),
    limits=(
        "aider has no tools: it sends files as text.",
        'Only `launch` sets the mode `ask`; with the permanent configuration, set `mode = "ask"` in the gateway.',
    ),
)


# --- llm ------------------------------------------------------------------------------------------------


def _llm_models(endpoint: base.GatewayAddress) -> list[dict[str, object]]:
    return [
        {
            "model_id": f"{base.PROVIDER}/{model.id}",
            "model_name": model.id,
            "api_base": endpoint.openai_url,
            "supports_tools": True,
            "supports_schema": True,
            "vision": True,
            **({} if endpoint.key == base.NO_KEY else {"api_key_name": base.PROVIDER}),
            "headers": endpoint.headers,
        }
        for model in endpoint.models
    ]


def _start_llm(endpoint: base.GatewayAddress, folder: str) -> base.StartPlan:
    return base.StartPlan(
        environment={"LLM_USER_PATH": folder, "LLM_MODEL": f"{base.PROVIDER}/{endpoint.model}"},
        files={
            "extra-openai-models.yaml": _yaml_list(_llm_models(endpoint)),
            "keys.json": base.to_json({base.PROVIDER: endpoint.key}),
        },
    )


def _keep_llm(endpoint: base.GatewayAddress) -> base.YamlFile:
    folder = base.ConfigFolder(
        "~/.config/io.datasette.llm",
        "LLM_USER_PATH",
        below_config="io.datasette.llm",
        macos="~/Library/Application Support/io.datasette.llm",
    )
    models = _llm_models(endpoint)
    return base.YamlFile(folder, "extra-openai-models.yaml", _yaml_list(models), base.ListItems("", models))


LLM = base.ClientProgram(
    name="llm",
    title="llm",
    launch=base.LaunchPlan(install="uv tool install llm", start=_start_llm, once='"What is this project?"'),
    keep=_keep_llm,
    then=f"llm -m {base.PROVIDER}/auto",
    works=(
        "questions, `llm chat`, tools (`--functions`, `-T`), schemas and images",
        "without these tools, the agent works in the current folder with its own",
        "`llm models` lists the gateway's models",
    ),
    limits=(
        "When started with `launch`, llm has a folder of its own, without your logs, keys, aliases and templates.",
        f"If the gateway requires a key, store it once with `llm keys set {base.PROVIDER}`; `launch` does it for you.",
    ),
)


# --- editors, and other programs ----------------------------------------------------------------------


_TOOLS = "the editor's own tools: the agent requests them, and the editor runs them"
_AGENT = "For the agent itself in the editor, with its own tools, use `cursor-gateway acp`."


def _keep_zed(endpoint: base.GatewayAddress) -> base.JsonFile:
    capabilities = {"tools": True, "images": True, "parallel_tool_calls": True, "prompt_cache_key": False}
    provider = {
        "api_url": endpoint.openai_url,
        "available_models": [
            {
                "name": model.id,
                "display_name": model.label,
                "max_tokens": base.CONTEXT_TOKENS,
                "max_output_tokens": base.OUTPUT_TOKENS,
                "capabilities": capabilities,
            }
            for model in endpoint.models
        ],
    }
    # Zed reads the key from a variable named after the provider: `Cursor` would send CURSOR_API_KEY, Cursor's own key.
    folder = base.ConfigFolder("~/.config/zed", below_config="zed", macos="~/.config/zed")
    return base.JsonFile(folder, "settings.json", [(("language_models", "openai_compatible", base.PROVIDER), provider)])


ZED = base.ClientProgram(
    name="zed",
    title="Zed",
    keep=_keep_zed,
    then=f"Open the agent panel and choose a model of {base.PROVIDER}. If asked for a key, enter the gateway's, or any "
    "word",
    works=(_TOOLS, "the gateway's models in the model picker"),
    limits=(
        "Zed takes the key from `CURSOR_GATEWAY_API_KEY`, if it is set; it derives this name from the provider's.",
        _AGENT,
        "Not tested with the real editor.",
    ),
)

CONTINUE = base.ClientProgram(
    name="continue",
    title="Continue (VS Code, JetBrains)",
    keep=keep_continue,
    then=f"Choose the configuration `{base.TITLE}` in Continue's panel",
    works=(_TOOLS, "the gateway's models in the model picker"),
    limits=("The agent's thinking and actions are not shown.", "Not tested with the real editors."),
)

CLINE_EDITOR = base.ClientProgram(
    name="cline-editor",
    title="Cline (VS Code)",
    keep=lambda endpoint: base.Steps(
        (
            "Open Cline's settings.",
            'API Provider: "OpenAI Compatible".',
            f"Base URL: {endpoint.openai_url}",
            f"API Key: {endpoint.key}",
            f"Model ID: {endpoint.model}",
            f"Context Window Size: {base.CONTEXT_TOKENS}",
        )
    ),
    then="Enter a prompt in Cline's panel",
    works=(_TOOLS,),
    limits=("Not tested with the real editor.",),
)

JETBRAINS = base.ClientProgram(
    name="jetbrains",
    title="JetBrains AI Assistant",
    keep=lambda endpoint: base.Steps(
        (
            "Open Settings | Tools | AI Assistant | Providers & API keys (Models & API keys before 2026.1).",
            'Add the provider "OpenAI-compatible".',
            f"Base URL: {endpoint.openai_url}",
            f"Key: {endpoint.key}",
            f"Model: {endpoint.model}",
        )
    ),
    then="Choose the model in the AI chat",
    works=("chat", _TOOLS),
    limits=(_AGENT, "Not tested with the real editor."),
)


def _keep_mcp(endpoint: base.GatewayAddress) -> base.Steps:
    server = {"type": "http", "url": endpoint.mcp_url, "headers": {"Authorization": f"Bearer {endpoint.key}"}}
    key = f'--header "Authorization: Bearer {endpoint.key}"'
    return base.Steps(
        (
            "Claude Code:",
            f"  claude mcp add --transport http cursor {endpoint.mcp_url} {key}",
            f"Codex, with the key in {base.KEY_VARIABLE}:",
            f"  codex mcp add cursor --url {endpoint.mcp_url} --bearer-token-env-var {base.KEY_VARIABLE}",
            "VS Code, in .vscode/mcp.json:",
            f"  {json.dumps({'servers': {'cursor': server}})}",
            "Any other host: the transport is Streamable HTTP.",
            f"  URL: {endpoint.mcp_url}",
            f"  Header: Authorization: Bearer {endpoint.key}",
        )
    )


MCP = base.ClientProgram(
    name="mcp",
    title="MCP hosts, over HTTP",
    wire="mcp",
    keep=_keep_mcp,
    then="The host's model has the tools ask, run, status, answer and cancel; see docs/mcp.md",
    works=(
        "the agent as tools of the host's model",
        "questions, plans and permissions as forms, in hosts that have them",
    ),
    limits=(
        "The agent works in the gateway's workspace, not in the host's folder.",
        "Tested with Claude Code and Codex, but not with VS Code.",
    ),
)

ANY = base.ClientProgram(
    name="any",
    title="Any other client",
    keep=lambda endpoint: base.Steps(
        (
            f"OPENAI_BASE_URL={endpoint.openai_url}",
            f"OPENAI_API_KEY={endpoint.key}",
            f"ANTHROPIC_BASE_URL={endpoint.url}",
            f"ANTHROPIC_API_KEY={endpoint.key}",
            f"Model: {endpoint.model}",
        )
    ),
    then="The OpenAI and Anthropic SDKs read these variables; other clients have fields for the same values",
    works=("chat completions, Responses, Messages and the list of models",),
)


# --- all of them ----------------------------------------------------------------------------------------


_STARTED = (CLAUDE, CODEX, OPENCODE, QWEN, PI, CN, CLINE, AIDER, LLM, KILO)
_ALL = (*_STARTED, ZED, CONTINUE, CLINE_EDITOR, JETBRAINS, MCP, ANY)
CLIENTS = {client.name: client for client in _ALL}
LAUNCHED = {client.name: client for client in _ALL if client.launch is not None}
