"""A request whose answer is read later waits in the store while all slots are taken, and survives the gateway."""

import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.keys import hash_key
from tests.cli.processes import TIMEOUT
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, eventually, http_client, invocations, standin, text_of, unique

ASYNC = {"prefer": "respond-async"}


def settings(**others: str) -> dict[str, str]:
    quick = {"spare_agents": "0", "drain_seconds": "0.1"}  # some tests leave a run behind
    return {"max_runs": "1", "queue_ttl_seconds": "60", **quick, **others}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path, "--source", "cli", settings=settings()) as started:
        yield started


def ask(http: httpx2.Client, message: str, status: int = 202, key: str = "", **others: object) -> Json:
    headers = {**ASYNC, **({"idempotency-key": key} if key else {})}
    reply = http.post("/v1/chat", json={"message": message, **others}, headers=headers)
    assert reply.status_code == status, reply.text
    found: Json = reply.json()
    return found


def get(http: httpx2.Client, id: str) -> Json:
    found: Json = http.get(f"/v1/chat/{id}").json()
    return found


def ended(http: httpx2.Client, id: str) -> Json:
    assert eventually(lambda: get(http, id)["status"] in ("completed", "error")), get(http, id)
    return get(http, id)


def test_a_request_waits_for_a_slot_and_then_runs_once(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        first = ask(http, f"{unique()} {standin('hang-mid')}")
        assert first["status"] == "streaming"
        mark = unique()
        queued = [ask(http, f"{mark} {standin('text')}") for _ in range(2)]
        assert ["queue" in one["metadata"] for one in queued] == [True, True]
        places = [get(http, one["id"])["metadata"]["queue"] for one in queued]
        assert [place["position"] for place in places] == [1, 2]
        assert all(place["ageSeconds"] >= 0 and place["expires"] > first["created"] for place in places)
        assert "queue_length 2" in eventually_metric(http, "queue_length 2")
        assert not invocations(gateway, mark)
        http.post(f"/v1/chat/{first['id']}/cancel")
        for one in queued:
            done = ended(http, one["id"])
            assert done["status"] == "completed"
            assert done["conversationId"] == one["conversationId"]
            assert "queue" not in done["metadata"]
        assert len(invocations(gateway, mark)) == 2


def eventually_metric(http: httpx2.Client, line: str) -> str:
    assert eventually(lambda: line in http.get("/metrics").text)
    return http.get("/metrics").text


def test_a_killed_gateway_keeps_its_queue(tmp_path: Path) -> None:
    mark = unique()
    with running_gateway(tmp_path, "--source", "cli", settings=settings()) as gateway:
        with http_client(gateway) as http:
            ask(http, f"{unique()} {standin('hang-mid')}")
            queued = ask(http, f"{mark} {standin('text')}", key="once")
        gateway.process.send_signal(signal.SIGKILL)
        gateway.process.wait(TIMEOUT)
    with running_gateway(tmp_path, "--source", "cli", settings=settings()) as gateway, http_client(gateway) as http:
        assert ended(http, queued["id"])["status"] == "completed"
        assert ask(http, f"{mark} {standin('text')}", key="once")["id"] == queued["id"]
        assert len(invocations(gateway, mark)) == 1


def test_the_same_key_joins_the_request_in_the_queue(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        ask(http, f"{unique()} {standin('hang-mid')}")
        queued = ask(http, "Hello.", key="again")
        assert ask(http, "Hello.", key="again")["id"] == queued["id"]
        assert ask(http, "Something else.", key="again", status=409)["error"]["code"] == "idempotency_mismatch"


def test_a_request_in_the_queue_can_be_cancelled(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        first, mark = ask(http, f"{unique()} {standin('hang-mid')}"), unique()
        queued = ask(http, f"{mark} {standin('text')}", key="mine")
        envelope = http.post(f"/v1/chat/{queued['id']}/cancel").json()
        assert envelope["status"] == "error"
        shown = get(http, queued["id"])
        assert (shown["status"], shown["documents"][-1]["metadata"]["errorCode"]) == ("error", "CANCELLED")
        assert http.post(f"/v1/chat/{queued['id']}/cancel").json() == envelope
        events = http.get(f"/v1/chat/{queued['id']}/events").text
        assert "event: done" in events
        assert ask(http, f"{mark} {standin('text')}", key="mine")["id"] != queued["id"]  # the key is free again
        http.post(f"/v1/chat/{first['id']}/cancel")
        assert eventually(lambda: len(invocations(gateway, mark)) == 1)


def test_a_request_that_waits_too_long_fails_and_says_what_to_do(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path, "--source", "cli", settings=settings(queue_ttl_seconds="1")) as gateway,
        http_client(gateway) as http,
    ):
        ask(http, f"{unique()} {standin('hang-mid')}")
        mark = unique()
        queued = ask(http, f"{mark} {standin('text')}")
        error = ended(http, queued["id"])["documents"][-1]
        assert error["metadata"]["errorCode"] == "QUEUE_EXPIRED"
        assert "send it again" in error["content"]
        assert not invocations(gateway, mark)


def test_a_stream_of_a_queued_run_waits_for_it(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        first = ask(http, f"{unique()} {standin('hang-mid')}")
        queued = ask(http, f"{unique()} {standin('text')}")
        with http.stream("GET", f"/v1/chat/{queued['id']}/events") as reply:
            http.post(f"/v1/chat/{first['id']}/cancel")
            text = "".join(reply.iter_text())
        assert "event: done" in text
        assert text_of(get(http, queued["id"])) != ""


def test_a_higher_priority_comes_first(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        first = ask(http, f"{unique()} {standin('hang-mid')}")
        low, high = ask(http, "Low.", priority=-1), ask(http, "High.", priority=5)
        assert get(http, high["id"])["metadata"]["queue"]["position"] == 1
        assert get(http, low["id"])["metadata"]["queue"]["position"] == 2
        http.post(f"/v1/chat/{first['id']}/cancel")
        assert ended(http, low["id"])["created"] >= ended(http, high["id"])["created"]
        order = [run["id"] for run in http.get("/v1/runs").json()["runs"]]
        assert order.index(low["id"]) < order.index(high["id"])  # the newest first


def test_a_scheduled_run_starts_at_its_time(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        soon = datetime.now(UTC) + timedelta(seconds=1.5)
        queued = ask(http, f"{unique()} {standin('text')}", runAt=soon.isoformat())
        place = get(http, queued["id"])["metadata"]["queue"]
        assert "position" not in place
        assert place["runAt"][:19] == soon.isoformat()[:19]
        began = time.time()
        assert ended(http, queued["id"])["status"] == "completed"
        assert began < soon.timestamp()
        assert time.time() >= soon.timestamp()
        refused = http.post("/v1/chat", json={"message": "Hi", "runAt": soon.isoformat()}).json()["error"]
        assert refused["param"] == "runAt"
        assert ask(http, "Hi", status=400, runAt="2999-01-01T00:00:00Z")["error"]["param"] == "runAt"
        for wrong in ("tomorrow", "2026-12-01T02:00:00", "2026-02-30T02:00:00Z"):
            assert "must be a time and its offset" in ask(http, "Hi", status=400, runAt=wrong)["error"]["message"]


def test_messages_of_one_conversation_wait_in_their_order(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        begun = http.post("/v1/chat", json={"message": f"{unique()} {standin('text')}"}).json()
        conversation = begun["conversationId"]
        running = ask(http, standin("hang-mid"), conversationId=conversation)
        assert ask(http, "No.", status=409, conversationId=conversation)["error"]["code"] == "conversation_busy"
        queued = [ask(http, f"{n} {standin('text')}", conversationId=conversation, whenBusy="wait") for n in range(3)]
        assert all("queue" in one["metadata"] for one in queued)
        assert ask(http, "No.", status=409, conversationId=conversation)["error"]["code"] == "conversation_busy"
        http.post(f"/v1/chat/{running['id']}/cancel")
        for one in queued:
            assert ended(http, one["id"])["status"] == "completed"
        runs = [run["id"] for run in http.get(f"/v1/conversations/{conversation}").json()["runs"]]
        assert runs == [begun["id"], running["id"], *(one["id"] for one in queued)]


def test_a_message_can_interrupt_the_active_run(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        begun = http.post("/v1/chat", json={"message": f"{unique()} {standin('text')}"}).json()
        conversation, mark = begun["conversationId"], unique()
        running = ask(http, standin("hang-mid"), conversationId=conversation)
        assert eventually(lambda: get(http, running["id"])["documents"])
        body = {"message": f"{mark} {standin('text')}", "conversationId": conversation, "whenBusy": "interrupt"}
        replies = [http.post("/v1/chat", json=body, headers={"idempotency-key": mark}) for _ in range(2)]
        assert [reply.json()["status"] for reply in replies] == ["completed", "completed"]
        assert replies[0].json()["id"] == replies[1].json()["id"]
        stopped = get(http, running["id"])
        assert stopped["status"] == "error"
        assert stopped["documents"][-1]["metadata"]["errorCode"] == "CANCELLED"
        assert text_of(stopped) != ""  # what it had said is kept
        assert len(invocations(gateway, mark)) == 1


def test_deleting_a_conversation_empties_its_queue(tmp_path: Path) -> None:
    mark = unique()
    with running_gateway(tmp_path, "--source", "cli", settings=settings()) as gateway, http_client(gateway) as http:
        begun = http.post("/v1/chat", json={"message": f"{unique()} {standin('text')}"}).json()
        conversation = begun["conversationId"]
        running = ask(http, f"{unique()} {standin('hang-mid')}")
        queued = ask(http, f"{mark} {standin('text')}", conversationId=conversation)
        assert "queue" in queued["metadata"]
        http.delete(f"/v1/conversations/{conversation}")
        assert http.get(f"/v1/chat/{queued['id']}").status_code == 404
        http.post(f"/v1/chat/{running['id']}/cancel")
    assert mark.encode() not in b"".join(file.read_bytes() for file in gateway.data.rglob("*") if file.is_file())


def test_background_responses_wait_in_the_queue(gateway: RunningGateway) -> None:
    with http_client(gateway) as http:
        first = ask(http, f"{unique()} {standin('hang-mid')}")
        body = {"model": "auto", "input": f"{unique()} {standin('text')}", "background": True}
        made = http.post("/v1/responses", json=body).json()
        assert made["status"] == "queued"
        assert http.get(f"/v1/responses/{made['id']}").json()["status"] == "queued"
        other = http.post("/v1/responses", json=body).json()
        assert http.post(f"/v1/responses/{other['id']}/cancel").json()["status"] == "cancelled"
        assert http.delete(f"/v1/responses/{other['id']}").status_code == 200
        assert http.get(f"/v1/responses/{other['id']}").status_code == 404
        http.post(f"/v1/chat/{first['id']}/cancel")
        assert eventually(lambda: http.get(f"/v1/responses/{made['id']}").json()["status"] == "completed")


# --- who sees and changes what ------------------------------------------------------------------------


def keyed(**others: str) -> dict[str, str]:
    keys = json.dumps({name: hash_key(f"cgw_{name}") for name in ("ann", "bob", "root")})
    return settings(api_keys=keys, admin_keys='["root"]', priorities='{"ann": 2}', **others)


def of_key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer cgw_{name}", **ASYNC}


def test_each_key_sees_its_requests_and_an_administrator_the_queue(tmp_path: Path) -> None:
    with running_gateway(tmp_path, "--source", "cli", settings=keyed()) as gateway, http_client(gateway) as http:

        def post(name: str, message: str, **others: object) -> httpx2.Response:
            return http.post("/v1/chat", json={"message": message, **others}, headers=of_key(name))

        def queue(name: str) -> Json:
            found: Json = http.get("/v1/queue", headers=of_key(name)).json()
            return found

        assert post("ann", standin("hang-mid")).json()["status"] == "streaming"
        assert post("bob", "Too much.", priority=1).json()["error"]["param"] == "priority"
        assert post("ann", "Too much.", priority=3).json()["error"]["param"] == "priority"
        bob = post("bob", "What Bob asks.\nAnd more.").json()
        ann = post("ann", "What Ann asks.", priority=2).json()
        assert [one["id"] for one in queue("bob")["requests"]] == [bob["id"]]
        (own,) = queue("bob")["requests"]
        assert (own["prompt"], own["position"], own["state"]) == ("What Bob asks.", 2, "waiting")
        assert queue("bob")["runners"] == []
        everything = queue("root")
        assert [(one["id"], one["key"]) for one in everything["requests"]] == [(ann["id"], "ann"), (bob["id"], "bob")]
        assert not any("prompt" in one or "conversationId" in one for one in everything["requests"])
        (runner,) = everything["runners"]
        assert (runner["running"], runner["capacity"]) == (1, 1)
        assert http.get(f"/v1/chat/{bob['id']}", headers=of_key("ann")).status_code == 404
        for name, status in (("ann", 403), ("root", 404)):
            path = f"/v1/runners/{runner['id']}/drain"
            assert http.post(path, headers=of_key(name)).status_code == status


def test_the_requests_of_one_key_do_not_hide_those_of_another(tmp_path: Path) -> None:
    with running_gateway(tmp_path, "--source", "cli", settings=keyed()) as gateway, http_client(gateway) as http:
        at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        for _ in range(500):
            http.post("/v1/chat", json={"message": "Many.", "runAt": at}, headers=of_key("ann"))
        asked = http.post("/v1/chat", json={"message": "One.", "runAt": at}, headers=of_key("bob")).json()
        found = http.get("/v1/queue", headers=of_key("bob")).json()["requests"]
        assert [one["id"] for one in found] == [asked["id"]]


def test_the_queue_of_one_key_has_a_limit(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path, "--source", "cli", settings=settings(max_queued_per_key="1")) as gateway,
        http_client(gateway) as http,
    ):
        ask(http, f"{unique()} {standin('hang-mid')}")
        ask(http, "Fits.")
        assert ask(http, "Too many.", status=429)["error"]["code"] == "queue_full"


def test_without_the_queue_a_full_gateway_refuses(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path, "--source", "cli", settings=settings(queue_ttl_seconds="0")) as gateway,
        http_client(gateway) as http,
    ):
        ask(http, f"{unique()} {standin('hang-mid')}")
        assert ask(http, "No.", status=429)["error"]["code"] == "too_many_runs"
        assert http.get("/v1/queue").json()["requests"] == []


def test_the_next_run_of_a_schedule_is_in_the_queue(tmp_path: Path) -> None:
    def scheduled(gateway: RunningGateway) -> list[tuple[str, str, str]]:
        with http_client(gateway) as http:
            assert eventually(lambda: bool(http.get("/v1/queue").json()["requests"]))
            found = http.get("/v1/queue").json()["requests"]
            return [(one["id"], one["schedule"], one["runAt"]) for one in found if one["state"] == "scheduled"]

    month = (datetime.now(UTC) + timedelta(days=60)).month
    night = {"cron": f"30 4 2 {month} *", "time_zone": "Europe/Berlin", "message": "Tidy up."}
    nightly = settings(schedules=json.dumps({"night": night}))
    with running_gateway(tmp_path, "--source", "cli", settings=nightly) as gateway:
        ((id, name, run_at),) = scheduled(gateway)
        assert (name, run_at[4:10]) == ("night", f"-{month:02}-02")
    with running_gateway(tmp_path, "--source", "cli", settings=nightly) as gateway:
        assert [one[0] for one in scheduled(gateway)] == [id]
    with running_gateway(tmp_path, "--source", "cli", settings=settings()) as gateway, http_client(gateway) as http:
        assert eventually(lambda: not http.get("/v1/queue").json()["requests"])
