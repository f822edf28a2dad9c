"""What an agent asks while it waits in; a pause of its run, and the answer or that there is none, out."""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from cursor_gateway.core.actions import Plan, Question
from cursor_gateway.core.documents import ClarificationAnswer, ClarificationQuestion
from cursor_gateway.core.replies import check_answers
from cursor_gateway.runs.caller_tools import CallerLimits, Driver

_Answer: TypeAlias = list[ClarificationAnswer] | bool | None


class _Asked(Struct):
    what: Question | Plan
    answered: "asyncio.Future[_Answer]"


class Questions:
    """One run's. Who is asked may take their time, but not for ever: then the agent goes on without an answer."""

    def __init__(self, limits: CallerLimits) -> None:
        self._limits = limits
        self.waiting_since: float | None = None  # of the loop's clock
        self.waited = 0.0  # seconds, up to the last answer
        self._open: dict[str, _Asked] = {}
        self._driver: Driver | None = None
        self._pausing: asyncio.TimerHandle | None = None

    def begin(self, driver: Driver) -> None:
        self._driver = driver

    def close(self) -> None:
        self._driver = None
        if self._pausing is not None:
            self._pausing.cancel()
        for asked in list(self._open.values()):
            self._settle(asked, None)

    @property
    def call_ids(self) -> tuple[str, ...]:
        return tuple(self._open)

    # --- the agent's side ---------------------------------------------------------------------------

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        found = await self._ask(call_id, question)
        return found if isinstance(found, list) else None

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        found = await self._ask(call_id, plan)
        return found if isinstance(found, bool) else None

    async def _ask(self, call_id: str, what: Question | Plan) -> _Answer:
        loop = asyncio.get_running_loop()
        asked = self._open[call_id] = _Asked(what, loop.create_future())
        self._pause_soon()  # first what it says before is told
        expiring = loop.call_later(self._limits.answer_seconds, self._settle, asked, None)
        try:
            return await asked.answered
        finally:
            expiring.cancel()
            del self._open[call_id]
            if self.waiting_since is not None:
                self.waited += loop.time() - self.waiting_since
                self.waiting_since = None
            if self._open:  # the others are asked again
                self._pause_soon()

    def _pause_soon(self) -> None:
        """What is asked at once is told at once."""
        if self._pausing is not None:
            self._pausing.cancel()
        self._pausing = asyncio.get_running_loop().call_later(self._limits.quiet_seconds, self._pause)

    def _pause(self) -> None:
        if self._driver is not None and self._open:
            self._driver.pause([])
            if self.waiting_since is None:
                self.waiting_since = asyncio.get_running_loop().time()

    # --- the other side -----------------------------------------------------------------------------

    def take_answers(self, answers: Sequence[ClarificationAnswer]) -> bool:
        """False: no question is open. Raises `InvalidRequest` for answers that fit none that is."""
        every: dict[str, ClarificationQuestion] = {}
        for asked in self._open.values():
            if isinstance(asked.what, Question):
                questions = {question.id: question for question in asked.what.questions}
                if any(answer.question_id in questions for answer in answers):
                    check_answers(questions, answers)
                    self._settle(asked, list(answers))
                    return True
                every |= questions
        if every:
            check_answers(every, answers)
        return False

    @property
    def holds_questions(self) -> bool:
        return any(isinstance(asked.what, Question) for asked in self._open.values())

    @property
    def holds_plan(self) -> bool:
        return any(isinstance(asked.what, Plan) for asked in self._open.values())

    def take_decision(self, is_accepted: bool) -> bool:
        """False: no plan waits for it."""
        for asked in self._open.values():
            if isinstance(asked.what, Plan):
                self._settle(asked, is_accepted)
                return True
        return False

    def _settle(self, asked: _Asked, answer: _Answer) -> None:
        if not asked.answered.done():
            asked.answered.set_result(answer)
