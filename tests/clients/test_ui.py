"""Pages without a server of their own: the AI SDK's chat and AG-UI's client, whose own schemas check every chunk."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from cursor_gateway.dialects.ag_ui import AgUiReply
from cursor_gateway.dialects.ai_sdk import UiReply, ai_sdk_dialect
from cursor_gateway.dialects.base import ReplyStart, RunView
from cursor_gateway.errors import RunCancelled
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.requests import RunInfo
from tests.clients.programs import Drivers, Json, Project, call, program, say
from tests.clients.test_approvals import counter
from tests.gateways import RunningGateway, running_gateway
from tests.laws.laws import RUN, assemble, read, replies, text_of
from tests.laws.strategies import agent_events, examples
from tests.laws.test_captures import every_recording
from tests.server.conftest import http_client, invocations, standin, unique
from tests.server.test_approvals import counting, times

pytestmark = pytest.mark.xdist_group("ui")  # the drivers are loaded once
PROTOCOLS = {"ai-sdk": UiReply(), "ag-ui": AgUiReply()}
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Its agent can wait for a person."""
    with running_gateway(tmp_path_factory.mktemp("patient"), settings={"source": "acp"}) as gateway:
        yield gateway


# --- streams ------------------------------------------------------------------------------------------


def streams(events: list[DocumentEvent], protocol: str, run: RunInfo = RUN) -> list[str]:
    """One for each reply."""
    view, reply = RunView(run, 0, ""), PROTOCOLS[protocol]
    return [reply.stream(view, ReplyStart(one.after)).push_all(one.events).decode() for one in replies(events)]


def assert_understood(
    drivers: Drivers, project: Project, events: list[DocumentEvent], protocol: str, told: list[str]
) -> None:
    """By the client, whichever pieces the streams arrive in."""
    size = 1 if sum(map(len, told)) < 20_000 else 1_000
    question = json.dumps({"replies": told, "size": size})
    reply = drivers.ask("ui_replays.mjs", protocol, "http://unused", project, question)
    assert "answer" in reply, reply
    assert reply["answer"]["text"] == text_of(events)
    failure = events[-1].failure if isinstance(events[-1], Done) else None
    is_error = failure is not None and failure.code != RunCancelled.code  # who has cancelled it knows
    assert reply["answer"].get("error") == (failure.message if failure is not None and is_error else None)


@each_protocol
@every_recording
def test_the_client_understands_every_recording(drivers: Drivers, project: Project, path: Path, protocol: str) -> None:
    events = read(path.read_bytes())
    assert_understood(drivers, project, events, protocol, streams(events, protocol))


@each_protocol
@settings(examples(1000), suppress_health_check=list(HealthCheck))  # the folder may be the same for all
@given(events=agent_events)
def test_the_client_understands_any_run(
    drivers: Drivers, project: Project, protocol: str, events: list[AgentEvent]
) -> None:
    told = assemble(events)
    assert_understood(drivers, project, told, protocol, streams(told, protocol))


@settings(examples(1000), suppress_health_check=list(HealthCheck))
@given(events=agent_events)
def test_a_page_that_is_opened_again_understands_any_run(
    drivers: Drivers, project: Project, events: list[AgentEvent]
) -> None:
    """One stream has the whole message, through all pauses that were answered."""
    told, named = assemble(events), ai_sdk_dialect(50).named
    assert named is not None
    stream = named.open(RunView(RUN, 0, ""), replies(told)[-1].after).push_all(told)
    assert_understood(drivers, project, told, "ai-sdk", [stream.decode()])


@each_protocol
def test_the_client_refuses_a_chunk_of_the_wrong_shape(drivers: Drivers, project: Project, protocol: str) -> None:
    """So that the others prove something."""
    wrong = {"ai-sdk": {"type": "text-delta", "delta": "x"}, "ag-ui": {"type": "TEXT_MESSAGE_CONTENT", "delta": 1}}
    question = json.dumps({"replies": [f"data: {json.dumps(wrong[protocol])}\n\n"], "size": 100})
    reply = drivers.ask("ui_replays.mjs", protocol, "http://unused", project, question)
    assert "error" in reply or reply["answer"]["error"]


# --- chats --------------------------------------------------------------------------------------------


def act(
    drivers: Drivers, project: Project, gateway: RunningGateway, protocol: str, prompts: Sequence[str], **more: Any
) -> Json:
    """What a person does, and what is seen of it."""
    acts = json.dumps({"prompts": prompts, "id": f"chat-{unique()}", **more})
    reply = drivers.ask("ui_chats.mjs", protocol, gateway.url, project, acts)
    assert "answer" in reply, reply
    answer: Json = reply["answer"]
    return answer


def texts(answer: Json) -> list[str]:
    """What the agent said in each of its messages."""
    said = [one for one in answer["messages"] if one["role"] == "assistant"]
    return ["".join(part.get("text", "") for part in one.get("parts", ())) or one.get("content") or "" for one in said]


@each_protocol
def test_the_conversation_goes_on_in_one_session(
    gateway: RunningGateway, drivers: Drivers, project: Project, protocol: str
) -> None:
    mark = unique()
    answer = act(drivers, project, gateway, protocol, [f"{mark} one", f"{mark} two"])
    assert answer["errors"] == []
    assert [text.strip() for text in texts(answer)] == [f"You said: {mark} one", f"You said: {mark} two"]
    first, second = invocations(gateway, mark)
    assert first["session"] == second["session"]


@each_protocol
def test_what_the_agent_did_is_shown(
    gateway: RunningGateway, drivers: Drivers, project: Project, protocol: str
) -> None:
    answer = act(drivers, project, gateway, protocol, [f"{unique()} {standin('tools')}"])
    assert answer["errors"] == []
    shown = json.dumps(answer["messages"])
    assert "run_terminal_cmd" in shown
    assert "file_edit" in shown


@each_protocol
def test_a_tool_of_the_page_runs_there_and_the_same_agent_goes_on(
    gateway: RunningGateway, drivers: Drivers, project: Project, protocol: str
) -> None:
    mark, weather = unique(), f"weather-{unique()}"
    (project.folder / "weather.json").write_text(json.dumps({"Paris": weather}))
    prompt = program([say("I look. "), call("get_weather", city="Paris"), say("It is $1.")], mark)
    answer = act(drivers, project, gateway, protocol, [prompt], offers=True)
    assert answer["errors"] == []
    assert project.lines("calls.txt") == ["Paris"]
    assert re.search(rf"I look\. .*{weather}", "".join(texts(answer)))
    (_,) = invocations(gateway, mark)


@each_protocol
@pytest.mark.parametrize("approves", [True, False])
def test_a_person_at_the_page_decides_about_a_command(
    patient: RunningGateway, drivers: Drivers, project: Project, protocol: str, approves: bool
) -> None:
    mark = counter(patient)
    answer = act(drivers, project, patient, protocol, [counting(mark)], cursor={"mayAsk": True}, approves=approves)
    assert answer["errors"] == []
    assert times(patient, mark) == int(approves)
    (_,) = invocations(patient, mark)
    if protocol == "ai-sdk":
        (message,) = [one for one in answer["messages"] if one["role"] == "assistant"]
        (asked,) = [part for part in message["parts"] if part.get("toolName") == "request_permission"]
        assert asked["state"] == ("output-available" if approves else "output-denied")


@each_protocol
def test_a_person_at_the_page_answers_a_question(
    patient: RunningGateway, drivers: Drivers, project: Project, protocol: str
) -> None:
    mark = unique()
    answer = act(drivers, project, patient, protocol, [f"{mark} {standin('question')}"], cursor={"mayAsk": True})
    assert answer["errors"] == []
    assert re.search(r"You chose \w", texts(answer)[-1])
    (_,) = invocations(patient, mark)


@each_protocol
def test_the_same_message_again_joins_its_run(
    gateway: RunningGateway, drivers: Drivers, project: Project, protocol: str
) -> None:
    mark = unique()
    answer = act(drivers, project, gateway, protocol, [f"{mark} once"], again="repeat")
    (_,) = invocations(gateway, mark)
    if protocol == "ai-sdk":
        assert answer["repeated"] == answer["messages"][-1]["metadata"]["chatId"]


def test_another_answer_is_asked_of_another_agent(gateway: RunningGateway, drivers: Drivers, project: Project) -> None:
    mark = unique()
    answer = act(drivers, project, gateway, "ai-sdk", [f"{mark} one", f"{mark} two"], again="regenerate")
    first, second, third = invocations(gateway, mark)
    assert first["session"] == second["session"] != third["session"]
    assert f"{mark} one" in texts(answer)[1]  # it was told what was said before


@each_protocol
def test_an_error_is_shown_in_plain_words(
    gateway: RunningGateway, drivers: Drivers, project: Project, protocol: str
) -> None:
    prompts = [f"{unique()} {standin('fail-trust')}"]
    (error,) = act(drivers, project, gateway, protocol, prompts)["errors"]
    assert error.startswith("The agent does not trust this folder")


def test_a_page_that_is_opened_again_resumes_the_stream(
    gateway: RunningGateway, drivers: Drivers, project: Project
) -> None:
    mark = unique()
    prompt = f"{mark} {standin('text chunks=20 delay_ms=100')}"
    cursor = {"whenClientLeaves": "finish"}
    seen = act(drivers, project, gateway, "resumed", [prompt], cursor=cursor)
    assert seen["chatId"] == seen["before"]
    assert seen["none"] is None
    with http_client(gateway) as client:
        whole = client.get(f"/v1/chat/{seen['chatId']}", params={"dialect": "text"}).text
    assert seen["text"].strip() == whole.strip()
    (_,) = invocations(gateway, mark)
