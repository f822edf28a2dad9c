"""The handlers of `/mcp`, loaded with the first request to it."""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import ASGIApp

from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import Handler
from cursor_gateway.server.streaming import Reading
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.mcp_server.endpoint import McpEndpoint

_ENDPOINT = "cursor_gateway.mcp_server.endpoint"


def mcp_handlers(service: RunService, settings: Settings, reading: Reading) -> Mapping[str, Handler]:
    endpoint: McpEndpoint | None = None

    async def loaded() -> "McpEndpoint":
        nonlocal endpoint
        await asyncio.to_thread(import_module, _ENDPOINT)
        if endpoint is None:
            from cursor_gateway.dialects.documents.dialect import documents_dialect
            from cursor_gateway.mcp_server.endpoint import McpEndpoint

            endpoint = McpEndpoint(service, settings, documents_dialect(settings.max_images), reading)
        return endpoint

    async def mcp(request: Request) -> ASGIApp:
        return await (endpoint or await loaded()).message(request)

    async def mcp_stream(request: Request) -> ASGIApp:
        return await (endpoint or await loaded()).stream(request)

    async def mcp_end(request: Request) -> ASGIApp:
        return await (endpoint or await loaded()).end(request)

    return {"POST": mcp, "GET": mcp_stream, "DELETE": mcp_end}
