"""`/mcp`: sessions, streams that break, calls that are sent again, tasks after a restart, and who may do what."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cursor_gateway.keys import hash_key
from cursor_gateway.wire.sse import SseEvent
from tests.gateways import RunningGateway, running_gateway
from tests.mcp_server.wire import TASKS, Json, Legacy, Modern, last_message
from tests.server.conftest import eventually, http_client, invocations, unique

ALICE, BOB = "key-of-alice-0123456789", "key-of-bob-0123456789"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("gateway"), settings={"history_days": "2"}) as running:
        yield running


@pytest.fixture(scope="module")
def http(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


def run(prompt: str, **more: Any) -> Json:
    return {"name": "run", "arguments": {"prompt": prompt, **more}}


def messages(events: Iterator[SseEvent]) -> list[Json]:
    return [json.loads(event.data) for event in events if event.data]


# --- before 2026-07-28: sessions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2030-01-01", "2025-11-25"),
    ],
)
def test_a_host_gets_the_version_that_it_asks_for(http: httpx2.Client, asked: str, given: str) -> None:
    assert Legacy(http, asked).initialized["protocolVersion"] == given


def test_a_session_ends_when_its_host_says_so(http: httpx2.Client) -> None:
    host = Legacy(http)
    assert host.post("tools/list").json()["result"]["tools"]
    assert host.end().status_code == 204
    ended = host.post("tools/list")
    assert (ended.status_code, "send `initialize` again" in ended.text) == (404, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"mcp-session-id": "x"}, 404),
        ({"mcp-session-id": "x", "mcp-protocol-version": "1999-01-01"}, 400),
        ({"accept": "application/json"}, 406),
    ],
)
def test_a_request_without_a_session_is_refused(http: httpx2.Client, headers: dict[str, str], status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    refused = http.post("/mcp", json=body, headers={"accept": "application/json, text/event-stream", **headers})
    assert (refused.status_code, refused.json()["id"]) == (status, 7)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', b'{"jsonrpc": "2.0"}'])
def test_what_is_no_message_is_refused(http: httpx2.Client, body: bytes) -> None:
    refused = http.post("/mcp", content=body, headers={"content-type": "application/json", "accept": "*/*"})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] in (-32700, -32600)


def test_a_stream_that_breaks_is_continued(http: httpx2.Client, gateway: RunningGateway) -> None:
    host, mark, gate = Legacy(http), unique(), gateway.workspace / unique()
    call = run(f"{mark} standin: wait-for file={gate}")
    with host.call(5, **call, _meta={"progressToken": "p"}) as events:
        first = next(events)
    assert first.id
    assert not first.data  # it only says where to continue
    gate.touch()
    with host.resume(first.id) as events:
        *progress, result = messages(events)
    assert {message["params"]["progressToken"] for message in progress} == {"p"}
    assert (result["id"], result["result"]["structuredContent"]["status"]) == (5, "completed")
    assert len(invocations(gateway, mark)) == 1


def test_no_message_is_lost_or_repeated_however_often_a_stream_breaks(http: httpx2.Client) -> None:
    host, call = Legacy(http), {**run(f"{unique()} standin: tools"), "_meta": {"progressToken": 1}}
    with host.call(1, **call) as events:
        whole = list(events)
    read, at = whole[:1], whole[0].id
    while not read[-1].data or "result" not in json.loads(read[-1].data):
        with host.resume(at) as events:
            for number, event in enumerate(events):
                read.append(event)
                at = event.id or at
                if number == 1:
                    break
    assert [event.data for event in read] == [event.data for event in whole]


def test_the_same_request_again_is_the_same_run_again(http: httpx2.Client, gateway: RunningGateway) -> None:
    host, mark = Legacy(http), unique()
    with host.call(9, **run(f"{mark} standin: hang-mid")) as events:
        next(events)
    host.post("notifications/cancelled", None, requestId=8)  # another one
    with host.call(9, **run(f"{mark} standin: hang-mid")) as events:
        next(events)
        eventually(lambda: invocations(gateway, mark))
        assert host.post("notifications/cancelled", None, requestId=9).status_code == 202
        assert not messages(events)  # a request that was cancelled has no result
    assert len(invocations(gateway, mark)) == 1
    eventually(lambda: "cancelled" in str(_runs(http, mark)).lower())


def test_ending_a_session_stops_its_calls(http: httpx2.Client) -> None:
    host, mark = Legacy(http), unique()
    with host.call(3, **run(f"{mark} standin: hang-mid")) as events:
        next(events)
        host.end()
        assert not messages(events)
    eventually(lambda: "cancelled" in str(_runs(http, mark)).lower())


def _runs(http: httpx2.Client, mark: str) -> list[Json]:
    (found,) = eventually(lambda: http.get("/v1/conversations", params={"q": mark}).json()["conversations"])
    runs: list[Json] = http.get(f"/v1/conversations/{found['id']}").json()["runs"]
    return runs


def test_a_form_is_answered_after_its_stream_broke(http: httpx2.Client) -> None:
    host = Legacy(http, capabilities={"elicitation": {}})
    with host.call(2, **run(f"{unique()} standin: question")) as events:
        place = next(events).id
        form = json.loads(next(event for event in events if event.data).data)
    assert form["method"] == "elicitation/create"
    host.reply(form["id"], {"action": "accept", "content": {"file": "other.txt"}})
    with host.resume(place) as events:
        (answer,) = messages(events)  # and the form is not shown again
    assert answer["result"]["structuredContent"]["documents"][-1]["content"] == "You chose other.txt."


def test_there_is_a_stream_on_which_nothing_comes(http: httpx2.Client) -> None:
    with Legacy(http).resume() as events:
        del events  # it is open
    assert http.get("/mcp").status_code == 400


# --- since 2026-07-28 --------------------------------------------------------------------------------------


def test_a_server_says_what_it_can_do(http: httpx2.Client) -> None:
    found = Modern(http).result("server/discover")
    assert found["supportedVersions"][:2] == ["2026-07-28", "2025-11-25"]
    assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "cursor-gateway"


def test_a_call_that_is_sent_again_because_its_connection_broke_is_one_run(
    http: httpx2.Client, gateway: RunningGateway
) -> None:
    host, mark, gate = Modern(http), unique(), gateway.workspace / unique()
    call = {**run(f"{mark} standin: wait-for file={gate}"), "id": 1}
    with host.stream("tools/call", **call):
        eventually(lambda: invocations(gateway, mark))
    gate.touch()
    again = last_message(host.send("tools/call", **{**call, "id": 2}))
    assert (again["id"], again["result"]["structuredContent"]["status"]) == (2, "completed")
    assert len(invocations(gateway, mark)) == 1


def test_a_task_that_is_created_again_because_its_reply_was_lost_is_one_run(
    http: httpx2.Client, gateway: RunningGateway
) -> None:
    host, mark = Modern(http, TASKS), unique()
    first, second = (host.result("tools/call", **run(f"{mark} standin: hang-mid")) for _ in range(2))
    assert first["taskId"] == second["taskId"]
    host.result("tasks/cancel", taskId=first["taskId"])
    eventually(lambda: host.result("tasks/get", taskId=first["taskId"])["status"] == "cancelled")
    assert host.result("tasks/cancel", taskId=first["taskId"])["resultType"] == "complete"
    assert len(invocations(gateway, mark)) <= 1


def test_a_task_lives_as_long_as_the_history(http: httpx2.Client) -> None:
    task = Modern(http, TASKS).result("tools/call", name="ask", arguments={"prompt": f"{unique()} hello"})
    assert (task["resultType"], task["status"], task["ttlMs"]) == ("task", "working", 2 * 24 * 3_600_000)


def test_an_unknown_task_is_an_error(http: httpx2.Client) -> None:
    for method in ("tasks/get", "tasks/cancel"):
        assert Modern(http, TASKS).error(method, taskId="chat_0")["code"] == -32602


def test_tasks_are_for_hosts_that_say_so(http: httpx2.Client) -> None:
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        refused = Modern(http).send(method, taskId="chat_0", inputResponses={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32021)


def test_a_host_that_listens_is_told_how_its_tasks_change(http: httpx2.Client) -> None:
    host = Modern(http, TASKS)
    id = host.result("tools/call", **run(f"{unique()} standin: question"))["taskId"]
    with host.stream("subscriptions/listen", 4, notifications={"taskIds": [id, "chat_0"]}) as told:
        acknowledged = next(told)
        assert acknowledged["params"]["notifications"] == {"taskIds": [id]}
        waiting = next(one for one in told if one["params"]["status"] == "input_required")
        (key,) = waiting["params"]["inputRequests"]
        filled = {key: {"action": "accept", "content": {"file": "notes.txt"}}}
        assert host.result("tasks/update", taskId=id, inputResponses=filled)["resultType"] == "complete"
        *changes, ended, last = told
    assert ended["params"]["result"]["structuredContent"]["status"] == "completed"
    subscription = {"io.modelcontextprotocol/subscriptionId": 4}
    assert all(one["params"]["_meta"] == subscription for one in (acknowledged, waiting, *changes, ended))
    assert last == {"jsonrpc": "2.0", "id": 4, "result": {"resultType": "complete", "_meta": subscription}}


def test_a_subscription_names_few_tasks(http: httpx2.Client) -> None:
    """Each is looked up: hundreds of thousands would stop the gateway for everybody."""
    host = Modern(http, TASKS)
    with host.stream("subscriptions/listen", notifications={"taskIds": ["chat_0"] * 101}) as told:
        assert next(told)["error"]["code"] == -32602
    with host.stream("subscriptions/listen", notifications={"taskIds": ["chat_0"] * 100}) as told:
        assert next(told)["method"] == "notifications/subscriptions/acknowledged"


def test_who_dismisses_the_form_of_a_task_has_refused(http: httpx2.Client) -> None:
    """It is not shown again, so the task would wait for ever."""
    host = Modern(http, TASKS)
    id = host.result("tools/call", **run(f'{unique()} standin: shell command="expr 1 + 1"'))["taskId"]
    task = eventually(lambda: _with_status(host, id, "input_required"))
    host.result("tasks/update", taskId=id, inputResponses={key: {"action": "cancel"} for key in task["inputRequests"]})
    ended = eventually(lambda: _with_status(host, id, "completed"))
    assert "rejected" in str(ended["result"]["structuredContent"]["documents"])


def _with_status(host: Modern, id: str, status: str) -> Json:
    """Empty if it has another one."""
    task = host.result("tasks/get", taskId=id)
    return task if task["status"] == status else {}


# --- restarts, keys and limits -----------------------------------------------------------------------------


def test_tasks_outlive_the_gateway(tmp_path: Path) -> None:
    """One that had ended keeps its result; one that was running has ended with an error, and is not started again."""
    mark = unique()
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        host = Modern(http, TASKS)
        done = host.result("tools/call", name="ask", arguments={"prompt": f"{mark} hello"})["taskId"]
        before = eventually(lambda: _with_status(host, done, "completed"))
        cut = host.result("tools/call", **run(f"{mark} standin: hang-mid"))["taskId"]
        eventually(lambda: host.result("tasks/get", taskId=cut).get("statusMessage"))
        gateway.process.kill()
        gateway.process.wait()
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        host = Modern(http, TASKS)
        assert host.result("tasks/get", taskId=done) == before
        ended = host.result("tasks/get", taskId=cut)
        assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
        assert "The gateway was killed during this run" in str(ended["result"]["content"])


def test_a_key_is_needed_and_sees_its_own_tasks_alone(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path, settings={"api_keys": f"alice={hash_key(ALICE)},bob={hash_key(BOB)}"}) as gateway,
        httpx2.Client(base_url=gateway.url, headers={"authorization": f"Bearer {ALICE}"}, timeout=60) as alice,
        httpx2.Client(base_url=gateway.url, headers={"authorization": f"Bearer {BOB}"}, timeout=60) as bob,
    ):
        with httpx2.Client(base_url=gateway.url) as nobody:
            body, headers = Modern(nobody).message("server/discover")
            refused = nobody.post("/mcp", json=body, headers=headers)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert nobody.get("/mcp").status_code == 401
        host, other = Modern(alice, TASKS), Modern(bob, TASKS)
        id = host.result("tools/call", **run("standin: question"))["taskId"]
        task = eventually(lambda: _with_status(host, id, "input_required"))
        filled = {key: {"action": "accept", "content": {}} for key in task["inputRequests"]}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert other.error(method, taskId=id, inputResponses=filled)["code"] == -32602
        (key,) = filled
        Legacy(bob, capabilities={"elicitation": {}}).reply(f"{id}/{key}", {"action": "accept", "content": {}})
        assert _with_status(host, id, "input_required")
        with host.stream("subscriptions/listen", notifications={"taskIds": []}) as told:
            assert next(told)["params"]["notifications"] == {}
        with other.stream("subscriptions/listen", notifications={"taskIds": [id]}) as told:
            assert next(told)["params"]["notifications"] == {}
        host.result("tasks/cancel", taskId=id)
        session = Legacy(alice)
        Legacy(bob, session=session.session).end()
        assert session.post("ping").status_code == 200
        session.end()
        assert session.post("ping").status_code == 404


def test_it_has_the_limits_of_all_requests(tmp_path: Path) -> None:
    limits = {"max_body_bytes": "2000", "requests_per_minute": "3"}
    with running_gateway(tmp_path, settings=limits) as gateway, http_client(gateway) as http:
        host = Modern(http)
        assert host.send("tools/call", **run("x" * 3000)).status_code == 413
        body, headers = host.message("server/discover")
        assert http.post("/mcp", json=body, headers={**headers, "origin": "https://evil.example"}).status_code == 403
        assert http.post("/mcp", json=body, headers={**headers, "host": "evil.example"}).status_code == 403
        statuses = [host.send("server/discover").status_code for _ in range(4)]
        assert statuses[-1] == 429


def test_a_task_waits_in_the_queue(tmp_path: Path) -> None:
    with running_gateway(tmp_path, settings={"max_runs": "1"}) as gateway, http_client(gateway) as http:
        host = Modern(http, TASKS)
        first = host.result("tools/call", **run(f"{unique()} standin: hang-mid"))["taskId"]
        second = host.result("tools/call", name="ask", arguments={"prompt": f"{unique()} hello"})["taskId"]
        waiting = host.result("tasks/get", taskId=second)
        assert (waiting["status"], waiting["statusMessage"]) == ("working", "Waiting in the queue")
        host.result("tasks/cancel", taskId=first)
        eventually(lambda: _with_status(host, second, "completed"))


def test_open_streams_do_not_keep_a_gateway_from_stopping(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        host, listening = Legacy(http), Modern(http, TASKS)
        with host.resume() as events, listening.stream("subscriptions/listen", 2, notifications={}) as told:
            next(told)
            gateway.process.send_signal(signal.SIGTERM)
            assert list(events) == []
            assert [one["id"] for one in told] == [2]
            assert gateway.process.wait(60) == 0
