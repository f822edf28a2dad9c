"""What happened in a cluster, as values: what readers were shown, what is stored, which agents ran.

The times of agents are of one monotonic clock, which all processes of a machine share. Those of events are used for one
law only, that hints hasten. The order of the lists is the order in which their author saw things.
"""

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

State: TypeAlias = Literal["queued", "running", "waiting", "completed", "error"]

ACTIVE: frozenset[State] = frozenset({"queued", "running", "waiting"})


class Shown(Struct, frozen=True):
    """One event as a reader received it."""

    reader: str
    run: str
    number: int
    data: bytes
    at: float = 0.0  # seconds since 1970


class StoredEvent(Struct, frozen=True):
    number: int
    epoch: int  # of its writer
    data: bytes  # as readers are shown it; empty if they are not
    is_done: bool = False
    at: float = 0.0  # when its transaction committed, or nearly so


class Facts(Struct, frozen=True):
    """What can be known of a run in two ways: from its row, and from the fold of its events."""

    last: int
    tool_uses: int = 0
    text: str = ""


class StoredRun(Struct, frozen=True):
    """A run as the database has it in the end."""

    id: str
    conversation: str
    state: State
    epoch: int
    events: tuple[StoredEvent, ...]
    question: str = ""  # a word of its prompt, which is given to no other run but a retry
    agents: int = 1  # so many may be started for it: two if its client wants another when the runner is lost
    row: Facts | None = None
    folded: Facts | None = None


class Head(Struct, frozen=True):
    """The row of a run at one moment."""

    run: str
    conversation: str
    state: State
    epoch: int
    last: int


class Command(Struct, frozen=True):
    """The row of a command at one moment."""

    id: str
    epoch: int
    is_done: bool
    outcome: bytes | None = None


class Snapshot(Struct, frozen=True):
    """What one SELECT found."""

    heads: tuple[Head, ...]
    commands: tuple[Command, ...]


class Accepted(Struct, frozen=True):
    """A command to a run for which a client got a success. `effect` is what the agent then says, if it does."""

    run: str
    kind: Literal["cancel", "results"]
    effect: str = ""


class Takeover(Struct, frozen=True):
    """A run was taken from a member whose last beat the database got so many seconds ago.

    If the database has started since, the time before that does not count.
    """

    run: str
    member: str
    silence: float
    has_restarted: bool = False  # the database, since that beat


class Agent(Struct, frozen=True):
    """One start of the agent.

    `alone` says that no other process held the folder when it started: the kernel tells, by a lock that ends with its
    process. `end` is None for one that was killed.
    """

    folder: str
    question: str  # the word in its prompt
    pid: int
    begin: float
    end: float | None
    alone: bool
    prompt: str = ""


class History(Struct, frozen=True, kw_only=True):
    asked: tuple[str, ...] = ()  # runs that a client was told of
    accepted: tuple[Accepted, ...] = ()
    readers: tuple[tuple[str, str], ...] = ()  # each a reader and its run
    shown: tuple[Shown, ...] = ()
    finished: tuple[tuple[str, str], ...] = ()  # those readers that were told that there is no more
    refused: tuple[tuple[str, str, str], ...] = ()  # each a reader, its run, and an answer that it must never get
    snapshots: tuple[Snapshot, ...] = ()
    runs: tuple[StoredRun, ...] = ()
    unstarted: dict[str, str] = {}  # runs that were accepted but not started, and the codes of their errors
    agents: tuple[Agent, ...] = ()
    said: dict[str, str] = {}  # by question: all that its agent says if nothing ends it
    is_quiet: bool = False  # nothing was done to it
    takeovers: tuple[Takeover, ...] = ()
    lease: float = 0.0  # seconds
    ended: frozenset[int] = frozenset()  # processes of members that were killed or stopped
    left: frozenset[int] = frozenset()  # agents that were still there when every run had ended

    def write(self, file: Path) -> None:
        file.write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def read(cls, file: Path) -> "History":
        return msgspec.msgpack.decode(file.read_bytes(), type=cls)
