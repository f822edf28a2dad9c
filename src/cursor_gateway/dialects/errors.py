"""Encode a failure in the form that the gateway's own API shares with OpenAI's."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.errors import Failure


class ErrorBody(Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str
    details: str | UnsetType = UNSET  # gateway extension: what the agent wrote about it


def error_body(failure: Failure) -> ErrorBody:
    match failure.status:
        case 401:
            kind = "authentication_error"
        case 403:
            kind = "permission_error"
        case 429:
            kind = "insufficient_quota" if failure.code == "insufficient_quota" else "rate_limit_error"
        case status if status < 500:
            kind = "invalid_request_error"
        case _:
            kind = "api_error"
    return ErrorBody(failure.message, kind, failure.param, failure.code, failure.details or UNSET)


def encode_error(failure: Failure, beside: Mapping[str, object] | None = None) -> bytes:
    """The body of a reply that failed; `beside` are more fields of the same object."""
    return msgspec.json.encode({"error": error_body(failure), **(beside or {})})


class Errors(Struct, frozen=True):
    """How the failures of a path are encoded."""

    encode: Callable[[Failure, str], bytes]  # of a failure and the id of the request
    media_type: str = "application/json"
    is_worth_retrying: Callable[[Failure], bool] = lambda failure: failure.retryable  # as the path's clients decide it


OPENAI_ERRORS = Errors(lambda failure, request_id: encode_error(failure))  # the id is in a header
