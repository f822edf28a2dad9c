"""Serve a gateway, or the front of a cluster, on bound sockets, with all that runs beside it."""

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from time import time
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from cursor_gateway.cli.assembly.local_socket import WILDCARDS, GatewayDescription, listening, url_of
from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.errors import GatewayError, SettingsError, WorkspaceForbidden
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from cursor_gateway.cli.assembly.composition import Gateway
    from cursor_gateway.cli.commands.share import SharedPort
    from cursor_gateway.dialects.base import Dialect
    from cursor_gateway.mcp_server.endpoint import McpEndpoint
    from cursor_gateway.runs.run import Observer
    from cursor_gateway.runs.run_service import RunService
    from cursor_gateway.server.bodies import Handler
    from cursor_gateway.server.metrics import Metrics
    from cursor_gateway.server.streaming import Reading
    from cursor_gateway.server.tracing import Tracing
    from cursor_gateway.sources.router import SourceRouter
    from cursor_gateway.store.base import Outbox
    from cursor_gateway.webhooks.webhook import Webhook


_THREADS = 8  # for what waits for the disk


# Objects, and then collections of the youngest. Python's own 700 and 10 suit programs that make many cycles. Runs make
# few, so with hundreds of streams a tenth of the time went into looking for them; the peak of the memory is the same.
_COLLECT_AFTER, _COLLECT_ALL_AFTER = 50_000, 20
_SWITCH_SECONDS = 0.0002  # for which the event loop waits at most when a thread, such as the indexer, computes


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


_AFTER_A_BUG_SECONDS = 30.0


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
    tracing = _tracing(settings, warn or StructuredLog().warning)
    observers: list[Observer] = [RunLog(), metrics] if tracing is None else [tracing, RunLog(), metrics]
    asyncio.get_running_loop().call_soon(_load, settings)  # while it waits for the history and the agent
    gateway = await compose(
        settings, observers, warn=warn or StructuredLog().warning, takes_work=not is_temporary, tracing=tracing
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
        *_deliveries(settings, gateway.store, metrics),
    ]
    if gateway.service.queue is not None:
        gateway.service.queue.start(gateway.service.start_queued)
    try:
        node = None if is_temporary else gateway.node
        service = node.front if node is not None else gateway.service
        listens = partial(_listens, gateway, ready)
        await _serve(service, settings, metrics, sockets, listens, tracing, shared, handles_signals=not is_temporary)
    finally:
        for task in background:
            task.cancel()
        await gateway.close()
        if tracing is not None:
            await tracing.close()


async def serve_front(settings: Settings, sockets: Sequence[socket.socket], ready: Callable[[], None]) -> None:
    """Of a cluster: it serves clients, and runs no agents."""
    from cursor_gateway.cli.assembly.composition import compose_front, probe_history
    from cursor_gateway.fair_threads import FairExecutor
    from cursor_gateway.server.logs import StructuredLog
    from cursor_gateway.server.metrics import LoopLag, Metrics

    asyncio.get_running_loop().set_default_executor(FairExecutor(_THREADS, "gateway"))
    metrics = Metrics()
    tracing = _tracing(settings, StructuredLog().warning)
    node, store = await compose_front(settings, StructuredLog().warning)
    background = [
        asyncio.ensure_future(probe_history(store)),
        asyncio.ensure_future(LoopLag(metrics, StructuredLog()).watch()),
        *_deliveries(settings, store, metrics),
    ]
    try:
        await _serve(node.front, settings, metrics, sockets, ready, tracing)
    finally:
        for task in background:
            task.cancel()
        await node.close()
        await store.close()
        if tracing is not None:
            await tracing.close()


def _deliveries(settings: Settings, outbox: "Outbox", metrics: "Metrics") -> "list[asyncio.Future[None]]":
    """Tasks that send messages to webhooks."""
    if not settings.webhooks:
        return []
    from cursor_gateway.server.logs import StructuredLog
    from cursor_gateway.webhooks.delivery import Delivered, deliver

    def report(one: Delivered) -> None:
        metrics.webhook(one.webhook, one.result)
        facts: dict[str, object] = {"webhook": one.webhook, "run_id": one.run, "id": one.id, "attempts": one.attempts}
        match one.result:
            case "delivered" | "outdated":
                StructuredLog(**facts).info(f"webhook {one.result}")
            case "failed":
                StructuredLog(**facts).warning("webhook failed", reason=one.reason, again_in=round(one.next_seconds))
            case "dead":
                StructuredLog(**facts).warning("webhook given up", reason=one.reason)

    async def keep_delivering(name: str, webhook: "Webhook") -> None:
        while True:
            try:
                await deliver(outbox, name, webhook, report)
            except Exception as error:  # noqa: BLE001 -- reported; what is stored must not wait for the next start
                StructuredLog(webhook=name).error("mistake of the gateway", error)
                await asyncio.sleep(_AFTER_A_BUG_SECONDS)

    return [asyncio.ensure_future(keep_delivering(name, one)) for name, one in settings.webhooks.items()]


async def _serve(
    service: "RunService",
    settings: Settings,
    metrics: "Metrics",
    sockets: Sequence[socket.socket],
    ready: Callable[[], None],
    tracing: "Tracing | None",
    shared: "SharedPort | None" = None,
    *,
    handles_signals: bool = True,
) -> None:
    from cursor_gateway.cli.assembly.stores import key_ring
    from cursor_gateway.server.app import build_app
    from cursor_gateway.server.rendering import Renderings
    from cursor_gateway.server.serving import serve_apps

    serves, dialects = settings.role != "runner", dialects_of(settings)
    build = partial(build_app, mcp=partial(mcp_handlers, service, settings))
    if tracing is not None:
        build = partial(build, traced=tracing.requests)
    with closing(Renderings()) as renderings:
        async with key_ring(settings) as keys:
            if shared is None:
                app = build(service, settings, metrics, dialects, renderings, keys, serves_clients=serves)
                apps = {app: sockets}
            else:
                from cursor_gateway.server.links import LoginEndpoints

                logins, others = LoginEndpoints(shared.sharing, settings), shared.sharing.keys
                here = build(service, settings, metrics, dialects, renderings, keys, more=logins.for_operator)
                away = build(service, shared.settings, metrics, dialects, renderings, others, more=logins.for_devices)
                apps = {here: sockets, away: [shared.bound]}
            has_schedules = serves and handles_signals and settings.queue_ttl_seconds > 0
            with _keeping_schedules(service, settings) if has_schedules else nullcontext():
                await serve_apps(apps, service, settings, ready, handles_signals=handles_signals)


@contextmanager
def _keeping_schedules(service: "RunService", settings: Settings) -> Iterator[None]:
    """Also without any: those that there were may have left requests in the queue."""
    from cursor_gateway.keys import LOCAL_OWNER
    from cursor_gateway.server.logs import StructuredLog
    from cursor_gateway.server.schedules import Scheduler

    def report(name: str, error: Exception) -> None:
        log = StructuredLog(schedule=name)
        if isinstance(error, GatewayError):
            log.warning("schedule not queued", reason=str(error))
        else:
            log.error("mistake of the gateway", error)

    task = asyncio.ensure_future(Scheduler(service, settings.schedules, LOCAL_OWNER, report).run())
    try:
        yield
    finally:
        task.cancel()


def _tracing(settings: Settings, warn: Callable[[str], None]) -> "Tracing | None":
    """None: runs are not traced, and nothing of OpenTelemetry is loaded. Raises `SettingsError`."""
    from cursor_gateway.server.logs import carry_trace_ids

    is_named = any(os.environ.get(name) for name in _ENDPOINTS)
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if settings.opentelemetry == "off" or is_disabled or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if settings.opentelemetry == "auto" and not is_named:
        return None
    try:
        import cursor_gateway.server.trace_export as trace_export
    except ImportError:
        problem = "its packages are missing; run `pipx install --force '.[otel]'` in cursor-gateway's folder"
    else:
        problem = trace_export.unsupported(os.environ)
        if not problem:
            tracing = trace_export.open_tracing(os.environ)
            carry_trace_ids(tracing.ids)
            return tracing
    if settings.opentelemetry == "on":
        raise SettingsError(f"runs cannot be traced: {problem}.", param="opentelemetry")
    warn(f"Runs are not traced: {problem}, or set `opentelemetry` to `off`.")
    return None


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
    gc.set_threshold(_COLLECT_AFTER, _COLLECT_ALL_AFTER)
    gc.enable()


def _page_url(host: str, port: int) -> str:
    """As people on other machines open it, too; empty if this is not known."""
    return "" if host in WILDCARDS else url_of(host, port)


def dialects_of(settings: Settings) -> "list[Dialect]":
    """The APIs that a gateway speaks. The first is the default of `?dialect=`."""
    from cursor_gateway.dialects.ag_ui import ag_ui_dialect
    from cursor_gateway.dialects.ai_sdk import ai_sdk_dialect
    from cursor_gateway.dialects.chat.dialect import chat_dialect
    from cursor_gateway.dialects.documents.dialect import documents_dialect
    from cursor_gateway.dialects.messages.dialect import messages_dialect
    from cursor_gateway.dialects.responses.dialect import responses_dialect

    return [
        documents_dialect(settings.max_images),
        chat_dialect(settings.max_images, settings.agent_tools, settings.text),
        responses_dialect(settings.max_images, time, settings.text),
        messages_dialect(settings.max_images, settings.messages_actions, settings.text),
        ai_sdk_dialect(settings.max_images),
        ag_ui_dialect(settings.max_images),
    ]


def mcp_handlers(service: "RunService", settings: Settings, reading: "Reading") -> "Mapping[str, Handler]":
    """Of `/mcp`; loaded with the first request to it."""
    endpoint: McpEndpoint | None = None

    async def loaded() -> "McpEndpoint":
        nonlocal endpoint
        await asyncio.to_thread(import_module, "cursor_gateway.mcp_server.endpoint")
        if endpoint is None:
            from cursor_gateway.dialects.documents.dialect import documents_dialect
            from cursor_gateway.mcp_server.endpoint import McpEndpoint

            endpoint = McpEndpoint(service, settings, documents_dialect(settings.max_images), reading)
        return endpoint

    async def mcp(request: "Request") -> "ASGIApp":
        return await (endpoint or await loaded()).message(request)

    async def mcp_stream(request: "Request") -> "ASGIApp":
        return await (endpoint or await loaded()).stream(request)

    async def mcp_end(request: "Request") -> "ASGIApp":
        return await (endpoint or await loaded()).end(request)

    return {"POST": mcp, "GET": mcp_stream, "DELETE": mcp_end}
