"""The queue and the runners over HTTP: look at them, and drain a runner. Administrators see the requests of all keys,
without their contents."""

import sys
from datetime import UTC, datetime

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import InvalidRequest, NotFound, RequestForbidden
from cursor_gateway.keys import LOCAL_OWNER
from cursor_gateway.model.queue import QueuedRequest, QueueReport
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response
from cursor_gateway.server.schedules import schedule_of
from cursor_gateway.settings import Settings
from cursor_gateway.store.queue import Entry

_MOST = 500


class QueueEndpoints:
    def __init__(self, service: RunService, settings: Settings) -> None:
        self._service, self._settings = service, settings

    async def queue(self, request: Request) -> Response:
        owner, is_admin = request.state.owner, self._is_admin(request)
        found = await self._service.work.entries(None, sys.maxsize)  # those of others must not hide the caller's own
        place, requests = 0, list[QueuedRequest]()
        for entry in found:
            is_due = entry.state == "waiting" and entry.age_seconds >= 0
            place += is_due
            if (is_admin or entry.owner == owner) and len(requests) < _MOST:
                requests.append(_request(entry, place if is_due else None, owner, is_admin=is_admin))
        runners = await self._service.work.runners() if is_admin else []
        can_drain = is_admin and self._service.work.is_shared
        return json_response(QueueReport(requests=requests, runners=runners, can_drain=can_drain))

    async def drain(self, request: Request) -> Response:
        return await self._set_draining(request, is_draining=True)

    async def undrain(self, request: Request) -> Response:
        return await self._set_draining(request, is_draining=False)

    async def _set_draining(self, request: Request, *, is_draining: bool) -> Response:
        if not self._is_admin(request):
            raise RequestForbidden("Only an administrator's key may do this; name it in the setting `admin_keys`.")
        id = request.path_params["id"]
        if not await self._service.work.set_draining(id, is_draining=is_draining):
            raise NotFound(f"No process {id[:100]!r} is part of a cluster here; see `GET /v1/queue`.", param="id")
        return Response(status_code=204)

    def _is_admin(self, request: Request) -> bool:
        owner: str = request.state.owner
        return owner == LOCAL_OWNER or owner in self._settings.admin_keys


def check_priority(priority: int, owner: str, settings: Settings) -> None:
    """Raises `InvalidRequest` for one that the owner may not use."""
    allowed = settings.priorities.get(owner, 0)
    if priority > allowed and owner != LOCAL_OWNER:
        raise InvalidRequest(
            f"This API key may use a priority of up to {allowed}; lower it, or raise the key's limit in the setting "
            "`priorities`.",
            param="priority",
        )


def _request(entry: Entry, position: int | None, owner: str, *, is_admin: bool) -> QueuedRequest:
    is_own, is_later = entry.owner == owner, entry.age_seconds < 0
    return QueuedRequest(
        id=entry.run_id,
        state="starting" if entry.state == "claimed" else "scheduled" if is_later else "waiting",
        position=UNSET if position is None else position,
        age_seconds=max(0.0, round(entry.age_seconds, 1)),
        priority=entry.priority,
        created=entry.about.created,
        run_at=_iso(entry.due_ms) if entry.is_scheduled else UNSET,
        schedule=(schedule_of(entry.key) or UNSET) if is_own or is_admin else UNSET,
        expires=_iso(entry.expires_ms),
        model=entry.about.model,
        mode=entry.about.mode,
        conversation_id=(entry.conversation_id or UNSET) if is_own else UNSET,
        prompt=entry.about.prompt if is_own else UNSET,
        key=entry.owner if is_admin and entry.owner != LOCAL_OWNER else UNSET,
    )


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
