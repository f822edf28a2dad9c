"""`cursor-gateway serve`: run the gateway."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, TextIO, TypeVar

import click
from msgspec.structs import replace

from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.hardening import protect_memory
from cursor_gateway.cli.local_socket import GatewayDescription, listening
from cursor_gateway.cli.path_completion import complete_folder
from cursor_gateway.errors import GatewayError, SettingsError, WorkspaceForbidden
from cursor_gateway.settings import Settings, check_exposed

if TYPE_CHECKING:
    from cursor_gateway.cli.composition import Gateway
    from cursor_gateway.cli.sharing import SharedPort
    from cursor_gateway.runs.run_service import RunService
    from cursor_gateway.server.metrics import Metrics
    from cursor_gateway.sources.router import SourceRouter

_THREADS = 8  # for what waits for the disk
_SWITCH_SECONDS = 0.0002  # for which the event loop waits at most when a thread, such as the indexer, computes

_T = TypeVar("_T")


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
    from cursor_gateway.server.logs import configure
    from cursor_gateway.server.sockets import bound_socket

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
                from cursor_gateway.sources.descendants import subreaper

                with subreaper():
                    ready = _banner(settings, host, port, opens_page, shared)
                    run_loop(serve_gateway(settings, [bound, *local], ready, shared=shared))
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    return 0


def _shared(settings: Settings, port: int, *, is_shared: bool) -> "AbstractContextManager[SharedPort | None]":
    if not is_shared:
        return nullcontext()
    from cursor_gateway.cli.sharing import shared_port

    return shared_port(settings, port)


@contextmanager
def local_socket(settings: Settings, port: int, *, is_temporary: bool = False) -> Iterator[list[socket.socket]]:
    """Where the commands of this user find the gateway. Without one they refuse it; other clients do not use it."""
    from cursor_gateway.server.logs import Log

    data = data_dir(settings)
    roots = [*(settings.workspace_roots or [settings.workspace or "."]), *settings.volumes.values()]
    folders = [os.path.realpath(os.path.expanduser(root)) for root in roots]
    description = GatewayDescription(url_of(settings.host, port), folders, is_temporary)
    with ExitStack() as opened:
        try:
            sockets = [opened.enter_context(listening(data, port, description))]
        except OSError as error:
            sockets = []
            if data.is_dir():  # else the gateway does not start, and says why
                reason = f"{error.filename or data}: {error.strerror or error}"
                Log().warning(
                    "no local socket", reason=reason, effect="chat and the other commands refuse this gateway"
                )
        yield sockets


def _flush(stream: TextIO) -> None:
    """Unread output must not fail again when Python exits, and change the exit status."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run_loop(serving: Coroutine[None, None, _T]) -> _T:
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.disable()  # until it listens: the objects made before that stay, and collecting them takes a tenth of the time
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serving)
    else:
        return uvloop.run(serving)
    finally:
        gc.enable()


async def serve_gateway(
    settings: Settings,
    sockets: Sequence[socket.socket],
    ready: Callable[["Gateway"], None],
    *,
    is_temporary: bool = False,
    shared: "SharedPort | None" = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """The first socket is the port's. `ready` is called as soon as it listens.

    `is_temporary`: it belongs to a command, which handles signals; in a cluster, it runs no agents for others, nor they
    for it. `shared`: the port for other devices. `warn`: instead of the log.
    """
    from cursor_gateway.cli.composition import compose, keep_history, probe_history
    from cursor_gateway.fair_threads import FairExecutor
    from cursor_gateway.server.logs import Log, RunLog
    from cursor_gateway.server.metrics import LoopLag, Metrics

    if not (settings.page_url or settings.store):
        settings = replace(settings, page_url=_page_url(*sockets[0].getsockname()[:2]))
    asyncio.get_running_loop().set_default_executor(FairExecutor(_THREADS, "gateway"))
    metrics = Metrics()
    asyncio.get_running_loop().call_soon(_load)  # while it waits for the history and the agent
    gateway = await compose(settings, [RunLog(), metrics], warn=warn or Log().warning, takes_work=not is_temporary)
    with suppress(WorkspaceForbidden):  # then each request is refused, too
        gateway.service.workspaces.check(str(gateway.service.workspaces.default))
        gateway.service.source.warm_up(str(gateway.service.workspaces.default))
    background = [
        asyncio.ensure_future(_ask_models(gateway.service.source)),
        asyncio.ensure_future(keep_history(gateway, settings)),
        asyncio.ensure_future(probe_history(gateway.store)),
        asyncio.ensure_future(LoopLag(metrics, Log()).watch()),
        asyncio.ensure_future(gateway.ledger.note_orphans()),
    ]
    try:
        node = None if is_temporary else gateway.node
        service = node.front if node is not None else gateway.service
        listens = partial(_listens, gateway, ready)
        await _serve(service, settings, metrics, sockets, listens, shared, handles_signals=not is_temporary)
    finally:
        for task in background:
            task.cancel()
        await gateway.close()


async def serve_front(settings: Settings, sockets: Sequence[socket.socket], ready: Callable[[], None]) -> None:
    """Of a cluster: it serves clients, and runs no agents."""
    from cursor_gateway.cli.composition import compose_front, probe_history
    from cursor_gateway.fair_threads import FairExecutor
    from cursor_gateway.server.logs import Log
    from cursor_gateway.server.metrics import LoopLag, Metrics

    asyncio.get_running_loop().set_default_executor(FairExecutor(_THREADS, "gateway"))
    metrics = Metrics()
    node, store = await compose_front(settings, Log().warning)
    background = [
        asyncio.ensure_future(probe_history(store)),
        asyncio.ensure_future(LoopLag(metrics, Log()).watch()),
    ]
    try:
        await _serve(node.front, settings, metrics, sockets, ready)
    finally:
        for task in background:
            task.cancel()
        await node.close()
        await store.close()


async def _serve(
    service: "RunService",
    settings: Settings,
    metrics: "Metrics",
    sockets: Sequence[socket.socket],
    ready: Callable[[], None],
    shared: "SharedPort | None" = None,
    *,
    handles_signals: bool = True,
) -> None:
    from cursor_gateway.cli.dialects import dialects_of
    from cursor_gateway.cli.key_rings import key_ring
    from cursor_gateway.server.app import build_app
    from cursor_gateway.server.rendering import Renderings
    from cursor_gateway.server.serving import serve_apps

    serves, dialects = settings.role != "runner", dialects_of(settings)
    with closing(Renderings()) as renderings:
        async with key_ring(settings) as keys:
            if shared is None:
                app = build_app(service, settings, metrics, dialects, renderings, keys, serves_clients=serves)
                apps = {app: sockets}
            else:
                from cursor_gateway.server.logins import LoginEndpoints

                logins, others = LoginEndpoints(shared.sharing, settings), shared.sharing.keys
                here = build_app(service, settings, metrics, dialects, renderings, keys, more=logins.for_operator)
                away = build_app(
                    service, shared.settings, metrics, dialects, renderings, others, more=logins.for_devices
                )
                apps = {here: sockets, away: [shared.bound]}
            await serve_apps(apps, service, settings, ready, handles_signals=handles_signals)


def _load() -> None:
    import cursor_gateway.cli.dialects
    import cursor_gateway.server.app
    import cursor_gateway.server.serving  # noqa: F401 -- loaded now, so that they are not later


async def _ask_models(source: "SourceRouter") -> None:
    """Before the first request: a model is rejected early only if the list is known."""
    with suppress(GatewayError):
        await source.models()


def _listens(gateway: "Gateway", ready: Callable[["Gateway"], None]) -> None:
    ready(gateway)
    gc.freeze()
    gc.enable()


def _banner(
    settings: Settings, host: str, port: int, opens_page: bool, shared: "SharedPort | None"
) -> Callable[["Gateway"], None]:
    def show(gateway: "Gateway") -> None:
        from cursor_gateway.cli.banner import show_banner

        with suppress(OSError):  # its output is closed, or the disk is full
            show_banner(gateway, settings, url_of(host, port))
            if shared is not None:
                from cursor_gateway.cli.sharing import show_shared

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
    from cursor_gateway.cli.banner import show_member

    with suppress(OSError):
        show_member(settings, url_of(host, port))
    _notify_service_manager()


def _open_page(url: str) -> None:
    """In its own process: some browsers return only when they are closed."""
    import webbrowser

    if not webbrowser.open(url):
        from cursor_gateway.server.logs import Log

        Log().warning("no browser found", effect=f"open {url} yourself")


_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def _page_url(host: str, port: int) -> str:
    """As people on other machines open it, too; empty if this is not known."""
    return "" if host in _WILDCARDS else url_of(host, port)


def url_of(host: str, port: int) -> str:
    """For people: a wildcard address cannot be opened in a browser."""
    shown = _WILDCARDS.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
