"""Requests that cannot start now in; their runs, started when it is their turn, out.

A request is queued only if its client reads the answer later. It waits in the store, so it survives this process. Its
place comes from `Runs`, in the same order as for requests that wait with a connection: for each owner that has entries
in the queue, one ticket waits there. Which of the owner's entries is started is decided when the place is there.

An entry is claimed for this process before it starts, and its run begins only if the claim still holds: see
`store.queue`. What cannot start for the moment waits again; what can never start fails with its error, which is what
clients then read as the run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.model.document_events import Done
from cursor_gateway.model.documents import Envelope, QueuePlace
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.runs.admission import Place, Runs
from cursor_gateway.runs.conversations import new_conversation_id
from cursor_gateway.runs.handle import RunHandle, run_info
from cursor_gateway.runs.log import StoredLog
from cursor_gateway.runs.repeats import body_hash, check_body
from cursor_gateway.runs.run_service import LARGEST_KEPT, Defaults, RunRequest
from cursor_gateway.runs.starter import new_run_id
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store.base import Claim, RunRecord, Store
from cursor_gateway.store.health import Figure
from cursor_gateway.store.queue import (
    MOST_BYTES,
    About,
    Begun,
    Candidate,
    ClaimedEntry,
    Entry,
    Full,
    LocalQueue,
    NewEntry,
    Put,
    Queue,
    QueueFigures,
)

_LOOK_SECONDS = 1.0  # while entries wait
_IDLE_SECONDS = 10.0  # another gateway that shares the history may leave entries
_AGAIN_SECONDS = 0.1  # until a claimed entry is looked at again
_LONGEST_PROMPT = 200  # characters of its first line, for lists
_FURTHEST = timedelta(days=366)
_NOT_NOW = (errors.StoreUnavailable, errors.TooManyRuns, errors.ShuttingDown, errors.ConversationBusy)  # it waits again


def expired() -> errors.QueueExpired:
    return errors.QueueExpired(
        "The request waited in the queue for too long; send it again, raise `queue_ttl_seconds`, or allow more runs "
        "at once."
    )


def queue_full(most: int) -> errors.QueueFull:
    return errors.QueueFull(
        f"This API key has {most:,} requests in the queue, or {MOST_BYTES // 2**20} MiB of them, which is the limit; "
        "wait, cancel some, or raise `max_queued_per_key`."
    )


class QueueLimits(Struct, frozen=True, kw_only=True):
    queue_ttl_seconds: int = 24 * 3600  # 0: there is no queue
    max_queued_per_key: int = 1000


def check_time(request: RunRequest, limits: QueueLimits, now: datetime) -> None:
    """Raises `InvalidRequest` for a time that makes no sense."""
    if request.run_at is None:
        return
    if not request.queues:
        raise errors.InvalidRequest(
            "`runAt` needs a request whose answer is read later; send `Prefer: respond-async`, or `background`.",
            param="runAt",
        )
    if not limits.queue_ttl_seconds:
        raise errors.InvalidRequest("`runAt` needs the queue, which `queue_ttl_seconds = 0` disables.", param="runAt")
    if time_of(request.run_at) - now > _FURTHEST:
        raise errors.InvalidRequest("`runAt` is more than a year away; choose an earlier time.", param="runAt")


def time_of(text: str) -> datetime:
    """Raises `InvalidRequest`."""
    with suppress(ValueError):
        if (time := datetime.fromisoformat(text)).tzinfo is not None:
            return time
    raise errors.InvalidRequest(
        "`runAt` must be a time and its offset, such as `2026-12-01T02:00:00+01:00`.", param="runAt"
    )


# --- entries ----------------------------------------------------------------------------------------


_requests = msgspec.msgpack.Decoder(RunRequest)


def encode_request(request: RunRequest) -> bytes:
    """The body as it arrived is kept only for its hash."""
    return msgspec.msgpack.encode(request if request.idempotency_key is not None else replace(request, body=b""))


def decode_request(data: bytes) -> RunRequest:
    decoded: RunRequest = _requests.decode(data)
    return decoded


def queued_request(request: RunRequest, conversation_id: str = "") -> RunRequest:
    """As it will start. A conversation that it begins gets its id now, so that clients know it."""
    is_new = not conversation_id and not request.has_full_history and request.follows is None
    return replace(
        request,
        conversation_id=conversation_id or request.conversation_id,
        new_conversation=new_conversation_id() if is_new and request.conversation_id is None else "",
        when_busy="refuse",
        queues=False,
        run_at=None,
    )


def about_request(request: RunRequest, defaults: Defaults) -> About:
    said = next((message.text for message in reversed(request.messages) if isinstance(message, UserMessage)), "")
    return About(
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        model=request.model or defaults.model,
        mode=request.mode or defaults.mode,
        fences=request.fences or defaults.fences,
        include=frozenset(request.include or ()),
        prompt=said.strip().partition("\n")[0][:_LONGEST_PROMPT],
    )


def new_entry(
    run_id: str, given: RunRequest, request: RunRequest, defaults: Defaults, limits: QueueLimits, body: bytes
) -> NewEntry:
    """`request` is what starts, of what was `given`."""
    return NewEntry(
        run_id=run_id,
        owner=given.owner,
        conversation_id=request.conversation_id or request.new_conversation,
        key=given.idempotency_key or given.repeat_key or None,
        body_hash=body_hash(given) if given.idempotency_key is not None else "",
        priority=given.priority or 0,
        run_at_ms=None if given.run_at is None else int(time_of(given.run_at).timestamp() * 1000),
        ttl_ms=limits.queue_ttl_seconds * 1000,
        most=limits.max_queued_per_key,
        about=about_request(request, defaults),
        kept=given.kept if len(given.kept) <= LARGEST_KEPT else b"",
        body=body,
    )


def record_of(entry: Entry) -> RunRecord:
    """Of a run that has not begun."""
    about = entry.about
    return RunRecord(
        id=entry.run_id,
        conversation_id=entry.conversation_id,
        owner=entry.owner,
        instance="",
        model=about.model,
        mode=about.mode,
        created=about.created,
        fences=about.fences,
        include=about.include,
        started_ms=entry.created_ms,
    )


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def place_of(entry: Entry, position: int | None) -> QueuePlace:
    return QueuePlace(
        position=msgspec.UNSET if position is None else position,
        age_seconds=max(0.0, round(entry.age_seconds, 1)),
        priority=entry.priority,
        run_at=_iso(entry.due_ms) if entry.is_scheduled else msgspec.UNSET,
        expires=_iso(entry.expires_ms),
    )


class QueuedLog(StoredLog):
    """Without events until its run has begun, or until its entry has failed."""

    def __init__(self, store: Store, queue: Queue, entry: Entry) -> None:
        super().__init__(store, record_of(entry))
        self.entry: Entry | None = entry  # None: its run has begun
        self._queue = queue

    async def look(self) -> None:
        if self.done is not None:
            return
        if self.entry is not None and await self._store.run(self.run.id, self.run.owner) is None:
            entry = await self._queue.entry(self.run.id, self.run.owner)
            if entry is not None:
                self.entry = entry
                self._check_failed(entry)
                return
        self.entry = None
        await super().look()

    def _check_failed(self, entry: Entry) -> None:
        if entry.failure is None:
            return
        self.events = RunState().end(run_info(self.run), entry.about.prompt, entry.failure)
        self.count, self.dropped = len(self.events), 0
        last = self.events[-1]
        assert isinstance(last, Done)
        self.done = last


class QueuedRun(RunHandle):
    """One that has not begun, or could not."""

    source_name = "queue"

    @classmethod
    async def open(cls, store: Store, queue: Queue, entry: Entry) -> "QueuedRun":
        log = QueuedLog(store, queue, entry)
        await log.look()
        return cls(run_info(log.run), log, queue)

    def __init__(self, info: RunInfo, log: QueuedLog, queue: Queue) -> None:
        super().__init__(info, log)
        self.log: QueuedLog = log
        self._queue = queue

    async def place(self) -> QueuePlace | None:
        entry = self.log.entry
        if entry is None or entry.state == "failed":
            return None
        return place_of(entry, await self._queue.position(self.id))

    def stop(self, why: errors.GatewayError) -> None:
        """Nobody's leaving ends it."""

    async def cancel(self, why: errors.GatewayError) -> Envelope:
        while (ended := await self.withdraw(why)) is None:
            pass
        return ended

    async def withdraw(self, why: errors.GatewayError) -> Envelope | None:
        """How it ended: now, or before. None: it starts, or has started, so that the run must be looked for."""
        if self.done is None:
            is_cancelled = await self._queue.cancel(self.id, self.owner, why.failure())
            await self.log.look()
            if not is_cancelled and self.done is None:
                await asyncio.sleep(_AGAIN_SECONDS)
                return None
        return self.done.envelope if self.done is not None else None


# --- one machine's queue ----------------------------------------------------------------------------


class _Collecting(Struct, frozen=True):
    """An owner's ticket."""

    priority: int
    task: "asyncio.Task[None]"


Begin: TypeAlias = Callable[[RunRequest, Place], Awaitable[RunHandle]]


class RunQueue:
    def __init__(
        self,
        queue: LocalQueue,
        store: Store,
        runs: Runs,
        limits: QueueLimits,
        defaults: Defaults,
        instance: str,
        is_alive: Callable[[str], bool],
        fault: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self.stored: LocalQueue = queue
        self.limits = limits
        self._store, self._runs, self._defaults = store, runs, defaults
        self._instance, self._is_alive, self._fault = instance, is_alive, fault
        self._collecting: dict[str, _Collecting] = {}  # by owner
        self._starting: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._figures = QueueFigures()

    def start(self, begin: Begin) -> None:
        """`begin` starts a claimed request in a place that was reserved for it, which it gives back."""
        self._task = asyncio.get_running_loop().create_task(self._work(begin), name="queue")

    async def close(self) -> None:
        """Entries stay for the next gateway."""
        tasks = [one.task for one in self._collecting.values()] + [*self._starting]
        tasks += [self._task] if self._task is not None else []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            with suppress(errors.StoreUnavailable):  # then others see that this process has ended
                await self.stored.release_of([self._instance])

    def figures(self) -> list[Figure]:
        length, age = self._figures.length, self._figures.age_seconds
        return [
            Figure("queue_length", "Requests in the queue that wait for a free slot.", length),
            Figure("queue_age_seconds", "How long the oldest of them has waited.", age),
        ]

    async def put(self, request: RunRequest, conversation_id: str = "") -> QueuedRun | None:
        """`conversation_id`: of a conversation that exists. None: another process has begun the run of the same
        request. Raises `QueueFull`."""
        starts, id = queued_request(request, conversation_id), new_run_id()
        new = new_entry(id, request, starts, self._defaults, self.limits, encode_request(starts))
        put = await self.stored.put(new)
        if isinstance(put, Entry) and request.attempt == "first" and request.idempotency_key is None:
            put = await self.stored.put(replace(new, key=None))  # the same question again, on purpose
        self._wanted.set()
        match put:
            case Put():
                found = await self.find(id, request.owner)
                if found is None:
                    raise errors.StoreUnavailable("The history has lost the request; send it again.")
                return found
            case Entry():
                return await self._joined(put, request)
            case Begun():
                return None
            case Full():
                raise queue_full(self.limits.max_queued_per_key)

    async def find(self, id: str, owner: str) -> QueuedRun | None:
        entry = await self.stored.entry(id, owner)
        return None if entry is None else await QueuedRun.open(self._store, self.stored, entry)

    async def find_by_key(self, request: RunRequest) -> QueuedRun | None:
        """The one that waits for the same request. Raises `IdempotencyMismatch`."""
        key = request.idempotency_key or ("" if request.attempt == "first" else request.repeat_key)
        entry = await self.stored.entry_of_key(request.owner, key) if key else None
        return None if entry is None else await self._joined(entry, request)

    async def _joined(self, entry: Entry, request: RunRequest) -> QueuedRun:
        if request.idempotency_key is not None:
            check_body(entry.body_hash, request)
        return await QueuedRun.open(self._store, self.stored, entry)

    # --- taking entries -----------------------------------------------------------------------------

    async def _work(self, begin: Begin) -> None:
        while True:
            seconds = _LOOK_SECONDS
            try:
                seconds = await self._look(begin)
            except errors.StoreUnavailable:
                pass
            except Exception as error:  # noqa: BLE001 -- one bad entry must not stop all others
                self._fault(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wanted.wait()
            self._wanted.clear()

    async def _look(self, begin: Begin) -> float:
        """Returns when to look again, in seconds."""
        await self.stored.expire(expired().failure())
        lost = [one for one in await self.stored.claimants() if not self._has(one)]
        if lost:
            await self.stored.release_of(lost)
        self._figures = await self.stored.queue_figures()
        first = {one.owner: one for one in await self.stored.candidates()} if self._figures.length else {}
        for owner, waiting in list(self._collecting.items()):
            if owner not in first or first[owner].priority != waiting.priority:
                del self._collecting[owner]
                waiting.task.cancel()
        for owner, candidate in first.items():
            if owner not in self._collecting:
                task = asyncio.get_running_loop().create_task(self._collect(candidate, begin), name="queue")
                self._collecting[owner] = _Collecting(candidate.priority, task)
        if self._figures.length:
            return _LOOK_SECONDS
        return min(_IDLE_SECONDS, max(0.0, self._figures.next_seconds or _IDLE_SECONDS))

    def _has(self, instance: str) -> bool:
        """Whether a process still starts what it has claimed."""
        return bool(self._starting) if instance == self._instance else self._is_alive(instance)

    async def _collect(self, candidate: Candidate, begin: Begin) -> None:
        """Waits for a place, and starts the owner's first entry."""
        owner, task = candidate.owner, asyncio.current_task()
        assert task is not None
        place = await self._runs.reserve_for_queue(owner, candidate.priority, candidate.due_ms / 1000)
        if (own := self._collecting.get(owner)) is not None and own.task is task:
            del self._collecting[owner]  # from here on, it is not replaced by another ticket
        self._starting.add(task)
        try:
            claimed = None
            with suppress(errors.StoreUnavailable):
                claimed = await self.stored.claim_entry(owner, self._instance)
            if claimed is None:
                place.give_back()
                return
            if await self._started(claimed, place, begin):
                self._wanted.set()
        finally:
            self._starting.discard(task)

    async def _started(self, claimed: ClaimedEntry, place: Place, begin: Begin) -> bool:
        """False: not now."""
        try:
            request = decode_request(claimed.body)
        except msgspec.DecodeError:
            place.give_back()
            why: errors.GatewayError = errors.GatewayFault(
                "This version cannot read the queued request; send it again."
            )
        else:
            try:
                run = await begin(replace(request, claim=Claim(claimed.run_id, claimed.epoch, claimed.run_id)), place)
                if run.id == claimed.run_id:
                    return True
                why = errors.GatewayFault(f"The same Idempotency-Key has started the run {run.id}; read that one.")
            except _NOT_NOW:
                with suppress(errors.StoreUnavailable):  # then it is found as one that nobody starts
                    await self.stored.release(claimed.run_id, claimed.epoch)
                return False
            except errors.RunnerLost:  # another process has it
                return True
            except errors.GatewayError as error:
                why = error
            except Exception as error:  # noqa: BLE001 -- its client must get an answer
                self._fault(error)
                why = errors.GatewayFault("Internal error in the gateway; its log has the details.")
        with suppress(errors.StoreUnavailable):
            await self.stored.fail(claimed.run_id, claimed.epoch, why.failure())
        return True
