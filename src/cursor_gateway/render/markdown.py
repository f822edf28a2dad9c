"""Show the agent's Markdown in a terminal, and find its finished blocks."""

from collections.abc import Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.text import Text

from cursor_gateway.render.listing import Listing, code_rows
from cursor_gateway.render.visible import visible


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
