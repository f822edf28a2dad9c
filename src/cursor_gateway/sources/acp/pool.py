"""A pool of running agents: find an idle one for a turn, start another, or share one with other turns.

Agents are started on demand or in advance (`warm_up`). They end when they have been idle for a while, when they stop
answering, and after a number of turns. A dead agent is removed at once, and the next request gets another.

Each agent serves one model: the agent applies a choice of model to all its sessions, and remembers it. An agent all of
whose turns wait for people, perhaps for a day, does not count as one of `max_processes`: else as many questions
would lock out every other model. The number of runs that may wait is limited elsewhere (`runs/admission.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Set
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from cursor_gateway.errors import AgentTimedOut, ShuttingDown
from cursor_gateway.sources.acp.connection import AgentConnection

_MOST_SESSIONS = 10_000  # whose slots are remembered
_LOOK_SECONDS = 1.0  # between two looks whether agents wait now


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


class PooledAgent:
    """One agent, perhaps still starting."""

    def __init__(self, workspace: str, slot: int, starting: "asyncio.Task[AgentConnection]", now: float) -> None:
        self.workspace, self.slot, self.starting = workspace, slot, starting
        self.model: str | None = None  # None: not chosen yet
        self.connection: AgentConnection | None = None
        self.active = 0
        self.waits: list[Callable[[], bool]] = []  # of each active turn, whether it waits for a person
        self.turns = 0
        self.used_at = self.checked_at = now
        self.is_retired = False  # accepts no new turns

    @property
    def only_waits(self) -> bool:
        return bool(self.waits) and all(is_waiting() for is_waiting in self.waits)

    def has_loaded(self, session_ids: Set[str]) -> bool:
        return self.connection is not None and not session_ids.isdisjoint(self.connection.sessions)

    def has_prepared(self, wanted: Hashable) -> bool:
        return self.connection is not None and wanted in self.connection.prepared


class PoolPlace(Struct, frozen=True):
    """A place in an agent; `release` must be awaited."""

    connection: AgentConnection
    workspace: str  # of its turn
    # Called with whether the agent is stuck. None: unknown, because the turn was cancelled before the agent answered.
    release: Callable[[bool | None], Coroutine[Any, Any, None]]
    slot: int = -1


class Pool:
    def __init__(self, start: Start, options: PoolOptions) -> None:
        self._start, self._options = start, options
        self._members: list[PooledAgent] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()  # replaced after each change
        self._maintenance: asyncio.Task[None] | None = None
        self._is_closed = False
        self._slots: dict[str, int] = {}  # session -> slot

    @property
    def pids(self) -> list[int]:
        return [member.connection.pid for member in self._members if member.connection is not None]

    async def place(
        self,
        workspace: str,
        model: str,
        session_id: str | None,
        is_waiting: Callable[[], bool],
        prepared: Hashable = None,
    ) -> PoolPlace:
        """In the agent with the session; otherwise, if there is a choice, in one with such a prepared session.

        Raises what the start of an agent raises, `AgentTimedOut` when none is free, `ShuttingDown`.
        """
        member = await self._free_member(workspace, model, session_id, prepared)
        member.model = model
        member.active += 1
        member.waits.append(is_waiting)
        member.turns += 1
        try:
            await asyncio.wait([member.starting])  # the start continues even if this caller is cancelled
            if member.starting.cancelled():
                raise _shutting_down()
            connection = member.starting.result()
            return PoolPlace(
                connection, member.workspace, partial(self._release, member, connection, is_waiting), member.slot
            )
        except BaseException:
            member.active -= 1
            member.waits.remove(is_waiting)
            self._wake()
            raise

    def warm_up(self, workspace: str) -> None:
        """Starts an agent in advance, so that the first request need not wait."""
        has_one = any(member.workspace == workspace and not member.is_retired for member in self._members)
        if not self._is_closed and not has_one and len(self._members) < self._options.max_processes:
            self._add(workspace, None, None)

    def remember(self, session_id: str, slot: int) -> None:
        """The slot of a session, also after its agent has ended."""
        self._slots[session_id] = slot
        if len(self._slots) > _MOST_SESSIONS:
            del self._slots[next(iter(self._slots))]

    async def _release(
        self, member: PooledAgent, connection: AgentConnection, is_waiting: Callable[[], bool], is_stuck: bool | None
    ) -> None:
        member.active -= 1
        member.waits.remove(is_waiting)
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

    def run_in_background(self, work: Coroutine[Any, Any, object]) -> "asyncio.Task[object]":
        """Runs work to its end, even if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- choosing -----------------------------------------------------------------------------------

    async def _free_member(self, workspace: str, model: str, session_id: str | None, prepared: Hashable) -> PooledAgent:
        try:
            async with asyncio.timeout(self._options.place_seconds):
                while not self._is_closed:
                    if (member := self._choose(workspace, model, session_id, prepared)) is not None:
                        return member
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_SECONDS):
                            await self._changed.wait()
        except TimeoutError:
            raise AgentTimedOut(
                f"All agents are busy, and none became free within {self._options.place_seconds:g} s; "
                "retry later, or raise `max_agents`."
            ) from None
        raise _shutting_down()

    def _choose(self, workspace: str, model: str, session_id: str | None, prepared: Hashable) -> PooledAgent | None:
        mine = self._of(workspace, model)
        has_room = sum(not member.only_waits for member in self._members) < self._options.max_processes
        slot = self._slots.get(session_id or "")
        if slot is not None:
            home = next((member for member in self._members if member.slot == slot), None)
            if home is not None and home in mine:
                return home if home.active < self._options.max_sessions else None
            if home is None and has_room:
                return self._add(workspace, slot, None)
            if home is not None and home.workspace == workspace and _is_idle(home):  # another model is chosen now
                return self._add(workspace, slot, home)
        least = min(mine, key=lambda one: (one.active, not one.has_prepared(prepared), one.model is None), default=None)
        if least is not None and not least.active:
            return least
        if has_room:  # a separate process, while there is room
            return self._add(workspace, None, None)
        if least is not None and least.active < self._options.max_sessions:
            return least
        idle = [member for member in self._members if _is_idle(member)]
        if not mine and idle:
            return self._add(workspace, None, min(idle, key=lambda member: member.used_at))
        return None

    def _of(self, workspace: str, model: str) -> list[PooledAgent]:
        return [
            member
            for member in self._members
            if member.workspace == workspace
            and member.model in (model, None)
            and not member.is_retired
            and member.turns < self._options.max_turns
        ]

    def _add(self, workspace: str, slot: int | None, replaced: PooledAgent | None) -> PooledAgent:
        if replaced is not None:
            self._members.remove(replaced)
        taken = {member.slot for member in self._members}
        if slot is None:
            slot = next(number for number in range(len(taken) + 1) if number not in taken)
        task = asyncio.get_running_loop().create_task(self._start_member(workspace, slot, replaced), name="acp start")
        member = PooledAgent(workspace, slot, task, self._now())
        self._members.append(member)
        task.add_done_callback(lambda task: self._started(member, task))
        if self._maintenance is None:
            self._maintenance = asyncio.get_running_loop().create_task(self._maintain(), name="acp pool")
        return member

    async def _start_member(self, workspace: str, slot: int, replaced: PooledAgent | None) -> AgentConnection:
        if replaced is not None and replaced.connection is not None:
            await replaced.connection.end()
        return await self._start(workspace, slot)

    def _started(self, member: PooledAgent, task: "asyncio.Task[AgentConnection]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._forget(member)
        else:
            member.connection = task.result()
            member.connection.on_gone = lambda: self._gone(member)
            if member.connection.is_gone:
                self._gone(member)
        self._wake()

    # --- ending -------------------------------------------------------------------------------------

    def _gone(self, member: PooledAgent) -> None:
        """The agent died. Its turns get an error from the connection."""
        if member in self._members:
            self._end_in_background(member)

    def _forget(self, member: PooledAgent) -> None:
        if member in self._members:
            self._members.remove(member)
        self._wake()

    def _end_in_background(self, member: PooledAgent) -> None:
        self._forget(member)
        self.run_in_background(self._end(member))

    async def _end(self, member: PooledAgent) -> None:
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

    async def _check_health(self, member: PooledAgent, connection: AgentConnection) -> None:
        if not await connection.is_responsive(self._options.answer_seconds) and not member.active:
            await self._end(member)

    # ------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _is_idle(member: PooledAgent) -> bool:
    return not member.active and member.connection is not None


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("The gateway is shutting down; retry when it is back.")
