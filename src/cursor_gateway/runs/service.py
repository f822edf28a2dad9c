"""A request in; a run out: a new one, or the one that the same request started before. And runs, found again.

A request is identified (`identify`), admitted (`admission`, and the locks here), composed and begun (`starter`), and
then runs (`run`).

A conversation has one run at a time. Within this process a lock per conversation ensures that, from the last look at
the conversation until the new run is registered; between processes, the store does, where only one of them can begin.
Another lock, per idempotency key, makes the second of two equal requests join the first.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Set
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from socket import gethostname

from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.fair_threads import FairThreads, KeyedLocks
from cursor_gateway.model.answers import RunAnswer
from cursor_gateway.model.documents import Envelope
from cursor_gateway.model.health import RunnerEntry
from cursor_gateway.model.messages import Image
from cursor_gateway.runs.admission import Place, check_budget, day_end, find_run, used_up
from cursor_gateway.runs.answers import Answers
from cursor_gateway.runs.conversations import Conversation, Removals
from cursor_gateway.runs.handle import RunHandle, end_interrupted_run
from cursor_gateway.runs.identify import Identify
from cursor_gateway.runs.queue import QueuedRun, QueueLimits, RunQueue, check_time, time_of
from cursor_gateway.runs.repeats import Asked, FailedQuestions, Question, Repeats, quote_answer
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import (
    LARGEST_KEPT,
    Asker,
    Continued,
    Removed,
    RunRequest,
    ServiceState,
    Work,
)
from cursor_gateway.runs.starter import RunParts, RunStarter
from cursor_gateway.store.base import (
    Busy,
    IdempotentRun,
    KeyLimit,
    KeyTaken,
    Refused,
    RunRecord,
    Superseded,
)
from cursor_gateway.store.health import Figure
from cursor_gateway.store.queue import Entry, NamedWork
from cursor_gateway.workspace.host import Host, LocalHost
from cursor_gateway.workspace.permissions import Permissions

_POLL_SECONDS = 0.25  # for a run that another gateway drives
_THREADS = 4


class LocalWork:
    """The `Work` of a process that runs its agents itself."""

    is_shared = False

    def __init__(self, parts: RunParts) -> None:
        self._queue, self._runs, self._instance = parts.queue, parts.runs, parts.instance

    async def entries(self, owner: str | None, limit: int) -> list[Entry]:
        return await self._queue.stored.entries(owner, limit) if self._queue is not None else []

    async def named(self, beginning: str) -> list[NamedWork]:
        return await self._queue.stored.named(beginning) if self._queue is not None else []

    async def forget(self, id: str, owner: str) -> bool:
        return self._queue is not None and await self._queue.stored.forget(id, owner)

    async def runners(self) -> list[RunnerEntry]:
        return [
            RunnerEntry(
                id=self._instance,
                role="all",
                host=gethostname(),
                running=self._runs.running,
                capacity=self._runs.limit,
                draining=False,
                version=version("cursor-gateway"),
            )
        ]

    async def set_draining(self, id: str, *, is_draining: bool) -> bool:
        return False


class LocalRunService:
    """The `RunService` of a process that runs its agents itself."""

    def __init__(self, parts: RunParts) -> None:
        self.source, self.runs, self.store, self.defaults = parts.source, parts.runs, parts.store, parts.defaults
        self.workspaces, self.conversations = parts.workspaces, parts.conversations
        self.decisions = parts.permissions or Permissions(parts.conversations.data, parts.now_ms)
        self._parts, self._now_ms = parts, parts.now_ms
        self._repeats = Repeats(self.store, remembers=parts.must_store_seconds is None)
        self._questions = FailedQuestions(self.defaults.reconnect_seconds, time.monotonic)
        self._locks = KeyedLocks()
        self._threads = FairThreads("workspace", _THREADS)
        self.host: Host = LocalHost(
            parts.source,
            parts.store,
            Path(parts.conversations.directory),
            parts.workspaces,
            self.decisions,
            parts.snapshots,
            self._threads,
        )
        self.starter = RunStarter(parts, self.decisions)
        self.removals = Removals(self.source, self.conversations, self.decisions, parts.snapshots)
        self._identify = Identify(parts, self._repeats, self._questions)
        self._answers = Answers(parts, self.decisions, self.start)
        self._resuming: set[str] = set()  # runs of this process that are not driven yet
        self.work: Work = LocalWork(parts)
        self.queue = parts.queue  # None: in a cluster, where the database gives places; or there is none
        self.cancel_elsewhere: Callable[[str, str], Awaitable[Envelope]] | None = None  # in a cluster: any run
        self._is_retired = False

    # --- a request: identify, admit, compose, begin, run ----------------------------------------------

    async def take(self, request: RunRequest) -> Continued:
        _check_needs(request)
        if request.run_at is not None:
            limits = self.queue.limits if self.queue is not None else QueueLimits(queue_ttl_seconds=0)
            check_time(request, limits, datetime.now(UTC))
        found = await self._identify.reply(request)
        continued = found.reply or Continued(await self.start(found.request), 0)
        run, kept = continued.run, request.kept
        if request.trace is not None:
            self.runs.notify_asked(run.id, request.trace)
        begun = run.begun if not continued.after else None
        is_kept = begun is not None and begun.request == kept  # with the run
        if 0 < len(kept) <= LARGEST_KEPT and not is_kept and not isinstance(run, QueuedRun):
            with suppress(errors.StoreUnavailable):  # costs the lookup, not the answer
                await self.store.keep_request(run.id, request.owner, continued.after, kept)
        return replace(continued, key=found.key or "")

    async def start(self, request: RunRequest, held: Place | None = None) -> RunHandle:
        """Raises a `RequestError` for requests that cannot be fulfilled, `ModelUnavailable` for an unknown model.

        `held` is a place that the caller has reserved for it, and gives back.
        """
        _check_needs(request)
        given = request
        request = await self._identify.with_model(await self._identify.with_source(request))
        if (key := request.idempotency_key or request.repeat_key) == "":
            return await self._start(request, given, held)
        async with self._locks.holding((request.owner, key)):
            return await self._start(request, given, held)

    async def start_queued(self, request: RunRequest, place: Place) -> RunHandle:
        """The place is given back."""
        try:
            return await self.start(request, place)
        finally:
            place.give_back()

    async def _start(self, request: RunRequest, given: RunRequest, held: Place | None) -> RunHandle:
        """`given` is the request before it got a source and a model; one that is queued gets them when it starts."""
        has_tools, request = request.offer is not None, self._identify.with_tools(request)
        if (joined := await self._identify.earlier(request)) is not None:
            return joined
        if not has_tools:
            request = await self._identify.as_side_request(request)
        asked, queue = self._asked(request), self.queue if request.queues else None
        if budgets := self.defaults.budgets:
            await check_budget(request.owner, budgets, self.defaults.prices, self.store, self._now_ms())
        request = replace(request, when_busy=request.when_busy or self.defaults.when_busy)
        interrupts = request.when_busy == "interrupt"
        if held is None and queue is None and not interrupts:
            self.runs.check_free(request.owner)
        if queue is not None and await self._follows_queued(queue, request):
            return await queue.put(given) or await self._join(request)
        conversation = await self._identify.conversation(request)
        images: list[tuple[Image, str]] | None = None
        place = held
        is_stuck = False  # the store has another run in the conversation, and cannot take its end
        try:
            while True:
                if queue is not None and await self._must_queue(queue, conversation, request, place):
                    is_named = conversation.version and not request.has_full_history
                    return await queue.put(given, conversation.id if is_named else "") or await self._join(request)
                latest = self.runs.latest(conversation.id)
                if interrupts and latest is not None and not latest.is_ending:
                    if place is None and not latest.is_waiting:
                        place = self.runs.inherit(latest)
                    latest.stop(interrupted())
                    await latest.finished()
                    conversation, images = await self._identify.conversation(request), None
                elif conversation.version and await self._has_waited(conversation.id, request):
                    # Messages that arrived meanwhile count.
                    conversation, images = await self._identify.conversation(request), None
                elif images is None:
                    images = await self.starter.prepare(request, conversation.id)
                elif place is None:
                    place = await self.runs.reserve(request.owner, request.priority or 0)
                else:
                    match await self._start_in(conversation, request, images, asked, needs_lease=not is_stuck):
                        case Run() as run:
                            place.give_back()  # the run has it now
                            await self._started(run, request, asked)
                            return run
                        case KeyTaken():  # another process has the same request
                            return await self._join(request)
                        case KeyLimit() as reached:
                            raise _limited(reached, self._now_ms())
                        case Superseded():
                            raise errors.RunnerLost(
                                "This process was considered dead; another one handles the request."
                            )
                        case Busy(run_id=run_id):
                            is_stuck = not await self._release(run_id, request)
                        case None:
                            pass
                    conversation, images = await self._identify.conversation(request), None
        finally:
            if place is not None:
                place.give_back()

    async def _must_queue(
        self, queue: RunQueue, conversation: Conversation, request: RunRequest, place: Place | None
    ) -> bool:
        """Whether it cannot start now. Raises `ConversationBusy` if it must not wait for its conversation."""
        if request.run_at is not None and time_of(request.run_at) > datetime.now(UTC):
            return True
        latest = self.runs.latest(conversation.id)
        is_busy = latest is not None and not latest.is_ending and not (latest.caller is not None and latest.is_waiting)
        if conversation.version and not is_busy:
            is_busy = await queue.stored.is_awaited(request.owner, conversation.id)
        if is_busy and request.when_busy != "interrupt":
            self._check_may_wait(request)
            return True
        return place is None and not is_busy and not self.runs.has_place(request.owner)

    async def _follows_queued(self, queue: RunQueue, request: RunRequest) -> bool:
        """Whether the first message of the conversation that it names waits in the queue."""
        id, owner = request.conversation_id, request.owner
        if id is None or not await queue.stored.is_awaited(owner, id) or await self.store.conversation(id, owner):
            return False
        self._check_may_wait(request)
        return True

    async def resume(self, request: RunRequest, stored: RunRecord) -> Run:
        """Continues a run whose process died, with a new agent; this process has its lease."""
        self._resuming.add(stored.id)
        try:
            return await self._resume(request, stored)
        finally:
            self._resuming.discard(stored.id)

    async def _resume(self, request: RunRequest, stored: RunRecord) -> Run:
        request = replace(await self._identify.with_source(request), mode=stored.mode)
        place = await self.runs.reserve(request.owner)
        try:
            conversation = await self.conversations.interrupted(stored, request.messages)
            self.workspaces.check(conversation.workspace)
            images = await self.starter.prepare(request, conversation.id)
            async with self._locks.holding(conversation.id):
                return await self.starter.resume(request, stored, conversation, images)
        except OSError as error:
            raise errors.unwritable(error) from error
        finally:
            place.give_back()

    async def _start_in(
        self,
        conversation: Conversation,
        request: RunRequest,
        images: list[tuple[Image, str]],
        asked: Asked | None,
        *,
        needs_lease: bool,
    ) -> Run | Refused | None:
        """Called with a place. None: a run has begun or ended in the conversation since it was looked up."""
        is_new = not conversation.version  # which no other request can name
        async with nullcontext() if is_new else self._locks.holding(conversation.id):
            if not await self.conversations.is_current(conversation, request.owner):
                return None
            if is_new or self.runs.latest(conversation.id) is not None:  # the latest is stored before this one
                needs_lease = False
            if request.offer is None:  # with the caller's tools the agent works elsewhere
                self.workspaces.check(conversation.workspace)
            try:
                when_done = partial(self._note_end, asked)
                return await self.starter.start(request, conversation, images, when_done, needs_lease=needs_lease)
            except OSError as error:
                raise errors.unwritable(error) from error

    async def _join(self, request: RunRequest) -> RunHandle:
        joined = await self._identify.earlier(request)
        if joined is None:
            raise errors.StoreUnavailable("The history is inconsistent for this run; try again.")
        return joined

    async def _release(self, run_id: str, request: RunRequest) -> bool:
        """Waits for a run that has the conversation in the store, or ends it if it has no driver. False: it has ended
        here, but the store cannot be written."""
        if (ended := self.runs.find(run_id, request.owner)) is not None:
            await ended.gone()
            return await ended.log.try_again()
        while (stored := await self.store.run(run_id, request.owner)) is not None and stored.state == "running":
            is_own = stored.instance == self._parts.instance and run_id not in self._resuming
            if is_own or not self._parts.is_alive(stored.instance):
                await end_interrupted_run(self.store, stored, self._now_ms())
            else:
                if not await self._interrupted_elsewhere(stored, request):
                    self._check_may_wait(request)
                await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _interrupted_elsewhere(self, run: RunRecord, request: RunRequest) -> bool:
        if request.when_busy != "interrupt" or self.cancel_elsewhere is None:
            return False
        with suppress(errors.GatewayError):  # it is looked at again
            await self.cancel_elsewhere(run.id, run.owner)
        return True

    async def _started(self, run: Run, request: RunRequest, asked: Asked | None) -> None:
        if request.question_key:
            self._questions.begin(run.id, Question(asked, request.question_key))
        if request.repeat_key:
            await self._repeats.note(request.owner, request.repeat_key, IdempotentRun(run.id, ""), self._now_ms())

    def _note_end(self, asked: Asked | None, run: Run) -> None:
        done = run.done
        failure = done.failure if done is not None else None
        if self._parts.account_errors is not None and asked is not None:
            self._parts.account_errors.record(asked, failure)
        has_waited = run.plan.asks_others and run.log.state.paused_at > 0
        self._questions.end(run.id, failure, is_unread=has_waited and run.log.readers == 0)

    def _asked(self, request: RunRequest) -> Asked | None:
        """Raises the remembered error if a client repeats its request, or an agent would only report it again."""
        kept = self._parts.account_errors
        asked = kept.asked(request.owner, request.source, request.model or "") if kept is not None else None
        if not request.clients_retry:
            return asked
        failure = self._questions.known(Question(asked, request.question_key)) if request.question_key else None
        error = errors.error_of(failure) if failure is not None else None
        if error is None and kept is not None and asked is not None:
            error = kept.known(asked)
        if error is not None:
            self.runs.notify_repeated(error.failure(), request.owner, request.request_id)
            raise error
        return asked

    async def _has_waited(self, id: str, request: RunRequest) -> bool:
        """Waits for its turn if the conversation has an active run. False: it may start.

        A run that waits for its caller's tool results ends: the caller has sent another message instead of them.
        """
        latest = self.runs.latest(id)
        if latest is None or latest.is_ending:
            return False
        if latest.caller is not None and latest.is_waiting:
            latest.stop(
                errors.CallerGone(
                    "The caller sent another message instead of the tool's result; the call was not answered."
                )
            )
            await latest.finished()
            return True
        self._check_may_wait(request)
        await latest.finished()
        return True

    def _check_may_wait(self, request: RunRequest) -> None:
        if request.when_busy == "refuse":
            raise errors.ConversationBusy("This conversation has an active run; wait for it to end, or cancel it.")

    async def answer(self, id: str, asker: Asker, given: RunAnswer) -> Continued:
        continued = await self._answers.take(id, asker, given)
        if asker.trace is not None:
            self.runs.notify_asked(continued.run.id, asker.trace)
        return replace(continued, is_repeat=continued.run.done is not None)  # a run that has just begun is not over

    def delivered(self, owner: str, key: str) -> None:
        self._identify.deliveries.note(owner, key)

    async def answered(self, request: RunRequest, run: RunHandle, answer: str) -> None:
        if run.begun is not None:
            await quote_answer(self.store, request, run, answer, self.defaults.mode)

    # --- looking ------------------------------------------------------------------------------------

    async def find(self, id: str, owner: str) -> RunHandle:
        """A run that is driven here, a stored one, or one in the queue. Raises `NotFound`."""
        try:
            return await find_run(self.runs, self.store, id, owner)
        except errors.NotFound:
            queued = await self.queue.find(id, owner) if self.queue is not None else None
            if queued is None:
                raise
            return queued

    async def cancel(self, id: str, owner: str) -> Envelope:
        """How it ended: now, or before."""
        run = await self.find(id, owner)
        while isinstance(run, QueuedRun):
            if (ended := await run.withdraw(cancelled())) is not None:
                return ended
            run = await self.find(id, owner)
        return await run.cancel(cancelled())

    async def kept_request(self, id: str, owner: str, after: int) -> bytes | None:
        kept = await self.store.kept_request(id, owner, after)
        if kept is not None or after or self.queue is None:
            return kept
        return await self.queue.stored.kept_request(id, owner)

    async def remove(self, conversation_id: str, owner: str) -> Removed:
        """A run in it is stopped."""
        latest = self.runs.latest(conversation_id)
        if latest is not None and latest.owner == owner:
            latest.stop(errors.RunCancelled("The conversation was deleted; start a new one."))
            await latest.gone()
        if not await self.store.delete_conversation(conversation_id, owner):
            return "unknown"
        return "removed" if await self.removals.remove(conversation_id) else "pending"

    async def waiting_for_people(self, conversation_ids: Collection[str]) -> Set[str]:
        latest = {id: self.runs.latest(id) for id in conversation_ids}
        return {id for id, run in latest.items() if run is not None and run.is_waiting and run.caller is None}

    def state(self) -> ServiceState:
        return ServiceState(
            source=self.source.state(),
            sources=self.source.names,
            running=self.runs.running,
            limit=self.runs.limit,
            workspace=str(self.workspaces.default),
            problem=self.store.health.problem,
        )

    def figures(self) -> list[Figure]:
        return [*self.store.health.figures(), *(self.queue.figures() if self.queue is not None else ())]

    # --- the end ------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        return "The gateway is shutting down." if self._is_retired else ""

    async def retire(self) -> None:
        self._is_retired = True

    async def drain(self, seconds: float) -> None:
        if self.queue is not None:
            await self.queue.close()
        await self.source.end_spares()
        await self.runs.close(seconds)

    async def close(self, drain_seconds: float = 0) -> None:
        self._threads.close()
        if self.queue is not None:
            await self.queue.close()
        await self.runs.close(drain_seconds)
        await self.starter.close()
        await self.source.close()
        await self.removals.close()
        if self._parts.snapshots is not None:
            await self._parts.snapshots.close()


def interrupted() -> errors.RunCancelled:
    return errors.RunCancelled("A newer message in the conversation interrupted this answer.")


def cancelled() -> errors.RunCancelled:
    return errors.RunCancelled("Stopped on request. Send the message again to get a complete answer.")


def _limited(reached: KeyLimit, now_ms: int) -> errors.GatewayError:
    match reached.which:
        case "max_runs":
            return errors.TooManyRuns(
                f"This API key may have {reached.limit:,} active runs; try again when one of them has ended."
            )
        case "runs_per_day":
            return used_up(f"This API key may start {reached.limit:,} runs a day", day_end(now_ms), now_ms)
        case "tokens_per_day":
            return used_up(f"This API key may use {reached.limit:,} tokens a day", day_end(now_ms), now_ms)


def _check_needs(request: RunRequest) -> None:
    """A runner that claimed the request already has the labels."""
    if request.needs and request.claim is None:
        raise errors.InvalidRequest(
            "`needs` chooses a runner of a cluster, and this gateway is not part of one; omit it.", param="needs"
        )
