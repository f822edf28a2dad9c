"""A dialect for tests: the agent's plain text. All that a third dialect needs."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from cursor_gateway.dialects.base import SSE, Dialect, Encoder, Replay, ReplyStart, Route, RunView, StartRun
from cursor_gateway.dialects.deltas import AnswerFold, AnswerText, Delta, Ended, Translator
from cursor_gateway.dialects.errors import Errors
from cursor_gateway.dialects.replies import EventEncoder, JsonReply
from cursor_gateway.errors import Failure
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.wire.json_body import read_json
from cursor_gateway.wire.sse import frame


class PlainRequest(Struct, frozen=True):
    prompt: str
    stream: bool = False
    follows: str | None = None  # the id of an answer


class PlainEncoder(EventEncoder):
    is_over = is_cut = False

    def __init__(self, after: int) -> None:
        self._number, self._deltas = after, Translator("", "none")

    def push(self, event: DocumentEvent, /) -> bytes:
        self._number += 1
        return b"".join(map(self._frame, self._deltas.push(event)))

    def _frame(self, delta: Delta) -> bytes:
        if isinstance(delta, AnswerText):
            return frame(msgspec.json.encode(delta.text), id=str(self._number))
        if isinstance(delta, Ended):
            reason = delta.failure.code if delta.failure else "done"
            return frame(reason.encode(), event="end", id=str(self._number))
        return b""


class PlainWhole(AnswerFold):
    def __init__(self, after: int) -> None:
        super().__init__("", "none")
        self.after = after

    def body(self) -> bytes:
        return answer.text.encode() if (answer := self.answer()) else b""

    def error_body(self, failure: Failure) -> bytes | None:
        return None


class PlainReply(JsonReply, Struct, frozen=True):
    media_type: str = "text/plain"

    def stream(self, run: RunView, start: ReplyStart) -> Encoder:
        return PlainEncoder(start.after)

    def whole(self, run: RunView, start: ReplyStart) -> PlainWhole:
        return PlainWhole(start.after)


def read(body: bytes, headers: Mapping[str, str]) -> StartRun:
    asked = read_json(body, PlainRequest)
    messages = [UserMessage(asked.prompt)]
    return StartRun(messages=messages, reply=PlainReply(), stream=asked.stream, conversation_id=asked.follows)


PLAIN = Dialect(
    routes=[Route("/v1/plain", "plain", read)],
    replays=[Replay("plain", SSE, lambda run, after: (PlainEncoder(after), after))],
    errors=Errors(lambda failure, request_id: f"{failure.code}: {failure.message}".encode(), "text/plain"),
    answer_id=lambda of: AnswerId(f"chat_{of.removeprefix('plain:')}") if of.startswith("plain:") else None,
)
