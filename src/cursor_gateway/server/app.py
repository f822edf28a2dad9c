"""The service and the settings in; the whole HTTP application out."""

from starlette.routing import Route, Router
from starlette.types import ASGIApp

from cursor_gateway.runs.service import Service
from cursor_gateway.server.chat import ChatEndpoints
from cursor_gateway.server.completions import CompletionEndpoints
from cursor_gateway.server.guard import Guard
from cursor_gateway.server.history import HistoryEndpoints
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.operations import OperationEndpoints
from cursor_gateway.server.page_files import PageEndpoints
from cursor_gateway.server.streaming import Reading
from cursor_gateway.settings import Settings


def build_app(service: Service, settings: Settings, metrics: Metrics) -> ASGIApp:
    reading = Reading(
        hold_seconds=settings.hold_seconds,
        keep_alive_seconds=settings.keep_alive_seconds,
        metrics=metrics,
    )
    chat = ChatEndpoints(service, settings, reading)
    completions = CompletionEndpoints(service, settings, reading)
    history = HistoryEndpoints(service)
    operations = OperationEndpoints(service, settings, metrics)
    page = PageEndpoints()
    routes = [
        Route("/v1/chat", chat.chat, methods=["POST"]),
        Route("/v1/chat/completions", completions.completions, methods=["POST"]),
        Route("/v1/chat/{id}", chat.answer, methods=["GET"]),
        Route("/v1/chat/{id}/events", chat.events, methods=["GET"]),
        Route("/v1/chat/{id}/answer", chat.go_on, methods=["POST"]),
        Route("/v1/chat/{id}/cancel", chat.cancel, methods=["POST"]),
        Route("/v1/conversations", history.conversations, methods=["GET"]),
        Route("/v1/conversations/{id}", history.conversation, methods=["GET"]),
        Route("/v1/conversations/{id}", history.remove, methods=["DELETE"]),
        Route("/v1/runs", history.runs, methods=["GET"]),
        Route("/v1/models", completions.models, methods=["GET"]),
        Route("/v1/models/{id:path}", completions.model, methods=["GET"]),
        Route("/health", operations.health, methods=["GET"]),
        Route("/metrics", operations.metrics, methods=["GET"]),
        Route("/openapi.json", operations.openapi, methods=["GET"]),
        Route("/docs", operations.docs, methods=["GET"]),
        Route("/docs.css", operations.docs_css, methods=["GET"]),
        Route("/", page.shell, methods=["GET"]),
        Route("/page/{name}", page.file, methods=["GET"]),
    ]
    return Guard(
        Router(routes, redirect_slashes=False),
        settings,
        metrics,
        {"x-cursor-gateway-source": service.source.state().name},
    )
