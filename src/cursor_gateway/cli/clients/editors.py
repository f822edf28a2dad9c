"""Editors and any other client: configured, but not started."""

import json

from cursor_gateway.cli.clients import base
from cursor_gateway.cli.clients.chat_clients import keep_continue

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
