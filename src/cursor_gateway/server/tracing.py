"""Observes runs and requests; makes spans of OpenTelemetry of them. Imported only where runs are traced.

A run has one span, `invoke_agent`, below the span of the request that started it, in this process or in a cluster's
front. What it writes to the store is what happened in it: `RunSpans` makes spans of that. Requests that continue the
run or join it are linked to it. A mistake here costs a trace, never a run.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cursor_gateway.errors import Failure, GatewayError
from cursor_gateway.model.agent_events import RunStarted
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.requests import TraceContext
from cursor_gateway.runs.run import Run
from cursor_gateway.server.logs import StructuredLog, outcome
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.router import AgentBatches
from cursor_gateway.stages import run_spans
from cursor_gateway.store.base import Lease, NewRun, Refused, RunEnd, Store, Written

_NAME = "cursor_gateway"
_SLOW_NS = 100_000_000  # a write that takes longer has a span of its own; so do the first and the last one
_MOST_BEGUN = 1000  # runs that are stored and have not started
_FLUSH_SECONDS = 3.0
_TRACED = ("/v1/", "/mcp")  # what may start a run, or continue one
_PROPAGATOR = TraceContextTextMapPropagator()
_log = StructuredLog()


class Tracing:
    """An observer of runs, and of the requests that lead to them."""

    def __init__(
        self, provider: TracerProvider, convention: run_spans.Convention, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._provider, self._convention, self.clock = provider, convention, clock
        self.tracer = provider.get_tracer(_NAME)
        self._runs: dict[str, _RunTrace] = {}
        self._begun: dict[str, tuple[int, int]] = {}  # when runs that have not started yet were stored

    # --- an observer of runs ------------------------------------------------------------------------

    def started(self, run: Run) -> None:
        _safely(self._started, run)

    def _started(self, run: Run) -> None:
        info, now = run.info, self.clock()
        asked = info.trace
        is_resumed = run.log.dropped > 0  # what another process did of it is not in this span
        began = asked.received_ns if asked is not None and asked.received_ns and not is_resumed else now
        attributes = dict(run_spans.run_attributes(info, run.owner, run.source_name, self._convention))
        attributes["cursor_gateway.request.id"] = run.plan.request_id
        if is_resumed:
            attributes["cursor_gateway.resumed"] = True
        span = self.tracer.start_span(
            f"invoke_agent {run_spans.AGENT}",
            _context_of(asked) if asked is not None else contexts.Context(),
            SpanKind.INTERNAL,
            attributes,
            start_time=min(began, now),
        )
        traced = self._runs[info.id] = _RunTrace(self, span, asked, run.log.dropped, self._convention)
        if began < now:
            traced.apply(traced.spans.received(began))
        if (begun := self._begun.pop(info.id, None)) is not None:
            traced.wrote(*begun, is_shown=True)

    def first_event(self, run: Run) -> None:
        """It is among those that are stored."""

    def ended(self, run: Run) -> None:
        _safely(self._ended, run)

    def _ended(self, run: Run) -> None:
        traced = self._runs.get(run.id)
        if traced is None:
            return
        result, done, now = outcome(run), run.done, self.clock()
        attributes = dict(run_spans.end_attributes(done, result, self._convention))
        if run.use is not None:
            attributes["cursor_gateway.agent.cpu_seconds"] = run.use.cpu_seconds
            if run.use.memory_bytes is not None:
                attributes["cursor_gateway.agent.memory_bytes"] = run.use.memory_bytes
        if self._convention.is_latest and self._convention.has_content:
            asked = [message.text for message in run.begun.messages if message.role == "user"]
            attributes |= run_spans.message_attributes(asked, run.log.state.text, result)
        traced.end(attributes, done.failure if done is not None and result == "failed" else None, now)
        asyncio.get_running_loop().call_soon(self._runs.pop, run.id, None)  # the last line of the log has its ids

    def fault(self, run: Run, error: Exception) -> None:
        if (traced := self._runs.get(run.id)) is not None:
            traced.span.add_event("exception", {"exception.type": type(error).__qualname__})

    def repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        """No run: the request's own span has the failure."""

    def asked(self, run_id: str, trace: TraceContext) -> None:
        _safely(self._asked, run_id, trace)

    def _asked(self, run_id: str, trace: TraceContext) -> None:
        """Links the run with a request that continues or joins it, in both directions where both are here."""
        traced = self._runs.get(run_id)
        if traced is None or traced.asked == trace:
            return
        request = _span_context(trace)
        traced.span.add_link(request)
        traced.span.add_event("request", {"cursor_gateway.trace_id": f"{request.trace_id:032x}"})
        current = _current()
        if current.get_span_context().span_id == request.span_id:
            current.add_link(traced.span.get_span_context())

    # --- what it is told besides --------------------------------------------------------------------

    async def turn(self, turn: Turn, source: str, batches: AgentBatches) -> AgentBatches:
        """The agent's output, unchanged."""
        self._tell(turn.run_id, lambda traced, at: traced.apply(traced.spans.agent_starts(source, at)))
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    if isinstance(event, RunStarted):
                        self._ready(turn.run_id, event.is_warm)
                yield batch

    def _ready(self, run_id: str, is_warm: bool) -> None:
        self._tell(run_id, lambda traced, at: traced.apply(traced.spans.agent_ready(is_warm, at)))

    def _tell(self, run_id: str, note: Callable[["_RunTrace", int], None]) -> None:
        """At once, or when the run has been `started` here: its agent may be quicker than that."""
        at = self.clock()

        def tell() -> None:
            if (traced := self._runs.get(run_id)) is not None:
                note(traced, at)

        if run_id in self._runs:
            _safely(tell)
        else:
            asyncio.get_running_loop().call_soon(_safely, tell)

    def begun(self, run_id: str, began: int) -> None:
        """It is in the store before its first event, and maybe before it starts."""
        if run_id in self._runs:
            self._tell(run_id, lambda traced, ended: traced.wrote(began, ended, is_shown=True))
            return
        self._begun[run_id] = began, self.clock()
        if len(self._begun) > _MOST_BEGUN:  # of runs that were never started
            del self._begun[next(iter(self._begun))]

    def wrote(self, run_id: str, first_number: int, events: Sequence[DocumentEvent], began: int) -> None:
        self._tell(run_id, lambda traced, ended: traced.push(first_number, events, began, ended))

    def store(self, store: Store) -> Store:
        """The same, and this knows what is written."""
        return cast(Store, _ObservedStore(store, self))

    def requests(self, app: ASGIApp) -> ASGIApp:
        """With a span for each request that may start a run or continue one."""
        return _TracedRequests(app, self)

    def ids(self, run_id: object) -> Mapping[str, str]:
        """For a line of the log: about this run, or about the request that is being handled."""
        traced = self._runs.get(run_id) if isinstance(run_id, str) else None
        found = (traced.span if traced is not None else _current()).get_span_context()
        if not found.is_valid:
            return {}
        return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}

    async def close(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Sends what is left, within that time: the process must not wait for a collector that does not answer."""
        loop, is_sent = asyncio.get_running_loop(), asyncio.Event()

        def flush() -> None:
            self._provider.shutdown()
            try:
                loop.call_soon_threadsafe(is_sent.set)
            except RuntimeError:  # the loop has ended meanwhile
                return

        threading.Thread(target=flush, name="traces", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await is_sent.wait()
        except TimeoutError:
            _log.warning("traces lost", reason=f"the collector did not take them within {seconds:g} s")


class _RunTrace:
    def __init__(
        self, tracing: Tracing, span: Span, asked: TraceContext | None, stored: int, convention: run_spans.Convention
    ) -> None:
        self.span, self.asked = span, asked
        self.spans = run_spans.RunSpans(convention)
        self._tracing, self._context = tracing, trace.set_span_in_context(span, contexts.Context())
        self._open: dict[str, Span] = {}
        self._seen = stored  # the number of the last event
        self._done_at = 0
        self._writes, self._write_ns = 0, 0

    def apply(self, changes: Iterable[run_spans.SpanChange]) -> None:
        for change in changes:
            match change:
                case run_spans.SpanStart(id=id, parent=parent):
                    above = self._open.get(parent)
                    context = self._context if above is None else trace.set_span_in_context(above, self._context)
                    self._open[id] = self._tracing.tracer.start_span(
                        change.name, context, SpanKind.INTERNAL, dict(change.attributes), start_time=change.at
                    )
                case run_spans.SpanEnd(id=id, at=at, error=error):
                    _end(self._open.pop(id), change.attributes, error, error, at)

    def push(self, first_number: int, events: Sequence[DocumentEvent], began: int, ended: int) -> None:
        """Some of them may have been written before: a store that failed is asked again."""
        new = events[max(0, self._seen + 1 - first_number) :]
        self._seen = max(self._seen, first_number + len(events) - 1)
        for event in new:
            self.apply(self.spans.push(event, began))
        is_last = bool(events) and isinstance(events[-1], Done)
        if is_last:
            self._done_at = ended
        self.wrote(began, ended, is_shown=is_last or not self._writes)

    def wrote(self, began: int, ended: int, *, is_shown: bool) -> None:
        self._writes, self._write_ns = self._writes + 1, self._write_ns + ended - began
        if is_shown or ended - began >= _SLOW_NS:
            span = self._tracing.tracer.start_span("store", self._context, SpanKind.INTERNAL, start_time=began)
            span.end(ended)

    def end(self, attributes: run_spans.Attributes, failure: Failure | None, now: int) -> None:
        at = self._done_at or now
        self.apply(self.spans.end(at))
        seconds = {"cursor_gateway.store.writes": self._writes, "cursor_gateway.store.seconds": self._write_ns / 1e9}
        why = (failure.code, failure.message) if failure is not None else ("", "")
        _end(self.span, {**attributes, **seconds}, *why, at)


class _ObservedStore:
    """A `Store`: two methods are observed, and all others are the store's own."""

    def __init__(self, store: Store, tracing: Tracing) -> None:
        self._store, self._tracing = store, tracing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def begin_run(
        self, new: NewRun, events: Sequence[DocumentEvent] = (), end: RunEnd | None = None
    ) -> Refused | Written:
        began = self._tracing.clock()
        try:
            return await self._store.begin_run(new, events, end)
        finally:
            if events:
                self._tracing.wrote(new.id, 1, events, began)
            else:
                self._tracing.begun(new.id, began)

    async def append(
        self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd | None = None
    ) -> Written:
        began = self._tracing.clock()
        try:
            return await self._store.append(lease, first_number, events, end)
        finally:
            self._tracing.wrote(lease.run_id, first_number, events, began)


class _TracedRequests:
    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app, self._tracing = app, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or not scope["path"].startswith(_TRACED):
            await self._app(scope, receive, send)
            return
        clock = self._tracing.clock
        received, headers = clock(), dict(reversed(scope["headers"]))
        sent = TraceContext(
            headers.get(b"traceparent", b"").decode("latin-1"), headers.get(b"tracestate", b"").decode("latin-1")
        )
        request_id: str = scope["state"]["request_id"]
        span = self._tracing.tracer.start_span(
            "POST",
            _context_of(sent),
            SpanKind.SERVER,
            {
                "http.request.method": "POST",
                "url.path": scope["path"],
                "url.scheme": scope["scheme"],
                "cursor_gateway.request.id": request_id,
            },
            start_time=received,
        )
        context = trace.set_span_in_context(span, contexts.Context())
        contexts.attach(context)  # until the request's task ends; it has a context of its own
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, context)
        scope["trace"] = TraceContext(carrier["traceparent"], carrier.get("tracestate", ""), received)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                _answered(span, message["status"], dict(message.get("headers", ())))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except GatewayError as error:
            failure = error.failure()
            _answered(span, failure.status, {}, failure.code)
            raise
        except ClientDisconnect:
            span.set_attribute("cursor_gateway.client_left", True)
            raise
        except Exception as error:
            _answered(span, 500, {}, type(error).__qualname__)
            raise
        finally:
            if (params := scope.get("path_params")) is not None:
                route = "/".join(_pattern(part, params) for part in scope["path"].split("/"))
                span.update_name(f"POST {route}")
                span.set_attribute("http.route", route)
            span.end(clock())


def _pattern(part: str, params: Mapping[str, str]) -> str:
    return next((f"{{{name}}}" for name, value in params.items() if value == part), part)


def _answered(span: Span, status: int, headers: Mapping[bytes, bytes], error: str = "") -> None:
    span.set_attribute("http.response.status_code", status)
    for header, name in ((b"x-chat-id", "cursor_gateway.run.id"), (b"x-conversation-id", "gen_ai.conversation.id")):
        if value := headers.get(header):
            span.set_attribute(name, value.decode("latin-1"))
    if status >= 500:
        span.set_attribute("error.type", error or str(status))
        span.set_status(Status(StatusCode.ERROR))


def _end(span: Span, attributes: run_spans.Attributes, error: str, message: str, at: int) -> None:
    span.set_attributes(dict(attributes))
    if error:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR, message))
    span.end(at)


def _context_of(asked: TraceContext) -> contexts.Context:
    """Without anything that this process is in: a run belongs to its request alone."""
    carrier = {"traceparent": asked.traceparent, "tracestate": asked.tracestate}
    return _PROPAGATOR.extract({name: value for name, value in carrier.items() if value}, contexts.Context())


def _span_context(asked: TraceContext) -> SpanContext:
    return trace.get_current_span(_context_of(asked)).get_span_context()


def _current() -> Span:
    return trace.get_current_span()


def _safely(note: Callable[..., None], *args: object) -> None:
    try:
        note(*args)
    except Exception as error:  # noqa: BLE001 -- a trace must not break its run
        _log.error("tracing failed", error)
