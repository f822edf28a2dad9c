"""What an agent asks while it waits in; the answer, or that there is none, out."""

from collections.abc import Mapping, Sequence

from cursor_gateway.model.actions import Plan, Question
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationQuestion
from cursor_gateway.model.permissions import Permission
from cursor_gateway.prompting.replies import check_answers
from cursor_gateway.runs.open_calls import Kind
from cursor_gateway.runs.waiting import Waiting


class Questions:
    """One run's. If no answer arrives in time, the agent continues without one."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._asked: dict[str, Question | Plan] = {}

    # --- the agent's side ---------------------------------------------------------------------------

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        found = await self._ask(call_id, question)
        return found if isinstance(found, list) else None

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        found = await self._ask(call_id, plan)
        return found if isinstance(found, bool) else None

    async def permit(self, call_id: str, question: Question) -> Permission | None:
        found = await self._ask(call_id, question)
        return found if isinstance(found, Permission) else None

    async def _ask(self, call_id: str, what: Question | Plan) -> object:
        self._asked[call_id] = what
        try:
            return await self._waiting.ask(call_id, Kind.QUESTION)
        finally:
            del self._asked[call_id]

    # --- the other side -----------------------------------------------------------------------------

    def is_waiting(self) -> bool:
        return self._waiting.is_waiting

    def take_answers(self, answers: Sequence[ClarificationAnswer]) -> bool:
        """False: no question is open. Raises `InvalidRequest` for answers that match no open question."""
        every: dict[str, ClarificationQuestion] = {}
        for call_id, asked in self._asked.items():
            if isinstance(asked, Question):
                questions = {question.id: question for question in asked.questions}
                is_meant = any(answer.question_id in questions for answer in answers)
                if is_meant and asked.permission is None:
                    check_answers(questions, answers)
                    self._waiting.answer({call_id: list(answers)})
                    return True
                every |= questions
        if every:
            check_answers(every, answers)
        return False

    @property
    def permissions(self) -> dict[str, str]:
        """The calls that wait for permission, by the ids of their questions."""
        found = self._asked.items()
        return {
            asked.questions[0].id: call_id
            for call_id, asked in found
            if isinstance(asked, Question) and asked.permission is not None
        }

    def take_permissions(self, decided: Mapping[str, Permission]) -> None:
        """By the ids of questions; those that are not among `permissions` any more are left out."""
        held = self.permissions
        self._waiting.answer({held[id]: permission for id, permission in decided.items() if id in held})

    @property
    def holds_questions(self) -> bool:
        return any(isinstance(asked, Question) and asked.permission is None for asked in self._asked.values())

    @property
    def holds_plan(self) -> bool:
        return any(isinstance(asked, Plan) for asked in self._asked.values())

    def take_decision(self, is_accepted: bool) -> bool:
        """False: no plan waits for it."""
        for call_id, asked in self._asked.items():
            if isinstance(asked, Plan):
                self._waiting.answer({call_id: is_accepted})
                return True
        return False
