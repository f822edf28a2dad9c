"""What an MCP host says about itself in; its version of the protocol, and what it can do, out.

Since 2026-07-28, every request says it in `_meta`. Before that, hosts said it once, in `initialize`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cursor_gateway.mcp_server.messages import (
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
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
