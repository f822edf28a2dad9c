"""Run the SDK's calls of the tools that it is given, and end them when the run ends first."""

import asyncio
from collections.abc import Mapping
from typing import Any

from cursor_gateway.errors import GatewayError
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.sources.base import ToolRunner
from cursor_gateway.sources.sdk.tools import content_of

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
