"""A gateway that has started in; what a newcomer wants to know of it, on the terminal, out."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.cli.composition import Gateway


def show_banner(console: Console, gateway: "Gateway", settings: Settings, url: str) -> None:
    state = gateway.service.source.state()
    print = console.print
    print(Text.assemble(("cursor-gateway ", "bold"), version("cursor-gateway")))
    if state.is_demo:
        print()
        print(Text(" DEMO: built-in recordings answer. No agent runs, no file changes. ", "bold reverse"))
        print(Text(f" {gateway.why_demo}", "dim"))
    print()
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("Page", f"{url}/"),
        ("OpenAI API", f"{url}/v1"),
        ("Documents", f"{url}/v1/chat"),
        ("Description", f"{url}/docs"),
        ("Answers from", state.detail),
        ("Works in", gateway.service.workspaces.told),
        ("API keys", _keys(settings)),
    ):
        table.add_row(Text(f"  {name}", "dim"), Text(value))
    print(table)
    print()
    print("Try it in a shell:\n")
    print(Text(curl(url, has_keys=bool(settings.api_keys)), "cyan"), soft_wrap=True)
    print("\nor in Python:\n")
    print(Text(snippet(url, has_keys=bool(settings.api_keys)), "cyan"), soft_wrap=True)
    print("\nCtrl-C stops it.", style="dim")


def _keys(settings: Settings) -> str:
    if settings.api_keys:
        return f"needed; known are those of {', '.join(sorted(settings.api_keys))}"
    return "not needed: only this machine can reach it"


def curl(url: str, *, has_keys: bool) -> str:
    key = " -H 'Authorization: Bearer YOUR_KEY'" if has_keys else ""
    return f"""curl -s {url}/v1/chat{key} -H 'Content-Type: application/json' -d '{{"message": "hello"}}'"""


def snippet(url: str, *, has_keys: bool) -> str:
    """Of the standard library alone, so that it works wherever Python does."""
    key = ', "Authorization": "Bearer YOUR_KEY"' if has_keys else ""
    return f'''import json, urllib.request
headers = {{"Content-Type": "application/json"{key}}}
request = urllib.request.Request("{url}/v1/chat", b'{{"message": "hello"}}', headers)
for document in json.load(urllib.request.urlopen(request))["documents"]:
    print(document["type"], document["content"])'''
