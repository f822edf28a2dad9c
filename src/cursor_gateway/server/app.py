"""The service and the settings in; the whole HTTP application out."""

from cursor_gateway.runs.service import Service
from cursor_gateway.server.chat import ChatEndpoints
from cursor_gateway.server.completions import CompletionEndpoints
from cursor_gateway.server.guard import Guard
from cursor_gateway.server.history import HistoryEndpoints
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.operations import OperationEndpoints
from cursor_gateway.server.page_files import PageEndpoints
from cursor_gateway.server.rendering import Renderings
from cursor_gateway.server.routes import Routes
from cursor_gateway.server.streaming import Reading
from cursor_gateway.settings import Settings


def build_app(service: Service, settings: Settings, metrics: Metrics, renderings: Renderings | None = None) -> Guard:
    reading = Reading(
        hold_seconds=settings.hold_seconds,
        keep_alive_seconds=settings.keep_alive_seconds,
        metrics=metrics,
        renderings=renderings or Renderings(),
    )
    chat = ChatEndpoints(service, settings, reading)
    completions = CompletionEndpoints(service, settings, reading)
    history = HistoryEndpoints(service)
    operations = OperationEndpoints(service, settings, metrics)
    page = PageEndpoints()
    routes = Routes(
        {
            "/v1/chat": {"POST": chat.chat},
            "/v1/chat/completions": {"POST": completions.completions},
            "/v1/chat/{id}": {"GET": chat.answer},
            "/v1/chat/{id}/events": {"GET": chat.events},
            "/v1/chat/{id}/answer": {"POST": chat.go_on},
            "/v1/chat/{id}/cancel": {"POST": chat.cancel},
            "/v1/conversations": {"GET": history.conversations},
            "/v1/conversations/{id}": {"GET": history.conversation, "DELETE": history.remove},
            "/v1/runs": {"GET": history.runs},
            "/v1/models": {"GET": completions.models},
            "/v1/models/{id:path}": {"GET": completions.model},
            "/health": {"GET": operations.health},
            "/metrics": {"GET": operations.metrics},
            "/openapi.json": {"GET": operations.openapi},
            "/docs": {"GET": operations.docs},
            "/docs.css": {"GET": operations.docs_css},
            "/": {"GET": page.shell},
            "/page/{name}": {"GET": page.file},
        },
        {
            "/v1/responses": "Set your client to the Chat Completions API, /v1/chat/completions.",
            "/v1/messages": "Use a client of OpenAI's API; its path is /v1/chat/completions.",
        },
    )
    return Guard(routes, settings, metrics, {"x-cursor-gateway-source": service.source.state().name})
