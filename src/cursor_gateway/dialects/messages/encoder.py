"""Turn document events into the content blocks of a message, step by step, and those into Anthropic's Server-Sent
Events or one message.

    no block ──Opened──▶ text or thinking ──Grew…──Closed──▶ no block          (a block is final once it is closed)
    no block ──Whole (a call, a server tool's result)──▶ no block
    anywhere ──Finished──▶ over

    message_start ── per block: content_block_start, content_block_delta…, content_block_stop ── message_delta,
    message_stop; or `error` instead of the rest; `ping` anywhere between

The text blocks that are the agent's, joined, are its text, byte for byte: white space between two blocks belongs to the
next one. The rules that real clients depend on: an `event:` line in every frame, usage in message_start and
message_delta, a call's input in deltas and never in its start, a stop for every block.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from cursor_gateway.dialects.deltas import (
    MARK,
    ActionDisplay,
    AgentTools,
    AnswerText,
    Called,
    Delta,
    Ended,
    Noted,
    OpenQuestion,
    ReplyState,
    Thought,
    Translator,
    action_text,
    marked,
)
from cursor_gateway.dialects.messages.shapes import (
    AnthropicMessage,
    BashError,
    BashOutput,
    BashResult,
    ContentBlock,
    CreateOutput,
    EditorError,
    EditorResult,
    MessageCursorFields,
    MessageUsage,
    ReplaceOutput,
    ServerTool,
    ServerToolResult,
    ServerToolUseBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    WebSearchError,
    WebSearchHit,
    WebSearchResult,
    message_usage,
    server_tool_id,
    stream_error,
)
from cursor_gateway.dialects.replies import EventEncoder
from cursor_gateway.errors import Failure
from cursor_gateway.model import documents
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Reasoning,
    is_tool,
)
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.stages.diffs import diff_lines
from cursor_gateway.stages.summary import main_argument
from cursor_gateway.wire.payload import Fields
from cursor_gateway.wire.sse import frame

# --- what the agent's own tools did: a line of text, or the blocks of a server tool -----------------


NOTHING_SAID = "The agent finished without a message."
_SEARCH = "web_search"

ServerToolBlocks: TypeAlias = tuple[ServerToolUseBlock, ServerToolResult]


def text_of(document: documents.Document) -> str | None:
    """What was done; None for documents that are not about a tool of the agent's own."""
    line = action_text(document)
    return None if line is None else f"{MARK}{line}\n"


def closing_text(document: documents.Document) -> str | None:
    """What a reader must see of this document even if the agent says nothing; None: nothing."""
    return document.content if isinstance(document, documents.PlanDocument) else None


def search_of(document: documents.Document, id: str) -> ServerToolBlocks | None:
    """A web search; None for anything else."""
    match document:
        case documents.ToolCallDocument(metadata=metadata) if metadata.tool_name == _SEARCH and not metadata.ran_by:
            found = metadata.result.data if metadata.result.status == "success" else None
            hits = [_hit(Fields(reference)) for reference in found] if isinstance(found, list) else WebSearchError()
            return _use(id, "web_search", {"query": main_argument(metadata.arguments)}), WebSearchResult(id, hits)
        case _:
            return None


def _hit(reference: Fields) -> WebSearchHit:
    return WebSearchHit(url=reference.text("url"), title=reference.text("title"))


def blocks_of(document: documents.Document, id: str) -> ServerToolBlocks | None:
    """As a server tool's call and result; None for what no server tool does."""
    match document:
        case documents.TerminalCommandDocument(metadata=metadata):
            use = _use(id, "bash_code_execution", {"command": metadata.command})
            if metadata.state in (UNSET, "completed"):
                return use, BashResult(id, BashOutput(metadata.output, "", metadata.exit_code))
            is_late = metadata.state == "timed_out"
            return use, BashResult(id, BashError("execution_time_exceeded" if is_late else "unavailable"))
        case documents.FileEditDocument():
            return _edit(document, id)
        case _:
            return search_of(document, id)


def _edit(document: documents.FileEditDocument, id: str) -> ServerToolBlocks | None:
    metadata = document.metadata
    output: CreateOutput | ReplaceOutput
    match metadata.operation, metadata.diff:
        case "create", _:
            given = {"command": "create", "path": metadata.file_path, "file_text": document.content or ""}
            output = CreateOutput(is_file_update=False)
        case "edit", documents.Diff() as diff:
            given = {
                "command": "str_replace",
                "path": metadata.file_path,
                "old_str": diff.old_string,
                "new_str": diff.new_string,
            }
            output = _replaced(diff)
        case _:
            return None
    use = _use(id, "text_editor_code_execution", given)
    if metadata.state not in (UNSET, "completed"):
        return use, EditorResult(id, EditorError(error_message=metadata.reason or None))
    return use, EditorResult(id, output)


def _replaced(diff: documents.Diff) -> ReplaceOutput:
    old, new = diff_lines(diff, diff.old_string, diff.new_string)
    return ReplaceOutput(
        lines=[*(f"-{line}" for line in old), *(f"+{line}" for line in new)],
        old_start=diff.start_line,
        old_lines=len(old),
        new_start=diff.start_line,
        new_lines=len(new),
    )


def _use(id: str, name: ServerTool, given: dict[str, str]) -> ServerToolUseBlock:
    return ServerToolUseBlock(id, name, Raw(msgspec.json.encode(given)))


GrowingBlock: TypeAlias = Literal["text", "thinking"]


class Display(Struct, frozen=True, kw_only=True):
    """What of a run one message shows beside the text and the caller's tools."""

    thinking: bool = False
    actions: ActionDisplay | Literal["search"] = "none"  # search: web searches alone, as server tools
    notes: bool = False  # a last line about what was not run


class BlockOpened(Struct, frozen=True):
    kind: GrowingBlock


class Grew(Struct, frozen=True, gc=False):
    text: str


class BlockClosed(Struct, frozen=True):
    pass


class WholeBlock(Struct, frozen=True):
    block: ContentBlock


class Finished(Struct, frozen=True):
    stop_reason: StopReason
    stop_sequence: str | None
    usage: MessageUsage
    failure: Failure | None
    cursor: MessageCursorFields | UnsetType = UNSET


BlockStep: TypeAlias = BlockOpened | Grew | BlockClosed | WholeBlock | Finished


class Composer(ReplyState):
    """One message's. With a cutter it may be finished before the run is."""

    def __init__(self, run_id: str, display: Display, cutter: Cutter | None = None, prompt_tokens: int = 0) -> None:
        """`prompt_tokens` estimates the context of a message that is cut."""
        in_thinking = display.thinking and display.actions == "thinking"
        agent_tools: AgentTools = "reasoning" if in_thinking else "none"
        super().__init__(Translator(run_id, agent_tools, cutter, prompt_tokens, notes=display.notes))
        self.open: GrowingBlock | None = None
        self._run_id, self._display = run_id, display
        self._space: list[str] = []  # white space that belongs to the next block of text
        self._is_visible = self._has_text = False
        self._closing_text = NOTHING_SAID
        self._note = ""
        self._server_tools = 0

    @property
    def is_plain(self) -> bool:
        """What is pushed grows the open block as it is."""
        return self.deltas.cutter is None and not self.is_over

    def push(self, event: DocumentEvent, /) -> list[BlockStep]:
        if self.deltas.end is not None:
            return []
        steps = [step for delta in self.deltas.push(event) for step in self._take(delta)]
        match event:
            case DocumentStarted() if self.open == "text" and is_tool(event):  # the text after it is another block
                steps += self._close()
            case DocumentEnded(document=document) if not self.is_over:
                steps += self._acted(document)
            case _:
                pass
        return steps

    def _take(self, delta: Delta) -> list[BlockStep]:
        match delta:
            case AnswerText(text=text):
                return self._say(text)
            case Thought(text=text):
                return self._think(text) if self._display.thinking else []
            case Called(call=call):
                self._is_visible = True
                return [*self._close(), WholeBlock(ToolUseBlock(call.id, call.name, Raw(call.arguments.encode())))]
            case OpenQuestion(text=text):
                self._is_visible = True
                steps = self._write_space()
                return [*steps, *self._begin("text"), Grew(marked(text)), *self._close()]
            case Noted(text=text):
                self._note = text
                return []
            case Ended():
                return self._finish(delta)

    def _say(self, text: str) -> list[BlockStep]:
        if self.open == "text":
            return [Grew(text)]
        self._space.append(text)
        if text.isspace():
            return []
        self._is_visible = True
        return self._write_space()

    def _write_space(self) -> list[BlockStep]:
        text = "".join(self._space)
        self._space.clear()
        return [*self._begin("text"), Grew(text)] if text else []

    def _think(self, text: str) -> list[BlockStep]:
        if self.open == "thinking":
            return [Grew(text)]
        text = text.lstrip("\n")  # which separates it from earlier thinking, in a block of its own
        return [*self._begin("thinking"), Grew(text)] if text else []

    def _acted(self, document: documents.Document) -> list[BlockStep]:
        self._closing_text = closing_text(document) or self._closing_text
        id = server_tool_id(self._run_id, self._server_tools + 1)
        match self._display.actions:
            case "text":
                return self._line(text_of(document))
            case "native":
                return self._server_tool(blocks_of(document, id)) or self._line(text_of(document))
            case "search":
                return self._server_tool(search_of(document, id))
            case "thinking" | "none":
                return []

    def _server_tool(self, blocks: ServerToolBlocks | None) -> list[BlockStep]:
        if blocks is None:
            return []
        self._server_tools += 1
        return [*self._close(), *map(WholeBlock, blocks)]

    def _line(self, line: str | None) -> list[BlockStep]:
        """A block of the gateway's own, which begins a line also where a client joins the texts."""
        if line is None:
            return []
        line = f"\n{line}" if self._has_text else line
        return [*self._begin("text"), Grew(line), *self._close()]

    def _finish(self, end: Ended) -> list[BlockStep]:
        reason, sequence = self._reason(end)
        steps: list[BlockStep] = []
        if end.failure is None:
            steps += self._write_space()
            is_silent = reason == "end_turn" and not self._is_visible  # clients ask again when nothing is visible
            if is_silent and not (self._note and self._closing_text == NOTHING_SAID):
                steps += self._line(f"{MARK}{self._closing_text}")
            steps += self._end_note()
            steps += self._close()
        cursor: MessageCursorFields | UnsetType = UNSET
        if end.refused_count:
            cursor = MessageCursorFields(refused_count=end.refused_count, refused=list(end.refused) or UNSET)
        return [*steps, Finished(reason, sequence, message_usage(end.usage), end.failure, cursor)]

    def _end_note(self) -> list[BlockStep]:
        """In the last block of text: some clients print only that one."""
        if not self._note:
            return []
        return [Grew(f"\n\n{self._note}")] if self.open == "text" else [*self._begin("text"), Grew(self._note)]

    def _reason(self, end: Ended) -> tuple[StopReason, str | None]:
        cutter = self.deltas.cutter
        if cutter is not None and cutter.stop_sequence is not None:
            return "stop_sequence", cutter.stop_sequence
        match end.reason:
            case "stop":
                return "end_turn", None
            case "length":
                return "max_tokens", None
            case "tool_calls":
                return "tool_use", None

    def _begin(self, kind: GrowingBlock) -> list[BlockStep]:
        steps = [*self._close(), BlockOpened(kind)]
        self.open = kind
        self._has_text = self._has_text or kind == "text"
        return steps

    def _close(self) -> list[BlockStep]:
        if self.open is None:
            return []
        self.open = None
        return [BlockClosed()]


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
