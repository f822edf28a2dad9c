"""Health, metrics, the queue, usage, the OpenAPI document and its page, and the files of the web page."""

import asyncio
import hashlib
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path, PurePath
from time import time
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.dialects.base import Dialect
from cursor_gateway.dialects.errors import encode_error
from cursor_gateway.errors import AgentMissing, InvalidRequest, NotFound, RequestForbidden
from cursor_gateway.keys import LOCAL_OWNER, KeyRing
from cursor_gateway.model.costs import Budget, Prices, cost_of, total_cost
from cursor_gateway.model.health import Health, HealthRuns, HealthSource, QueuedRequest, QueueReport
from cursor_gateway.model.history import UsageReport, UsedByModel, UsedInPeriod, UsedOnDay
from cursor_gateway.runs.admission import EVERY_KEY, day_end, month_end
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.metrics import CONTENT_TYPE, Metrics
from cursor_gateway.server.schedules import schedule_of
from cursor_gateway.settings import Settings
from cursor_gateway.store.base import DayUsage
from cursor_gateway.store.queue import Entry

_PAGE_POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class OperationEndpoints:
    def __init__(self, service: RunService, metrics: Metrics, dialects: Sequence[Dialect], keys: KeyRing) -> None:
        self._service, self._metrics, self._dialects, self._keys = service, metrics, dialects, keys
        self._version = version("cursor-gateway")
        self._openapi = b""
        self._pages: dict[str, str] = {}  # by the form of the address

    async def health(self, request: Request) -> ASGIApp:
        """503 when no run can be started, for monitors that check only the status. `degraded` is 200: runs work."""
        service = self._service.state()
        state = service.source
        is_exposed = self._keys.are_required  # this path needs no key, so it must not reveal local paths then
        found = Health(
            status="unavailable" if state.missing else "degraded" if service.problem else "ok",
            version=self._version,
            source=HealthSource(name=state.name, detail="" if is_exposed else state.detail, demo=state.is_demo),
            sources=service.sources,
            mode=self._service.defaults.mode,
            model=self._service.defaults.model,
            runs=HealthRuns(running=service.running, limit=service.limit),
            workspace=UNSET if is_exposed else service.workspace,
            problem=UNSET if is_exposed or not service.problem else service.problem,
        )
        if not state.missing:
            return json_response(found)
        failure = AgentMissing(state.missing).failure()
        return error_response(failure, body=encode_error(failure, msgspec.to_builtins(found)))

    async def livez(self, request: Request) -> Response:
        """A process that answers is alive. The database is not asked: a restart would not bring it back."""
        return Response(b"ok\n", media_type="text/plain")

    async def readyz(self, request: Request) -> Response:
        reason = self._service.not_ready()
        return Response(f"{reason or 'ok'}\n", 503 if reason else 200, media_type="text/plain")

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.render(self._service.figures()), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return Response(await asyncio.to_thread(self.openapi_json), media_type="application/json")

    async def docs(self, request: Request) -> Response:
        base_url = str(request.base_url).rstrip("/")
        placeholder = "http://[gateway.invalid]" if "[" in base_url else "http://gateway.invalid"
        page = await asyncio.to_thread(self.docs_page, placeholder)
        return Response(
            page.replace(placeholder, base_url),
            media_type="text/html",
            headers={"content-security-policy": _PAGE_POLICY},
        )

    async def docs_css(self, request: Request) -> Response:
        from cursor_gateway.server.api_page import api_style

        return Response(api_style(), media_type="text/css")

    def openapi_json(self) -> bytes:
        from cursor_gateway.server.openapi import openapi_document  # late: the first request waits for it

        if not self._openapi:
            self._openapi = msgspec.json.encode(openapi_document(self._version, self._dialects))
        return self._openapi

    def docs_page(self, base_url: str) -> str:
        from cursor_gateway.server.api_page import api_page

        if base_url not in self._pages:
            self._pages[base_url] = api_page(msgspec.json.decode(self.openapi_json()), base_url)
        return self._pages[base_url]


# --- the queue, and the runners ----------------------------------------------------------------------


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


# --- usage -------------------------------------------------------------------------------------------


_MOST_DAYS = 366


class UsageEndpoints:
    def __init__(self, service: RunService, settings: Settings, now: Callable[[], float] = time) -> None:
        self._service, self._settings, self._now = service, settings, now

    async def usage(self, request: Request) -> Response:
        """Of the last `days`, with today."""
        owner, now_ms = request.state.owner, int(self._now() * 1000)
        now, days = datetime.fromtimestamp(now_ms / 1000, UTC), _days(request)
        today, first = now.date().isoformat(), (now - timedelta(days=days - 1)).date().isoformat()
        month = f"{today[:7]}-01"
        found = await self._service.store.usage(owner, min(first, month))
        budgets, prices = self._settings.budgets, self._settings.prices
        budget = budgets.get(owner) or budgets.get(EVERY_KEY) or Budget()
        report = UsageReport(
            key=owner,
            today=UsedInPeriod(
                **_sums([one for one in found if one.day == today], prices),
                resets=_time(day_end(now_ms)),
                max_cost=UNSET if budget.usd_per_day is None else budget.usd_per_day,
                max_tokens=UNSET if budget.tokens_per_day is None else budget.tokens_per_day,
            ),
            month=UsedInPeriod(
                **_sums([one for one in found if one.day >= month], prices),
                resets=_time(month_end(now_ms)),
                max_cost=UNSET if budget.usd_per_month is None else budget.usd_per_month,
                max_tokens=UNSET if budget.tokens_per_month is None else budget.tokens_per_month,
            ),
            days=[
                UsedOnDay(**_sums(models, prices), day=day, models=[_of_model(one, prices) for one in models])
                for day, models in _by_day(one for one in found if one.day >= first)
            ],
        )
        return json_response(report)


def _days(request: Request) -> int:
    days = request.query_params.get("days") or "30"
    if not (days.isascii() and days.isdigit() and len(days) < 4 and 1 <= int(days) <= _MOST_DAYS):
        raise InvalidRequest(f"`days` must be a number from 1 to {_MOST_DAYS}.", param="days")
    return int(days)


def _by_day(found: Iterable[DayUsage]) -> Iterable[tuple[str, list[DayUsage]]]:
    return ((day, list(models)) for day, models in groupby(found, key=lambda one: one.day))


def _of_model(one: DayUsage, prices: Prices) -> UsedByModel:
    return UsedByModel(**_sums([one], prices), model=one.model)


def _sums(used: Sequence[DayUsage], prices: Prices) -> dict[str, Any]:
    prompt, completion = sum(one.prompt_tokens for one in used), sum(one.completion_tokens for one in used)
    cost = total_cost(
        cost_of(prices, one.model, one.prompt_tokens, one.completion_tokens, one.cached_tokens) for one in used
    )
    return {
        "runs": sum(one.runs for one in used),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "cached_tokens": sum(one.cached_tokens for one in used),
        "cost": UNSET if cost is None else cost,
    }


def _time(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")


# --- the files of the page, each with its own policy --------------------------------------------------


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "manifest-src 'self'; worker-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
_SHELL, _WORKER = "index.html", "sw.js"
_DIAGRAM = "diagram.html"  # the frame in which a diagram is drawn


class _File(Struct, frozen=True):
    data: bytes
    media_type: str
    tag: str
    headers: dict[str, str]


class PageEndpoints:
    async def shell(self, request: Request) -> Response:
        return _reply(request, _SHELL)

    async def file(self, request: Request) -> Response:
        return _reply(request, request.path_params["name"])


def _reply(request: Request, name: str) -> Response:
    file = _files().get(name)
    if file is None:
        raise NotFound(f"The page has no file {name[:100]!r}.", param="name")
    headers = {**file.headers, "cache-control": "no-cache", "etag": file.tag}
    if name == _WORKER:
        headers["service-worker-allowed"] = "/"  # it is for the whole page, not only for its folder
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.data, media_type=file.media_type, headers=headers)


@cache
def _files() -> dict[str, _File]:
    from cursor_gateway.render.html.work import page_style  # only requests for it wait

    folder = files("cursor_gateway.server").joinpath("page")
    found = {entry.name: entry.read_bytes() for entry in folder.iterdir() if PurePath(entry.name).suffix in _TYPES}
    found["style.css"] = page_style().encode()
    known = {name: _file(name, data) for name, data in found.items()}
    if (diagram := _diagram(found.pop(_DIAGRAM))) is None:  # the page asks for it before it draws
        del known[_DIAGRAM]
    else:
        known[_DIAGRAM] = diagram
    return known


def _diagram(page: bytes) -> _File | None:
    """Mermaid sets styles, and draws what a model has written. So the frame may set styles, but has an origin of its
    own and no network, not even to this gateway: its scripts are part of it. None without the extra `diagrams`, which
    contains Mermaid's own script.
    """
    found = find_spec("mmdc")  # not imported: only its file is used
    try:
        folder = Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else Path()
        mermaid = (folder / "assets" / "mermaid.js").read_bytes().replace(b"</script", b"<\\/script")
    except OSError:
        return None
    drawing = re.search(rb"<script>(.*)</script>", page, re.DOTALL)
    assert drawing is not None
    scripts = [mermaid, drawing[1]]
    hashes = " ".join(f"'sha256-{b64encode(hashlib.sha256(script).digest()).decode()}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
    )
    made = _file(_DIAGRAM, page.replace(b"<script>", b"<script>%b</script><script>" % mermaid, 1))
    return replace(made, headers={"content-security-policy": policy, "x-frame-options": "SAMEORIGIN"})


def _file(name: str, data: bytes) -> _File:
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    return _File(data, _TYPES[PurePath(name).suffix], tag, {"content-security-policy": _POLICY})
