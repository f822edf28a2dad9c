"""The variables `OTEL_…` in; a `Tracing` that sends its spans to a collector, over HTTP, out."""

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from cursor_gateway.server.logs import StructuredLog
from cursor_gateway.server.tracing import Tracing
from cursor_gateway.stages.run_spans import OPT_IN, Convention

_PROTOCOL = "http/protobuf"
_CONTENT = ("true", "span_only", "span_and_event")
_SAY_SECONDS = 60.0  # between two lines about a collector that does not answer
_log = StructuredLog()


def unsupported(environ: Mapping[str, str]) -> str:
    """What the variables ask for and is not available here; empty if it is."""
    exporter = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter != "otlp":
        return f"`OTEL_TRACES_EXPORTER={exporter}` is not supported; use `otlp`"
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if (protocol or _PROTOCOL) != _PROTOCOL:
        return f"OTLP is sent as `{_PROTOCOL}` only, not as `{protocol}`; set `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`"
    return ""


def convention_of(environ: Mapping[str, str]) -> Convention:
    opted = {value.strip() for value in environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")}
    content = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower()
    return Convention(is_latest=OPT_IN in opted, has_content=content in _CONTENT)


def open_tracing(environ: Mapping[str, str], exporter: SpanExporter | None = None) -> Tracing:
    """The SDK reads the rest of the variables itself: endpoint, headers, timeouts, sampler, limits, queue."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it would write lines for each failed attempt
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(ReportingExporter(exporter or OTLPSpanExporter())))
    return Tracing(provider, convention_of(environ))


def _resource() -> Resource:
    named = Resource.create({})
    own = {"service.version": version("cursor-gateway"), "service.instance.id": f"{socket.gethostname()}-{os.getpid()}"}
    if str(named.attributes.get("service.name", "")).startswith("unknown_service"):
        own["service.name"] = "cursor-gateway"
    return Resource(own).merge(named) if "service.name" not in own else named.merge(Resource(own))


class ReportingExporter(SpanExporter):
    """Spans in, to another exporter; a line of the log out when that fails, but not for each of them."""

    def __init__(self, exporter: SpanExporter, clock: Callable[[], float] = time.monotonic) -> None:
        self._exporter, self._clock = exporter, clock
        self._lost, self._said_at = 0, -_SAY_SECONDS

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the spans are lost and the next ones may not be
            result, reason = SpanExportResult.FAILURE, type(error).__qualname__
        else:
            reason = "the collector did not accept them"
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            if self._clock() >= self._said_at + _SAY_SECONDS:
                advice = "check OTEL_EXPORTER_OTLP_ENDPOINT, or set `opentelemetry = off`"
                _log.warning("traces lost", spans=self._lost, reason=reason, advice=advice)
                self._lost, self._said_at = 0, self._clock()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
