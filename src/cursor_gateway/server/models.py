"""The agent's models over HTTP, in a form that clients of OpenAI, of Anthropic and Codex can all read."""

import time
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import InvalidRequest, unknown_model
from cursor_gateway.runs.model_aliases import is_alias, name_for_claude_code, resolve
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response
from cursor_gateway.sources.base import Model

_WINDOW = 200_000  # tokens; an assumption
_MOST = 1000  # models of one page


class ModelEntry(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "cursor"
    name: str  # gateway extension: the display name
    # Anthropic's:
    type: Literal["model"] = "model"
    display_name: str
    created_at: str
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int = _WINDOW
    max_tokens: int = 64_000


class TruncationPolicy(Struct, frozen=True):
    mode: Literal["bytes"] = "bytes"
    limit: int = 10_000


class CodexModel(Struct, frozen=True, kw_only=True):
    """A model in Codex's catalogue."""

    slug: str
    display_name: str
    description: str
    supported_reasoning_levels: list[Any] = []
    shell_type: str = "shell_command"
    visibility: Literal["list"] = "list"
    supported_in_api: bool = True
    priority: int
    availability_nux: None = None
    upgrade: None = None
    support_verbosity: bool = False
    default_verbosity: None = None
    apply_patch_tool_type: None = None
    truncation_policy: TruncationPolicy = TruncationPolicy()
    context_window: int = _WINDOW
    experimental_supported_tools: list[str] = []
    input_modalities: tuple[str, ...] = ("text", "image")
    base_instructions: str = "You are a coding agent. Use the tools to work in the user's project."


class ModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelEntry]
    models: list[CodexModel]
    has_more: bool = False
    first_id: str | None
    last_id: str | None


class ModelPage(Struct, frozen=True, kw_only=True):
    """The models in Anthropic's form, for requests with `anthropic-version`."""

    data: list[ModelEntry]
    has_more: bool
    first_id: str | None
    last_id: str | None


class ModelEndpoints:
    def __init__(self, service: RunService) -> None:
        self._service = service
        self._began = int(time.time())

    async def models(self, request: Request) -> Response:
        models = await self._service.models()
        if "anthropic-version" in request.headers:
            return json_response(self._page(models, request))
        entries = [self._entry(model.id, model.label) for model in models]
        return json_response(
            ModelList(
                data=entries,
                models=[_for_codex(number, model) for number, model in enumerate(models)],
                first_id=_first(entries),
                last_id=_first(entries[::-1]),
            )
        )

    async def model(self, request: Request) -> Response:
        """By its id, by its name for Claude Code, or by one of Claude's names."""
        id: str = request.path_params["id"]
        models = await self._service.models()
        aliases = self._service.defaults.model_aliases
        meant = resolve(id, aliases, models) if is_alias(id, aliases) else id
        for model in models:
            if model.id == meant:
                return json_response(self._entry(id, model.label))
        self._service.check_model(meant)
        raise unknown_model(id, [])

    def _page(self, models: list[Model], request: Request) -> ModelPage:
        """Empty if the model is not listed."""
        entries = [self._entry(name_for_claude_code(model.id), model.label) for model in models]
        query = request.query_params
        after, before, limit = query.get("after_id"), query.get("before_id"), _limit(query.get("limit", str(_MOST)))
        ids = [entry.id for entry in entries]
        if before is not None:
            wanted = entries[: ids.index(before) if before in ids else 0]
            page = wanted[-limit:]
        elif after is not None:
            wanted = entries[ids.index(after) + 1 if after in ids else len(entries) :]
            page = wanted[:limit]
        else:
            wanted, page = entries, entries[:limit]
        return ModelPage(data=page, has_more=len(page) < len(wanted), first_id=_first(page), last_id=_first(page[::-1]))

    def _entry(self, id: str, label: str) -> ModelEntry:
        created_at = datetime.fromtimestamp(self._began, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        label = label or id
        return ModelEntry(id=id, created=self._began, name=label, display_name=label, created_at=created_at)


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= _MOST):
        raise InvalidRequest(f"limit: Send a number from 1 to {_MOST}.", param="limit")
    return int(text)


def _for_codex(number: int, model: Model) -> CodexModel:
    label = model.label or model.id
    return CodexModel(slug=model.id, display_name=label, description=f"{label}, by Cursor", priority=number)


def _first(entries: list[ModelEntry]) -> str | None:
    return entries[0].id if entries else None
