"""Serve one run's tools over MCP (streamable HTTP), and hold each call until it is answered.

Imported late: the SDK takes most of a second and about 40 MB, which a gateway without callers' tools does not need.
"""

import asyncio
import base64
from typing import Any

import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from cursor_gateway.sources.base import ToolRunner

_LARGEST_CALL = 16 * 1024 * 1024  # bytes: a call may carry a whole file


class McpServer:
    def __init__(self, runner: ToolRunner, host: str, progress_seconds: float) -> None:
        self._runner, self._progress_seconds = runner, progress_seconds
        self._manager = StreamableHTTPSessionManager(
            Server("cursor-gateway", on_list_tools=self._list, on_call_tool=self._call),
            security_settings=TransportSecuritySettings(allowed_hosts=[host]),
            max_request_body_size=_LARGEST_CALL,
            session_idle_timeout=None,  # as long as its run
        )
        self._is_ready, self._is_over = asyncio.Event(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._live(), name="mcp server")

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._is_ready.wait()
        await self._manager.handle_request(scope, receive, send)

    def close(self) -> None:
        self._is_over.set()

    async def wait_closed(self) -> None:
        self.close()
        await asyncio.wait([self._task])

    async def _live(self) -> None:
        async with self._manager.run():
            self._is_ready.set()
            await self._is_over.wait()

    async def _list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=tool.name,
                description=tool.description or None,
                input_schema={**tool.parameters, "type": "object"},
            )
            for tool in self._runner.tools
        ]
        return types.ListToolsResult(tools=tools)

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        progress = asyncio.create_task(self._report_progress(context))
        try:
            result = await self._runner.call(params.name, params.arguments or {})
        finally:
            progress.cancel()
        content: list[types.ContentBlock] = [types.TextContent(text=result.text)] if result.text else []
        content += [
            types.ImageContent(data=base64.b64encode(image.data).decode(), mime_type=image.media_type)
            for image in result.images
        ]
        structured = result.structured if isinstance(result.structured, dict) else None
        return types.CallToolResult(content=content, structured_content=structured, is_error=result.is_error)

    async def _report_progress(self, context: ServerRequestContext[Any]) -> None:
        """Progress notifications, so that the client does not time out while the caller is working."""
        count = 0
        while True:
            await asyncio.sleep(self._progress_seconds)
            count += 1
            await context.session.report_progress(count, message="The caller is still working on it.")
