"""What a caller answers a run that waits, or what its agent has asked."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.model.permissions import Permission

Decision: TypeAlias = Literal["accept", "reject"]  # about a plan


class ToolResults(Struct, frozen=True, tag="results"):
    results: Mapping[str, ToolResult]  # by call


class QuestionAnswers(Struct, frozen=True, tag="answers"):
    answers: Sequence[ClarificationAnswer]


class PlanDecision(Struct, frozen=True, tag="plan"):
    decision: Decision
    text: str = ""


class PermissionDecisions(Struct, frozen=True, tag="permissions"):
    permissions: Mapping[str, Permission]  # by document


RunAnswer: TypeAlias = ToolResults | QuestionAnswers | PlanDecision | PermissionDecisions
