"""OpenCode, and Kilo, which was made from it: a provider in a configuration that an environment variable can hold."""

import json

from cursor_gateway.cli.clients.base import (
    CONTEXT_TOKENS,
    OUTPUT_TOKENS,
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
    headers = {"headers": endpoint.headers} if endpoint.headers else {}
    limit = {"context": CONTEXT_TOKENS, "output": OUTPUT_TOKENS}
    return {
        "npm": "@ai-sdk/openai-compatible",
        "name": TITLE,
        "options": {"baseURL": endpoint.openai_url, "apiKey": endpoint.key, **headers},
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


def _configuration(endpoint: Endpoint) -> str:
    model = f"{PROVIDER}/{endpoint.model}"
    return json.dumps({"provider": {PROVIDER: _provider(endpoint)}, "model": model, "small_model": model})


def _start_opencode(endpoint: Endpoint, folder: str) -> Start:
    return Start(environment={"OPENCODE_CONFIG_CONTENT": _configuration(endpoint)})


def _start_kilo(endpoint: Endpoint, folder: str) -> Start:
    return Start(environment={"KILO_CONFIG_CONTENT": _configuration(endpoint)})


def _keep_opencode(endpoint: Endpoint) -> JsonFile:
    folder = Folder("~/.config/opencode", below_config="opencode")
    return JsonFile(folder, "opencode.json", [(("provider", PROVIDER), _provider(endpoint))])


def _keep_kilo(endpoint: Endpoint) -> JsonFile:
    folder = Folder("~/.config/kilo", below_config="kilo")
    return JsonFile(folder, "kilo.json", [(("provider", PROVIDER), _provider(endpoint))])


_WORKS = (
    "its own tools: the agent requests them, and the client runs them in its folder, with its permissions",
    "sessions: `--continue` continues the agent's session",
    "`/models` lists the gateway's models",
    "images, titles and compaction",
)

OPENCODE = Client(
    name="opencode",
    title="OpenCode",
    wire="chat",
    launch=Launch(
        programs=("opencode",),
        install="npm install -g opencode-ai",
        start=_start_opencode,
        once='run "What is this project?"',
    ),
    keep=_keep_opencode,
    then=f"opencode --model {PROVIDER}/auto",
    works=_WORKS,
)

KILO = Client(
    name="kilo",
    title="Kilo",
    wire="chat",
    launch=Launch(
        programs=("kilo", "kilocode"),
        install="npm install -g @kilocode/cli",
        start=_start_kilo,
        once='run "What is this project?"',
    ),
    keep=_keep_kilo,
    then=f"kilo --model {PROVIDER}/auto",
    works=_WORKS,
)
