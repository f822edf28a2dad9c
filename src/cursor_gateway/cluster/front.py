"""The `RunService` of a cluster's front: runners execute its commands, and it reads runs from the database.

A front holds no agent. Whatever starts, continues or ends a run is a command for a runner (`commands.py`); then the run
is read like any other, wherever it is driven.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import msgspec

from cursor_gateway.cluster.asking import Asking, Withdrawn, new_command_id
from cursor_gateway.cluster.commands import (
    AnswerCommand,
    CommandOutcome,
    Failed,
    Replied,
    Returned,
    ReviewChanges,
    RunnerCommand,
    StartCommand,
    Stop,
    Take,
    call,
    encode,
)
from cursor_gateway.cluster.hub import Hub, RemoteRun
from cursor_gateway.cluster.members import Members
from cursor_gateway.errors import (
    ConversationBusy,
    GatewayError,
    GatewayFault,
    InvalidRequest,
    NoRunner,
    TooManyRuns,
    error_of,
)
from cursor_gateway.model.answers import PermissionEntry, RunAnswer
from cursor_gateway.model.changes import REVIEWS, ListedChanges, ListRequest, ReviewRequest, ReviewResult
from cursor_gateway.model.documents import Envelope
from cursor_gateway.model.health import RunnerEntry
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.answers import earlier_reply
from cursor_gateway.runs.caller_tools import run_of
from cursor_gateway.runs.handle import RunHandle, StoredRun, no_run
from cursor_gateway.runs.queue import (
    QueuedRun,
    QueueLimits,
    check_time,
    new_entry,
    queue_full,
    queued_request,
)
from cursor_gateway.runs.repeats import Deliveries, check_body, quote_answer, request_key, results_in
from cursor_gateway.runs.run_service import (
    Asker,
    Continued,
    Defaults,
    Removed,
    RunRequest,
    RunService,
    ServiceState,
    Work,
    stored_continuation,
)
from cursor_gateway.runs.service import cancelled
from cursor_gateway.runs.starter import new_run_id
from cursor_gateway.sources.base import Model, SourceState
from cursor_gateway.store.base import ConversationRecord, RunRecord, Store
from cursor_gateway.store.cluster import Alike, ClusterStore, CommandDone, Hint, Member, NewCommand, OverLimit
from cursor_gateway.store.health import Figure
from cursor_gateway.store.queue import Entry, Full, NamedWork
from cursor_gateway.workspace.host import Host, ImagePlace

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SHORT_SECONDS = 10.0  # for a runner to take a command that starts no run
_MODELS_SECONDS = 60.0
_NOT_LISTENING = "Notifications of other processes do not arrive, so new events may be late."
_START_SECONDS = 1.0  # for a request that may be queued to start at once, if a runner seems to have room
_QUEUE_LEVEL = 2  # of all members, from which on requests can be queued
_SILENT_SECONDS = 5.0  # without a reply from the database; after that, a front is not ready


class FrontLimits(msgspec.Struct, frozen=True, kw_only=True):
    queue_seconds: float
    max_runs_per_key: int
    queue_ttl_seconds: int = 0
    max_queued_per_key: int = 1

    @property
    def queue(self) -> QueueLimits:
        return QueueLimits(queue_ttl_seconds=self.queue_ttl_seconds, max_queued_per_key=self.max_queued_per_key)


class Receiver(msgspec.Struct, frozen=True):
    """Who must carry a command out: the runner that drives the run, or this member, or any that has the volume."""

    owner: str = ""
    run: RunRecord | None = None
    volume: str | None = None
    member: Member | None = None
    dedupe: str | None = None
    starts: str = ""  # the id of the run that it may start
    needs: Sequence[str] = ()
    priority: int = 0


class RemoteHost:
    """The `Host` of a front: the runners' machines."""

    def __init__(self, front: "Front", members: Members) -> None:
        self._front, self._members = front, members
        self._models: tuple[float, list[Model]] | None = None

    async def models(self) -> list[Model]:
        now = asyncio.get_running_loop().time()
        if self._models is None or now - self._models[0] > _MODELS_SECONDS:
            self._models = now, await self._front.call(Receiver(), Host.models)
        return self._models[1]

    def check_model(self, model: str) -> None:
        """A runner checks it when the run starts."""

    async def files(self, owner: str, workspace: str | None, query: str, limit: int) -> list[str]:
        to = Receiver(volume=await self._front.named_volume(workspace))
        return await self._front.call(to, Host.files, owner, workspace, query, limit)

    async def folders(self, owner: str, query: str, limit: int) -> list[str]:
        to = Receiver(volume=await self._front.named_volume(query))
        return await self._front.call(to, Host.folders, owner, query, limit)

    async def review(self, conversation: ConversationRecord, request: ReviewRequest) -> ReviewResult:
        command = ReviewChanges.of(conversation, request)
        to = Receiver(conversation.owner, volume=conversation.volume)
        try:
            result: ReviewResult = await self._front.value(to, command, REVIEWS[command.kind][1])
            return result
        except NoRunner:
            if not isinstance(request, ListRequest):
                raise
            return ListedChanges([])

    async def image(self, conversation: ConversationRecord, place: ImagePlace) -> bytes:
        to = Receiver(conversation.owner, volume=conversation.volume)
        return await self._front.call(to, Host.image, conversation, place)

    async def permissions(self, owner: str) -> list[PermissionEntry]:
        """Each machine keeps its own."""
        found: dict[str, PermissionEntry] = {}
        for member in self._members.runners():
            listed = await self._front.call(Receiver(owner, member=member), Host.permissions, owner)
            found |= {entry.id: entry for entry in listed}
        return sorted(found.values(), key=lambda entry: entry.created, reverse=True)

    async def revoke_permission(self, owner: str, id: str) -> bool:
        revoked = [
            await self._front.call(Receiver(owner, member=member), Host.revoke_permission, owner, id)
            for member in self._members.runners()
        ]
        return any(revoked)


class ClusterWork:
    """The `Work` of a cluster."""

    is_shared = True

    def __init__(self, cluster: ClusterStore, members: Members) -> None:
        self._cluster, self._members = cluster, members

    async def entries(self, owner: str | None, limit: int) -> list[Entry]:
        return await self._cluster.queue.entries(owner, limit)

    async def named(self, beginning: str) -> list[NamedWork]:
        return await self._cluster.queue.named(beginning)

    async def forget(self, id: str, owner: str) -> bool:
        return await self._cluster.queue.forget(id, owner)

    async def runners(self) -> list[RunnerEntry]:
        await self._members.look()
        return [
            RunnerEntry(
                id=one.id,
                role=one.role,
                host=one.host,
                volumes=list(one.volumes),
                labels=list(one.labels),
                running=one.busy,
                capacity=one.capacity,
                draining=one.is_draining,
                version=one.version,
            )
            for one in self._members.known
        ]

    async def set_draining(self, id: str, *, is_draining: bool) -> bool:
        is_known = await self._cluster.set_member(id, is_draining=is_draining)
        self._cluster.hints.send("", Hint("queue"))
        return is_known


class Front:
    def __init__(
        self,
        store: Store,
        cluster: ClusterStore,
        members: Members,
        hub: Hub,
        asking: Asking,
        defaults: Defaults,
        limits: FrontLimits,
        local: Runs | None = None,
    ) -> None:
        """`local` has the runs of this process, if it is a runner as well: they are read without the database."""
        self.store, self.defaults = store, defaults
        self._cluster, self._members, self._hub, self._asking = cluster, members, hub, asking
        self._limits, self._local = limits, local
        self._deliveries = Deliveries(defaults.reconnect_seconds)
        self.host: Host = RemoteHost(self, members)
        self.work: Work = ClusterWork(cluster, members)
        self._stopping: set[asyncio.Task[None]] = set()

    # --- starting, continuing and ending runs -------------------------------------------------------

    async def take(self, request: RunRequest) -> Continued:
        if request.run_at is not None:
            check_time(request, self._limits.queue, datetime.now(UTC))
        results, _ = results_in(request)
        waiting = await self.store.find_run_by_calls(request.owner, list(results)) if results else None
        dedupe = request.idempotency_key
        if dedupe is None and (results or request.attempt != "only"):
            dedupe = request_key(request, self.defaults.mode)
            if request.may_be_asked_again and self._deliveries.is_asked_again(request.owner, dedupe):
                request = msgspec.structs.replace(request, attempt="first")
        if request.queues and waiting is None and not results:
            queued = await self._queued(request, dedupe)
            if queued is not None:
                return msgspec.structs.replace(queued, key=dedupe or "")
        if (request.when_busy or self.defaults.when_busy) == "interrupt" and waiting is None:
            waiting = await self._active(request)
        continued = await self._started(Take(request), request, dedupe, waiting)
        return msgspec.structs.replace(continued, key=dedupe or "")

    async def _active(self, request: RunRequest) -> RunRecord | None:
        """The active run of the request's conversation. Its runner can stop it, and start the next in its place."""
        runs = await self._runs_before(request)
        return runs[-1] if runs and runs[-1].state == "running" else None

    async def _runs_before(self, request: RunRequest) -> list[RunRecord]:
        """Those of the conversation that it names, by its id or by that of its latest run."""
        id, owner = request.conversation_id, request.owner
        if id is None:
            return []
        named = await self.store.run(id, owner) if id.startswith("chat_") else None
        runs = await self.store.runs_of(named.conversation_id if named is not None else id, owner)
        return runs if named is None or runs[-1:] == [named] else []

    async def _queued(self, request: RunRequest, dedupe: str | None) -> Continued | None:
        """None: a runner has to decide about it now."""
        limits, owner, queue = self._limits.queue, request.owner, self._cluster.queue
        if not limits.queue_ttl_seconds or self._members.level < _QUEUE_LEVEL:
            return None
        if dedupe is not None and await self.store.find_run_by_idempotency(owner, dedupe) is not None:
            return await self._begun(request)
        runs = await self._runs_before(request)
        active = runs[-1] if runs and runs[-1].state == "running" else None
        conversation = runs[-1].conversation_id if runs else request.conversation_id or ""
        is_awaited = bool(conversation) and await queue.is_awaited(owner, conversation)
        if conversation and not runs and not is_awaited:
            return None
        match request.when_busy or self.defaults.when_busy:
            case "refuse" if active is not None or is_awaited:
                raise ConversationBusy("This conversation has an active run; wait for it to end, or cancel it.")
            case "interrupt" if active is not None:
                return None
            case _:
                pass
        volume, run_id = await self._volume(request), new_run_id()
        with suppress(NoRunner):  # one may come
            await self._check_runner(volume, request.needs or ())
        starts = queued_request(request, conversation)
        entry = new_entry(run_id, request, starts, self.defaults, limits, b"")
        command = NewCommand(
            id=new_command_id(),
            owner=owner,
            dedupe=dedupe,
            front=self._members.own_id,
            volume=volume or None,
            needs=request.needs or (),
            run_id=run_id,
            takes_place=True,
            body=encode(Take(starts)),
            priority=entry.priority,
            entry=entry,
        )
        first = self._first_runner(volume, request.needs or ())
        may_start = first and active is None and not is_awaited and request.run_at is None
        with self._hub.expecting(run_id):
            outcome = await self._asking.queue(command, _START_SECONDS if may_start else 0, first)
            match outcome:
                case Alike(id=""):
                    return await self._begun(request)
                case Alike() if _is_anew(request) and dedupe is not None:
                    return await self._queued(request, None)
                case Alike(entry=known):
                    return Continued(await self._joined(known, request), 0)
                case Full():
                    raise queue_full(limits.max_queued_per_key)
                case None | CommandDone():
                    return Continued(await self._find(run_id, owner), 0)
                case Replied() | Failed() | Returned():
                    return await self._continued(outcome, owner, run_id)

    async def _begun(self, request: RunRequest) -> Continued | None:
        """The run that the same request has started. None: only a runner can say whether there is one."""
        key, owner = request.idempotency_key, request.owner
        if key is None or (found := await self.store.find_run_by_idempotency(owner, key)) is None:
            return None
        check_body(found.body_hash, request)
        return Continued(await self._find(found.run_id, owner), found.after)

    async def _joined(self, run_id: str, request: RunRequest) -> RunHandle:
        """The same request, in the queue, or begun meanwhile."""
        entry = await self._cluster.queue.entry(run_id, request.owner)
        if entry is not None and request.idempotency_key is not None:
            check_body(entry.body_hash, request)
        return await self._find(run_id, request.owner)

    def delivered(self, owner: str, key: str) -> None:
        self._deliveries.note(owner, key)

    async def start(self, request: RunRequest) -> RunHandle:
        return (await self._started(StartCommand(request), request, request.idempotency_key, None)).run

    async def _started(
        self, command: Take | StartCommand, request: RunRequest, dedupe: str | None, waiting: RunRecord | None
    ) -> Continued:
        volume, run_id = await self._volume(request), new_run_id()
        with self._hub.expecting(run_id):
            needs, priority = request.needs or (), request.priority or 0
            to = Receiver(request.owner, waiting, volume, dedupe=dedupe, starts=run_id, needs=needs, priority=priority)
            outcome = await self._ask(command, to)
            if isinstance(outcome, Alike) and _is_anew(request) and dedupe is not None:
                return await self._started(command, request, None, waiting)
            if isinstance(outcome, Alike):
                return Continued(await self._joined(outcome.entry, request), 0)
            return await self._continued(outcome, request.owner, run_id)

    async def answer(self, id: str, asker: Asker, given: RunAnswer) -> Continued:
        run, needs = await self._record(id, asker.owner), list[str]()
        if run.state != "running":
            if (repeated := await self._repeated(run, given)) is not None:  # which would wait for a runner in vain
                return repeated
            continuation = await stored_continuation(self.store, id, asker.owner)
            needs = list(continuation.needs) if continuation is not None else []
        volume, run_id = await self._volume_of(run.conversation_id, asker.owner), new_run_id()
        to = Receiver(asker.owner, run, volume, dedupe=f"answer to {id}", starts=run_id, needs=needs)
        try:
            outcome = await self._ask(AnswerCommand(id, asker, given), to)
            assert not isinstance(outcome, Alike)  # answers are not queued
        except InvalidRequest as error:  # the caller named no labels now; their runner left before this came
            labels = ", ".join(needs)
            raise NoRunner(f"No runner has the labels of this run ({labels}); try again later.") from error
        return await self._continued(outcome, asker.owner, run_id)

    async def _repeated(self, run: RunRecord, given: RunAnswer) -> Continued | None:
        """The reply that the same answer to a run that has ended got before."""
        earlier = await earlier_reply(self.store, await StoredRun.open(self.store, run), given)
        if earlier is None:
            return None
        known = await self._find(earlier.run_id, run.owner)
        return Continued(known, earlier.after, is_repeat=known.done is not None)

    async def answered(self, request: RunRequest, run: RunHandle, answer: str) -> None:
        await quote_answer(self.store, request, run, answer, self.defaults.mode)

    async def cancel(self, id: str, owner: str) -> Envelope:
        while (run := await self.store.run(id, owner)) is None:
            found = await self._find(id, owner)
            if isinstance(found, QueuedRun) and (ended := await found.withdraw(cancelled())) is not None:
                return ended
        if run.state != "running":
            return await (await StoredRun.open(self.store, run)).cancel(NoRunner("It has ended."))
        return await self.call(Receiver(owner, run), RunService.cancel, id, owner)

    async def remove(self, conversation_id: str, owner: str) -> Removed:
        volume = await self._volume_of(conversation_id, owner)
        if volume is None:
            return "unknown"
        running = [run for run in await self.store.runs_of(conversation_id, owner) if run.state == "running"]
        to = Receiver(owner, running[0] if running else None, volume)
        try:
            return await self.call(to, RunService.remove, conversation_id, owner)
        except NoRunner:  # its folder is deleted when a runner has the volume again
            return "pending" if await self.store.delete_conversation(conversation_id, owner) else "unknown"

    # --- reading ------------------------------------------------------------------------------------

    async def find(self, id: str, owner: str) -> RunHandle:
        return await self._find(id, owner)

    async def kept_request(self, id: str, owner: str, after: int) -> bytes | None:
        kept = await self.store.kept_request(id, owner, after)
        if kept is not None or after:
            return kept
        return await self._cluster.queue.kept_request(id, owner)

    async def waiting_for_people(self, conversation_ids: Collection[str]) -> Set[str]:
        waiting = await self._cluster.waiting_calls(conversation_ids)
        return {conversation for conversation, call in waiting if run_of(call) is None}

    async def _find(
        self, id: str, owner: str, *, is_counted: bool = False, known: RunRecord | None = None
    ) -> RunHandle:
        local = self._local.find(id, owner) if self._local is not None else None
        if local is not None and self._members.holds_its_runs:
            return local
        record = known if known is not None and local is None else await self.store.run(id, owner)
        if record is None:
            entry = await self._cluster.queue.entry(id, owner)
            if entry is not None:
                return await QueuedRun.open(self.store, self._cluster.queue, entry)
            record = await self._record(id, owner)  # it may have begun just now
        if record.state == "running":
            if local is not None and record.instance == self._members.own_id:
                return local
            watched = self._hub.watch(record, is_counted=is_counted)
            await self._hub.catch_up(watched, record.event_count)
            return RemoteRun(watched, self._stop, self.cancel)
        return await StoredRun.open(self.store, record)

    async def _record(self, id: str, owner: str) -> RunRecord:
        if (record := await self.store.run(id, owner)) is None:
            raise no_run(id)
        return record

    async def _continued(self, outcome: CommandOutcome, owner: str, new_id: str) -> Continued:
        match outcome:
            case Replied(run_id=run_id, after=after, usage_before=usage, record=record, is_repeat=is_repeat):
                run = await self._find(run_id, owner, is_counted=run_id == new_id, known=record)
                return Continued(run, after, usage, is_repeat=is_repeat)
            case Failed(failure=failure):
                raise error_of(failure)
            case Returned():
                raise GatewayFault("A runner sent an unexpected reply; check that all processes run the same version.")

    def state(self) -> ServiceState:
        runners = [member for member in self._members.known if member.is_runner]
        return ServiceState(
            source=SourceState(
                name="cluster",
                detail=f"{len(runners)} runners",
                missing="" if runners else "No runner is connected to the database; start one with role `runner`.",
            ),
            sources=[],
            running=sum(member.busy for member in runners),
            limit=sum(member.capacity for member in runners),
            problem=self.store.health.problem or ("" if self._cluster.hints.is_listening else _NOT_LISTENING),
        )

    def figures(self) -> list[Figure]:
        asked, took = self._asking.commands, self._asking.seconds
        return [
            *self.store.health.figures(),
            *self._members.figures(),
            Figure("cluster_commands", "Commands from this process that were carried out.", asked, is_total=True),
            Figure("cluster_command_seconds", "Time until their outcomes were known.", took, is_total=True),
        ]

    # --- the end ------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        if self._members.own.is_draining:
            return "This process takes no new work."
        if old := self._members.too_old:
            return f"{old[0].id} has version {old[0].version}, which is too old for this one; upgrade or stop it first."
        if self._members.look_age > _SILENT_SECONDS + self._members.timing.beat_seconds:
            return "The database does not answer."
        if not self._members.holds_its_runs:  # it can be read; its disk may be full
            return "The database does not accept the heartbeats of this process."
        return ""

    async def retire(self) -> None:
        await self._members.drain()

    async def drain(self, seconds: float) -> None:
        await self._members.drain()
        self._hub.move_readers()
        if self._local is not None:
            await self._local.close(seconds)

    async def close(self) -> None:
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=1)
        await self._asking.close()
        await self._hub.close()

    # --- asking runners -----------------------------------------------------------------------------

    def _stop(self, id: str, owner: str, why: GatewayError) -> None:
        """For callers that cannot wait."""

        async def stop() -> None:
            with suppress(GatewayError):
                run = await self._record(id, owner)
                await self._ask(Stop(id, owner, why.failure()), Receiver(owner, run))

        task = asyncio.get_running_loop().create_task(stop(), name="stop")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def call(
        self,
        to: Receiver,
        method: Callable[Concatenate[Any, _P], Awaitable[_T]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        returned: _T = await self.value(to, call(method, *args, **kwargs), get_type_hints(method)["return"])
        return returned

    async def value(self, to: Receiver, command: RunnerCommand, type: Any) -> Any:
        match await self._ask(command, to):
            case Alike():
                raise GatewayFault("A request in the queue has the same key as this command.")
            case Returned(value=value):
                return msgspec.msgpack.decode(value, type=type)
            case Failed(failure=failure):
                raise error_of(failure)
            case Replied():
                raise GatewayFault("A runner sent an unexpected reply; check that all processes run the same version.")

    async def _ask(self, command: RunnerCommand, to: Receiver) -> CommandOutcome | Alike:
        target = to.member.id if to.member is not None else None
        if to.run is not None and to.run.state == "running" and self._members.has(to.run.instance):
            target = to.run.instance
        if target is None:
            await self._check_runner(to.volume, to.needs)
        first = self._first_runner(to.volume, to.needs) if target is None else ""
        new = NewCommand(
            id=new_command_id(),
            owner=to.owner,
            dedupe=to.dedupe,
            front=self._members.own_id,
            target=target,
            volume=to.volume or None,
            needs=to.needs,
            run_id=to.starts,
            takes_place=bool(to.starts) and target is None,
            body=encode(command),
            priority=to.priority,
            watches=bool(to.starts) and target is None,
        )
        try:
            seconds = self._limits.queue_seconds if to.starts else _SHORT_SECONDS
            outcome = await self._asking.ask(new, seconds, self._limits.max_runs_per_key if to.starts else 0, first)
        except Withdrawn:
            if target is not None:
                raise NoRunner("The runner did not take the request in time; try again later.") from None
            await self._check_runner(to.volume, to.needs)
            raise TooManyRuns("All runners are busy; try again later, or start another one.") from None
        if isinstance(outcome, OverLimit):
            limit = self._limits.max_runs_per_key
            raise TooManyRuns(
                f"This API key has {limit} active runs, which is the limit; try again later, or raise "
                "`max_runs_per_key`."
            )
        return outcome

    async def _check_runner(self, volume: str | None, needs: Sequence[str]) -> None:
        if not self._members.runners(volume, needs):
            await self._members.look()
        if not self._members.runners(volume, needs):
            what = [f"the volume {volume!r}"] if volume else []
            what += [f"the label {label!r}" for label in needs]
            which = f" has {' and '.join(what)}" if what else " is connected to the database"
            labels = sorted({label for runner in self._members.runners(None, ()) for label in runner.labels})
            known = f" The runners have these labels: {', '.join(labels)}." if needs and labels else ""
            if needs and not any(one.issuperset(needs) for one in self._members.labels):
                what_to_do = "check how `needs` is spelled, or start such a runner"
                raise InvalidRequest(
                    f"No runner{which}, and none has had it so far; {what_to_do}.{known}", param="needs"
                )
            raise NoRunner(f"No runner{which}; start one with role `runner`, or try again later.{known}")

    def _first_runner(self, volume: str | None, needs: Sequence[str]) -> str:
        """One that probably has room; empty: none has."""
        runners = self._members.runners(volume, needs)
        free = [max(0, runner.capacity - runner.busy) for runner in runners]
        return random.choices(runners, free)[0].id if any(free) else ""

    async def _volume(self, request: RunRequest) -> str | None:
        """Where the request's conversation is, or is to be."""
        id = request.conversation_id
        if (run_id := request.follows or (id if id is not None and id.startswith("chat_") else None)) is not None:
            run = await self.store.run(run_id, request.owner)
            id = run.conversation_id if run is not None else id
        if id is not None and (known := await self._volume_of(id, request.owner)):
            return known
        return await self.named_volume(request.workspace)

    async def _volume_of(self, conversation_id: str, owner: str) -> str | None:
        """None: there is no such conversation."""
        found = await self.store.conversation(conversation_id, owner)
        return found.volume if found is not None else None

    async def named_volume(self, workspace: str | None) -> str | None:
        """The volume at the beginning of a path. Its runner may have left before this process joined."""
        volume = (workspace or "").partition("/")[0]
        return volume if volume and await self._members.has_had(volume) else None


def _is_anew(request: RunRequest) -> bool:
    """The same question again, on purpose."""
    return request.attempt == "first" and request.idempotency_key is None
