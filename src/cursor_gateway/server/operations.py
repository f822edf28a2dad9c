"""Health, metrics, the OpenAPI document, and the API documentation as a page."""

import asyncio
from collections.abc import Sequence
from importlib.metadata import version

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.dialects.base import Dialect
from cursor_gateway.dialects.errors import encode_error
from cursor_gateway.errors import AgentMissing
from cursor_gateway.keys import KeyRing
from cursor_gateway.model.health import Health, HealthRuns, HealthSource
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.metrics import CONTENT_TYPE, Metrics

_PAGE_POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class OperationEndpoints:
    def __init__(self, service: RunService, metrics: Metrics, dialects: Sequence[Dialect], keys: KeyRing) -> None:
        self._service, self._metrics, self._dialects, self._keys = service, metrics, dialects, keys
        self._version = version("cursor-gateway")
        self._openapi = b""
        self._pages: dict[str, str] = {}  # by the form of the address

    async def health(self, request: Request) -> ASGIApp:
        """503 when no run can be started, for monitors that check only the status. `degraded` is 200: runs work."""
        service = self._service.state()
        state = service.source
        is_exposed = self._keys.are_required  # this path needs no key, so it must not reveal local paths then
        found = Health(
            status="unavailable" if state.missing else "degraded" if service.problem else "ok",
            version=self._version,
            source=HealthSource(name=state.name, detail="" if is_exposed else state.detail, demo=state.is_demo),
            sources=service.sources,
            mode=self._service.defaults.mode,
            model=self._service.defaults.model,
            runs=HealthRuns(running=service.running, limit=service.limit),
            workspace=UNSET if is_exposed else service.workspace,
            problem=UNSET if is_exposed or not service.problem else service.problem,
        )
        if not state.missing:
            return json_response(found)
        failure = AgentMissing(state.missing).failure()
        return error_response(failure, body=encode_error(failure, msgspec.to_builtins(found)))

    async def livez(self, request: Request) -> Response:
        """A process that answers is alive. The database is not asked: a restart would not bring it back."""
        return Response(b"ok\n", media_type="text/plain")

    async def readyz(self, request: Request) -> Response:
        reason = self._service.not_ready()
        return Response(f"{reason or 'ok'}\n", 503 if reason else 200, media_type="text/plain")

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.render(self._service.figures()), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return Response(await asyncio.to_thread(self.openapi_json), media_type="application/json")

    async def docs(self, request: Request) -> Response:
        base_url = str(request.base_url).rstrip("/")
        placeholder = "http://[gateway.invalid]" if "[" in base_url else "http://gateway.invalid"
        page = await asyncio.to_thread(self.docs_page, placeholder)
        return Response(
            page.replace(placeholder, base_url),
            media_type="text/html",
            headers={"content-security-policy": _PAGE_POLICY},
        )

    async def docs_css(self, request: Request) -> Response:
        from cursor_gateway.server.api_page import api_style

        return Response(api_style(), media_type="text/css")

    def openapi_json(self) -> bytes:
        from cursor_gateway.server.openapi import openapi_document  # late: the first request waits for it

        if not self._openapi:
            self._openapi = msgspec.json.encode(openapi_document(self._version, self._dialects))
        return self._openapi

    def docs_page(self, base_url: str) -> str:
        from cursor_gateway.server.api_page import api_page

        if base_url not in self._pages:
            self._pages[base_url] = api_page(msgspec.json.decode(self.openapi_json()), base_url)
        return self._pages[base_url]
