"""Fronts and runners as processes: a run is started at one front, read and answered at another, driven by a runner."""

import socket
import subprocess
from functools import partial

import msgspec
import pytest

from cursor_gateway.store.cluster import Member
from tests.cluster.conftest import Cluster
from tests.preloaded import run_text
from tests.server.conftest import Json, at_once, chat, eventually, growing, question, sse, standin, text_of, unique
from tests.server.test_caller_tools import WEATHER, call, program, say


def test_a_run_is_streamed_across_processes_and_read_at_another_front(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    with growing(one, "documents", standin("slow count=20 delay_ms=20")) as stream:
        id = stream.response.headers["x-chat-id"]
        stream.until(b"\n\n")
        elsewhere = two.get(f"/v1/chat/{id}/events").content
        streamed = stream.rest()
    assert elsewhere == streamed
    assert [int(event.id) for event in sse(streamed)] == list(range(1, len(sse(streamed)) + 1))
    assert streamed.count(b"event: done") == 1
    some = sse(streamed)[4].id
    rest = two.get(f"/v1/chat/{id}/events", headers={"Last-Event-ID": some}).content
    assert streamed.endswith(rest)
    assert len(sse(rest)) == len(sse(streamed)) - 5
    listed = two.get("/v1/runs").json()["runs"]
    assert id in [run["id"] for run in listed]


@pytest.mark.parametrize("dialect", ["openai", "responses", "messages"])
def test_every_dialect_streams(two_by_two: Cluster, dialect: str) -> None:
    with growing(two_by_two.clients[0], dialect, standin("text")) as stream:  # type: ignore[arg-type] # parameters are strings
        assert stream.response.status_code == 200
        assert stream.rest()


def test_a_conversation_goes_on_at_another_front_with_its_session(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    mark, again = unique(), unique()
    first = chat(one, f"{mark} {standin('text')}")
    second = chat(two, f"{again} {standin('text')}", conversationId=first["conversationId"])
    assert text_of(second)
    assert (two_by_two.starts(mark), two_by_two.starts(again)) == (1, 1)
    detail = one.get(f"/v1/conversations/{first['conversationId']}").json()
    assert [run["id"] for run in detail["runs"]] == [first["id"], second["id"]]
    assert one.delete(f"/v1/conversations/{first['conversationId']}").status_code == 204
    assert two.get(f"/v1/chat/{first['id']}").status_code == 404


def test_a_run_is_cancelled_at_another_front(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    with growing(one, "documents", standin("hang-mid")) as stream:
        id = stream.response.headers["x-chat-id"]
        stream.until(b"\n\n")
        ended = two.post(f"/v1/chat/{id}/cancel", json={})
        assert ended.status_code == 200, ended.text
        assert ended.json()["status"] == "error"
        assert b"CANCELLED" in stream.rest()
    assert two.post(f"/v1/chat/{id}/cancel", json={}).json() == ended.json()


def test_a_run_is_stopped_when_its_last_client_leaves(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    with growing(one, "documents", standin("hang-mid")) as stream:
        id = stream.response.headers["x-chat-id"]
        stream.until(b"\n\n")
        with two.stream("GET", f"/v1/chat/{id}/events") as other:
            next(other.iter_raw())
    assert eventually(lambda: two.get(f"/v1/chat/{id}").json()["status"] == "error")
    (failed,) = (document for document in two.get(f"/v1/chat/{id}").json()["documents"] if document["type"] == "error")
    assert failed["metadata"]["errorCode"] == "CANCELLED"


def test_tool_results_come_to_another_front(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    prompt = program(say("I look. "), call("weather", city="Paris"), say("It is $1."))
    result = one.post("/v1/chat", json={"message": prompt, "tools": [WEATHER]}).json()
    (waiting,) = result["metadata"]["waitingFor"]
    results = [{"toolCallId": waiting["toolCallId"], "content": "sunny"}]
    answer = two.post(f"/v1/chat/{result['id']}/answer", json={"toolResults": results}).json()
    assert answer["status"] == "completed"
    assert [document["content"] for document in answer["documents"]] == ["I look. ", None, "It is sunny."]
    again = one.post(f"/v1/chat/{result['id']}/answer", json={"toolResults": results}).json()
    assert again["documents"] == answer["documents"]


def test_a_client_of_openai_brings_its_results_to_another_front(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    prompt = program(call("weather", city="Paris"), say("It is $1."))
    messages: list[Json] = [{"role": "user", "content": prompt}]
    body = {"model": "auto", "messages": messages, "tools": [WEATHER]}
    asked = one.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    messages += [asked, {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "sunny"}]
    replies = at_once({client: partial(client.post, "/v1/chat/completions", json=body) for client in (one, two)})
    assert [reply.json()["choices"][0]["message"]["content"] for reply in replies.values()] == ["It is sunny."] * 2


def test_a_question_is_answered_at_another_front(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    asked = chat(one, standin("question"))
    body = {"answers": [{"questionId": "file", "selectedOptionIds": ["notes.txt"]}]}
    answered = two.post(f"/v1/chat/{asked['id']}/answer", json=body)
    assert answered.status_code == 200, answered.text
    assert answered.json()["conversationId"] == asked["conversationId"]
    wrong = {"answers": [{"questionId": "x", "text": "?"}]}
    refused = two.post(f"/v1/chat/{asked['id']}/answer", json=wrong)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "answers[0].questionId")


def test_a_rejected_command_is_decided_at_another_front(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    asked = chat(one, standin('shell command="date"'))
    (command,) = [document for document in asked["documents"] if document["type"] == "terminal_command"]
    path = f"/v1/conversations/{asked['conversationId']}"
    assert two.get(path).json()["isWaiting"]
    body = {"permissions": [{"documentId": command["id"], "decision": "deny"}]}
    assert two.post(f"/v1/chat/{asked['id']}/answer", json=body).status_code == 200
    assert "isWaiting" not in one.get(path).json()


def test_equal_requests_at_two_fronts_start_one_agent(two_by_two: Cluster) -> None:
    mark = unique()
    body, headers = {"message": f"{mark} {standin('text')}"}, {"idempotency-key": mark}

    def ask(number: int) -> Json:
        client = two_by_two.clients[number % 2]
        reply: Json = client.post("/v1/chat", json=body, headers=headers).json()
        return reply

    replies = at_once({number: partial(ask, number) for number in range(6)})
    assert len({reply["id"] for reply in replies.values()}) == 1
    assert two_by_two.starts(mark) == 1
    other = two_by_two.clients[0].post("/v1/chat", json={"message": "other"}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_mismatch")


def test_what_a_front_has_delivered_is_answered_anew_when_it_is_asked_again(two_by_two: Cluster) -> None:
    """By a client that does not say whether it retries."""
    mark = unique()
    body, headers = question(mark, max_tokens=32_000), {"x-claude-code-session-id": mark}
    for _ in range(2):
        assert mark in two_by_two.clients[0].post("/v1/messages", json=body, headers=headers).text
    assert two_by_two.starts(mark) == 2


def test_a_conversation_has_one_run_at_a_time(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    id = chat(one, standin("text"))["conversationId"]
    with growing(one, "documents", standin("slow count=50 delay_ms=20"), conversationId=id) as stream:
        stream.until(b"\n\n")
        busy = two.post("/v1/chat", json={"message": "more", "conversationId": id})
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "conversation_busy")
        stream.rest()


def test_what_a_runner_knows_is_asked_of_one(two_by_two: Cluster) -> None:
    (one, _), (runner, _) = two_by_two.clients, two_by_two.runners
    (runner.home.parent / "work" / "found.txt").write_text("")
    assert one.get("/v1/models").json()["data"]
    assert one.get("/v1/workspace/files", params={"q": "found"}).json()["files"] == ["found.txt"]
    assert one.get("/v1/workspace/folders").json()["folders"]
    assert one.get("/v1/permissions").status_code == 200
    assert one.delete("/v1/permissions/perm_x").status_code == 404
    for path in ("/health", "/livez", "/readyz"):
        assert one.get(path).status_code == 200
    outside = one.post("/v1/chat", json={"message": "hello", "workspace": "/etc"})
    assert (outside.status_code, outside.json()["error"]["code"]) == (403, "workspace_forbidden")


def test_many_runs_at_once_are_spread(two_by_two: Cluster) -> None:
    marks = [unique() for _ in range(12)]
    replies = at_once(
        {
            mark: partial(chat, two_by_two.clients[number % 2], f"{mark} {standin('text')}")
            for number, mark in enumerate(marks)
        }
    )
    assert all(map(text_of, replies.values()))
    assert [two_by_two.starts(mark) for mark in marks] == [1] * 12


def command(running: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    home = running.fronts[0].home
    given = {"HOME": str(home), "PATH": "/usr/bin:/bin", "COLUMNS": "300", "CURSOR_GATEWAY_STORE": running.database}
    return run_text(arguments, given, home)


def test_a_runner_announces_only_what_it_serves(two_by_two: Cluster) -> None:
    said = two_by_two.runners[0].banner
    assert "runner of a cluster" in said
    assert "/readyz" in said
    assert not [word for word in ("Web page", "OpenAI API", "curl") if word in said]


def test_the_processes_are_listed_and_counted(two_by_two: Cluster) -> None:
    listed = command(two_by_two, "runners")
    assert listed.returncode == 0, listed.stderr
    rows = [line.split("\t") for line in listed.stdout.splitlines()]  # one for each, however wide they are
    assert {len(row) for row in rows} == {8}
    assert sorted(row[1] for row in rows) == ["front", "front", "runner", "runner"]
    known = msgspec.json.decode(command(two_by_two, "runners", "--json").stdout, type=list[Member])
    assert {member.id for member in known} == {row[0] for row in rows}
    front = two_by_two.clients[0]
    chat(front, standin("text"))
    assert front.get("/v1/runs").json()["runs"][0]["runner"] in {member.id for member in known if member.is_runner}
    figures = front.get("/metrics").text
    assert "cursor_gateway_cluster_members 4.0" in figures
    assert "cursor_gateway_cluster_commands_total" in figures
    unknown = command(two_by_two, "drain", "nobody")
    assert unknown.returncode == 2
    assert "no process 'nobody'" in unknown.stderr


def test_a_volume_names_the_runner(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    (two_by_two.fronts[0].home.parent / "work" / "inner").mkdir(exist_ok=True)
    inner = chat(one, standin("text"), workspace=f"{socket.gethostname()}/inner")
    result = two.get(f"/v1/conversations/{inner['conversationId']}").json()
    assert result["workspace"].rpartition("/")[2] == "inner"
    outside = one.post("/v1/chat", json={"message": "hello", "workspace": f"{socket.gethostname()}/../../etc"})
    assert (outside.status_code, outside.json()["error"]["code"]) == (403, "workspace_forbidden")
