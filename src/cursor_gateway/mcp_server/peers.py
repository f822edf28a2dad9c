"""What an MCP host says about itself in; its version of the protocol, what it can do, and its session, out.

Since 2026-07-28, every request says it in `_meta`. Before that, hosts said it once, in `initialize`.
"""

import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from cursor_gateway.mcp_server.messages import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    Request,
    RequestId,
    RpcError,
)

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
VERSIONS = (MODERN, *LEGACY)
TASKS = "io.modelcontextprotocol/tasks"

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_INFO_KEY = "io.modelcontextprotocol/clientInfo"
_LONGEST_NAME = 40  # characters
_FIRST_ELICITATION = "2025-06-18"
_FIRST_TITLES = "2025-11-25"
_FIRST_PRIMING = "2025-11-25"


class Peer(Struct, frozen=True, array_like=True):
    version: str
    can_elicit: bool = False  # it shows forms to its user
    has_tasks: bool = False
    name: str = ""  # of the host, for people

    @property
    def is_modern(self) -> bool:
        return self.version >= MODERN

    @property
    def has_titled_choices(self) -> bool:
        """In forms, and lists to choose several from."""
        return self.version >= _FIRST_TITLES

    @property
    def takes_priming(self) -> bool:
        """An event without a message, whose id lets it resume a stream that has said nothing yet."""
        return self.version >= _FIRST_PRIMING


class _Capabilities(Struct, frozen=True):
    elicitation: dict[str, Any] | None = None
    extensions: dict[str, Any] = {}


class _Info(Struct, frozen=True):
    name: str = ""


class _Initialize(Struct, frozen=True, rename="camel"):
    protocol_version: str
    capabilities: _Capabilities = _Capabilities()
    client_info: _Info = _Info()


def is_modern(params: Mapping[str, Any]) -> bool:
    """Whether a request says its protocol version itself."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def initialized_peer(params: Mapping[str, Any]) -> Peer:
    """Of `initialize`. A version that is not known here becomes the newest of this kind. Raises `RpcError`."""
    try:
        said = msgspec.convert(params, _Initialize)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"The parameters of `initialize` are not valid: {error}.") from None
    version = said.protocol_version if said.protocol_version in LEGACY else LEGACY[0]
    can_elicit = version >= _FIRST_ELICITATION and _shows_forms(said.capabilities)
    return Peer(version, can_elicit, name=said.client_info.name[:_LONGEST_NAME])


def requesting_peer(params: Mapping[str, Any]) -> Peer:
    """Of a request since 2026-07-28. Raises `RpcError`."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not isinstance(version := meta.get(VERSION_KEY), str):
        raise RpcError(INVALID_PARAMS, f"`_meta` must contain `{VERSION_KEY}`.")
    if version != MODERN:
        data = {"supported": list(VERSIONS), "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, f"The protocol version {version[:100]!r} is not supported.", data)
    try:
        said = msgspec.convert(meta[_CAPABILITIES_KEY], _Capabilities)
    except (KeyError, msgspec.ValidationError):
        raise RpcError(INVALID_PARAMS, f"`_meta` must contain `{_CAPABILITIES_KEY}`, an object.") from None
    info = meta.get(_INFO_KEY)
    name = str(info.get("name") or "") if isinstance(info, dict) else ""
    return Peer(version, _shows_forms(said), TASKS in said.extensions, name[:_LONGEST_NAME])


def need_tasks(peer: Peer) -> None:
    """Raises `RpcError`."""
    if not peer.has_tasks:
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise RpcError(MISSING_CAPABILITY, f"The client must declare the extension `{TASKS}`.", needed)


def _shows_forms(said: _Capabilities) -> bool:
    """`{}` is a host from before there were other modes."""
    return said.elicitation is not None and (not said.elicitation or "form" in said.elicitation)


# --- its requests' headers ------------------------------------------------------------------------


VERSION = "mcp-protocol-version"
SESSION = "mcp-session-id"

_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
_TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


def check_headers(request: Request, headers: Mapping[str, str]) -> None:
    """Of a request since 2026-07-28: proxies decide by the headers. Raises `RpcError`."""
    meta = request.params.get("_meta")
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    _check("MCP-Protocol-Version", headers.get(VERSION), version)
    _check("Mcp-Method", headers.get("mcp-method"), request.method)
    name = _decoded(headers.get("mcp-name"))
    if request.method == "tools/call":
        _check("Mcp-Name", name, request.params.get("name"))
    elif request.method in _TASK_METHODS and name is not None:  # no proxy needs it: every process has every task
        _check("Mcp-Name", name, request.params.get("taskId"))


def _check(name: str, sent: str | None, expected: object) -> None:
    if sent is None:
        raise RpcError(HEADER_MISMATCH, f"The header {name} is missing.")
    if sent != expected:
        raise RpcError(HEADER_MISMATCH, f"The header {name} does not match the body.")


def _decoded(value: str | None) -> str | None:
    encoded = None if value is None else _ENCODED.fullmatch(value)
    if encoded is None:
        return value
    try:
        return b64decode(encoded[1], validate=True).decode()
    except (Error, UnicodeDecodeError):
        raise RpcError(HEADER_MISMATCH, "The header Mcp-Name is not valid Base64.") from None


def accepts_both(headers: Mapping[str, str]) -> bool:
    """A reply may be JSON or a stream."""
    accepted = headers.get("accept", "")
    return "*/*" in accepted or ("application/json" in accepted and "text/event-stream" in accepted)


# --- its sessions, before 2026-07-28 --------------------------------------------------------------
# A session's id contains what its host said in `initialize`, and an event's id the run that it is about. So every
# process can take any request of a session, and continue any stream: nothing is kept between requests. A host that
# changes them only changes what it said about itself: what it may read and do depends on its key.


_MOST = 10_000
_LONGEST = 1000  # characters


class Session(Struct, frozen=True, array_like=True):
    peer: Peer
    nonce: str


class Place(Struct, frozen=True, array_like=True):
    """After an event of a run, in the stream that answers a request."""

    request_id: RequestId
    run_id: str
    after: int
    progress_token: RequestId | None = None


_T = TypeVar("_T")


def new_session(peer: Peer, nonce: str) -> str:
    return _encode(Session(peer, nonce))


def read_session(id: str) -> Peer | None:
    """None: it is none of ours."""
    session = _decode(id, Session)
    return session.peer if session is not None and session.peer.version in LEGACY else None


def encode_place(place: Place) -> str:
    return _encode(place)


def read_place(id: str) -> Place | None:
    return _decode(id, Place)


def _encode(value: Struct) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(value)).decode().rstrip("=")


def _decode(text: str, type: type[_T]) -> _T | None:
    if len(text) > _LONGEST or not text.isascii():
        return None
    try:
        return msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=type)
    except (ValueError, msgspec.DecodeError):
        return None


class EndedSessions:
    """The latest ones that their hosts have ended, at this process. An owner ends only its own."""

    def __init__(self, most: int = _MOST) -> None:
        self._ended: dict[tuple[str, str], None] = {}
        self._most = most

    def add(self, owner: str, id: str) -> None:
        self._ended[owner, id] = None
        if len(self._ended) > self._most:
            del self._ended[next(iter(self._ended))]

    def has(self, owner: str, id: str) -> bool:
        return (owner, id) in self._ended
