"""One run in the SDK: send its prompt, read its events as they arrive, and run its calls of the tools that it is given.

Events are read even when no caller is waiting: the bridge drops a stream that is not read.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cursor_gateway.errors import GatewayError
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.sources.base import ToolRunner
from cursor_gateway.sources.sdk.failures import reported
from cursor_gateway.sources.sdk.requests import content_of

if TYPE_CHECKING:
    from cursor_sdk import AsyncAgent, AsyncRun, RunStreamEvent, SendOptions


class Feed:
    """`end` must be awaited."""

    def __init__(self, agent: "AsyncAgent", prompt: str, options: "Callable[[bool], SendOptions]") -> None:
        """`options` is called with whether to replace a run that is still active."""
        self.run: AsyncRun | None = None  # set with the bridge's first answer
        self.error: Exception | None = None  # what ended it
        self.is_over = self.is_interrupted = False
        self._agent, self._prompt, self._options = agent, prompt, options
        self._events: list[RunStreamEvent] = []
        self._change = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._read(), name=f"feed of {agent.agent_id}")

    async def next(self) -> "list[RunStreamEvent]":
        """Waits for events and returns all since the last call; empty at the end, and where there are none when
        `is_interrupted` is set."""
        while not self._events and not self.is_over and not self.is_interrupted:
            self._change.clear()
            await self._change.wait()
        events, self._events = self._events, []
        return events

    def interrupt(self) -> None:
        """Lets `next` return, until `is_interrupted` is reset."""
        self.is_interrupted = True
        self._change.set()

    async def end(self, seconds: float) -> None:
        """Waits that long for the end of the stream."""
        try:
            await asyncio.wait([self._task], timeout=seconds)
        finally:
            self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            self.run = await self._send()
            async for event in self.run.events():
                self._events.append(event)
                self._change.set()
        except Exception as error:  # noqa: BLE001 -- reported by `error`
            self.error = error
        finally:
            self.is_over = True
            self._change.set()

    async def _send(self) -> "AsyncRun":
        try:
            return await self._agent.send(self._prompt, self._options(False))
        except Exception as error:
            if not reported(error).is_busy:
                raise
            # The gateway allows one run at a time, so the active one was left over by a dead process.
            return await self._agent.send(self._prompt, self._options(True))


# --- Calls of the tools ----------------------------------------------------------------------------

_OVER = ToolResult(text="The run is over.", is_error=True)


class HeldCalls:
    """The calls of one run. The SDK does not report that a run was cancelled or its bridge died, so `end` must."""

    def __init__(self, runner: ToolRunner) -> None:
        self.runner = runner
        self._tasks: set[asyncio.Task[ToolResult]] = set()
        self._is_over = False

    async def call(self, name: str, arguments: Mapping[str, Any], context: object = None) -> dict[str, Any]:
        """Never raises: the bridge would pass nothing useful about an exception. `context` is the SDK's."""
        if self._is_over:
            return content_of(_OVER)
        waiting = self.runner.call(name, dict(arguments))
        task = asyncio.get_running_loop().create_task(waiting, name=f"tool {name}")
        self._tasks.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._tasks.discard(task)
        return content_of(_OVER if task.cancelled() else _result_of(task))

    def end(self) -> None:
        self._is_over = True
        for task in tuple(self._tasks):
            task.cancel()


def _result_of(task: "asyncio.Task[ToolResult]") -> ToolResult:
    match task.exception():
        case None:
            return task.result()
        case GatewayError() as error:
            return ToolResult(text=str(error), is_error=True)
        case error:  # the agent waits for an answer in any case
            return ToolResult(text=f"The tool failed: {type(error).__name__}.", is_error=True)
