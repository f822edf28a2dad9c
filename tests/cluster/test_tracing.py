"""A cluster's fronts and runners in one trace: of a run, of the requests that continue it, and of a resumed run."""

import json
import signal
from collections.abc import Iterator
from secrets import token_hex
from typing import NamedTuple

import pytest

from tests.cluster.conftest import Cluster, cluster_in
from tests.postgres import Databases
from tests.server.conftest import eventually, growing, standin, unique
from tests.server.otlp import Collector, ReceivedSpan, collector
from tests.server.test_caller_tools import WEATHER, Caller, call, only_call, program, say
from tests.server.test_tracing import PARENT, RUN, caller_of, named, spans_of


class Traced(NamedTuple):
    cluster: Cluster
    collected: Collector


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, postgres: Databases) -> Iterator[Traced]:
    with collector() as running, postgres.history() as url:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": running.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        with cluster_in(environment, tmp_path_factory.mktemp("traced"), url, 2, 2, {}) as started:
            yield Traced(started, running)


def _process(span: ReceivedSpan) -> str:
    return str(span.resource["service.instance.id"])


def _logged(cluster: Cluster, trace_id: str) -> set[tuple[str, str]]:
    """Events and spans of the lines with this trace, of fronts and runners."""
    logs = [process.log.read_text() for process in (*cluster.fronts, *cluster.runners)]
    lines = [json.loads(line) for log in logs for line in log.splitlines()]
    return {(line["event"], line["span_id"]) for line in lines if line.get("trace_id") == trace_id}


def test_a_front_and_a_runner_are_in_the_trace_of_the_caller(traced: Traced) -> None:
    trace_id = token_hex(16)
    client = traced.cluster.clients[0]
    asked = client.post("/v1/chat", json={"message": standin("text")}, headers=caller_of(trace_id)).json()
    spans = spans_of(traced.collected, asked["id"])
    request, run = named(spans, "POST /v1/chat"), named(spans, RUN)
    assert (request.trace_id, request.parent_id, run.parent_id) == (trace_id, PARENT, request.span_id)
    assert _process(request) != _process(run)
    queue = named(spans, "queue")
    assert queue.parent_id == run.span_id
    assert queue.start_ns == run.start_ns >= request.start_ns  # all of it, from the front on
    assert {span.name for span in spans} >= {"queue", "start_agent", "first_content", "store"}
    eventually(lambda: {("request", request.span_id), ("run ended", run.span_id)} <= _logged(traced.cluster, trace_id))


def test_a_request_that_continues_a_run_at_another_front_is_linked_with_it(traced: Traced) -> None:
    one, two = traced.cluster.clients
    caller = Caller(one, program(call("weather", city="Paris"), say("It is $1.")), [WEATHER])
    asked = only_call(caller.ask())
    caller.give((asked["id"], "sunny"))
    caller.client = two
    caller.ask()
    run = named(spans_of(traced.collected, caller.chat_id), RUN)
    (linked,) = run.links
    spans = traced.collected.wait(lambda got: any(span.span_id == linked for span in got.spans))
    (request,) = [span for span in spans if span.span_id == linked]
    assert request.attributes["cursor_gateway.run.id"] == caller.chat_id
    assert request.trace_id != run.trace_id


def test_a_resumed_run_goes_on_in_the_same_trace(traced: Traced) -> None:
    """Kills a runner, so it is the last test."""
    trace_id, mark = token_hex(16), unique()
    more = {"headers": caller_of(trace_id), "whenRunnerLost": "resume"}
    with growing(traced.cluster.clients[0], "documents", f"{mark} {standin('hang-mid')}", **more) as stream:
        id = stream.response.headers["x-chat-id"]
        stream.until(b"content_delta")
        lost = traced.cluster.runner_of(mark)
        lost.process.send_signal(signal.SIGKILL)
        eventually(lambda: traced.cluster.starts(mark) == 2)
        traced.cluster.clients[1].post(f"/v1/chat/{id}/cancel", json={})
        stream.rest()
    spans = spans_of(traced.collected, id)
    run = named(spans, RUN)
    assert (run.trace_id, run.parent_id) == (trace_id, named(spans, "POST /v1/chat").span_id)
    assert run.attributes["cursor_gateway.resumed"] is True
    assert run.attributes["cursor_gateway.outcome"] == "cancelled"
    assert not run.is_error
    # What the first process had sent is there as well; its own span never came.
    assert run.span_id not in {span.parent_id for span in spans if span.name == "queue"}
    assert {_process(span) for span in spans if span.name == "start_agent"} >= {_process(run)}
