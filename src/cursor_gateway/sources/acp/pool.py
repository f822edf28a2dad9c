"""A workspace in; a place at an agent that is alive, out: at one that waits, at a new one, or at one with others.

Agents are started when they are first needed, or before (`warm_up`); they end when nobody has needed them for a while,
and when they no longer answer. One that died is forgotten at once: the next request gets another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Set
from typing import Any

from msgspec import Struct

from cursor_gateway.errors import AgentTimedOut, ShuttingDown
from cursor_gateway.sources.acp.connection import AgentConnection

_MOST_SESSIONS = 10_000  # whose places are remembered
_LOOK_SECONDS = 1.0  # at agents that are to end when nobody works there any more


class PoolOptions(Struct, frozen=True, kw_only=True):
    max_processes: int = 4
    max_sessions: int = 16  # at once in one process
    max_turns: int = 500  # in one process: the agent forgets no session, so it grows
    idle_seconds: float = 600.0
    health_seconds: float = 60.0  # between two looks at one that nobody uses
    answer_seconds: float = 10.0  # for what is answered at once
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
        self.used_at = self.looked_at = now
        self.is_retired = False  # takes nobody any more

    def has_loaded(self, session_ids: Set[str]) -> bool:
        return self.connection is not None and not session_ids.isdisjoint(self.connection.sessions)


class Place:
    """At an agent; `leave` must be awaited."""

    def __init__(self, pool: "Pool", member: Member, connection: AgentConnection) -> None:
        self._pool, self._member = pool, member
        self.connection, self.workspace = connection, member.workspace

    async def leave(self, is_stuck: bool, is_doubtful: bool = False) -> None:
        """`is_doubtful`: who was here has not waited for an answer, and there may be none."""
        await self._pool.leave(self._member, self.connection, is_stuck, is_doubtful)

    def hosts(self, session_id: str) -> None:
        """Where this session is to be found, also after the agent's end."""
        slots = self._pool.slots
        slots[session_id] = self._member.slot
        if len(slots) > _MOST_SESSIONS:
            del slots[next(iter(slots))]


class Pool:
    def __init__(self, start: Start, options: PoolOptions) -> None:
        self._start, self._options = start, options
        self._members: list[Member] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wakers: set[asyncio.Future[None]] = set()
        self._tending: asyncio.Task[None] | None = None
        self._is_closed = False
        self.slots: dict[str, int] = {}  # of sessions

    @property
    def pids(self) -> list[int]:
        return [member.connection.pid for member in self._members if member.connection is not None]

    async def place(self, workspace: str, session_id: str | None) -> Place:
        """Raises what the start of an agent raises, `AgentTimedOut` when none is free, `ShuttingDown`."""
        member = await self._free_member(workspace, session_id)
        member.active += 1
        member.turns += 1
        try:
            await asyncio.wait([member.starting])  # its start goes on if who waits is cancelled
            if member.starting.cancelled():
                raise _shutting_down()
            return Place(self, member, member.starting.result())
        except BaseException:
            member.active -= 1
            self._wake()
            raise

    def warm_up(self, workspace: str) -> None:
        """Starts an agent that the first request need not wait for."""
        if not self._is_closed and not self._of(workspace) and len(self._members) < self._options.max_processes:
            self._add(workspace, None, None)

    async def leave(self, member: Member, connection: AgentConnection, is_stuck: bool, is_doubtful: bool) -> None:
        member.active -= 1
        member.used_at = self._now()
        if not is_doubtful:
            member.looked_at = member.used_at
        elif not await connection.is_well(self._options.answer_seconds):
            is_stuck = True
        try:
            if is_stuck:
                member.is_retired = True
                if member.active and await connection.is_well(self._options.answer_seconds):
                    return  # others still work there; the last of them ends it
                await self._end(member)
            elif (member.is_retired or member.turns >= self._options.max_turns) and not member.active:
                await self._end(member)
        finally:
            self._wake()

    async def forget(self, session_ids: Set[str]) -> None:
        """Ends the agents that have loaded one of these, as soon as nobody else works there."""
        for id in session_ids:
            self.slots.pop(id, None)
        if ending := set(self._tasks):  # agents that are about to end may still write
            await asyncio.wait(ending)
        for member in [member for member in self._members if member.has_loaded(session_ids)]:
            member.is_retired = True
            while member.active and not self._is_closed:
                await self._change(_LOOK_SECONDS)
            await self._end(member)

    async def close(self) -> None:
        self._is_closed = True
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait([self._tending])
        for member in self._members:
            member.starting.cancel()
        await asyncio.gather(*(self._end(member) for member in list(self._members)))
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._wake()

    def do(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """What must be done to its end, whoever has gone meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- choosing -----------------------------------------------------------------------------------

    async def _free_member(self, workspace: str, session_id: str | None) -> Member:
        deadline = self._now() + self._options.place_seconds
        while True:
            if self._is_closed:
                raise _shutting_down()
            member = self._choose(workspace, session_id)
            if member is not None:
                return member
            left = deadline - self._now()
            if left <= 0:
                raise AgentTimedOut(
                    f"All agents are busy, and none had a place within {self._options.place_seconds:g} s; "
                    "try again in a while, or raise the number of processes or of their sessions."
                )
            await self._change(left)

    def _choose(self, workspace: str, session_id: str | None) -> Member | None:
        mine = self._of(workspace)
        slot = self.slots.get(session_id) if session_id is not None else None
        if slot is not None:
            home = next((member for member in self._members if member.slot == slot), None)
            if home in mine and home is not None:
                return home if home.active < self._options.max_sessions else None
            if home is None and len(self._members) < self._options.max_processes:
                return self._add(workspace, slot, None)
        least = min(mine, key=lambda member: member.active, default=None)
        if least is not None and not least.active:
            return least
        if len(self._members) < self._options.max_processes:  # apart from others, while there is room
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

    def _add(self, workspace: str, slot: int | None, fallback_for: Member | None) -> Member:
        if fallback_for is not None:
            self._members.remove(fallback_for)
        taken = {member.slot for member in self._members}
        if slot is None:
            slot = next(number for number in range(len(taken) + 1) if number not in taken)
        begun = asyncio.get_running_loop().create_task(self._begin(workspace, slot, fallback_for), name="acp start")
        member = Member(workspace, slot, begun, self._now())
        self._members.append(member)
        begun.add_done_callback(lambda task: self._begun(member, task))
        if self._tending is None:
            self._tending = asyncio.get_running_loop().create_task(self._tend(), name="acp pool")
        return member

    async def _begin(self, workspace: str, slot: int, fallback_for: Member | None) -> AgentConnection:
        if fallback_for is not None and fallback_for.connection is not None:
            await fallback_for.connection.end()
        return await self._start(workspace, slot)

    def _begun(self, member: Member, task: "asyncio.Task[AgentConnection]") -> None:
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
        """It died. Its turns hear that from the connection."""
        if member in self._members:
            self._forget(member)
            if member.connection is not None:
                self.do(member.connection.end())

    def _forget(self, member: Member) -> None:
        if member in self._members:
            self._members.remove(member)
        self._wake()

    async def _end(self, member: Member) -> None:
        if member in self._members:
            self._members.remove(member)
        await asyncio.wait([member.starting])
        if member.connection is not None:
            await member.connection.end()

    async def _tend(self) -> None:
        """Ends who is not needed any more, and who does not answer."""
        options = self._options
        while True:
            await asyncio.sleep(min(options.idle_seconds, options.health_seconds) / 2)
            now = self._now()
            for member in list(self._members):
                if member.active or member.connection is None:
                    continue
                if now - member.used_at >= options.idle_seconds:
                    self._forget(member)
                    self.do(self._end(member))
                elif now - member.looked_at >= options.health_seconds:
                    member.looked_at = now
                    self.do(self._look_at(member, member.connection))

    async def _look_at(self, member: Member, connection: AgentConnection) -> None:
        if not await connection.is_well(self._options.answer_seconds) and not member.active:
            await self._end(member)
            self._wake()

    # ------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _change(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wakers.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._wakers.discard(future)

    def _wake(self) -> None:
        for future in self._wakers:
            if not future.done():
                future.set_result(None)


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("The gateway is about to stop; ask again when it is back.")
