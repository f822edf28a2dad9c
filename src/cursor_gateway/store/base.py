"""The values and the protocol of a history store.

Ids and times are passed in. Every lookup is for one owner; another owner's data appears not to exist. Writes are
idempotent: what is stored already is left as it is, so after `StoreUnavailable` the caller keeps its data and retries
later.

**Leases.** Any number of processes may share a history, and each run has one writer. A process that begins a run, or
claims one whose process died, gets a `Lease`: the run's id and its epoch, which every claim increments. Every write
passes its lease and the number of its first event; both are compared in the transaction that stores it. So a process
that was considered dead and wakes up is `Fenced`: it stores nothing, and learns that it no longer owns the run. A
conversation has one running run at a time, whichever process starts it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextvars import ContextVar
from typing import Annotated, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import Envelope, Mode, Usage
from cursor_gateway.model.history import RunStatus
from cursor_gateway.model.requests import Fences, Include
from cursor_gateway.store.health import StoreHealth

OWNER = ContextVar("OWNER", default="")  # for whom a task works; empty: for the gateway itself

MessageRole: TypeAlias = Literal["user", "assistant"]
Milliseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)]  # since 1970, until 9999

# --- input ------------------------------------------------------------------------------------------


class NewMessage(Struct, frozen=True):
    role: MessageRole
    text: str
    images: tuple[str, ...] = ()  # names of files in the conversation's folder


class Idempotency(Struct, frozen=True):
    """A caller's key for a request, and a hash of the request's body."""

    key: str
    body_hash: str


class Claim(Struct, frozen=True):
    """A command that a runner has claimed (see `store.cluster`), or an entry of a queue on one machine."""

    command_id: str
    epoch: int
    run_id: str  # of the run that it may start
    resumption: bytes = b""  # the command that continues the run if its runner is lost; empty: the run ends
    outcome: bytes = b""  # of the command, which is stored with the beginning of the run; empty: it comes later


# Where a run's request would be if it were that of a reply: what another agent needs to continue the run.
CONTINUATION = -1


class NewRun(Struct, frozen=True, kw_only=True):
    id: str
    conversation_id: str  # created with this run if the owner has none of this id
    owner: str
    instance: str  # the gateway process that drives it
    workspace: str
    model: str
    mode: Mode
    created: str  # ISO 8601, UTC, as in the answer
    fences: Fences = "split"
    include: Set[Include] = frozenset()
    messages: Sequence[NewMessage]  # the new ones
    started_ms: int  # since 1970, like all times here
    idempotency: Idempotency | None = None
    volume: str = ""  # of a new conversation: where its workspace is, in a cluster
    client: str = ""  # of a new conversation: the name of the program that began it; empty: a person at the page
    claim: Claim | None = None  # in a cluster: the command that starts it
    request: bytes = b""  # as by `keep_request`, of its first reply; empty: none
    continuation: bytes = b""  # kept until the run has completed, as the request after `CONTINUATION`; empty: none
    is_first: bool = False  # of its conversation, whose id was just made and is known to nobody else


class TitleChange(Struct, frozen=True):
    """Of a conversation that still has the title that was made for it; one that somebody chose stays."""

    made: str
    new: str


class RunEnd(Struct, frozen=True, kw_only=True):
    envelope: Envelope
    failure_code: str | None = None
    words: Sequence[str] = ()  # searchable text besides its messages
    tool_uses: int = 0
    needs_decision: bool = False  # a call was rejected, and somebody may allow it
    answer: str  # the assistant's message
    session_id: str | None = None  # None keeps the conversation's; the same for the fingerprint
    fingerprint: str | None = None
    title: TitleChange | None = None
    first_event_ms: int | None = None
    ended_ms: int
    begun: NewRun | None = None  # the run as it began, if its writer knows that: then the store need not look it up
    frees_key: bool = False  # release the idempotency key, so that a retry is a new run and not the same failure


# --- writing ----------------------------------------------------------------------------------------


FIRST_EPOCH = 1  # of every run


class Lease(Struct, frozen=True):
    """The right to write to a run, until another process claims it."""

    run_id: str
    epoch: int


class KeyTaken(Struct, frozen=True):
    """The idempotency key belongs to another run."""


class Busy(Struct, frozen=True):
    """The conversation has a running run."""

    run_id: str


class KeyLimit(Struct, frozen=True):
    """The owner's API key may not start another run now."""

    which: Literal["max_runs", "runs_per_day", "tokens_per_day"]
    limit: int


class Superseded(Struct, frozen=True):
    """Another process has the command that would have started the run."""


class Stored(Struct, frozen=True):
    size: int  # in bytes; 0 if all of it was stored before


class Fenced(Struct, frozen=True):
    """Nothing was stored, and nothing will be under this lease."""

    reason: Literal["claimed", "ended", "deleted"]


class Behind(Struct, frozen=True):
    """Nothing was stored: the store has lost events after this number, which it had stored before. Send them again."""

    last: int


Refused: TypeAlias = KeyTaken | Busy | KeyLimit | Superseded
Written: TypeAlias = Stored | Fenced | Behind

# --- what others are told about a run ---------------------------------------------------------------


class RunNews(Struct, frozen=True, kw_only=True):
    """A run waits, or has ended: its envelope says which."""

    owner: str
    envelope: Envelope
    failure_code: str | None = None
    number: int = 0  # of the event with which it waits
    goes_on: bool = False  # its reply does, while it waits for somebody else


class Notice(Struct, frozen=True, kw_only=True):
    """A message that is stored together with what it is about, and delivered later."""

    webhook: str  # its name
    id: str  # the same for the same news, however often they are stored
    body: bytes
    number: int = 0  # it counts while the run is running and has no event after this one; 0: always
    delay_ms: int = 0


class ClaimedNotice(Struct, frozen=True, kw_only=True):
    """One that this process delivers; after a while, if it does not, another does."""

    id: str
    owner: str
    run: str
    number: int
    body: bytes
    attempts: int  # with this one


MakeNotices: TypeAlias = Callable[[RunNews], Sequence[Notice]]


class Outbox(Protocol):
    """The notices of a store. All methods may raise `StoreUnavailable`."""

    async def claim_notices(self, webhook: str, limit: int, lease_ms: int) -> list[ClaimedNotice]:
        """Those that are due, for so long."""
        ...

    async def put_off_notice(self, webhook: str, notice: ClaimedNotice, delay_ms: int) -> None:
        """Unless another process has claimed it since."""
        ...

    async def remove_notice(self, webhook: str, id: str) -> None: ...

    async def run(self, id: str, owner: str) -> "RunRecord | None": ...


# --- output -----------------------------------------------------------------------------------------


class DayUsage(Struct, frozen=True, kw_only=True):
    """What an owner's runs with one model used, of those that ended on a day (UTC)."""

    day: str  # YYYY-MM-DD
    model: str
    runs: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class RunRecord(Struct, frozen=True, kw_only=True):
    """The defaults are those of a run that has just begun."""

    id: str
    conversation_id: str
    owner: str
    instance: str
    epoch: int = FIRST_EPOCH
    state: RunStatus = "running"
    model: str
    mode: Mode
    created: str
    fences: Fences
    include: frozenset[Include]
    started_ms: Milliseconds
    first_event_ms: Milliseconds | None = None
    ended_ms: Milliseconds | None = None
    usage: Usage | None = None  # None until it has ended
    failure_code: str | None = None
    tool_uses: int | None = None  # None until it has ended
    event_count: int = 0


def begun_record(new: NewRun) -> RunRecord:
    """Of a run that has just begun."""
    return msgspec.convert(new, RunRecord, from_attributes=True)


def ended_record(new: NewRun, end: RunEnd, count: int) -> RunRecord:
    """The record of a run that ended with `count` events."""
    return msgspec.structs.replace(
        begun_record(new),
        event_count=count,
        state="completed" if end.envelope.status == "completed" else "error",
        model=end.envelope.model,
        first_event_ms=end.first_event_ms,
        ended_ms=end.ended_ms,
        usage=msgspec.structs.replace(end.envelope.usage, reasoning_tokens=msgspec.UNSET, cost=msgspec.UNSET),
        failure_code=end.failure_code,
        tool_uses=end.tool_uses,
    )


class ConversationRecord(Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    title: str
    workspace: str
    mode: Mode  # of the newest run, as is the model
    model: str
    created_ms: Milliseconds
    updated_ms: Milliseconds
    session_id: str | None  # the agent's own
    fingerprint: str | None
    is_running: bool
    is_pinned: bool = False
    needs_decision: bool = False  # its newest run does
    volume: str = ""  # where its workspace is, in a cluster
    client: str = ""  # the name of the program that began it
    linked_ms: Milliseconds | None = None  # since when it has a read-only link


class MessageRecord(Struct, frozen=True, kw_only=True):
    number: int
    role: MessageRole
    text: str
    run_id: str
    created_ms: Milliseconds
    images: tuple[str, ...] = ()


class FoundConversation(Struct, frozen=True):
    conversation: ConversationRecord
    snippet: str | None = None  # the text around the match


class ConversationPage(Struct, frozen=True):
    found: list[FoundConversation]
    next: str | None  # opaque cursor for the next page; None: this is the last


PAGE_BYTES = 256 * 1024  # of events: as much as one reader holds in memory while its client does not read


class EventPage(Struct, frozen=True):
    """Consecutive events. The next page starts after `last_number`."""

    first_number: int
    events: list[DocumentEvent]

    @property
    def last_number(self) -> int:
        return self.first_number + len(self.events) - 1


class IdempotentRun(Struct, frozen=True):
    run_id: str
    body_hash: str
    after: int = 0  # the reply starts after this event of the run


# --- the protocol -----------------------------------------------------------------------------------


class Store(Protocol):
    """What runs and their readers need of a history.

    All methods may raise `StoreUnavailable`. A local engine may complete without ever yielding to the loop.
    """

    health: StoreHealth

    async def begin_run(
        self, new: NewRun, events: Sequence[DocumentEvent] = (), end: RunEnd | None = None
    ) -> Refused | Written:
        """With its first events, and its end, in one transaction if possible. If it is `Stored`, the caller has the
        lease with `FIRST_EPOCH`; if it is `Refused`, nothing was stored.
        """
        ...

    async def claim_run(self, run_id: str, epoch: int) -> Lease | None:
        """Takes over a run whose process died. None if it is not running any more, or has another epoch than this."""
        ...

    async def append(
        self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd | None = None
    ) -> Written:
        """Appends the events of one read of the agent; the first of them may be stored already. Numbers start at 1.
        The last events and the end of the run are stored in one transaction.

        The calls that a `Paused` event waits for are open calls of the run from then on.
        """
        ...

    async def run(self, id: str, owner: str) -> RunRecord | None: ...

    async def runs_of(self, conversation_id: str, owner: str) -> list[RunRecord]:
        """In the order in which they started."""
        ...

    async def recent_runs(self, owner: str, limit: int) -> list[tuple[RunRecord, str, str]]:
        """Newest first, each with its conversation's title and the first line of its prompt."""
        ...

    async def unfinished_runs(self, instance: str | None = None) -> list[RunRecord]:
        """All owners' runs that are `running`, in one process or in any: a live one, or one that died."""
        ...

    async def find_run_by_calls(self, owner: str, call_ids: Iterable[str]) -> RunRecord | None:
        """The running run that asked its caller for one of these calls."""
        ...

    async def set_decided(self, run_id: str, owner: str) -> None:
        """The run needs no decision any more. Does nothing for a run that the owner does not have."""
        ...

    async def events(self, run_id: str, owner: str, *, after: int = 0, max_bytes: int = PAGE_BYTES) -> EventPage:
        """The events after a number, about `max_bytes` of them but at least one; empty if there are no more."""
        ...

    async def conversation(self, id: str, owner: str) -> ConversationRecord | None: ...

    async def conversations(
        self,
        owner: str,
        *,
        limit: int = 20,
        before: str | None = None,
        query: str | None = None,
        clients: Sequence[str] | None = None,
        is_pinned: bool = False,
        is_linked: bool = False,
        fingerprint: str | None = None,
    ) -> ConversationPage:
        """Newest first: by last use, or with a query by the newest run that matches all its words.

        Without a query, `clients` selects those that one of these programs began, and all that have a running run;
        `is_pinned` selects those that are pinned, `is_linked` those with a read-only link, `fingerprint` those that
        have this one and no running run. The last word of a query may be a prefix. `before` is `next` of the previous
        page; raises `InvalidRequest` if it is malformed.
        """
        ...

    async def messages(self, conversation_id: str, owner: str) -> list[MessageRecord]: ...

    async def change_conversation(
        self,
        id: str,
        owner: str,
        *,
        title: str | None = None,
        is_pinned: bool | None = None,
        fingerprint: str | None = None,
        link_hash: str | None = None,
        linked_ms: int | None = None,
    ) -> bool:
        """None leaves it as it is, and an empty `link_hash` revokes its read-only link. False if there is no such
        conversation."""
        ...

    async def find_by_link(self, hash: str) -> ConversationRecord | None:
        """Whoever the owner is."""
        ...

    async def delete_conversation(self, id: str, owner: str) -> bool:
        """Takes effect at once for readers; space is reclaimed later. False if there is no such conversation."""
        ...

    async def find_run_by_idempotency(self, owner: str, key: str) -> IdempotentRun | None: ...

    async def name_reply(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        """Maps the key to this reply from now on. Does nothing for a run that the owner does not have."""
        ...

    async def keep_request(self, run_id: str, owner: str, after: int, data: bytes | None) -> bool:
        """What a dialect needs to show the reply after this event again; None forgets it. Does nothing for a run that
        the owner does not have; the first one stays. False: nothing was kept, or forgotten.
        """
        ...

    async def kept_request(self, run_id: str, owner: str, after: int) -> bytes | None: ...

    async def usage(self, owner: str, since: str) -> list[DayUsage]:
        """From this day on (YYYY-MM-DD), the newest first."""
        ...


class HistoryLimits(Struct, frozen=True, kw_only=True):
    """None: without a limit."""

    max_age_seconds: float | None = None
    max_bytes: int | None = None  # with the files of conversations
    max_bytes_per_owner: int | None = None  # of events


class StoreUpkeep(Protocol):
    """What the process that has a history does for it. All methods may raise `StoreUnavailable`."""

    health: StoreHealth

    async def prune(self, limits: HistoryLimits, now_ms: int, file_sizes: Mapping[str, int] | None = None) -> int:
        """Deletes the oldest conversations without a running run until the limits are met, and the last row of those
        that were deleted before. Returns how many.

        `file_sizes` are the bytes that each conversation has in files, which count as well.
        """
        ...

    async def unknown_conversations(self, ids: Sequence[str]) -> list[str]:
        """Those of the ids that have no conversation."""
        ...

    async def size(self) -> int:
        """Bytes on disk."""
        ...

    async def probe(self) -> None:
        """Reads and writes a little, to find out whether that works again."""
        ...

    async def close(self) -> None: ...
