"""What an agent does in; a run that did it, with its observers told, out."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import cast

from cursor_gateway.errors import GatewayError
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.runs.machine import Timeouts
from cursor_gateway.runs.run import Observer, Run, RunContext, RunPlan
from cursor_gateway.sources.base import AgentUse, Source, SourceState, Turn
from cursor_gateway.sources.router import AgentBatches, routed
from tests.runs.scripted import UnstoredLog

PROMPT = "the secret prompt"


class _Scripted:
    def __init__(self, events: Sequence[AgentEvent], error: Exception | None, lingers: bool) -> None:
        self._events, self._error, self._lingers = events, error, lingers

    def state(self) -> SourceState:
        return SourceState(name="scripted", detail="")

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        for event in self._events:
            yield [event]
        if self._lingers:
            await asyncio.get_running_loop().create_future()
        if self._error is not None:
            raise self._error


def new_run() -> Run:
    info = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z")
    return Run(info, UnstoredLog(owner="laptop"), RunPlan(request_id="req_1"))


def observed(
    *events: AgentEvent,
    observer: Observer,
    uses: Sequence[AgentUse] = (),
    error: Exception | None = None,
    stopped: GatewayError | None = None,
    model: str = "auto",
    traced: Callable[[Turn, str, AgentBatches], AgentBatches] | None = None,
) -> Run:
    run, turn = new_run(), Turn(run_id="chat_1", prompt=PROMPT, model=model, workspace="/w", folder="/f")
    source = routed(cast(Source, _Scripted(events, error, lingers=stopped is not None)))
    source.observed = traced

    for use in uses:
        turn.uses.append(use)

    async def live() -> None:
        limits = Timeouts(first_event_seconds=60, idle_seconds=60, run_seconds=60)
        run.start(turn, RunContext(source, limits, [observer]))
        if stopped is not None:
            while len(run.log.events) < 1:
                await asyncio.sleep(0)
            run.stop(stopped)
        await run.gone()
        await asyncio.sleep(0)  # observers are told right after the task

    asyncio.run(live())
    return run
