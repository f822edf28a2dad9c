"""Checks every request first: its key, origin, host and content type. Refused requests get their error here.

This API runs programs on this machine, so web pages must not be able to use it: neither with a form or a script
(Origin, Sec-Fetch-Site, Referer, Content-Type), nor through a name that they have pointed to this machine (Host).
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from math import ceil
from os import urandom
from time import monotonic
from typing import TypeAlias

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cursor_gateway.dialects.errors import OWN_ERRORS, Errors
from cursor_gateway.errors import (
    Failure,
    GatewayError,
    GatewayFault,
    InvalidRequest,
    KeyRefused,
    MediaTypeRefused,
    RequestForbidden,
    StoreUnavailable,
    TooManyRequests,
    host_exhausted,
)
from cursor_gateway.keys import LOCAL_OWNER, KeyRing, Rate
from cursor_gateway.server.logs import StructuredLog
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.settings import Settings, is_loopback
from cursor_gateway.store.base import OWNER

_log = StructuredLog()
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
_PROBES = ("/health", "/livez", "/readyz", "/metrics")  # asked every few seconds: not in the log
# Without a key: they reveal nothing and start nothing.
_OPEN_PATHS = ("/health", "/livez", "/readyz", "/openapi.json", "/docs", "/docs.css", "/")
_LOGIN = ("POST", "/v1/login")  # needs a one-time code instead, and has its own limit
_OPEN_PREFIXES = ("/page/", "/shared/")  # what is shared needs a token, and has its own limit
_EXPORT = re.compile(r"/v1/conversations/[^/]+/export")
_READING = ("GET", "HEAD")
_CODINGS = frozenset({b"content-encoding", b"transfer-encoding"})
_OF_PAGES = frozenset({b"origin", b"sec-fetch-site", b"referer"})  # without these, no web page has sent a request
_STATIC_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}

_Headers: TypeAlias = Mapping[bytes, bytes]  # the first of each name
Pairs: TypeAlias = list[tuple[bytes, bytes]]


class Guard:
    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        more_headers: dict[str, str],
        keys: KeyRing,
        errors_for: Callable[[Scope], Errors] = lambda scope: OWN_ERRORS,
    ) -> None:
        """`errors_for`: how the errors of a request are encoded."""
        self._keys = keys
        self._app, self._settings, self._metrics, self._errors_for = app, settings, metrics, errors_for
        self._headers = _encoded({**_STATIC_HEADERS, **more_headers})
        names = ("localhost", settings.host.strip("[]"), *settings.allowed_hosts)
        self._rate = Rate(settings.requests_per_minute)
        # Runners log the runs of a cluster; without its requests, a front would log nothing of what it does.
        self._logs_requests = bool(settings.store) and settings.role != "runner"
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: _Headers = dict(reversed(scope["headers"]))
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else _new_id()
        origin = _text(headers, b"origin")
        reply = self._reply(send, request_id, origin)
        method: str = scope["method"]
        began = monotonic() if self._logs_requests else 0.0
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        try:
            self._check_host(scope)
            if not _OF_PAGES.isdisjoint(headers):
                self._check_page(method, scope["path"], origin, headers)
            if method == "OPTIONS" and origin is not None:
                await _preflight(headers)(scope, receive, reply)
                return
            state["owner"] = owner = self._owner(method, scope["path"], headers)
            OWNER.set(owner)
            if self._settings.requests_per_minute and not _is_open(method, scope["path"]):
                self._check_rate(owner)
            await self._app(scope, receive, reply)
        except ClientDisconnect:
            pass  # the client is gone
        except GatewayError as error:
            await reply.refuse(error.failure(), self._errors_for(scope))
        except Exception as error:  # noqa: BLE001 -- the caller gets a 500: it was not their mistake
            _log.error("fault", error, request_id=request_id, path=logged_path(scope["path"]))
            fault = GatewayFault(f"Internal error; the gateway's log has the details under the id {request_id}.")
            await reply.refuse((host_exhausted(error) or fault).failure(), self._errors_for(scope))
        finally:
            self._metrics.request(_route(scope), method, reply.status)
            if self._logs_requests and scope["path"] not in _PROBES:
                _log_request(scope, reply, monotonic() - began)

    def refusal(self, error: GatewayError) -> ASGIApp:
        """The reply to a request that is rejected before it gets here."""

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] = {"request_id": _new_id()}
            reply = self._reply(send, scope["state"]["request_id"], None)
            await reply.refuse(error.failure(), self._errors_for(scope))
            self._metrics.request("none", scope["method"], error.status)
            if self._logs_requests:
                _log_request(scope, reply, 0.0)

        return refuse

    def _reply(self, send: Send, request_id: str, origin: str | None) -> "_Reply":
        return _Reply(send, request_id, self._headers if origin is None else self._headers + self._cors(origin))

    def _check_host(self, scope: Scope) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:  # HTTP/1.0 does not require one, but then the intended host is unknown
            raise InvalidRequest("A request must have exactly one `Host` header (RFC 9112, 3.2).", param="Host")
        host = _host(hosts[0])
        if host in self._names:
            return
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            address = None
        # A name can be pointed elsewhere, an address cannot; on loopback, only loopback addresses are accepted.
        if address is not None and (address.is_loopback or not is_loopback(self._settings.host)):
            return
        raise RequestForbidden(
            f"The host name {host!r} is not allowed; use the gateway's address, or add the name to `allowed_hosts`."
        )

    def _check_page(self, method: str, path: str, origin: str | None, headers: _Headers) -> None:
        if origin is not None and origin not in self._settings.allowed_origins:
            host = _text(headers, b"host")
            if origin not in (f"http://{host}", f"https://{host}"):
                raise RequestForbidden(
                    "Web pages from other origins are not allowed; add the origin to `allowed_origins` if you trust it."
                )
        elif origin is None and self._is_foreign(headers) and not _is_link(method, path, headers):
            raise RequestForbidden("Cross-site requests are not allowed; open the gateway's own page.")

    def _is_foreign(self, headers: _Headers) -> bool:
        """Sent by a page of another site or port, without an `Origin`: a link, a frame, an image, a prefetch."""
        site, referer = headers.get(b"sec-fetch-site"), _text(headers, b"referer")
        if site is not None:
            return site not in (b"same-origin", b"none")
        # An old browser, or a program. No page can make a browser send a key with a link.
        if referer is None or b"authorization" in headers or b"x-api-key" in headers:
            return False
        host = _text(headers, b"host")
        own = (f"http://{host}", f"https://{host}", *self._settings.allowed_origins)
        return not any(referer == one or referer.startswith(f"{one}/") for one in own)

    def _owner(self, method: str, path: str, headers: _Headers) -> str:
        if not self._keys.are_required or _is_open(method, path):
            return LOCAL_OWNER
        owner = self._keys.owner_of(key_in(headers))
        if owner is None and not self._keys.is_complete:
            raise StoreUnavailable("The API keys cannot be read; check that the database is running, then retry.")
        if owner is None:
            raise KeyRefused(
                "A valid API key is required; send it as `Authorization: Bearer …`. The operator can create one with "
                "`cursor-gateway key NAME`."
            )
        return owner

    def _check_rate(self, owner: str) -> None:
        seconds = self._rate.take(owner, monotonic())
        if seconds is not None:
            most = self._settings.requests_per_minute
            error = TooManyRequests(
                f"This API key is limited to {most} requests a minute; wait, or raise `requests_per_minute`."
            )
            error.retry_after = ceil(seconds)
            raise error

    def _cors(self, origin: str) -> Pairs:
        if origin not in self._settings.allowed_origins:
            return []
        return _encoded(
            {
                "access-control-allow-origin": origin,
                "access-control-expose-headers": "x-request-id, x-chat-id, x-conversation-id, x-should-retry, "
                "retry-after, location",
                "vary": "origin",
            }
        )


class _Reply:
    """`send`, with our headers on every reply; knows whether one has begun."""

    def __init__(self, send: Send, request_id: str, headers: Pairs) -> None:
        self.status = 0
        self.run_id: bytes | None = None
        self._send, self._request_id = send, request_id
        id = request_id.encode()
        self._headers = [*headers, (b"x-request-id", id), (b"request-id", id)]  # OpenAI's, and Anthropic's

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            names = dict(headers)
            self.run_id = names.get(b"x-chat-id")
            for pair in self._headers:
                if pair[0] not in names:
                    headers.append(pair)
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, failure: Failure, errors: Errors) -> None:
        if self.status:  # a reply has begun: a stream ends in its own form
            return
        scope = {"type": "http", "state": {"request_id": self._request_id}}
        await error_response(failure, errors=errors)(scope, _no_receive, self)


def key_in(headers: _Headers) -> str:
    """Empty: there is none."""
    scheme, _, key = (_text(headers, b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer":
        key = _text(headers, b"x-api-key") or ""
    return key.strip()


def _is_open(method: str, path: str) -> bool:
    return path in _OPEN_PATHS or path.startswith(_OPEN_PREFIXES) or (method, path) == _LOGIN


def _is_link(method: str, path: str, headers: _Headers) -> bool:
    """A link to something that other sites may link to: the page, or a conversation as a file."""
    is_opened = headers.get(b"sec-fetch-mode", b"navigate") == b"navigate"
    is_whole = headers.get(b"sec-fetch-dest", b"document") == b"document"  # not in a frame
    return method in _READING and is_opened and is_whole and (_is_open(method, path) or bool(_EXPORT.fullmatch(path)))


def logged_path(path: str) -> str:
    """Without the token of a read-only link, with which anybody could read the conversation."""
    return "/shared/…" if path.startswith("/shared/") else path


def _log_request(scope: Scope, reply: _Reply, seconds: float) -> None:
    """When its reply has ended. A status of 0: its client left before there was one."""
    write = _log.warning if reply.status >= 500 else _log.info
    write(
        "request",
        method=scope["method"],
        path=logged_path(scope["path"]),
        status=reply.status,
        seconds=round(seconds, 3),
        owner=scope["state"].get("owner"),
        run_id=reply.run_id.decode("latin-1") if reply.run_id is not None else None,
        request_id=scope["state"]["request_id"],
    )


def _new_id() -> str:
    return f"req_{urandom(16).hex()}"


def _encoded(headers: Mapping[str, str]) -> Pairs:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _text(headers: _Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def error_response(
    failure: Failure,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    errors: Errors = OWN_ERRORS,
) -> ASGIApp:
    """`body` is for replies that contain more than the error."""
    shown = errors.shown(failure)
    more = {"x-should-retry": "true" if shown.retryable else "false"}  # OpenAI's and Anthropic's own clients obey it
    if shown.retry_after is not None:  # also of a limit, which is no reason to retry before
        more["retry-after"] = str(shown.retry_after)
    if failure.status == 401 and failure.code == KeyRefused.code:
        more["www-authenticate"] = "Bearer"
    all_headers = {**more, **(headers or {})}

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        content = errors.encode(shown, scope["state"]["request_id"]) if body is None else body
        await Response(content, shown.status, all_headers, media_type=errors.media_type)(scope, receive, send)

    return respond


async def _no_receive() -> Message:
    return {"type": "http.disconnect"}


def _host(value: bytes) -> str:
    """Without its port; an IPv6 address without its brackets. Empty when it cannot be one."""
    found = _HOST.fullmatch(value.decode("latin-1"))
    return (found[1] or found[2]).lower() if found else ""


def check_media_type(scope: Scope) -> None:
    """A form on any web page can send a POST, but not JSON. Raises `MediaTypeRefused`.

    A request without a body needs no type: clients send none to cancel something. From a foreign page, it is refused by
    its `Origin`, which browsers add.
    """
    if scope["method"] not in ("POST", "PUT", "PATCH"):
        return
    headers: _Headers = dict(reversed(scope["headers"]))
    if headers.get(b"content-type") == b"application/json" and _CODINGS.isdisjoint(headers):
        return
    type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if type != b"application/json" and (type or _has_body(headers)):
        raise MediaTypeRefused("The body must be JSON; send it with `Content-Type: application/json`.")
    coding = (
        headers.get(b"content-encoding", b"identity").lower(),
        headers.get(b"transfer-encoding", b"chunked").lower(),
    )
    if coding != (b"identity", b"chunked"):  # never decompressed: a small body could become arbitrarily large
        raise MediaTypeRefused(
            "The body must not be encoded, except as `Transfer-Encoding: chunked`; send it uncompressed."
        )


def _has_body(headers: _Headers) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""


def _preflight(headers: _Headers) -> Response:
    return Response(
        status_code=204,
        headers={
            "access-control-allow-methods": "GET, POST, PATCH, DELETE, OPTIONS",
            "access-control-allow-headers": _text(headers, b"access-control-request-headers") or "",
            "access-control-max-age": "600",
        },
    )


def _route(scope: Scope) -> str:
    """A path's pattern; with the paths themselves, the number of metrics would be unbounded."""
    endpoint: Callable[..., object] | None = scope.get("endpoint")
    return getattr(endpoint, "__name__", "none") if endpoint is not None else "none"
