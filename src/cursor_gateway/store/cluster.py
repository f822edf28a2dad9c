"""The values and the protocol of a database that several gateways share.

**Members.** Each process is a member. It increments its `beat` every few seconds. A process that sees the same beat for
too long, by its own clock, removes the member and takes over its runs (`take_over`), in one transaction, and only if
the beat is still the same and the database has not been restarted since.

**Commands.** A request from one process to another is a row, so it survives both. A runner claims it, which increments
its epoch, and writes one outcome with that epoch. A command of a dead runner is queued again unless its run has begun;
then the run is its outcome.

    queued ──claim──▶ claimed ──finish──▶ done
      ▲  │ withdraw ─────────────────────▶ │
      └──┴── take_over of its runner ◀─────┘ (only from claimed)

A request that nobody waits for with a connection is `waiting` instead of `queued`: it is an entry of the queue
(`store.queue`), and its front's death does not end it.

**Hints.** `Hints` may lose or repeat any hint, so processes that need them also poll every few seconds.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Raw, Struct

from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.store.base import Claim, RunRecord
from cursor_gateway.store.queue import Full, NewEntry, Queue

# The protocol between processes: commands, outcomes, events and tables. It is raised when an older process could not
# read what a newer one writes. A newer process writes as the oldest member of its cluster can read, down to `OLDEST`.
# From 2 on, requests can wait in the queue.
LEVEL = 2
OLDEST = 1

Role: TypeAlias = Literal["all", "front", "runner"]
HintKind: TypeAlias = Literal["all", "queue", "outcome", "run", "watchers"]


class Member(Struct, frozen=True, kw_only=True):
    id: str  # of one process, never reused
    role: Role
    host: str
    process: str = ""  # its name on the host
    volumes: Sequence[str] = ()
    labels: Sequence[str] = ()  # what requests may need, such as `gpu`
    capacity: int = 0
    busy: int = 0
    version: str
    level: int = LEVEL
    beat: int = 0
    is_draining: bool = False

    @property
    def is_runner(self) -> bool:
        return self.role != "front"

    def can_take(self, volume: str | None, needs: Collection[str] = ()) -> bool:
        """New work on this volume, that needs these labels."""
        is_able = self.is_runner and not self.is_draining
        return is_able and (not volume or volume in self.volumes) and set(needs) <= set(self.labels)


class NewCommand(Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    dedupe: str | None = None
    front: str
    target: str | None = None
    volume: str | None = None
    needs: Sequence[str] = ()  # labels
    run_id: str = ""
    takes_place: bool = False
    body: bytes
    priority: int = 0
    watches: bool = False  # the front reads the run as soon as it begins
    entry: NewEntry | None = None  # it waits in the queue


class ClaimedCommand(Struct, frozen=True):
    id: str
    epoch: int
    owner: str
    front: str
    run_id: str
    takes_place: bool
    body: bytes
    is_queued: bool = False  # it is an entry of the queue


class Submitted(Struct, frozen=True):
    pass


class Alike(Struct, frozen=True):
    """A command with the same `dedupe` is under way; nothing was stored."""

    id: str  # empty: it was carried out, and has started a run
    entry: str = ""  # the id of its run, if it is an entry of the queue


class OverLimit(Struct, frozen=True):
    """The owner has as many active runs as it may; nothing was stored."""


class Queued(Struct, frozen=True):
    is_claimed: bool


class CommandDone(Struct, frozen=True):
    outcome: bytes | None  # None: withdrawn, or forgotten


class LogHead(Struct, frozen=True):
    """How far a run is."""

    last: int
    is_running: bool
    events: Sequence[DocumentEvent] = ()  # those that follow the asked number, or the first of them


class Watchers(Struct, frozen=True):
    run_id: str
    member: str
    readers: int
    read_up_to: int


class NewEvents(Struct, frozen=True, array_like=True):
    """Events of a run that were just stored, for who has all before them."""

    run: str
    first: int  # the number of the first of them
    data: Raw  # as `batches.encode` makes it


class Hint(Struct, frozen=True, omit_defaults=True):
    """What may be new. Everything may, after a reconnection."""

    kind: HintKind
    values: Sequence[str] = ()
    events: Sequence[NewEvents] = ()  # of some of these runs: then it need not be read


class Figures(Struct, frozen=True, kw_only=True):
    """Of the whole cluster, and of this process."""

    cluster_id: str  # no other database has the same
    members: Sequence[Member]
    volumes: Sequence[str]  # that members have, or had
    absent: Sequence[str]  # ids that have running runs or claimed commands but are no longer members
    connections: int  # that all members may open
    max_connections: int  # that the database allows
    queue_seconds: float  # how long the oldest command waits for a runner
    queue_length: int  # commands that may start a run and have no runner yet
    running: int  # runs in the whole cluster, without those that wait for their callers
    notification_queue: float  # how full PostgreSQL's queue of notifications is, from 0 to 1
    commits: int  # of events, by this process
    batches: int  # that they stored
    append_seconds: float  # that they took
    waiting_bytes: int  # of events that are not stored yet
    rewinds: int  # times that the database had lost events, which this process sent again
    reconnections: int  # of the connection that listens
    skipped_hints: int  # that this version does not know
    server: str  # names the database server since its last start
    losses: int  # times that this process found it unavailable, even if a retry succeeded


class Heartbeat(Protocol):
    @property
    def age(self) -> float:
        """Seconds since the database took the last beat."""
        ...

    def stop(self) -> None:
        """Waits for a beat that is under way."""
        ...


class Hints(Protocol):
    @property
    def is_listening(self) -> bool:
        """Whether hints arrive."""
        ...

    def send(self, to: str, hint: Hint) -> None:
        """To a member, or with an empty name to all runners. Returns at once; the hint may be lost, and so may events
        that are too long for it.
        """
        ...

    def listen(self, member: str) -> AsyncGenerator[Hint, None]:
        """For this member. Never ends. Starts with `all`, and again after each reconnection."""
        ...

    async def close(self) -> None: ...


class ClusterStore(Protocol):
    """All methods may raise `StoreUnavailable`."""

    hints: Hints
    queue: Queue

    def on_written(self, call: Callable[[NewEvents], None]) -> None:
        """Calls it after each commit of events."""
        ...

    async def figures(self) -> Figures: ...

    # --- members ------------------------------------------------------------------------------------

    async def join(self, member: Member) -> None: ...

    async def volume_mark(self, name: str, mark: str) -> str:
        """The mark of this volume. If it has none yet, it is this one, unless that is empty."""
        ...

    def beat(self, id: str, seconds: float, turns: Callable[[], bool], missed: Callable[[], None]) -> Heartbeat:
        """From a thread of its own, while `turns` is true. `missed` is called there if the member was removed."""
        ...

    async def leave(self, id: str) -> None: ...

    async def set_member(self, id: str, *, is_draining: bool | None = None, busy: int | None = None) -> bool:
        """None leaves it as it is. False: there is no such member."""
        ...

    async def take_over(
        self, id: str, beat: int | None, begun: Callable[[str], bytes], server: str = ""
    ) -> list[RunRecord] | None:
        """Removes the member if its beat is still this one; with None, if it is no member. Returns its running runs,
        claimed for the caller: their epochs are raised. None: it is alive after all, or the database is no longer this
        `server` (`Figures.server`), so the member may not have been able to send its beat. A run that should be
        resumed, and that a live runner can resume, is not among them: it waits for that runner as a command
        (`Claim.resumption`), once, for a few minutes. `begun` builds the outcome of a command whose run has begun, from
        the run's id.
        """
        ...

    async def resume_run(self, claim: Claim, instance: str) -> RunRecord | None:
        """Gives a run that waits to be resumed to the member that has claimed its command: with a new epoch. None: the
        claim does not hold any more, or the run has ended."""
        ...

    # --- commands -----------------------------------------------------------------------------------

    async def submit(self, new: NewCommand, max_active: int) -> Submitted | Alike | OverLimit | Full:
        """`max_active` is how many runs of its owner may be active; 0 is no limit."""
        ...

    async def claim(
        self,
        member: Member,
        *,
        has_room: bool,
        most: int,
        known: Collection[str],
        kept_for: Collection[str] | None = None,
        max_active: int = 0,
    ) -> list[ClaimedCommand]:
        """At most so many, without those that the caller knows it has. If there is no room, only commands that start no
        run. Commands that were claimed before but whose reply was lost are returned first, on their own. With
        `kept_for`, the place is for an owner that has none, as long as one of these or an API key in the database has
        none. Of the queue, at most one entry of each owner, if it has fewer active runs than `max_active` (0: no
        limit).
        """
        ...

    async def finish(self, id: str, epoch: int, outcome: bytes, failure: Failure | None = None) -> bool:
        """`failure`: why an entry of the queue was not started. False: another process has claimed it since."""
        ...

    async def release(self, id: str, epoch: int, target: str | None = None) -> None:
        """Gives a claim back: another runner may take the command, or only this one."""
        ...

    async def withdraw(self, id: str) -> bool:
        """False: it has been claimed."""
        ...

    async def outcomes(self, ids: Collection[str]) -> dict[str, Queued | CommandDone]: ...

    async def forget_old(self) -> None:
        """Removes commands that were done a while ago, resumptions that nobody took in time, and watchers of runs that
        have ended.
        """
        ...

    # --- runs ---------------------------------------------------------------------------------------

    async def heads(self, after: Mapping[str, int]) -> dict[str, LogHead]:
        """Of these runs, by the number of the last event that is known; one that is missing was deleted, or
        is unreadable, for example because a newer version wrote it.

        Those that have ended may come without events, which `Store.events` has.
        """
        ...

    async def waiting_calls(self, conversation_ids: Collection[str]) -> list[tuple[str, str]]:
        """Conversations whose runs wait, each with the id of a call that it waits for."""
        ...

    async def watch(self, watchers: Watchers) -> None: ...

    async def watchers(self, run_ids: Collection[str]) -> list[Watchers]: ...
