"""The AI SDK's UI messages as a dialect: `POST /v1/ai-sdk`, its streams, and their resumption by the chat's id."""

from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from cursor_gateway.dialects.ai_sdk.encoder import HEADERS, UiMessageEncoder
from cursor_gateway.dialects.ai_sdk.request import read_chat
from cursor_gateway.dialects.base import (
    SSE,
    ContinueRun,
    Dialect,
    NamedStreams,
    Replay,
    ReplyStart,
    Route,
    RunAction,
    RunView,
    StartRun,
)
from cursor_gateway.dialects.errors import Errors
from cursor_gateway.dialects.parts import Reach, StreamedReply
from cursor_gateway.dialects.ui_requests import offer_of, options_of

# A chat shows the body of a reply that failed as the error's message.
_ERRORS = Errors(lambda failure, request_id: failure.message.encode(), "text/plain; charset=utf-8")


def ai_sdk_dialect(max_images: int) -> Dialect:
    return Dialect(
        routes=[Route("/v1/ai-sdk", "ai_sdk", partial(_read, max_images=max_images))],
        replays=[
            Replay(
                "ai-sdk",
                SSE,
                lambda run, after: (UiMessageEncoder(run, Reach.of_rest(after)), 0),
                headers=HEADERS,
                reply=UiReply(),
            )
        ],
        named=NamedStreams(
            "/v1/ai-sdk/{id}/stream",
            "ai_sdk_stream",
            SSE,
            lambda run, after: UiMessageEncoder(run, Reach(through=after)),
            HEADERS,
        ),
        errors=_ERRORS,
        description="cursor_gateway.dialects.ai_sdk.openapi",
    )


class UiReply(StreamedReply, Struct, frozen=True):
    message_id: str = ""  # of the answer that it continues

    def headers(self, run: RunView) -> Mapping[str, str]:
        return HEADERS

    def stream(self, run: RunView, start: ReplyStart) -> UiMessageEncoder:
        return UiMessageEncoder(run, Reach.of_reply(start.after), self.message_id)


def _read(body: bytes, headers: Mapping[str, str], max_images: int) -> RunAction:
    chat = read_chat(body, max_images)
    reply, name = UiReply(chat.continued_message), chat.body.id
    options = options_of(chat.body.cursor, headers)
    if chat.answer is not None:
        return ContinueRun(
            given=chat.answer.given,
            run_id=chat.answer.run_id,
            reply=reply,
            stream=True,
            stream_name=name,
            when_client_leaves=options["when_client_leaves"],
        )
    question_id = chat.question_id
    return StartRun(
        messages=chat.messages,
        images=chat.images,
        reply=reply,
        stream=True,
        stream_name=name,
        has_full_history=options["conversation_id"] is None,
        client_session=name,
        follows=chat.follows if options["conversation_id"] is None else None,
        attempt="unknown" if question_id else "only",
        question_id=question_id,
        offer=offer_of(chat.body.tools),
        model=chat.body.model,
        **options,
    )
