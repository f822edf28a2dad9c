"""The agent's models over HTTP, in a form that clients of OpenAI, of Anthropic and Codex can all read."""

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import InvalidRequest, unknown_model
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor.models import is_alias, name_for_claude_code, resolve

_WINDOW = 200_000  # tokens; an assumption
_MOST = 1000  # models of one page


class ListedModel(Struct, frozen=True, kw_only=True):
    """A model."""

    id: Annotated[str, "Its name in requests."]
    object: Annotated[Literal["model"], "The object type."] = "model"
    created: Annotated[int, "When the gateway started, in seconds since 1970. The real date is unknown."]
    owned_by: Annotated[str, "The provider."] = "cursor"
    name: Annotated[str, "Gateway extension: the display name."]
    alias_of: Annotated[str | UnsetType, "Gateway extension: the model that this name of `model_aliases` selects."] = (
        UNSET
    )
    # Anthropic's:
    type: Annotated[Literal["model"], "The object type."] = "model"
    display_name: Annotated[str, "The display name."]
    created_at: Annotated[str, "When the gateway started."]
    lifecycle: Literal["active"] = "active"
    max_input_tokens: Annotated[int, "An assumption."] = _WINDOW
    max_tokens: Annotated[int, "An assumption."] = 64_000


class CodexTruncationPolicy(Struct, frozen=True):
    """How Codex shortens the output of tools."""

    mode: Annotated[Literal["bytes"], "The unit of the limit."] = "bytes"
    limit: Annotated[int, "The limit."] = 10_000


class CodexModel(Struct, frozen=True, kw_only=True):
    """A model in Codex's catalogue."""

    slug: Annotated[str, "Its name in requests."]
    display_name: Annotated[str, "The display name."]
    description: Annotated[str, "A description."]
    supported_reasoning_levels: Annotated[list[Any], "Empty: effort is part of Cursor's model names."] = []
    shell_type: Annotated[str, "The shell tool that Codex offers."] = "shell_command"
    visibility: Annotated[Literal["list"], "Whether Codex lists it."] = "list"
    supported_in_api: Annotated[bool, "Always true."] = True
    priority: Annotated[int, "Its position in the list."]
    availability_nux: None = None
    upgrade: None = None
    support_verbosity: Annotated[bool, "Always false."] = False
    default_verbosity: None = None
    apply_patch_tool_type: None = None
    truncation_policy: CodexTruncationPolicy = CodexTruncationPolicy()
    context_window: Annotated[int, "Tokens (an assumption)."] = _WINDOW
    experimental_supported_tools: Annotated[list[str], "Always empty."] = []
    input_modalities: Annotated[tuple[str, ...], "The supported inputs."] = ("text", "image")
    base_instructions: Annotated[str, "The instructions that Codex sends."] = (
        "You are a coding agent. Use the tools to work in the user's project."
    )


class ModelList(Struct, frozen=True, kw_only=True):
    """The agent's models."""

    object: Annotated[Literal["list"], "The object type."] = "list"
    data: Annotated[list[ListedModel], "The models in OpenAI's form, and after them the aliases."]
    models: Annotated[list[CodexModel], "The models in Codex's form."]
    has_more: Annotated[bool, "Whether there is another page."] = False
    first_id: Annotated[str | None, "The first id on the page."]
    last_id: Annotated[str | None, "The last id on the page."]


class ModelPage(Struct, frozen=True, kw_only=True):
    """The models in Anthropic's form, for requests with `anthropic-version`."""

    data: Annotated[list[ListedModel], "The models. All ids contain `claude`, because Claude Code shows no others."]
    has_more: Annotated[bool, "Whether there is another page."]
    first_id: Annotated[str | None, "The first id on the page."]
    last_id: Annotated[str | None, "The last id on the page."]


class ModelEndpoints:
    def __init__(self, service: RunService) -> None:
        self._service = service
        self._began = int(time.time())

    async def models(self, request: Request) -> Response:
        models = await self._service.host.models()
        if "anthropic-version" in request.headers:
            return json_response(self._page(models, request))
        entries = [self._entry(model.id, model.label) for model in models] + self._aliases(models)
        return json_response(
            ModelList(
                data=entries,
                models=[_for_codex(number, model) for number, model in enumerate(models)],
                first_id=_first(entries),
                last_id=_first(entries[::-1]),
            )
        )

    async def model(self, request: Request) -> Response:
        """By its id, by its name for Claude Code, or by a name that another provider's clients use."""
        id: str = request.path_params["id"]
        models = await self._service.host.models()
        aliases = self._service.defaults.model_aliases
        meant = resolve(id, aliases, models) if is_alias(id, aliases) else id
        for model in models:
            if model.id == meant:
                return json_response(self._entry(id, model.label))
        self._service.host.check_model(meant)
        raise unknown_model(id, [])

    def _aliases(self, models: list[Model]) -> list[ListedModel]:
        aliases = self._service.defaults.model_aliases
        names = sorted(aliases.keys() - {model.id for model in models})
        meant = {name: resolve(name, aliases, models) for name in names}
        return [replace(self._entry(name, f"{name} ({meant[name]})"), alias_of=meant[name]) for name in names]

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

    def _entry(self, id: str, label: str) -> ListedModel:
        created_at = datetime.fromtimestamp(self._began, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        label = label or id
        return ListedModel(id=id, created=self._began, name=label, display_name=label, created_at=created_at)


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= _MOST):
        raise InvalidRequest(f"limit: Send a number from 1 to {_MOST}.", param="limit")
    return int(text)


def _for_codex(number: int, model: Model) -> CodexModel:
    label = model.label or model.id
    return CodexModel(slug=model.id, display_name=label, description=f"{label}, by Cursor", priority=number)


def _first(entries: list[ListedModel]) -> str | None:
    return entries[0].id if entries else None
