"""Requests that wait in a store to be started: the values, the protocol of the queue, and its order.

An entry has the id of the run that it becomes. It is claimed by the process that starts it, which increments its epoch,
and the run begins in the transaction that ends the entry (`store.base.Claim`), so it begins at most once. The entry of
a process that died before that waits again.

    waiting ──claim──▶ claimed ──begin_run──▶ gone: the run exists
      ▲ │                │ │
      │ └─cancel, expire─┼─┴─fail──▶ failed: says why, for a day
      └────── release ───┘
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.errors import Failure
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.requests import Fences, Include
from cursor_gateway.store.base import Milliseconds

KEPT_SECONDS = 24 * 3600  # an entry that failed
LAST = "\x7f"  # after all other characters of ASCII
MOST_BYTES = 256 * 1024 * 1024  # of one owner's entries that wait; the last of them may exceed it

EntryState: TypeAlias = Literal["waiting", "claimed", "failed"]


class About(Struct, frozen=True, kw_only=True):
    """What is shown of a run before it begins."""

    created: str  # ISO 8601, UTC
    model: str
    mode: Mode
    fences: Fences
    include: frozenset[Include] = frozenset()
    prompt: str  # its first line


class NewEntry(Struct, frozen=True, kw_only=True):
    run_id: str
    owner: str
    conversation_id: str = ""  # that it continues, or begins; empty: it is found when the run begins
    key: str | None = None  # two entries with the same one cannot wait at the same time
    body_hash: str = ""
    priority: int = 0
    run_at_ms: int | None = None  # None: as soon as possible
    ttl_ms: int  # after that time it fails
    most: int  # entries of the owner that may wait
    about: About
    kept: bytes = b""  # for its dialect; see `Store.keep_request`
    body: bytes


class Entry(Struct, frozen=True, kw_only=True):
    run_id: str
    owner: str
    conversation_id: str
    key: str | None = None
    body_hash: str
    priority: int
    state: EntryState
    created_ms: Milliseconds
    due_ms: Milliseconds  # since when it waits, or when it is to start
    expires_ms: Milliseconds
    age_seconds: float  # since it is due; below 0: it is not yet
    about: About
    failure: Failure | None = None

    @property
    def is_scheduled(self) -> bool:
        return self.due_ms > self.created_ms


class NamedWork(Struct, frozen=True, kw_only=True):
    """An entry, or an active run, with its idempotency key."""

    owner: str
    key: str
    run_id: str
    state: EntryState | Literal["running"]
    body_hash: str


class ClaimedEntry(Struct, frozen=True):
    run_id: str
    epoch: int
    body: bytes


class Put(Struct, frozen=True):
    """The entry is stored."""


class Begun(Struct, frozen=True):
    """The same request has started a run since that was last checked; nothing was stored."""


class Full(Struct, frozen=True):
    """The owner has as many entries as it may, or as large ones; nothing was stored."""


class Candidate(Struct, frozen=True, kw_only=True):
    """An entry that waits and is due."""

    run_id: str
    owner: str
    priority: int
    due_ms: int


class QueueFigures(Struct, frozen=True):
    length: int = 0  # entries that are due
    age_seconds: float = 0.0  # of the oldest of them
    next_seconds: float | None = None  # until the next one is due; None: there is none


class Queue(Protocol):
    """What is the same on one machine and in a cluster. All methods may raise `StoreUnavailable`."""

    async def entry(self, run_id: str, owner: str) -> Entry | None:
        """None: there is none, or its run has begun."""
        ...

    async def kept_request(self, run_id: str, owner: str) -> bytes | None:
        """What its dialect keeps. Entries are without it: it is as large as the request."""
        ...

    async def entry_of_key(self, owner: str, key: str) -> Entry | None:
        """The one that waits, or has been claimed."""
        ...

    async def entries(self, owner: str | None, limit: int) -> list[Entry]:
        """One owner's, or all, that wait or have been claimed: first those that are due, by `order`."""
        ...

    async def named(self, beginning: str) -> list[NamedWork]:
        """All whose keys begin with that, in ASCII; also entries that failed."""
        ...

    async def is_awaited(self, owner: str, conversation_id: str) -> bool:
        """Whether an entry for this conversation is due."""
        ...

    async def position(self, run_id: str) -> int | None:
        """Its place among all that are due, from 1. None: it is not due, or does not wait."""
        ...

    async def cancel(self, run_id: str, owner: str, why: Failure) -> bool:
        """False: it does not wait."""
        ...

    async def forget(self, run_id: str, owner: str) -> bool:
        """Removes it, whatever its state is. False: there is none."""
        ...

    async def expire(self, why: Failure) -> int:
        """Fails those whose time is over. Returns their number. Removes those that failed long ago."""
        ...


class LocalQueue(Queue, Protocol):
    """The queue of a store that processes of one machine share. A cluster claims entries with its commands."""

    async def put(self, new: NewEntry) -> Put | Entry | Begun | Full:
        """An `Entry`: one with the same key waits already."""
        ...

    async def queue_figures(self) -> QueueFigures: ...

    async def candidates(self) -> list[Candidate]:
        """The first of each owner whose conversation is idle."""
        ...

    async def claim_entry(self, owner: str, instance: str) -> ClaimedEntry | None:
        """The first of this owner whose conversation is idle."""
        ...

    async def release(self, run_id: str, epoch: int) -> None:
        """Gives a claim back: it waits again."""
        ...

    async def fail(self, run_id: str, epoch: int, why: Failure) -> None:
        """Ends a claimed entry."""
        ...

    async def release_of(self, instances: Collection[str]) -> int:
        """Gives back what these processes have claimed; they have died. Returns the number of entries."""
        ...

    async def claimants(self) -> list[str]:
        """The processes that have claimed entries whose runs have not begun."""
        ...


def order(candidates: Sequence[Candidate], held: Mapping[str, int]) -> list[str]:
    """The ids of the runs in the order in which they get slots while no run ends: by priority, then to the owner that
    holds the fewest slots, then by age. `held` is how many slots each owner has now."""
    queues: dict[str, list[tuple[int, int, int, str]]] = {}
    for place, one in enumerate(candidates):
        queues.setdefault(one.owner, []).append((-one.priority, one.due_ms, place, one.run_id))
    heads = []
    for owner, queue in queues.items():
        queue.sort(reverse=True)
        heads.append(_head(queue, held.get(owner, 0), owner))
    heapq.heapify(heads)
    ordered = []
    while heads:
        _, places, _, _, run_id, owner = heapq.heappop(heads)
        ordered.append(run_id)
        if queues[owner]:
            heapq.heappush(heads, _head(queues[owner], places + 1, owner))
    return ordered


def _head(queue: list[tuple[int, int, int, str]], places: int, owner: str) -> tuple[int, int, int, int, str, str]:
    urgency, due_ms, place, run_id = queue.pop()
    return urgency, places, due_ms, place, run_id, owner


_encoder = msgspec.msgpack.Encoder()
_abouts = msgspec.msgpack.Decoder(About)
_failures = msgspec.msgpack.Decoder(Failure)


def encode_about(about: About) -> bytes:
    return _encoder.encode(about)


def about_of(data: bytes) -> About:
    decoded: About = _abouts.decode(data)
    return decoded


def encode_failure(failure: Failure) -> bytes:
    return _encoder.encode(failure)


def failure_of(data: bytes) -> Failure:
    decoded: Failure = _failures.decode(data)
    return decoded
