"""A caller's request, independent of the dialect."""

import hashlib
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cursor_gateway.errors import IdempotencyMismatch
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.messages import Message, ToolMessage
from cursor_gateway.model.requests import AgentRequest, Fences, WhenBusy, WhenClientLeaves
from cursor_gateway.prompting.fingerprints import Scope, answered
from cursor_gateway.store.base import Claim


class RunRequest(AgentRequest, frozen=True, kw_only=True):
    """With what the gateway knows about the request besides."""

    owner: str
    request_id: str = ""
    client: str = ""  # the name of the program that sent it, for people
    forgets_session: bool = False  # the agent begins a new session with the whole conversation
    allow: Sequence[str] = ()  # rules for this run alone
    idempotency_key: str | None = None
    body: bytes = b""  # as it arrived: a repeated idempotency key must come with the same body
    repeat_key: str = ""  # identifies a request by its content; see `repeats`
    question_key: str = ""  # the same for requests that may be retries; see `failed_questions`
    claim: Claim | None = None  # in a cluster: the command that it came with

    @property
    def may_be_asked_again(self) -> bool:
        """Only the time distinguishes a retry from the same question asked again to get another answer."""
        return self.attempt == "unknown" and not self.question_id


class Defaults(Struct, frozen=True, kw_only=True):
    """For what a request leaves out."""

    model: str
    model_aliases: Mapping[str, str] = {}  # see `model_aliases`
    mode: Mode = "agent"
    fences: Fences = "split"
    wait_for_approval_seconds: float = 0  # for others than the caller
    page_url: str = ""  # where people open the page; empty: not known
    when_busy: WhenBusy = "refuse"
    when_client_leaves: WhenClientLeaves = "cancel"
    reconnect_seconds: float = 5  # for clients that retry by themselves


def scope_of(request: RunRequest, workspace: str, default_mode: Mode) -> Scope:
    """Within which the request's conversation is looked for."""
    return Scope(
        owner=request.owner,
        workspace=workspace,
        mode=request.mode or default_mode,
        tools=tuple(sorted(tool.name for tool in request.offer.tools)) if request.offer is not None else (),
        client_session=request.client_session,
    )


def asks_others(request: RunRequest, defaults: Defaults) -> bool:
    """Whether somebody else than the caller, who cannot be asked, decides about what no rule allows."""
    return defaults.wait_for_approval_seconds > 0 and request.may_be_asked is False and request.offer is None


def results_in(request: RunRequest) -> tuple[dict[str, ToolResult], list[Message]]:
    """The tool results after the last answer, by call id, and the other messages after it."""
    results: dict[str, ToolResult] = {}
    also: list[Message] = []
    first = answered(request.messages)
    for number, message in enumerate(request.messages[first:], first):
        if isinstance(message, ToolMessage):
            shown = tuple(image for image in request.images if image.message == number)
            results.setdefault(message.call_id, ToolResult(text=message.text, images=shown, is_error=message.is_error))
        else:
            also.append(message)
    return results, also


def body_hash(request: RunRequest) -> str:
    return hashlib.sha256(request.body).hexdigest()


def check_body(expected: str, request: RunRequest) -> None:
    if body_hash(request) != expected:
        raise IdempotencyMismatch(
            "This Idempotency-Key was used for a different request; send the same body, or a new key.",
            param="Idempotency-Key",
        )
