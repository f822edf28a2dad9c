"""The error of a response whose run failed.

Codex acts on codes: it does not retry `invalid_prompt`, and shows its message; it retries `rate_limit_exceeded` after
the time in its message. For other codes it has words of its own, such as for a quota of OpenAI's. Other clients show
the message; they get a code of OpenAI's, and the gateway's own as the error's type.
"""

from typing import Literal

from msgspec.structs import replace

from cursor_gateway.dialects.errors import Errors, encode_error, for_retrying_clients
from cursor_gateway.dialects.responses.shapes import ResponseError
from cursor_gateway.errors import Failure

_DEFAULT_WAIT = 2  # seconds
_FIELDS = {"conversationId": "conversation"}  # of the gateway's own API, and what they are called here


def _encode(failure: Failure, request_id: str) -> bytes:
    return encode_error(replace(failure, param=_FIELDS.get(failure.param or "", failure.param)))


RESPONSES_ERRORS = Errors(_encode, shown=for_retrying_clients)  # the id is in a header


def response_error(failure: Failure, *, is_codex: bool, has_begun: bool) -> ResponseError:
    """`has_begun`: the agent has done something, so that a retry gets the same run with the same failure. Codex does
    not retry what an agent reports either: each of its six attempts would start an agent."""
    if not is_codex:
        return ResponseError(_code(failure.status), failure.message, for_retrying_clients(failure).code)
    if failure.retryable and failure.source == "gateway" and not has_begun:
        wait = failure.retry_after or _DEFAULT_WAIT
        return ResponseError("rate_limit_exceeded", f"{failure.message} Please try again in {wait}s.")
    return ResponseError("invalid_prompt", failure.message)


def _code(status: int) -> Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]:
    """Of the few that OpenAI's API has."""
    if status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if 400 <= status < 499 else "server_error"  # 499: cancelled
