"""Answers to an agent's questions and plans: the next turn of the conversation, where the agent does not wait."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from cursor_gateway.model.agent_events import Plan, Question
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationOption, ClarificationQuestion
from cursor_gateway.runs.machine import WaitLimits
from cursor_gateway.runs.run import Run, RunPlan
from tests.gateways import RunningGateway
from tests.runs.scripted import STARTED, ScriptedSource, UnstoredLog, driven_by, forever, info, turn
from tests.server.conftest import Json, chat, invocations, sse, unique

FILE = ClarificationQuestion(
    id="file",
    text="Which file?",
    options=[ClarificationOption(id="a", label="a"), ClarificationOption(id="b", label="b")],
)


def ask(http: httpx2.Client, mark: str, scenario: str = "question", **fields: Any) -> Json:
    return chat(http, f"{mark} standin: {scenario}", **fields)


def test_an_answer_is_the_next_turn(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    asked = ask(http, mark)
    body = {"answers": [{"questionId": "file", "selectedOptionIds": ["notes.txt"], "text": "the one in docs"}]}
    answered = http.post(f"/v1/chat/{asked['id']}/answer", json=body)
    assert answered.status_code == 200, answered.text
    result = answered.json()
    assert result["status"] == "completed"
    assert result["conversationId"] == asked["conversationId"]
    assert result["id"] != asked["id"]
    (first,) = invocations(gateway, mark)
    second = next(one for one in invocations(gateway, "the one in docs") if one["session"] == first["session"])
    assert second["prompt"] == "Which file is meant?\n- notes.txt\n- the one in docs"
    (before,) = (one["metadata"] for one in asked["documents"] if one["type"] == "clarification")
    assert (before["state"], "answers" in before) == ("unanswered", False)
    shown = http.get(f"/v1/chat/{asked['id']}").json()["documents"]
    (after,) = (one["metadata"] for one in shown if one["type"] == "clarification")
    assert after["answers"] == body["answers"]
    assert "state" not in after


def test_it_streams_and_goes_on_by_itself_as_a_message_does(http: httpx2.Client) -> None:
    body = {"answers": [{"questionId": "file", "selectedOptionIds": ["notes.txt"]}]}
    path = f"/v1/chat/{ask(http, unique())['id']}/answer"
    streamed = http.post(path, json={**body, "stream": True})
    assert sse(streamed.content)[-1].event == "done"
    later = http.post(f"/v1/chat/{ask(http, unique())['id']}/answer", json=body, headers={"prefer": "respond-async"})
    assert later.status_code == 202
    assert http.get(later.headers["location"]).json()["id"] == later.json()["id"]
    assert sse(http.get(f"/v1/chat/{later.json()['id']}/events").content)[-1].event == "done"


def test_an_accepted_plan_is_carried_out_in_the_mode_agent(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    planned = ask(http, mark, f"plan name={mark}", mode="plan")
    accepted = http.post(f"/v1/chat/{planned['id']}/answer", json={"plan": "accept", "text": "Quickly."}).json()
    assert accepted["mode"] == "agent"
    again = ask(http, mark, f"plan name={mark}2", mode="plan")
    rejected = http.post(f"/v1/chat/{again['id']}/answer", json={"plan": "reject"}).json()
    assert rejected["mode"] == "plan"
    prompts = [one["prompt"] for one in invocations(gateway, mark)]
    assert f"I accept the plan “{mark}”. Carry it out now.\n\nQuickly." in prompts
    assert f"I do not accept the plan “{mark}2”. Make another one." in prompts


@pytest.mark.parametrize(
    ("scenario", "body", "status", "param"),
    [
        ("question", {"answers": [{"questionId": "x", "text": "?"}]}, 400, "answers[0].questionId"),
        (
            "question",
            {"answers": [{"questionId": "file", "selectedOptionIds": ["x"]}]},
            400,
            "answers[0].selectedOptionIds",
        ),
        ("question", {"answers": []}, 400, "answers"),
        ("question", {"plan": "accept"}, 404, "plan"),
        ("question", {"plan": "perhaps"}, 400, "plan"),
        ("question", {"text": "hm"}, 400, "toolResults"),
        ("question", {"answers": [{"questionId": "file"}], "plan": "accept"}, 400, "toolResults"),
        ("question", {"answers": [{"questionId": "file"}], "text": "hm"}, 400, "text"),
        ("empty", {"answers": [{"questionId": "file", "text": "?"}]}, 404, "answers"),
    ],
)
def test_what_does_not_fit_is_refused(http: httpx2.Client, scenario: str, body: Json, status: int, param: str) -> None:
    refused = http.post(f"/v1/chat/{ask(http, unique(), scenario)['id']}/answer", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (status, param), refused.text


def test_a_run_that_goes_on_takes_no_answer(http: httpx2.Client) -> None:
    begun = http.post("/v1/chat", json={"message": "standin: hang-mid"}, headers={"prefer": "respond-async"}).json()
    refused = http.post(f"/v1/chat/{begun['id']}/answer", json={"plan": "accept"})
    assert refused.status_code == 409
    http.post(f"/v1/chat/{begun['id']}/cancel", json={})


def test_the_newest_runs(http: httpx2.Client) -> None:
    mark = unique()
    first = ask(http, f"{mark} one", "tools")
    second = ask(http, f"{mark} two", "empty")
    runs = http.get("/v1/runs?limit=100").json()["runs"]
    places = [run["id"] for run in runs]
    assert places.index(second["id"]) < places.index(first["id"])
    result = next(run for run in runs if run["id"] == first["id"])
    assert result["title"].startswith(mark)
    assert (result["state"], result["conversationId"]) == ("completed", first["conversationId"])
    assert result["toolCalls"] >= 5  # edits and commands are among them
    assert result["usage"]["totalTokens"] > 0
    assert result["durationMs"] >= result["firstEventMs"] >= 0
    assert len(http.get("/v1/runs?limit=1").json()["runs"]) == 1
    assert http.get("/v1/runs?limit=x").status_code == 400


# --- an agent that waits --------------------------------------------------------------------------------


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.001)


def asking(answer_seconds: float = 600) -> Run:
    """A run whose agent works."""
    run = Run(info(), UnstoredLog(), RunPlan(waits=WaitLimits(answer_seconds=answer_seconds, quiet_seconds=0)))
    run.start(turn(), driven_by(ScriptedSource([[STARTED], forever()])))
    return run


QUESTION = Question(tool="ask_question", title="", questions=[FILE])
PLAN = Plan(tool="create_plan", title="Move", overview="", markdown="", todos=[])
ANSWER = ClarificationAnswer(question_id="file", selected_option_ids=["b"])


async def test_a_held_plan_is_decided_and_nobody_waits_for_ever() -> None:
    run = asking()
    deciding = asyncio.ensure_future(run.decide("call_1", PLAN))
    await until(lambda: run.is_waiting)
    questions = run.machine.questions
    assert (questions.call_for([ANSWER]), questions.plan) == (None, "call_1")
    run.take_answers({"call_1": False})
    assert await deciding is False
    impatient = asking(answer_seconds=0.01)
    assert await impatient.answer("call_2", QUESTION) is None
    assert await impatient.decide("call_3", PLAN) is None
    assert len(impatient.log.state.pauses) == 2
    answer = asyncio.ensure_future(run.answer("call_4", QUESTION))
    await until(lambda: bool(run.machine.calls.shown))
    await asyncio.gather(run.abandon(), impatient.abandon())
    assert await answer is None
