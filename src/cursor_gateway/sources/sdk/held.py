"""Run the SDK's calls of the caller's tools, and end them when the run ends first."""

import asyncio
from typing import Any

from cursor_gateway.errors import GatewayError
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.sources.base import ToolRunner
from cursor_gateway.sources.sdk.tools import content_of

_OVER = ToolResult(text="The run is over.", is_error=True)


class HeldCalls:
    """The calls of one run. The SDK does not report that a run was cancelled or its bridge died, so `end` must."""

    def __init__(self, runner: ToolRunner) -> None:
        self._runner = runner
        self._tasks: set[asyncio.Task[ToolResult]] = set()
        self._is_over = False

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Never raises: the bridge would pass nothing useful about an exception to the agent."""
        if self._is_over:
            return content_of(_OVER)
        task = asyncio.get_running_loop().create_task(self._run(name, arguments), name=f"tool {name}")
        self._tasks.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._tasks.discard(task)
        return content_of(_OVER if task.cancelled() else task.result())

    async def _run(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        try:
            return await self._runner.call(name, arguments)
        except GatewayError as error:
            return ToolResult(text=str(error), is_error=True)
        except Exception as error:  # noqa: BLE001 -- the agent waits for an answer in any case
            return ToolResult(text=f"The tool failed: {type(error).__name__}.", is_error=True)

    def end(self) -> None:
        self._is_over = True
        for task in tuple(self._tasks):
            task.cancel()
