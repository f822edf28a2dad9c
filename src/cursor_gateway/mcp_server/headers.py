"""The HTTP headers of an MCP request in; whether they agree with its body out."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Mapping

from cursor_gateway.mcp_server.messages import HEADER_MISMATCH, Request, RpcError
from cursor_gateway.mcp_server.peers import VERSION_KEY

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
