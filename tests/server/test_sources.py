"""The same scenario by every way to the agent: the same documents and chat text, but for what each cannot tell."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cursor_gateway.sources.processes import members
from tests.agent.bridge_install import install_bridge
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, chat, eventually, http_client, invocations, question, sse, standin, unique
from tests.server.test_caller_tools import BASH, WEATHER, Caller, call, only_call, program, say
from tests.server.test_leaks import ended_agents

SOURCES = ["cli", "acp", "sdk"]

# What is not of the run itself: how long it took, and ids.
_FREE = {"duration_ms", "toolCallId", "agentCallId", "raw"}

# Why the documents of a scenario differ, where the protocol forces it.
FORCED: dict[tuple[str, str], str] = {
    ("acp", "tools"): "an edit's place is not told, and results in another form",
    ("sdk", "tools"): "to-dos have no ids of their own",
    ("sdk", "shell command=ls"): "the SDK asks nobody, so commands are denied unless the operator forces them",
    ("acp", "shell command=curl"): "why a call was rejected is not told",
    ("sdk", "shell command=curl"): "a rejected call reads as failed",
    ("sdk", "plan"): "a plan comes without its to-dos",
    ("sdk", "question"): "questions cannot be asked, so they are denied",
}
SCENARIOS = [
    "text chunks=7",
    "thinking",
    "fences",
    "empty",
    "tools",
    "shell command=ls",
    "shell command=curl",
    "plan",
    "question",
]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[RunningGateway, httpx2.Client]]]:
    """A gateway for each source, with its stand-in."""
    with ExitStack() as stack:
        found = {}
        for source in SOURCES:
            home = stack.enter_context(ended_agents(tmp_path_factory.mktemp(source)))
            settings = {"source": source, "sdk_bridge": ",".join(install_bridge(home / "bridge"))}
            environment = {"CURSOR_API_KEY": "key"} if source == "sdk" else {}
            gateway = stack.enter_context(running_gateway(home, settings=settings, environment=environment))
            found[source] = (gateway, stack.enter_context(http_client(gateway)))
        yield found


def plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: plain(its) for name, its in value.items() if name not in _FREE}
        case list():
            return [plain(one) for one in value]
        case _:
            return value


def documents_of(client: httpx2.Client, scenario: str) -> list[Json]:
    result = chat(client, f"standin: {scenario}", include=["thinking"], mayAsk=False)
    return [plain(document) for document in result["documents"]]


@pytest.mark.parametrize("source", ["acp", "sdk"])
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.quick_cases(2)
def test_the_same_documents(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str, scenario: str
) -> None:
    expected, found = (documents_of(clients[name][1], scenario) for name in ("cli", source))
    folders = [str(clients[name][0].workspace) for name in ("cli", source)]
    found = json.loads(json.dumps(found).replace(folders[1], folders[0]))
    if (source, scenario) in FORCED:
        assert found != expected, "the reason is gone: take it out of FORCED"
        prose = [
            [one for one in result if one["type"] in ("text", "thinking", "code_block")] for result in (expected, found)
        ]
        if not scenario.startswith(("shell", "question")):
            assert prose[0] == prose[1]
    else:
        assert found == expected


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("scenario", ["fail-quota-early", "fail-quota"])
def test_the_agents_own_words_about_its_failure_are_sent_everywhere(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str, scenario: str
) -> None:
    """Before the first text and after it, in every dialect, and in the log."""
    reset = "reset when your monthly cycle ends on 10/2/2026"
    gateway, client = clients[source]
    ndjson = {"accept": "application/x-ndjson"}
    before = gateway.log.read_text().count(reset)
    replies = [
        client.post("/v1/chat", json={"message": standin(scenario)}),
        client.post("/v1/chat", json={"message": standin(scenario), "stream": True}),
        client.post("/v1/chat", json={"message": standin(scenario), "stream": True}, headers=ndjson),
        client.post("/v1/chat/completions", json=question(f"{unique()} {standin(scenario)}")),
        client.post("/v1/chat/completions", json=question(f"{unique()} {standin(scenario)}", stream=True)),
    ]
    for reply in replies:
        assert reset in reply.text
        assert reply.status_code == 200 or reset in reply.json()["error"]["message"]
        assert reply.status_code == 200 or reset in reply.json()["error"]["details"]
    for id in {reply.headers["x-chat-id"] for reply in replies}:
        (result,) = [one for one in client.get(f"/v1/chat/{id}").json()["documents"] if one["type"] == "error"]
        assert reset in result["content"]
        assert reset in result["metadata"]["details"]
    eventually(lambda: gateway.log.read_text().count(reset) >= before + len(replies))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("stream", [False, True])
def test_the_same_chat_text(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str, stream: bool
) -> None:
    _, client = clients[source]
    body = "Ein Gruß, 日本語 and \U0001f600.\n\n```python\nprint(1)\n```\nEnd."
    prompt = f"standin: say size=5\n---\n{body}\n--- end"
    reply = client.post("/v1/chat/completions", json=question(prompt, stream=stream))
    if not stream:
        assert reply.json()["choices"][0]["message"]["content"] == body
        return
    datas = [json.loads(event.data) for event in sse(reply.content)[:-1]]
    assert "".join(data["choices"][0]["delta"].get("content") or "" for data in datas) == body


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", SOURCES)
def test_usage_is_the_agents_where_it_tells(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str
) -> None:
    result = chat(clients[source][1], "standin: usage input=1000 output=50 cache_read=200 cache_write=0")["usage"]
    if source == "acp":  # the protocol has no place for it
        assert result["estimated"] is True
    else:
        assert result["completionTokens"] == 50
        assert "estimated" not in result


@pytest.mark.parametrize("source", SOURCES)
def test_a_conversation_goes_on_in_its_session(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str
) -> None:
    _, client = clients[source]
    first = chat(client, "standin: say size=99\n---\nFirst.")
    again = chat(client, "standin: history", conversationId=first["conversationId"])
    known = json.loads(again["documents"][-1]["content"])
    assert known["turns"] == 1
    assert known["answers"] == ["First."]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", SOURCES)
def test_tools_of_the_caller(clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str) -> None:
    gateway, client = clients[source]
    steps = [say("I look. "), {"parallel": [call("weather", city="A"), call("weather", city="B")]}, say("$1 $2")]
    caller = Caller(client, program(*steps), [WEATHER])
    asked = caller.ask()
    assert asked["content"] == "I look. "
    given = {json.loads(one["function"]["arguments"])["city"]: one["id"] for one in asked["tool_calls"]}
    caller.give((given["B"], "two"), (given["A"], "one"))
    assert caller.ask()["content"] == "one two"
    made = gateway.workspace / "made"
    natives = program({"native": "shell", "args": {"command": f"touch {made}"}}, say("end"))
    Caller(client, natives, [WEATHER]).ask()
    assert not made.exists()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", ["cli", "acp"])
def test_a_denied_tool_of_the_agents_becomes_the_callers(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str
) -> None:
    _, client = clients[source]
    caller = Caller(client, program({"native": "shell", "args": {"command": "ls"}}, say("It gave $1.")), [BASH])
    asked = only_call(caller.ask())
    assert json.loads(asked["function"]["arguments"])["command"] == "ls"
    caller.give((asked["id"], "this"))
    assert caller.ask()["content"] == "It gave this."


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("scenario", "status", "code"),
    [("fail-quota-early", 429, "insufficient_quota"), ("fail-capacity", 429, "agent_overloaded")],
)
def test_failures_have_their_status(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str, scenario: str, status: int, code: str
) -> None:
    reply = clients[source][1].post("/v1/chat", json={"message": f"standin: {scenario}"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("source", SOURCES)
def test_a_cancelled_run_ends(clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str) -> None:
    _, client = clients[source]
    begun = client.post("/v1/chat", json={"message": "standin: hang-mid"}, headers={"prefer": "respond-async"}).json()
    eventually(lambda: client.get(f"/v1/chat/{begun['id']}").json()["documents"])
    assert client.post(f"/v1/chat/{begun['id']}/cancel", json={}).json()["status"] == "error"
    assert chat(client, "standin: say size=9\n---\nstill here")["documents"][0]["content"] == "still here"


# --- questions that wait ----------------------------------------------------------------------------------


def test_a_question_is_answered_in_the_same_run(clients: dict[str, tuple[RunningGateway, httpx2.Client]]) -> None:
    _, client = clients["acp"]
    asked = client.post("/v1/chat", json={"message": "standin: question"}).json()
    assert asked["status"] == "streaming"
    (waiting,) = asked["metadata"]["waitingFor"]
    form = next(document for document in asked["documents"] if document["id"] == waiting["documentId"])
    assert (form["type"], form["metadata"]["state"]) == ("clarification", "waiting")
    path = f"/v1/chat/{asked['id']}/answer"
    refused: list[tuple[Json, str]] = [
        ({"answers": [{"questionId": "file", "selectedOptionIds": ["no"]}]}, "is not an option of this question"),
        ({"answers": [{"questionId": "other", "selectedOptionIds": []}]}, "'other' is not open; choose from file"),
        ({"answers": [{"questionId": "file", "selectedOptionIds": ["notes.txt", "other.txt"]}]}, "takes one option"),
        ({"plan": "accept"}, "send `answers` to its questions"),
    ]
    for body, reason in refused:
        wrong = client.post(path, json=body)
        assert wrong.status_code == 400
        assert reason in wrong.json()["error"]["message"]
    answers = [{"questionId": "file", "selectedOptionIds": ["other.txt"]}]
    answered = client.post(path, json={"answers": answers}).json()
    assert (answered["id"], answered["status"]) == (asked["id"], "completed")
    form = next(document for document in answered["documents"] if document["id"] == waiting["documentId"])
    assert form["metadata"]["answers"][0]["selectedOptionIds"] == ["other.txt"]


def answerable(*steps: Json, **more: object) -> Json:
    """A request of somebody who can answer."""
    return {"message": program(*steps), "mayAsk": True, **more}


@pytest.mark.parametrize("source", SOURCES)
def test_the_agent_asks_with_the_gateways_own_tool(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str
) -> None:
    """Several questions at once: one with options, one with several choices, one that is free."""
    _, client = clients[source]
    questions = [
        {"question": "Which database?", "options": ["SQLite", "PostgreSQL"]},
        {"question": "Which tables?", "options": ["users", "orders", "items"], "multiple": True},
        {"question": "Why?"},
    ]
    steps = [say("Before. "), {"call": "ask_user", "args": {"questions": questions}}, say("So: $1")]
    asked = client.post("/v1/chat", json=answerable(*steps)).json()
    assert asked["status"] == "streaming", asked
    (waiting,) = asked["metadata"]["waitingFor"]
    before, form = asked["documents"]  # and no document of the tool call itself
    assert (before["content"], form["id"]) == ("Before. ", waiting["documentId"])
    assert (form["type"], form["metadata"]["state"]) == ("clarification", "waiting")
    first, second, third = form["metadata"]["questions"]
    assert (bool(first.get("allowMultiple")), second["allowMultiple"]) == (False, True)
    answers = [{"questionId": first["id"], "selectedOptionIds": ["2"]}]
    answers.append({"questionId": second["id"], "selectedOptionIds": ["1", "3"]})
    answers.append({"questionId": third["id"], "selectedOptionIds": [], "text": "It is there."})
    answered = client.post(f"/v1/chat/{asked['id']}/answer", json={"answers": answers}).json()
    assert (answered["id"], answered["status"]) == (asked["id"], "completed")
    assert [document["type"] for document in answered["documents"]] == ["text", "clarification", "text"]
    said = "Which database?\n- PostgreSQL\n\nWhich tables?\n- users\n- items\n\nWhy?\n- It is there."
    assert answered["documents"][-1]["content"] == f"So: {said}"
    # In the same session of the agent, the next run can ask again.
    again = answerable(*steps[1:], conversationId=answered["conversationId"])
    assert client.post("/v1/chat", json=again).json()["metadata"]["waitingFor"]


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_that_is_cancelled_while_it_asks(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str
) -> None:
    _, client = clients[source]
    body = answerable({"call": "ask_user", "args": {"question": "Why?"}}, say("On."))
    asked = client.post("/v1/chat", json=body).json()
    assert asked["metadata"]["waitingFor"]
    client.post(f"/v1/chat/{asked['id']}/cancel")
    ended = client.get(f"/v1/chat/{asked['id']}").json()
    form, error = ended["documents"]
    assert (ended["status"], error["metadata"]["errorCode"]) == ("error", "CANCELLED")
    assert (form["type"], form["metadata"]["state"]) == ("clarification", "interrupted")


@pytest.mark.parametrize(
    ("source", "says"), [("acp", False), ("cli", False), ("cli", None), ("sdk", False), ("sdk", None)]
)
def test_a_caller_that_cannot_be_asked_has_no_tool_for_questions(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str, says: bool | None
) -> None:
    """Nor has one that does not say whether it can, except over ACP."""
    _, client = clients[source]
    body = answerable({"call": "ask_user", "args": {"question": "Why?"}})
    if says is None:
        del body["mayAsk"]
    else:
        body["mayAsk"] = says
    result = client.post("/v1/chat", json=body).json()
    assert result["status"] == "completed"
    assert "no tool ask_user" in result["documents"][-1]["content"]


@pytest.mark.parametrize("source", ["cli", "sdk"])
def test_a_request_for_an_interactive_agent_can_be_asked(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], source: str
) -> None:
    """As the page sends it."""
    _, client = clients[source]
    body = {"message": program({"call": "ask_user", "args": {"question": "Why?"}}), "source": "interactive"}
    assert client.post("/v1/chat", json=body).json()["metadata"]["waitingFor"]


@pytest.mark.parametrize("mode", ["plan", "ask"])
def test_modes_in_which_the_cli_refuses_mcp_tools(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]], mode: str
) -> None:
    """There the tool is not even offered."""
    _, client = clients["cli"]
    body = answerable({"call": "ask_user", "args": {"question": "Why?"}}, mode=mode)
    result = client.post("/v1/chat", json=body).json()
    assert result["status"] == "completed"
    assert "no tool ask_user" in result["documents"][-1]["content"]


def test_a_decision_is_taken_once_and_is_a_yes_or_a_no(
    clients: dict[str, tuple[RunningGateway, httpx2.Client]],
) -> None:
    _, client = clients["acp"]
    asked = client.post("/v1/chat", json={"message": "standin: plan", "mode": "plan"}).json()
    path = f"/v1/chat/{asked['id']}/answer"
    refused = client.post(path, json={"plan": "accept", "text": "but with Postgres"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "text")
    first, again = (client.post(path, json={"plan": "accept"}).json() for _ in range(2))
    assert first == again
    assert first["id"] == asked["id"]


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    """A gateway whose agents ask before they run a command."""
    with ended_agents(tmp_path_factory.mktemp("asking")) as home:
        settings = {"source": "acp", "permissions": "ask"}
        with running_gateway(home, settings=settings) as gateway, http_client(gateway) as client:
            yield gateway, client


def leave_of(result: Json) -> list[tuple[str, str]]:
    """The questions that are open, with their texts."""
    waiting = {one["documentId"] for one in result["metadata"].get("waitingFor", [])}
    forms = [document for document in result["documents"] if document["id"] in waiting]
    return [(one["id"], one["text"]) for form in forms for one in form["metadata"]["questions"]]


def test_permission_is_given_for_one_command_alone(asking: tuple[RunningGateway, httpx2.Client]) -> None:
    gateway, client = asking
    one, two = gateway.workspace / "one", gateway.workspace / "two"
    steps = [{"native": "shell", "args": {"command": f"touch {file}"}} for file in (one, two)]
    result = client.post("/v1/chat", json={"message": program(*steps, say("end"))}).json()
    ((id, text),) = leave_of(result)
    assert "touch" in text
    body = {"answers": [{"questionId": id, "selectedOptionIds": ["once"]}]}
    second = client.post(f"/v1/chat/{result['id']}/answer", json=body).json()
    assert (one.exists(), two.exists()) == (True, False)
    # The same answer once more, as a retry sends it, is not the answer to what is asked now.
    refused = client.post(f"/v1/chat/{result['id']}/answer", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "answers[0].questionId")
    assert leave_of(second)[0][0] in refused.json()["error"]["message"]
    assert not two.exists()
    ((other, _),) = leave_of(second)
    deny = {"answers": [{"questionId": other, "selectedOptionIds": ["deny"]}]}
    assert client.post(f"/v1/chat/{result['id']}/answer", json=deny).json()["status"] == "completed"
    assert not two.exists()


def test_openai_clients_are_not_asked(clients: dict[str, tuple[RunningGateway, httpx2.Client]]) -> None:
    reply = clients["acp"][1].post("/v1/chat/completions", json=question("standin: question"))
    assert reply.json()["choices"][0]["finish_reason"] == "stop"


# --- choice and fallback ------------------------------------------------------------------------------------


def test_a_request_chooses_its_source(clients: dict[str, tuple[RunningGateway, httpx2.Client]]) -> None:
    gateway, client = clients["acp"]
    assert client.get("/health").json()["sources"] == ["cli", "acp"]
    mark = unique()
    chat(client, f"{mark} standin: empty", source="cli")
    assert len(invocations(gateway, mark)) == 1  # a process of its own
    chosen = client.post(
        "/v1/chat/completions", json=question(f"{mark} standin: empty"), headers={"x-cursor-source": "cli"}
    )
    assert (chosen.status_code, chosen.headers["x-cursor-gateway-source"]) == (200, "cli")
    usual = client.post("/v1/chat/completions", json=question("standin: empty"))
    assert (usual.status_code, usual.headers["x-cursor-gateway-source"]) == (200, "acp")
    eventually(lambda: client.get("/v1/runs").json()["runs"][0]["state"] != "streaming")
    past = client.get(f"/v1/chat/{usual.headers['x-chat-id']}/events")
    assert past.headers["x-cursor-gateway-source"] == "history"
    assert len(invocations(gateway, mark)) == 2
    for wrong in ("sdk", "nonsense"):
        refused = client.post("/v1/chat", json={"message": "x", "source": wrong})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "source")


def test_a_persons_request_goes_to_an_agent_that_waits(tmp_path: Path) -> None:
    with ended_agents(tmp_path), running_gateway(tmp_path) as gateway, http_client(gateway) as client:
        asked = {"message": "standin: text", "source": "interactive"}
        person = client.post("/v1/chat", json=asked)
        assert person.headers["x-cursor-gateway-source"] == "acp"
        assert "x-cursor-gateway-fallback" not in person.headers
        waits = client.post("/v1/chat", json={"message": "standin: text", "mayAsk": True})
        assert waits.headers["x-cursor-gateway-source"] == "acp"  # whoever can be asked has an agent that asks
        chosen = client.post("/v1/chat", json={"message": "standin: text", "mayAsk": True, "source": "cli"})
        assert chosen.headers["x-cursor-gateway-source"] == "cli"
        again = client.post("/v1/chat", json={**asked, "conversationId": person.json()["conversationId"]})
        assert again.headers["x-cursor-gateway-source"] == "acp"
        unasked = client.post("/v1/chat", json={"message": "standin: text", "mayAsk": False})
        assert unasked.headers["x-cursor-gateway-source"] == "cli"
        usual = client.post("/v1/chat", json={"message": "standin: text"})
        assert usual.headers["x-cursor-gateway-source"] == "cli"
        known = client.post("/v1/chat", json={**asked, "conversationId": usual.json()["conversationId"]})
        assert known.headers["x-cursor-gateway-source"] == "cli"  # which knows the conversation


@pytest.mark.parametrize("knobs", [{"acp_missing": True}, {"version": "2026.01.28-fd13201"}])
def test_without_one_the_cli_answers_and_its_metadata_says_so(tmp_path: Path, knobs: dict[str, object]) -> None:
    with ended_agents(tmp_path), running_gateway(tmp_path, knobs=knobs) as gateway, http_client(gateway) as client:
        person = client.post("/v1/chat", json={"message": "standin: text", "source": "interactive"})
        assert person.json()["status"] == "completed"
        assert person.headers["x-cursor-gateway-fallback"] == "cli"
        assert person.json()["metadata"]["fallback"] == "cli"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", ["cli", "acp"])
def test_what_the_operator_chooses_holds_for_people_too(tmp_path: Path, source: str) -> None:
    with (
        ended_agents(tmp_path),
        running_gateway(tmp_path, settings={"source": source}) as gateway,
        http_client(gateway) as client,
    ):
        person = client.post("/v1/chat", json={"message": "standin: text", "source": "interactive"})
        assert person.headers["x-cursor-gateway-source"] == source


def test_a_source_that_fails_before_its_first_event_is_replaced_once(tmp_path: Path) -> None:
    broken = {"source": "sdk", "sdk_bridge": "/bin/false"}
    with (
        ended_agents(tmp_path),
        running_gateway(tmp_path, settings=broken, environment={"CURSOR_API_KEY": "key"}) as gateway,
        http_client(gateway) as client,
    ):
        mark = unique()
        for stream in (False, True):
            reply = client.post(
                "/v1/chat", json={"message": f"{mark} standin: say size=9\n---\nAll the same.", "stream": stream}
            )
            assert reply.status_code == 200
            assert "All the " in reply.text
            assert reply.headers["x-cursor-gateway-fallback"] == "cli"
            assert reply.headers["x-cursor-gateway-source"] == "cli"
        late = client.post(
            "/v1/chat/completions",
            json=question(standin("say", '{"a": 1}'), stream=True, response_format={"type": "json_object"}),
        )
        assert (late.status_code, late.headers["x-cursor-gateway-source"]) == (200, "cli")
        assert len(invocations(gateway, mark)) == 2
        caller = Caller(client, f"{mark} {program(call('weather', city='A'), say('It is $1.'))}", [WEATHER])
        caller.give((only_call(caller.ask())["id"], "sunny"))
        assert caller.ask()["content"] == "It is sunny."  # with tools, too
        assert "server `caller`" in invocations(gateway, mark)[-1]["prompt"]
        groups = [one["pgid"] for one in invocations(gateway, mark)]
        eventually(lambda: not any(members(group) for group in groups))
        eventually(lambda: "cursor_gateway_fallbacks_total 4.0" in client.get("/metrics").text)
        eventually(lambda: '"fallback": "cli"' in gateway.log.read_text())
