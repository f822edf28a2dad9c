"""Calls of the gateway's own tool for questions, among the events of a turn."""

import asyncio
from typing import Any

import pytest

from cursor_gateway.model.agent_events import Plan, Question, RunFinished, ToolEnded, ToolStarted
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.sources.cursor.ask_user import INVALID, NOBODY, UserTool
from cursor_gateway.sources.cursor.user_questions import UserQuestions

WHY = {"question": "Why?"}


class Somebody:
    """Answers when `answers` is set."""

    def __init__(self) -> None:
        self.answers: asyncio.Future[list[ClarificationAnswer] | None] = asyncio.get_running_loop().create_future()
        self.was_cancelled = False

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        try:
            return await self.answers
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        raise NotImplementedError

    async def permit(self, call_id: str, question: Question) -> Permission | None:
        raise NotImplementedError


class Asked:
    """One call, of which the agent has reported the beginning."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.somebody, self.tool = Somebody(), UserTool("user_1")
        self.questions = UserQuestions(self.tool, self.somebody)
        self.notified = asyncio.Event()
        self.questions.notify = self.notified.set
        self.questions.reported(1)
        self.call = asyncio.get_running_loop().create_task(self.tool.call("ask_user", arguments))

    async def event(self) -> ToolStarted | ToolEnded:
        await self.notified.wait()
        self.notified.clear()
        (event,) = self.questions.among([], is_over=False)
        assert isinstance(event, ToolStarted | ToolEnded)
        return event


@pytest.mark.parametrize(("text", "state"), [("So.", "completed"), (None, "unanswered")])
async def test_a_call_is_a_question_that_waits_until_it_is_answered(text: str | None, state: str) -> None:
    asked = Asked(WHY)
    started = await asked.event()
    assert isinstance(started, ToolStarted)
    assert isinstance(started.action, Question)
    assert (started.waits, started.action.questions[0].text) == (True, "Why?")
    id = started.action.questions[0].id
    answers = [ClarificationAnswer(question_id=id, selected_option_ids=[], text=text)] if text else None
    asked.somebody.answers.set_result(answers)
    ended = await asked.event()
    assert isinstance(ended, ToolEnded)
    assert (ended.call_id, ended.outcome.state) == (started.call_id, state)
    assert await asked.call == NOBODY if text is None else (await asked.call).text == "Why?\n- So."


async def test_a_question_comes_after_what_the_agent_wrote_before_it() -> None:
    """That is known when the agent has reported the call, or should have."""
    tool = UserTool("user_1")
    questions = UserQuestions(tool, Somebody())
    call = asyncio.get_running_loop().create_task(tool.call("ask_user", WHY))
    await asyncio.sleep(0)
    assert questions.among([], is_over=False) == []
    questions.reported(1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(questions.among([], is_over=False)) == 1
    call.cancel()


async def test_an_agent_that_no_longer_waits_ends_its_question() -> None:
    asked = Asked(WHY)
    await asked.event()
    asked.call.cancel()
    ended = await asked.event()
    assert isinstance(ended, ToolEnded)
    assert ended.outcome.state == "unanswered"
    await asyncio.wait([asked.call])
    assert asked.call.cancelled()
    assert asked.somebody.was_cancelled


async def test_the_end_of_the_turn_ends_what_is_open_and_asks_no_more() -> None:
    asked = Asked(WHY)
    await asked.event()
    late = asyncio.get_running_loop().create_task(asked.tool.call("ask_user", WHY))
    await asyncio.sleep(0)
    asked.questions.close()
    assert await asked.call == NOBODY
    assert asked.somebody.was_cancelled
    asked.questions.reported(2)
    assert await late == NOBODY
    assert await asked.tool.call("ask_user", WHY) == NOBODY
    assert asked.questions.among([], is_over=False) == []


async def test_an_agent_that_is_done_waits_for_nothing() -> None:
    """Its end may be read before the news that it has given a call up. The question ends before the run does."""
    asked, done = Asked(WHY), RunFinished()
    started = await asked.event()
    ended, last = asked.questions.among([done], is_over=True)
    assert isinstance(ended, ToolEnded)
    assert (ended.call_id, ended.outcome.state, last) == (started.call_id, "unanswered", done)
    assert await asked.call == NOBODY
    assert asked.questions.among([], is_over=False) == []


async def test_a_call_without_a_question_is_not_shown() -> None:
    asked = Asked({})
    assert await asked.call == INVALID
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"options": [deep]}
    assert await asked.tool.call("ask_user", {"question": "Why?", "options": [deep]}) == INVALID
    assert asked.questions.among([], is_over=False) == []
