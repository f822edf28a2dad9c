"""Show a run in a terminal, live.

What is finished is printed once and belongs to the scrollback. Only what is under way is drawn again
and again, at the bottom, in a region that is about half as tall as the screen: the end of the open text
and one line for each running tool. A delta costs an append; drawing is paid per frame.
"""

import os
from contextlib import suppress
from threading import Event, RLock, Thread
from typing import Self, TextIO

import msgspec
from msgspec import UNSET, Struct
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.text import Text
from rich.theme import Theme

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model import document_events
from cursor_gateway.model.documents import (
    ChatResponse,
    Document,
    DocumentType,
    Envelope,
    ErrorDocument,
    PlanDocument,
    TodoUpdateDocument,
    ToolCallDocument,
)
from cursor_gateway.render import cards
from cursor_gateway.render.export import WholeConversation
from cursor_gateway.render.listing import (
    AgentMarkdown,
    Listing,
    ListingRow,
    code_rows,
    finished_blocks,
    numbered_rows,
    plain_rows,
)
from cursor_gateway.render.visible import visible, visible_line, visible_output
from cursor_gateway.stages.diffs import split_lines
from cursor_gateway.stages.summary import main_argument

# --- the part of a terminal that is drawn again and again ---------------------------------------------


class LiveRegion:
    """Below what is printed. Before a frame, the cursor goes back to where the last one began. If the terminal was
    resized meanwhile, most of them, and tmux, have wrapped the lines anew: their lengths and the present width say how
    many rows to erase. Rows that were scrolled away stay, so a region should leave room on the screen."""

    def __init__(self, console: Console, content: RenderableType, frames_per_second: float) -> None:
        self._console, self._content, self._seconds = console, content, 1 / frames_per_second
        self._lines: list[list[Segment]] = []  # those on the screen; the cursor is behind the last one
        self._width = 0  # of the terminal when they were drawn
        self._wraps = not os.environ.keys() & {"XTERM_VERSION", "STY"}  # xterm and GNU screen cut lines instead
        self._lock, self._is_over = RLock(), Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._console.show_cursor(False)
        self._thread = Thread(target=self._draw_until_over, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Removes it from the screen."""
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            self._thread = None
            with self._console:
                self._erase()
                self._console.show_cursor()

    def print(self, renderable: RenderableType, *, soft_wrap: bool = False) -> None:
        """Prints above the region."""
        with self._lock, self._console:
            self._erase()
            self._console.print(renderable, soft_wrap=soft_wrap)
            if self._thread is not None:
                self.draw()

    def draw(self) -> None:
        with self._lock, self._console:
            width, height = self._console.size
            lines = [_trimmed(line) for line in self._console.render_lines(self._content, pad=False)[:height]]
            if (lines, width) == (self._lines, self._width):
                return
            self._erase()
            self._lines, self._width = lines, width
            broken = [[*line, Segment.line()] for line in lines[:-1]] + lines[-1:]
            self._console.print(Segments([segment for line in broken for segment in line]), end="")

    def _erase(self) -> None:
        rows = sum(map(self._rows, self._lines))
        if rows:
            up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * (min(rows, self._console.height) - 1)
            self._console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *up))
        self._lines = []

    def _rows(self, line: list[Segment]) -> int:
        """How many rows of the screen the line takes at the current width."""
        return max(1, -(-Segment.get_line_length(line) // self._console.width)) if self._wraps else 1

    def _draw_until_over(self) -> None:
        with suppress(OSError):  # the window was closed
            while not self._is_over.wait(self._seconds):
                self.draw()


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Without white space at its end, which would be wrapped, too."""
    while line and not (line[-1].style and line[-1].style.bgcolor):
        *line, (text, style, control) = line
        if text := text.rstrip():
            return [*line, Segment(text, style, control)]
    return line


_FRAMES_PER_SECOND = 12
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PREVIEW = 6_000  # characters of the open text that a frame draws at most
_RUNNING_LINES = 6
_OUTPUT_LINES = 3  # of a running command's output
_OUTPUT_KEPT = 2_000  # characters of it
_WONDERING_SECONDS = 3

_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold italic",
        "markdown.h5": "italic",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.block_quote": "italic",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)


def make_console(file: TextIO, *, plain: bool, width: int | None = None) -> Console:
    """`plain` is for files and for people who want no colours: nothing but text, and no line is broken."""
    return Console(
        file=file,
        force_terminal=not plain,
        force_interactive=not plain,
        color_system=None if plain else "auto",
        no_color=plain,
        width=width,
        theme=_THEME,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


_ASKING = frozenset({"ask_question", "create_plan", "request_permission"})  # of a person, not of a program


class _Prose(Struct):
    """The open document of text, code or thinking, as far as it is not printed."""

    id: str
    type: DocumentType
    known: document_events.KnownMetadata
    pieces: list[str]
    size: int = 0
    look_at: int = 0  # the size at which it is worth looking for finished blocks again

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.size += len(text)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def take_lines(self) -> str:
        """The whole lines."""
        text = self.text
        return self._take(text, text.rfind("\n") + 1)

    def take_blocks(self) -> str:
        """The finished blocks of Markdown. A block that stays open is parsed less and less often, so it costs
        linear time however long it grows."""
        if self.size < self.look_at:
            return ""
        text = visible(self.text)
        return self._take(text, finished_blocks(text))

    def _take(self, text: str, end: int) -> str:
        self.pieces = [text[end:]]
        self.size = len(text) - end
        self.look_at = self.size * 3 // 2
        return text[:end]


class _Region:
    """What is in progress. A thread of `rich` draws it while the view changes, so it reads each part once."""

    def __init__(self) -> None:
        self.prose: _Prose | None = None
        self.running: dict[str, Text] = {}
        self.began: dict[str, float] = {}  # when the running ones were first drawn; "": the first frame
        self.output = "", ""  # the command that wrote last, and the end of what it wrote
        self.state = "waiting for the agent"
        self.last: str | None = None  # what was printed last; None: nothing yet

    def clear(self) -> None:
        self.prose, self.running, self.output, self.state = None, {}, ("", ""), ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        prose, running, now = self.prose, list(self.running.items()), console.get_time()
        frame = _SPINNER[int(now * _FRAMES_PER_SECOND) % len(_SPINNER)]
        if not running and prose is None and self.state:
            running = [("", Text(self.state, "dim"))]
        below = [
            cards.Headline(Text.assemble((f"{frame} ", "yellow"), line), self._lasting(id, now))
            for id, line in running[:_RUNNING_LINES]
        ]
        if len(running) > _RUNNING_LINES:
            below.append(cards.Headline(Text(f"  and {len(running) - _RUNNING_LINES} more", "dim")))
        lines = split_lines(visible_output(self.output[1]).rstrip("\n"))[-_OUTPUT_LINES:]
        below += [cards.Headline(Text(f"  {line}", "dim")) for line in lines]
        if self.last is not None and (below or prose) and (prose is None or prose.id != self.last):
            yield ""
        if prose is not None:
            # Half of the screen: in a window of half the width it takes twice as much, and scrolled away it would stay.
            room = max(console.size.height // 2 - len(below), 1)
            for line in console.render_lines(_preview(prose, room), options, pad=False)[-room:]:
                yield from line
                yield Segment.line()
            if below:
                yield ""
        yield from below

    def _lasting(self, id: str, now: float) -> Text:
        """How long it has been running, after the first seconds; for the whole run, also how to stop it."""
        seconds = int(now - self.began.setdefault(id, now))
        return Text(f"{seconds} s{'' if id else ' · Ctrl-C stops'}" if seconds >= _WONDERING_SECONDS else "", "dim")


def _preview(prose: _Prose, room: int) -> RenderableType:
    """The end of what is there, which is what fits on the screen."""
    text, known = prose.text, prose.known
    if prose.type in ("text", "thinking"):
        if len(text) > _PREVIEW:
            text = text[-_PREVIEW:].partition("\n")[2] or text[-_PREVIEW:]
        return cards.thinking(text) if prose.type == "thinking" else AgentMarkdown(text)
    lines = split_lines(text)
    code, language = "\n".join(lines[-room:]), known.language or "text"
    hidden = max(len(lines) - room, 0)
    if known.file_path and known.start_line and known.end_line:
        head = cards.reference_headline(known.file_path, known.start_line, known.end_line)
        return Group(head, Listing(numbered_rows(code, language, known.start_line + hidden)))
    return Group(cards.code_headline(language), Listing(code_rows(code, language)))


class TerminalView:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._plain = not console.is_terminal
        self._region = _Region()
        self._live = LiveRegion(console, self._region, _FRAMES_PER_SECOND)
        self._checklist = cards.Checklist()
        self._tool_names: dict[str, str] = {}

    def __enter__(self) -> Self:
        if not self._plain:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        prose = self._region.prose
        self._region.clear()
        if prose is not None:  # broken off, by Ctrl-C: what was seen stays
            self._print_unfinished(prose)
        self._live.stop()

    def push(self, event: document_events.DocumentEvent, /) -> None:
        region = self._region
        region.state = "waiting for the agent"
        match event:
            case document_events.ContentDelta(id=id, text=text):
                if region.prose is not None and region.prose.id == id:
                    self._grow(region.prose, text)
            case document_events.TerminalOutput(id=id, text=text):
                before = region.output[1] if region.output[0] == id else ""
                region.output = id, (before + text)[-_OUTPUT_KEPT:]
            case document_events.Reasoning():
                region.state = "thinking"
            case document_events.DocumentStarted(id=id, type=type, metadata=known):
                self._start(id, type, known or document_events.KnownMetadata())
            case document_events.ToolCallStarted(id=id, tool_name=name):
                self._tool_names[id] = name
                region.running[id] = cards.tool_line(name)
            case document_events.ToolCallArguments(id=id, arguments=arguments):
                region.running[id] = cards.tool_line(self._tool_names[id], main_argument(arguments))
            case document_events.ToolCallEnded():
                pass  # the document's end says it, too
            case document_events.DocumentEnded(document=document):
                self._end(document)
            case document_events.Paused(envelope=envelope):
                waiting = envelope.metadata.waiting_for or []
                asks = any(call.tool_name in _ASKING for call in waiting)
                tools = ", ".join(call.tool_name for call in waiting)
                region.state = "waiting for you" if asks else f"waiting for the caller to run {tools}"
            case document_events.Done():
                region.clear()
                self._print(cards.closing(event))

    def _start(self, id: str, type: DocumentType, known: document_events.KnownMetadata) -> None:
        running = self._region.running
        match type:
            case "text" | "thinking" | "code_block" | "code_reference":
                self._region.prose = _Prose(id, type, known, [])
            case "terminal_command":
                running[id] = Text.assemble(("$ ", "green"), (visible_line(known.command or ""), "bold"))
            case "file_edit":
                running[id] = cards.tool_line("edit", known.file_path or "")
            case "plan":
                running[id] = cards.tool_line("plan", known.title or "")
            case "clarification":
                running[id] = cards.tool_line("question", known.questions[0].text if known.questions else "")
            case "todo_update":
                running[id] = cards.tool_line("to-dos")
            case "tool_call" | "error":
                pass  # a tool's name comes with its own event; an error takes no time

    def _grow(self, prose: _Prose, text: str) -> None:
        prose.add(text)
        if "\n" in text and prose.type in ("text", "thinking"):
            by_lines = self._plain or prose.type == "thinking"
            self._print_prose(prose, prose.take_lines() if by_lines else prose.take_blocks())

    def _print_prose(self, prose: _Prose, text: str) -> None:
        if not text:
            return
        text = text.removesuffix("\n")
        if prose.type == "thinking":
            self._print(cards.thinking(text), prose.id)
        else:
            self._print(AgentMarkdown(text), prose.id if self._plain else "")

    def _print_unfinished(self, prose: _Prose) -> None:
        if prose.type in ("text", "thinking"):
            self._print_prose(prose, prose.text)
        else:
            self._print(_preview(prose, prose.size + 1))

    def _end(self, document: Document) -> None:
        self._region.running.pop(document.id, None)
        if self._region.output[0] == document.id:
            self._region.output = "", ""
        self._tool_names.pop(document.id, None)
        prose = self._region.prose
        if prose is not None and prose.id == document.id:
            self._region.prose = None
            if prose.type in ("text", "thinking"):
                self._print_prose(prose, prose.text)
                return
        if isinstance(document, PlanDocument):
            self._checklist.begin(document.metadata)
        if isinstance(document, TodoUpdateDocument) and document.metadata.state is UNSET:
            self._checklist.update(document.metadata)
        self._print(
            cards.card(document, self._checklist), "tool_call" if isinstance(document, ToolCallDocument) else ""
        )

    def _print(self, renderable: RenderableType, together: str = "") -> None:
        """After an empty line, unless the last one had the same `together`: lines of one text, or tool calls."""
        last, self._region.last = self._region.last, together
        apart = last is not None and (not together or together != last)
        self._live.print(Group("", renderable) if apart else renderable, soft_wrap=self._plain)


# --- a conversation ---------------------------------------------------------------------------------


def print_conversation(conversation: WholeConversation, console: Console, begun: str, last: int = 0) -> None:
    """`begun` says when; with `last`, only that many of its runs, the newest."""
    is_plain = not console.is_terminal
    facts = [conversation.id, f"started {begun}", f"in {visible_line(conversation.workspace)}"]
    title = [ListingRow(Text(), Text(visible_line(conversation.title), "bold underline"))]
    console.print(Group(Listing(title), Listing(plain_rows([" · ".join(facts)], "dim", ""))), soft_wrap=is_plain)
    view = TerminalView(console)  # one for all runs: a plan's to-dos may be done in a later one
    for number, run in enumerate(conversation.runs[-last:]):
        for message in conversation.prompts(run):
            if message.note:
                console.print(
                    Group("", Listing(plain_rows(split_lines(visible(message.note)), "dim"))), soft_wrap=is_plain
                )
                continue
            lines = split_lines(visible(message.text))
            prompt = [ListingRow(Text("▌ ", "bold cyan"), Text(line.expandtabs(4), "bold"), "▌ ") for line in lines]
            is_prompt = message.role == "user"
            console.print(Group("", Listing(prompt) if is_prompt else AgentMarkdown(message.text)), soft_wrap=is_plain)
        if number == 0:  # the view itself adds a line between its parts
            console.print()
        if (response := conversation.response(run)) is not None:
            for document in response.documents:
                view.push(document_events.DocumentEnded(document))
        if response is None or response.status == "streaming":
            console.print(Group("", Text("● still running", "bold green")), soft_wrap=is_plain)
        else:
            view.push(_done(response))


def _done(response: ChatResponse) -> document_events.Done:
    fields = msgspec.structs.asdict(response)
    documents = fields.pop("documents")
    errors = [document.content for document in documents if isinstance(document, ErrorDocument)]
    failure = AgentCrashed(errors[-1] if errors else "").failure() if response.status == "error" else None
    return document_events.Done(Envelope(**fields), failure)
