"""Codex, a client of OpenAI's Responses API: its provider, and a file that describes the models."""

import json

from cursor_gateway.cli.clients.base import (
    CONTEXT_TOKENS,
    KEY_VARIABLE,
    PROVIDER,
    TITLE,
    Client,
    Endpoint,
    Folder,
    Launch,
    NewFile,
    Offered,
    Start,
    to_json,
)

_CATALOGUE = "models.json"
_INSTRUCTIONS = "You are a coding agent that works in the user's folder with the tools that it is given."


def _toml(value: object) -> str:
    """Strings and tables of strings: JSON's strings are TOML's, too."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _model(model: Offered, priority: int) -> dict[str, object]:
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
        "context_window": CONTEXT_TOKENS,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"],
        "base_instructions": _INSTRUCTIONS,
    }


def _provider(endpoint: Endpoint) -> dict[str, object]:
    return {
        "name": TITLE,
        "base_url": endpoint.openai_url,
        "wire_api": "responses",
        "http_headers": endpoint.headers,
    }


def _start(endpoint: Endpoint, folder: str) -> Start:
    values = {
        "model_provider": PROVIDER,
        "model": endpoint.model,
        "model_catalog_json": f"{folder}/{_CATALOGUE}",
        f"model_providers.{PROVIDER}": {**_provider(endpoint), "env_key": KEY_VARIABLE},
    }
    models = [_model(model, number) for number, model in enumerate(endpoint.models)]
    return Start(
        arguments=[part for name, value in values.items() for part in ("-c", f"{name}={_toml(value)}")],
        environment={KEY_VARIABLE: endpoint.key},
        files={_CATALOGUE: to_json({"models": models})},
    )


def _keep(endpoint: Endpoint) -> NewFile:
    provider = {**_provider(endpoint), "experimental_bearer_token": endpoint.key}
    lines = [
        f"model_provider = {_toml(PROVIDER)}",
        f"model = {_toml(endpoint.model)}",
        "",
        f"[model_providers.{PROVIDER}]",
        *(f"{name} = {_toml(value)}" for name, value in provider.items()),
    ]
    return NewFile(Folder("~/.codex", "CODEX_HOME"), "cursor.config.toml", "\n".join(lines) + "\n")


CODEX = Client(
    name="codex",
    title="Codex",
    wire="responses",
    launch=Launch(install="npm install -g @openai/codex", start=_start, once='exec "What is this project?"'),
    keep=_keep,
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
