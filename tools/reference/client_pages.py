"""The table of clients in; a page for each of them, and their index, out."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cursor_gateway.cli.clients.base import (
    ClientProgram,
    ConfigFolder,
    GatewayAddress,
    JsonFile,
    Kept,
    NewFile,
    OfferedModel,
    Steps,
    YamlFile,
    to_json,
)
from cursor_gateway.cli.clients.edits import nested
from cursor_gateway.cli.clients.table import CLIENTS
from tools.reference.markdown import code, page, table

_ROOT = Path(__file__).parents[2]
_TRANSCRIPTS = _ROOT / "docs" / "parts" / "clients"
_ENDPOINT = GatewayAddress(url="http://127.0.0.1:8787", models=[OfferedModel("auto", "Auto")])
_PACKAGES = {  # whose versions the tests lock
    "claude": "@anthropic-ai/claude-code-linux-x64",
    "cline": "@cline/cli-linux-x64",
    "cn": "@continuedev/cli",
    "codex": "@openai/codex-linux-x64",
    "kilo": "@kilocode/cli-linux-x64",
    "opencode": "opencode-linux-x64-baseline",
    "pi": "@mariozechner/pi-coding-agent",
    "qwen": "@qwen-code/qwen-code",
}
_WIRES = {
    "chat": "OpenAI's chat API (`/v1/chat/completions`)",
    "responses": "OpenAI's Responses API (`/v1/responses`)",
    "messages": "Anthropic's Messages API (`/v1/messages`)",
    "mcp": "MCP (`/mcp`)",
}


def client_pages() -> dict[str, Callable[[], str]]:
    pages = {f"{name}.md": lambda client=client: client_page(client) for name, client in CLIENTS.items()}
    return {"README.md": index_page, **pages}


def index_page() -> str:
    launched = [client for client in CLIENTS.values() if client.launch is not None]
    others = [client for client in CLIENTS.values() if client.launch is None]
    return page(
        "Clients",
        "Programs that use Cursor's agent through the gateway. Those in the first table are started with one command,\n"
        "`cursor-gateway launch NAME`, which needs no configuration and changes none. `cursor-gateway connect NAME`\n"
        "prints the permanent configuration for any client; `--write` adds it to the client's file, and `--undo`\n"
        "reverts that.",
        table(
            ["client", "start", "API"],
            [(f"[{one.title}]({one.name}.md)", f"`cursor-gateway launch {one.name}`", one.wire) for one in launched],
        ),
        table(
            ["editors and others", "configuration"],
            [(f"[{one.title}]({one.name}.md)", f"`cursor-gateway connect {one.name}`") for one in others],
        ),
        "Other programs: [Open WebUI](../connecting/open-webui.md), [LibreChat](../connecting/librechat.md),\n"
        "[LiteLLM](../connecting/litellm.md), [VS Code and Cursor](../connecting/vscode.md).",
        "How `launch` finds or starts a gateway: [Command line](../cli.md#start-a-client). How the agent uses the\n"
        "client's tools: [Tools](../tools.md).",
    )


def client_page(client: ClientProgram) -> str:
    return page(client.title, *_parts(client))


def _parts(client: ClientProgram) -> Iterator[str]:
    if client.launch is not None:
        yield f"Uses {_WIRES[client.wire]}.{_tested(client.name)}"
        lines = f"{client.launch.install}\ncursor-gateway launch {client.name}"
        yield code(lines, "sh")
        yield f"Ask one question and exit: `cursor-gateway launch {client.name} -- {client.launch.once}`."
    elif client.name != "any":
        yield f"Uses {_WIRES[client.wire]}."
        yield code(f"cursor-gateway serve\ncursor-gateway connect {client.name}", "sh")
    transcript = _TRANSCRIPTS / f"{client.name}.txt"
    if transcript.exists():
        yield "## Transcript"
        yield "This answer comes from the built-in demo."
        yield f"````console\n{transcript.read_text(encoding='utf-8').rstrip()}\n````"
    yield "## What works"
    yield _list(client.works)
    if client.limits:
        yield "## Limits"
        yield _list(client.limits)
    if client.launch is not None:
        yield "## What `launch` sets"
        yield "Only for this process:"
        yield _start(client)
    yield "## Permanent configuration"
    yield from _kept(client, client.keep(_ENDPOINT))


def _tested(name: str) -> str:
    package = json.loads((_ROOT / "tests" / "clients" / "package.json").read_text(encoding="utf-8"))
    versions = {**package["dependencies"], **package["optionalDependencies"]}
    version = versions.get(_PACKAGES.get(name, ""), "").rpartition("@")[2].removesuffix("-linux-x64")
    return f" Tested with version {version}." if version else ""


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _start(client: ClientProgram) -> str:
    assert client.launch is not None
    start = client.launch.start(_ENDPOINT, "/tmp/cursor-gateway-x")
    lines = [f"unset {name}" for name, value in start.environment.items() if value is None]
    lines += [f"{name}={shlex.quote(value)}" for name, value in start.environment.items() if value is not None]
    lines.append(shlex.join([client.programs[0], *start.arguments]))
    shown = [code("\n".join(lines), "sh")]
    for name, text in start.files.items():
        shown += [f"`/tmp/cursor-gateway-x/{name}`, removed afterwards:", code(text, _language(name))]
    return "\n\n".join(shown)


def _kept(client: ClientProgram, kept: Kept) -> Iterator[str]:
    match kept:
        case Steps(lines=lines):
            yield code("\n".join(lines), "text")
        case JsonFile():
            yield f"Add this to {_place(kept.folder, kept.name)}:"
            yield code(to_json(nested(kept.values)), "json")
        case YamlFile():
            yield f"Create {_place(kept.folder, kept.name)}, or add this to it:"
            yield code(kept.text, _language(kept.name))
        case NewFile():
            yield f"Create {_place(kept.folder, kept.name)}:"
            yield code(kept.text, _language(kept.name))
    if not isinstance(kept, Steps):
        yield f"`cursor-gateway connect {client.name} --write` does this for you; `--undo` reverts it."
    yield f"Then run `{client.then}`." if client.launch is not None else f"{client.then}."


def _place(folder: ConfigFolder, name: str) -> str:
    macos = f" (macOS: `{folder.macos}/{name}`)" if folder.macos and folder.macos != folder.default else ""
    return f"`{folder.default}/{name}`{macos}"


def _language(name: str) -> str:
    return {"json": "json", "js": "js", "toml": "toml", "yaml": "yaml", "yml": "yaml"}[name.rpartition(".")[2]]
