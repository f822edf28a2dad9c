"""Anthropic's message on the wire: its content blocks, its usage, and the message itself."""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from cursor_gateway.dialects.deltas import cached_tokens
from cursor_gateway.model.documents import RefusedCall, Usage

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
    """Of this message. All four together are the size of the conversation."""

    input_tokens: int  # without those that came from the cache
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int


class MessageCursorFields(Struct, frozen=True, kw_only=True):
    """Gateway data."""

    refused_count: int  # tool calls that were not run because nothing allowed them
    refused: list[RefusedCall] | UnsetType = UNSET  # the first of them


class AnthropicMessage(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage
    cursor: MessageCursorFields | UnsetType = UNSET


def message_usage(usage: Usage) -> MessageUsage:
    cached = cached_tokens(usage)
    return MessageUsage(
        input_tokens=usage.prompt_tokens - cached,
        cache_read_input_tokens=cached,
        output_tokens=usage.completion_tokens,
    )
