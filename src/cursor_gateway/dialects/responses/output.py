"""Build a response from deltas and documents, event by event.

A response begins once, has one item open at a time, and ends once. The stream sends each event; the whole answer is the
response of the last one.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from cursor_gateway.dialects.actions import ToolAction, action_of
from cursor_gateway.dialects.deltas import Ended, action_text, cached_tokens
from cursor_gateway.dialects.responses import shapes
from cursor_gateway.dialects.responses.conversation import pack_summary
from cursor_gateway.dialects.responses.request import KeptRequest
from cursor_gateway.dialects.responses.shapes import (
    EventName,
    OpenPage,
    Prefix,
    ResponseEvent,
    Search,
    UrlCitation,
    WebSource,
    item_id,
    response_error,
    response_id,
)
from cursor_gateway.dialects.responses.toolbox import Declared, input_of
from cursor_gateway.model.document_events import DocumentStarted
from cursor_gateway.model.documents import Document, Usage
from cursor_gateway.model.messages import ToolCall
from cursor_gateway.wire.payload import Fields

# --- citations --------------------------------------------------------------------------------------


_MOST = 100
MOST_PAGES = 200  # that are looked for: each costs a search of the text
_LONGEST_LABEL = 500  # characters of the text of a link
_IN_URL = frozenset("/-_~%?#=&+@:")


def citations(text: str, pages: Mapping[str, str]) -> tuple[UrlCitation, ...]:
    """`pages` are titles by address. A Markdown link is one citation, with its text."""
    found = [
        UrlCitation(start_index=start, end_index=end, url=url, title=title)
        for url, title in list(pages.items())[-MOST_PAGES:]
        for start, end in _places(text, url)
    ]
    return tuple(sorted(found, key=lambda citation: citation.start_index)[:_MOST])


def _places(text: str, url: str) -> Iterator[tuple[int, int]]:
    place = text.find(url)
    while place >= 0:
        end = place + len(url)
        if not _continues(text, end):
            yield _link(text, place, end) or (place, end)
        place = text.find(url, end)


def _continues(text: str, end: int) -> bool:
    """It is the beginning of another address."""
    rest = text[end : end + 2]
    if rest.startswith("."):
        return rest[1:].isalnum()
    return rest[:1].isalnum() or rest[:1] in _IN_URL if rest else False


def _link(text: str, place: int, end: int) -> tuple[int, int] | None:
    """The Markdown link with this address."""
    if text[place - 2 : place] != "](" or text[end : end + 1] != ")":
        return None
    start = text.rfind("[", max(0, place - 2 - _LONGEST_LABEL), place - 2)
    return None if start < 0 else (start, end + 1)


# --- what the agent does itself ---------------------------------------------------------------------


_PAGES = ("web_fetch", "fetch", "exa_fetch")
_SEARCHES = ("web_search", "exa_search")
_LONGEST_SUBJECT = 100  # characters of a command or a path


def doing(started: DocumentStarted) -> str:
    """What the agent does now; empty for a document that is not one of its actions."""
    about, known = "", started.metadata
    if known is not None:
        if known.ran_by == "caller":
            return ""
        about = " ".join((known.command or known.file_path or "").split())[:_LONGEST_SUBJECT]
    match started.type:
        case "terminal_command":
            return f"Running `{about}`" if about else "Running a command"
        case "file_edit":
            return f"Editing {about}" if about else "Editing a file"
        case "plan":
            return "Planning"
        case "tool_call":
            return "Using a tool"
        case _:
            return ""


def web_action(action: ToolAction) -> Search | OpenPage | None:
    """None: it is something else."""
    if action.name in _PAGES:
        return OpenPage(url=Fields(action.arguments).text("url"))
    if action.name in _SEARCHES:
        query = Fields(action.arguments).text("search_term", "query")
        sources = tuple(WebSource(url=url) for url in _results(action.output))
        return Search(query=query, queries=(query,), sources=sources)
    return None


def pages_of(action: ToolAction) -> dict[str, str]:
    """The web pages that it found or opened: their titles by their addresses."""
    if action.name in _PAGES:
        url = Fields(action.arguments).text("url")
        return {url: url} if url else {}
    return _results(action.output) if action.name in _SEARCHES else {}


def _results(output: str) -> dict[str, str]:
    try:
        found = msgspec.json.decode(output)
    except msgspec.DecodeError:
        return {}
    pages = [Fields(page) for page in found if isinstance(page, dict)] if isinstance(found, list) else []
    return {url: page.text("title") or url for page in pages if (url := page.text("url"))}


SERVER_LABEL = "cursor"  # the MCP server that the agent's own actions are shown as calls of
_PIECE = 1024  # characters of a call's arguments in one delta
_CONTENT: dict[str, Any] = {"content_index": 0}  # each item has one part
_SUMMARY_PART: dict[str, Any] = {"summary_index": 0}
_LONGEST_OUTPUT = 10_000  # characters of what an action gave: a response has each item twice, and clients send it back


class ResponseHead(Struct, frozen=True):
    """What is known of a response before it begins."""

    run_id: str
    after: int
    created: int  # seconds since 1970
    model: str
    asked: KeptRequest

    @property
    def id(self) -> str:
        return response_id(self.run_id, self.after)


class _Open(Struct):
    item: shapes.MessageItem | shapes.ReasoningItem
    pieces: list[str]


GrowingItem: TypeAlias = Literal["message", "reasoning"]


class Output:
    """A response in the making. Each method returns the events that it causes."""

    def __init__(self, head: ResponseHead) -> None:
        self._head, self._asked = head, head.asked
        self._items: list[shapes.OutputItem | msgspec.Raw] = []  # those that are finished, or their JSON
        self.index = 0  # of the item that is open, or of the next one
        self.item_id = ""  # of the item that the last events are about
        self.open_item: GrowingItem | None = None
        self._open: _Open | None = None
        self._pages: dict[str, str] = {}  # that the agent found: their titles by their addresses
        self._next = 0  # the number of the next event
        self._end: Ended | None = None
        self._duration = 0  # seconds

    # --- what there is ------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        return self._next > 0

    @property
    def last_number(self) -> int:
        return max(0, self._next - 1)

    def response(self) -> shapes.Response:
        """As it is now."""
        head, end = self._head, self._end
        items: list[Any] = self._items
        response = shapes.Response(
            **_fields(self._asked.echo),
            id=head.id,
            created_at=head.created,
            status="in_progress" if self.has_begun else "queued",
            model=head.model,
            output=tuple(items),
        )
        if end is None:
            if self._open is not None:
                response = replace(response, output=(*items, self._grown(self._open)))
            return response
        response = replace(
            response,
            usage=_usage(end.usage),
            cursor=UNSET
            if end.total is None
            else shapes.ResponseCursorFields(
                usage=_usage(end.total), refused_count=end.refused_count or UNSET, refused=list(end.refused) or UNSET
            ),
        )
        if end.failure is not None:
            has_begun = bool(self._items) or head.after > 0
            error = response_error(end.failure, is_codex=self._asked.is_codex, has_begun=has_begun)
            return replace(response, status="cancelled" if end.failure.code == "cancelled" else "failed", error=error)
        if end.reason == "length":
            details = shapes.IncompleteDetails("max_output_tokens")
            return replace(response, status="incomplete", incomplete_details=details)
        return replace(response, status="completed", completed_at=head.created + self._duration)

    # --- what happens -------------------------------------------------------------------------------

    def begin(self) -> list[ResponseEvent]:
        """Before anything else, once."""
        if self._next:
            return []
        self._next = 2
        response = replace(self.response(), output=())
        return [
            ResponseEvent(type="response.created", sequence_number=0, response=response),
            ResponseEvent(type="response.in_progress", sequence_number=1, response=response),
        ]

    def grow(self, text: str) -> int:
        """More text of the open item; the number of the delta."""
        assert self._open is not None
        self._open.pieces.append(text)
        self._next += 1
        return self._next - 1

    def keep_encoded(self, index: int, item: msgspec.Raw) -> None:
        """The JSON of a finished item, which the whole response has again: the result of a tool may be a whole file."""
        self._items[index] = item

    def say(self, text: str) -> list[ResponseEvent]:
        events: list[ResponseEvent] = []
        if self.open_item != "message":
            events += self.close()
            item = shapes.MessageItem(id=self._id("msg"), status="in_progress")
            self._open, self.open_item, self.item_id = _Open(item, []), "message", item.id
            events.append(self._added(item))
            events.append(self._event("response.content_part.added", **_CONTENT, part=shapes.OutputText(text="")))
        self._pieces(text)
        return [*events, self._event("response.output_text.delta", **_CONTENT, delta=text, logprobs=())]

    def think(self, text: str) -> list[ResponseEvent]:
        events: list[ResponseEvent] = []
        if self.open_item != "reasoning":
            text = text.lstrip("\n")
            if not text:
                return []
            events += self.close()
            id = self._id("rs")
            item = shapes.ReasoningItem(id=id, encrypted_content=id if self._asked.has_encrypted_content else UNSET)
            self._open, self.open_item, self.item_id = _Open(item, []), "reasoning", id
            events.append(self._added(item))
            part = shapes.SummaryText(text="")
            events.append(self._event("response.reasoning_summary_part.added", **_SUMMARY_PART, part=part))
        self._pieces(text)
        return [*events, self._event("response.reasoning_summary_text.delta", **_SUMMARY_PART, delta=text)]

    def close(self) -> list[ResponseEvent]:
        """Ends the item that is open."""
        opened = self._open
        if opened is None:
            return []
        item = self._done(opened)
        events: list[ResponseEvent]
        match item:
            case shapes.MessageItem(content=content):
                (part,) = content
                added: EventName = "response.output_text.annotation.added"
                events = [
                    self._event(added, **_CONTENT, annotation_index=place, annotation=one)
                    for place, one in enumerate(part.annotations)
                ]
                events += self._text_done(part)
            case shapes.ReasoningItem(summary=summaries):
                (summary,) = summaries
                events = [
                    self._event("response.reasoning_summary_text.done", **_SUMMARY_PART, text=summary.text),
                    self._event("response.reasoning_summary_part.done", **_SUMMARY_PART, part=summary),
                ]
        self._open = self.open_item = None
        return [*events, self._finished(item)]

    def call(self, call: ToolCall) -> list[ResponseEvent]:
        """A tool of the client's, in the form in which the client declared it."""
        return [*self.close(), *self._call(call, self._asked.forms.of(call.name))]

    def start_action(self, started: DocumentStarted) -> list[ResponseEvent]:
        """Codex shows the newest line of reasoning as its status."""
        now = doing(started)
        return self.think(f"\n\n**{now}**\n\n") if self._asked.is_codex and now else []

    def end_action(self, document: Document) -> list[ResponseEvent]:
        """Something that the agent did itself: never in a form that makes a client do it again."""
        action = action_of(document)
        if action is None:
            return []
        web = web_action(action) if self._asked.knows_searches or self._asked.is_codex else None
        if web is not None:
            events = [*self.close(), *self._web_search(web, action.error)]
            self._pages |= pages_of(action)  # only now: what was written before does not cite them
            return events
        return [*self.close(), *(self._comment(document) if self._asked.is_codex else self._mcp_call(action))]

    def end(self, end: Ended, duration_ms: int = 0) -> list[ResponseEvent]:
        events = self.close()
        self._end, self._duration = end, duration_ms // 1000
        name: EventName = "response.incomplete" if end.reason == "length" else "response.completed"
        if end.failure is not None:
            name = "response.failed"
        return [*events, ResponseEvent(type=name, response=self.response(), sequence_number=self._number())]

    def compact(self, summary: str) -> list[ResponseEvent]:
        """The only item of a response that compacts a conversation."""
        item = shapes.CompactionItem(id=self._id("cmp"), encrypted_content=pack_summary(summary))
        return [self._added(item), self._finished(item)]

    # --- items that are whole from the start; none other is open ------------------------------------

    def _call(self, call: ToolCall, declared: Declared) -> list[ResponseEvent]:
        known: dict[str, Any] = {
            "call_id": call.id,
            "name": declared.name,
            "namespace": declared.namespace or UNSET,
            "status": "completed",
        }
        match declared.kind:
            case "function":
                item = shapes.FunctionCallItem(id=self._id("fc"), arguments=call.arguments, **known)
                return [
                    self._added(replace(item, arguments="", status="in_progress")),
                    *self._deltas("response.function_call_arguments.delta", item.arguments, item.id),
                    self._event(
                        "response.function_call_arguments.done", item.id, name=item.name, arguments=item.arguments
                    ),
                    self._finished(item),
                ]
            case "custom":
                text = input_of(msgspec.json.decode(call.arguments, type=dict[str, Any]))
                custom = shapes.CustomToolCallItem(id=self._id("ctc"), input=text, **known)
                return [
                    self._added(replace(custom, input="", status="in_progress")),
                    *self._deltas("response.custom_tool_call_input.delta", text, custom.id),
                    self._event("response.custom_tool_call_input.done", custom.id, input=text),
                    self._finished(custom),
                ]

    def _comment(self, document: Document) -> list[ResponseEvent]:
        """Codex drops MCP calls; a commentary stays on its screen."""
        text = action_text(document) or ""
        part, empty = shapes.OutputText(text=text), shapes.OutputText(text="")
        item = shapes.MessageItem(id=self._id("msg"), status="completed", content=(part,), phase="commentary")
        return [
            self._added(replace(item, status="in_progress", content=())),
            self._event("response.content_part.added", item.id, **_CONTENT, part=empty),
            self._event("response.output_text.delta", item.id, **_CONTENT, delta=text, logprobs=()),
            *self._text_done(part, item.id),
            self._finished(item),
        ]

    def _mcp_call(self, action: ToolAction) -> list[ResponseEvent]:
        arguments = msgspec.json.encode(action.arguments).decode()
        item = shapes.McpCallItem(
            id=self._id("mcp"),
            status="completed" if action.error is None else "failed",
            server_label=SERVER_LABEL,
            name=action.name,
            arguments=arguments,
            output=_shortened(action.output),
            error=None if action.error is None else shapes.McpError(content=(shapes.McpText(text=action.error),)),
        )
        return [
            self._added(replace(item, status="in_progress", arguments="", output=None, error=None)),
            self._event("response.mcp_call.in_progress", item.id),
            *self._deltas("response.mcp_call_arguments.delta", arguments, item.id),
            self._event("response.mcp_call_arguments.done", item.id, arguments=arguments),
            self._event("response.mcp_call.completed" if action.error is None else "response.mcp_call.failed", item.id),
            self._finished(item),
        ]

    def _web_search(self, action: shapes.Search | shapes.OpenPage, error: str | None) -> list[ResponseEvent]:
        status: Literal["completed", "failed"] = "completed" if error is None else "failed"
        item = shapes.WebSearchCallItem(id=self._id("ws"), status=status, action=action)
        events = [
            self._added(replace(item, status="in_progress")),
            self._event("response.web_search_call.in_progress", item.id),
            self._event("response.web_search_call.searching", item.id),
        ]
        if error is None:
            events.append(self._event("response.web_search_call.completed", item.id))
        return [*events, self._finished(item)]

    def _text_done(self, part: shapes.OutputText, id: str = "") -> list[ResponseEvent]:
        return [
            self._event("response.output_text.done", id, **_CONTENT, text=part.text, logprobs=()),
            self._event("response.content_part.done", id, **_CONTENT, part=part),
        ]

    def _deltas(self, name: EventName, text: str, id: str) -> list[ResponseEvent]:
        pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
        return [self._event(name, id, delta=piece) for piece in pieces]

    def _done(self, opened: _Open) -> shapes.MessageItem | shapes.ReasoningItem:
        text = "".join(opened.pieces)
        match opened.item:
            case shapes.MessageItem() as message:
                part = shapes.OutputText(text=text, annotations=citations(text, self._pages) if self._pages else ())
                return replace(message, status="completed", content=(part,))
            case shapes.ReasoningItem() as reasoning:
                return replace(reasoning, summary=(shapes.SummaryText(text=text),))

    def _grown(self, opened: _Open) -> shapes.OutputItem:
        """An item that is not finished yet."""
        item = self._done(opened)
        return replace(item, status="in_progress") if isinstance(item, shapes.MessageItem) else item

    # --- numbers ------------------------------------------------------------------------------------

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _id(self, prefix: Prefix) -> str:
        return item_id(prefix, self._head.run_id, self._head.after, self.index)

    def _event(self, type: EventName, id: str = "", /, **fields: Any) -> ResponseEvent:
        """About an item: the open one, or that of this id."""
        return ResponseEvent(
            type=type,
            sequence_number=self._number(),
            item_id=id or self.item_id,
            output_index=self.index,
            **fields,
        )

    def _pieces(self, text: str) -> None:
        assert self._open is not None
        self._open.pieces.append(text)

    def _added(self, item: shapes.OutputItem) -> ResponseEvent:
        name: EventName = "response.output_item.added"
        return ResponseEvent(type=name, sequence_number=self._number(), output_index=self.index, item=item)

    def _finished(self, item: shapes.OutputItem) -> ResponseEvent:
        name: EventName = "response.output_item.done"
        event = ResponseEvent(type=name, sequence_number=self._number(), output_index=self.index, item=item)
        self._items.append(item)
        self.index, self.item_id = self.index + 1, item.id
        return event


def _fields(echo: Any) -> dict[str, Any]:
    return {name: getattr(echo, name) for name in echo.__struct_fields__}


def _usage(usage: Usage) -> shapes.ResponseUsage:
    return shapes.ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=shapes.InputTokensDetails(cached_tokens(usage)),
        output_tokens=usage.completion_tokens,
        output_tokens_details=shapes.OutputTokensDetails(usage.reasoning_tokens or 0),
        total_tokens=usage.total_tokens,
        estimated=usage.estimated,
        cost=usage.cost,
    )


def _shortened(output: str) -> str:
    """The documents of the run have all of it."""
    if len(output) <= _LONGEST_OUTPUT:
        return output
    return f"{output[:_LONGEST_OUTPUT]}\n[{len(output) - _LONGEST_OUTPUT:,} more characters]"
