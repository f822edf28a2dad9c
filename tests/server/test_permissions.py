"""A command that no rule allows: rejected, shown, allowed or denied over HTTP, listed and revoked."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, chat, http_client, invocations, sse, unique


def command_of(answer: Json) -> Json:
    found: Json
    (found,) = [document for document in answer["documents"] if document["type"] == "terminal_command"]
    return found


def decide(http: httpx2.Client, answer: Json, decision: str, **fields: Any) -> httpx2.Response:
    result = {"documentId": command_of(answer)["id"], "decision": decision, **fields}
    return http.post(f"/v1/chat/{answer['id']}/answer", json={"permissions": [result]})


def listed(http: httpx2.Client, answer: Json) -> list[Json]:
    found = http.get("/v1/permissions").json()["permissions"]
    return [entry for entry in found if entry["conversationId"] == answer["conversationId"]]


def counting(mark: str) -> str:
    """Leaves one line each time it runs."""
    return f'{mark} standin: shell command="python3 {mark}.py"'


@pytest.fixture
def mark(gateway: RunningGateway) -> Iterator[str]:
    """The name of a program that counts how often it was run."""
    name = unique()
    script = gateway.workspace / f"{name}.py"
    script.write_text(f"open({str(gateway.workspace / name)!r}, 'a').write('ran\\n')\n")
    yield name
    with http_client(gateway) as http:  # the workspace is everybody's
        for entry in http.get("/v1/permissions").json()["permissions"]:
            http.delete(f"/v1/permissions/{entry['id']}")


def runs_of(gateway: RunningGateway, mark: str) -> int:
    path = gateway.workspace / mark
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_rejected_command_says_why_and_what_to_do(gateway: RunningGateway, http: httpx2.Client, mark: str) -> None:
    metadata = command_of(chat(http, counting(mark)))["metadata"]
    assert metadata["state"] == "rejected"
    assert metadata["reason"] == "Not run: no rule allows it. Allow it, or add `Shell(python3)` to the setting `allow`."
    assert "any other program" in metadata["permission"].pop("warning")
    assert metadata["permission"] == {"subject": f"python3 {mark}.py", "rules": ["Shell(python3)"]}
    assert runs_of(gateway, mark) == 0


def test_allowed_once_it_runs_once_and_is_asked_for_again(
    gateway: RunningGateway, http: httpx2.Client, mark: str
) -> None:
    asked = chat(http, counting(mark))
    allowed = decide(http, asked, "once")
    assert allowed.status_code == 200, allowed.text
    result = allowed.json()
    assert result["conversationId"] == asked["conversationId"]
    assert command_of(result)["metadata"]["exitCode"] == 0
    assert runs_of(gateway, mark) == 1
    assert decide(http, asked, "once").json()["id"] == result["id"]  # the same again joins that turn
    assert runs_of(gateway, mark) == 1
    first, second = invocations(gateway, mark)
    assert first["session"] == second["session"]
    assert f"You may run this once:\n\n    python3 {mark}.py\n\nRun it now" in second["prompt"]
    again = chat(http, counting(mark), conversationId=asked["conversationId"])
    assert command_of(again)["metadata"]["state"] == "rejected"
    assert runs_of(gateway, mark) == 1
    assert [entry["decision"] for entry in listed(http, asked)] == ["once"]


def test_however_often_it_is_allowed_at_once_it_runs_once(
    gateway: RunningGateway, http: httpx2.Client, mark: str
) -> None:
    asked = chat(http, counting(mark))
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda _: decide(http, asked, "once"), range(6)))
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert runs_of(gateway, mark) == 1


def test_allowed_in_the_conversation_until_it_is_revoked(
    gateway: RunningGateway, http: httpx2.Client, mark: str
) -> None:
    asked = chat(http, counting(mark))
    assert decide(http, asked, "conversation").status_code == 200
    again = chat(http, counting(mark), conversationId=asked["conversationId"])
    assert command_of(again)["metadata"]["exitCode"] == 0
    elsewhere = chat(http, counting(mark))
    assert command_of(elsewhere)["metadata"]["state"] == "rejected"
    assert runs_of(gateway, mark) == 2
    (entry,) = listed(http, asked)
    assert (entry["rules"], entry["chatId"]) == (["Shell(python3)"], asked["id"])
    assert http.delete(f"/v1/permissions/{entry['id']}").status_code == 204
    assert http.delete(f"/v1/permissions/{entry['id']}").status_code == 404
    after = chat(http, counting(mark), conversationId=asked["conversationId"])
    assert command_of(after)["metadata"]["state"] == "rejected"
    assert runs_of(gateway, mark) == 2
    assert decide(http, asked, "once").status_code == 200  # what was revoked can be decided again
    assert runs_of(gateway, mark) == 3


def test_allowed_in_the_workspace_holds_in_other_conversations(
    gateway: RunningGateway, http: httpx2.Client, mark: str
) -> None:
    asked = chat(http, counting(mark))
    assert decide(http, asked, "workspace").status_code == 200
    other = chat(http, counting(mark))
    assert command_of(other)["metadata"]["exitCode"] == 0
    below = gateway.workspace / f"{mark}-below"
    below.mkdir()
    elsewhere = chat(http, counting(mark), workspace=str(below))
    assert command_of(elsewhere)["metadata"]["state"] == "rejected"
    assert runs_of(gateway, mark) == 2
    http.delete(f"/v1/conversations/{asked['conversationId']}")
    (rule,) = [entry for entry in http.get("/v1/permissions").json()["permissions"] if entry["decision"] == "workspace"]
    assert (rule["rules"], rule["subject"], rule["conversationId"]) == (["Shell(python3)"], "", "")
    third = chat(http, counting(mark))
    assert command_of(third)["metadata"]["exitCode"] == 0  # the rule is the workspace's


def test_a_denial_tells_the_agent_why(gateway: RunningGateway, http: httpx2.Client, mark: str) -> None:
    asked = chat(http, counting(mark))
    denied = decide(http, asked, "deny", reason=f"Use pnpm, {mark}.")
    assert denied.json()["conversationId"] == asked["conversationId"]
    assert runs_of(gateway, mark) == 0
    prompts = [one["prompt"] for one in invocations(gateway, mark)]
    assert f"Do not run this:\n\n    python3 {mark}.py\n\nContinue without it. Use pnpm, {mark}." in prompts[-1]


def test_a_denial_without_a_reason_starts_nothing(gateway: RunningGateway, http: httpx2.Client, mark: str) -> None:
    asked = chat(http, counting(mark))
    denied = decide(http, asked, "deny")
    assert (denied.status_code, denied.json()["id"]) == (200, asked["id"])
    assert len(invocations(gateway, mark)) == 1
    refused = decide(http, asked, "once")
    assert refused.status_code == 400
    assert "already decided: deny" in refused.json()["error"]["message"]
    assert runs_of(gateway, mark) == 0


def is_waiting(http: httpx2.Client, answer: Json) -> bool:
    """As the conversation itself has it, and each list that it is in."""
    id = answer["conversationId"]
    lists = [http.get("/v1/conversations", params={"q": query}).json() for query in ("", "standin")]
    entries = [one for list in lists for one in list["conversations"] if one["id"] == id]
    found = {entry.get("isWaiting", False) for entry in (http.get(f"/v1/conversations/{id}").json(), *entries)}
    assert len(found) == 1, (found, entries)
    return bool(found.pop())


def test_a_conversation_waits_until_its_last_rejected_command_is_decided(http: httpx2.Client, mark: str) -> None:
    asked = chat(http, f'{counting(mark)} then="sh touched.sh"')
    commands = [document["id"] for document in asked["documents"] if document["type"] == "terminal_command"]
    assert is_waiting(http, asked)
    for place, id in enumerate(commands, 1):
        body = {"permissions": [{"documentId": id, "decision": "deny"}]}
        assert http.post(f"/v1/chat/{asked['id']}/answer", json=body).status_code == 200
        assert is_waiting(http, asked) == (place < len(commands))


def test_a_conversation_waits_until_its_command_is_allowed_or_it_goes_on(http: httpx2.Client, mark: str) -> None:
    asked = chat(http, counting(mark))
    assert is_waiting(http, asked)
    assert decide(http, asked, "once").status_code == 200
    assert not is_waiting(http, asked)
    id = asked["conversationId"]
    assert is_waiting(http, chat(http, counting(mark), conversationId=id))
    assert not is_waiting(http, chat(http, "Never mind.", conversationId=id))


def test_it_streams(http: httpx2.Client, mark: str) -> None:
    asked = chat(http, counting(mark))
    result = {"documentId": command_of(asked)["id"], "decision": "once"}
    body = {"permissions": [result], "stream": True}
    assert sse(http.post(f"/v1/chat/{asked['id']}/answer", json=body).content)[-1].event == "done"


@pytest.mark.parametrize(
    ("expected", "status", "param"),
    [
        ({"documentId": "doc_001", "decision": "once"}, 400, "permissions"),  # a text
        ({"documentId": "doc_099", "decision": "once"}, 404, "permissions"),
        ({"documentId": "doc_002", "decision": "yes"}, 400, "permissions[0].decision"),
        ({"documentId": "doc_002", "decision": "once", "reason": "please"}, 400, "permissions[0].reason"),
        ({"documentId": "doc_002", "decision": "once", "rules": ["Shell(*)"]}, 400, "permissions[0].rules"),
    ],
)
def test_what_does_not_fit_is_refused(http: httpx2.Client, mark: str, expected: Json, status: int, param: str) -> None:
    asked = chat(http, counting(mark))
    refused = http.post(f"/v1/chat/{asked['id']}/answer", json={"permissions": [expected]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (status, param), refused.text


def test_an_operator_may_turn_it_off_and_has_rules_of_their_own(tmp_path: Path) -> None:
    settings = {"permissions": "deny", "allow": "Shell(expr)"}
    with running_gateway(tmp_path, settings=settings) as gateway, http_client(gateway) as http:
        result = http.get("/v1/permissions").json()
        assert result == {"permissions": [], "settings": ["Shell(expr)"], "canAllow": False, "allowsEverything": False}
        ran = chat(http, 'standin: shell command="expr 1 + 1"')
        assert command_of(ran)["metadata"]["output"] == "2\n"
        asked = chat(http, 'standin: shell command="date"')
        refused = decide(http, asked, "once")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "approval_forbidden")
        assert not is_waiting(http, asked)
        assert decide(http, asked, "deny", reason="No clocks.").status_code == 200


# --- an agent that waits --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def waiting_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("acp"), settings={"source": "acp"}) as running:
        yield running


@pytest.fixture
def waiting(waiting_gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(waiting_gateway) as client:
        yield client
        for entry in client.get("/v1/permissions").json()["permissions"]:
            client.delete(f"/v1/permissions/{entry['id']}")


def counter(gateway: RunningGateway) -> str:
    name = unique()
    script = gateway.workspace / f"{name}.py"
    script.write_text(f"open({str(gateway.workspace / name)!r}, 'a').write('ran\\n')\n")
    return name


def asking(client: httpx2.Client, mark: str, **fields: Any) -> tuple[Json, Json]:
    """A run that waits, and the document in which it asks."""
    answer = client.post("/v1/chat", json={"message": counting(mark), **fields}).json()
    assert answer["status"] == "streaming"
    (found,) = [document for document in answer["documents"] if document["type"] == "clarification"]
    return answer, found


def test_it_waits_and_says_so(waiting_gateway: RunningGateway, waiting: httpx2.Client) -> None:
    mark = counter(waiting_gateway)
    answer, asked = asking(waiting, mark)
    metadata = asked["metadata"]
    assert (metadata["state"], metadata["permission"]["rules"]) == ("waiting", ["Shell(python3)"])
    assert [option["id"] for option in metadata["questions"][0]["options"]] == [
        "once",
        "conversation",
        "workspace",
        "deny",
    ]
    assert not [one for one in answer["documents"] if one["type"] == "terminal_command"]  # nothing runs yet
    result = {"permissions": [{"documentId": asked["id"], "decision": "once"}]}
    done = waiting.post(f"/v1/chat/{answer['id']}/answer", json=result).json()
    assert (done["id"], done["status"]) == (answer["id"], "completed")
    assert command_of(done)["metadata"]["exitCode"] == 0
    (decided,) = [one for one in done["documents"] if one["type"] == "clarification"]
    assert decided["metadata"]["answers"][0]["selectedOptionIds"] == ["once"]
    assert "state" not in decided["metadata"]
    again = waiting.post(f"/v1/chat/{answer['id']}/answer", json=result)  # another copy
    assert again.json()["id"] == answer["id"]
    assert runs_of(waiting_gateway, mark) == 1
    assert waiting.get("/v1/permissions").json()["permissions"] == []


@pytest.mark.parametrize("decision", ["conversation", "workspace"])
def test_what_is_always_allowed_holds_in_later_runs_until_revoked(
    waiting_gateway: RunningGateway, waiting: httpx2.Client, decision: str
) -> None:
    mark = counter(waiting_gateway)
    answer, asked = asking(waiting, mark)
    result = {"permissions": [{"documentId": asked["id"], "decision": decision}]}
    assert waiting.post(f"/v1/chat/{answer['id']}/answer", json=result).json()["status"] == "completed"
    again = chat(waiting, counting(mark), conversationId=answer["conversationId"])
    assert command_of(again)["metadata"]["exitCode"] == 0
    assert runs_of(waiting_gateway, mark) == 2
    (entry,) = waiting.get("/v1/permissions").json()["permissions"]
    assert entry["decision"] == decision
    assert waiting.delete(f"/v1/permissions/{entry['id']}").status_code == 204
    after, _ = asking(waiting, mark, conversationId=answer["conversationId"])
    waiting.post(f"/v1/chat/{after['id']}/cancel", json={})
    assert runs_of(waiting_gateway, mark) == 2


def test_a_denial_with_a_reason_goes_on_in_the_same_run(
    waiting_gateway: RunningGateway, waiting: httpx2.Client
) -> None:
    mark = counter(waiting_gateway)
    answer, asked = asking(waiting, mark)
    result = {"permissions": [{"documentId": asked["id"], "decision": "deny", "reason": "Use pnpm here."}]}
    done = waiting.post(f"/v1/chat/{answer['id']}/answer", json=result).json()
    assert (done["id"], done["status"]) == (answer["id"], "completed")
    metadata = command_of(done)["metadata"]
    assert (metadata["state"], metadata["reason"]) == ("rejected", "Not run: it was not allowed.")
    assert "permission" not in metadata  # it was decided
    assert "Continue without it. Use pnpm here." in done["documents"][-1]["content"]  # which the stand-in says back
    assert runs_of(waiting_gateway, mark) == 0


def test_words_alone_are_no_decision(waiting_gateway: RunningGateway, waiting: httpx2.Client) -> None:
    mark = counter(waiting_gateway)
    answer, asked = asking(waiting, mark)
    question, path = asked["metadata"]["questions"][0]["id"], f"/v1/chat/{answer['id']}/answer"
    for result, param in (
        ({"questionId": question, "text": "yes, go on"}, "answers[0].selectedOptionIds"),
        ({"questionId": question}, "answers[0].selectedOptionIds"),
        ({"questionId": question, "selectedOptionIds": ["once"], "text": "please"}, "answers[0].text"),
    ):
        refused = waiting.post(path, json={"answers": [result]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text
    assert waiting.get(f"/v1/chat/{answer['id']}").json()["status"] == "streaming"  # it still waits
    result = {"questionId": question, "selectedOptionIds": ["deny"], "text": "Not today."}
    done = waiting.post(path, json={"answers": [result]}).json()
    assert "Not today." in done["documents"][-1]["content"]
    assert runs_of(waiting_gateway, mark) == 0


def test_a_request_that_cannot_be_asked_can_still_decide_afterwards(
    waiting_gateway: RunningGateway, waiting: httpx2.Client
) -> None:
    mark = counter(waiting_gateway)
    asked = chat(waiting, counting(mark), mayAsk=False)
    assert command_of(asked)["metadata"]["permission"]["rules"] == ["Shell(python3)"]
    assert runs_of(waiting_gateway, mark) == 0
    assert command_of(decide(waiting, asked, "once").json())["metadata"]["exitCode"] == 0
    assert runs_of(waiting_gateway, mark) == 1
