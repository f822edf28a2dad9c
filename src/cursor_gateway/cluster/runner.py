"""Commands from the database in; their outcomes, after this process has executed them, out.

A command is claimed only when there is room for the run that it may start. It is executed by the same service as in a
single-process gateway; only the start is checked once more, in the transaction that begins the run: the claim must
still be this process's (`store.base.Claim`). The outcome is written with the claim's epoch.

Clients read through fronts. As long as a front has a reader of a run, this process counts a local reader for it, so a
run is stopped as usual when its last client leaves.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Set
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from cursor_gateway.cluster.commands import (
    AnswerCommand,
    CommandOutcome,
    Failed,
    MethodCall,
    Replied,
    Resume,
    ReviewChanges,
    RunnerCommand,
    StartCommand,
    Stop,
    Take,
    arguments_of,
    begun,
    command_of,
    encode,
    hinted_outcome,
    returned,
)
from cursor_gateway.cluster.members import Members
from cursor_gateway.errors import (
    ConversationBusy,
    GatewayError,
    GatewayFault,
    RunnerLost,
    ShuttingDown,
    StoreUnavailable,
    TooManyRuns,
    error_of,
)
from cursor_gateway.runs.repeats import results_in
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Continued, RunRequest, RunService
from cursor_gateway.runs.service import LocalRunService, cancelled
from cursor_gateway.store.base import OWNER, Claim, begun_record
from cursor_gateway.store.cluster import ClaimedCommand, ClusterStore, Hint, NewEvents, Watchers

_LOOK_SECONDS = (1.0, 2.0)  # between two looks without a hint
_AGAIN_SECONDS = 0.5
_MOST = 16  # commands of one claim
_NOT_NOW = frozenset(error.code for error in (ConversationBusy, ShuttingDown, StoreUnavailable, TooManyRuns))
_STOP_SECONDS = 10.0  # for commands that are cancelled
_SETTLE_SECONDS = 60.0  # for the run of a dead runner to be ended


class _DrivenElsewhere(Exception):
    """Another member has the run. As an outcome: the command is for that member."""

    def __init__(self, member: str) -> None:
        super().__init__(member)
        self.member = member


class Runner:
    def __init__(
        self,
        service: LocalRunService,
        cluster: ClusterStore,
        members: Members,
        capacity: int,
        fault: Callable[[Exception], None] = lambda error: None,
        api_keys: Collection[str] = (),
        max_runs_per_key: int = 0,
    ) -> None:
        """`api_keys`: the names of those that are not in the database. `max_runs_per_key`: 0 is no limit."""
        self._service, self._runs, self._cluster, self._members = service, service.runs, cluster, members
        self._capacity, self._fault, self._api_keys = capacity, fault, api_keys
        self._max_runs_per_key = max_runs_per_key
        self._working: dict[str, asyncio.Task[None]] = {}  # commands under way
        self._deciding: dict[str, ClaimedCommand] = {}  # those of them that have no outcome yet
        self._fronts: dict[str, set[str]] = {}  # which members read each run
        self._proxies: dict[str, bool] = {}  # runs that are read elsewhere; see `_count`
        self._gone_since: dict[str, float] = {}  # fronts that are no members any more
        self._returning: dict[str, float] = {}  # runs that their callers continue, and until when they may be unread
        self._may_be_more = False  # commands that it had no room for
        self._wanted = asyncio.Event()
        self._watchers_wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def busy(self) -> int:
        return self._runs.running + sum(command.takes_place for command in self._deciding.values())

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._cluster.on_written(self._written)
        self._members.busy = lambda: self._runs.running
        self._members.removed = self.stop_all
        self._members.cut_off = self.stop_on_shared_volumes
        self._tasks = [
            loop.create_task(_whenever(self._wanted, self._claim_all), name="claims"),
            loop.create_task(_whenever(self._watchers_wanted, self._count), name="readers"),
            loop.create_task(self._keep_ending_lost_runs(), name="lost runs"),
        ]

    def look(self) -> None:
        self._wanted.set()

    def look_at_readers(self) -> None:
        self._watchers_wanted.set()

    async def close(self) -> None:
        """When its runs have ended."""
        tasks = [*self._tasks, *self._working.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def stop_all(self) -> None:
        """Others considered this process dead: its runs are over, and others carry out its commands.

        A command whose run has begun, but whose agent has not started, must not start it when this process has joined
        again: whoever has the run by then ends the agents of absent processes only.
        """
        working, self._working = self._working, {}
        for task in working.values():
            task.cancel()
        if working:
            await asyncio.wait(working.values(), timeout=_STOP_SECONDS)
        await self._runs.stop_all(
            RunnerLost("This process was considered dead, so its runs were ended; send the message again.")
        )

    def stop_on_shared_volumes(self) -> None:
        """Without the database another process may soon run an agent in the same folder, on another machine. On this
        machine's own disk it could not, so agents there wait."""
        own, workspaces = self._members.own, self._service.workspaces
        for run in self._runs.all:
            if workspaces.volume_of(run.turn.workspace) != own.host:
                run.stop(RunnerLost("The runner lost its connection to the database; send the message again."))

    async def _keep_ending_lost_runs(self) -> None:
        suspects: Set[str] = frozenset()
        while True:
            await asyncio.sleep(self._members.timing.lease_seconds)
            with suppress(StoreUnavailable):
                suspects = await self.end_lost_runs(suspects)

    async def end_lost_runs(self, suspects: Set[str]) -> Set[str]:
        """Ends those of the suspects that belong to this process but are not driven by it: it abandoned them when the
        database did not accept their events for too long. No other process would end them, because this one is alive.
        Returns new suspects.
        """
        stored = await self._service.store.unfinished_runs(self._members.own_id)
        beginning = {command.run_id for command in self._deciding.values()}
        lost = [run for run in stored if self._runs.find(run.id, run.owner) is None and run.id not in beginning]
        for run in lost:
            if run.id in suspects:
                await self._members.end(run)
        return {run.id for run in lost}

    # --- claiming -----------------------------------------------------------------------------------

    async def _claim_all(self) -> None:
        while await self._claim():
            pass

    async def _claim(self) -> bool:
        """Whether there may be more that this process can take now.

        The first runner keeps its last place for API keys that have none: one whose runs never end cannot have all
        places of the cluster. No other process decides about that place, so no two can give it away at once.
        """
        room = self._capacity - self.busy
        kept = int(room > 0 and self._members.keeps_last_place)
        most = max(1, min(_MOST, room - kept))
        keys = self._api_keys if room == kept == 1 else None
        claimed = await self._cluster.claim(
            self._members.own,
            has_room=room > 0,
            most=most,
            known=list(self._working),
            kept_for=keys,
            max_active=self._max_runs_per_key,
        )
        is_cut = len(claimed) == most or any(command.is_queued for command in claimed)
        self._may_be_more = is_cut or room <= kept
        for command in claimed:
            task = asyncio.get_running_loop().create_task(self._carry_out(command), name=command.id)
            self._working[command.id] = task
            self._deciding[command.id] = command
        return is_cut

    async def _carry_out(self, claimed: ClaimedCommand) -> None:
        """Until its outcome is stored, it stays in `_working`, so that it is never carried out twice here."""
        OWNER.set(claimed.owner)
        try:
            outcome = await self._outcome(claimed)
            self._deciding.pop(claimed.id, None)
            was_stored = isinstance(outcome, Replied) and outcome.record is not None  # when its run began
            is_stored = True if was_stored else await self._finish(claimed, outcome)
            while is_stored is None:
                await asyncio.sleep(_AGAIN_SECONDS)
                is_stored = await self._finish(claimed, outcome)
            self._working.pop(claimed.id, None)
            if not isinstance(outcome, _DrivenElsewhere):
                hinted = hinted_outcome(claimed.id, outcome) if is_stored else claimed.id
                self._cluster.hints.send(claimed.front, Hint("outcome", [hinted]))
        finally:
            self._deciding.pop(claimed.id, None)
            if self._may_be_more:
                self._wanted.set()

    async def _finish(self, claimed: ClaimedCommand, outcome: CommandOutcome | _DrivenElsewhere) -> bool | None:
        """Whether the outcome is stored; None if it has to be tried again."""
        is_refused = isinstance(outcome, Failed) and outcome.failure.code == ShuttingDown.code
        failure = outcome.failure if isinstance(outcome, Failed) else None
        try:
            if claimed.is_queued and failure is not None and failure.code in _NOT_NOW:
                await asyncio.sleep(_AGAIN_SECONDS)
                await self._cluster.release(claimed.id, claimed.epoch)
                return False
            if claimed.is_queued and isinstance(outcome, Replied) and outcome.run_id != claimed.run_id:
                failure = GatewayFault(f"The same request has started {outcome.run_id}; read that run.").failure()
            if isinstance(outcome, _DrivenElsewhere):
                await self._cluster.release(claimed.id, claimed.epoch, outcome.member)
                self._cluster.hints.send(outcome.member, Hint("queue"))
                return False
            if is_refused and claimed.takes_place:  # another runner can start it
                await self._cluster.release(claimed.id, claimed.epoch)
                self._cluster.hints.send("", Hint("queue"))
                return False
            return await self._cluster.finish(
                claimed.id, claimed.epoch, encode(outcome), failure if claimed.is_queued else None
            )
        except StoreUnavailable:
            return None

    async def _outcome(self, claimed: ClaimedCommand) -> CommandOutcome | _DrivenElsewhere:
        command: RunnerCommand | None = None
        try:
            command = command_of(claimed.body)
            claim = Claim(claimed.id, claimed.epoch, claimed.run_id, _resumption(command), _outcome(command, claimed))
            return await self._execute(command, claim, claimed.front)
        except _DrivenElsewhere as found:
            return found
        except RunnerLost as error:
            return await self._begun(claimed) or Failed(error.failure())
        except GatewayError as error:
            if not isinstance(command, Resume):  # whose run can be resumed by another process
                await self._end_begun(claimed, error)
            return Failed(error.failure())
        except msgspec.DecodeError:
            return Failed(GatewayFault("The runner does not know this command; upgrade it.").failure())
        except Exception as error:  # noqa: BLE001 -- the caller that waits for the outcome must get one
            self._fault(error)
            return Failed(GatewayFault("Internal error in the runner; its log has the details.").failure())

    async def _begun(self, claimed: ClaimedCommand) -> Replied | None:
        """The run of a command that is executed again because its outcome was lost."""
        with suppress(StoreUnavailable):
            if await self._service.store.run(claimed.run_id, claimed.owner) is not None:
                return Replied(claimed.run_id, 0)
        return None

    async def _end_begun(self, claimed: ClaimedCommand, why: GatewayError) -> None:
        """Ends a run that has begun, but has no agent: its outcome is stored, so its client reads the run."""
        if not claimed.run_id:
            return
        with suppress(StoreUnavailable):  # it is ended later, as lost
            run = await self._service.store.run(claimed.run_id, claimed.owner)
            is_own = run is not None and run.state == "running" and run.instance == self._members.own_id
            if run is not None and is_own and self._runs.find(run.id, run.owner) is None:
                await self._members.end(run, why)

    async def _execute(self, command: RunnerCommand, claim: Claim, front: str) -> CommandOutcome:
        service = self._service
        match command:
            case Take(request=request):
                await self._settle_calls(request)
                self._watch(claim.run_id, front)
                continued = await service.take(replace(request, claim=claim))
                is_stored = continued.key in ("", request.idempotency_key)
                return _replied(continued, claim if is_stored else None)
            case StartCommand(request=request):
                self._watch(claim.run_id, front)
                return _replied(Continued(await service.start(replace(request, claim=claim)), 0), claim)
            case Resume(request=request):
                return Replied((await self._resumed(request, claim)).id, 0)
            case AnswerCommand(run_id=run_id, asker=asker, given=given):
                await self._settle(run_id, asker.owner)
                self._expect_reader(run_id)
                self._watch(claim.run_id, front)
                return _replied(await service.answer(run_id, replace(asker, claim=claim), given))
            case Stop(run_id=run_id, owner=owner, why=why):
                if (run := self._runs.find(run_id, owner)) is not None:
                    run.stop(error_of(why))
                return returned(None)
            case MethodCall(method=method):
                arguments = arguments_of(command)
                if method == "cancel":
                    await self._settle(**arguments, is_cancelled=True)
                receiver = service if hasattr(RunService, method) else service.host
                return returned(await getattr(receiver, method)(**arguments))
            case ReviewChanges(conversation=conversation):
                return returned(await service.host.review(conversation, command.decoded()))

    async def _resumed(self, request: RunRequest, claim: Claim) -> Run:
        """Raises `RunnerLost` if the run is not to be continued any more. What cannot be continued is ended."""
        stored = await self._cluster.resume_run(claim, self._members.own_id)
        if stored is None:
            raise RunnerLost("The run ended before it could be resumed; send the message again.")
        try:
            return await self._service.resume(replace(request, claim=claim), stored)
        except Exception:
            with suppress(StoreUnavailable):  # then `end_lost_runs` does it
                await self._members.end(stored)
            raise

    async def _settle_calls(self, request: RunRequest) -> None:
        results, _ = results_in(request)
        if results:
            found = await self._service.store.find_run_by_calls(request.owner, list(results))
            if found is not None:
                await self._settle(found.id, request.owner)
                self._expect_reader(found.id)

    async def _settle(self, id: str, owner: str, *, is_cancelled: bool = False) -> None:
        """Waits until a run is driven by this process, or over. Raises `_DrivenElsewhere` if another member has it.

        The run of a dead runner is ended or resumed soon; one that is cancelled is ended at once.
        """
        until = asyncio.get_running_loop().time() + _SETTLE_SECONDS
        while asyncio.get_running_loop().time() < until:
            found = await self._service.store.run(id, owner)
            if found is None or found.state != "running":
                return
            if found.instance != self._members.own_id:
                if await self._is_member(found.instance):
                    raise _DrivenElsewhere(found.instance)
                may_end = is_cancelled
            elif self._runs.find(id, owner) is not None:
                return
            else:
                may_end = is_cancelled and all(command.run_id != id for command in self._deciding.values())
            if may_end and await self._members.end(found, cancelled()):
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _is_member(self, id: str) -> bool:
        if not self._members.has(id):
            await self._members.look()
        return self._members.has(id)

    # --- readers elsewhere --------------------------------------------------------------------------

    def _watch(self, run_id: str, front: str) -> None:
        self._fronts.setdefault(run_id, set()).add(front)

    def _expect_reader(self, run_id: str) -> None:
        """Whoever continues a run reads it. That the reader of the reply before has left may be known only now, and
        must not stop the run; that the next one has come may be known a moment later."""
        self._returning[run_id] = asyncio.get_running_loop().time() + self._members.timing.lease_seconds

    def _written(self, events: NewEvents) -> None:
        """After a commit."""
        for front in self._fronts.get(events.run, ()):
            self._cluster.hints.send(front, Hint("run", [events.run], [events]))

    async def _count(self) -> None:
        by_id = {run.id: run for run in self._runs.all}
        self._fronts = {id: fronts for id, fronts in self._fronts.items() if id in by_id or self._deciding}
        self._proxies = {id: is_read for id, is_read in self._proxies.items() if id in by_id}
        now = asyncio.get_running_loop().time()
        self._returning = {id: until for id, until in self._returning.items() if id in by_id and until > now}
        if not by_id:
            return
        watchers = await self._cluster.watchers(list(by_id))
        for id, run in by_id.items():
            those = [one for one in watchers if one.run_id == id]
            self._fronts.setdefault(id, set()).update(one.member for one in those)
            if not those:
                continue
            was_read, is_read = self._proxies.get(id, False), any(map(self._reads, those))
            if is_read:
                self._returning.pop(id, None)
            is_read = is_read or id in self._returning
            if is_read and not was_read:
                run.log.joined()
            elif was_read and not is_read:
                run.left(max(one.read_up_to for one in those))
            elif not was_read and not is_read and id not in self._proxies:  # its clients went before they were counted
                run.log.joined()
                run.left(max(one.read_up_to for one in those))
            self._proxies[id] = is_read

    def _reads(self, watchers: Watchers) -> bool:
        """Clients of a front that has left get one lease to reconnect at another one."""
        if not watchers.readers or self._members.has(watchers.member):
            self._gone_since.pop(watchers.member, None)
            return bool(watchers.readers)
        now = asyncio.get_running_loop().time()
        return now - self._gone_since.setdefault(watchers.member, now) < self._members.timing.lease_seconds


async def _whenever(wanted: asyncio.Event, act: Callable[[], Awaitable[None]]) -> None:
    """Acts when that is wanted, and every second or two in any case: hints may be lost."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(random.uniform(*_LOOK_SECONDS)):
                await wanted.wait()
        wanted.clear()
        with suppress(StoreUnavailable):
            await act()


def _replied(continued: Continued, claim: Claim | None = None) -> Replied:
    """With the record of a run that began with this claim, whose outcome was stored with it."""
    run = continued.run
    is_claimed = claim is not None and run.id == claim.run_id
    record = begun_record(run.begun) if is_claimed and run.begun is not None else None
    return Replied(run.id, continued.after, continued.usage_before, record, continued.is_repeat)


def _outcome(command: RunnerCommand, claimed: ClaimedCommand) -> bytes:
    """The outcome that is stored when a run begins with this command: no other outcome is possible then."""
    return begun(claimed.run_id) if isinstance(command, Take | StartCommand) else b""


def _resumption(command: RunnerCommand) -> bytes:
    """The command that continues a run of this one, if it may be. The calls of a caller's tools belong to one agent,
    so another one could not wait for them."""
    match command:
        case Take(request=request) | StartCommand(request=request) if request.when_runner_lost == "resume":
            return encode(Resume(request)) if request.offer is None else b""
        case _:
            return b""
