"""Anthropic's Messages API as its documentation has it: strict types of the message, its events and its errors, the
order of events as a state machine, and a reader that folds a stream to a message. It shares no code with the writer."""

import json
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.wire.sse import SseDecoder
from tests.openai_shapes import Refused

Json: TypeAlias = dict[str, Any]
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class _Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Typed(_Strict, frozen=True, kw_only=True, tag_field="type"):
    pass


# --- blocks -----------------------------------------------------------------------------------------

_ServerId: TypeAlias = Annotated[str, Meta(pattern=r"^srvtoolu_[a-zA-Z0-9_]+$")]


class Text(_Typed, frozen=True, kw_only=True, tag="text"):
    text: str


class Thinking(_Typed, frozen=True, kw_only=True, tag="thinking"):
    thinking: str
    signature: str


class ToolUse(_Typed, frozen=True, kw_only=True, tag="tool_use"):
    id: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]+$")]
    name: str
    input: Json


class ServerToolUse(_Typed, frozen=True, kw_only=True, tag="server_tool_use"):
    id: _ServerId
    name: Literal["web_search", "bash_code_execution", "text_editor_code_execution"]
    input: Json


class Hit(_Typed, frozen=True, kw_only=True, tag="web_search_result"):
    url: str
    title: str
    encrypted_content: str
    page_age: str | None


class SearchError(_Typed, frozen=True, kw_only=True, tag="web_search_tool_result_error"):
    error_code: Literal["invalid_tool_input", "unavailable", "max_uses_exceeded", "too_many_requests", "query_too_long"]


class SearchResult(_Typed, frozen=True, kw_only=True, tag="web_search_tool_result"):
    tool_use_id: _ServerId
    content: list[Hit] | SearchError


class BashOutput(_Typed, frozen=True, kw_only=True, tag="bash_code_execution_result"):
    stdout: str
    stderr: str
    return_code: int
    content: list[Json]


class BashError(_Typed, frozen=True, kw_only=True, tag="bash_code_execution_tool_result_error"):
    error_code: Literal["invalid_tool_input", "unavailable", "too_many_requests", "execution_time_exceeded"]


class BashResult(_Typed, frozen=True, kw_only=True, tag="bash_code_execution_tool_result"):
    tool_use_id: _ServerId
    content: BashOutput | BashError


class CreateResult(_Typed, frozen=True, kw_only=True, tag="text_editor_code_execution_create_result"):
    is_file_update: bool


class ReplaceResult(_Typed, frozen=True, kw_only=True, tag="text_editor_code_execution_str_replace_result"):
    lines: list[str]
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int


class EditorError(_Typed, frozen=True, kw_only=True, tag="text_editor_code_execution_tool_result_error"):
    error_code: Literal["invalid_tool_input", "unavailable", "too_many_requests", "execution_time_exceeded"]
    error_message: str | None


class EditorResult(_Typed, frozen=True, kw_only=True, tag="text_editor_code_execution_tool_result"):
    tool_use_id: _ServerId
    content: CreateResult | ReplaceResult | EditorError


Block: TypeAlias = Text | Thinking | ToolUse | ServerToolUse | SearchResult | BashResult | EditorResult


# --- the message ------------------------------------------------------------------------------------


class Usage(_Strict, frozen=True, kw_only=True):
    input_tokens: Count
    cache_creation_input_tokens: Count
    cache_read_input_tokens: Count
    output_tokens: Count


class Cursor(_Strict, frozen=True, kw_only=True):
    """Ours."""

    refused_count: Annotated[int, Meta(ge=1)]
    refused: list[Refused]


class Message(_Strict, frozen=True, kw_only=True):
    id: Annotated[str, Meta(pattern="^msg_")]
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Block]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None
    usage: Usage
    cursor: Cursor | UnsetType = UNSET


class ErrorBody(_Strict, frozen=True, kw_only=True):
    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "billing_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "api_error",
        "timeout_error",
        "overloaded_error",
    ]
    message: Annotated[str, Meta(min_length=1)]


class Error(_Typed, frozen=True, kw_only=True, tag="error"):
    error: ErrorBody
    request_id: Annotated[str, Meta(pattern="^req_")] | UnsetType = UNSET  # of a run that is read again there is none


# --- events -----------------------------------------------------------------------------------------


class TextDelta(_Typed, frozen=True, kw_only=True, tag="text_delta"):
    text: str


class ThinkingDelta(_Typed, frozen=True, kw_only=True, tag="thinking_delta"):
    thinking: str


class SignatureDelta(_Typed, frozen=True, kw_only=True, tag="signature_delta"):
    signature: str


class InputDelta(_Typed, frozen=True, kw_only=True, tag="input_json_delta"):
    partial_json: str


class MessageStart(_Typed, frozen=True, kw_only=True, tag="message_start"):
    message: Message


class BlockStart(_Typed, frozen=True, kw_only=True, tag="content_block_start"):
    index: Count
    content_block: Block


class BlockDelta(_Typed, frozen=True, kw_only=True, tag="content_block_delta"):
    index: Count
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockStop(_Typed, frozen=True, kw_only=True, tag="content_block_stop"):
    index: Count


class StopDelta(_Strict, frozen=True, kw_only=True):
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None


class MessageDelta(_Typed, frozen=True, kw_only=True, tag="message_delta"):
    delta: StopDelta
    usage: Usage
    cursor: Cursor | UnsetType = UNSET


class MessageStop(_Typed, frozen=True, kw_only=True, tag="message_stop"):
    pass


class Ping(_Typed, frozen=True, kw_only=True, tag="ping"):
    pass


Event: TypeAlias = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping | Error


def events_of(stream: bytes) -> list[Event]:
    """Each with an `event:` line that is its type."""
    events = []
    for frame in SseDecoder().push(stream):
        assert frame.event == json.loads(frame.data)["type"]
        events.append(msgspec.json.decode(frame.data, type=Event))
    return events


def read_message(body: bytes) -> Message:
    return msgspec.json.decode(body, type=Message)


def text_of(message: Message, *, marked: str = "▸\u2063 ") -> str:
    """What the agent said: the text blocks but those of the gateway's own, and without its last line."""
    texts = [block.text.partition(f"\n\n{marked}")[0] for block in message.content if isinstance(block, Text)]
    return "".join(text for text in texts if not text.lstrip("\n").startswith(marked))


def fold(events: list[Event]) -> Message | Error:
    """By the order that the documentation gives; anything else fails."""
    events = [event for event in events if not isinstance(event, Ping)]
    start = events[0]
    assert isinstance(start, MessageStart), "the message does not begin"
    begun = start.message
    assert (begun.content, begun.stop_reason, begun.stop_sequence) == ([], None, None)
    if isinstance(last := events[-1], Error):
        _blocks(events[1:-1], is_cut=True)
        return last
    assert isinstance(last, MessageStop), "the message does not end"
    ended = events[-2]
    assert isinstance(ended, MessageDelta), "there is no usage"
    return msgspec.structs.replace(
        begun,
        content=_blocks(events[1:-2]),
        stop_reason=ended.delta.stop_reason,
        stop_sequence=ended.delta.stop_sequence,
        usage=ended.usage,
        cursor=ended.cursor,
    )


def text_sent(stream: bytes) -> str:
    """What the agent said, also in a message that ended with an error, which need not have white space at its end."""
    events: list[Event] = [event for event in events_of(stream) if not isinstance(event, Ping)]
    folded = fold(events)
    if isinstance(folded, Error):
        start = events[0]
        assert isinstance(start, MessageStart)
        folded = msgspec.structs.replace(start.message, content=_blocks(events[1:-1], is_cut=True))
    return text_of(folded)


def _blocks(events: list[Event], *, is_cut: bool = False) -> list[Block]:
    blocks: list[Block] = []
    is_open = False
    pieces: list[str] = []
    for event in events:
        match event:
            case BlockStart(index=index, content_block=block):
                assert not is_open, "two blocks are open at once"
                assert index == len(blocks), "an index is not the next one"
                assert not _given(block), "a start is not empty"
                blocks.append(block)
                is_open, pieces = True, []
            case BlockDelta(index=index, delta=delta):
                assert is_open, "there is no open block"
                assert index == len(blocks) - 1, "a delta is not of the open block"
                blocks[-1] = _grown(blocks[-1], delta, pieces)
            case BlockStop(index=index):
                assert is_open, "there is no open block"
                assert index == len(blocks) - 1, "a stop is not of the open block"
                if isinstance(block := blocks[-1], ToolUse | ServerToolUse):
                    blocks[-1] = msgspec.structs.replace(block, input=json.loads("".join(pieces)))
                is_open = False
            case _:
                raise AssertionError(f"{event} between blocks")
    assert is_cut or not is_open, "a block does not end"
    return blocks


def _given(block: Block) -> object:
    match block:
        case Text(text=text):
            return text
        case Thinking(thinking=thinking, signature=signature):
            return thinking or signature
        case ToolUse(input=input) | ServerToolUse(input=input):
            return input
        case SearchResult() | BashResult() | EditorResult():
            return None


def _grown(block: Block, delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta, pieces: list[str]) -> Block:
    match block, delta:
        case Text(text=before), TextDelta(text=text):
            return msgspec.structs.replace(block, text=before + text)
        case Thinking(thinking=before, signature=""), ThinkingDelta(thinking=text):
            return msgspec.structs.replace(block, thinking=before + text)
        case Thinking(signature=""), SignatureDelta(signature=signature):
            return msgspec.structs.replace(block, signature=signature)
        case ((ToolUse() | ServerToolUse()), InputDelta(partial_json=piece)):
            pieces.append(piece)
            return block
        case _:
            raise AssertionError(f"{delta} in {block}")
