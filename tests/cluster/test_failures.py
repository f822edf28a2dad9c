"""What clients see when processes of a cluster die, freeze or stop, and when the database is away."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx2
import msgspec
import psycopg
import pytest

from cursor_gateway.dialects.base import SSE
from cursor_gateway.store.cluster import Member
from tests.cluster.conftest import LEASE, QUICK, cluster
from tests.cluster.test_cluster import command
from tests.gateways import RunningGateway, running_gateway
from tests.postgres import databases
from tests.server.conftest import NO_TLS, Json, chat, eventually, growing, http_client, sse, standin, text_of, unique
from tests.server.test_caller_tools import WEATHER, call, nothing_is_left, program, say


def _error_of(client: httpx2.Client, id: str) -> str | None:
    result: Json = client.get(f"/v1/chat/{id}").json()
    codes = [document["metadata"]["errorCode"] for document in result["documents"] if document["type"] == "error"]
    return codes[-1] if result["status"] == "error" else None


@contextmanager
def _frozen(gateway: RunningGateway) -> Iterator[None]:
    os.kill(gateway.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(gateway.process.pid, signal.SIGCONT)


def kill(gateway: RunningGateway) -> None:
    gateway.process.send_signal(signal.SIGKILL)
    gateway.process.wait(30)


def test_the_run_of_a_killed_runner_ends_and_its_conversation_goes_on(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database) as running:
        one, two = running.clients
        mark = unique()
        with growing(one, "documents", f"{mark} {standin('hang-mid')}") as stream:
            id, conversation = (stream.response.headers[name] for name in ("x-chat-id", "x-conversation-id"))
            shown = stream.until(b"\n\n")
            runner = running.runner_of(mark)
            kill(runner)
            streamed = stream.rest()
        assert streamed.startswith(shown)
        assert sse(streamed)[-1].event == "done"
        assert _error_of(two, id) == "RUNNER_LOST"
        assert two.get(f"/v1/chat/{id}/events").content == streamed
        assert running.starts(mark) == 1
        nothing_is_left(runner, mark)
        assert text_of(chat(two, standin("text"), conversationId=conversation))
        kill(running.fronts[0])
        with growing(two, "documents", standin("slow count=30 delay_ms=20")) as stream:
            assert sse(stream.rest())[-1].event == "done"


def test_a_frozen_runner_is_fenced_and_comes_back(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database, fronts=1) as running:
        (one,) = running.clients
        mark = unique()
        with growing(one, "documents", f"{mark} {standin('slow count=400 delay_ms=20')}") as stream:
            id = stream.response.headers["x-chat-id"]
            stream.until(b"\n\n")
            runner = running.runner_of(mark)
            with _frozen(runner):
                streamed = stream.rest()
                assert _error_of(one, id) == "RUNNER_LOST"
        eventually(lambda: b"considered this one dead" in runner.log.read_bytes())
        time.sleep(LEASE)
        assert one.get(f"/v1/chat/{id}/events").content == streamed
        eventually(lambda: one.get("/health").json()["runs"]["limit"] == 16)
        assert text_of(chat(one, standin("text")))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seconds", [0.0, 2 * LEASE])
def test_runs_survive_a_database_that_was_away(tmp_path: Path, seconds: float) -> None:
    with databases() as own, own.history() as url, cluster(tmp_path, url, fronts=1, runners=1) as running:
        (one,) = running.clients
        mark = unique()
        with growing(one, "documents", f"{mark} {standin('slow count=60 delay_ms=20')}") as stream:
            id = stream.response.headers["x-chat-id"]
            stream.until(b"\n\n")
            own.server.kill()
            time.sleep(seconds)
            own.server.start()
            streamed = stream.rest()
        assert sse(streamed)[-1].event == "done"
        assert [int(event.id) for event in sse(streamed)] == list(range(1, len(sse(streamed)) + 1))
        result = one.get(f"/v1/chat/{id}").json()
        assert result["status"] == "completed"
        assert one.get(f"/v1/chat/{id}/events").content == streamed
        assert running.starts(mark) == 1
        eventually(lambda: one.get("/readyz").status_code == 200)


def test_a_killed_fronts_runs_are_stopped_or_finished_as_asked(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database, runners=1) as running:
        one, two = running.clients
        leaves = {"whenClientLeaves": "finish"}
        with (
            growing(one, "documents", standin("hang-mid")) as stream,
            growing(one, "documents", standin("slow count=100 delay_ms=20"), **leaves) as other,
        ):
            stopped, finished = (each.response.headers["x-chat-id"] for each in (stream, other))
            stream.until(b"\n\n")
            kill(running.fronts[0])
            for broken in (stream, other):
                with pytest.raises(httpx2.HTTPError):
                    broken.rest()
        eventually(lambda: _error_of(two, stopped) == "CANCELLED")
        eventually(lambda: two.get(f"/v1/chat/{finished}").json()["status"] == "completed")


def test_without_a_runner_there_is_an_error_that_says_so(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database, fronts=1, runners=0) as running:
        refused = running.clients[0].post("/v1/chat", json={"message": "hello"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_runner")
        assert running.clients[0].get("/v1/conversations").status_code == 200


def test_limits_hold_for_all_fronts(tmp_path: Path, database: str) -> None:
    limits = {"max_runs": "1", "max_runs_per_key": "2", "queue_seconds": "0.5"}
    with cluster(tmp_path, database, 2, 1, **limits) as running:
        one, two = running.clients
        with growing(one, "documents", standin("hang-mid")) as stream:
            stream.until(b"\n\n")
            full = two.post("/v1/chat", json={"message": "hello"})
            assert (full.status_code, full.json()["error"]["code"]) == (429, "too_many_runs")
            assert "All runners are busy" in full.json()["error"]["message"]
            id = stream.response.headers["x-chat-id"]
            assert one.post(f"/v1/chat/{id}/cancel", json={}).status_code == 200
        assert text_of(chat(two, standin("text")))


def test_a_drained_runner_takes_nothing_new(tmp_path: Path, database: str) -> None:
    # A front that does not know yet that the runner is drained lets the request wait.
    with cluster(tmp_path, database, fronts=1, runners=1, queue_seconds="2") as running:
        (one,) = running.clients
        with growing(one, "documents", standin("slow count=100 delay_ms=20")) as stream:
            stream.until(b"\n\n")
            listed = msgspec.json.decode(command(running, "runners", "--json").stdout, type=list[Member])
            (runner,) = (member for member in listed if member.is_runner)
            assert command(running, "drain", runner.id).returncode == 0
            eventually(lambda: httpx2.get(f"{running.runners[0].url}/readyz", verify=NO_TLS).status_code == 503)
            refused = eventually(lambda: one.post("/v1/chat", json={"message": "hello"}))
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_runner")
            assert sse(stream.rest())[-1].event == "done"
        queued = one.post("/v1/chat", json={"message": standin("text")}, headers={"prefer": "respond-async"}).json()
        assert "queue" in queued["metadata"]
        assert command(running, "runners", "undrain", runner.id).returncode == 0
        assert eventually(lambda: one.get(f"/v1/chat/{queued['id']}").json()["status"] == "completed")
        assert httpx2.get(f"{running.runners[0].url}/readyz", verify=NO_TLS).status_code == 200
        assert command(running, "runners", "drain", "nobody").returncode == 2
        assert one.post(f"/v1/runners/{runner.id}/drain").status_code == 204
        assert eventually(lambda: one.get("/v1/queue").json()["runners"][0]["draining"])


def test_what_was_queued_survives_all_processes(tmp_path: Path, database: str) -> None:
    """Those that accepted it, those that could have taken it, and the one that has."""
    mark, asynchronous = unique(), {"prefer": "respond-async"}
    with cluster(tmp_path, database, fronts=1, runners=1, max_runs="1") as running:
        (one,) = running.clients
        one.post("/v1/chat", json={"message": standin("hang-mid")}, headers=asynchronous)
        body = {"message": f"{mark} {standin('text')}"}
        key = {**asynchronous, "idempotency-key": mark}
        queued = one.post("/v1/chat", json=body, headers=key).json()
        assert "queue" in queued["metadata"]
        kill(running.fronts[0])
        kill(running.runners[0])
    with cluster(tmp_path, database, max_runs="1") as running:
        one, two = running.clients
        assert eventually(lambda: one.get(f"/v1/chat/{queued['id']}").json()["status"] == "completed")
        assert two.post("/v1/chat", json=body, headers=key).json()["id"] == queued["id"]
        assert running.starts(mark) == 1


def test_a_runner_that_stops_finishes_its_runs(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database, fronts=1) as running:
        (one,) = running.clients
        mark, later = unique(), unique()
        with growing(one, "documents", f"{mark} {standin('slow count=50 delay_ms=20')}") as stream:
            stream.until(b"\n\n")
            runner = running.runner_of(mark)
            runner.process.send_signal(signal.SIGTERM)
            assert text_of(chat(one, f"{later} {standin('text')}"))
            assert sse(stream.rest())[-1].event == "done"
            id = stream.response.headers["x-chat-id"]
        assert one.get(f"/v1/chat/{id}").json()["status"] == "completed"
        assert running.runner_of(later) is not runner
        assert runner.process.wait(30) == 0


def test_the_streams_of_a_front_that_stops_are_resumed_elsewhere(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database, runners=1, drain_notice_seconds="0.5") as running:
        one, two = running.clients
        with growing(one, "documents", standin("slow count=150 delay_ms=20")) as stream:
            id = stream.response.headers["x-chat-id"]
            stream.until(b"\n\n")
            running.fronts[0].process.send_signal(signal.SIGTERM)
            eventually(lambda: one.get("/readyz").status_code == 503)
            first = stream.rest()
        assert first.endswith(b"retry: 100\n\n")
        assert running.fronts[0].process.wait(30) == 0
        begun = first.removesuffix(b"retry: 100\n\n")
        rest = two.get(f"/v1/chat/{id}/events", headers={"Last-Event-ID": sse(begun)[-1].id}).content
        whole = two.get(f"/v1/chat/{id}/events").content
        assert (begun + rest).replace(SSE.keep_alive, b"") == whole
        assert two.get(f"/v1/chat/{id}").json()["status"] == "completed"


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.quick_cases(1)
def test_the_results_of_a_tool_find_a_run_whose_runner_is_gone(
    tmp_path: Path, database: str, way: signal.Signals
) -> None:
    """The other runner has its own data directory. Results of a run that has ended get its end, without a runner."""
    steps = [say("I look. "), call("weather", city="A"), say("It is $1. ")]
    with cluster(tmp_path, database, runners=0, queue_seconds="5") as fronts, ExitStack() as stack:
        client = fronts.clients[0]

        def runner(name: str) -> RunningGateway:
            settings = {**QUICK, "store": database, "role": "runner", "workspace": str(tmp_path / "work")}
            settings["drain_seconds"] = "0.1"
            return stack.enter_context(running_gateway(tmp_path / name, settings=settings))

        def waiting(*more: Json) -> tuple[str, Json]:
            reply = client.post("/v1/chat", json={"message": program(*steps, *more), "tools": [WEATHER]}).json()
            (call,) = reply["metadata"]["waitingFor"]
            return reply["id"], {"toolResults": [{"toolCallId": call["toolCallId"], "content": "sunny"}]}

        first = runner("one")
        id, results = waiting()
        first.process.send_signal(way)
        first.process.wait(30)
        second = runner("two")
        assert eventually(lambda: client.get(f"/v1/chat/{id}").json()["status"] == "error")
        answer = client.post(f"/v1/chat/{id}/answer", json=results)
        assert (answer.status_code, answer.json()["documents"][-1]["content"]) == (200, "It is sunny. ")
        failed, also = waiting({"crash": 3}, {"crash": 3})
        assert client.post(f"/v1/chat/{failed}/answer", json=also).status_code == 502
        kill(second)
        for other in fronts.clients:
            again = other.post(f"/v1/chat/{id}/answer", json=results)
            assert (again.status_code, again.json()["id"]) == (200, answer.json()["id"])
            again = other.post(f"/v1/chat/{failed}/answer", json=also)
            assert (again.status_code, again.json()["status"], again.json()["id"]) == (200, "error", failed)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_degraded(client: httpx2.Client, gateway: RunningGateway) -> bool:
    health, metrics = client.get("/health").json(), client.get("/metrics").text
    return (
        client.get("/readyz").status_code == 503
        and health["status"] == "degraded"
        and "database" in health["problem"]
        and "\ncursor_gateway_store_available 0" in metrics
        and "The database" in gateway.log.read_text()
    )


@pytest.mark.parametrize("way", ["killed", "frozen"])
@pytest.mark.quick_cases(1)
def test_a_lost_database_is_reported_to_the_operator_and_not_to_clients(tmp_path: Path, way: str) -> None:
    with databases() as own, own.history() as url, cluster(tmp_path, url, fronts=1, runners=1) as running:
        (front,), (runner,), (client,) = running.fronts, running.runners, running.clients
        with http_client(runner) as behind:
            assert client.get("/health").json()["status"] == "ok"
            children = Path(f"/proc/{own.server.pid}/task/{own.server.pid}/children").read_text().split()
            if way == "killed":
                own.server.kill()
            else:
                _signal([own.server.pid, *map(int, children)], signal.SIGSTOP)
            try:
                for one, gateway in ((client, front), (behind, runner)):
                    eventually(partial(_is_degraded, one, gateway))
                if way == "killed":
                    refused = client.post("/v1/chat", json={"message": "hello"})
                    assert refused.status_code == 503
                    said = refused.text + client.get("/health").text
                    assert not any(secret in said for secret in (str(own.server.socket.parent), "PGSQL", "port"))
            finally:
                if way == "killed":
                    own.server.start()
                else:
                    _signal([own.server.pid, *map(int, children)], signal.SIGCONT)
            eventually(lambda: client.get("/health").json()["status"] == "ok")
            eventually(lambda: client.get("/readyz").status_code == 200)


_LATE_WATCHERS = """
    CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_sleep(CASE WHEN NEW.readers = 0 THEN 0.3 ELSE 0.6 END);
            RETURN NEW;
        END
    $$;
    CREATE TRIGGER late BEFORE UPDATE ON watchers FOR EACH ROW EXECUTE FUNCTION late();
"""


def test_the_late_news_that_a_reply_is_over_does_not_stop_the_run_that_its_caller_continues(
    tmp_path: Path, database: str
) -> None:
    """The front reports that the reader of the first reply has left when the run goes on already, and that the reader
    of the next one has come even later."""
    with cluster(tmp_path, database, fronts=1, runners=1) as running:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(_LATE_WATCHERS)
        (client,) = running.clients
        steps = [say("I look. "), call("weather", city="A"), {"pause_ms": 1500}, say("It is $1. ")]
        reply = client.post("/v1/chat", json={"message": program(*steps), "tools": [WEATHER]}).json()
        (asked,) = reply["metadata"]["waitingFor"]
        results = {"toolResults": [{"toolCallId": asked["toolCallId"], "content": "sunny"}]}
        answer = client.post(f"/v1/chat/{reply['id']}/answer", json=results)
        assert (answer.status_code, answer.json()["documents"][-1]["content"]) == (200, "It is sunny. ")
