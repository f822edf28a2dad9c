"""The question whether the agent may do something, for a person; and how such a call ends.

Shared by all backends whose agent waits for the decision.
"""

from uuid import uuid4

from msgspec import UNSET
from msgspec.structs import replace

from cursor_gateway.model.agent_events import Outcome, Question
from cursor_gateway.model.answers import Decision, Permission
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationOption,
    ClarificationQuestion,
    PermissionRequest,
)

_LABELS: dict[Decision, str] = {
    "once": "Allow once",
    "conversation": "Always allow in this conversation",
    "workspace": "Always allow in this workspace",
    "deny": "Deny",
}
REJECTED = Outcome(state="rejected", code="NOT_ALLOWED", message="Not run: it was not allowed.")
# Of the question itself.
UNDECIDED = Outcome(state="unanswered", code="UNANSWERED", message="Nobody decided in time, so it was not allowed.")
GIVEN_UP = Outcome(
    state="unanswered", code="UNANSWERED", message="The agent no longer waits for the decision, so it was not allowed."
)


def permission_question(wanted: PermissionRequest, reason: str = "") -> Question:
    text = f"May the agent do this: {wanted.subject}? {reason}".strip()
    decisions = [one for one in _LABELS if wanted.rules or one in ("once", "deny")]
    options = [ClarificationOption(id=one, label=_LABELS[one]) for one in decisions]
    # A unique id: an answer that is sent twice must not allow the next request.
    question = ClarificationQuestion(id=f"permission_{uuid4().hex}", text=text, options=options)
    title = "The agent asks for permission"
    return Question(tool="request_permission", title=title, questions=[question], permission=wanted)


def answered(question: Question, decided: Permission) -> Question:
    answer = ClarificationAnswer(
        question_id=question.questions[0].id,
        selected_option_ids=[decided.decision],
        text=decided.reason or UNSET,
    )
    return replace(question, answers=[answer])
