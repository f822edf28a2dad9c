"""The history as the API returns it: conversations, messages and runs."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.model.documents import Mode, Usage

RunState: TypeAlias = Literal["running", "completed", "error"]


class ConversationEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation without its messages."""

    id: str
    title: str
    created: str
    updated: str
    workspace: str
    mode: Mode  # of its newest run, and so the model
    model: str
    is_running: bool
    is_waiting: bool | UnsetType = UNSET  # a person must answer, or decide about a rejected command
    pinned: bool = False
    snippet: str | UnsetType = UNSET  # where the words of a search were found


class ConversationList(Struct, frozen=True, kw_only=True):
    """A page of conversations."""

    conversations: list[ConversationEntry]
    next: str | None  # what to send as `before` for the next page


class ConversationChange(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a conversation. Omitted fields do not change."""

    title: Annotated[str, Meta(max_length=200)] | None = None
    pinned: bool | None = None


class RevertRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The files to revert: one of the conversation, all of a run, or one as a run changed it."""

    path: Annotated[str, Meta(max_length=4096)] | None = None
    chat_id: str | None = None


class RemovalPending(Struct, frozen=True):
    """A conversation that is deleted, except for the copies of some agents."""

    message: str


class MessageEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message."""

    role: Literal["user", "assistant"]
    text: str
    chat_id: str
    created: str


class RunEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run."""

    id: str
    state: RunState
    model: str
    mode: Mode
    created: str
    first_event_ms: int | None  # from its start
    duration_ms: int | None
    usage: Usage | None
    error_code: str | None


class RecentRun(RunEntry, frozen=True, kw_only=True, rename="camel"):
    """A run with its conversation."""

    conversation_id: str
    title: str  # of the conversation
    prompt: str  # the first line of it
    tool_calls: int | None  # edits and commands included; None until it has ended
    runner: str | UnsetType = UNSET  # in a cluster: the process that drives it, or did


class RunList(Struct, frozen=True, kw_only=True):
    """The most recent runs of all conversations."""

    runs: list[RecentRun]


class ConversationDetail(ConversationEntry, frozen=True, kw_only=True, rename="camel"):
    """A conversation with all its messages."""

    messages: list[MessageEntry]
    runs: list[RunEntry]
