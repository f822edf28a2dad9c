"""Print the addresses, the backend and the first steps of a gateway that has started."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from click import echo, style

from cursor_gateway.cli.terminals import wants_plain
from cursor_gateway.cli.version import full_version
from cursor_gateway.render.visible import visible_line
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.cli.composition import Gateway


def show_banner(gateway: "Gateway", settings: Settings, url: str) -> None:
    """Without rich, which is slow to import: people wait for this."""
    echo("\n".join(_lines(gateway, settings, url)), color=not wants_plain())


def show_member(settings: Settings, url: str) -> None:
    """Of a process of a cluster that serves clients alone."""
    lines = [
        f"{style('cursor-gateway', bold=True)} {full_version()}, {settings.role} of a cluster",
        f"\n  Web page      {url}/\n  OpenAI API    {url}/v1\n  Documents     {url}/v1/chat",
        f"  API keys      {_keys(settings)}",
        style("\nPress Ctrl-C to stop.", dim=True),
    ]
    echo("\n".join(lines), color=not wants_plain())


def _lines(gateway: "Gateway", settings: Settings, url: str) -> Iterator[str]:
    state, has_keys = gateway.service.source.state(), bool(settings.api_keys or settings.store)
    yield f"{style('cursor-gateway', bold=True)} {full_version()}"
    if state.is_demo:
        yield ""
        yield style(" DEMO: answers are built-in recordings. No agent runs, no files change. ", bold=True, reverse=True)
        yield style(f" {visible_line(gateway.why_demo)}", dim=True)
    yield ""
    for name, value in (
        ("Web page", f"{url}/"),
        ("OpenAI API", f"{url}/v1"),
        ("Anthropic API", url),
        ("Documents", f"{url}/v1/chat"),
        ("API docs", f"{url}/docs"),
        ("Backend", state.detail),
        ("Workspace", gateway.service.workspaces.summary),
        ("API keys", _keys(settings)),
    ):
        yield f"  {style(f'{name:13}', dim=True)}  {visible_line(value)}"
    yield "\nTry it from a shell:\n"
    yield style(curl(url, has_keys=has_keys), fg="cyan")
    yield "\nor from Python, with OpenAI's SDK (`pip install openai`):\n"
    yield style(snippet(url, has_keys=has_keys), fg="cyan")
    yield style("\nPress Ctrl-C to stop.", dim=True)


def _keys(settings: Settings) -> str:
    if settings.api_keys:
        return f"required (keys: {', '.join(sorted(settings.api_keys))})"
    if settings.store:
        return "those in the database; `cursor-gateway key --list` shows them"
    return "not required: only this machine can connect"


def curl(url: str, *, has_keys: bool) -> str:
    key = " -H 'Authorization: Bearer YOUR_KEY'" if has_keys else ""
    return f"""curl -s {url}/v1/chat{key} -H 'Content-Type: application/json' -d '{{"message": "hello"}}'"""


def snippet(url: str, *, has_keys: bool) -> str:
    """The OpenAI SDK, which most people have or know."""
    key = "YOUR_KEY" if has_keys else "any"
    return f'''from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key="{key}")
answer = client.chat.completions.create(model="auto", messages=[{{"role": "user", "content": "hello"}}])
print(answer.choices[0].message.content)'''
