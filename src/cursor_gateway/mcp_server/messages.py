"""JSON-RPC: bytes in, a request, a notification or a reply out; results and errors as bytes."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.wire.json_body import read_json

# It is in the id of each event of its stream, which must be short enough for a header.
RequestId: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Annotated[str, Meta(max_length=200)]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022


class RpcError(Exception):
    """What a request is answered with instead of a result. `status` is that of the HTTP reply."""

    def __init__(
        self, code: int, message: str, data: Any = None, *, status: int = 400, id: RequestId | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.status, self.id = code, message, data, status, id


class Request(Struct, frozen=True):
    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(Struct, frozen=True):
    method: str
    params: dict[str, Any]


class HostReply(Struct, frozen=True):
    """To one of our own requests. An error has no result."""

    id: RequestId
    result: dict[str, Any]


Message: TypeAlias = Request | Notification | HostReply


class _Wire(Struct, frozen=True):
    jsonrpc: str
    id: RequestId | None = None
    method: str | None = None
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


def read_message(data: bytes) -> Message:
    """Raises `RpcError`. Half a surrogate pair becomes U+FFFD."""
    try:
        value = read_json(data, Any)
    except InvalidRequest as error:
        raise RpcError(PARSE_ERROR, str(error)) from None
    if isinstance(value, list):
        raise RpcError(INVALID_REQUEST, "Batches are not supported; send one message at a time.")
    try:
        wire = msgspec.convert(value, _Wire)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_REQUEST, f"This is no JSON-RPC message: {error}.", id=_id_in(value)) from None
    if wire.jsonrpc != "2.0":
        raise RpcError(INVALID_REQUEST, '`jsonrpc` must be "2.0".', id=wire.id)
    match wire:
        case _Wire(id=None, method=str(method)):
            return Notification(method, wire.params or {})
        case _Wire(id=id, method=str(method)) if id is not None:
            return Request(id, method, wire.params or {})
        case _Wire(id=id) if id is not None:
            return HostReply(id, wire.result or {})
        case _:
            raise RpcError(INVALID_REQUEST, "A message needs a `method` or an `id`.")


def _id_in(value: Any) -> RequestId | None:
    """So that the sender of a malformed request gets the error for it."""
    id = value.get("id") if isinstance(value, dict) else None
    try:
        found: RequestId | None = msgspec.convert(id, RequestId | None)
    except msgspec.ValidationError:
        return None
    return found


def encode_request(id: RequestId, method: str, params: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def encode_notification(method: str, params: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


def encode_result(id: RequestId, result: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": result})


def encode_error(id: RequestId | None, error: RpcError) -> bytes:
    shown: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        shown["data"] = error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": shown})
