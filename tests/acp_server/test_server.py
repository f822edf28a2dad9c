"""`cursor-gateway acp` over standard input and output, with the official ACP client and the stand-in agent.

`editor` checks every message against the official schema.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest

from cursor_gateway.sources.processes import members
from tests.acp_server.editor import Answer, Asked, Editor, RequestError, Update, acp_editor, allow, folded
from tests.cli.processes import TIMEOUT, read_until
from tests.gateways import RunningGateway, running_gateway
from tests.mcp_server.host import environment_alone, environment_of, prompted_agents
from tests.preloaded import start
from tests.server.conftest import eventually, http_client, invocation, invocations, standin, unique

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="module")
def shared(gateway: RunningGateway) -> Iterator[Editor]:
    with acp_editor(gateway.workspace, environment_of(gateway)) as editor:
        yield editor


@pytest.fixture
def editor(shared: Editor) -> Editor:
    shared.decide = allow("once")
    shared.updates.clear()
    shared.asked.clear()
    return shared


@pytest.fixture
def session(editor: Editor, gateway: RunningGateway) -> str:
    return editor.new(gateway.workspace)


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


def last_run(editor: Editor, session: str) -> str:
    return str(editor.of(session, "agent_message_chunk")[-1]["messageId"])


def error(editor: Editor, method: str, **params: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as raised:
        editor.request(method, **params)
    return raised.value.code, str(raised.value)


# --- a prompt ----------------------------------------------------------------------------------------


def test_it_says_what_it_can_do(editor: Editor) -> None:
    assert editor.initialized["protocolVersion"] == 1
    can = editor.initialized["agentCapabilities"]
    assert can["loadSession"]
    assert set(can["sessionCapabilities"]) == {"list", "resume", "close", "delete"}
    assert editor.initialized["agentInfo"]["name"] == "cursor-gateway"


def test_a_prompt_is_streamed_as_text_and_tool_calls(editor: Editor, session: str, http: httpx2.Client) -> None:
    result = editor.prompt(session, "standin: tools")
    assert result["stopReason"] == "end_turn"
    run = http.get(f"/v1/chat/{last_run(editor, session)}").json()
    assert result["usage"]["totalTokens"] == run["usage"]["totalTokens"]
    texts = [one["content"] for one in run["documents"] if one["type"] == "text"]
    assert editor.text(session) == "\n\n".join(texts)
    calls = list(editor.calls(session).values())
    assert [(call["kind"], call["status"]) for call in calls] == [
        ("read", "completed"),
        ("search", "completed"),
        ("search", "completed"),
        ("read", "completed"),
        ("edit", "completed"),
        ("edit", "completed"),
        ("delete", "completed"),
        ("execute", "completed"),
        ("execute", "failed"),
        ("other", "completed"),
    ]
    edit = calls[4]
    assert edit["title"] == "Edit src/price.py"
    assert edit["content"][0]["oldText"] == "    return 1"
    assert edit["content"][0]["newText"] == "    return 2"
    assert edit["locations"][0]["line"] == 2
    assert editor.of(session, "plan")[-1]["entries"][0] == {
        "content": "Change the price",
        "status": "completed",
        "priority": "medium",
    }


def test_a_session_has_a_title_when_its_conversation_has_one(editor: Editor, session: str) -> None:
    editor.prompt(session, f"{unique()} Hello there.")
    assert editor.of(session, "session_info_update")[-1]["title"]


def test_files_and_images_come_with_the_prompt(editor: Editor, gateway: RunningGateway, session: str) -> None:
    mark = unique()
    link = {"type": "resource_link", "uri": f"{gateway.workspace.as_uri()}/notes.txt", "name": "notes.txt"}
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    editor.prompt(session, f"{mark} What is in ", link, image)
    assert f"{mark} What is in @notes.txt" in invocation(gateway, mark)["prompt"]


def test_a_prompt_without_text_is_refused(editor: Editor, session: str) -> None:
    code, message = error(editor, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": " "}])
    assert (code, message) == (-32602, "The prompt has no text; write what the agent should do.")


def test_two_sessions_work_at_once(editor: Editor, gateway: RunningGateway) -> None:
    one, two = editor.new(gateway.workspace), editor.new(gateway.workspace)
    gates = [gateway.workspace / unique(), gateway.workspace / unique()]
    first = editor.prompting(one, f"standin: wait-for file={gates[0]}")
    second = editor.prompting(two, f"standin: wait-for file={gates[1]}")
    eventually(lambda: editor.of(one) and editor.of(two))
    gates[1].touch()
    assert second.result(TIMEOUT)["stopReason"] == "end_turn"
    assert not first.done()
    busy = error(editor, "session/prompt", sessionId=one, prompt=[{"type": "text", "text": "And?"}])
    assert busy[1] == "The agent is still working in this session; cancel that first, or wait."
    gates[0].touch()
    assert first.result(TIMEOUT)["stopReason"] == "end_turn"


# --- what the agent asks -----------------------------------------------------------------------------


def test_a_command_is_denied(editor: Editor, session: str) -> None:
    editor.decide = allow("deny")
    editor.prompt(session, 'standin: shell command="expr 1 + 1"')
    assert [call["status"] for call in editor.calls(session).values()] == ["failed"]


def test_what_is_always_allowed_is_not_asked_again(editor: Editor, session: str, http: httpx2.Client) -> None:
    editor.decide = allow("conversation")
    editor.prompt(session, 'standin: shell command="expr 1 + 1"')
    editor.prompt(session, 'standin: shell command="expr 2 + 2"')
    assert len(editor.asked) == 1
    assert "4\n" in [call["rawOutput"]["stdout"] for call in editor.calls(session).values() if "rawOutput" in call]
    rules = [one["rules"] for one in http.get("/v1/permissions").json()["permissions"]]
    assert ["Shell(expr)"] in rules


def test_a_question_is_a_form(editor: Editor, session: str) -> None:
    editor.decide = lambda asked: {"action": "accept", "content": {"file": "notes.txt"}}
    editor.prompt(session, "standin: question")
    (method, params) = editor.asked[0]
    assert (method, params["message"]) == ("elicitation/create", "Which file is meant?")
    assert editor.text(session).endswith("You chose notes.txt.")


def test_without_forms_a_question_is_answered_by_an_option(gateway: RunningGateway) -> None:
    with acp_editor(gateway.workspace, environment_of(gateway), forms=False) as editor:
        editor.decide = allow("1")
        session = editor.new(gateway.workspace)
        editor.prompt(session, "standin: question")
        assert editor.text(session).endswith("You chose other.txt.")


@pytest.mark.parametrize(("option", "status"), [("accept", "completed"), ("reject", "failed")])
def test_a_plan_is_accepted_or_rejected(editor: Editor, session: str, option: str, status: str) -> None:
    editor.decide = allow(option)
    editor.request("session/set_mode", sessionId=session, modeId="plan")
    editor.prompt(session, "standin: plan")
    (call,) = editor.calls(session).values()
    assert (call["title"], call["status"]) == ("Plan: Move to Postgres", status)
    assert editor.asked[0][1]["toolCall"]["content"][0]["content"]["text"].startswith("# Move to Postgres")
    assert [entry["content"] for entry in editor.of(session, "plan")[0]["entries"]] == [
        "Dump the data",
        "Load the data",
    ]


def test_an_answer_from_elsewhere_withdraws_the_question(editor: Editor, session: str, http: httpx2.Client) -> None:
    asked, may_answer = Event(), Event()

    def decide(asking: Asked) -> Answer:
        asked.set()
        may_answer.wait(TIMEOUT)
        return {"outcome": {"outcome": "cancelled"}}

    editor.decide = decide
    prompting = editor.prompting(session, 'standin: shell command="expr 3 + 4"')
    assert asked.wait(TIMEOUT)
    run, _, document = editor.asked[0][1]["toolCall"]["toolCallId"].partition("/")
    answer = {"permissions": [{"documentId": document, "decision": "once"}]}
    assert http.post(f"/v1/chat/{run}/answer", json=answer).status_code == 200
    assert prompting.result(TIMEOUT)["stopReason"] == "end_turn"
    may_answer.set()
    assert eventually(lambda: [method for method, _ in editor.asked]) == [
        "session/request_permission",
        "$/cancel_request",
    ]


# --- the end -----------------------------------------------------------------------------------------


def test_a_cancelled_prompt_stops_its_run(editor: Editor, session: str, http: httpx2.Client) -> None:
    prompting = editor.prompting(session, "standin: hang-mid")
    eventually(lambda: editor.of(session, "agent_message_chunk"))
    editor.cancel(session)
    assert prompting.result(TIMEOUT)["stopReason"] == "cancelled"
    run = http.get(f"/v1/chat/{last_run(editor, session)}").json()
    assert (run["status"], run["documents"][-1]["metadata"]["errorCode"]) == ("error", "CANCELLED")
    assert editor.prompt(session, "Hello again.")["stopReason"] == "end_turn"


def test_a_prompt_that_is_withdrawn_stops_its_run(editor: Editor, session: str, http: httpx2.Client) -> None:
    prompting = editor.prompting(session, "standin: hang-mid")
    eventually(lambda: editor.of(session, "agent_message_chunk"))
    editor.notify("$/cancel_request", requestId="unknown")
    editor.notify("$/cancel_request")
    editor.withdraw("session/prompt")
    with pytest.raises(RequestError) as error:
        prompting.result(TIMEOUT)
    assert error.value.code == -32800
    run = http.get(f"/v1/chat/{last_run(editor, session)}").json()
    assert (run["status"], run["documents"][-1]["metadata"]["errorCode"]) == ("error", "CANCELLED")
    assert editor.prompt(session, "Hello again.")["stopReason"] == "end_turn"


def test_a_prompt_is_cancelled_while_the_user_is_asked(editor: Editor, session: str, http: httpx2.Client) -> None:
    asked, may_answer = Event(), Event()

    def decide(asking: Asked) -> Answer:
        asked.set()
        may_answer.wait(TIMEOUT)
        return {"outcome": {"outcome": "cancelled"}}

    editor.decide = decide
    prompting = editor.prompting(session, 'standin: shell command="expr 5 + 5"')
    assert asked.wait(TIMEOUT)
    editor.cancel(session)
    assert prompting.result(TIMEOUT)["stopReason"] == "cancelled"
    may_answer.set()
    assert http.get(f"/v1/chat/{last_run(editor, session)}").json()["status"] == "error"


def test_a_run_that_is_stopped_elsewhere_is_cancelled(editor: Editor, session: str, http: httpx2.Client) -> None:
    prompting = editor.prompting(session, "standin: hang-mid")
    eventually(lambda: editor.of(session, "agent_message_chunk"))
    http.post(f"/v1/chat/{last_run(editor, session)}/cancel", json={})
    assert prompting.result(TIMEOUT)["stopReason"] == "cancelled"


@pytest.mark.parametrize(("scenario", "words"), [("fail-auth", "cursor-agent login"), ("crash", "The agent")])
def test_a_failure_says_what_to_do(editor: Editor, session: str, scenario: str, words: str) -> None:
    prompt = [{"type": "text", "text": f"standin: {scenario}"}]
    code, message = error(editor, "session/prompt", sessionId=session, prompt=prompt)
    assert code == -32603
    assert words in message


# --- sessions ----------------------------------------------------------------------------------------


def shape(updates: list[Update]) -> Any:
    """What an editor shows in the end: texts joined, tool calls as they ended."""
    texts = [
        (update["sessionUpdate"], update["messageId"], update["content"]["text"])
        for update in updates
        if update["sessionUpdate"].endswith("_chunk") and update["sessionUpdate"] != "user_message_chunk"
    ]
    joined: dict[Any, str] = {}
    for kind, id, text in texts:
        joined[kind, id] = joined.get((kind, id), "") + text
    plans = [update["entries"] for update in updates if update["sessionUpdate"] == "plan"]
    return joined, folded(updates), plans[-1:]


def test_a_session_that_is_loaded_looks_as_it_did(gateway: RunningGateway) -> None:
    prompts = [
        standin(
            "program", '[{"think": "Hm."}, {"say": "One."}, {"native": "shell", "args": {"command": "expr 1 + 1"}}]'
        ),
        "standin: tools",
        "standin: plan",
        "standin: question",
    ]
    with acp_editor(gateway.workspace, environment_of(gateway)) as first:
        first.decide = lambda asked: (
            {"action": "accept", "content": {"file": "notes.txt"}}
            if "message" in asked
            else {"outcome": {"outcome": "selected", "optionId": asked["options"][0]["optionId"]}}
        )
        session = first.new(gateway.workspace)
        for prompt in prompts:
            first.prompt(session, prompt)
    with acp_editor(gateway.workspace, environment_of(gateway)) as second:
        loaded = second.request("session/load", sessionId=session, cwd=str(gateway.workspace), mcpServers=[])
        assert loaded["modes"]["currentModeId"] == "agent"
        assert [update["content"]["text"] for update in second.of(session, "user_message_chunk")] == prompts
        assert shape(second.of(session)) == shape(first.of(session))
        assert second.prompt(session, "And now?")["stopReason"] == "end_turn"
        assert not second.asked


def test_a_session_in_which_nothing_was_sent_is_loaded(gateway: RunningGateway) -> None:
    with acp_editor(gateway.workspace, environment_of(gateway)) as first:
        session = first.new(gateway.workspace)
    with acp_editor(gateway.workspace, environment_of(gateway)) as second:
        for method in ("session/load", "session/resume"):
            second.request(method, sessionId=session, cwd=str(gateway.workspace), mcpServers=[])
        assert second.updates == []
        assert second.prompt(session, "Hello.")["stopReason"] == "end_turn"


def test_sessions_are_listed_by_folder_and_page(editor: Editor, gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    session = editor.new(gateway.workspace)
    editor.prompt(session, f"{mark} Hello.")
    other = http.post("/v1/chat", json={"message": f"{mark} From elsewhere."}).json()["conversationId"]
    listed = editor.request("session/list", cwd=str(gateway.workspace))["sessions"]
    assert [one["sessionId"] for one in listed[:2]] == [other, session]
    assert {one["cwd"] for one in listed} == {str(gateway.workspace)}
    assert editor.request("session/list", cwd="/nowhere")["sessions"] == []
    assert editor.request("session/list")["sessions"][:2] == listed[:2]
    for _ in range(51):
        http.post("/v1/chat", json={"message": "More."})
    first = editor.request("session/list")
    assert len(first["sessions"]) == 50
    second = editor.request("session/list", cursor=first["nextCursor"])["sessions"]
    assert not {one["sessionId"] for one in second} & {one["sessionId"] for one in first["sessions"]}
    assert session in [one["sessionId"] for one in second]
    for cursor in ("next", "-1", "\u0665"):
        assert error(editor, "session/list", cursor=cursor)[0] == -32602


def test_a_conversation_of_the_page_is_resumed_without_its_messages(
    editor: Editor, gateway: RunningGateway, http: httpx2.Client
) -> None:
    begun = http.post("/v1/chat", json={"message": "From the page.", "mode": "ask"}).json()["conversationId"]
    resumed = editor.request("session/resume", sessionId=begun, cwd=str(gateway.workspace))
    assert resumed["modes"]["currentModeId"] == "ask"
    assert editor.of(begun) == []
    editor.prompt(begun, "Go on.")
    assert len(http.get(f"/v1/conversations/{begun}").json()["runs"]) == 2


def test_an_active_run_of_somebody_else_is_watched_and_answered(
    editor: Editor, gateway: RunningGateway, http: httpx2.Client
) -> None:
    editor.decide = allow("deny")
    asked = http.post("/v1/chat", json={"message": 'standin: shell command="expr 6 + 6"', "mayAsk": True}).json()
    assert asked["status"] == "streaming"
    session = asked["conversationId"]
    editor.decide = allow("once")
    editor.request("session/load", sessionId=session, cwd=str(gateway.workspace), mcpServers=[])
    eventually(lambda: http.get(f"/v1/chat/{asked['id']}").json()["status"] == "completed")
    eventually(lambda: "12" in editor.text(session))
    assert editor.prompt(session, "And now?")["stopReason"] == "end_turn"


def test_leaving_does_not_stop_a_run_of_somebody_else(gateway: RunningGateway, http: httpx2.Client) -> None:
    gate = gateway.workspace / unique()
    begun = http.post(
        "/v1/chat", json={"message": f"standin: wait-for file={gate}"}, headers={"prefer": "respond-async"}
    ).json()
    session = begun["conversationId"]
    with acp_editor(gateway.workspace, environment_of(gateway)) as editor:
        editor.request("session/load", sessionId=session, cwd=str(gateway.workspace), mcpServers=[])
        busy = error(editor, "session/load", sessionId=session, cwd=str(gateway.workspace), mcpServers=[])
        assert busy[1].startswith("This session is busy")
    gate.touch()
    assert eventually(lambda: http.get(f"/v1/chat/{begun['id']}").json()["status"] == "completed")


def test_neither_closing_nor_answering_ties_a_run_of_somebody_else_to_the_editor(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    gate = gateway.workspace / unique()
    program = [
        {"native": "shell", "args": {"command": "expr 8 + 8"}},
        {"native": "shell", "args": {"command": f"until test -e {gate}; do sleep 0.1; done"}},
    ]
    asked = http.post("/v1/chat", json={"message": standin("program", json.dumps(program)), "mayAsk": True}).json()
    session = asked["conversationId"]
    with acp_editor(gateway.workspace, environment_of(gateway)) as editor:
        editor.request("session/load", sessionId=session, cwd=str(gateway.workspace), mcpServers=[])
        eventually(lambda: len(editor.asked) == 2)
        eventually(lambda: "waitingFor" not in http.get(f"/v1/chat/{asked['id']}").json()["metadata"])  # both allowed
        editor.request("session/close", sessionId=session)
    gate.touch()
    assert eventually(lambda: http.get(f"/v1/chat/{asked['id']}").json()["status"] != "streaming")
    assert http.get(f"/v1/chat/{asked['id']}").json()["status"] == "completed"


def test_a_session_is_closed_and_deleted(editor: Editor, session: str, http: httpx2.Client) -> None:
    editor.prompt(session, "Hello.")
    run = http.get(f"/v1/chat/{last_run(editor, session)}").json()
    editor.request("session/close", sessionId=session)
    assert error(editor, "session/prompt", sessionId=session, prompt=[])[0] == -32002
    editor.request("session/delete", sessionId=session)
    editor.request("session/delete", sessionId=session)  # again
    assert http.get(f"/v1/conversations/{run['conversationId']}").status_code == 404


def test_closing_a_session_stops_its_run(editor: Editor, session: str, http: httpx2.Client) -> None:
    prompting = editor.prompting(session, "standin: hang-mid")
    eventually(lambda: editor.of(session, "agent_message_chunk"))
    editor.request("session/close", sessionId=session)
    assert prompting.result(TIMEOUT)["stopReason"] == "cancelled"


def test_an_unknown_session_and_a_wrong_folder_are_refused(
    editor: Editor, gateway: RunningGateway, session: str
) -> None:
    editor.prompt(session, "Hello.")
    below = gateway.workspace / "below"
    below.mkdir()
    folder = str(gateway.workspace)
    assert error(editor, "session/load", sessionId="acp_0", cwd=folder, mcpServers=[])[0] == -32002
    assert error(editor, "session/load", sessionId="conv_0", cwd=folder, mcpServers=[])[0] == -32002
    code, message = error(editor, "session/load", sessionId=session, cwd=str(below), mcpServers=[])
    assert (code, message) == (-32602, f"This session works in {folder}; open that folder to continue it.")
    assert "absolute" in error(editor, "session/new", cwd="work", mcpServers=[])[1]
    assert "does not exist" in error(editor, "session/new", cwd="/no/such/folder", mcpServers=[])[1]


# --- modes, models and servers -----------------------------------------------------------------------


def test_the_mode_is_changed_in_both_ways(editor: Editor, gateway: RunningGateway) -> None:
    created = editor.request("session/new", cwd=str(gateway.workspace), mcpServers=[])
    session = created["sessionId"]
    assert [mode["id"] for mode in created["modes"]["availableModes"]] == ["agent", "plan", "ask", "debug"]
    assert editor.request("session/set_mode", sessionId=session, modeId="ask") == {}
    assert editor.of(session, "config_option_update")[-1]["configOptions"][0]["currentValue"] == "ask"
    changed = editor.request("session/set_config_option", sessionId=session, configId="mode", value="plan")
    assert changed["configOptions"][0]["currentValue"] == "plan"
    assert editor.of(session, "current_mode_update")[-1]["currentModeId"] == "plan"
    code, message = error(editor, "session/set_mode", sessionId=session, modeId="fast")
    assert (code, message) == (-32602, "There is no mode 'fast'; use one of agent, plan, ask, debug.")


def test_the_model_is_changed(editor: Editor, gateway: RunningGateway, http: httpx2.Client) -> None:
    created = editor.request("session/new", cwd=str(gateway.workspace), mcpServers=[])
    session, option = created["sessionId"], created["configOptions"][1]
    assert (option["id"], option["category"]) == ("model", "model")
    other = next(one["value"] for one in option["options"] if one["value"] != option["currentValue"])
    changed = editor.request("session/set_config_option", sessionId=session, configId="model", value=other)
    assert changed["configOptions"][1]["currentValue"] == other
    editor.prompt(session, "Hello.")
    assert http.get(f"/v1/chat/{last_run(editor, session)}").json()["model"] == other
    unknown = error(editor, "session/set_config_option", sessionId=session, configId="model", value="gpt-0")
    assert unknown == (-32602, "There is no model 'gpt-0'; see `cursor-gateway models`.")
    assert error(editor, "session/set_config_option", sessionId=session, configId="x", value="y")[0] == -32602


def test_it_says_that_the_editors_mcp_servers_are_not_used(
    gateway: RunningGateway, capfd: pytest.CaptureFixture[str]
) -> None:
    server = {"name": "files", "command": "/bin/files", "args": [], "env": []}
    with acp_editor(gateway.workspace, environment_of(gateway)) as editor:
        created = editor.request("session/new", cwd=str(gateway.workspace), mcpServers=[server])
        assert editor.prompt(created["sessionId"], "Hello.")["stopReason"] == "end_turn"
    assert "does not use the editor's MCP servers (files)" in capfd.readouterr().err


def test_what_it_does_not_know_is_an_error(editor: Editor, session: str) -> None:
    assert error(editor, "session/fork", sessionId=session)[0] == -32601
    assert error(editor, "session/new", cwd=7)[0] == -32602
    editor.notify("session/cancel", sessionId="unknown")
    editor.notify("session/cancel")
    editor.notify("no/such/thing")
    assert editor.prompt(session, "Hello.")["stopReason"] == "end_turn"


# --- the gateway -------------------------------------------------------------------------------------


def test_a_gateway_that_ends_ends_the_prompt_with_an_error(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        environment = environment_of(gateway)
        mark = unique()
        with acp_editor(gateway.workspace, environment) as editor:
            session = editor.new(gateway.workspace)
            prompting = editor.prompting(session, f"{mark} standin: hang-mid")
            eventually(lambda: editor.of(session, "agent_message_chunk"))
            gateway.process.kill()
            with pytest.raises(RequestError, match=r"was lost: .* shows whether the run is still active"):
                prompting.result(TIMEOUT)
        assert len(invocations(gateway, mark)) == 1


def test_a_gateway_that_is_not_there_is_an_error_of_the_request(gateway: RunningGateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with acp_editor(gateway.workspace, environment_of(gateway), "--url", url) as editor:
        assert f"{url} cannot be reached" in error(editor, "session/new", cwd=str(gateway.workspace), mcpServers=[])[1]


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "work").mkdir()
    (tmp_path / "other").mkdir()
    return environment_alone(tmp_path)


def test_it_starts_a_gateway_for_each_folder_that_ends_with_it(tmp_path: Path, alone: dict[str, str]) -> None:
    with acp_editor(tmp_path / "work", alone) as editor:
        session = editor.new(tmp_path / "work")
        editor.prompt(session, 'standin: shell command="expr 20 + 22"')  # is rejected, asked about, and tried again
        assert [method for method, _ in editor.asked] == ["session/request_permission"]
        outputs = [call.get("rawOutput", {}).get("stdout") for call in editor.calls(session).values()]
        assert outputs == ["", "42\n"]
        other = editor.new(tmp_path / "other")
        editor.prompt(other, "Hello.")
        assert [Path(one["workspace"]).name for one in prompted_agents(tmp_path)] == ["work", "work", "other"]
        assert len(editor.request("session/list")["sessions"]) == 2
        hanging = editor.prompting(other, "standin: hang-mid")
        groups = [started["pgid"] for started in eventually(lambda: prompted_agents(tmp_path)[3:])]
    assert not hanging.done() or hanging.exception() is not None
    assert not any(members(group) for group in groups)
    assert not list((tmp_path / "data" / "sockets").glob("*.sock"))


def test_a_plan_that_nobody_waited_for_is_carried_out(tmp_path: Path, alone: dict[str, str]) -> None:
    with acp_editor(tmp_path / "work", alone) as editor:
        editor.decide = allow("accept")
        session = editor.new(tmp_path / "work")
        editor.request("session/set_mode", sessionId=session, modeId="plan")
        editor.prompt(session, "standin: plan")
        assert len(editor.asked) == 1
        assert len(prompted_agents(tmp_path)) == 2
        assert editor.of(session, "current_mode_update")[-1]["currentModeId"] == "agent"


def test_what_is_left_undecided_stays_so(tmp_path: Path, alone: dict[str, str]) -> None:
    with acp_editor(tmp_path / "work", alone) as editor:
        editor.decide = allow("deny")
        session = editor.new(tmp_path / "work")
        editor.prompt(session, 'standin: shell command="expr 20 + 22"')
        assert len(prompted_agents(tmp_path)) == len(editor.asked) == 1
        assert [call["status"] for call in editor.calls(session).values()] == ["failed"]


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_a_signal_and_the_end_of_its_input_end_it_and_its_agents(
    tmp_path: Path, alone: dict[str, str], number: signal.Signals | None
) -> None:
    with start(["acp"], alone, tmp_path / "work", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin.fileno(), 1, "session/new", cwd=str(tmp_path / "work"), mcpServers=[])
            answer = read_until(process.stdout.fileno(), b"\n")
            session = json.loads(answer)["result"]["sessionId"]
            os.write(process.stdin.fileno(), b"this is no message\n\n")
            assert b"-32700" in read_until(process.stdout.fileno(), b"\n")
            prompt = [{"type": "text", "text": "standin: hang-mid"}]
            send(process.stdin.fileno(), 2, "session/prompt", sessionId=session, prompt=prompt)
            groups = [started["pgid"] for started in eventually(lambda: prompted_agents(tmp_path))]
            if number is None:
                process.stdin.close()
            else:
                process.send_signal(number)
            assert process.wait(TIMEOUT) == (0 if number is None else 128 + number)
            assert not any(members(group) for group in groups)
        finally:
            process.kill()


def test_when_it_is_killed_its_run_is_stopped(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark, folder = unique(), gateway.workspace
    environment = environment_of(gateway)
    with start(["acp"], environment, folder, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin.fileno(), 1, "session/new", cwd=str(folder), mcpServers=[])
        session = json.loads(read_until(process.stdout.fileno(), b"\n"))["result"]["sessionId"]
        prompt = [{"type": "text", "text": f"{mark} standin: hang-mid"}]
        send(process.stdin.fileno(), 2, "session/prompt", sessionId=session, prompt=prompt)
        read_until(process.stdout.fileno(), b"agent_message_chunk")
        process.kill()
    (found,) = http.get("/v1/conversations", params={"q": mark}).json()["conversations"]
    (run,) = http.get(f"/v1/conversations/{found['id']}").json()["runs"]
    assert eventually(lambda: http.get(f"/v1/chat/{run['id']}").json()["status"] == "error")


def test_an_editor_that_reads_no_more_ends_it(tmp_path: Path, alone: dict[str, str]) -> None:
    with start(["acp"], alone, tmp_path / "work", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.close()
            send(process.stdin.fileno(), 1, "initialize", protocolVersion=1)
            assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()


def send(descriptor: int, id: int, method: str, **params: Any) -> None:
    os.write(descriptor, json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n")
