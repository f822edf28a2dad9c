"""Encode a failure in the form that the gateway's own API shares with OpenAI's."""

from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from cursor_gateway.errors import AgentOverloaded, AgentQuotaExhausted, Failure, KeyQuotaExhausted

NO_CAPACITY = "agent_no_capacity"  # what `agent_overloaded` is called outside the documents API
_USED_UP = (AgentQuotaExhausted.code, KeyQuotaExhausted.code)


class ErrorBody(Struct, frozen=True):
    """The error, in OpenAI's form."""

    message: Annotated[str, "What happened, and what to do."]
    type: Annotated[str, "OpenAI's error type."]
    param: Annotated[str | None, "The request field that caused it, if any."]
    code: Annotated[str, "A stable error code."]
    details: Annotated[str | UnsetType, "Gateway extension: the agent's own output, up to 2,000 characters."] = UNSET


def error_body(failure: Failure) -> ErrorBody:
    match failure.status:
        case 401:
            kind = "authentication_error"
        case 402:
            kind = "insufficient_quota"
        case 403:
            kind = "permission_error"
        case 429:
            kind = "insufficient_quota" if failure.code == "insufficient_quota" else "rate_limit_error"
        case status if status < 500 and status != 424:
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
    shown: Callable[[Failure], Failure] = lambda failure: failure  # with the status that suits the path's clients


def for_retrying_clients(failure: Failure) -> Failure:
    """The same failure, with a status that clients show at once and do not retry.

    Most clients of OpenAI's and Anthropic's APIs retry 429 and 5xx, for minutes and without a word, whatever the
    headers say, and each retry would start an agent. The agent has retried by itself before it failed. What the gateway
    refuses starts no agent, and a retry may help: it keeps its status.
    """
    if failure.code in _USED_UP:
        return replace(failure, status=402)
    if failure.source != "agent":
        return failure
    if failure.status == 429 or failure.status >= 500:
        # Without the agent's words, and this code: OpenCode retries a reply that contains `ENOTFOUND`, `503` or
        # `overloaded`, whatever its status.
        code = NO_CAPACITY if failure.code == AgentOverloaded.code else failure.code
        failure = replace(failure, status=424, code=code, details="")
    return replace(failure, retryable=False, retry_after=None)


def error_in_stream(failure: Failure) -> ErrorBody:
    """After the first words. Some clients look at the type, and retry these two."""
    body = error_body(for_retrying_clients(failure))
    return replace(body, type="invalid_request_error") if body.type in ("api_error", "rate_limit_error") else body


OWN_ERRORS = Errors(lambda failure, request_id: encode_error(failure))  # of the documents API; the id is in a header
OPENAI_ERRORS = Errors(OWN_ERRORS.encode, shown=for_retrying_clients)
