"""OpenCode and its fork Kilo: a provider in a configuration that fits in an environment variable."""

import json
from collections.abc import Sequence
from functools import partial

from cursor_gateway.cli.clients.base import (
    CONTEXT_TOKENS,
    OUTPUT_TOKENS,
    OWN_TOOLS,
    PROVIDER,
    TITLE,
    Client,
    Endpoint,
    Folder,
    JsonFile,
    Launch,
    Start,
)


def _provider(endpoint: Endpoint) -> dict[str, object]:
    limit = {"context": CONTEXT_TOKENS, "output": OUTPUT_TOKENS}
    return {
        "npm": "@ai-sdk/openai-compatible",
        "name": TITLE,
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


def _start(name: str, endpoint: Endpoint, folder: str) -> Start:
    model = f"{PROVIDER}/{endpoint.model}"
    values = {"provider": {PROVIDER: _provider(endpoint)}, "model": model, "small_model": model}
    return Start(environment={f"{name.upper()}_CONFIG_CONTENT": json.dumps(values)})


def _keep(name: str, endpoint: Endpoint) -> JsonFile:
    folder = Folder(f"~/.config/{name}", below_config=name)
    return JsonFile(folder, f"{name}.json", [(("provider", PROVIDER), _provider(endpoint))])


_WORKS = (
    OWN_TOOLS,
    "sessions: `--continue` continues the agent's session",
    "`/models` lists the gateway's models",
    "images, titles and compaction",
)


def _client(name: str, title: str, install: str, aliases: Sequence[str] = ()) -> Client:
    return Client(
        name=name,
        title=title,
        launch=Launch(
            install=install, start=partial(_start, name), once='run "What is this project?"', aliases=aliases
        ),
        keep=partial(_keep, name),
        then=f"{name} --model {PROVIDER}/auto",
        works=_WORKS,
    )


OPENCODE = _client("opencode", "OpenCode", "npm install -g opencode-ai")
KILO = _client("kilo", "Kilo", "npm install -g @kilocode/cli", ["kilocode"])
