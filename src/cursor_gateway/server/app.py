"""Build the HTTP application from the service, the settings and the dialects."""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cursor_gateway.dialects.base import Dialect
from cursor_gateway.dialects.errors import OWN_ERRORS, Errors
from cursor_gateway.errors import MethodRefused, NotFound
from cursor_gateway.keys import KeyRing
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import Handler, UnreadReplies
from cursor_gateway.server.changes import ChangeEndpoints, WorkspaceEndpoints
from cursor_gateway.server.guard import Guard, check_media_type, error_response
from cursor_gateway.server.history import HistoryEndpoints, PermissionEndpoints
from cursor_gateway.server.links import LinkEndpoints
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.models import ModelEndpoints
from cursor_gateway.server.operations import OperationEndpoints, PageEndpoints, QueueEndpoints, UsageEndpoints
from cursor_gateway.server.rendering import Renderings
from cursor_gateway.server.replies import ComputedEndpoint, NamedStreamEndpoint, RouteEndpoint, StoredAnswerEndpoints
from cursor_gateway.server.runs import Dialects, RunEndpoints
from cursor_gateway.server.streaming import Reading
from cursor_gateway.settings import Settings


def build_app(
    service: RunService,
    settings: Settings,
    metrics: Metrics,
    dialects: Sequence[Dialect],
    renderings: Renderings | None = None,
    keys: KeyRing | None = None,
    *,
    serves_clients: bool = True,
    more: Mapping[str, Mapping[str, Handler]] | None = None,
    mcp: Callable[[Reading], Mapping[str, Handler]] | None = None,
    traced: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> Guard:
    """A process that serves no clients has only the paths for its operator. Without `keys`, the settings have them.

    `more`: endpoints that only some gateways have. `mcp`: those of `/mcp`. `traced` adds what traces requests.
    """
    keys = keys or KeyRing(settings.api_keys)
    known = Dialects(dialects)
    reading = Reading(
        hold_seconds=settings.hold_seconds,
        keep_alive_seconds=settings.keep_alive_seconds,
        metrics=metrics,
        renderings=renderings or Renderings(),
    )
    runs = RunEndpoints(service, known, reading)
    models = ModelEndpoints(service)
    history = HistoryEndpoints(service, settings, reading.renderings)
    changes = ChangeEndpoints(service, settings, reading.renderings)
    files = WorkspaceEndpoints(service)
    operations = OperationEndpoints(service, metrics, dialects, keys)
    page = PageEndpoints()
    queue = QueueEndpoints(service, settings)
    permissions = PermissionEndpoints(service, settings)
    links = LinkEndpoints(service, settings, keys, reading)
    endpoints: dict[str, dict[str, Handler]] = {}
    errors_by_path: dict[str, Errors] = {}
    for route, errors in known.routes:
        endpoints[route.path] = {"POST": RouteEndpoint(route, errors, known, service, settings, reading)}
        errors_by_path[route.path] = errors
    for computed, errors in known.computed:
        endpoints.setdefault(computed.path, {})[computed.method] = ComputedEndpoint(computed, settings, reading)
        errors_by_path[computed.path] = errors
    for answers, errors in known.answers:
        found = StoredAnswerEndpoints(answers, known, service, reading, errors).endpoints
        endpoints |= found
        errors_by_path |= dict.fromkeys(found, errors)
    for named, errors in known.named:
        endpoints[named.path] = {"GET": NamedStreamEndpoint(named, service, reading, errors)}
        errors_by_path[named.path] = errors
    operated: dict[str, dict[str, Handler]] = {
        "/health": {"GET": operations.health},
        "/livez": {"GET": operations.livez},
        "/readyz": {"GET": operations.readyz},
        "/metrics": {"GET": operations.metrics},
    }
    routes = Routes(
        {
            **endpoints,
            "/v1/chat/{id}": {"GET": runs.answer},
            "/v1/chat/{id}/events": {"GET": runs.events},
            "/v1/chat/{id}/cancel": {"POST": runs.cancel},
            "/v1/conversations": {"GET": history.conversations},
            "/v1/conversations/{id}": {
                "GET": history.conversation,
                "PATCH": history.change,
                "DELETE": history.remove,
            },
            "/v1/conversations/{id}/export": {"GET": history.export},
            "/v1/conversations/{id}/images/{name}": {"GET": history.image},
            "/v1/conversations/{id}/workspace-image": {"GET": history.workspace_image},
            "/v1/conversations/{id}/changes": {"GET": changes.changes},
            "/v1/conversations/{id}/trace": {"GET": changes.trace},
            "/v1/conversations/{id}/revert": {"POST": changes.revert},
            "/v1/conversations/{id}/keep": {"POST": changes.keep},
            "/v1/conversations/{id}/commit": {"POST": changes.commit},
            "/v1/conversations/{id}/link": {"POST": links.create, "DELETE": links.revoke},
            "/v1/links": {"GET": links.every},
            "/shared/{token}": {"GET": links.read},
            "/v1/workspace/files": {"GET": files.files},
            "/v1/workspace/folders": {"GET": files.folders},
            "/v1/runs": {"GET": history.runs},
            "/v1/queue": {"GET": queue.queue},
            "/v1/runners/{id}/drain": {"POST": queue.drain},
            "/v1/runners/{id}/undrain": {"POST": queue.undrain},
            "/v1/usage": {"GET": UsageEndpoints(service, settings).usage},
            "/v1/permissions": {"GET": permissions.every},
            "/v1/permissions/{id}": {"DELETE": permissions.revoke},
            "/v1/models": {"GET": models.models},
            "/v1/models/{id:path}": {"GET": models.model},
            **operated,
            "/openapi.json": {"GET": operations.openapi},
            "/docs": {"GET": operations.docs},
            "/docs.css": {"GET": operations.docs_css},
            "/": {"GET": page.shell},
            "/page/{name}": {"GET": page.file},
            **({} if mcp is None else {"/mcp": mcp(reading)}),
            **(more or {}),
        },
        errors_by_path,
        known.errors_by_header,
        reading.unread,
    )
    if not serves_clients:
        routes = Routes(operated, {})
    source = {"x-cursor-gateway-source": service.state().source.name}
    return Guard(traced(routes), settings, metrics, source, keys, routes.errors_for)


# --- routes -----------------------------------------------------------------------------------------


Methods: TypeAlias = Mapping[str, Handler]

_LONGEST = 100  # characters of a path that are compared
_SLASHES = re.compile("/+")


class Routes:
    """By pattern: `{name}` is one part of a path, `{name:path}` all the rest. Paths without a pattern come first.

    A path is split before it is decoded, so `%2F` is not a separator.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Methods],
        errors: Mapping[str, Errors] | None = None,
        errors_by_header: Mapping[str, Errors] | None = None,
        unread: UnreadReplies | None = None,
    ) -> None:
        """`errors`: by pattern, for paths that have errors of their own. `errors_by_header`: for requests with such a
        header, to all other paths."""
        self.endpoints = endpoints
        self._unread = unread or UnreadReplies()
        self._errors = [(path.split("/"), own) for path, own in (errors or {}).items()]
        self._errors_by_header = {name.encode(): own for name, own in (errors_by_header or {}).items()}
        self._fixed = {path: methods for path, methods in endpoints.items() if "{" not in path}
        self._patterns = [(path.split("/"), methods) for path, methods in endpoints.items() if "{" in path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods, scope["path_params"] = self._find(scope)
        method = scope["method"]
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is not None:
            scope["endpoint"] = endpoint
            check_media_type(scope)
            reply = await endpoint(Request(scope, receive))
            if isinstance(reply, Response):
                with self._unread.holding(scope["state"]["owner"], bytes(reply.body)) as reply.body:
                    await reply(scope, receive, send)
                return
        else:
            reply = _without_endpoint(scope, methods, self.errors_for(scope))
        await reply(scope, receive, send)

    def errors_for(self, scope: Scope) -> Errors:
        parts = scope["path"].split("/")
        for pattern, own in self._errors:
            if _matched(pattern, parts) is not None:
                return own
        sent = (self._errors_by_header[name] for name, _ in scope["headers"] if name in self._errors_by_header)
        return next(sent, OWN_ERRORS)

    def _find(self, scope: Scope) -> tuple[Methods, dict[str, str]]:
        path: str = scope["path"]
        raw: bytes = scope.get("raw_path") or b""
        if b"%" not in raw and path in self._fixed:
            return self._fixed[path], {}
        parts = [unquote(part) for part in raw.decode("ascii").split("/")] if b"%" in raw else path.split("/")
        if path in self._fixed and len(parts) == path.count("/") + 1:
            return self._fixed[path], {}
        for pattern, methods in self._patterns:
            if (named := _matched(pattern, parts)) is not None:
                return methods, named
        shown = raw.decode("ascii") or path
        raise NotFound(f"No endpoint at {shown}; {self._meant(shown)}see /docs for the list.")

    def _meant(self, path: str) -> str:
        """Most wrong paths come from a base URL with an extra slash, without its `/v1`, or with two of them."""
        tidy = _SLASHES.sub("/", path[:_LONGEST]).rstrip("/")
        for likely in (tidy, f"/v1{tidy}", tidy.replace("/v1/v1/", "/v1/")):
            if likely in self._fixed:
                return f"did you mean {likely}? Otherwise "
        near = get_close_matches(tidy, self._fixed, 1, cutoff=0.8)
        return f"did you mean {near[0]}? Otherwise " if near else ""


def _matched(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    named: dict[str, str] = {}
    for place, part in enumerate(pattern):
        if place >= len(parts):
            return None
        if part.endswith(":path}"):
            named[part[1:-6]] = "/".join(parts[place:])
            return named if parts[place] else None
        if part.startswith("{"):
            if not parts[place]:
                return None
            named[part[1:-1]] = parts[place]
        elif part != parts[place]:
            return None
    return named if len(pattern) == len(parts) else None


def _without_endpoint(scope: Scope, methods: Methods, errors: Errors) -> ASGIApp:
    known = [*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"]
    allow = {"allow": ", ".join(known)}
    if scope["method"] == "OPTIONS":
        return Response(status_code=204, headers=allow)
    message = f"{scope['path']} does not support {scope['method']}; use {allow['allow']}."
    return error_response(MethodRefused(message).failure(), allow, errors=errors)
