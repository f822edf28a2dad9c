"""A failed run in; the error of its response out.

Codex knows a few codes and acts on them: what another try cannot help must not be tried again, and what it can help
needs the time to wait in its message. Other clients show the message, so they get the gateway's own code.
"""

from msgspec.structs import replace

from cursor_gateway.dialects.errors import Errors, encode_error
from cursor_gateway.dialects.responses.shapes import ResponseError
from cursor_gateway.errors import Failure

_CODEX_OWN = frozenset({"insufficient_quota", "context_length_exceeded"})
_DEFAULT_WAIT = 2  # seconds
_FIELDS = {"conversationId": "conversation"}  # of the gateway's own API, and what they are called here


def _encode(failure: Failure, request_id: str) -> bytes:
    return encode_error(replace(failure, param=_FIELDS.get(failure.param or "", failure.param)))


RESPONSES_ERRORS = Errors(_encode)  # the id is in a header


def response_error(failure: Failure, *, is_codex: bool, has_begun: bool) -> ResponseError:
    """`has_begun`: the agent has done something, so that a retry gets the same run with the same failure. Codex does
    not retry what an agent reports either: each of its six attempts would start an agent."""
    if not is_codex or failure.code in _CODEX_OWN:
        return ResponseError(failure.code, failure.message)
    if failure.retryable and failure.source == "gateway" and not has_begun:
        wait = failure.retry_after or _DEFAULT_WAIT
        return ResponseError("rate_limit_exceeded", f"{failure.message} Please try again in {wait}s.")
    return ResponseError("invalid_prompt", failure.message)
