"""Encode a failure as Anthropic's error: the body of a reply, or the last event of a stream."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.dialects.errors import Errors, for_retrying_clients
from cursor_gateway.errors import Failure
from cursor_gateway.wire.sse import frame

ErrorType: TypeAlias = Literal[
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "timeout_error",
    "overloaded_error",
]

_TYPES: dict[int, ErrorType] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    424: "api_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class ErrorBody(Struct, frozen=True):
    type: ErrorType
    message: str


class ErrorResponse(Struct, frozen=True, kw_only=True):
    type: Literal["error"] = "error"
    error: ErrorBody
    request_id: str | UnsetType = UNSET


def error_type(status: int) -> ErrorType:
    return _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")


def error_response(failure: Failure, request_id: str = "") -> ErrorResponse:
    type = error_type(failure.status)
    if type == "overloaded_error" and not failure.retryable:
        type = "api_error"  # the other one Claude Code retries, whatever the headers say
    return ErrorResponse(error=ErrorBody(type, failure.message), request_id=request_id or UNSET)


def encode_error(failure: Failure, request_id: str = "") -> bytes:
    # OpenCode retries a reply that contains `503`, and an id may: then only the header has it.
    return msgspec.json.encode(error_response(failure, "" if failure.status in (402, 424) else request_id))


def stream_error(failure: Failure, request_id: str = "") -> bytes:
    """Clients send a request again after an error of the server's, which would run the agent again: in a stream every
    error is one that they show and do not retry."""
    type = error_type(failure.status)
    shown: ErrorType = "rate_limit_error" if type == "rate_limit_error" else "invalid_request_error"
    body = ErrorResponse(error=ErrorBody(shown, failure.message), request_id=request_id or UNSET)
    return frame(msgspec.json.encode(body), event="error")


ANTHROPIC_ERRORS = Errors(encode_error, shown=for_retrying_clients)
