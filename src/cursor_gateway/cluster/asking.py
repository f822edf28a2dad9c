"""A command in; its outcome out, from whichever runner takes it.

The row is authoritative; hints only speed things up. Every second, one statement checks all open commands. A command
that no runner takes in time is withdrawn. If its runner dies, another one takes it, which the waiting caller does not
notice.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from secrets import token_hex

from cursor_gateway.cluster.commands import CommandOutcome, outcome_in, outcome_of
from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store.cluster import (
    Alike,
    ClusterStore,
    CommandDone,
    Hint,
    NewCommand,
    OverLimit,
    Queued,
    Submitted,
)
from cursor_gateway.store.queue import Full

_LOOK_SECONDS = 1.0
_FIRST_SECONDS = 0.1  # until all runners are hinted, not only the first
_LONGEST_SECONDS = 4 * 3600.0  # for one outcome: a request may wait for another run of its conversation
_AWAY_SECONDS = 30.0  # without the database, after which the client gets an error


class Withdrawn(Exception):
    """No runner has taken the command in time."""


class Asking:
    def __init__(self, cluster: ClusterStore) -> None:
        self._cluster = cluster
        self._waiting: dict[str, asyncio.Future[CommandDone]] = {}
        self._claimed: set[str] = set()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._away_since: float | None = None
        self.commands, self.seconds = 0, 0.0  # that have their outcomes, and the time that they took

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name="outcomes")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def look(self) -> None:
        self._wanted.set()

    def hinted(self, outcomes: Iterable[str]) -> None:
        """Most hints have the outcome with them."""
        for id, outcome in map(outcome_in, outcomes):
            if outcome is not None:
                self._note(id, CommandDone(outcome))
            elif id in self._waiting:
                self.look()

    async def ask(
        self, command: NewCommand, queue_seconds: float, max_active: int = 0, first: str = ""
    ) -> CommandOutcome | OverLimit | Alike:
        """If a runner is given, only that one is hinted at first: if each request woke all runners, a hundred of them
        would cost a hundred times as much as one. Raises `Withdrawn`, or `StoreUnavailable` if the database stays
        unavailable. `Alike`: the same request is in the queue.
        """
        submitted = await self._submitted(command, max_active)
        if not isinstance(submitted, Submitted):
            assert not isinstance(submitted, Full)
            return submitted
        loop = asyncio.get_running_loop()
        self._cluster.hints.send(command.target or first, Hint("queue"))
        then_all = loop.call_later(_FIRST_SECONDS, self._cluster.hints.send, "", Hint("queue")) if first else None
        began = loop.time()
        try:
            done = await self._wait(command.id, queue_seconds)
        finally:
            if then_all is not None:
                then_all.cancel()
        self.commands += 1
        self.seconds += loop.time() - began
        if done.outcome is None:
            raise Withdrawn
        return outcome_of(done.outcome)

    async def queue(
        self, command: NewCommand, seconds: float, first: str = ""
    ) -> CommandOutcome | CommandDone | Alike | Full | None:
        """Adds an entry to the queue, and waits for its outcome for a moment, because it may start at once. None: it
        waits; `CommandDone`: it was cancelled."""
        match await self._submitted(command, 0):
            case Submitted():
                pass
            case OverLimit():
                raise AssertionError("the queue limits active runs by itself")
            case Alike() | Full() as refused:
                return refused
        self._cluster.hints.send(first, Hint("queue"))
        if not seconds:
            return None
        try:
            async with asyncio.timeout(seconds):
                done = await self._wait(command.id, None)
        except TimeoutError:
            self._waiting.pop(command.id, None)
            self._claimed.discard(command.id)
            return None
        return done if done.outcome is None else outcome_of(done.outcome)

    async def _submitted(self, command: NewCommand, max_active: int) -> Submitted | OverLimit | Alike | Full:
        """After all that are like it, except one in the queue: that may take hours."""
        while True:
            match await self._cluster.submit(command, max_active):
                case Alike(id=id, entry="") if id:
                    await self._wait(id, None)
                case Submitted() | OverLimit() | Alike() | Full() as submitted:
                    return submitted

    async def _wait(self, id: str, queue_seconds: float | None) -> CommandDone:
        """With a limit for the time until it is claimed."""
        loop = asyncio.get_running_loop()
        done = self._waiting.get(id)
        if done is None:
            done = self._waiting[id] = loop.create_future()
        began = loop.time()
        until = None if queue_seconds is None else began + queue_seconds
        while not done.done():
            is_late = until is not None and loop.time() >= until and id not in self._claimed
            if is_late and await self._cluster.withdraw(id):
                self._note(id, CommandDone(None))
                break
            self._check_database(loop.time())
            if loop.time() - began > _LONGEST_SECONDS:
                raise StoreUnavailable("No runner has carried out the request in time; see `cursor-gateway runners`.")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await asyncio.shield(done)
        return done.result()

    def _check_database(self, now: float) -> None:
        if self._away_since is not None and now - self._away_since > _AWAY_SECONDS:
            raise StoreUnavailable("The database did not answer in time; the request may still be carried out.")

    async def _work(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wanted.wait()
            self._wanted.clear()
            if not self._waiting:
                self._away_since = None
                continue
            try:
                found = await self._cluster.outcomes(list(self._waiting))
            except StoreUnavailable:
                if self._away_since is None:
                    self._away_since = asyncio.get_running_loop().time()
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            self._away_since = None
            for id, state in found.items():
                self._note(id, state)

    def _note(self, id: str, state: Queued | CommandDone) -> None:
        match state:
            case CommandDone():
                self._claimed.discard(id)
                waiting = self._waiting.pop(id, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(state)
            case Queued(is_claimed=True):
                self._claimed.add(id)
            case Queued():
                self._claimed.discard(id)


def new_command_id() -> str:
    return f"cmd_{token_hex(16)}"
