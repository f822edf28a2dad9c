"""A reply of OpenAI's Responses API in; its parts, or an AssertionError that says which rule it breaks, out.

The types are written from OpenAI's published API and the Open Responses specification, not from our encoder: required
keys, what may be null, the values that exist. What they do not have is refused, but for the additions that we document,
marked `ours`. The order of events is a state machine: what some real client breaks on is an error here.
"""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.wire.sse import SseDecoder
from tests.openai_shapes import Refused

Json: TypeAlias = dict[str, Any]


class _Closed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Tagged(_Closed, frozen=True, kw_only=True, tag_field="type"):
    pass


# --- items ------------------------------------------------------------------------------------------


class UrlCitation(_Tagged, frozen=True, kw_only=True, tag="url_citation"):
    start_index: int
    end_index: int
    url: str
    title: str


class OutputText(_Tagged, frozen=True, kw_only=True, tag="output_text"):
    text: str
    annotations: list[UrlCitation]
    logprobs: list[Json]


class SummaryText(_Tagged, frozen=True, kw_only=True, tag="summary_text"):
    text: str


class Message(_Tagged, frozen=True, kw_only=True, tag="message"):
    id: str
    role: Literal["assistant"]
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]
    phase: Literal["commentary", "final_answer"] | UnsetType = UNSET


class Reasoning(_Tagged, frozen=True, kw_only=True, tag="reasoning"):
    id: str
    summary: list[SummaryText]
    encrypted_content: str | UnsetType | None = UNSET


class FunctionCall(_Tagged, frozen=True, kw_only=True, tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete"]
    namespace: str | UnsetType = UNSET


class CustomToolCall(_Tagged, frozen=True, kw_only=True, tag="custom_tool_call"):
    id: str
    call_id: str
    name: str
    input: str
    status: Literal["in_progress", "completed", "incomplete"]  # the AI SDK wants it
    namespace: str | UnsetType = UNSET


class McpProtocolError(_Tagged, frozen=True, kw_only=True, tag="mcp_protocol_error"):
    code: int
    message: str


class McpExecutionError(_Tagged, frozen=True, kw_only=True, tag="mcp_tool_execution_error"):
    content: Any


class McpCall(_Tagged, frozen=True, kw_only=True, tag="mcp_call"):
    id: str
    server_label: str
    name: str
    arguments: str
    output: str | None
    error: McpProtocolError | McpExecutionError | None
    approval_request_id: str | None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"]


class UrlSource(_Tagged, frozen=True, kw_only=True, tag="url"):
    url: str


class Search(_Tagged, frozen=True, kw_only=True, tag="search"):
    query: str
    queries: list[str] | UnsetType = UNSET
    sources: list[UrlSource] | UnsetType = UNSET


class OpenPage(_Tagged, frozen=True, kw_only=True, tag="open_page"):
    url: str


class WebSearchCall(_Tagged, frozen=True, kw_only=True, tag="web_search_call"):
    id: str
    status: Literal["in_progress", "searching", "completed", "failed"]
    action: Search | OpenPage  # pydantic-ai fails without it


class Compaction(_Tagged, frozen=True, kw_only=True, tag="compaction"):
    id: str
    encrypted_content: str


Item: TypeAlias = Message | Reasoning | FunctionCall | CustomToolCall | McpCall | WebSearchCall | Compaction


# --- the response -----------------------------------------------------------------------------------


class InputTokensDetails(_Closed, frozen=True, kw_only=True):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(_Closed, frozen=True, kw_only=True):
    reasoning_tokens: int


class Usage(_Closed, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails
    estimated: bool | UnsetType = UNSET  # ours


class Cursor(_Closed, frozen=True, kw_only=True):
    usage: Usage
    refused_count: int | UnsetType = UNSET
    refused: list[Refused] | UnsetType = UNSET


class Error(_Closed, frozen=True, kw_only=True):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str
    type: str | UnsetType = UNSET


class IncompleteDetails(_Closed, frozen=True, kw_only=True):
    reason: Literal["max_output_tokens", "content_filter"]


class Reference(_Closed, frozen=True, kw_only=True):
    id: str


class Response(_Closed, frozen=True, kw_only=True):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: Error | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[Item]
    instructions: str | list[Json] | None
    previous_response_id: str | None
    tools: list[Json]
    tool_choice: str | Json
    parallel_tool_calls: bool
    text: Json
    reasoning: Json
    truncation: str
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: Json
    safety_identifier: str | None
    prompt_cache_key: str | None
    usage: Usage | None
    conversation: Reference | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET  # ours


# --- events -----------------------------------------------------------------------------------------


class _Event(_Tagged, frozen=True, kw_only=True):
    sequence_number: int


class _OfResponse(_Event, frozen=True, kw_only=True):
    response: Response


class Created(_OfResponse, frozen=True, kw_only=True, tag="response.created"):
    pass


class InProgress(_OfResponse, frozen=True, kw_only=True, tag="response.in_progress"):
    pass


class Completed(_OfResponse, frozen=True, kw_only=True, tag="response.completed"):
    pass


class Incomplete(_OfResponse, frozen=True, kw_only=True, tag="response.incomplete"):
    pass


class Failed(_OfResponse, frozen=True, kw_only=True, tag="response.failed"):
    pass


class ItemAdded(_Event, frozen=True, kw_only=True, tag="response.output_item.added"):
    output_index: int
    item: Item


class ItemDone(_Event, frozen=True, kw_only=True, tag="response.output_item.done"):
    output_index: int
    item: Item


class _OfItem(_Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class _OfPart(_OfItem, frozen=True, kw_only=True):
    content_index: int


class _OfSummary(_OfItem, frozen=True, kw_only=True):
    summary_index: int


class PartAdded(_OfPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    part: OutputText


class PartDone(_OfPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    part: OutputText


class TextDelta(_OfPart, frozen=True, kw_only=True, tag="response.output_text.delta"):
    delta: str
    logprobs: list[Json]


class AnnotationAdded(_OfPart, frozen=True, kw_only=True, tag="response.output_text.annotation.added"):
    annotation_index: int
    annotation: UrlCitation


class TextDone(_OfPart, frozen=True, kw_only=True, tag="response.output_text.done"):
    text: str
    logprobs: list[Json]


class SummaryPartAdded(_OfSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_part.added"):
    part: SummaryText


class SummaryPartDone(_OfSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_part.done"):
    part: SummaryText


class SummaryDelta(_OfSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_text.delta"):
    delta: str


class SummaryDone(_OfSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_text.done"):
    text: str


class ArgumentsDelta(_OfItem, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_OfItem, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    name: str
    arguments: str


class InputDelta(_OfItem, frozen=True, kw_only=True, tag="response.custom_tool_call_input.delta"):
    delta: str


class InputDone(_OfItem, frozen=True, kw_only=True, tag="response.custom_tool_call_input.done"):
    input: str


class McpInProgress(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.in_progress"):
    pass


class McpArgumentsDelta(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call_arguments.delta"):
    delta: str


class McpArgumentsDone(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call_arguments.done"):
    arguments: str


class McpCompleted(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.completed"):
    pass


class McpFailed(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.failed"):
    pass


class WebInProgress(_OfItem, frozen=True, kw_only=True, tag="response.web_search_call.in_progress"):
    pass


class WebSearching(_OfItem, frozen=True, kw_only=True, tag="response.web_search_call.searching"):
    pass


class WebCompleted(_OfItem, frozen=True, kw_only=True, tag="response.web_search_call.completed"):
    pass


class KeepAlive(_Tagged, frozen=True, kw_only=True, tag="keepalive"):
    sequence_number: int


Event: TypeAlias = (
    Created
    | InProgress
    | Completed
    | Incomplete
    | Failed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | AnnotationAdded
    | TextDone
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryDelta
    | SummaryDone
    | ArgumentsDelta
    | ArgumentsDone
    | InputDelta
    | InputDone
    | McpInProgress
    | McpArgumentsDelta
    | McpArgumentsDone
    | McpCompleted
    | McpFailed
    | WebInProgress
    | WebSearching
    | WebCompleted
    | KeepAlive
)

_LAST = (Completed, Incomplete, Failed)


# --- reading ----------------------------------------------------------------------------------------


def read_response(body: bytes) -> Response:
    response = msgspec.json.decode(body, type=Response, strict=True)
    check_response(response)
    return response


def read_events(stream: bytes) -> list[Event]:
    """The events of a stream, each in a frame with its name."""
    events: list[Event] = []
    for frame in SseDecoder().push(stream):
        event: Event = msgspec.json.decode(frame.data, type=Event)
        assert frame.event == event.__struct_config__.tag, f"{frame.event} names another event"
        events.append(event)
    return events


def check_response(response: Response) -> None:
    ids = [item.id for item in response.output]
    assert len(set(ids)) == len(ids), "two items have the same id"
    assert all("_" in id for id in (*ids, response.id)), "Codex drops ids without a prefix"
    assert (response.status == "incomplete") == (response.incomplete_details is not None)
    assert (response.error is not None) == (response.status in ("failed", "cancelled"))
    assert (response.completed_at is not None) == (response.status == "completed")
    usage = response.usage
    if usage is not None:
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        assert 0 <= usage.input_tokens_details.cached_tokens <= usage.input_tokens


def read_stream(stream: bytes) -> Response:
    """The response of a whole stream, made of its deltas alone; it must be the one that the last event has."""
    events = [event for event in read_events(stream) if not isinstance(event, KeepAlive)]
    assert [event.sequence_number for event in events] == list(range(len(events))), "a number is missing"
    created, in_progress, *body, last = events
    assert isinstance(created, Created), "the first event must be response.created"
    assert isinstance(in_progress, InProgress)
    assert created.response == in_progress.response
    assert created.response.output == []
    assert created.response.status == "in_progress"
    assert created.response.usage is None
    assert isinstance(last, _LAST), "the last event must end the response"
    folding = _Folding()
    for event in body:
        assert not isinstance(event, (Created, InProgress, *_LAST)), "a response begins once and ends once"
        folding.push(event)
    assert not folding.open, "an item is still open"
    status = {"completed": Completed, "incomplete": Incomplete, "failed": Failed, "cancelled": Failed}
    assert isinstance(last, status[last.response.status])
    check_response(last.response)
    assert folding.items == last.response.output, "the last event must have every item"
    ends = ("status", "output", "usage", "completed_at", "incomplete_details", "error", "cursor")
    same = msgspec.structs.replace(last.response, **{name: getattr(created.response, name) for name in ends})
    assert same == created.response, "the response has changed"
    return last.response


class _Folding:
    """One item is open at a time; each kind of item has its own order of events."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.open: Item | None = None
        self._text: list[str] | None = None  # of the part that is open
        self._seen: list[str] = []  # what has happened to the item
        self._cited: list[UrlCitation] = []

    def push(self, event: Event) -> None:
        match event:
            case ItemAdded(item=item, output_index=index):
                assert self.open is None, "two items are open"
                assert index == len(self.items)
                self.open, self._text, self._seen, self._cited = item, None, [], []
                self._check_added(item)
            case ItemDone(item=item, output_index=index):
                assert self.open is not None, "an item ends that was not added"
                assert (index, item.id, type(item)) == (len(self.items), self.open.id, type(self.open))
                self._check_done(item)
                self.items.append(item)
                self.open = None
            case _:
                self._within(event)

    def _check_added(self, item: Item) -> None:
        match item:
            case Message(content=content, status=status):
                assert (content, status) == ([], "in_progress")
            case Reasoning(summary=summary):
                assert summary == []
            case FunctionCall(arguments=arguments, status=status):
                assert (arguments, status) == ("", "in_progress")
            case CustomToolCall(input=text, status=status):
                assert (text, status) == ("", "in_progress")
            case McpCall(arguments=arguments, status=status, output=output, error=error):
                assert (arguments, status, output, error) == ("", "in_progress", None, None)
            case WebSearchCall(status=status):
                assert status == "in_progress"
            case Compaction():
                pass

    def _within(self, event: Event) -> None:
        assert isinstance(event, _OfItem)
        assert self.open is not None, "an event of an item that is not open"
        assert (event.item_id, event.output_index) == (self.open.id, len(self.items))
        if isinstance(event, _OfPart):
            assert isinstance(self.open, Message)
            assert event.content_index == 0
        if isinstance(event, _OfSummary):
            assert isinstance(self.open, Reasoning)
            assert event.summary_index == 0
        match event:
            case PartAdded(part=part) | SummaryPartAdded(part=part):
                assert self._text is None
                assert part.text == ""
                self._text = []
            case TextDelta(delta=delta) | SummaryDelta(delta=delta):
                assert self._text is not None, "a delta before its part"
                assert delta, "a delta that says nothing"
                assert not self._seen
                self._text.append(delta)
            case AnnotationAdded(annotation=annotation, annotation_index=place):
                assert not self._seen
                assert place == len(self._cited)
                assert 0 <= annotation.start_index < annotation.end_index <= len("".join(self._text or []))
                self._cited.append(annotation)
            case TextDone(text=text) | SummaryDone(text=text):
                assert self._text
                assert text == "".join(self._text)
                self._seen.append("text")
            case PartDone(part=part) | SummaryPartDone(part=part):
                assert self._seen == ["text"]
                assert part.text == "".join(self._text or [])
                assert isinstance(part, SummaryText) or part.annotations == self._cited
                self._seen.append("part")
            case ArgumentsDelta(delta=delta) | InputDelta(delta=delta):
                assert isinstance(self.open, FunctionCall if isinstance(event, ArgumentsDelta) else CustomToolCall)
                self._text = [*(self._text or []), delta]
            case ArgumentsDone(arguments=arguments, name=name):
                assert isinstance(self.open, FunctionCall)
                assert (arguments, name) == ("".join(self._text or []), self.open.name)
                self._seen.append("done")
            case InputDone(input=text):
                assert isinstance(self.open, CustomToolCall)
                assert text == "".join(self._text or [])
                self._seen.append("done")
            case McpInProgress() | McpArgumentsDelta() | McpArgumentsDone() | McpCompleted() | McpFailed():
                self._mcp(event)
            case WebInProgress() | WebSearching() | WebCompleted():
                assert isinstance(self.open, WebSearchCall)
                self._seen.append(type(event).__name__)
            case _:
                raise AssertionError(f"{type(event).__name__} within an item")

    def _mcp(self, event: McpInProgress | McpArgumentsDelta | McpArgumentsDone | McpCompleted | McpFailed) -> None:
        assert isinstance(self.open, McpCall)
        match event:
            case McpInProgress():
                assert not self._seen
                self._seen.append("in_progress")
            case McpArgumentsDelta(delta=delta):
                assert self._seen == ["in_progress"]
                self._text = [*(self._text or []), delta]
            case McpArgumentsDone(arguments=arguments):
                assert self._seen == ["in_progress"]
                assert arguments == "".join(self._text or [])
                self._seen.append("arguments")
            case McpCompleted() | McpFailed():
                assert self._seen == ["in_progress", "arguments"]
                self._seen.append("completed" if isinstance(event, McpCompleted) else "failed")

    def _check_done(self, item: Item) -> None:
        text = "".join(self._text or [])
        match item:
            case Message(content=content, status=status):
                assert self._seen == ["text", "part"]
                assert ([part.text for part in content], status) == ([text], "completed")
            case Reasoning(summary=summary):
                assert self._seen == ["text", "part"]
                assert [part.text for part in summary] == [text]
            case FunctionCall(arguments=arguments, status=status):
                assert self._seen == ["done"]
                assert (arguments, status) == (text, "completed")
            case CustomToolCall(input=given, status=status):
                assert self._seen == ["done"]
                assert (given, status) == (text, "completed")
            case McpCall(arguments=arguments, status=status, error=error):
                assert self._seen == ["in_progress", "arguments", status]
                assert arguments == text
                assert (error is None) == (status == "completed")
            case WebSearchCall(status=status):
                ending = ["WebCompleted"] if status == "completed" else []
                assert self._seen == ["WebInProgress", "WebSearching", *ending]
            case Compaction():
                assert not self._seen


def text_of(response: Response) -> str:
    """What the agent said: without comments on what it did, an open question, and the gateway's line."""
    messages = [item for item in response.output if isinstance(item, Message) and item.phase is UNSET]
    texts = [part.text.partition("\n\n▸\u2063 ")[0] for message in messages for part in message.content]
    return "".join(text for text in texts if not text.startswith("▸\u2063 "))
