"""What an agent has asked, and waits for, in; the call that an answer is meant for out."""

from collections.abc import Sequence

from cursor_gateway.model.actions import Plan, Question
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationQuestion
from cursor_gateway.prompting.replies import check_answers


class Questions:
    """One run's. If no answer arrives in time, the agent continues without one."""

    def __init__(self) -> None:
        self.asked: dict[str, Question | Plan] = {}  # and still open, by call

    def call_for(self, answers: Sequence[ClarificationAnswer]) -> str | None:
        """None: no question is open. Raises `InvalidRequest` for answers that match no open question."""
        every: dict[str, ClarificationQuestion] = {}
        for call_id, asked in self.asked.items():
            if isinstance(asked, Question):
                questions = {question.id: question for question in asked.questions}
                is_meant = any(answer.question_id in questions for answer in answers)
                if is_meant and asked.permission is None:
                    check_answers(questions, answers)
                    return call_id
                every |= questions
        if every:
            check_answers(every, answers)
        return None

    @property
    def permissions(self) -> dict[str, str]:
        """The calls that wait for permission, by the ids of their questions."""
        found = self.asked.items()
        return {
            asked.questions[0].id: call_id
            for call_id, asked in found
            if isinstance(asked, Question) and asked.permission is not None
        }

    @property
    def plan(self) -> str | None:
        """The call that waits for a decision on its plan."""
        return next((call_id for call_id, asked in self.asked.items() if isinstance(asked, Plan)), None)

    @property
    def awaited(self) -> str:
        """What to send; empty where nothing is asked."""
        if any(isinstance(asked, Question) and asked.permission is None for asked in self.asked.values()):
            return "send `answers` to its questions"
        if self.plan is not None:
            return "send `plan` to accept or reject its plan"
        return "send `permissions` to allow or deny what it asks for" if self.permissions else ""
