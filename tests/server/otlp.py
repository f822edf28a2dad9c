"""A collector for tests: OTLP over HTTP in, decoded from protobuf; spans out."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_SECONDS = 60


class ReceivedSpan(Struct, frozen=True, kw_only=True):
    name: str
    trace_id: str
    span_id: str
    parent_id: str  # empty: it has none
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    error: str  # the message of an error; empty: its status is none
    links: list[str]  # the ids of spans
    resource: dict[str, Any]

    @property
    def is_error(self) -> bool:
        return bool(self.error)


class Collector:
    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.url = ""
        self.requests = 0
        self.status = 200

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def wait(self, is_enough: Callable[["Collector"], bool]) -> list[ReceivedSpan]:
        until = time.monotonic() + _SECONDS
        while not is_enough(self):
            assert time.monotonic() < until, [span.name for span in self.spans]
            time.sleep(0.02)
        return self.spans

    def receive(self, body: bytes) -> None:
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {pair.key: _value(pair.value) for pair in of_resource.resource.attributes}
            self.spans += [
                ReceivedSpan(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    attributes={pair.key: _value(pair.value) for pair in span.attributes},
                    error=(span.status.message or "error") if span.status.code == 2 else "",
                    links=[link.span_id.hex() for link in span.links],
                    resource=resource,
                )
                for of_scope in of_resource.scope_spans
                for span in of_scope.spans
            ]


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collector() -> Iterator[Collector]:
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.requests += 1
            if made.status == 200 and self.path == "/v1/traces":
                made.receive(body)
            self.send_response(made.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
