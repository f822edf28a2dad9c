"""A pool of running agents: find an idle one for a turn, start another, or share one with other turns.

Agents are started on demand or in advance (`warm_up`). They end when they have been idle for a while, when they stop
answering, and after a number of turns. A dead agent is removed at once, and the next request gets another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Set
from functools import partial
from typing import Any

from msgspec import Struct

from cursor_gateway.errors import AgentTimedOut, ShuttingDown
from cursor_gateway.sources.acp.connection import AgentConnection

_MOST_SESSIONS = 10_000  # whose slots are remembered


class PoolOptions(Struct, frozen=True, kw_only=True):
    max_processes: int = 4
    max_sessions: int = 16  # concurrent, per process
    max_turns: int = 500  # per process: the agent never unloads a session, so it grows
    idle_seconds: float = 600.0
    health_seconds: float = 60.0  # between health checks of an idle agent
    answer_seconds: float = 10.0  # for a health check
    place_seconds: float = 30.0  # to wait for a free place


Start = Callable[[str, int], Awaitable[AgentConnection]]
"""A workspace and the number of a configuration."""


class Member:
    """One agent, perhaps still starting."""

    def __init__(self, workspace: str, slot: int, starting: "asyncio.Task[AgentConnection]", now: float) -> None:
        self.workspace, self.slot, self.starting = workspace, slot, starting
        self.connection: AgentConnection | None = None
        self.active = 0
        self.turns = 0
        self.used_at = self.checked_at = now
        self.is_retired = False  # accepts no new turns

    def has_loaded(self, session_ids: Set[str]) -> bool:
        return self.connection is not None and not session_ids.isdisjoint(self.connection.sessions)


class Place(Struct, frozen=True):
    """A place in an agent; `release` must be awaited."""

    connection: AgentConnection
    workspace: str  # of its turn
    # Called with whether the agent is stuck. None: unknown, because the turn was cancelled before the agent answered.
    release: Callable[[bool | None], Coroutine[Any, Any, None]]
    slot: int = -1


class Pool:
    def __init__(self, start: Start, options: PoolOptions) -> None:
        self._start, self._options = start, options
        self._members: list[Member] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()  # replaced after each change
        self._maintenance: asyncio.Task[None] | None = None
        self._is_closed = False
        self._slots: dict[str, int] = {}  # session -> slot

    @property
    def pids(self) -> list[int]:
        return [member.connection.pid for member in self._members if member.connection is not None]

    async def place(self, workspace: str, session_id: str | None) -> Place:
        """Raises what the start of an agent raises, `AgentTimedOut` when none is free, `ShuttingDown`."""
        member = await self._free_member(workspace, session_id)
        member.active += 1
        member.turns += 1
        try:
            await asyncio.wait([member.starting])  # the start continues even if this caller is cancelled
            if member.starting.cancelled():
                raise _shutting_down()
            connection = member.starting.result()
            return Place(connection, member.workspace, partial(self._release, member, connection), member.slot)
        except BaseException:
            member.active -= 1
            self._wake()
            raise

    def warm_up(self, workspace: str) -> None:
        """Starts an agent in advance, so that the first request need not wait."""
        if not self._is_closed and not self._of(workspace) and len(self._members) < self._options.max_processes:
            self._add(workspace, None, None)

    def remember(self, session_id: str, slot: int) -> None:
        """The slot of a session, also after its agent has ended."""
        self._slots[session_id] = slot
        if len(self._slots) > _MOST_SESSIONS:
            del self._slots[next(iter(self._slots))]

    async def _release(self, member: Member, connection: AgentConnection, is_stuck: bool | None) -> None:
        member.active -= 1
        member.used_at = self._now()
        if is_stuck is None:
            is_stuck = not await connection.is_responsive(self._options.answer_seconds)
        else:
            member.checked_at = member.used_at
        try:
            if is_stuck:
                member.is_retired = True
                if member.active and await connection.is_responsive(self._options.answer_seconds):
                    return  # other turns are still running; the last of them ends it
                await self._end(member)
            elif (member.is_retired or member.turns >= self._options.max_turns) and not member.active:
                await self._end(member)
        finally:
            self._wake()

    async def forget(self, session_ids: Set[str]) -> None:
        """Ends the agents that have loaded one of these sessions, once their other turns are over."""
        for id in session_ids:
            self._slots.pop(id, None)
        if ending := set(self._tasks):  # agents that are ending may still write
            await asyncio.wait(ending)
        for member in [member for member in self._members if member.has_loaded(session_ids)]:
            member.is_retired = True
            while member.active and not self._is_closed:
                await self._changed.wait()
            await self._end(member)

    async def close(self) -> None:
        self._is_closed = True
        if self._maintenance is not None:
            self._maintenance.cancel()
            await asyncio.wait([self._maintenance])
        for member in self._members:
            member.starting.cancel()
        await asyncio.gather(*(self._end(member) for member in list(self._members)))
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._wake()

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs work to its end, even if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- choosing -----------------------------------------------------------------------------------

    async def _free_member(self, workspace: str, session_id: str | None) -> Member:
        try:
            async with asyncio.timeout(self._options.place_seconds):
                while not self._is_closed:
                    if (member := self._choose(workspace, session_id)) is not None:
                        return member
                    await self._changed.wait()
        except TimeoutError:
            raise AgentTimedOut(
                f"All agents are busy, and none became free within {self._options.place_seconds:g} s; "
                "retry later, or raise `max_agents`."
            ) from None
        raise _shutting_down()

    def _choose(self, workspace: str, session_id: str | None) -> Member | None:
        mine = self._of(workspace)
        slot = self._slots.get(session_id or "")
        if slot is not None:
            home = next((member for member in self._members if member.slot == slot), None)
            if home is not None and home in mine:
                return home if home.active < self._options.max_sessions else None
            if home is None and len(self._members) < self._options.max_processes:
                return self._add(workspace, slot, None)
        least = min(mine, key=lambda member: member.active, default=None)
        if least is not None and not least.active:
            return least
        if len(self._members) < self._options.max_processes:  # a separate process, while there is room
            return self._add(workspace, None, None)
        if least is not None and least.active < self._options.max_sessions:
            return least
        idle = [member for member in self._members if not member.active and member.connection is not None]
        if not mine and idle:
            return self._add(workspace, None, min(idle, key=lambda member: member.used_at))
        return None

    def _of(self, workspace: str) -> list[Member]:
        return [
            member
            for member in self._members
            if member.workspace == workspace and not member.is_retired and member.turns < self._options.max_turns
        ]

    def _add(self, workspace: str, slot: int | None, replaced: Member | None) -> Member:
        if replaced is not None:
            self._members.remove(replaced)
        taken = {member.slot for member in self._members}
        if slot is None:
            slot = next(number for number in range(len(taken) + 1) if number not in taken)
        task = asyncio.get_running_loop().create_task(self._start_member(workspace, slot, replaced), name="acp start")
        member = Member(workspace, slot, task, self._now())
        self._members.append(member)
        task.add_done_callback(lambda task: self._started(member, task))
        if self._maintenance is None:
            self._maintenance = asyncio.get_running_loop().create_task(self._maintain(), name="acp pool")
        return member

    async def _start_member(self, workspace: str, slot: int, replaced: Member | None) -> AgentConnection:
        if replaced is not None and replaced.connection is not None:
            await replaced.connection.end()
        return await self._start(workspace, slot)

    def _started(self, member: Member, task: "asyncio.Task[AgentConnection]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._forget(member)
        else:
            member.connection = task.result()
            member.connection.on_gone = lambda: self._gone(member)
            if member.connection.is_gone:
                self._gone(member)
        self._wake()

    # --- ending -------------------------------------------------------------------------------------

    def _gone(self, member: Member) -> None:
        """The agent died. Its turns get an error from the connection."""
        if member in self._members:
            self._end_in_background(member)

    def _forget(self, member: Member) -> None:
        if member in self._members:
            self._members.remove(member)
        self._wake()

    def _end_in_background(self, member: Member) -> None:
        self._forget(member)
        self.run_in_background(self._end(member))

    async def _end(self, member: Member) -> None:
        self._forget(member)
        await asyncio.wait([member.starting])
        if member.connection is not None:
            await member.connection.end()

    async def _maintain(self) -> None:
        """Ends agents that are idle for too long or do not answer."""
        options = self._options
        while True:
            await asyncio.sleep(min(options.idle_seconds, options.health_seconds) / 2)
            now = self._now()
            for member in list(self._members):
                if member.active or member.connection is None:
                    continue
                if now - member.used_at >= options.idle_seconds:
                    self._end_in_background(member)
                elif now - member.checked_at >= options.health_seconds:
                    member.checked_at = now
                    self.run_in_background(self._check_health(member, member.connection))

    async def _check_health(self, member: Member, connection: AgentConnection) -> None:
        if not await connection.is_responsive(self._options.answer_seconds) and not member.active:
            await self._end(member)

    # ------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("The gateway is shutting down; retry when it is back.")
