"""Serve a gateway, or the front of a cluster, on bound sockets, with all that runs beside it."""

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from time import time
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from cursor_gateway.cli.assembly.local_socket import WILDCARDS, GatewayDescription, listening, url_of
from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.errors import GatewayError, WorkspaceForbidden
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.cli.assembly.composition import Gateway
    from cursor_gateway.cli.commands.share import SharedPort
    from cursor_gateway.dialects.base import Dialect
    from cursor_gateway.runs.run_service import RunService
    from cursor_gateway.server.metrics import Metrics
    from cursor_gateway.sources.router import SourceRouter


_THREADS = 8  # for what waits for the disk


_SWITCH_SECONDS = 0.0002  # for which the event loop waits at most when a thread, such as the indexer, computes


_T = TypeVar("_T")


@contextmanager
def local_socket(settings: Settings, port: int, *, is_temporary: bool = False) -> Iterator[list[socket.socket]]:
    """Where the commands of this user find the gateway. Without one they refuse it; other clients do not use it."""
    from cursor_gateway.server.logs import StructuredLog

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
                StructuredLog().warning(
                    "no local socket", reason=reason, effect="chat and the other commands refuse this gateway"
                )
        yield sockets


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
    from cursor_gateway.cli.assembly.composition import compose, keep_history, probe_history
    from cursor_gateway.fair_threads import FairExecutor
    from cursor_gateway.server.logs import RunLog, StructuredLog
    from cursor_gateway.server.metrics import LoopLag, Metrics

    if not (settings.page_url or settings.store):
        settings = replace(settings, page_url=_page_url(*sockets[0].getsockname()[:2]))
    asyncio.get_running_loop().set_default_executor(FairExecutor(_THREADS, "gateway"))
    metrics = Metrics()
    asyncio.get_running_loop().call_soon(_load, settings)  # while it waits for the history and the agent
    gateway = await compose(
        settings, [RunLog(), metrics], warn=warn or StructuredLog().warning, takes_work=not is_temporary
    )
    with suppress(WorkspaceForbidden):  # then each request is refused, too
        gateway.service.workspaces.check(str(gateway.service.workspaces.default))
        gateway.service.source.warm_up(str(gateway.service.workspaces.default))
    background = [
        asyncio.ensure_future(_ask_models(gateway.service.source)),
        asyncio.ensure_future(keep_history(gateway, settings)),
        asyncio.ensure_future(probe_history(gateway.store)),
        asyncio.ensure_future(LoopLag(metrics, StructuredLog()).watch()),
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
    from cursor_gateway.cli.assembly.composition import compose_front, probe_history
    from cursor_gateway.fair_threads import FairExecutor
    from cursor_gateway.server.logs import StructuredLog
    from cursor_gateway.server.metrics import LoopLag, Metrics

    asyncio.get_running_loop().set_default_executor(FairExecutor(_THREADS, "gateway"))
    metrics = Metrics()
    node, store = await compose_front(settings, StructuredLog().warning)
    background = [
        asyncio.ensure_future(probe_history(store)),
        asyncio.ensure_future(LoopLag(metrics, StructuredLog()).watch()),
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
    from cursor_gateway.cli.assembly.stores import key_ring
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


def _load(settings: Settings) -> None:
    dialects_of(settings)
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


def _page_url(host: str, port: int) -> str:
    """As people on other machines open it, too; empty if this is not known."""
    return "" if host in WILDCARDS else url_of(host, port)


def dialects_of(settings: Settings) -> "list[Dialect]":
    """The APIs that a gateway speaks. The first is the default of `?dialect=`."""
    from cursor_gateway.dialects.chat.dialect import chat_dialect
    from cursor_gateway.dialects.documents.dialect import documents_dialect
    from cursor_gateway.dialects.messages.dialect import messages_dialect
    from cursor_gateway.dialects.responses.dialect import responses_dialect

    return [
        documents_dialect(settings.max_images),
        chat_dialect(settings.max_images, settings.agent_tools, settings.text),
        responses_dialect(settings.max_images, time, settings.text),
        messages_dialect(settings.max_images, settings.messages_actions, settings.text),
    ]
