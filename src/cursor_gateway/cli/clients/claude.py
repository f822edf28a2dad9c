"""Claude Code, a client of Anthropic's Messages API that is configured by environment variables."""

from cursor_gateway.cli.clients.base import CONTEXT_TOKENS, Client, Endpoint, Folder, JsonFile, Launch, Start, to_json

# What would make it use another provider or account instead.
_OTHERS = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)


def _environment(endpoint: Endpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_AUTH_TOKEN": endpoint.key,
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(CONTEXT_TOKENS),
        "ENABLE_TOOL_SEARCH": "false",  # offers all tools at once: the agent reads the list of tools only at its start
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "ANTHROPIC_CUSTOM_HEADERS": "\n".join(f"{name}: {value}" for name, value in endpoint.headers.items()),
        **({} if endpoint.model == "auto" else {"ANTHROPIC_MODEL": _name(endpoint.model)}),
    }


def _name(id: str) -> str:
    """Its picker lists only models whose names say that they are Anthropic's; the gateway accepts these."""
    return id if "claude" in id or "anthropic" in id else f"claude-{id}"


def _start(endpoint: Endpoint, folder: str) -> Start:
    """Both as variables and as settings: the `env` of the user's settings would win over variables alone."""
    environment = _environment(endpoint)
    return Start(
        arguments=("--settings", f"{folder}/settings.json"),
        environment={**dict.fromkeys(_OTHERS), **environment},
        files={"settings.json": to_json({"env": {**dict.fromkeys(_OTHERS, ""), **environment}})},
    )


def _keep(endpoint: Endpoint) -> JsonFile:
    folder = Folder("~/.claude", "CLAUDE_CONFIG_DIR")
    values = [(("env", name), value) for name, value in _environment(endpoint).items()]
    return JsonFile(folder, "settings.json", values)


CLAUDE = Client(
    name="claude",
    title="Claude Code",
    wire="messages",
    launch=Launch(install="npm install -g @anthropic-ai/claude-code", start=_start),
    keep=_keep,
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
