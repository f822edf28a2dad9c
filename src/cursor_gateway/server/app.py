"""Build the HTTP application from the service, the settings and the dialects."""

from collections.abc import Mapping, Sequence

from cursor_gateway.dialects.base import Dialect, Dialects
from cursor_gateway.dialects.errors import Errors
from cursor_gateway.keys import KeyRing
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.changes import ChangeEndpoints, WorkspaceEndpoints
from cursor_gateway.server.guard import Guard
from cursor_gateway.server.history import HistoryEndpoints, PermissionEndpoints
from cursor_gateway.server.links import LinkEndpoints
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.models import ModelEndpoints
from cursor_gateway.server.operations import OperationEndpoints, PageEndpoints
from cursor_gateway.server.rendering import Renderings
from cursor_gateway.server.replies import ComputedEndpoint, RouteEndpoint, StoredAnswerEndpoints
from cursor_gateway.server.routes import Endpoint, Routes
from cursor_gateway.server.runs import RunEndpoints
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
    more: Mapping[str, Mapping[str, Endpoint]] | None = None,
) -> Guard:
    """A process that serves no clients has only the paths for its operator. Without `keys`, the settings have them.

    `more`: endpoints that only some gateways have.
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
    permissions = PermissionEndpoints(service, settings)
    links = LinkEndpoints(service, settings, keys, reading)
    endpoints: dict[str, dict[str, Endpoint]] = {}
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
    operated: dict[str, dict[str, Endpoint]] = {
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
            "/v1/conversations/{id}/revert": {"POST": changes.revert},
            "/v1/conversations/{id}/keep": {"POST": changes.keep},
            "/v1/conversations/{id}/commit": {"POST": changes.commit},
            "/v1/conversations/{id}/link": {"POST": links.create, "DELETE": links.revoke},
            "/v1/links": {"GET": links.every},
            "/shared/{token}": {"GET": links.read},
            "/v1/workspace/files": {"GET": files.files},
            "/v1/workspace/folders": {"GET": files.folders},
            "/v1/runs": {"GET": history.runs},
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
            **(more or {}),
        },
        errors_by_path,
        known.errors_by_header,
        reading.unread,
    )
    if not serves_clients:
        routes = Routes(operated, {})
    source = {"x-cursor-gateway-source": service.state().source.name}
    return Guard(routes, settings, metrics, source, keys, routes.errors_for)
