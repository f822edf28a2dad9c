"""An agent of the SDK's and a prompt in; the events of its run, as fast as they come, out.

They are read whether or not anybody waits for them: a bridge whose stream is not read drops it.
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
        """`options` are asked for with whether a run that is still under way is to be put aside."""
        self.run: AsyncRun | None = None  # as soon as the bridge has said anything
        self.error: Exception | None = None  # that ended it
        self.is_over = False
        self._agent, self._prompt, self._options = agent, prompt, options
        self._events: list[RunStreamEvent] = []
        self._change = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._read(), name=f"feed of {agent.agent_id}")

    async def next(self) -> "list[RunStreamEvent]":
        """What has come since the last call, as soon as anything has; none at the end."""
        while not self._events and not self.is_over:
            self._change.clear()
            await self._change.wait()
        events, self._events = self._events, []
        return events

    async def over(self) -> None:
        """Waits for the end, whatever still comes."""
        await asyncio.wait([self._task])

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            self.run = await self._send()
            async for event in self.run.events():
                self._events.append(event)
                self._change.set()
        except Exception as error:  # noqa: BLE001 -- whoever reads is told
            self.error = error
        finally:
            self.is_over = True
            self._change.set()

    async def _send(self) -> "AsyncRun":
        try:
            return await self._agent.send(self._prompt, self._options(False))
        except Exception as error:
            if reported(error).sdk_code != "agent_busy":
                raise
            # One run at a time is the gateway's own rule, so this one was left by somebody who is gone.
            return await self._agent.send(self._prompt, self._options(True))
