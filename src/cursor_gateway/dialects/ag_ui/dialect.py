"""AG-UI as a dialect: `POST /v1/ag-ui`, and its events for any run."""

from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from cursor_gateway.dialects.ag_ui.encoder import AgUiEncoder, error_event
from cursor_gateway.dialects.ag_ui.request import ForwardedProps, read_input
from cursor_gateway.dialects.base import (
    SSE,
    ContinueRun,
    Dialect,
    Replay,
    ReplyStart,
    Route,
    RunAction,
    RunView,
    StartRun,
)
from cursor_gateway.dialects.errors import OWN_ERRORS
from cursor_gateway.dialects.parts import Reach, StreamedReply, data_frame
from cursor_gateway.dialects.ui_requests import offer_of, options_of
from cursor_gateway.errors import Failure


def ag_ui_dialect(max_images: int) -> Dialect:
    return Dialect(
        routes=[Route("/v1/ag-ui", "ag_ui", partial(_read, max_images=max_images))],
        replays=[
            Replay("ag-ui", SSE, lambda run, after: (AgUiEncoder(run, Reach.of_rest(after)), 0), reply=AgUiReply())
        ],
        errors=OWN_ERRORS,
        description="cursor_gateway.dialects.ag_ui.openapi",
    )


class AgUiReply(StreamedReply, Struct, frozen=True):
    thread_id: str = ""  # as the client names it
    run_id: str = ""

    streams_failures = True

    def stream(self, run: RunView, start: ReplyStart) -> AgUiEncoder:
        return AgUiEncoder(run, Reach.of_reply(start.after), self.thread_id, self.run_id)


def _read(body: bytes, headers: Mapping[str, str], max_images: int) -> RunAction:
    asked = read_input(body, max_images)
    thread, run = asked.input.thread_id, asked.input.run_id
    reply, props = AgUiReply(thread, run), asked.input.forwarded_props or ForwardedProps()
    options = options_of(props.cursor, headers)
    if asked.answer is not None:
        return ContinueRun(
            given=asked.answer.given,
            run_id=asked.answer.run_id,
            reply=reply,
            stream=True,
            when_client_leaves=options["when_client_leaves"],
        )
    return StartRun(
        messages=asked.messages,
        images=asked.images,
        instructions=asked.instructions,
        reply=reply,
        refused=_refused,
        stream=True,
        has_full_history=options["conversation_id"] is None,
        client_session=thread,
        follows=asked.follows if options["conversation_id"] is None else None,
        attempt="unknown" if run else "only",
        question_id=f"{thread} {run}" if run else "",
        offer=offer_of(asked.input.tools),
        model=props.model,
        **options,
    )


def _refused(failure: Failure) -> bytes:
    return data_frame(error_event(failure))
