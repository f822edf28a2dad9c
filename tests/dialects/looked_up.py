"""A dialect for tests: answers that can be looked up by their ids, and a path that is answered without an agent."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.dialects.base import Dialect, Encoder, ReplyStart, Route, RunView, StartRun, StoredAnswers
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.wire.json_body import read_json
from tests.dialects.plain import PLAIN, PlainEncoder, PlainReply, PlainWhole


class Request(Struct, frozen=True):
    prompt: str
    stream: bool = False
    background: bool = False
    follows: str | None = None


class Whole(PlainWhole):
    def __init__(self, start: ReplyStart) -> None:
        super().__init__(start.after)
        self._kept = start.kept

    def body(self) -> bytes:
        answer = self.answer()
        said = "not yet" if answer is None else answer.text if answer.end.failure is None else answer.end.failure.code
        return b"%b: %b" % (self._kept, said.encode())


class Reply(PlainReply, frozen=True):
    streams_failures: bool = False

    def headers(self, run: RunView) -> Mapping[str, str]:
        return {"x-turn": run.info.id}

    def stream(self, run: RunView, start: ReplyStart) -> Encoder:
        return PlainEncoder(start.after)

    def whole(self, run: RunView, start: ReplyStart) -> Whole:
        return Whole(start)


def read(body: bytes, headers: Mapping[str, str]) -> StartRun:
    asked = read_json(body, Request)
    return StartRun(
        messages=[UserMessage(asked.prompt)],
        reply=replace(Reply(), streams_failures="x-streams" in headers),
        stream=asked.stream,
        background=asked.background,
        kept=b"kept " + asked.prompt.encode(),
        follows=asked.follows,
    )


def size(body: bytes, headers: Mapping[str, str]) -> bytes:
    if not body:
        raise InvalidRequest("There is no body.")
    return msgspec.json.encode({"bytes": len(body)})


def answer_id(id: str) -> AnswerId | None:
    return AnswerId(f"chat_{id.removeprefix('seen:')}") if id.startswith("seen:") else None


LOOKED_UP = Dialect(
    routes=[Route("/v1/seen", "seen", read)],
    replays=[],
    errors=PLAIN.errors,
    computed=[Route("/v1/seen/size", "seen_size", size), Route("/v1/seen", "see", size, "GET")],
    answers=StoredAnswers(
        path="/v1/seen/{id}",
        items_path="/v1/seen/{id}/request",
        name="seen_again",
        open=lambda kept, query: (Reply(), "stream" in query),
        items=lambda kept, query: kept + query.get("more", "").encode(),
        deleted=lambda of: f"no {of}".encode(),
    ),
    answer_id=answer_id,
)
