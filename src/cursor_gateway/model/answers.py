"""What a caller answers a run that waits, or what its agent has asked: results, answers, decisions, permissions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.documents import ClarificationAnswer

# --- permissions ------------------------------------------------------------------------------------


Decision: TypeAlias = Literal["once", "conversation", "workspace", "deny"]


class Permission(Struct, frozen=True):
    decision: Decision
    reason: str = ""  # for the agent, with `deny`

    @property
    def is_allowed(self) -> bool:
        return self.decision != "deny"


class PermissionEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision. `conversation` and `workspace` are rules that apply until they are revoked."""

    id: Annotated[str, "The id, for revoking it."]
    decision: Annotated[Decision, "The decision."]
    rules: Annotated[list[str], "What it allows, in the form of the agent's own configuration."]
    subject: Annotated[str, "What the agent wanted to do."]
    reason: Annotated[str, "Why it was denied."] = ""
    workspace: Annotated[str, "The workspace in which it was decided."]
    conversation_id: Annotated[str, "The conversation in which it was decided."]
    chat_id: Annotated[str, "The run that asked."]
    document_id: Annotated[str, "The document that asked."]
    created: Annotated[str, "When it was decided: ISO 8601, UTC."]

    def applies_to(self, conversation_id: str, workspace: str) -> bool:
        """Whether its rules hold for a run there."""
        match self.decision:
            case "conversation":
                return self.conversation_id == conversation_id
            case "workspace":
                return self.workspace == workspace
            case "once" | "deny":
                return False


class PermissionList(Struct, frozen=True, kw_only=True, rename="camel"):
    """The caller's decisions and the operator's rules."""

    permissions: Annotated[list[PermissionEntry], "The caller's own decisions, newest first."]
    settings: Annotated[list[str], "The rules of the setting `allow`, which apply to everyone."]
    can_allow: Annotated[bool, "False if `permissions` is set to `deny`; decisions then have no effect."]
    allows_everything: Annotated[bool, "True if `force` is set."]


PlanChoice: TypeAlias = Literal["accept", "reject"]  # about a plan


class ToolResults(Struct, frozen=True, tag="results"):
    results: Mapping[str, ToolResult]  # by call


class QuestionAnswers(Struct, frozen=True, tag="answers"):
    answers: Sequence[ClarificationAnswer]


class PlanDecision(Struct, frozen=True, tag="plan"):
    decision: PlanChoice
    text: str = ""


class PermissionDecisions(Struct, frozen=True, tag="permissions"):
    permissions: Mapping[str, Permission]  # by document


class SeveralAnswers(Struct, frozen=True, tag="several"):
    answers: Sequence[PermissionDecisions | QuestionAnswers | PlanDecision]  # to what one run has asked


RunAnswer: TypeAlias = ToolResults | QuestionAnswers | PlanDecision | PermissionDecisions | SeveralAnswers


class AnswerId(Struct, frozen=True):
    """An answer: a run, and the number of the event after which its reply begins."""

    run_id: str
    after: int = 0
