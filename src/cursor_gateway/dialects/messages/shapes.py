"""Anthropic's message on the wire: its content blocks, its usage, the message itself, its ids and its errors."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from cursor_gateway.dialects.deltas import cached_tokens
from cursor_gateway.dialects.errors import Errors, for_retrying_clients
from cursor_gateway.errors import Failure
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.documents import RefusedCall, Usage
from cursor_gateway.wire.sse import frame

# --- blocks -----------------------------------------------------------------------------------------


StopReason: TypeAlias = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
ServerTool: TypeAlias = Literal["web_search", "bash_code_execution", "text_editor_code_execution"]


class TextBlock(Struct, frozen=True, tag_field="type", tag="text"):
    text: str = ""


class ThinkingBlock(Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str = ""
    signature: str = ""  # names the run; clients send it back unchanged


class ToolUseBlock(Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Raw  # a JSON object


class ServerToolUseBlock(Struct, frozen=True, tag_field="type", tag="server_tool_use"):
    """A tool that has run already: clients show it and do not run it again."""

    id: str
    name: ServerTool
    input: Raw


# --- results of server tools ------------------------------------------------------------------------


class WebSearchHit(Struct, frozen=True, tag_field="type", tag="web_search_result"):
    url: str
    title: str
    encrypted_content: str = ""
    page_age: str | None = None


class WebSearchError(Struct, frozen=True, tag_field="type", tag="web_search_tool_result_error"):
    error_code: Literal["unavailable"] = "unavailable"


class WebSearchResult(Struct, frozen=True, tag_field="type", tag="web_search_tool_result"):
    tool_use_id: str
    content: list[WebSearchHit] | WebSearchError


class BashOutput(Struct, frozen=True, tag_field="type", tag="bash_code_execution_result"):
    stdout: str
    stderr: str
    return_code: int
    content: list[Any] = []  # files; there are none


class BashError(Struct, frozen=True, tag_field="type", tag="bash_code_execution_tool_result_error"):
    error_code: Literal["unavailable", "execution_time_exceeded"] = "unavailable"


class BashResult(Struct, frozen=True, tag_field="type", tag="bash_code_execution_tool_result"):
    tool_use_id: str
    content: BashOutput | BashError


class CreateOutput(Struct, frozen=True, tag_field="type", tag="text_editor_code_execution_create_result"):
    is_file_update: bool


class ReplaceOutput(Struct, frozen=True, tag_field="type", tag="text_editor_code_execution_str_replace_result"):
    lines: list[str]
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int


class EditorError(Struct, frozen=True, tag_field="type", tag="text_editor_code_execution_tool_result_error"):
    error_code: Literal["unavailable"] = "unavailable"
    error_message: str | None = None


class EditorResult(Struct, frozen=True, tag_field="type", tag="text_editor_code_execution_tool_result"):
    tool_use_id: str
    content: CreateOutput | ReplaceOutput | EditorError


ServerToolResult: TypeAlias = WebSearchResult | BashResult | EditorResult
ContentBlock: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock | ServerToolUseBlock | ServerToolResult


# --- the message ------------------------------------------------------------------------------------


class MessageUsage(Struct, frozen=True, kw_only=True):
    """The tokens of this message. All four together are the size of the conversation."""

    input_tokens: Annotated[int, "Tokens read, excluding those from the cache."]
    cache_creation_input_tokens: Annotated[int, "Always 0."] = 0
    cache_read_input_tokens: Annotated[int, "Tokens read from the cache."] = 0
    output_tokens: Annotated[int, "Tokens in the answer."]


class MessageCursorFields(Struct, frozen=True, kw_only=True):
    """Gateway data."""

    refused_count: int  # tool calls that were not run because nothing allowed them
    refused: list[RefusedCall] | UnsetType = UNSET  # the first of them


class AnthropicMessage(Struct, frozen=True, kw_only=True):
    """A message of Anthropic's Messages API."""

    id: Annotated[str, "The answer's id."]
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: Annotated[str, "The model, as in the request."]
    content: Annotated[list[ContentBlock], "Blocks: `text`, `thinking`, `tool_use`, server tools."]
    stop_reason: Annotated[StopReason | None, "Why the answer ended."] = None
    stop_sequence: Annotated[str | None, "The stop sequence that was found."] = None
    usage: Annotated[MessageUsage, "What the model wrote in this message, and in total the size of the conversation."]
    cursor: Annotated[
        MessageCursorFields | UnsetType, "Gateway data: `refused_count` and `refused`, as in chat completions."
    ] = UNSET


def message_usage(usage: Usage) -> MessageUsage:
    cached = cached_tokens(usage)
    return MessageUsage(
        input_tokens=usage.prompt_tokens - cached,
        cache_read_input_tokens=cached,
        output_tokens=usage.completion_tokens,
    )


# --- ids --------------------------------------------------------------------------------------------


_PREFIX = "msg_"
_RUN_PREFIX = "chat_"


def message_id(run_id: str, after: int = 0) -> str:
    """Each reply of a run that pauses has its own id: `after` is the number of the last event before it."""
    reply = f"-{after}" if after else ""
    return f"{_PREFIX}{run_id.removeprefix(_RUN_PREFIX)}{reply}"


def answer_id(id: str) -> AnswerId | None:
    """None: it is no message's."""
    run, separator, after = id.removeprefix(_PREFIX).partition("-")
    if not id.startswith(_PREFIX) or not run or (separator and not (after.isascii() and after.isdecimal())):
        return None
    return AnswerId(_RUN_PREFIX + run, int(after[:18] or "0"))


def server_tool_id(run_id: str, number: int) -> str:
    return f"srvtoolu_{run_id.removeprefix(_RUN_PREFIX)}_{number}"


# --- errors -----------------------------------------------------------------------------------------


ErrorType: TypeAlias = Literal[
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

_TYPES: dict[int, ErrorType] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    424: "api_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class MessagesErrorBody(Struct, frozen=True):
    """The error, and what to do."""

    type: Annotated[ErrorType, "The error type, which follows from the status."]
    message: Annotated[str, "A message that says what to do."]


class ErrorResponse(Struct, frozen=True, kw_only=True):
    """An error in Anthropic's form."""

    type: Literal["error"] = "error"
    error: Annotated[MessagesErrorBody, "The error."]
    request_id: Annotated[str | UnsetType, "The id of the request, as in the header `request-id`."] = UNSET


def error_type(status: int) -> ErrorType:
    return _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")


def error_response(failure: Failure, request_id: str = "") -> ErrorResponse:
    type = error_type(failure.status)
    if type == "overloaded_error" and not failure.retryable:
        type = "api_error"  # the other one Claude Code retries, whatever the headers say
    return ErrorResponse(error=MessagesErrorBody(type, failure.message), request_id=request_id or UNSET)


def encode_error(failure: Failure, request_id: str = "") -> bytes:
    # OpenCode retries a reply that contains `503`, and an id may: then only the header has it.
    return msgspec.json.encode(error_response(failure, "" if failure.status in (402, 424) else request_id))


def stream_error(failure: Failure, request_id: str = "") -> bytes:
    """Clients send a request again after an error of the server's, which would run the agent again: in a stream every
    error is one that they show and do not retry."""
    type = error_type(failure.status)
    shown: ErrorType = "rate_limit_error" if type == "rate_limit_error" else "invalid_request_error"
    body = ErrorResponse(error=MessagesErrorBody(shown, failure.message), request_id=request_id or UNSET)
    return frame(msgspec.json.encode(body), event="error")


ANTHROPIC_ERRORS = Errors(encode_error, shown=for_retrying_clients)
