"""Serve MCP requests on standard input and output, with results and progress notifications.

Imported late: the SDK takes most of a second.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from io import TextIOWrapper
from typing import Any, TypeAlias

import anyio
import mcp.types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from cursor_gateway.client.failures import CallFailed
from cursor_gateway.errors import GatewayError
from cursor_gateway.mcp_server.calls import ConnectedGateway, perform
from cursor_gateway.mcp_server.results import structured, text_of
from cursor_gateway.mcp_server.tools import (
    TOOLS,
    AnswerArguments,
    ToolArguments,
    input_schema,
    output_schema,
    read_arguments,
)
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.wire.surrogates import repair_json

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[ConnectedGateway]]
Failures: TypeAlias = tuple[type[Exception], ...]

_PROGRESS_SECONDS = 10.0  # while the agent says nothing: hosts give up on a silent tool
_STOP_SECONDS = 10.0  # for stopping the runs, when the host has gone

_INSTRUCTIONS = (
    "These tools delegate work to Cursor's coding agent, which works in the user's project. Use `ask` for questions "
    "and `run` for changes. When a result says that the agent needs an answer or a permission, ask the user, and send "
    "it with `answer`."
)


class StdioMcpServer:
    def __init__(self, connect: Connect, failures: Failures = ()) -> None:
        """`connect` gives the gateway for one call; it may raise `GatewayError` and `failures`, with a message for the
        user."""
        self._connect = connect
        self._failures: Failures = (CallFailed, GatewayError, *failures)
        self._tasks: set[asyncio.Task[types.CallToolResult]] = set()
        self._output_schema = output_schema()

    async def serve(self) -> None:
        """Until standard input ends."""
        server: Server[Any] = Server(
            "cursor-gateway",
            version=version("cursor-gateway"),
            title="Cursor's agent",
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        async with stdio_server(standard_input()) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    async def close(self) -> None:
        """Stops the runs whose callers were waiting."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_SECONDS)

    async def _list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    title=tool.title,
                    description=tool.description,
                    input_schema=input_schema(tool),
                    output_schema=self._output_schema,
                    annotations=types.ToolAnnotations(
                        read_only_hint=tool.is_read_only, destructive_hint=tool.is_destructive, open_world_hint=True
                    ),
                )
                for tool in TOOLS.values()
            ]
        )

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """In a task of its own. The SDK cancels a request again and again until it has ended, which would interrupt the
        request that stops the run; the task is cancelled once."""
        tool = TOOLS.get(params.name)
        if tool is None:
            return _failed(f"There is no tool `{params.name}`; use one of: {', '.join(TOOLS)}.")
        try:
            arguments = read_arguments(tool, params.arguments or {})
        except msgspec.ValidationError as error:
            return _failed(f"The arguments of `{tool.name}` are not valid: {error}.")
        task = asyncio.create_task(self._perform(context, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        return task.result()

    async def _perform(self, context: ServerRequestContext[Any], arguments: ToolArguments) -> types.CallToolResult:
        progress = Progress(context.session.report_progress)
        repeating = asyncio.create_task(progress.repeat())
        try:
            async with self._connect() as gateway:
                try:
                    return _result(await perform(gateway, arguments, progress.report), arguments)
                except CallFailed as error:
                    if error.response is None:
                        raise
                    return _failed(error.message, error.response)
        except self._failures as error:
            return _failed(str(error))
        finally:
            repeating.cancel()


class Progress:
    """Numbers the notifications, as each must be larger than the one before."""

    def __init__(self, send: Callable[[float, float | None, str | None], Awaitable[None]]) -> None:
        self._send, self._count = send, 0
        self._start = self._last = time.monotonic()

    async def report(self, line: str) -> None:
        self._count, self._last = self._count + 1, time.monotonic()
        await self._send(self._count, None, line)

    async def repeat(self) -> None:
        """While there is nothing else to report."""
        while True:
            silent = time.monotonic() - self._last
            if silent >= _PROGRESS_SECONDS:
                await self.report(f"Working for {time.monotonic() - self._start:.0f} s")
                continue
            await asyncio.sleep(_PROGRESS_SECONDS - silent)


def _result(response: ChatResponse, arguments: ToolArguments) -> types.CallToolResult:
    is_decided = (
        isinstance(arguments, AnswerArguments) and arguments.plan is not None and arguments.run_id == response.id
    )
    return types.CallToolResult(
        content=[types.TextContent(text=text_of(response, is_plan_decided=is_decided))],
        structured_content=structured(response, is_plan_decided=is_decided),
    )


def _failed(message: str, response: ChatResponse | None = None) -> types.CallToolResult:
    """With what was done before, if anything was."""
    content: list[types.ContentBlock] = [types.TextContent(text=message)]
    if response is not None:
        content.append(types.TextContent(text=text_of(response)))
    return types.CallToolResult(
        content=content, structured_content=None if response is None else structured(response), is_error=True
    )


# --- standard input, with lone surrogates replaced: the SDK drops such a message unanswered ----------


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class RepairedLines(TextIOWrapper):
    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # as in `TextIOWrapper` itself
        return repaired(super().readline(size))


def repaired(line: str) -> str:
    """Half a surrogate pair becomes U+FFFD. What is no JSON is left as it is."""
    if _SURROGATE.search(line) is None:
        return line
    try:
        return json.dumps(repair_json(json.loads(line))) + "\n"
    except (ValueError, RecursionError):
        return line


def standard_input() -> anyio.AsyncFile[str]:
    """For this server alone: for other code and for children, standard input is empty from now on."""
    own, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return anyio.wrap_file(RepairedLines(os.fdopen(own, "rb"), encoding="utf-8", errors="replace"))
