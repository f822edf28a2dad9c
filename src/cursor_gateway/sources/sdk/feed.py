"""Send a prompt to an agent and read the events of its run, as they arrive.

Events are read even when no caller is waiting: the bridge drops a stream that is not read.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from cursor_gateway.sources.sdk.failures import reported

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
