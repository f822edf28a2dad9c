"""What happened in a cluster, as values: what readers were shown, what is stored, which agents ran.

The times of agents are of one monotonic clock, which all processes of a machine share. Nothing else has a time: the
order of the lists is the order in which their author saw things.
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


class StoredEvent(Struct, frozen=True):
    number: int
    epoch: int  # of its writer
    data: bytes  # as readers are shown it; empty if they are not
    is_done: bool = False


class StoredRun(Struct, frozen=True):
    """A run as the database has it in the end."""

    id: str
    conversation: str
    state: State
    epoch: int
    events: tuple[StoredEvent, ...]


class Head(Struct, frozen=True):
    """The row of a run at one moment."""

    run: str
    conversation: str
    state: State
    epoch: int
    last: int


class Command(Struct, frozen=True):
    """The row of a command at one moment; `outcome` is None until it was executed."""

    run: str
    key: str
    kind: str
    outcome: str | None


class Snapshot(Struct, frozen=True):
    """What one SELECT found."""

    heads: tuple[Head, ...]
    commands: tuple[Command, ...]


class Accepted(Struct, frozen=True):
    """A command for which a client got a success."""

    run: str
    key: str
    kind: str


class Agent(Struct, frozen=True):
    """One start of the agent.

    `alone` says that no other process held the folder when it started: the kernel tells, by a lock that ends with its
    process. `end` is None for one that was killed.
    """

    folder: str
    question: str  # a word that occurs in one prompt only
    pid: int
    begin: float
    end: float | None
    alone: bool


class Asked(Struct, frozen=True):
    """A question for which a client got a run. `may_repeat` if it asked for another agent when the runner is lost."""

    question: str
    run: str
    may_repeat: bool = False


class History(Struct, frozen=True, kw_only=True):
    asked: tuple[Asked, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    shown: tuple[Shown, ...] = ()
    finished: tuple[tuple[str, str], ...] = ()  # each a reader and its run: the stream ended by itself
    snapshots: tuple[Snapshot, ...] = ()
    runs: tuple[StoredRun, ...] = ()
    agents: tuple[Agent, ...] = ()

    def write(self, file: Path) -> None:
        file.write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def read(cls, file: Path) -> "History":
        return msgspec.msgpack.decode(file.read_bytes(), type=cls)
