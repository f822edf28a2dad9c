"""What was said before, over HTTP: conversations, the newest first, searched, looked at, deleted."""

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import InvalidRequest, NotFound
from cursor_gateway.model.history import ConversationList, RemovalPending, RunList
from cursor_gateway.runs.service import Service
from cursor_gateway.store.entries import detail_of, entry_of, recent_of

_MOST = 100
_PENDING = (
    "The conversation is deleted. An agent that others use keeps its copy until their runs end, or the agent's own "
    "store cannot be reached; the gateway deletes the rest as soon as it can."
)


class HistoryEndpoints:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def conversations(self, request: Request) -> Response:
        """`limit`, `before` (a page's `next`) and `q` (words to search for)."""
        query = request.query_params
        page = await self._service.store.conversations(
            request.state.owner,
            limit=_limit(request, 20),
            before=query.get("before") or None,
            query=query.get("q"),
        )
        return _json(ConversationList(conversations=[entry_of(found) for found in page.found], next=page.next))

    async def conversation(self, request: Request) -> Response:
        id, owner = request.path_params["id"], request.state.owner
        store = self._service.store
        found = await store.conversation(id, owner)
        if found is None:
            raise _none(id)
        return _json(await detail_of(store, found))

    async def runs(self, request: Request) -> Response:
        """The newest of all conversations."""
        found = await self._service.store.recent_runs(request.state.owner, _limit(request, 50))
        return _json(RunList(runs=[recent_of(run, title) for run, title in found]))

    async def remove(self, request: Request) -> Response:
        id = request.path_params["id"]
        match await self._service.remove(id, request.state.owner):
            case "unknown":
                raise _none(id)
            case "pending":  # gone from the history, and not yet from all that agents keep
                return _json(RemovalPending(_PENDING), 202)
            case "removed":
                return Response(status_code=204)


def _limit(request: Request, default: int) -> int:
    told = request.query_params.get("limit") or str(default)
    if not (told.isascii() and told.isdigit() and 1 <= int(told[:4]) <= _MOST and len(told) < 4):
        raise InvalidRequest(f"`limit` must be a number from 1 to {_MOST}.", param="limit")
    return int(told)


def _none(id: str) -> NotFound:
    return NotFound(f"Unknown conversation {id[:100]!r}; see GET /v1/conversations.", param="id")


def _json(value: Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
