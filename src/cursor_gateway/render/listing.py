"""Lay out code, changes, output and Markdown for a terminal."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from cursor_gateway.model.documents import Diff
from cursor_gateway.render.looks import line_runs
from cursor_gateway.render.visible import visible
from cursor_gateway.stages.diffs import diff_lines, split_lines

# --- lines beside their gutters ----------------------------------------------------------------------


_THEME = "ansi_dark"  # the terminal's own sixteen colours, so that it fits any background
_HIGHLIGHTED = 200_000  # characters; beyond that colours are not worth the wait
_TAB = 4


class ListingRow(NamedTuple):
    gutter: Text
    line: Text
    again: str = ""  # the gutter of a continued line


class Listing:
    """A line that is too long continues below; for files (no_wrap) every line stays one line."""

    def __init__(self, rows: Iterable[ListingRow]) -> None:
        self._rows = list(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max((row.gutter.cell_len for row in self._rows), default=0)
        for gutter, line, again in self._rows:
            room = max(options.max_width - width, 1)
            pieces = [line] if options.no_wrap else line.wrap(console, room, overflow="fold") or [line]
            for number, piece in enumerate(pieces):
                text = Text.assemble(gutter if number == 0 else (again.rjust(width), "dim"), piece)
                text.rstrip()
                yield text


def highlighted(code: str, language: str) -> list[Text]:
    code = visible(code).expandtabs(_TAB)
    if len(code) > _HIGHLIGHTED:
        return [Text(line) for line in split_lines(code)]
    text = Syntax("", language, theme=_THEME).highlight(code)
    return list(text.split("\n", allow_blank=True))[: len(split_lines(code))]


def plain_rows(lines: Iterable[str], style: str = "", gutter: str = "  ") -> Iterator[ListingRow]:
    for line in lines:
        yield ListingRow(Text(gutter, style), Text(line.expandtabs(_TAB), style), gutter if gutter.strip() else "")


def code_rows(code: str, language: str) -> Iterator[ListingRow]:
    for line in highlighted(code, language):
        yield ListingRow(Text("  "), line, "↪ ")


def numbered_rows(code: str, language: str, first: int) -> Iterator[ListingRow]:
    lines = highlighted(code, language)
    digits = len(str(first + len(lines) - 1))
    for number, line in enumerate(lines, first):
        yield ListingRow(Text(f"  {number:>{digits}} │ ", "dim"), line, "│ ")


def note_row(note: str) -> ListingRow:
    return ListingRow(Text("  "), Text(note, "dim"))


class DiffSummary(NamedTuple):
    """A change, line by line."""

    added: int
    removed: int
    rows: list[ListingRow]


def change(diff: Diff) -> DiffSummary:
    old, new = diff_lines(diff, *(visible(text).expandtabs(_TAB) for text in (diff.old_string, diff.new_string)))
    digits = len(str(diff.start_line + max(len(old), len(new)) - 1))
    rows: list[ListingRow] = []
    added = removed = 0

    def row(number: int, sign: str, line: str, style: str) -> ListingRow:
        gutter = Text.assemble((f"  {diff.start_line + number:>{digits}} ", "dim"), (f"{sign} ", style))
        return ListingRow(gutter, Text(line, style))

    for run in line_runs(old, new):
        match run.sign:
            case "⋮" if run.old.stop < len(old):  # the rest is not mentioned
                hidden = len(run.old)
                rows.append(note_row(f"⋮ {hidden} unchanged line{'s' if hidden > 1 else ''}"))
            case "⋮":
                pass
            case "-":
                rows += (row(number, "-", old[number], "red") for number in run.old)
                removed += len(run.old)
            case "+":
                rows += (row(number, "+", new[number], "green") for number in run.new)
                added += len(run.new)
            case " ":
                rows += (row(number, " ", new[number], "") for number in run.new)
    return DiffSummary(added, removed, rows)


def folded(rows: list[ListingRow], limit: int) -> list[ListingRow]:
    """The first rows, and how many more there are."""
    if len(rows) <= limit + 1:  # a note would take the place of the one row it hides
        return rows
    return [*rows[:limit], note_row(f"… {len(rows) - limit} more lines")]


def folded_in_the_middle(rows: list[ListingRow], first: int, last: int) -> list[ListingRow]:
    """What matters in long output is how it began and, more, how it ended."""
    if len(rows) <= first + last + 1:
        return rows
    return [*rows[:first], note_row(f"… {len(rows) - first - last} more lines …"), *rows[-last:]]


# --- the agent's Markdown ----------------------------------------------------------------------------


def _parser() -> MarkdownIt:
    # Without `html`, which would not be shown at all: `List<String>` is common in prose. Images remain text with
    # their address, and so do addresses in angle brackets.
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    return parser.enable(["table", "strikethrough"]).disable(["image", "autolink"])


_DEEPEST = 16
_PARSER = _parser()
_BLOCKS = _parser().disable("inline")


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Listing(code_rows(str(self.text).rstrip(), self.lexer_name))


class _Rendered(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", hyperlinks=False)  # an address must be seen before it is followed
        self.parsed = tokens
        for token in tokens:
            for child in token.children or []:
                child.content = visible(child.content)  # an entity may have become any character


class AgentMarkdown:
    """In a file (no_wrap) Markdown is best read as it was written, and so it is when nested beyond the screen."""

    def __init__(self, text: str) -> None:
        self._text = visible(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        tokens = [] if options.no_wrap else _PARSER.parse(self._text)
        if options.no_wrap or max((token.level for token in tokens), default=0) > _DEEPEST:
            yield Text(self._text)
        else:
            yield from _without_blank_ends(console.render_lines(_Rendered(tokens), options, pad=False))


def _without_blank_ends(lines: list[list[Segment]]) -> Iterator[Segment]:
    """`rich` puts an empty line before a list and after a rule; separating blocks is up to the view."""
    full = [number for number, line in enumerate(lines) if any(segment.text.strip() for segment in line)]
    for line in lines[full[0] : full[-1] + 1] if full else []:
        yield from line
        yield Segment.line()


def finished_blocks(text: str) -> int:
    """How much of a growing text looks the same whatever follows: all blocks but the last.

    Only whole lines count: "2" may yet become the "2." that continues a list.
    """
    lines = text.split("\n")[:-1]
    tokens = _BLOCKS.parse("\n".join(lines))
    starts = [token.map[0] for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
    return sum(len(line) + 1 for line in lines[: starts[-1]]) if len(starts) > 1 else 0
