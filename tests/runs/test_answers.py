"""What one message answers at once."""

import asyncio
from pathlib import Path

import pytest

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.agent_events import AgentEvent, Command, Outcome, Plan, Question, ToolEnded, ToolStarted
from cursor_gateway.model.answers import (
    Permission,
    PermissionDecisions,
    PlanDecision,
    QuestionAnswers,
    RunAnswer,
    SeveralAnswers,
)
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationQuestion, PermissionRequest
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.handle import RunHandle, response_of
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Asker, RunRequest
from tests.cluster.nodes import until
from tests.runs.gateways import Gateway, gateway
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, forever, say

ME = "me"
PERMISSION = PermissionRequest(subject="npm test", rules=["Shell(npm)"])
ASKED = Question(tool="ask", title="Which?", questions=[ClarificationQuestion(id="q", text="Which file?", options=[])])
MAY_IT = Question(
    tool="shell", title="", questions=[ClarificationQuestion(id="p", text="May it?", options=[])], permission=PERMISSION
)
ANSWERS = QuestionAnswers([ClarificationAnswer(question_id="q", selected_option_ids=[], text="notes.txt")])


async def begin(one: Gateway) -> RunHandle:
    request = RunRequest(owner=ME, messages=[UserMessage("Hi.")], when_client_leaves="finish", may_be_asked=True)
    return (await one.service.take(request)).run


async def test_a_run_that_has_ended_goes_on_with_all_answers_in_one_turn(tmp_path: Path) -> None:
    command = Command(tool="shell", command="npm test")
    refused = Outcome(state="rejected", code="PERMISSION_DENIED", permission=PERMISSION)
    first: list[AgentEvent] = [
        STARTED,
        ToolStarted("a", command),
        ToolEnded("a", command, refused),
        ToolStarted("b", ASKED),
        ToolEnded("b", ASKED, Outcome(state="rejected")),
        FINISHED,
    ]
    source = ScriptedSource([first], [[STARTED, *say("done"), FINISHED]])
    async with gateway(tmp_path, source) as one:
        run = await begin(one)
        await until(lambda: run.done is not None)
        documents = (await response_of(run)).documents
        decided = PermissionDecisions({documents[0].id: Permission("once")})
        unknown = QuestionAnswers([ClarificationAnswer(question_id="none", selected_option_ids=[], text="no.txt")])
        with pytest.raises(InvalidRequest):
            await one.service.answer(run.id, Asker(owner=ME), SeveralAnswers([decided, unknown]))
        assert await one.service.host.permissions(ME) == []
        for _ in range(2):  # the same again joins the turn
            given = SeveralAnswers([decided, ANSWERS])
            continued = await one.service.answer(run.id, Asker(owner=ME), given)
            await until(lambda run=continued.run: run.done is not None)  # type: ignore[misc]  # of this round
        assert len(source.turns) == 2
        turn = source.turns[1]
        assert "npm test" in turn.prompt
        assert "notes.txt" in turn.prompt
        assert list(turn.allow) == ["Shell(npm)"]


async def test_a_run_that_waits_gets_each_answer(tmp_path: Path) -> None:
    asked = [ToolStarted("a", MAY_IT, waits=True), ToolStarted("b", ASKED, waits=True)]
    async with gateway(tmp_path, ScriptedSource([[STARTED, *asked], forever()])) as one:
        run = await begin(one)
        assert isinstance(run, Run)
        await until(lambda: run.count > 1)
        permitted = asyncio.create_task(run.permit("a", MAY_IT))
        answered = asyncio.create_task(run.answer("b", ASKED))
        await until(lambda: run.is_waiting and set(run.questions.asked) == {"a", "b"})
        document, _ = (await response_of(run)).documents
        allowed = PermissionDecisions({document.id: Permission("workspace")})
        with pytest.raises(InvalidRequest):  # none takes effect if one is refused
            await one.service.answer(run.id, Asker(owner=ME), SeveralAnswers([allowed, PlanDecision("accept")]))
        assert await one.service.host.permissions(ME) == []
        assert set(run.questions.asked) == {"a", "b"}
        # A rule that was recorded, and not given: the disk was full.
        one.service.decisions.record(ME, ("", ""), (run.id, document.id), PERMISSION, Permission("workspace"))
        given: RunAnswer = SeveralAnswers([PermissionDecisions({document.id: Permission("once")}), ANSWERS])
        continued = await one.service.answer(run.id, Asker(owner=ME), given)
        assert continued.run is run
        assert await permitted == Permission("once")
        assert await answered == list(ANSWERS.answers)


async def test_an_accepted_plan_is_carried_out_with_the_other_answers(tmp_path: Path) -> None:
    plan = Plan(tool="plan", title="", overview="", markdown="First this.", todos=[])
    asked: list[AgentEvent] = [ToolStarted("a", ASKED), ToolEnded("a", ASKED, Outcome(state="rejected"))]
    asked += [ToolStarted("b", plan), ToolEnded("b", plan, Outcome())]
    source = ScriptedSource([[STARTED, *asked, FINISHED]], [[STARTED, *say("done"), FINISHED]])
    async with gateway(tmp_path, source) as one:
        request = RunRequest(owner=ME, messages=[UserMessage("Hi.")], when_client_leaves="finish", mode="plan")
        run = (await one.service.take(request)).run
        await until(lambda: run.done is not None)
        given = SeveralAnswers([ANSWERS, PlanDecision("accept")])
        continued = await one.service.answer(run.id, Asker(owner=ME), given)
        await until(lambda: continued.run.done is not None)
        assert [turn.mode for turn in source.turns] == ["plan", "agent"]
