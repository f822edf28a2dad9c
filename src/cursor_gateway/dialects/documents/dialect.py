"""The documents dialect: `/v1/chat` and `/v1/chat/{id}/answer`; answers as SSE, NDJSON or one `ChatResponse`."""

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from cursor_gateway.dialects.base import (
    NDJSON,
    SSE,
    ContinueRun,
    Dialect,
    Encoder,
    Replay,
    ReplyStart,
    Route,
    RunView,
    StartRun,
    StreamForm,
)
from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder, encode_response
from cursor_gateway.dialects.documents.request import (
    AnswerRequest,
    answers_of,
    offer_of,
    permissions_of,
    read_answer,
    read_chat_request,
    results_of,
)
from cursor_gateway.dialects.errors import OWN_ERRORS, encode_error
from cursor_gateway.dialects.replies import (
    JsonReply,
)
from cursor_gateway.errors import Failure
from cursor_gateway.model.answers import PermissionDecisions, PlanDecision, QuestionAnswers, ToolResults
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.messages import UserMessage, check_images, read_image
from cursor_gateway.model.requests import INTERACTIVE, run_options
from cursor_gateway.stages.run_state import RunState, Transcript

_LIVE = "terminal-output"  # this and `respond-async` are values of Prefer (RFC 7240)
_ENCODERS = {SSE: SseEncoder, NDJSON: NdjsonEncoder}


def documents_dialect(max_images: int) -> Dialect:
    return Dialect(
        routes=[
            Route("/v1/chat", "chat", partial(_read_start, max_images=max_images), takes_dialect=True),
            Route("/v1/chat/{id}/answer", "go_on", partial(_read_continue, max_images=max_images), takes_dialect=True),
        ],
        replays=[
            _replay("documents", SSE),
            _replay("ndjson", NDJSON),
        ],
        errors=OWN_ERRORS,
        description="cursor_gateway.dialects.documents.openapi",
    )


def _replay(name: str, form: StreamForm) -> Replay:
    def open(run: RunView, after: int, live: bool = False) -> tuple[Encoder, int]:
        return _ENCODERS[form](after, live=live), after

    return Replay(name, form, open, {_LIVE: partial(open, live=True)})


class DocumentsReply(JsonReply, Struct, frozen=True):
    form: StreamForm
    live: bool = False  # with what running commands write
    is_resumable: bool = True

    def stream(self, run: RunView, start: ReplyStart) -> Encoder:
        """Up to the end of the run, or to where it pauses."""
        return _ENCODERS[self.form](start.after, until_pause=True, live=self.live)

    def whole(self, run: RunView, start: ReplyStart) -> "WholeResponse":
        return WholeResponse(run, start)


class WholeResponse:
    """The run from its beginning up to its end, or to its first pause after the start of this reply."""

    after = 0
    is_cut = False

    def __init__(self, run: RunView, start: ReplyStart) -> None:
        self.is_over = False
        self.failure: Failure | None = None
        self._run, self._start = run, start.after
        self._state, self._transcript = RunState(), Transcript()

    def push(self, event: DocumentEvent, /) -> None:
        self._state.push(event)
        self._transcript.push(event)
        match event:
            case Done(failure=failure):
                self.is_over, self.failure = True, failure
            case Paused(goes_on=False):
                self.is_over = self._state.count > self._start
            case _:
                pass

    def error_body(self, failure: Failure) -> bytes:
        """The error, with what had arrived beside it."""
        return encode_error(failure, _fields(self._response()))

    def body(self) -> bytes:
        return encode_response(self._response())

    def _response(self) -> ChatResponse:
        return self._state.response(self._transcript.documents, self._run.info, self._run.prompt)


def _fields(response: ChatResponse) -> dict[str, object]:
    return {field.encode_name: getattr(response, field.name) for field in msgspec.structs.fields(response)}


def _read_start(body: bytes, headers: Mapping[str, str], max_images: int) -> StartRun:
    asked = read_chat_request(body)
    check_images(len(asked.images), max_images, "images")
    responds_async = _responds_async(headers)
    options = replace(
        asked,
        when_client_leaves=asked.when_client_leaves or ("finish" if responds_async else None),
        source=asked.source or (INTERACTIVE if asked.may_ask is True and not asked.tools else None),
    )
    return StartRun(
        messages=[UserMessage(asked.message)],
        reply=_reply(headers),
        stream=asked.stream,
        responds_async=responds_async,
        images=[read_image(uri, f"images[{place}]") for place, uri in enumerate(asked.images)],
        offer=offer_of(asked),
        may_be_asked=(asked.source == INTERACTIVE or None) if asked.may_ask is UNSET else asked.may_ask,
        model=asked.model,
        follows=asked.follows,
        **run_options(options),
    )


def _read_continue(body: bytes, headers: Mapping[str, str], max_images: int) -> ContinueRun:
    asked = read_answer(body)
    responds_async = _responds_async(headers)
    return ContinueRun(
        given=_given(asked, max_images),
        reply=_reply(headers),
        stream=asked.stream,
        responds_async=responds_async,
        when_client_leaves=asked.when_client_leaves or ("finish" if responds_async else None),
    )


def _given(asked: AnswerRequest, max_images: int) -> ToolResults | QuestionAnswers | PlanDecision | PermissionDecisions:
    if asked.answers is not None:
        return QuestionAnswers(answers_of(asked.answers))
    if asked.plan is not None:
        return PlanDecision(asked.plan, asked.text)
    if asked.permissions is not None:
        return PermissionDecisions(permissions_of(asked.permissions))
    return ToolResults(results_of(asked.tool_results or (), max_images))


def _reply(headers: Mapping[str, str]) -> DocumentsReply:
    form = NDJSON if NDJSON.media_type in headers.get("accept", "") else SSE
    return DocumentsReply(form, live=_LIVE in headers.get("prefer", ""))


def _responds_async(headers: Mapping[str, str]) -> bool:
    return "respond-async" in headers.get("prefer", "")
