"""Encode the steps of a message as Anthropic's Server-Sent Events, or as one message.

    message_start ── per block: content_block_start, content_block_delta…, content_block_stop ── message_delta,
    message_stop; or `error` instead of the rest; `ping` anywhere between

The rules that real clients depend on: an `event:` line in every frame, usage in message_start and message_delta, a
call's input in deltas and never in its start, a stop for every block.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from cursor_gateway.dialects.deltas import ReplyState
from cursor_gateway.dialects.messages.blocks import (
    BlockClosed,
    BlockOpened,
    BlockStep,
    Composer,
    Finished,
    Grew,
    GrowingBlock,
    WholeBlock,
)
from cursor_gateway.dialects.messages.shapes import (
    AnthropicMessage,
    ContentBlock,
    MessageUsage,
    ServerToolUseBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    stream_error,
)
from cursor_gateway.dialects.replies import EventEncoder
from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, Reasoning
from cursor_gateway.wire.sse import frame

_encode = msgspec.json.encode
_PIECE = 1024  # characters of a call's input in one delta
_EMPTY = Raw(b"{}")
PING = frame(b'{"type":"ping"}', event="ping")
_STOP = frame(b'{"type":"message_stop"}', event="message_stop")
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b'
_GROWING: dict[GrowingBlock, tuple[ContentBlock, bytes]] = {
    "text": (TextBlock(), b'"text_delta","text":'),
    "thinking": (ThinkingBlock(), b'"thinking_delta","thinking":'),
}


class MessageHead(Struct, frozen=True, kw_only=True):
    """What is known of a message before it begins."""

    id: str
    model: str
    signature: str  # of its thinking
    input_tokens: int  # estimated
    request_id: str = ""  # of the request that it answers


def message_of(head: MessageHead, steps: Sequence[BlockStep]) -> AnthropicMessage:
    """Of all its steps."""
    blocks: list[ContentBlock] = []
    texts: list[str] = []
    kind: GrowingBlock = "text"
    end: Finished | None = None
    for step in steps:
        match step:
            case BlockOpened(kind=opened):
                kind, texts = opened, []
            case Grew(text=text):
                texts.append(text)
            case BlockClosed():
                whole = "".join(texts)
                blocks.append(TextBlock(whole) if kind == "text" else ThinkingBlock(whole, head.signature))
            case WholeBlock(block=block):
                blocks.append(block)
            case Finished():
                end = step
    return AnthropicMessage(
        id=head.id,
        model=head.model,
        content=blocks,
        stop_reason=None if end is None else end.stop_reason,
        stop_sequence=None if end is None else end.stop_sequence,
        usage=MessageUsage(input_tokens=head.input_tokens, output_tokens=0) if end is None else end.usage,
        cursor=UNSET if end is None else end.cursor,
    )


class MessageEncoder(ReplyState, EventEncoder):
    """The streaming reply. It is over with `message_stop` or `error`; then the connection can be closed."""

    def __init__(self, head: MessageHead, composer: Composer) -> None:
        super().__init__(composer.deltas)
        self._head, self._composer = head, composer
        self._has_begun = False
        self._index = -1  # of the latest block
        self._is_thinking = False  # the latest block is
        self._before_text = b""  # in a delta of the open block

    def keep_alive(self) -> bytes:
        return self._begin() + PING

    def push(self, event: DocumentEvent, /) -> bytes:
        if not self._has_begun:
            return self._begin() + self._frames(self._composer.push(event))
        composer = self._composer
        if event.__class__ is ContentDelta and event.raw is None and composer.open == "text" and composer.is_plain:
            return b"%b%b}}\n\n" % (self._before_text, _encode(event.text))  # nearly every event
        if event.__class__ is Reasoning and not event.opens and composer.open == "thinking" and composer.is_plain:
            self.deltas.note_reasoning(event.text)
            return b"%b%b}}\n\n" % (self._before_text, _encode(event.text))
        return self._frames(composer.push(event))

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        return _event("message_start", {"message": message_of(self._head, ())})

    def _frames(self, steps: Sequence[BlockStep]) -> bytes:
        return b"".join(map(self._frame, steps))

    def _frame(self, step: BlockStep) -> bytes:
        match step:
            case BlockOpened(kind=kind):
                block, delta = _GROWING[kind]
                start = self._start(block)
                self._before_text = _DELTA % (self._index, delta)
                return start
            case Grew(text=text):
                return b"%b%b}}\n\n" % (self._before_text, _encode(text))
            case BlockClosed():
                return self._stop()
            case WholeBlock(block=block):
                return self._block(block)
            case Finished(failure=Failure() as failure):
                return stream_error(failure, self._head.request_id)
            case Finished(stop_reason=reason, stop_sequence=sequence, usage=usage, cursor=cursor):
                ended = {"stop_reason": reason, "stop_sequence": sequence}
                more = {"cursor": cursor} if cursor else {}
                return _event("message_delta", {"delta": ended, "usage": usage, **more}) + _STOP

    def _start(self, block: ContentBlock) -> bytes:
        self._index += 1
        self._is_thinking = isinstance(block, ThinkingBlock)
        return _event("content_block_start", {"index": self._index, "content_block": block})

    def _stop(self) -> bytes:
        signed = b""
        if self._is_thinking:
            signed = self._delta("signature_delta", "signature", self._head.signature)
        return signed + _event("content_block_stop", {"index": self._index})

    def _block(self, block: ContentBlock) -> bytes:
        if not isinstance(block, ToolUseBlock | ServerToolUseBlock):
            return self._start(block) + self._stop()
        start, given = self._start(replace(block, input=_EMPTY)), bytes(block.input).decode()
        pieces = [given[at : at + _PIECE] for at in range(0, len(given), _PIECE)]
        deltas = [self._delta("input_json_delta", "partial_json", piece) for piece in pieces]
        return start + b"".join(deltas) + self._stop()

    def _delta(self, type: str, field: str, text: str) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": {"type": type, field: text}})


def _event(name: str, fields: dict[str, object]) -> bytes:
    return frame(_encode({"type": name, **fields}), event=name)
