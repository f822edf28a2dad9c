"""This process as a member of the cluster, and the others as it sees them.

Every member reads all beats whenever it sends its own. If a beat has not changed for a lease (`Liveness`), it removes
that member and ends its runs, with their output so far and an error. A member that was removed although it is alive,
because it was frozen or cut off, learns this from its next beat: it ends its agents, and joins again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from math import inf
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.cluster.commands import begun
from cursor_gateway.cluster.liveness import Liveness
from cursor_gateway.errors import ConversationBusy, GatewayError, RunnerLost, StoreUnavailable
from cursor_gateway.runs.handle import end_claimed_run
from cursor_gateway.runs.queue import expired
from cursor_gateway.sources.ledger import LostAgents
from cursor_gateway.store.base import Lease, RunRecord, Store
from cursor_gateway.store.cluster import OLDEST, ClusterStore, Figures, Heartbeat, Hint, Member
from cursor_gateway.store.health import Figure

_FORGET_SECONDS = 60.0  # between two removals of old commands
_CUT_OFF = 0.8  # of a lease without beats: others may soon consider this process dead
_SILENT, _SILENT_SECONDS = 2, 1.0  # without a beat for so many beats and seconds, the database is reported as lost
_NO_BEATS = "The database does not accept the heartbeats of this process; check the database and the network."
_LONG_QUEUE_SECONDS = 10.0  # for which a request has waited for a runner: then the log says so
_REPEAT_SECONDS = 60.0  # between two such lines
_LATE = 1.5  # times `beat_seconds` after the last beat: the next one should be there
_REJOINED = 2**40  # beats by which a restarted member is ahead of its earlier life
_LOST = RunnerLost(
    "The process that ran this agent died or lost its connection to the database. Send the message again."
)


class Timing(Struct, frozen=True, kw_only=True):
    beat_seconds: float
    lease_seconds: float


class Members:
    def __init__(
        self,
        cluster: ClusterStore,
        store: Store,
        own: Member,
        timing: Timing,
        now_ms: Callable[[], int],
        warn: Callable[[str], None] = lambda message: None,
        agents: LostAgents | None = None,
    ) -> None:
        """`agents` are those of this machine; a front has none."""
        self.own, self.known = own, [own]
        self.volumes = set(own.volumes)  # of all members so far: a process that died may return with the same one
        self.labels = {frozenset(own.labels)}  # also of all members so far, of each its own
        self.takeovers = self.times_removed = 0
        self.stored: Figures | None = None  # as of the last look
        self.heartbeat: Heartbeat | None = None  # when it has joined
        self.removed: Callable[[], Awaitable[None]] = _nothing  # awaited when others considered this process dead
        self.cut_off: Callable[[], None] = lambda: None  # called while the database does not take its beats
        self.busy: Callable[[], int] = lambda: 0
        self._cluster, self._store, self.timing, self._now_ms, self._warn = cluster, store, timing, now_ms, warn
        self._agents = agents
        self._is_leaving = False
        self._liveness = Liveness(timing.lease_seconds)
        self._database: tuple[str, int] | None = None  # as of the last look: see `_was_away`
        self._looked_at = self._turned_at = monotonic()
        self._joined_at = -inf  # for the last time; the database has then taken a beat
        self._tasks: list[asyncio.Task[None]] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._forgot_at = monotonic()
        self._queue_reported_at = -_REPEAT_SECONDS

    @property
    def own_id(self) -> str:
        return self.own.id

    @property
    def look_age(self) -> float:
        """Seconds since the database answered."""
        return monotonic() - self._looked_at

    @property
    def lag(self) -> float:
        """Seconds since the event loop was seen turning."""
        return monotonic() - self._turned_at

    async def has_had(self, volume: str) -> bool:
        """Whether a member has this volume, or had it, even before this process joined. Raises `StoreUnavailable`."""
        if volume in self.volumes:
            return True
        return volume in (await self.look()).volumes  # a member may have joined since the last look

    def has(self, id: str) -> bool:
        return any(member.id == id for member in self.known)

    def runners(self, volume: str | None = None, needs: Collection[str] = ()) -> list[Member]:
        """Members that accept new work."""
        return [member for member in self.known if member.can_take(volume, needs)]

    @property
    def keeps_last_place(self) -> bool:
        """Whether this is the first of all runners, of those with a shared volume, or of those with a label."""
        own = self.own
        kinds: list[tuple[str | None, list[str]]] = [(None, []), *((None, [label]) for label in own.labels)]
        kinds += [(volume, []) for volume in own.volumes if volume != own.host]
        return any(min((one.id for one in self.runners(*kind)), default="") == own.id for kind in kinds)

    @property
    def level(self) -> int:
        """The protocol level that every member of the cluster understands."""
        return min((member.level for member in self.known), default=self.own.level)

    @property
    def too_old(self) -> list[Member]:
        """Members that this process cannot work with."""
        return [member for member in self.known if member.level < OLDEST]

    # --- coming and going ---------------------------------------------------------------------------

    async def join(self) -> None:
        """Raises `StoreUnavailable`, `OSError`."""
        if self._agents is not None:
            self._agents.join((await self._cluster.figures()).cluster_id, self.own.id, self.absent)
        await self._cluster.join(self.own)
        loop = asyncio.get_running_loop()
        self._tick(loop)
        self.heartbeat = self._cluster.beat(
            self.own.id,
            self.timing.beat_seconds,
            lambda: monotonic() - self._turned_at < self.timing.lease_seconds,
            lambda: _call(loop, self._was_removed),
        )
        self._check_connections(await self.look())
        self._tasks.append(loop.create_task(self._sweep(), name="sweep"))

    def _check_connections(self, stored: Figures) -> None:
        if stored.connections > stored.max_connections:
            self._warn(
                f"the {len(self.known)} processes of this cluster may open {stored.connections} connections to the "
                f"database, which allows {stored.max_connections}; raise `max_connections` of the database, or stop "
                "some processes"
            )

    async def leave(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.heartbeat is not None:
            await asyncio.to_thread(self.heartbeat.stop)
        with suppress(StoreUnavailable):
            await self._cluster.leave(self.own.id)

    async def drain(self) -> None:
        """Takes no new work from now on, whatever an operator says."""
        self._is_leaving = True
        self.own = replace(self.own, is_draining=True)
        with suppress(StoreUnavailable):
            await self._cluster.set_member(self.own.id, is_draining=True)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        silence, was_at = _SILENT * self.timing.beat_seconds + _SILENT_SECONDS, self._turned_at
        self._turned_at = monotonic()
        is_silent = self.beat_age > silence and self._turned_at - was_at < silence  # else it was frozen itself
        if is_silent and not self._store.health.is_failing:  # a call may hang for longer
            self._store.health.failed("write", StoreUnavailable(_NO_BEATS))
        if self.beat_age > _CUT_OFF * self.timing.lease_seconds:
            self.cut_off()
        self._ticking = loop.call_later(self.timing.beat_seconds, self._tick, loop)

    def _was_removed(self) -> None:
        if self._rejoining is None or self._rejoining.done():
            self._rejoining = asyncio.get_running_loop().create_task(self._rejoin(), name="rejoin")

    async def _rejoin(self) -> None:
        self.times_removed += 1
        self._warn("another process considered this one dead; its runs were ended")
        await self.removed()
        self.own = replace(self.own, beat=self.own.beat + _REJOINED)
        with suppress(StoreUnavailable):  # the next beat says so again
            now = monotonic()
            await self._cluster.join(self.own)
            self._joined_at = now
            if self._agents is not None:
                self._agents.joined()

    async def take_over_processes(self, names: Collection[str]) -> None:
        """Of this machine, whose ends are certain."""
        for member in self.known:
            if member.host == self.own.host and member.process in names:
                await self._take_over(member.id, member.beat)

    def figures(self) -> list[Figure]:
        """For the metrics."""
        count = Figure("cluster_members", "Processes in the cluster.", len(self.known))
        found = [
            count,
            Figure("cluster_level", "The protocol that all processes in the cluster understand.", self.level),
            Figure("cluster_beat_age_seconds", "Time since this process's last stored heartbeat.", self.beat_age),
            Figure("cluster_takeovers", "Dead processes whose runs were ended here.", self.takeovers, is_total=True),
            Figure("cluster_fenced", "Times that this process was considered dead.", self.times_removed, is_total=True),
            Figure("cluster_listening", "0 while notifications do not arrive.", int(self._cluster.hints.is_listening)),
        ]
        if (stored := self.stored) is None:
            return found
        reconnected = max(0, stored.reconnections)
        return [
            *found,
            Figure("cluster_queue_age_seconds", "Age of the oldest command without a runner.", stored.queue_seconds),
            Figure("cluster_queue_length", "Requests of the whole cluster without a runner.", stored.queue_length),
            Figure("cluster_runs_running", "Runs with a running agent in the whole cluster.", stored.running),
            Figure("cluster_notification_queue_ratio", "How full the queue of hints is.", stored.notification_queue),
            Figure("cluster_commits", "Commits of events.", stored.commits, is_total=True),
            Figure("cluster_batches", "Batches of events in these commits.", stored.batches, is_total=True),
            Figure("cluster_append_seconds", "Time that these commits took.", stored.append_seconds, is_total=True),
            Figure("cluster_waiting_bytes", "Bytes of events that are not stored yet.", stored.waiting_bytes),
            Figure("cluster_rewinds", "Times that events were lost and sent again.", stored.rewinds, is_total=True),
            Figure("cluster_listen_reconnections", "Reconnects of the listener for hints.", reconnected, is_total=True),
            Figure("cluster_hints_skipped", "Notifications of unknown kinds.", stored.skipped_hints, is_total=True),
        ]

    @property
    def beat_age(self) -> float:
        return 0.0 if self.heartbeat is None else min(self.heartbeat.age, monotonic() - self._joined_at)

    @property
    def holds_its_runs(self) -> bool:
        """Whether it certainly still has its runs: a process that was frozen or cut off for a lease may have lost them
        without knowing yet.
        """
        return self.beat_age < self.timing.lease_seconds

    # --- looking ------------------------------------------------------------------------------------

    async def look(self) -> Figures:
        """Raises `StoreUnavailable`."""
        self.stored = stored = await self._cluster.figures()
        found, self._looked_at = list(stored.members), monotonic()
        present = {member.id for member in found}
        gone = [member for member in self.known if member.id not in present]
        self.known = found
        self.volumes.update(*(member.volumes for member in found))
        self.labels.update(frozenset(member.labels) for member in found)
        for member in found:
            if member.id == self.own.id and not self._is_leaving:
                self.own = replace(self.own, is_draining=member.is_draining)  # as an operator says
        if self._agents is not None and self.own.id in present and self.holds_its_runs:
            self._agents.joined()
        for member in gone:
            await self._end_agents(member.id)
        return stored

    async def absent(self, ids: Collection[str]) -> list[str]:
        """Those that are no members now. Raises `StoreUnavailable`."""
        present = {member.id for member in (await self._cluster.figures()).members}
        return [id for id in ids if id not in present]

    async def _end_agents(self, id: str) -> None:
        """Of a process of this machine that is no member any more: it died, or is frozen or cut off."""
        if self._agents is not None and id != self.own.id:
            with suppress(ConversationBusy):  # whoever starts an agent waits for it again
                await self._agents.end_of(id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.timing.beat_seconds)
            try:
                stored = await self.look()
                self._report_queue(stored)
                await self._report_busy()
                await self._cluster.queue.expire(expired().failure())
            except StoreUnavailable:
                self._liveness.failed()
                continue
            for id, beat in self._dead(stored.absent).items():
                with suppress(StoreUnavailable):
                    await self._take_over(id, beat, stored.server)
            if monotonic() - self._forgot_at > _FORGET_SECONDS:
                self._forgot_at = monotonic()
                with suppress(StoreUnavailable):
                    await self._cluster.forget_old()

    def _dead(self, absent: Collection[str]) -> dict[str, int | None]:
        """Those to be taken over. A database that does not accept beats from this process may accept none at all,
        although it can be read: its disk is full or slow. Then no process is considered dead.
        """
        if self.beat_age > max(self.timing.lease_seconds / 2, _LATE * self.timing.beat_seconds):
            self._liveness.failed()
            return {}
        if self._was_away():
            self._liveness.failed()
        beats: dict[str, int | None] = {member.id: member.beat for member in self.known}
        beats |= dict.fromkeys(absent)
        beats.pop(self.own.id, None)
        return self._liveness.look(beats, monotonic())

    def _was_away(self) -> bool:
        """Whether the database, or the connection to it, was unavailable since the last read, however briefly: it was
        restarted, or connections were lost and retries succeeded. Then others may not have been able to send their
        beats either.
        """
        before, stored = self._database, self.stored
        self._database = None if stored is None else (stored.server, stored.losses)
        return self._database != before

    def _report_queue(self, stored: Figures) -> None:
        """Once a minute, by fronts: their clients wait."""
        is_due = monotonic() - self._queue_reported_at >= _REPEAT_SECONDS
        if stored.queue_seconds > _LONG_QUEUE_SECONDS and is_due and self.own.role != "runner":
            self._queue_reported_at = monotonic()
            self._warn(
                f"{stored.queue_length} requests wait for a runner, the first of them for "
                f"{stored.queue_seconds:.0f} seconds; start more runners, or raise `max_runs`"
            )

    async def _report_busy(self) -> None:
        if (busy := self.busy()) != self.own.busy:
            await self._cluster.set_member(self.own.id, busy=busy)
            self.own = replace(self.own, busy=busy)

    async def _take_over(self, id: str, beat: int | None, server: str = "") -> None:
        runs = await self._cluster.take_over(id, beat, begun, server)
        if runs is None:
            return
        await self._end_agents(id)
        if beat is not None:
            self.takeovers += 1
            self._warn(f"process {id} is considered dead; its {len(runs)} runs are ended")
        for run in runs:
            await self._end(run)
        self._cluster.hints.send("", Hint("queue"))

    async def end(self, run: RunRecord, why: GatewayError = _LOST) -> bool:
        """Ends a run that no process has. False: a process has it now, or it has ended. Raises `StoreUnavailable`."""
        lease = await self._store.claim_run(run.id, run.epoch)
        return lease is not None and await self._end(replace(run, epoch=lease.epoch), why)

    async def _end(self, run: RunRecord, why: GatewayError = _LOST) -> bool:
        is_ended = False
        with suppress(GatewayError):  # it is absent, and looked for again
            is_ended = await end_claimed_run(self._store, Lease(run.id, run.epoch), run, why, self._now_ms())
            for member in self.known:
                self._cluster.hints.send(member.id, Hint("run", [run.id]))
        return is_ended


async def _nothing() -> None:
    pass


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(callback)
