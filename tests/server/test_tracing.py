"""One trace for each run, sent as OTLP: a real gateway and agent, and a collector that decodes what it gets."""

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from cursor_gateway.cli.assembly import serving
from cursor_gateway.errors import AgentCrashed, AgentOverloaded, SettingsError
from cursor_gateway.model.agent_events import RunFinished, RunStarted, TextDelta
from cursor_gateway.model.requests import TraceContext
from cursor_gateway.server.trace_export import ReportingExporter, convention_of, open_tracing, unsupported
from cursor_gateway.server.tracing import Tracing
from cursor_gateway.settings import Settings
from cursor_gateway.sources.base import AgentUse
from cursor_gateway.stages.run_spans import Convention
from tests.gateways import RunningGateway, running_gateway
from tests.mcp_server.host import Mode, http_host
from tests.server.conftest import Json, chat, eventually, http_client, standin, unique
from tests.server.observed import new_run, observed
from tests.server.otlp import Collector, ReceivedSpan, collector
from tests.server.test_caller_tools import WEATHER, Caller, call, only_call, program, say
from tests.server.test_walk import Entered, traced_completion

PARENT = "cd" * 8
RUN = "invoke_agent cursor-agent"
_QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50"}


@pytest.fixture(scope="module")
def collected() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, collected: Collector) -> Iterator[RunningGateway]:
    home, environment = tmp_path_factory.mktemp("traced"), {"OTEL_EXPORTER_OTLP_ENDPOINT": collected.url, **_QUICK}
    with running_gateway(home, environment=environment) as running:
        yield running


@pytest.fixture
def client(traced: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(traced) as made:
        yield made


def caller_of(trace_id: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-{PARENT}-{flags}"}


def spans_of(collected: Collector, run_id: str) -> list[ReceivedSpan]:
    """All of the run's trace, when its own span has come: that is the last, but for the request's."""
    own = _run_span(collected, run_id)
    collected.wait(lambda got: any(span.span_id == own.parent_id for span in got.spans))
    return [span for span in collected.spans if span.trace_id == own.trace_id]


def _run_span(collected: Collector, run_id: str) -> ReceivedSpan:
    def found() -> list[ReceivedSpan]:
        return [span for span in collected.named(RUN) if span.attributes["cursor_gateway.run.id"] == run_id]

    collected.wait(lambda _: bool(found()))
    (own,) = found()
    return own


def named(spans: list[ReceivedSpan], name: str) -> ReceivedSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def test_a_run_is_one_trace_of_its_caller(traced: RunningGateway, collected: Collector, client: httpx2.Client) -> None:
    trace_id, body = token_hex(16), {"message": standin("text"), "mode": "ask"}
    asked = client.post("/v1/chat", json=body, headers=caller_of(trace_id)).json()
    spans = spans_of(collected, asked["id"])
    request, run = named(spans, "POST /v1/chat"), named(spans, RUN)
    assert (request.trace_id, request.parent_id) == (trace_id, PARENT)
    assert run.parent_id == request.span_id
    assert {span.parent_id for span in spans} == {PARENT, request.span_id, run.span_id}
    assert {span.name for span in spans} == {request.name, RUN, "queue", "start_agent", "first_content", "store"}
    about = {"http.request.method": "POST", "http.route": "/v1/chat", "http.response.status_code": 200}
    about |= {"url.path": "/v1/chat", "url.scheme": "http"}
    assert {name: request.attributes[name] for name in about} == about
    assert request.attributes["cursor_gateway.run.id"] == asked["id"]
    figures = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.system": "cursor",
        "gen_ai.conversation.id": asked["conversationId"],
        "gen_ai.request.model": "auto",
        "gen_ai.response.model": asked["model"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": asked["usage"]["promptTokens"],
        "gen_ai.usage.output_tokens": asked["usage"]["completionTokens"],
        "cursor_gateway.mode": "ask",
        "cursor_gateway.source": "cli",
        "cursor_gateway.outcome": "completed",
    }
    assert {name: run.attributes[name] for name in figures} == figures
    assert named(spans, "start_agent").attributes["cursor_gateway.start"] in ("warm", "cold")
    order = [named(spans, name) for name in ("queue", "start_agent", "first_content")]
    assert request.start_ns <= run.start_ns == order[0].start_ns
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(order))
    assert all(run.start_ns <= span.start_ns <= span.end_ns <= run.end_ns for span in spans if span is not request)
    assert run.resource["service.name"] == "cursor-gateway"
    assert not any(span.is_error for span in spans)
    lines = eventually(lambda: _lines_about(traced, asked["id"]))
    assert [line["event"] for line in lines] == ["run started", "first event", "run ended"]
    assert {(line["trace_id"], line["span_id"]) for line in lines} == {(trace_id, run.span_id)}


def _lines_about(gateway: RunningGateway, run_id: str) -> list[Json]:
    """When all of them are written."""
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    about = [line for line in lines if line.get("run_id") == run_id]
    return about if any(line["event"] == "run ended" for line in about) else []


def test_without_a_caller_that_is_traced_it_begins_one(collected: Collector, client: httpx2.Client) -> None:
    for headers in ({}, {"traceparent": "00-zz-1-01"}, {"traceparent": f"00-{'0' * 32}-{PARENT}-01"}):
        asked = client.post("/v1/chat/completions", json=_question(), headers=headers)
        spans = spans_of(collected, asked.headers["x-chat-id"])
        assert named(spans, "POST /v1/chat/completions").parent_id == ""
        assert named(spans, RUN).trace_id != "0" * 32


def _question() -> Json:
    return {"model": "auto", "messages": [{"role": "user", "content": standin("text")}]}


def test_a_caller_that_is_not_sampled_is_not_sent(collected: Collector, client: httpx2.Client) -> None:
    other = token_hex(16)
    client.post("/v1/chat", json={"message": standin("text")}, headers=caller_of(other, "00"))
    after = chat(client, standin("text"))
    spans_of(collected, after["id"])
    assert not [span for span in collected.spans if span.trace_id == other]


def test_a_run_of_several_requests_is_one_span_that_is_linked_with_them(
    collected: Collector, client: httpx2.Client
) -> None:
    caller = Caller(client, program(call("weather", city="Paris"), say("It is $1.")), [WEATHER])
    asked = only_call(caller.ask())
    caller.give((asked["id"], "sunny"))
    assert caller.ask()["content"] == "It is sunny."
    spans = spans_of(collected, caller.chat_id)
    run, pause, tool = (named(spans, name) for name in (RUN, "pause", "execute_tool weather"))
    assert pause.attributes == {"cursor_gateway.pause.for": "caller", "cursor_gateway.pause.calls": ["weather"]}
    assert tool.attributes["gen_ai.tool.type"] == "function"
    assert tool.attributes["gen_ai.tool.call.id"] == asked["id"]
    assert pause.parent_id == tool.parent_id == run.span_id
    assert tool.start_ns <= pause.start_ns <= pause.end_ns
    collected.wait(lambda got: bool(_linked(got, run)))
    (request,) = _linked(collected, run)
    assert run.links == [request.span_id]
    assert request.trace_id != run.trace_id
    assert request.attributes["cursor_gateway.run.id"] == caller.chat_id


def _linked(collected: Collector, run: ReceivedSpan) -> list[ReceivedSpan]:
    return [span for span in collected.spans if run.span_id in span.links]


def test_a_retry_that_joins_a_run_is_linked_with_it(collected: Collector, client: httpx2.Client) -> None:
    body, key = {"message": standin("slow count=30 delay_ms=20"), "stream": True}, {"Idempotency-Key": "trace-1"}
    trace_id = token_hex(16)
    with client.stream("POST", "/v1/chat", json=body, headers=key) as first:
        pieces = first.iter_bytes()
        next(pieces)
        joined = client.post("/v1/chat", json=body, headers={**key, **caller_of(trace_id)})
        list(pieces)
    id = first.headers["x-chat-id"]
    assert joined.headers["x-chat-id"] == id
    run = named(spans_of(collected, id), RUN)
    assert run.trace_id != trace_id
    (request,) = [span for span in collected.wait(lambda got: bool(_linked(got, run))) if run.span_id in span.links]
    assert (request.trace_id, run.links) == (trace_id, [request.span_id])


def test_a_refused_request_has_a_span_and_no_run(collected: Collector, client: httpx2.Client) -> None:
    trace_id = token_hex(16)
    client.post("/v1/chat", json={"nonsense": 1}, headers=caller_of(trace_id))
    client.get("/v1/models", headers=caller_of(trace_id))
    client.post("/v1/unknown", json={}, headers=caller_of(trace_id))
    spans = collected.wait(lambda got: len([one for one in got.spans if one.trace_id == trace_id]) == 2)
    own = [span for span in spans if span.trace_id == trace_id]
    assert [span.name for span in own] == ["POST /v1/chat", "POST"]
    assert [span.attributes["http.response.status_code"] for span in own] == [400, 404]
    assert not any(span.is_error for span in own)  # it is the client's mistake


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_run_of_an_mcp_host_is_below_its_call(traced: RunningGateway, collected: Collector, mode: Mode) -> None:
    mark = unique()
    with http_host(traced.url, mode=mode) as host, http_client(traced) as client:
        host.call("ask", prompt=f"{mark} {standin('text')}")
        (id,) = [run["id"] for run in client.get("/v1/runs").json()["runs"] if mark in run["prompt"]]
    spans = spans_of(collected, id)
    assert named(spans, RUN).parent_id == named(spans, "POST /mcp").span_id


# --- texts --------------------------------------------------------------------------------------------


def test_no_text_is_sent_unless_it_is_wanted(tmp_path: Path, collected: Collector, client: httpx2.Client) -> None:
    steps = [{"native": "shell", "args": {"command": "echo wombat"}}, say("A wombat.")]
    asked = chat(client, program(*steps))
    assert "wombat" not in str(spans_of(collected, asked["id"]))
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url,
        "OTEL_SEMCONV_STABILITY_OPT_IN": "http, gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,deployment.environment.name=test",
        **_QUICK,
    }
    with running_gateway(tmp_path, environment=environment) as gateway, http_client(gateway) as other:
        asked = chat(other, program(*steps))
        spans = spans_of(collected, asked["id"])
    run = named(spans, RUN)
    assert run.attributes["gen_ai.provider.name"] == "cursor"
    assert "gen_ai.system" not in run.attributes
    (question,) = json.loads(run.attributes["gen_ai.input.messages"])
    (answer,) = json.loads(run.attributes["gen_ai.output.messages"])
    assert "wombat" in question["parts"][0]["content"]
    assert (answer["role"], answer["parts"][0]["content"]) == ("assistant", "A wombat.")
    tool = next(span for span in spans if span.name == "execute_tool terminal_command")
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"command": "echo wombat"}
    assert run.resource.items() >= {"service.name": "mine", "deployment.environment.name": "test"}.items()


@pytest.mark.parametrize(
    ("variables", "convention"),
    [
        ({}, Convention()),
        ({"OTEL_SEMCONV_STABILITY_OPT_IN": "database"}, Convention()),
        ({"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}, Convention(is_latest=True)),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}, Convention(has_content=True)),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "EVENT_ONLY"}, Convention()),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "false"}, Convention()),
    ],
)
def test_the_variables_of_the_conventions(variables: dict[str, str], convention: Convention) -> None:
    assert convention_of(variables) == convention


# --- a collector that fails ---------------------------------------------------------------------------


def test_what_waits_is_sent_when_the_gateway_stops(tmp_path: Path) -> None:
    with collector() as late:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": late.url, "OTEL_BSP_SCHEDULE_DELAY": "600000"}
        with running_gateway(tmp_path, environment=environment) as gateway, http_client(gateway) as client:
            chat(client, standin("text"))
            assert late.requests == 0
        assert {"POST /v1/chat", RUN, "queue"} <= {span.name for span in late.spans}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("how", ["refuses", "is away", "hangs"])
def test_a_collector_that_fails_costs_only_the_traces(tmp_path: Path, how: str) -> None:
    with collector() as failing, closing(socket.create_server(("127.0.0.1", 0))) as silent:
        failing.status = 503 if how == "refuses" else 200
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}"  # it accepts, and never answers
        url = {"refuses": failing.url, "is away": "http://127.0.0.1:9", "hangs": hanging}[how]
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **_QUICK, "OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
        with running_gateway(tmp_path, environment=environment) as gateway, http_client(gateway) as client:
            for _ in range(3):
                chat(client, standin("text"))
            began = time.monotonic()
        took = time.monotonic() - began
    assert took < 30  # where the limit is 3 s: a busy machine is slow
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    lost = [line for line in lines if line["event"] == "traces lost"]
    assert 1 <= len(lost) <= 2
    assert not [line for line in lines if line.get("logger", "").startswith("opentelemetry")]


def test_it_says_that_traces_are_lost_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(SpanExporter):
        result: SpanExportResult | Exception = SpanExportResult.FAILURE

        def export(self, spans: Any) -> SpanExportResult:
            if isinstance(self.result, Exception):
                raise self.result
            return self.result

    times, failing = iter([0.0, 0.0, 1.0, 59.0, 61.0, 61.0, 62.0]), Failing()
    exporter = ReportingExporter(failing, lambda: next(times))
    spans: list[ReadableSpan] = [ReadableSpan("a"), ReadableSpan("b")]
    for _ in range(4):
        assert exporter.export(spans) is SpanExportResult.FAILURE
    assert [record.message for record in caplog.records] == ["traces lost"] * 2
    failing.result = ValueError("wrong")
    assert exporter.export(spans) is SpanExportResult.FAILURE
    failing.result = SpanExportResult.SUCCESS
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    exporter.shutdown()
    assert len(caplog.records) == 2


# --- on and off ---------------------------------------------------------------------------------------


def test_off_nothing_of_it_is_loaded_and_no_run_passes_through_it(tmp_path: Path) -> None:
    environment = {"PYTHONPROFILEIMPORTTIME": "1"}  # lists what is imported, on standard error
    with (
        running_gateway(tmp_path / "a", environment=environment, before=["/usr/bin/env"]) as gateway,
        http_client(gateway) as client,
    ):
        chat(client, standin("text"))
        imported = set(re.findall(r"import time: .*\| +([\w.]+)", gateway.log.read_text()))
    assert "cursor_gateway.runs.run" in imported
    assert not [name for name in imported if name.startswith(("opentelemetry", "google.protobuf"))]
    assert not {"cursor_gateway.server.tracing", "cursor_gateway.stages.run_spans"} & imported
    entered = Entered()
    (tmp_path / "b").mkdir()
    asyncio.run(traced_completion(tmp_path / "b", entered))
    assert not [name for name in entered.modules if "trac" in name or "run_spans" in name]


_ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("setting", "variables", "is_on"),
    [
        ("auto", {}, False),
        ("auto", _ENDPOINT, True),
        ("auto", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, True),
        ("on", {}, True),
        ("off", _ENDPOINT, False),
        ("on", {"OTEL_SDK_DISABLED": "true"}, False),
        ("on", {"OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_it_is_on_where_a_setting_or_an_endpoint_says_so(
    monkeypatch: pytest.MonkeyPatch, setting: Any, variables: dict[str, str], is_on: bool
) -> None:
    monkeypatch.setattr("cursor_gateway.server.trace_export.open_tracing", lambda _: _Ids())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (serving._tracing(Settings(opentelemetry=setting), pytest.fail) is not None) == is_on


class _Ids:
    def ids(self, run_id: object) -> dict[str, str]:
        return {}


@pytest.mark.parametrize(
    ("variables", "missing", "problem"),
    [
        ({}, True, "pipx install --force '.[otel]'"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, False, "OTEL_TRACES_EXPORTER=zipkin"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False, "http/protobuf"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], missing: bool, problem: str
) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, "cursor_gateway.server.trace_export", None)
    for name, value in {**_ENDPOINT, **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=re.escape(problem)):
        serving._tracing(Settings(opentelemetry="on"), pytest.fail)
    warnings: list[str] = []
    assert serving._tracing(Settings(), warnings.append) is None
    assert problem in warnings[0]


def test_the_protocol_of_traces_alone_counts() -> None:
    assert (
        unsupported({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"})
        == ""
    )


# --- in this process ----------------------------------------------------------------------------------


class InMemory:
    def __init__(self) -> None:
        self.exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(provider, Convention())

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


def test_a_run_without_a_request_has_a_trace_of_its_own() -> None:
    memory = InMemory()
    use = AgentUse(1.5, 1000)
    observed(TextDelta("a"), RunFinished(), observer=memory.tracing, uses=[use])
    run = memory.spans[RUN]
    assert run.parent is None
    assert run.attributes is not None
    assert run.attributes["cursor_gateway.request.id"] == "req_1"
    assert run.attributes["cursor_gateway.agent.cpu_seconds"] == 1.5
    assert run.attributes["cursor_gateway.agent.memory_bytes"] == 1000
    assert memory.tracing.ids("chat_1") == memory.tracing.ids(None) == {}


def test_an_agent_that_is_quicker_than_the_observers_is_traced() -> None:
    """Its start and its first words are there before the run was `started` for them."""
    memory = InMemory()
    started = RunStarted("session", "Auto", is_warm=True)
    observed(started, TextDelta("a"), RunFinished(), observer=memory.tracing, traced=memory.tracing.turn)
    attributes = memory.spans["start_agent"].attributes or {}
    assert (attributes["cursor_gateway.start"], attributes["cursor_gateway.source"]) == ("warm", "scripted")
    assert memory.spans["start_agent"].parent == memory.spans[RUN].context
    assert memory.spans["first_content"].parent == memory.spans[RUN].context


def test_a_mistake_of_the_gateway_is_an_event_of_its_run() -> None:
    memory = InMemory()
    observed(TextDelta("a"), error=ZeroDivisionError(), observer=memory.tracing)
    (event,) = memory.spans[RUN].events
    assert event.attributes == {"exception.type": "ZeroDivisionError"}
    assert memory.spans[RUN].status.description


def test_a_mistake_of_tracing_breaks_no_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    memory = InMemory()
    monkeypatch.setattr(memory.tracing, "tracer", None)
    run = observed(TextDelta("a"), RunFinished(), observer=memory.tracing)
    assert run.done is not None
    assert run.done.failure is None
    assert {record.message for record in caplog.records} == {"tracing failed"}


async def test_what_is_not_known_is_passed_over() -> None:
    memory, run = InMemory(), new_run()
    memory.tracing.asked("chat_2", TraceContext(caller_of("ab" * 16)["traceparent"]))
    memory.tracing.fault(run, ValueError())
    memory.tracing.ended(run)
    memory.tracing.repeated(AgentOverloaded("full").failure(), "laptop", "req_1")
    memory.tracing.wrote("chat_2", 1, (), 0)
    await asyncio.sleep(0)
    for number in range(1001):
        memory.tracing.begun(f"chat_{number}", 0)
    assert len(memory.tracing._begun) == 1000
    assert memory.spans == {}


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (AgentOverloaded("full"), 429, None),  # the client may try again
        (AgentCrashed("gone"), 502, "agent_crashed"),
        (ValueError("x"), 500, "ValueError"),
        (ClientDisconnect(), None, None),
    ],
)
def test_a_request_that_fails(error: Exception, status: int | None, kind: str | None) -> None:
    memory = InMemory()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    scope = {"method": "POST", "scheme": "http", "path": "/v1/chat", "headers": [], "state": {"request_id": "req_1"}}
    with pytest.raises(type(error)):
        asyncio.run(_awaited(memory.tracing.requests(app)(scope, _never, _nowhere)))
    attributes = memory.spans["POST"].attributes or {}
    assert (attributes.get("http.response.status_code"), attributes.get("error.type")) == (status, kind)
    assert attributes.get("cursor_gateway.client_left") == (True if status is None else None)


async def _awaited(asked: Any) -> None:
    await asked


async def _never() -> Message:
    raise AssertionError


async def _nowhere(message: Message) -> None:
    raise AssertionError


def test_it_does_not_wait_long_for_a_collector_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(InMemorySpanExporter):
        def shutdown(self) -> None:
            time.sleep(3)

    async def close(seconds: float) -> None:
        tracing = open_tracing({}, Stuck())
        tracing.tracer.start_span("a").end()
        await tracing.close(seconds)

    asyncio.run(close(0.05))
    assert [record.message for record in caplog.records] == ["traces lost"]
