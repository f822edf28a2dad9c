"""The objects of OpenAI's Responses API that the gateway sends: items, events, and the response."""

import re
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from cursor_gateway.dialects.errors import Errors, encode_error, for_retrying_clients
from cursor_gateway.errors import Failure
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.documents import RefusedCall

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class _Typed(Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


# --- items ------------------------------------------------------------------------------------------


class UrlCitation(_Typed, frozen=True, kw_only=True, tag="url_citation"):
    start_index: int
    end_index: int
    url: str
    title: str


class OutputText(_Typed, frozen=True, kw_only=True, tag="output_text"):
    text: str
    annotations: tuple[UrlCitation, ...] = ()
    logprobs: tuple[()] = ()


class SummaryText(_Typed, frozen=True, kw_only=True, tag="summary_text"):
    text: str


class MessageItem(_Typed, frozen=True, kw_only=True, tag="message"):
    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: tuple[OutputText, ...] = ()
    phase: Literal["commentary"] | UnsetType = UNSET


class ReasoningItem(_Typed, frozen=True, kw_only=True, tag="reasoning"):
    id: str
    summary: tuple[SummaryText, ...] = ()
    encrypted_content: str | UnsetType = UNSET


class FunctionCallItem(_Typed, frozen=True, kw_only=True, tag="function_call"):
    id: str
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    arguments: str
    status: ItemStatus


class CustomToolCallItem(_Typed, frozen=True, kw_only=True, tag="custom_tool_call"):
    id: str
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    input: str
    status: ItemStatus


class McpText(_Typed, frozen=True, kw_only=True, tag="text"):
    text: str


class McpError(_Typed, frozen=True, kw_only=True, tag="mcp_tool_execution_error"):
    content: tuple[McpText, ...]


class McpCallItem(_Typed, frozen=True, kw_only=True, tag="mcp_call"):
    id: str
    status: Literal["in_progress", "completed", "failed"]
    approval_request_id: None = None
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: McpError | None = None


class WebSource(_Typed, frozen=True, kw_only=True, tag="url"):
    url: str


class Search(_Typed, frozen=True, kw_only=True, tag="search"):
    query: str
    queries: tuple[str, ...]
    sources: tuple[WebSource, ...] = ()


class OpenPage(_Typed, frozen=True, kw_only=True, tag="open_page"):
    url: str


class WebSearchCallItem(_Typed, frozen=True, kw_only=True, tag="web_search_call"):
    id: str
    status: Literal["in_progress", "searching", "completed", "failed"]
    action: Search | OpenPage


class CompactionItem(_Typed, frozen=True, kw_only=True, tag="compaction"):
    id: str
    encrypted_content: str


OutputItem: TypeAlias = (
    MessageItem
    | ReasoningItem
    | FunctionCallItem
    | CustomToolCallItem
    | McpCallItem
    | WebSearchCallItem
    | CompactionItem
)


# --- the response -----------------------------------------------------------------------------------


class InputTokensDetails(Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponseUsage(Struct, frozen=True, kw_only=True):
    """The tokens of this response."""

    input_tokens: Annotated[int, "Tokens in the whole conversation."]
    input_tokens_details: Annotated[InputTokensDetails, "`cached_tokens`: those read from the cache."]
    output_tokens: Annotated[int, "Tokens in the answer."]
    output_tokens_details: Annotated[
        OutputTokensDetails, "`reasoning_tokens`: those of thinking; 0 if they are not reported."
    ] = OutputTokensDetails()
    total_tokens: Annotated[int, "The sum of both."]
    estimated: Annotated[bool | UnsetType, "Gateway extension: true if these are not the agent's own figures."] = UNSET
    cost: Annotated[float | UnsetType, "Gateway extension: in US dollars, if the model has a price."] = UNSET


def estimated_input(tokens: int) -> ResponseUsage:
    """Of a request that no model has read."""
    details = InputTokensDetails(cached_tokens=0)
    return ResponseUsage(
        input_tokens=tokens, input_tokens_details=details, output_tokens=0, total_tokens=tokens, estimated=True
    )


class ResponseError(Struct, frozen=True):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str
    type: str | UnsetType = UNSET  # the gateway's own code


class IncompleteDetails(Struct, frozen=True):
    reason: Literal["max_output_tokens"]


class ConversationReference(Struct, frozen=True):
    id: str


class ResponseCursorFields(Struct, frozen=True, kw_only=True):
    """Gateway data."""

    usage: ResponseUsage  # all model calls of the run added up, as the agent reports it
    refused_count: int | UnsetType = UNSET  # tool calls that were not run because nothing allowed them
    refused: list[RefusedCall] | UnsetType = UNSET  # the first of them


class Echo(Struct, frozen=True, kw_only=True):
    """What a response repeats of its request."""

    background: bool = False
    conversation: ConversationReference | UnsetType = UNSET
    frequency_penalty: float = 0.0
    instructions: Any = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, Any] = {}
    parallel_tool_calls: bool = True
    presence_penalty: float = 0.0
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: dict[str, Any] = {}
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: dict[str, Any] = {}
    tool_choice: Any = "auto"
    tools: list[dict[str, Any]] = []
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: str = "disabled"


class Response(Echo, frozen=True, kw_only=True):
    """A response of OpenAI's Responses API."""

    id: Annotated[str, "Its id, for `previous_response_id` and `/v1/responses/{id}`."]
    object: Literal["response"] = "response"
    created_at: Annotated[int, "Seconds since 1970."]
    completed_at: Annotated[int | None, "When it was completed."] = None
    status: Annotated[ResponseStatus, "The state of the response."]
    error: Annotated[ResponseError | None, "Why it failed: `code` and `message`."] = None
    incomplete_details: Annotated[IncompleteDetails | None, "Why it is incomplete: `reason`."] = None
    model: Annotated[str, "The model."]
    output: Annotated[
        tuple[OutputItem, ...],
        "The agent's text (`message`), thinking (`reasoning`) and own actions (`mcp_call` of the server `cursor`, "
        "`web_search_call`), and the calls for the caller to run (`function_call`, `custom_tool_call`).",
    ] = ()
    usage: Annotated[ResponseUsage | None, "Null until the response has ended."] = None
    cursor: Annotated[
        ResponseCursorFields | UnsetType,
        "Gateway data: `usage`, `refused_count` and `refused`, as in chat completions.",
    ] = UNSET


# --- other replies ----------------------------------------------------------------------------------


class ResponseDeleted(Struct, frozen=True, kw_only=True):
    """A deleted response."""

    id: Annotated[str, "The response."]
    object: Literal["response"] = "response"
    deleted: Annotated[bool, "Always true."] = True


class ResponseInputItems(Struct, frozen=True, kw_only=True):
    """A page of the input items of a response."""

    object: Literal["list"] = "list"
    data: Annotated[list[dict[str, Any]], "The items."]
    first_id: Annotated[str, "The first id on the page; empty if there is none."]
    last_id: Annotated[str, "The last id on the page, for `after`; empty if there is none."]
    has_more: Annotated[bool, "Whether there is another page."]


class ResponseTokenCount(Struct, frozen=True, kw_only=True):
    """The size of a request."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: Annotated[int, "An estimate."]


class ResponseCompaction(Struct, frozen=True, kw_only=True):
    """A conversation as one item."""

    id: Annotated[str, "Its id."]
    object: Literal["response.compaction"] = "response.compaction"
    created_at: Annotated[int, "Seconds since 1970."]
    output: Annotated[list[CompactionItem], "What to send instead of the conversation."]
    usage: Annotated[ResponseUsage, "An estimate."]


# --- events -----------------------------------------------------------------------------------------


EventName: TypeAlias = Literal[
    "response.created",
    "response.in_progress",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.annotation.added",
    "response.output_text.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
    "response.mcp_call.in_progress",
    "response.mcp_call.completed",
    "response.mcp_call.failed",
    "response.mcp_call_arguments.delta",
    "response.mcp_call_arguments.done",
    "response.web_search_call.in_progress",
    "response.web_search_call.searching",
    "response.web_search_call.completed",
]


class ResponseEvent(Struct, frozen=True, kw_only=True):
    """Any event: its name says which of the fields it has."""

    type: EventName
    sequence_number: int
    response: Response | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    item: OutputItem | Raw | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    part: OutputText | SummaryText | UnsetType = UNSET
    annotation_index: int | UnsetType = UNSET
    annotation: UrlCitation | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    input: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    logprobs: tuple[()] | UnsetType = UNSET


# --- ids --------------------------------------------------------------------------------------------


Prefix: TypeAlias = Literal["msg", "rs", "fc", "ctc", "mcp", "ws", "cmp"]

MESSAGE = "msg_"  # what the ids of messages begin with
_RUN = "chat_"
_RESPONSE = re.compile(r"resp_([0-9a-zA-Z]+)(?:_([0-9]{1,12}))?", re.ASCII)
_ITEM = re.compile(r"(?:msg|rs|fc|ctc|mcp|ws|cmp)_([0-9a-f]{32})_([0-9]{1,12})_([0-9]{1,12})", re.ASCII)


class ItemId(Struct, frozen=True):
    answer: AnswerId
    index: int


def response_id(run_id: str, after: int) -> str:
    return f"resp_{run_id.removeprefix(_RUN)}{f'_{after}' if after else ''}"


def answer_id(id: str) -> AnswerId | None:
    """None: it is no response's."""
    found = _RESPONSE.fullmatch(id)
    return None if found is None else AnswerId(f"{_RUN}{found[1]}", int(found[2] or 0))


def item_id(prefix: Prefix, run_id: str, after: int, index: int) -> str:
    return f"{prefix}_{run_id.removeprefix(_RUN)}_{after}_{index}"


def read_item_id(id: str) -> ItemId | None:
    """None: the item is not one of the gateway's."""
    found = _ITEM.fullmatch(id)
    return None if found is None else ItemId(AnswerId(f"{_RUN}{found[1]}", int(found[2])), int(found[3]))


# --- errors -----------------------------------------------------------------------------------------


_DEFAULT_WAIT = 2  # seconds
_FIELDS = {"conversationId": "conversation"}  # of the gateway's own API, and what they are called here


def _encode(failure: Failure, request_id: str) -> bytes:
    return encode_error(replace(failure, param=_FIELDS.get(failure.param or "", failure.param)))


RESPONSES_ERRORS = Errors(_encode, shown=for_retrying_clients)  # the id is in a header


def response_error(failure: Failure, *, is_codex: bool, has_begun: bool) -> ResponseError:
    """`has_begun`: the agent has done something, so that a retry gets the same run with the same failure. Codex does
    not retry what an agent reports either: each of its six attempts would start an agent."""
    if not is_codex:
        return ResponseError(_code(failure.status), failure.message, for_retrying_clients(failure).code)
    if failure.retryable and failure.source == "gateway" and not has_begun:
        wait = failure.retry_after or _DEFAULT_WAIT
        return ResponseError("rate_limit_exceeded", f"{failure.message} Please try again in {wait}s.")
    return ResponseError("invalid_prompt", failure.message)


def _code(status: int) -> Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]:
    """Of the few that OpenAI's API has."""
    if status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if 400 <= status < 499 else "server_error"  # 499: cancelled
