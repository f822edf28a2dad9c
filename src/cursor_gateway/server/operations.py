"""What operators and newcomers ask for: health, figures, the description of the API and a page that shows it."""

import asyncio
from functools import cache
from importlib.metadata import version

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.dialects.errors import encode_error
from cursor_gateway.errors import AgentMissing
from cursor_gateway.runs.service import Service
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.metrics import CONTENT_TYPE, Metrics
from cursor_gateway.settings import Settings

_PAGE_POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class OperationEndpoints:
    def __init__(self, service: Service, settings: Settings, metrics: Metrics) -> None:
        self._service, self._settings, self._metrics = service, settings, metrics
        self._version = version("cursor-gateway")

    async def health(self, request: Request) -> ASGIApp:
        """503 when no run can be started: who looks at the status alone knows enough."""
        state = self._service.source.state()
        is_exposed = bool(self._settings.api_keys)  # no key is asked for here: strangers learn no path of this machine
        told = {
            "status": "unavailable" if state.missing else "ok",
            "version": self._version,
            "source": {"name": state.name, "detail": "" if is_exposed else state.detail, "demo": state.is_demo},
            "sources": self._service.source.names,
            "mode": self._service.defaults.mode,
            "model": self._service.defaults.model,
            "runs": {"running": self._service.runs.running, "limit": self._service.runs.limit},
        }
        if not is_exposed:
            told["workspace"] = str(self._service.workspaces.default)
        if not state.missing:
            return Response(msgspec.json.encode(told), media_type="application/json")
        failure = AgentMissing(state.missing).failure()
        return error_response(failure, body=encode_error(failure, told))

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return Response(await asyncio.to_thread(_openapi_json, self._version), media_type="application/json")

    async def docs(self, request: Request) -> Response:
        base_url = str(request.base_url).rstrip("/")
        placeholder = "http://[gateway.invalid]" if "[" in base_url else "http://gateway.invalid"
        page = await asyncio.to_thread(_docs_page, self._version, placeholder)
        return Response(
            page.replace(placeholder, base_url),
            media_type="text/html",
            headers={"content-security-policy": _PAGE_POLICY},
        )

    async def docs_css(self, request: Request) -> Response:
        from cursor_gateway.server.openapi import api_style

        return Response(api_style(), media_type="text/css")


@cache
def _openapi_json(version: str) -> bytes:
    from cursor_gateway.server.openapi import openapi_document  # late: the first request waits for it, not the start

    return msgspec.json.encode(openapi_document(version))


@cache
def _docs_page(version: str, base_url: str) -> str:
    from cursor_gateway.server.openapi import api_page, openapi_document

    return api_page(openapi_document(version), base_url)
