"""What operators and newcomers ask for: health, figures, the description of the API and a page that shows it."""

from importlib.metadata import version

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.runs.service import Service
from cursor_gateway.server.metrics import CONTENT_TYPE, Metrics
from cursor_gateway.settings import Settings

_PAGE_POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class OperationEndpoints:
    def __init__(self, service: Service, settings: Settings, metrics: Metrics) -> None:
        self._service, self._settings, self._metrics = service, settings, metrics
        self._version = version("cursor-gateway")

    async def health(self, request: Request) -> Response:
        state = self._service.source.state()
        told = {
            "status": "ok",
            "version": self._version,
            "source": {"name": state.name, "detail": state.detail, "demo": state.is_demo},
            "sources": self._service.source.names,
            "mode": self._service.defaults.mode,
            "model": self._service.defaults.model,
            "runs": {"running": self._service.runs.running, "limit": self._service.runs.limit},
        }
        if not self._settings.api_keys:  # else anybody could ask
            told["workspace"] = str(self._service.workspaces.default)
        return Response(msgspec.json.encode(told), media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        from cursor_gateway.server.openapi import openapi_document  # only those who ask wait for it

        return Response(msgspec.json.encode(openapi_document(self._version)), media_type="application/json")

    async def docs(self, request: Request) -> Response:
        from cursor_gateway.server.openapi import api_page, openapi_document

        page = api_page(openapi_document(self._version), str(request.base_url).rstrip("/"))
        return Response(page, media_type="text/html", headers={"content-security-policy": _PAGE_POLICY})

    async def docs_css(self, request: Request) -> Response:
        from cursor_gateway.server.openapi import api_style

        return Response(api_style(), media_type="text/css")
