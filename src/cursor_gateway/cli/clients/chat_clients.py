"""Clients of the chat API in a terminal: Qwen Code, pi, Continue, Cline, aider and llm."""

import json
from collections.abc import Sequence

from cursor_gateway.cli.clients import base

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
