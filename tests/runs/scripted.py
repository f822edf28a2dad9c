"""A script in; a source of runs that follows it, step by step, out. No process, no clock."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeAlias, cast

import uvloop
from msgspec import Struct

from cursor_gateway.errors import Failure, unknown_model
from cursor_gateway.model.agent_events import AgentEvent, RunFinished, RunStarted, TextDelta
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.requests import RunInfo, TraceContext
from cursor_gateway.runs.log import LiveLog
from cursor_gateway.runs.machine import Timeouts
from cursor_gateway.runs.run import Observer, Run, RunContext
from cursor_gateway.sources.base import Model, SourceState, Turn
from cursor_gateway.sources.router import routed
from cursor_gateway.stages.run_state import Transcript
from cursor_gateway.store.base import Idempotency, Store
from tests.store import making
from tests.store.blocking import at_once as at_once

Loop: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]
LOOPS: list[Loop] = [asyncio.run, uvloop.run]

ENDLESS = Timeouts(first_event_seconds=1e6, idle_seconds=1e6, run_seconds=1e6)
STARTED = RunStarted("session-1", "Auto")
FINISHED = RunFinished(duration_ms=5)


class Until(Struct, frozen=True):
    """Waits. A deaf one cannot be cancelled before that."""

    event: asyncio.Event
    is_deaf: bool = False


Step: TypeAlias = Sequence[AgentEvent] | Until | BaseException


def say(*texts: str) -> list[AgentEvent]:
    return [TextDelta(text) for text in texts]


def forever() -> Until:
    return Until(asyncio.Event())


class ScriptedSource:
    """Each turn plays the next script; the last one is played again and again."""

    def __init__(self, *scripts: Sequence[Step], last_step: Until | BaseException | None = None) -> None:
        """`last_step` is done when the generator ends, however it ends: as a process is ended."""
        self._scripts, self._last_step = list(scripts), last_step
        self.turns: list[Turn] = []
        self.ended = 0  # how many turns
        self.is_closed = False
        self.known = ["auto"]
        self.knows_sessions = True
        self.offers_tools = True
        self.holds_questions = self.asks_by_default = True
        self.tools_server = "caller"
        self.login = "somebody"

    def state(self) -> SourceState:
        return SourceState(name="scripted", detail="a script")

    async def models(self) -> list[Model]:
        return [Model(id, id) for id in self.known]

    def account(self) -> str:
        return self.login

    def check_model(self, model: str) -> None:
        if model not in self.known:
            raise unknown_model(model, self.known)

    def has_session(self, turn: Turn) -> bool:
        return self.knows_sessions

    @property
    def has_spares(self) -> bool:
        return False

    def claim_spare(self, turn: Turn) -> str | None:
        return None

    async def end_spares(self) -> None:
        return

    async def forget(self, folder: str) -> bool:
        return True

    def warm_up(self, workspace: str) -> None:
        """Nothing to keep."""

    async def close(self) -> None:
        self.is_closed = True

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        self.turns.append(turn)
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        try:
            for step in script:
                if isinstance(step, Until | BaseException):
                    await _do(step)
                else:
                    yield step
        finally:
            self.ended += 1
            if self._last_step is not None:
                await _do(self._last_step)


async def _do(step: Until | BaseException) -> None:
    if isinstance(step, BaseException):
        raise step
    while not step.event.is_set():
        try:
            await step.event.wait()
        except asyncio.CancelledError:
            if not step.is_deaf:
                raise


class Watcher:
    """An observer that remembers what it was told; it fails where it is told to."""

    def __init__(self, fails_in: str = "") -> None:
        self.seen: list[str] = []
        self.faults: list[Exception] = []
        self._fails_in = fails_in

    def _note(self, what: str) -> None:
        self.seen.append(what)
        if what == self._fails_in:
            raise ValueError(f"mistake in {what}")

    def started(self, run: Run) -> None:
        self._note("started")

    def first_event(self, run: Run) -> None:
        self._note("first_event")

    def ended(self, run: Run) -> None:
        self._note("ended")

    def fault(self, run: Run, error: Exception) -> None:
        self.faults.append(error)
        self._note("fault")

    def repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        self._note(f"repeated {failure.code} {owner} {request_id}")

    def asked(self, run_id: str, trace: TraceContext) -> None:
        self._note(f"asked {run_id} {trace.traceparent}")


def info(id: str = "chat_1", conversation_id: str | None = "conv_1") -> RunInfo:
    return RunInfo(id=id, created="2026-02-23T10:30:00Z", model="auto", conversation_id=conversation_id)


def turn(id: str = "chat_1", session_id: str | None = None) -> Turn:
    return Turn(run_id=id, prompt="Say it.", model="auto", workspace="/w", folder="/f", session_id=session_id)


class UnstoredLog(LiveLog):
    """Takes everything, and stores nothing."""

    def __init__(self, idempotency: Idempotency | None = None, owner: str = making.ME) -> None:
        super().__init__(cast(Store, None), making.new_run(owner=owner, idempotency=idempotency), lambda: 0)

    @property
    def is_complete(self) -> bool:
        return True

    async def try_again(self) -> bool:
        self._keep(self.state.count - self.stored, 0)
        return True

    async def entered(self) -> None:
        pass


def new_run(id: str = "chat_1", owner: str = "me", session_id: str | None = None) -> Run:
    run = Run(info(id), UnstoredLog(owner=owner))
    run.log.session_id = session_id
    return run


def driven_by(source: ScriptedSource, *observers: Observer) -> RunContext:
    return RunContext(routed(source), ENDLESS, observers)


def folded(run: Run) -> ChatResponse | None:
    """What its events come to."""
    transcript = Transcript()
    for event in run.log.events:
        transcript.push(event)
    return transcript.response()


async def write(log: LiveLog, events: Sequence[DocumentEvent]) -> list[DocumentEvent]:
    """What readers see of them."""
    before = log.count
    log.add(events)
    await log.flush()
    return await log.after(before)


async def turns_of_the_loop(count: int = 5) -> None:
    """Whatever can happen without outside help has happened then."""
    for _ in range(count):
        await asyncio.sleep(0)


async def true(condition: Callable[[], object]) -> None:
    """For what comes from outside; the tests' own time limit is for a red build only."""
    while not condition():
        await asyncio.sleep(0.001)
