"""Every request first comes here: who asks, from where, in what form; what is refused gets its error, here too.

Serving this API is running programs on this machine, so a web page must not be able to: neither by a form or a
script (Origin, Sec-Fetch-Site, Content-Type), nor under a name that it has pointed to this machine (Host).
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cursor_gateway.dialects.openai_chat import encode_error
from cursor_gateway.errors import (
    Failure,
    GatewayError,
    GatewayFault,
    KeyRefused,
    MediaTypeRefused,
    MethodRefused,
    NotFound,
    RequestForbidden,
)
from cursor_gateway.keys import owner_of
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.settings import Settings, is_loopback

LOCAL_OWNER = "local"  # of everything, where there are no keys

_log = structlog.get_logger("cursor_gateway.server")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
_OPEN_PATHS = ("/health", "/openapi.json", "/docs", "/docs.css", "/")  # no key: they tell nothing and start nothing
_OPEN_PREFIX = "/page/"
_READING = ("GET", "HEAD")
_STATIC_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "x-frame-options": "DENY"}


class Guard:
    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics, more_headers: dict[str, str]) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._headers = {**_STATIC_HEADERS, **more_headers}
        names = ("localhost", settings.host.strip("[]"), *settings.allowed_hosts)
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid4().hex}"
        origin = headers.get("origin")
        reply = _Reply(send, {**self._headers, "x-request-id": request_id, **self._cors(origin)})
        scope["app"] = self  # Starlette's routes raise errors only then
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        try:
            self._check_host(headers)
            self._check_page(scope["method"], headers)
            if scope["method"] == "OPTIONS" and origin is not None:
                await _preflight(headers)(scope, receive, reply)
                return
            state["owner"] = self._owner(scope, headers)
            _check_form(scope["method"], headers)
            await self._app(scope, receive, reply)
        except ClientDisconnect:
            pass  # nobody is there to be told
        except GatewayError as error:
            await reply.refuse(error.failure())
        except HTTPException as error:
            await reply.refuse(_routing_failure(error, scope), dict(error.headers or {}))
        except Exception:  # noqa: BLE001 -- the caller is told that it was not their mistake
            _log.exception("fault", request_id=request_id, path=scope["path"])
            fault = GatewayFault(f"The gateway made a mistake; its log has the details under the id {request_id}.")
            await reply.refuse(fault.failure())
        finally:
            self._metrics.request(_route(scope), scope["method"], reply.status)

    def _check_host(self, headers: Headers) -> None:
        host = _host(headers.getlist("host"))
        if host in self._names:
            return
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            address = None
        # An address cannot be pointed elsewhere, a name can; on loopback only loopback is meant.
        if address is not None and (address.is_loopback or not is_loopback(self._settings.host)):
            return
        raise RequestForbidden(
            f"The gateway does not answer to the name {host!r}; use its address, or add the name to `allowed_hosts`."
        )

    def _check_page(self, method: str, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is not None and origin not in self._settings.allowed_origins:
            host = headers.get("host")
            if origin not in (f"http://{host}", f"https://{host}"):
                raise RequestForbidden(
                    "A web page of another origin may not use the gateway; add it to `allowed_origins` if you trust it."
                )
        is_link = method in _READING and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") == "cross-site" and origin is None and not is_link:
            raise RequestForbidden("Another site may not use the gateway from a browser; open the gateway's own page.")

    def _owner(self, scope: Scope, headers: Headers) -> str:
        keys = self._settings.api_keys
        if not keys or scope["path"] in _OPEN_PATHS or scope["path"].startswith(_OPEN_PREFIX):
            return LOCAL_OWNER
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get("x-api-key", "")
        key = key.strip()
        owner = owner_of(key, keys) if key else None  # whatever hash was configured: no key is nobody's
        if owner is None:
            raise KeyRefused(
                "This gateway needs an API key that it knows; send it as `Authorization: Bearer …`. "
                "Its operator makes one with `cursor-gateway key NAME`."
            )
        return owner

    def _cors(self, origin: str | None) -> dict[str, str]:
        if origin is None or origin not in self._settings.allowed_origins:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "x-request-id, x-chat-id, x-conversation-id, retry-after",
            "vary": "origin",
        }


class _Reply:
    """`send`, with our headers on every reply; knows whether one has begun."""

    def __init__(self, send: Send, headers: dict[str, str]) -> None:
        self.status = 0
        self._send, self._headers = send, headers

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in self._headers.items():
                headers.setdefault(name, value)
        await self._send(message)

    async def refuse(self, failure: Failure, headers: dict[str, str] | None = None) -> None:
        if self.status:  # a reply has begun: a stream ends in its own form
            return
        await error_response(failure, headers)({"type": "http"}, _no_receive, self)


def error_response(failure: Failure, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> Response:
    more = {"retry-after": str(failure.retry_after)} if failure.retry_after is not None else {}
    if failure.status == 401 and failure.code == KeyRefused.code:
        more["www-authenticate"] = "Bearer"
    return Response(
        encode_error(failure) if body is None else body,
        failure.status,
        {**more, **(headers or {})},
        media_type="application/json",
    )


async def _no_receive() -> Message:
    return {"type": "http.disconnect"}


def _host(values: list[str]) -> str:
    """Without its port; an IPv6 address without its brackets. Empty when it is not exactly one, or none that can be."""
    found = _HOST.fullmatch(values[0]) if len(values) == 1 else None
    return (found[1] or found[2]).lower() if found else ""


def _check_form(method: str, headers: Headers) -> None:
    """A form on any web page can post, but not JSON."""
    if method not in ("POST", "PUT", "PATCH"):
        return
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise MediaTypeRefused("The body must be JSON; send it with `Content-Type: application/json`.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise MediaTypeRefused("The body must not be compressed; send it as it is.")


def _preflight(headers: Headers) -> Response:
    return Response(
        status_code=204,
        headers={
            "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
            "access-control-allow-headers": headers.get("access-control-request-headers", ""),
            "access-control-max-age": "600",
        },
    )


def _routing_failure(error: HTTPException, scope: Scope) -> Failure:
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "other methods")
        return MethodRefused(f"{scope['path']} does not know {scope['method']}; it knows {allowed}.").failure()
    return NotFound(f"There is nothing at {scope['path']}; see /docs for what there is.").failure()


def _route(scope: Scope) -> str:
    """A path's pattern: paths themselves would make figures without end."""
    endpoint: Callable[..., object] | None = scope.get("endpoint")
    return getattr(endpoint, "__name__", "none") if endpoint is not None else "none"
