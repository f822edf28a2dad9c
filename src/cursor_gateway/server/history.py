"""The history over HTTP: list, search, get, rename, pin, export and delete conversations, and get their images."""

import re
from collections.abc import Sequence, Set
from typing import TypeVar

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import InvalidRequest, NotFound
from cursor_gateway.model import history
from cursor_gateway.model.answers import PermissionList
from cursor_gateway.model.costs import priced
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.messages import media_type_of
from cursor_gateway.runs.handle import answered_response_of
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import OF_PEOPLE, json_response, read_body, while_connected
from cursor_gateway.server.rendering import Renderings
from cursor_gateway.settings import Settings
from cursor_gateway.store.base import ConversationRecord, FoundConversation
from cursor_gateway.store.entries import detail_of, entry_of, recent_of
from cursor_gateway.wire.json_body import read_json
from cursor_gateway.workspace.host import AttachedImage, ImagePlace, WorkspaceImage

_Run = TypeVar("_Run", bound=history.RunEntry)

_MOST = 100
_PENDING = (
    "The conversation is deleted. An agent that others use keeps its copy until their runs end, or the agent's own "
    "store cannot be reached; the gateway deletes the rest as soon as it can."
)


_EXPORTS = {"markdown": ("text/markdown", "md"), "json": ("application/json", "json"), "text": ("text/plain", "txt")}


class HistoryEndpoints:
    def __init__(self, service: RunService, settings: Settings, renderings: Renderings) -> None:
        self._service, self._settings, self._renderings = service, settings, renderings

    async def conversations(self, request: Request) -> Response:
        """`limit`, `before` (a page's `next`) and `q` (words to search for); or all that are `pinned`.

        `client` is the name of the program that began them; `people` are the page and the gateway's own commands.
        """
        query = request.query_params
        if query.get("pinned"):
            pinned = await self._service.store.conversations(request.state.owner, limit=_MOST, is_pinned=True)
            return json_response(history.ConversationList(conversations=await self._entries(pinned.found), next=None))
        page = await self._service.store.conversations(
            request.state.owner,
            limit=page_size(request, 20),
            before=query.get("before") or None,
            query=query.get("q"),
            clients=_clients(query.get("client")),
        )
        return json_response(history.ConversationList(conversations=await self._entries(page.found), next=page.next))

    async def conversation(self, request: Request) -> Response:
        return json_response(await self._detail(request))

    async def change(self, request: Request) -> Response:
        change = read_json(await read_body(request, self._settings), history.ConversationChange)
        title = None if change.title is None else " ".join(change.title.split())
        if title == "":
            raise InvalidRequest("`title` is empty; send some text.", param="title")
        id, owner = request.path_params["id"], request.state.owner
        if not await self._service.store.change_conversation(id, owner, title=title, is_pinned=change.pinned):
            raise _no_conversation(id)
        (entry,) = await self._entries([FoundConversation(await find_conversation(self._service, request))])
        return json_response(entry)

    async def export(self, request: Request) -> Response:
        """The whole conversation as a file: `format` is markdown, json or text."""
        form = request.query_params.get("format") or "markdown"
        if form not in _EXPORTS:
            raise InvalidRequest(f"`format` must be one of {', '.join(_EXPORTS)}.", param="format")
        detail = await self._detail(request)
        responses = await self._responses(request, detail)
        return await self._renderings.run_for(request, lambda: _exported(detail, responses, form))

    async def image(self, request: Request) -> Response:
        """One that was sent with a message, by its `name`."""
        return await self._image(request, AttachedImage(request.path_params["name"]))

    async def workspace_image(self, request: Request) -> Response:
        """One in the conversation's workspace, by its `path`."""
        return await self._image(request, WorkspaceImage(request.query_params.get("path", "")))

    async def _image(self, request: Request, place: ImagePlace) -> Response:
        conversation = await find_conversation(self._service, request)
        data = await while_connected(request, self._service.host.image(conversation, place))
        headers = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "private, no-cache"}
        return Response(data, media_type=media_type_of(data), headers=headers)

    async def _entries(self, found: Sequence[FoundConversation]) -> list[history.ConversationEntry]:
        waiting = await self._waiting([one.conversation for one in found])
        return [entry_of(one, is_waiting=one.conversation.id in waiting) for one in found]

    async def _waiting(self, conversations: Sequence[ConversationRecord]) -> Set[str]:
        """Those that somebody must answer: their runs wait, or continued without a decision that can still be made."""
        running = [one.id for one in conversations if one.is_running]
        held = await self._service.waiting_for_people(running) if running else frozenset()
        can_decide = self._settings.permissions == "ask"
        return held | {one.id for one in conversations if can_decide and one.needs_decision}

    async def _detail(self, request: Request) -> history.ConversationDetail:
        found = await find_conversation(self._service, request)
        is_waiting = found.id in await self._waiting([found])
        detail = await detail_of(self._service.store, found, is_waiting=is_waiting)
        return replace(detail, runs=[self._priced(run) for run in detail.runs])

    async def _responses(self, request: Request, detail: history.ConversationDetail) -> list[ChatResponse]:
        service, owner = self._service, request.state.owner
        return [await answered_response_of(service.store, await service.find(run.id, owner)) for run in detail.runs]

    async def runs(self, request: Request) -> Response:
        """The newest of all conversations."""
        found = await self._service.store.recent_runs(request.state.owner, page_size(request, 50))
        in_cluster = self._service.work.is_shared
        runs = [recent_of(run, title, prompt, run.instance if in_cluster else "") for run, title, prompt in found]
        return json_response(history.RunList(runs=[self._priced(run) for run in runs]))

    def _priced(self, run: _Run) -> _Run:
        prices = self._settings.prices
        return replace(run, usage=priced(run.usage, prices, run.model)) if prices and run.usage is not None else run

    async def remove(self, request: Request) -> Response:
        id = request.path_params["id"]
        match await self._service.remove(id, request.state.owner):
            case "unknown":
                raise _no_conversation(id)
            case "pending":  # gone from the history, and not yet from all that agents keep
                return json_response(history.RemovalPending(_PENDING), 202)
            case "removed":
                return Response(status_code=204)


def _clients(name: str | None) -> Sequence[str] | None:
    return OF_PEOPLE if name == "people" else [name] if name else None


def page_size(request: Request, default: int) -> int:
    limit = request.query_params.get("limit") or str(default)
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:4]) <= _MOST and len(limit) < 4):
        raise InvalidRequest(f"`limit` must be a number from 1 to {_MOST}.", param="limit")
    return int(limit)


def _exported(detail: history.ConversationDetail, responses: list[ChatResponse], form: str) -> Response:
    from cursor_gateway.render.export import whole, written

    media_type, suffix = _EXPORTS[form]
    headers = {"content-disposition": f'attachment; filename="{_file_name(detail)}.{suffix}"'}
    return Response(written(whole(detail, responses), form), media_type=media_type, headers=headers)


def _file_name(detail: history.ConversationDetail) -> str:
    """The title as far as every file system takes it, or else the id."""
    return "-".join(re.findall(r"[A-Za-z0-9]+", detail.title.lower()))[:60].strip("-") or detail.id


async def find_conversation(service: RunService, request: Request) -> ConversationRecord:
    """The one of the path. Raises `NotFound`."""
    id = request.path_params["id"]
    found = await service.store.conversation(id, request.state.owner)
    if found is None:
        raise _no_conversation(id)
    return found


def _no_conversation(id: str) -> NotFound:
    return NotFound(f"Unknown conversation {id[:100]!r}; see GET /v1/conversations.", param="id")


# --- permissions ------------------------------------------------------------------------------------


class PermissionEndpoints:
    def __init__(self, service: RunService, settings: Settings) -> None:
        self._service, self._settings = service, settings

    async def every(self, request: Request) -> Response:
        found = await self._service.host.permissions(request.state.owner)
        listed = PermissionList(
            permissions=found,
            settings=self._settings.allow,
            can_allow=self._settings.permissions == "ask",
            allows_everything=self._settings.force,
        )
        return json_response(listed)

    async def revoke(self, request: Request) -> Response:
        id = request.path_params["id"]
        if not await self._service.host.revoke_permission(request.state.owner, id):
            raise NotFound(f"Unknown permission {id[:100]!r}; see GET /v1/permissions.", param="id")
        return Response(status_code=204)
