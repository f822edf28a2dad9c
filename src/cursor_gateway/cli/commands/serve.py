"""`cursor-gateway serve`: run the gateway."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO

import click
from click import echo, style

from cursor_gateway.cli.assembly.local_socket import url_of
from cursor_gateway.cli.assembly.serving import local_socket, run_loop, serve_front, serve_gateway
from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import complete_folder, full_version, wants_plain
from cursor_gateway.errors import SettingsError, WorkspaceForbidden
from cursor_gateway.render.visible import visible_line
from cursor_gateway.settings import Settings, check_exposed

if TYPE_CHECKING:
    from cursor_gateway.cli.assembly.composition import Gateway
    from cursor_gateway.cli.commands.share import SharedPort


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway serve
      cursor-gateway serve --workspace ~/project --open
      cursor-gateway serve --allow 'Shell(git)' --allow 'Shell(npm)'
      cursor-gateway serve --share                 use it from your phone
      cursor-gateway serve --host 0.0.0.0          with API keys: see `cursor-gateway key`

    Every setting can also be set in the configuration file or the environment: see `cursor-gateway settings`.""",
)
@config
@click.option(
    "--host", metavar="H", help="The address to listen on. Any address other than loopback requires API keys."
)
@click.option("--port", type=int, metavar="N", help="The port to listen on; 0 chooses a free one and prints it.")
@click.option("--source", metavar="NAME", help="The backend: auto, cli, acp, sdk or replay.")
@click.option("--workspace", metavar="DIR", shell_complete=complete_folder, help="The default folder to work in.")
@click.option("--model", metavar="NAME", help="The default model.")
@click.option("--force/--no-force", default=None, help="Let the agent run every command without asking. Dangerous.")
@click.option(
    "--allow",
    multiple=True,
    metavar="RULE",
    help="Let the agent do this without asking, such as 'Shell(npm test)'; can be repeated.",
)
@click.option(
    "--record",
    "record_dir",
    metavar="DIR",
    shell_complete=complete_folder,
    help="Write a recording of every run into this folder.",
)
@click.option("--record-prompts/--no-record-prompts", default=None, help="Whether recordings include the prompts.")
@click.option(
    "--replay",
    "replay_dir",
    metavar="DIR",
    shell_complete=complete_folder,
    help="Play the recordings in this folder; no agent runs.",
)
@click.option("--log-format", metavar="FORM", help="The log format: auto, human or json.")
@click.option("--log-level", metavar="LEVEL", help="The minimum log level: debug, info, warning or error.")
@click.option("--open", "opens_page", is_flag=True, help="Open the web page in the browser.")
@click.option(
    "--share",
    "is_shared",
    is_flag=True,
    help="Let your other devices log in, over HTTPS by Tailscale or a proxy. Asks before it opens anything.",
)
def serve(config: str | None, opens_page: bool, is_shared: bool, **flags: object) -> int:
    """Start the gateway: the web page, OpenAI's and Anthropic's APIs, and the documents API."""
    if flags["replay_dir"] is not None and flags["source"] is None:
        flags["source"] = "replay"
    settings = configuration(config, flags).settings
    check_exposed(settings)
    if settings.store:  # agents must not find its password
        protect_memory()
    # Unlike a filter in a pipe, a server continues when its output is closed.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Otherwise a signal before or after serving would end the process without cleanup.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from cursor_gateway.cli.assembly.local_socket import bound_socket
    from cursor_gateway.server.logs import configure

    if sys.stderr is None:  # `serve 2>&-`; a file of ours must not get its number
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 -- for as long as the process lives
    configure(settings.log_format, settings.log_level, sys.stderr)
    try:
        bound = bound_socket(settings.host, settings.port)
    except OSError as error:
        raise SettingsError(
            f"the gateway cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; "
            "choose another with `--port`, or 0 for a free one.",
            param="port",
        ) from None
    with bound, suppress(KeyboardInterrupt), local_socket(settings, bound.getsockname()[1]) as local:
        host, port = bound.getsockname()[:2]
        with _shared(settings, port, is_shared=is_shared) as shared:
            if settings.role == "front":
                run_loop(serve_front(settings, [bound, *local], lambda: _show_member(settings, host, port)))
            else:
                from cursor_gateway.sources.processes import subreaper

                with subreaper():
                    ready = _banner(settings, host, port, opens_page, shared)
                    run_loop(serve_gateway(settings, [bound, *local], ready, shared=shared))
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    return 0


def _shared(settings: Settings, port: int, *, is_shared: bool) -> "AbstractContextManager[SharedPort | None]":
    if not is_shared:
        return nullcontext()
    from cursor_gateway.cli.commands.share import shared_port

    return shared_port(settings, port)


def _flush(stream: TextIO) -> None:
    """Unread output must not fail again when Python exits, and change the exit status."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _banner(
    settings: Settings, host: str, port: int, opens_page: bool, shared: "SharedPort | None"
) -> Callable[["Gateway"], None]:
    def show(gateway: "Gateway") -> None:

        with suppress(OSError):  # its output is closed, or the disk is full
            show_banner(gateway, settings, url_of(host, port))
            if shared is not None:
                from cursor_gateway.cli.commands.share import show_shared

                show_shared(shared.sharing)
        _notify_service_manager()
        if opens_page:
            threading.Thread(target=_open_page, args=(f"{url_of(host, port)}/",), daemon=True).start()

    return show


def _notify_service_manager() -> None:
    """systemd waits for this if it started the gateway (`Type=notify`)."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.sendto(b"READY=1", address.replace("@", "\0", 1) if address.startswith("@") else address)


def _show_member(settings: Settings, host: str, port: int) -> None:

    with suppress(OSError):
        show_member(settings, url_of(host, port))
    _notify_service_manager()


def _open_page(url: str) -> None:
    """In its own process: some browsers return only when they are closed."""
    import webbrowser

    if not webbrowser.open(url):
        from cursor_gateway.server.logs import StructuredLog

        StructuredLog().warning("no browser found", effect=f"open {url} yourself")


# --- what people see when it has started -------------------------------------------------------------


def show_banner(gateway: "Gateway", settings: Settings, url: str) -> None:
    """Without rich, which is slow to import: people wait for this."""
    echo("\n".join(_lines(gateway, settings, url)), color=not wants_plain())


def show_member(settings: Settings, url: str) -> None:
    """Of a front, which runs no agents."""
    apis = {"Web page": f"{url}/", "OpenAI API": f"{url}/v1", "Documents": f"{url}/v1/chat"}
    head = f"{style('cursor-gateway', bold=True)} {full_version()}, {settings.role} of a cluster\n"
    echo(
        "\n".join([head, *_rows({**apis, "API keys": _keys(settings)}), style("\nPress Ctrl-C to stop.", dim=True)]),
        color=not wants_plain(),
    )


def _rows(facts: Mapping[str, str]) -> Iterator[str]:
    for name, value in facts.items():
        yield f"  {style(f'{name:13}', dim=True)}  {visible_line(value)}"


def _lines(gateway: "Gateway", settings: Settings, url: str) -> Iterator[str]:
    state, has_keys = gateway.service.source.state(), bool(settings.api_keys or settings.store)
    if settings.role == "runner":
        yield from _runner_lines(gateway, settings, url)
        return
    yield f"{style('cursor-gateway', bold=True)} {full_version()}"
    if state.is_demo:
        yield ""
        yield style(" DEMO: answers are built-in recordings. No agent runs, no files change. ", bold=True, reverse=True)
        yield style(f" {visible_line(gateway.why_demo)}", dim=True)
    yield ""
    facts = {
        "Web page": f"{url}/",
        "OpenAI API": f"{url}/v1",
        "Anthropic API": url,
        "Documents": f"{url}/v1/chat",
        "API docs": f"{url}/docs",
        "Backend": state.detail,
        "Workspace": gateway.service.workspaces.summary,
        "API keys": _keys(settings),
    }
    yield from _rows(facts)
    yield from _refusal(gateway)
    yield "\nTry it from a shell:\n"
    yield style(curl(url, has_keys=has_keys), fg="cyan")
    yield "\nor from Python, with OpenAI's SDK (`pip install openai`):\n"
    yield style(snippet(url, has_keys=has_keys), fg="cyan")
    yield style("\nPress Ctrl-C to stop.", dim=True)


def _runner_lines(gateway: "Gateway", settings: Settings, url: str) -> Iterator[str]:
    """Only what it serves: clients talk to fronts."""
    yield f"{style('cursor-gateway', bold=True)} {full_version()}, runner of a cluster\n"
    facts = {
        "Health": f"{url}/livez, /readyz, /health and /metrics",
        "Backend": gateway.service.source.state().detail,
        "Workspace": gateway.service.workspaces.summary,
        "Volumes": ", ".join(settings.volumes) or "this machine's own",
        "Places": f"{settings.max_runs}",
    }
    yield from _rows(facts)
    yield from _refusal(gateway)
    yield style("\nIt takes requests from the database. Press Ctrl-C to stop.", dim=True)


def _refusal(gateway: "Gateway") -> Iterator[str]:
    """What each request for the default workspace will be told."""
    try:
        gateway.service.workspaces.check(str(gateway.service.workspaces.default))
    except WorkspaceForbidden as error:
        yield style(f"\n{visible_line(str(error))}", fg="yellow")


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


# --- secrets -----------------------------------------------------------------------------------------


_PR_SET_DUMPABLE = 4


def protect_memory() -> bool:
    """Whether that worked. It also disables core dumps, which would contain the same."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
