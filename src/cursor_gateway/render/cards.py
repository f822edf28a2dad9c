"""Show a finished document in a terminal."""

from typing import Any

import msgspec
from msgspec import UNSET
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from cursor_gateway.model import documents
from cursor_gateway.model.changes import FileChange
from cursor_gateway.model.document_events import Done
from cursor_gateway.render import looks
from cursor_gateway.render.listing import (
    AgentMarkdown,
    Listing,
    ListingRow,
    change,
    code_rows,
    folded,
    folded_in_the_middle,
    numbered_rows,
    plain_rows,
)
from cursor_gateway.render.visible import visible, visible_line, visible_output
from cursor_gateway.stages.diffs import split_lines
from cursor_gateway.stages.summary import main_argument

# --- a plan's to-dos, in their current state ---------------------------------------------------------


_TODO_MARKS: dict[documents.TodoStatus, tuple[str, str, str]] = {  # the mark, its style, the text's style
    "pending": ("☐", "", ""),
    "in_progress": ("◐", "yellow", "bold"),
    "completed": ("☑", "green", "dim"),
    "cancelled": ("☒", "dim", "dim strike"),
}


class Checklist:
    """Keeps only the state of the newest plan, and draws that."""

    def __init__(self) -> None:
        self._title = ""
        self._todos: looks.Todos = {}

    def begin(self, plan: documents.PlanMetadata) -> None:
        self._title, self._todos = plan.title, looks.planned(plan)

    def update(self, change: documents.TodoUpdateMetadata) -> None:
        self._todos = looks.updated(self._todos, change)

    @property
    def heading(self) -> str:
        title = f" · {self._title}" if self._title else ""
        return f"To-dos{title} · {looks.progress(self._todos)}"

    def picture(self) -> Listing:
        digits = len(str(len(self._todos)))
        rows = []
        for number, todo in enumerate(self._todos.values(), 1):
            mark, mark_style, style = _TODO_MARKS[todo.status]
            needed = looks.waits_for(todo, self._todos)
            after = f"  after {needed}" if needed else ""
            gutter = Text.assemble("  ", (mark, mark_style), (f" {number:>{digits}}. ", "dim"))
            rows.append(ListingRow(gutter, Text.assemble((visible_line(todo.content), style), (after, "dim"))))
        return Listing(rows)


# --- documents ---------------------------------------------------------------------------------------


_NEW_FILE_LINES = 20
_CHANGE_LINES = 60
_OUTPUT_FIRST, _OUTPUT_LAST = 8, 16
_RESULT_LINES = 3
_DETAIL_LINES = 12
_VALUE_LENGTH = 300

_STATE_STYLES: dict[documents.State, str] = {
    "completed": "green",
    "failed": "red",
    "rejected": "yellow",
    "unanswered": "yellow",
    "timed_out": "red",
    "interrupted": "yellow",
    "running": "yellow",
    "waiting": "yellow",
}
_MARKS: dict[documents.State, str] = {"completed": "✓ ", "running": "● "}
_FOLLOWED_BY_AN_ERROR = ("failed", "timed_out")


class Headline:
    """One line: what does not fit is taken from `title`, never from `note`. In a file (no_wrap) all of it fits."""

    def __init__(self, title: Text, note: Text | None = None) -> None:
        self._title = title
        self._note = Text.assemble("  ", note) if note else Text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = self._title.copy()
        if not options.no_wrap:
            title.truncate(max(options.max_width - self._note.cell_len, 1), overflow="ellipsis")
        yield Text.assemble(title, self._note, no_wrap=True, overflow=options.overflow)


def card(document: documents.Document, checklist: Checklist) -> RenderableType:
    match document:
        case documents.TextDocument(content=content):
            return AgentMarkdown(content)
        case documents.ThinkingDocument(content=content):
            return thinking(content)
        case documents.CodeReferenceDocument(content=content, metadata=metadata):
            head = reference_headline(metadata.file_path, metadata.start_line, metadata.end_line)
            return Group(head, Listing(numbered_rows(content, metadata.language, metadata.start_line)))
        case documents.CodeBlockDocument(content=content, metadata=metadata):
            return Group(code_headline(metadata.language), Listing(code_rows(content, metadata.language)))
        case documents.FileEditDocument():
            return _file_edit(document)
        case documents.TerminalCommandDocument():
            return _command(document)
        case documents.ToolCallDocument():
            return _tool_call(document)
        case documents.PlanDocument():
            return _plan(document, checklist)
        case documents.TodoUpdateDocument(metadata=metadata):
            return Group(Text(visible_line(checklist.heading), "bold"), checklist.picture(), *_ending(metadata))
        case documents.ClarificationDocument():
            return _clarification(document)
        case documents.ErrorDocument():
            return _error(document)


# --- prose and code ---------------------------------------------------------------------------------


def thinking(text: str) -> RenderableType:
    return Listing(plain_rows(visible(text).split("\n"), "dim italic", "┊ "))


def code_headline(language: str) -> Headline:
    return Headline(Text(visible_line(language), "dim"))


def reference_headline(path: str, first: int, last: int) -> Listing:
    return _path_line(Text(visible_line(path), "cyan"), Text(looks.line_range(first, last), "dim"))


def _path_line(path: Text, note: Text) -> Listing:
    """A path is never cut off: its end distinguishes files."""
    return Listing([ListingRow(Text(), Text.assemble(path, "  ", note))])


# --- tools ------------------------------------------------------------------------------------------


def _ending(trace: documents.ToolTrace) -> list[Listing]:
    """How a tool ended, where it did not simply complete. The error that follows says why it failed."""
    if trace.state is UNSET:
        return []
    reason = f": {visible_line(trace.reason)}" if trace.reason and trace.state not in _FOLLOWED_BY_AN_ERROR else ""
    return [_note(f"{trace.state.replace('_', ' ')}{reason}", _STATE_STYLES[trace.state])]


def _note(text: str, style: str) -> Listing:
    return Listing(plain_rows([text], style))


def _file_edit(document: documents.FileEditDocument) -> RenderableType:
    metadata, content = document.metadata, document.content or ""
    title = Text.assemble((f"✎ {metadata.operation} ", "bold"), (visible_line(metadata.file_path), "bold cyan"))
    rows: list[ListingRow] = []
    counts = Text()
    match metadata.operation:
        case "create":
            rows = _beginning(content, metadata.language)
            counts = Text(f"+{len(split_lines(content))}", "green")
        case "edit" if metadata.diff is not UNSET:
            changed = change(metadata.diff)
            rows = folded(changed.rows, _CHANGE_LINES)
            counts = Text.assemble((f"+{changed.added}", "green"), " ", (f"-{changed.removed}", "red"))
        case "edit":
            rows = _beginning(content, metadata.language)
        case "delete":
            pass
        case "rename":
            title.append(f" (was {visible_line(metadata.old_path or 'unknown')})")
    return Group(_path_line(title, counts), Listing(rows), *_ending(metadata))


def changed_file(file: FileChange, *, with_lines: bool) -> RenderableType:
    """All changes of a conversation to one file."""
    found = [change(diff) for diff in file.diffs]
    title = Text.assemble((f"✎ {file.operation} ", "bold"), (visible_line(file.path), "bold cyan"))
    added = sum(one.added for one in found) if file.added is UNSET else file.added
    removed = sum(one.removed for one in found) if file.removed is UNSET else file.removed
    counts = Text.assemble((f"+{added}", "green"), " ", (f"-{removed}", "red"))
    rows = [row for one in found for row in one.rows] if with_lines else []
    note = [_note(visible(file.note), "dim")] if file.note and with_lines else []
    return Group(_path_line(title, counts), Listing(folded(rows, _CHANGE_LINES * 4)), *note)


def _beginning(content: str, language: str) -> list[ListingRow]:
    """Only what will be seen is highlighted."""
    lines = split_lines(visible(content))
    first = list(code_rows("\n".join(lines[: _NEW_FILE_LINES + 1]), language))
    return folded([*first, *plain_rows(lines[len(first) :])], _NEW_FILE_LINES)


def _command(document: documents.TerminalCommandDocument) -> RenderableType:
    metadata = document.metadata
    output = list(plain_rows(split_lines(visible_output(metadata.output).rstrip("\n"))))
    shown = Listing(folded_in_the_middle(output, _OUTPUT_FIRST, _OUTPUT_LAST))
    took = f" · {looks.duration(metadata.duration_ms)}" if metadata.duration_ms else ""
    if metadata.state in (UNSET, "failed") and metadata.exit_code != -1:
        good = metadata.exit_code == 0
        ending = [_note(f"{'✓' if good else '✗'} exit {metadata.exit_code}{took}", "green" if good else "red")]
    else:
        ending = _ending(metadata) or [_note(f"ended without an exit status{took}", "yellow")]
    first, *more = visible(metadata.command).strip().expandtabs(4).split("\n")
    command = [
        ListingRow(Text("$ ", "bold green"), Text(first, "bold")),
        *(ListingRow(Text("  "), Text(line, "bold")) for line in more),
    ]
    return Group(Listing(command), shown, *ending)


def tool_line(name: str, about: str = "") -> Text:
    about = visible_line(about[:_VALUE_LENGTH])
    return Text.assemble((visible_line(name), "bold"), f" {about}" if about else "")


def _tool_call(document: documents.ToolCallDocument) -> RenderableType:
    metadata = document.metadata
    state: documents.State = "completed" if metadata.state is UNSET else metadata.state
    style = _STATE_STYLES[state]
    title = Text.assemble(
        (_MARKS.get(state, "✗ "), style),
        tool_line(metadata.tool_name, main_argument(metadata.arguments)),
    )
    shown = [state.replace("_", " ")] if state != "completed" else []
    took = [looks.duration(metadata.duration_ms)] if metadata.duration_ms else []
    head = Headline(title, Text(" · ".join([*shown, *took]), "dim" if state == "completed" else style))
    if state == "completed":
        return Group(head, *_short(_value_lines(metadata.result.data)))
    if state in _FOLLOWED_BY_AN_ERROR or not metadata.reason:
        return head
    return Group(head, _note(visible_line(metadata.reason), style))


def _short(lines: list[str]) -> list[Headline]:
    shown = lines if len(lines) <= _RESULT_LINES + 1 else lines[:_RESULT_LINES]
    more = [f"… {len(lines) - len(shown)} more lines"] if len(shown) < len(lines) else []
    return [Headline(Text(f"  {line}", "dim")) for line in [*shown, *more]]


def _value_lines(value: Any) -> list[str]:
    match value:
        case None:
            return []
        case str():
            lines = [line.expandtabs(4) for line in visible(value).split("\n") if line.strip()]
        case list():
            lines = [visible_line(item) if isinstance(item, str) else _compact(item) for item in value]
        case _:
            lines = [_compact(value)]
    return [line if len(line) <= _VALUE_LENGTH else line[: _VALUE_LENGTH - 1] + "…" for line in lines]


def _compact(value: Any) -> str:
    return visible(msgspec.json.encode(value).decode())


# --- plans, questions, errors -----------------------------------------------------------------------


def _plan(document: documents.PlanDocument, checklist: Checklist) -> RenderableType:
    metadata = document.metadata
    parts: list[RenderableType] = [Text(f"◆ Plan · {visible_line(metadata.title) or 'untitled'}", "bold magenta")]
    if metadata.overview:
        parts.append(Text(visible(metadata.overview), "italic"))
    if document.content:
        parts += ["", AgentMarkdown(document.content.strip("\n"))]
    if metadata.todos:
        parts += ["", checklist.picture()]
    return Group(*parts, *_ending(metadata))


def _clarification(document: documents.ClarificationDocument) -> RenderableType:
    metadata = document.metadata
    if metadata.permission and metadata.answers:  # it is decided, so what else could have been chosen is of no use
        (question,) = metadata.questions[:1]
        chosen, _ = looks.answer_to(question, metadata)
        decision = ", ".join(visible_line(option.label) for option in question.options if option.id in chosen)
        return Headline(
            Text.assemble(("? ", "yellow"), f"{decision}: ", (visible_line(metadata.permission.subject), "bold"))
        )
    rows = []
    for number, question in enumerate(metadata.questions, 1):
        several = "  (several may be chosen)" if question.allow_multiple is True else ""
        rows.append(
            ListingRow(Text(f"  {number}. "), Text.assemble((visible_line(question.text), "bold"), (several, "dim")))
        )
        chosen, _ = looks.answer_to(question, metadata)
        for option in question.options:
            mark, style = ("●", "green") if option.id in chosen else ("○", "")
            rows.append(ListingRow(Text(f"     {mark} ", style), Text(visible_line(option.label), style)))
    title = visible_line(document.content or "The agent asks")
    return Group(Text(f"? {title}", "bold yellow"), Listing(rows), *_ending(metadata))


def _error(document: documents.ErrorDocument) -> RenderableType:
    metadata = document.metadata
    message = visible(document.content).strip() or "It failed without a message."
    facts = " · ".join(visible_line(fact) for fact in (metadata.error_code, metadata.source) if fact)
    details = list(plain_rows(split_lines(visible_output(metadata.details).strip()), "red dim"))
    parts: list[RenderableType] = [Listing([ListingRow(Text("✗ ", "bold red"), Text(message, "bold red"))])]
    if facts:
        parts.append(_note(facts, "red"))
    return Group(*parts, Listing(folded_in_the_middle(details, _DETAIL_LINES // 2, _DETAIL_LINES // 2)))


# --- the end ----------------------------------------------------------------------------------------


def closing(done: Done) -> RenderableType:
    envelope = done.envelope
    time = looks.duration(envelope.metadata.duration_ms)
    if done.failure is None:
        mark, outcome = Text("✓ ", "green"), Text(envelope.status + (f" in {time}" if time else ""), "green")
    else:
        mark, outcome = Text("✗ ", "red"), Text("failed" + (f" after {time}" if time else ""), "red")
    model = "" if envelope.model == "unknown" else visible_line(envelope.model)
    facts = [fact for fact in (looks.tokens(envelope.usage, "tokens "), model) if fact]
    refused = (f" · {count} not run", "yellow") if (count := envelope.metadata.refused_count) else ""
    return Listing([ListingRow(mark, Text.assemble(outcome, refused, *((f" · {fact}", "dim") for fact in facts)))])
