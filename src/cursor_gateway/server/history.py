"""What was said before, over HTTP: conversations, the newest first, searched, looked at, deleted."""

import asyncio
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, Struct
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.core.history import (
    ConversationDetail,
    ConversationEntry,
    ConversationList,
    MessageEntry,
    RunEntry,
)
from cursor_gateway.errors import InvalidRequest, NotFound
from cursor_gateway.runs.service import Service
from cursor_gateway.store.base import StoredConversation, StoredMessage, StoredRun

_MOST = 100


class HistoryEndpoints:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def conversations(self, request: Request) -> Response:
        """`limit`, `before` (a page's `next`) and `q` (words to search for)."""
        query = request.query_params
        limit = query.get("limit") or "20"
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:4]) <= _MOST and len(limit) < 4):
            raise InvalidRequest(f"`limit` is a number from 1 to {_MOST}.", param="limit")
        page = await asyncio.to_thread(
            self._service.store.conversations,
            request.state.owner,
            limit=int(limit),
            before=query.get("before") or None,
            query=query.get("q"),
        )
        found = [_entry(one.conversation, one.snippet) for one in page.found]
        return _json(ConversationList(conversations=found, next=page.next))

    async def conversation(self, request: Request) -> Response:
        id, owner = request.path_params["id"], request.state.owner
        store = self._service.store
        found = await asyncio.to_thread(store.conversation, id, owner)
        if found is None:
            raise _none(id)
        messages = await asyncio.to_thread(store.messages, id, owner)
        runs = await asyncio.to_thread(store.runs_of, id, owner)
        entry = msgspec.structs.asdict(_entry(found))
        return _json(ConversationDetail(**entry, messages=[*map(_message, messages)], runs=[*map(_run, runs)]))

    async def remove(self, request: Request) -> Response:
        id = request.path_params["id"]
        if not await self._service.remove(id, request.state.owner):
            raise _none(id)
        return Response(status_code=204)


def _none(id: str) -> NotFound:
    return NotFound(f"There is no conversation {id[:100]!r}; see GET /v1/conversations.", param="id")


def _json(value: Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _entry(of: StoredConversation, snippet: str | None = None) -> ConversationEntry:
    return ConversationEntry(
        id=of.id,
        title=of.title,
        created=_time(of.created_ms),
        updated=_time(of.updated_ms),
        workspace=of.workspace,
        mode=of.mode,
        model=of.model,
        is_running=of.is_running,
        snippet=UNSET if snippet is None else snippet,
    )


def _message(of: StoredMessage) -> MessageEntry:
    return MessageEntry(role=of.role, text=of.text, chat_id=of.run_id, created=_time(of.created_ms))


def _run(of: StoredRun) -> RunEntry:
    return RunEntry(
        id=of.id,
        state=of.state,
        model=of.model,
        mode=of.mode,
        created=of.created,
        first_event_ms=None if of.first_event_ms is None else of.first_event_ms - of.started_ms,
        duration_ms=None if of.ended_ms is None else of.ended_ms - of.started_ms,
        usage=of.usage,
        error_code=of.failure_code,
    )


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
