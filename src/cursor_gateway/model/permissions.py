"""The decision about a call that needs permission, and the decisions as the API lists them."""

from typing import Literal, TypeAlias

from msgspec import Struct

Decision: TypeAlias = Literal["once", "conversation", "workspace", "deny"]


class Permission(Struct, frozen=True):
    decision: Decision
    reason: str = ""  # for the agent, with `deny`

    @property
    def is_allowed(self) -> bool:
        return self.decision != "deny"


class PermissionEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision. `conversation` and `workspace` are rules that apply until they are revoked."""

    id: str
    decision: Decision
    rules: list[str]  # in the agent's own form
    subject: str  # what the agent wanted to do
    reason: str = ""
    workspace: str
    conversation_id: str
    chat_id: str  # the run that asked
    document_id: str
    created: str

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

    permissions: list[PermissionEntry]  # the newest first
    settings: list[str]  # the operator's rules, which cannot be revoked here
    can_allow: bool  # false: the operator has turned approvals off
    allows_everything: bool  # the operator has set `force`
