"""Build a response from document events: Server-Sent Events, or the whole response.

A response begins once, has one item open at a time, and ends once. The stream sends each event; the whole answer is the
response of the last one.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from cursor_gateway.dialects.base import SSE
from cursor_gateway.dialects.deltas import (
    AnswerFold,
    AnswerText,
    Called,
    Delta,
    Ended,
    Noted,
    OpenQuestion,
    ReplyState,
    Thought,
    ToolAction,
    Translator,
    WholeAnswer,
    action_of,
    action_text,
    cached_tokens,
    marked,
)
from cursor_gateway.dialects.replies import EventEncoder
from cursor_gateway.dialects.responses import shapes
from cursor_gateway.dialects.responses.conversation import Declared, input_of, pack_summary
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
from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Reasoning,
)
from cursor_gateway.model.documents import Document, Usage
from cursor_gateway.model.messages import ToolCall
from cursor_gateway.prompting.structured import extract_json
from cursor_gateway.stages.cutting import Cutter
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


_encode = msgspec.json.encode
_DELTA = b'event: %b\ndata: {"type":"%b","sequence_number":'
_TEXT_DELTA = _DELTA % ((b"response.output_text.delta",) * 2)
_SUMMARY_DELTA = _DELTA % ((b"response.reasoning_summary_text.delta",) * 2)


class ResponseEvents(ReplyState):
    """A run's events to those of its response, up to where the run pauses, is cut or ends."""

    def __init__(self, head: ResponseHead, prompt_tokens: int = 0) -> None:
        """`prompt_tokens` estimates the context of a response that is cut."""
        asked = self._asked = head.asked
        self.output = Output(head)
        cutter = None if asked.max_tokens is None else Cutter((), asked.max_tokens)
        # The whole text of these becomes something else.
        self._fold: AnswerFold | None = None
        if asked.is_compaction or asked.is_json:
            self._fold = AnswerFold(head.run_id, "reasoning", cutter, prompt_tokens)
        if self._fold is not None:
            super().__init__(self._fold.deltas)
        else:
            has_notes = asked.text == "readable"
            super().__init__(Translator(head.run_id, "none", cutter, prompt_tokens, notes=has_notes))

    @property
    def growing(self) -> GrowingItem | None:
        """The item to which the next text of its kind is only added."""
        is_plain = self.deltas.cutter is None and self._fold is None
        return self.output.open_item if is_plain else None

    def grow_reasoning(self, text: str) -> int:
        """More of the open reasoning; the number of the delta."""
        self.deltas.note_reasoning(text)
        return self.output.grow(text)

    def push(self, event: DocumentEvent, /) -> list[ResponseEvent]:
        if self.deltas.end is not None:
            return []
        events = self.output.begin()
        if self._fold is not None:
            return events + self._folded(self._fold, event)
        duration = event.envelope.metadata.duration_ms if isinstance(event, Done) else 0
        deltas = self.deltas.push(event)
        for delta in deltas:
            events += _delta_events(self.output, delta, duration)
        if deltas and isinstance(deltas[-1], Ended):
            return events
        match event:
            case DocumentStarted():
                return events + self.output.start_action(event)
            case DocumentEnded(document=document):
                return events + self.output.end_action(document)
            case _:
                return events

    def _folded(self, fold: AnswerFold, event: DocumentEvent) -> list[ResponseEvent]:
        fold.push(event)
        answer = fold.answer()
        if answer is None:
            return []
        if self._asked.is_compaction:
            return [*self.output.compact(answer.text), *self.output.end(answer.end)]
        found = extract_json(answer.text, answer.last) or answer.text
        return answer_events(self.output, replace(answer, text=found))


def answer_events(output: Output, answer: WholeAnswer) -> list[ResponseEvent]:
    """Of an answer that is complete."""
    events = output.begin()
    for delta in answer.deltas():
        events += _delta_events(output, delta)
    return events


def _delta_events(output: Output, delta: Delta, duration_ms: int = 0) -> list[ResponseEvent]:
    match delta:
        case AnswerText(text=text):
            return output.say(text)
        case Thought(text=text):
            return output.think(text)
        case Called(call=call):
            return output.call(call)
        case OpenQuestion(text=text):
            return [*output.close(), *output.say(marked(text))]
        case Noted(text=text):  # in the last message: some clients print only that one
            return output.say(f"\n\n{text}" if output.open_item == "message" else text)
        case Ended():
            return output.end(delta, duration_ms)


class ResponseStream(ReplyState, EventEncoder):
    """The streaming reply. It begins with `response.created` and ends with one event that has the whole response.

    `known` are items that the client has already got: their events are left out. `after` is the number of the last
    event that it has. The numbers stay those of the whole stream.
    """

    def __init__(
        self, head: ResponseHead, prompt_tokens: int = 0, *, known: Set[str] = frozenset(), after: int = -1
    ) -> None:
        self._events = ResponseEvents(head, prompt_tokens)
        super().__init__(self._events.deltas)
        self._output = self._events.output
        self._known, self._after, self._is_codex = known, after, head.asked.is_codex
        self._sends_all = not known and after < 0
        # The item that grows, if one does and all of it is sent, and what is the same in each of its deltas.
        self._growing: GrowingItem | None = None
        self._before = b""

    def push(self, event: DocumentEvent, /) -> bytes:
        if event.__class__ is ContentDelta and event.raw is None and self._growing == "message":  # nearly every event
            number = self._output.grow(event.text)
            return b'%b%d%b%b,"logprobs":[]}\n\n' % (_TEXT_DELTA, number, self._before, _encode(event.text))
        if event.__class__ is Reasoning and not event.opens and self._growing == "reasoning":
            number = self._events.grow_reasoning(event.text)
            return b"%b%d%b%b}\n\n" % (_SUMMARY_DELTA, number, self._before, _encode(event.text))
        frames = b"".join(map(self._frame, self._events.push(event)))
        self._growing = self._events.growing if self._sends_all else None
        if self._growing is not None:
            part = b"content_index" if self._growing == "message" else b"summary_index"
            place = (_encode(self._output.item_id), self._output.index, part)
            self._before = b',"item_id":%b,"output_index":%d,"%b":0,"delta":' % place
        return frames

    def keep_alive(self) -> bytes:
        """A comment, which no client can misread; for Codex, which does not count comments, an event. That one has no
        number of its own, so that the stream stays the same."""
        if not self._output.has_begun:
            return b"".join(map(self._frame, self._output.begin()))
        return keep_alive(self._output.last_number) if self._is_codex else SSE.keep_alive

    def answer(self, answer: WholeAnswer) -> bytes:
        """All frames of an answer that is complete."""
        return b"".join(map(self._frame, answer_events(self._output, answer)))

    def _frame(self, event: ResponseEvent) -> bytes:
        if not self._sends_all and (event.sequence_number <= self._after or self._is_known(event)):
            return b""
        if event.type == "response.output_item.done":
            item = msgspec.Raw(_encode(event.item))
            self._output.keep_encoded(event.output_index or 0, item)
            event = replace(event, item=item)
        # Not `frame`: JSON and the names of events have no line ends, and the data may be megabytes.
        return b"event: %b\ndata: %b\n\n" % (event.type.encode(), _encode(event))

    def _is_known(self, event: ResponseEvent) -> bool:
        return (event.item_id or getattr(event.item, "id", "")) in self._known


class ResponseFold(ReplyState):
    """The whole reply; as far as it is there before it is over."""

    def __init__(self, head: ResponseHead, prompt_tokens: int = 0) -> None:
        self.after = head.after
        self._events = ResponseEvents(head, prompt_tokens)
        super().__init__(self._events.deltas)
        self._growing: GrowingItem | None = None

    def push(self, event: DocumentEvent, /) -> None:
        if event.__class__ is ContentDelta and event.raw is None and self._growing == "message":
            self._events.output.grow(event.text)
        elif event.__class__ is Reasoning and not event.opens and self._growing == "reasoning":
            self._events.grow_reasoning(event.text)
        else:
            self._events.push(event)
            self._growing = self._events.growing

    def body(self) -> bytes:
        return _encode(self._events.output.response())


def keep_alive(number: int = 0) -> bytes:
    """For Codex."""
    return b'event: keepalive\ndata: {"type":"keepalive","sequence_number":%d}\n\n' % number


def failure_frames(head: ResponseHead, failure: Failure) -> bytes:
    """The whole stream of a run that failed."""
    nothing = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
    return ResponseStream(head).answer(WholeAnswer("", "", (), Ended(nothing, failure=failure)))
