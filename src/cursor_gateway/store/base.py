"""What every store of the history takes and gives: the values, and the protocol.

Ids and times are handed in. Whatever is looked up is looked up for an owner, and what belongs to
another one is not there. A call that changes something can be repeated: what is stored already is
left as it is, so that whoever was told `StoreUnavailable` keeps what it has and tries again later.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import Envelope, Mode, Usage
from cursor_gateway.model.history import RunState
from cursor_gateway.model.run_info import Fences, Include

Role: TypeAlias = Literal["user", "assistant"]

# --- what is handed in ------------------------------------------------------------------------------


class NewMessage(Struct, frozen=True):
    role: Role
    text: str


class Idempotency(Struct, frozen=True):
    """A caller's name for a request, and what it asked for."""

    key: str
    body_hash: str


class NewRun(Struct, frozen=True, kw_only=True):
    id: str
    conversation_id: str  # begun with this run, if the owner has none of this id
    owner: str
    instance: str  # the gateway process that drives it
    workspace: str
    model: str
    mode: Mode
    created: str  # ISO 8601, UTC: what the answer says
    fences: Fences = "split"
    include: Set[Include] = frozenset()
    messages: Sequence[NewMessage]  # those that are new in the conversation
    started_ms: int  # since 1970, as all times here
    idempotency: Idempotency | None = None


class RunEnd(Struct, frozen=True, kw_only=True):
    envelope: Envelope
    failure_code: str | None = None
    words: Sequence[str] = ()  # by which it is found, beside its messages
    tool_uses: int = 0
    answer: str  # the assistant's message
    session_id: str | None = None  # None leaves the conversation's as it is, and so with the fingerprint
    fingerprint: str | None = None
    first_event_ms: int | None = None
    ended_ms: int
    frees_key: bool = False  # its idempotency key is for another try: asking again must not give the same failure


# --- what is handed out -----------------------------------------------------------------------------


class RunRecord(Struct, frozen=True, kw_only=True):
    id: str
    conversation_id: str
    owner: str
    instance: str
    state: RunState
    model: str
    mode: Mode
    created: str
    fences: Fences
    include: frozenset[Include]
    started_ms: int
    first_event_ms: int | None
    ended_ms: int | None
    usage: Usage | None  # None until it has ended
    failure_code: str | None
    tool_uses: int | None = None  # None until it has ended
    event_count: int


class ConversationRecord(Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    title: str
    workspace: str
    mode: Mode  # of the newest run, and so the model
    model: str
    created_ms: int
    updated_ms: int
    session_id: str | None  # the agent's own
    fingerprint: str | None
    is_running: bool


class MessageRecord(Struct, frozen=True, kw_only=True):
    number: int
    role: Role
    text: str
    run_id: str
    created_ms: int


class FoundConversation(Struct, frozen=True):
    conversation: ConversationRecord
    snippet: str | None = None  # where the words were found


class ConversationPage(Struct, frozen=True):
    found: list[FoundConversation]
    next: str | None  # what to hand in for the page after this one; opaque


class EventPage(Struct, frozen=True):
    """Events that follow each other. The next page is the one after `last_number`."""

    first_number: int
    events: list[DocumentEvent]

    @property
    def last_number(self) -> int:
        return self.first_number + len(self.events) - 1


class IdempotentRun(Struct, frozen=True):
    run_id: str
    body_hash: str
    after: int = 0  # the reply begins after this event of the run


# --- the protocol -----------------------------------------------------------------------------------


class Store(Protocol):
    """All methods may raise `StoreUnavailable`. An engine that has nothing to wait for does not wait."""

    async def begin_run(self, new: NewRun) -> bool:
        """False, and nothing is stored, when the idempotency key is another run's."""
        ...

    async def append(self, run_id: str, first_number: int, events: Sequence[DocumentEvent]) -> int | None:
        """The events of one read of the agent, of which the beginning may be stored already; numbers are from 1.

        How many bytes they took; None when not all of them are stored now, and never will be: the run was deleted, or
        ended by another.
        """
        ...

    async def end_run(self, run_id: str, first_number: int, events: Sequence[DocumentEvent], end: RunEnd) -> int | None:
        """The last events and all that follows from the end, or nothing. Returns what `append` does."""
        ...

    async def set_session(
        self, conversation_id: str, owner: str, session_id: str | None, fingerprint: str | None
    ) -> None: ...

    async def delete_conversation(self, id: str, owner: str) -> bool:
        """At once for everybody who looks; its space is given back afterwards. False: there was none."""
        ...

    async def prune(
        self,
        max_age_seconds: float | None,
        max_bytes: int | None,
        now_ms: int,
        file_sizes: Mapping[str, int] | None = None,
    ) -> int:
        """Deletes the oldest conversations that have no running run, as many as it takes, and says how many.

        `file_sizes` has the bytes that each conversation keeps in files, which count as well.
        """
        ...

    async def prune_owners(self, max_bytes: int) -> int:
        """Deletes the oldest conversations of every owner whose events take more than that, and says how many. Those
        that have a running run stay."""
        ...

    async def run(self, id: str, owner: str) -> RunRecord | None: ...

    async def runs_of(self, conversation_id: str, owner: str) -> list[RunRecord]:
        """In the order in which they began."""
        ...

    async def recent_runs(self, owner: str, limit: int) -> list[tuple[RunRecord, str]]:
        """The newest first, each with its conversation's title."""
        ...

    async def unfinished_runs(self) -> list[RunRecord]:
        """Everybody's that are `running`: of this process, of another one that lives, or of one that died."""
        ...

    async def events(self, run_id: str, owner: str, *, after: int = 0, max_bytes: int = 1_000_000) -> EventPage:
        """Those after a number, about so many bytes of them but at least one; none when there are no more."""
        ...

    async def conversation(self, id: str, owner: str) -> ConversationRecord | None: ...

    async def conversations(
        self, owner: str, *, limit: int = 20, before: str | None = None, query: str | None = None
    ) -> ConversationPage:
        """The newest first: by when they were used last; with a query, by their newest run that has all its words.

        The last word may be the beginning of one. `before` is `next` of the page before this one; raises
        `InvalidRequest` for what never was.
        """
        ...

    async def messages(self, conversation_id: str, owner: str) -> list[MessageRecord]: ...

    async def find_by_fingerprint(self, owner: str, fingerprint: str) -> list[ConversationRecord]:
        """Those that have no running run, the newest first."""
        ...

    async def unknown_conversations(self, ids: Sequence[str]) -> list[str]:
        """Those that are nobody's."""
        ...

    async def find_run_by_idempotency(self, owner: str, key: str) -> IdempotentRun | None: ...

    async def name_reply(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        """From now on the key finds this reply. Nothing happens for a run that the owner does not have."""
        ...

    async def size(self) -> int:
        """Bytes on the disk."""
        ...

    async def close(self) -> None: ...
