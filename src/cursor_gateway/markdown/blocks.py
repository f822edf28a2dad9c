"""Parse CommonMark's block structure line by line, to find the role of each line in a fence.

Only the part of CommonMark that decides what a fence is: block quotes, list items, indented code, HTML blocks,
headings and thematic breaks (they end a paragraph), lazy continuation. Tabs are four columns.

Between lines the state is a stack of open containers (quotes and items, outermost first) and at most one open leaf:
a fence, an HTML block or a paragraph. Each line first matches containers, from the outside in. If all match, an
open fence or HTML block takes the rest of the line. If not, the unmatched containers close, and any fence in them
with it; only a paragraph may continue without its containers' markers (lazy continuation). A fence never outlives its
container, and nothing can open inside a fence or an HTML block.
"""

import re
from bisect import bisect_left
from itertools import accumulate
from typing import Literal, TypeAlias

from msgspec import Struct


class Prose(Struct, frozen=True):
    """Not part of a fence."""


class Opened(Struct, frozen=True):
    """An opening fence. `column` is its position: that many columns are removed from its lines."""

    info: str
    column: int
    quoted: bool


class Content(Struct, frozen=True):
    """A line inside a fence, without the indentation of its containers and of the fence."""

    text: str


class Closed(Struct, frozen=True):
    """A closing fence."""


LineKind: TypeAlias = Prose | Opened | Content | Closed

PROSE, CLOSED = Prose(), Closed()


class Fence(Struct, frozen=True):
    char: str
    length: int
    indent: int  # inside its container: 0 to 3


class HtmlBlock(Struct, frozen=True):
    end: re.Pattern[str] | None  # None: a blank line ends it


Paragraph: TypeAlias = Literal["paragraph"]
Leaf: TypeAlias = HtmlBlock | Paragraph | None


class Quote(Struct, frozen=True):
    pass


class Item(Struct, frozen=True):
    width: int  # columns that its lines are indented by


Container: TypeAlias = Quote | Item

_MAX_NESTING = 100  # deeper containers are read as text

# A line that starts with none of these, outside any container, is paragraph text whatever follows.
_SPECIAL = frozenset(" \t`~>-+*_#<=0123456789")
_SPECIAL_LINE = re.compile(r"^[ \t`~>\-+*_#<=0-9]", re.MULTILINE)
_INDENTED_TEXT = re.compile(r" {1,3}[^ \t`~>\-+*_#<=0-9]")
_MARKS = " \t>-+*_=0123456789.)"  # what containers, breaks and underlines are made of

_HEADING = re.compile(r"#{1,6}(?:[ \t]|$)")
_UNDERLINE = re.compile(r"(?:=+|-+)[ \t]*$")
_MARKER = re.compile(r"(?:[-+*]|(\d{1,9})[.)])(?=[ \t]|$)")
_BLANK_REST = re.compile(r"[ \t]*+$")
_PLAIN_ITEM = re.compile(r"( {0,3})(?:[-+*]|(\d{1,9})[.)]) {1,4}(?=[^ \t`~>\-+*_#<=0-9]|\*\*[^ \t*]|`[^`])")
_FENCE = re.compile(r"`{3,}+(?!.*`)|~{3,}", re.DOTALL)
_FENCE_END = re.compile(r"(`{3,}|~{3,})[ \t]*$")

_ATTRIBUTE = r"""[ \t]+[A-Za-z_:][\w.:-]*(?:[ \t]*=[ \t]*(?:[^ \t"'=<>`]+|'[^']*'|"[^"]*"))?"""
_ANY_TAG = re.compile(
    rf"<[A-Za-z][A-Za-z0-9-]*(?:{_ATTRIBUTE})*[ \t]*/?>[ \t]*$|</[A-Za-z][A-Za-z0-9-]*[ \t]*>[ \t]*$", re.ASCII
)
_BLOCK_TAG = re.compile(
    r"</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div"
    r"|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link"
    r"|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead"
    r"|title|tr|track|ul)(?:[ \t]|/?>|$)",
    re.IGNORECASE,
)
_HTML_UNTIL = [
    (re.compile(start, re.IGNORECASE), re.compile(end, re.IGNORECASE))
    for start, end in [
        (r"<(?:script|pre|textarea|style)(?:[ \t>]|$)", r"</(?:script|pre|textarea|style)>"),
        (r"<!--", r"-->"),
        (r"<\?", r"\?>"),
        (r"<![A-Za-z]", r">"),
        (r"<!\[CDATA\[", r"\]\]>"),
    ]
]


class _Line:
    """A line, and how much of it its containers have consumed.

    Each character is read a bounded number of times, however many containers there are: the next non-blank is found
    once per run of white space, and the line's tail once per character of a thematic break.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self.column = 0
        self._inside_tab = False
        self._tails: dict[str, int] = {}
        self._look()

    def _look(self) -> None:
        """Finds the next character after white space."""
        text, start, column = self.text, self.offset, self.column
        while (char := text[start : start + 1]) == " " or char == "\t":
            column += 1 if char == " " else 4 - column % 4
            start += 1
        self.start = start  # of the next non-blank
        self.start_column = column
        self.indent = column - self.column
        self.blank = start == len(text)

    def advance(self, columns: int) -> None:
        """Consumes columns of white space."""
        columns = min(columns, self.indent)
        self.indent -= columns
        while columns > 0:
            width = 4 - self.column % 4 if self.text[self.offset] == "\t" else 1
            step = min(width, columns)
            self._inside_tab = step < width
            self.column += step
            self.offset += not self._inside_tab
            columns -= step

    def advance_past_start(self, characters: int) -> None:
        self.offset, self.column = self.start + characters, self.start_column + characters
        self._inside_tab = False
        self._look()

    def is_break(self) -> bool:
        """A thematic break: is the rest only white space and three or more of the next character?"""
        char = self.text[self.start]
        if char not in self._tails:
            self._tails[char] = len(self.text.rstrip(f"{char} \t"))
        return self._tails[char] <= self.start and self.text.count(char, self.start) >= 3

    def rest(self) -> str:
        if self._inside_tab:  # what is left of the tab, as spaces
            return " " * (4 - self.column % 4) + self.text[self.offset + 1 :]
        return self.text[self.offset :]


class BlockParser:
    def __init__(self) -> None:
        self.fence: Fence | None = None  # the open one
        self._containers: list[Container] = []
        self._quotes: list[int] = []  # indices of the quotes among them
        self._columns = [0]  # total indentation of the items among the first 0, 1, 2, … of them
        self._items_end = 0  # their number, without a last item that is empty
        self._leaf: Leaf = None  # an open paragraph or HTML block

    def line(self, text: str) -> LineKind:
        """The next complete line, without its line end."""
        fence, leaf = self.fence, self._leaf
        if not self._containers:  # fast path for the common cases
            if fence is not None:
                if fence.indent == 0 and fence.char not in text:
                    return Content(text)
            elif leaf is None or leaf == "paragraph":
                if not text:
                    self._leaf = None
                    return PROSE
                if text[0] not in _SPECIAL or _INDENTED_TEXT.match(text):
                    self._leaf = "paragraph"
                    return PROSE
                if _HEADING.match(text):
                    self._leaf = None
                    return PROSE
        if fence is None and (leaf is None or leaf == "paragraph") and self._is_plain_item(text):
            return PROSE
        line = _Line(text)
        matched = self._match(line)
        if matched == len(self._containers):
            if fence is not None:
                return self._inside_fence(line, fence)
            if isinstance(leaf, HtmlBlock) and (leaf.end or not line.blank):
                if leaf.end and leaf.end.search(text, line.offset):
                    self._leaf = None
                return PROSE
        self.fence = None
        if line.blank:
            if matched < len(self._containers):
                self._nest(self._containers[:matched])
            self._leaf = None
            return PROSE
        return self._start(line, matched)

    def _is_plain_item(self, text: str) -> bool:
        """Fast path for most lists: a top-level item that starts with plain text."""
        item = _PLAIN_ITEM.match(text)
        if item is None:
            return False
        if not self._containers:
            if self._leaf is not None and item[2] not in (None, "1"):
                return False  # may not interrupt a paragraph
        elif isinstance(outer := self._containers[0], Item) and len(item[1]) >= outer.width:
            return False  # inside that item
        self._nest([Item(width=len(item[0]))])
        self._leaf = "paragraph"
        return True

    def skip(self, text: str, start: int, end: int) -> int:
        """Skips complete lines of `text`, each with its LF, from `start` to at most `end`, that are only content of
        the open fence, or only paragraphs. Returns where it stopped."""
        if self._containers or isinstance(self._leaf, HtmlBlock):
            return start
        if self.fence is not None:
            mark = text.find(self.fence.char, start, end) if self.fence.indent == 0 else start
            return end if mark < 0 else text.rfind("\n", start, mark) + 1 or start
        special = _SPECIAL_LINE.search(text, start, end)
        stop = special.start() if special else end
        if stop > start:
            is_blank = stop - start == 1 or text[stop - 2] == "\n"
            self._leaf = None if is_blank else "paragraph"
        return stop

    def settles(self, start: str) -> bool:
        """Whether this start of a line, which is not a fence and not in one, decides the state after the line. If so
        the line is consumed, and must not be passed to `line`."""
        text = start.lstrip(_MARKS)
        if not text.lstrip("#") or text[0] == "<" or isinstance(self._leaf, HtmlBlock):
            return False  # perhaps a break, an underline or a heading, or HTML: its end matters
        if text is start and text[0] != "#" and not self._containers:
            self._leaf = "paragraph"
        else:
            self.line(start)
        return True

    def content_of(self, start: str) -> str | None:
        """The part of this start of a line that is content of the open fence. `start` must reach the first non-blank.
        None if the line is outside the fence's container and so ends the fence."""
        fence = self.fence
        if fence is None:
            return None
        if not self._containers and fence.indent == 0:
            return start
        line = _Line(start)
        return self._dedented(line, fence) if self._match(line) == len(self._containers) else None

    def _nest(self, containers: list[Container], *, last_is_empty: bool = False) -> None:
        """Sets the open containers. The last is empty if it is an item with only a marker."""
        self._containers = containers
        self._quotes = [number for number, container in enumerate(containers) if isinstance(container, Quote)]
        widths = [container.width if isinstance(container, Item) else 0 for container in containers]
        self._columns = list(accumulate(widths, initial=0))
        self._items_end = len(containers) - last_is_empty

    def _match(self, line: _Line) -> int:
        """How many of the open containers this line continues."""
        for number, container in enumerate(self._containers):
            if line.blank:
                return self._match_blank(line, number)
            match container:
                case Quote():
                    if not _eat_quote_mark(line):
                        return number
                case Item(width=width):
                    if line.indent < width:
                        return number
                    line.advance(width)
        return len(self._containers)

    def _match_blank(self, line: _Line, number: int) -> int:
        """A blank line, from container `number` on, in one step: comparing each of many blank lines with every
        container would be quadratic. It ends quotes, and an empty item: only one blank line may follow a marker."""
        place = bisect_left(self._quotes, number)
        end = self._quotes[place] if place < len(self._quotes) else max(number, self._items_end)
        line.advance(self._columns[end] - self._columns[number])
        return end

    def _inside_fence(self, line: _Line, fence: Fence) -> LineKind:
        if line.indent < 4 and (end := _FENCE_END.match(line.text, line.start)):
            run = end[1]
            if run[0] == fence.char and len(run) >= fence.length:
                self.fence = None
                return CLOSED
        return Content(self._dedented(line, fence))

    def _dedented(self, line: _Line, fence: Fence) -> str:
        line.advance(min(line.indent, fence.indent))
        return line.rest()

    def _start(self, line: _Line, matched: int) -> LineKind:
        """A non-blank line outside fences and HTML blocks: opens new containers, then at most one leaf."""
        lazy = matched < len(self._containers) and self._leaf == "paragraph"
        in_paragraph = matched == len(self._containers) and self._leaf == "paragraph"
        containers = self._containers[:matched]
        while line.indent < 4 and not line.blank and len(containers) < _MAX_NESTING:
            if _eat_quote_mark(line):
                containers.append(Quote())
            elif (leaf := self._leaf_at(line, in_paragraph, lazy)) is not None:
                return self._settle(containers, leaf, line)
            elif (item := _eat_list_marker(line, in_paragraph)) is not None:
                containers.append(item)
            else:
                break
            lazy = in_paragraph = False
        if line.blank:  # after new containers
            self._nest(containers, last_is_empty=isinstance(containers[-1], Item))
            self._leaf = None
        elif not lazy:
            # Indented code ends no paragraph and is none.
            is_code = line.indent >= 4 and not in_paragraph
            self._settle(containers, "code" if is_code else "paragraph", line)
        return PROSE

    def _leaf_at(self, line: _Line, in_paragraph: bool, lazy: bool) -> "Fence | HtmlBlock | Literal['other'] | None":
        text, start = line.text, line.start
        match text[start]:
            case "#":
                return "other" if _HEADING.match(text, start) else None
            case "`" | "~":
                fence = _FENCE.match(text, start)
                return Fence(text[start], len(fence[0]), line.indent) if fence else None
            case "<":
                return _html_block(text, start, may_be_any_tag=not in_paragraph and not lazy)
            case "=" | "-" | "*" | "_":
                is_underline = in_paragraph and _UNDERLINE.match(text, start)
                return "other" if is_underline or (text[start] != "=" and line.is_break()) else None
            case _:
                return None

    def _settle(
        self,
        containers: list[Container],
        leaf: "Fence | HtmlBlock | Literal['paragraph', 'code', 'other']",
        line: _Line,
    ) -> LineKind:
        self._nest(containers)
        match leaf:
            case Fence(length=length):
                self.fence, self._leaf = leaf, None
                quoted = any(isinstance(container, Quote) for container in containers)
                return Opened(line.text[line.start + length :].strip(" \t"), line.start_column, quoted)
            case HtmlBlock(end=end):
                self._leaf = None if end and end.search(line.text, line.start) else leaf
            case "paragraph":
                self._leaf = "paragraph"
            case "code" | "other":
                self._leaf = None
        return PROSE


def _eat_quote_mark(line: _Line) -> bool:
    if line.indent >= 4 or line.blank or line.text[line.start] != ">":
        return False
    line.advance_past_start(1)
    line.advance(1)
    return True


def _eat_list_marker(line: _Line, in_paragraph: bool) -> Item | None:
    marker = _MARKER.match(line.text, line.start)
    if marker is None:
        return None
    rest_is_blank = _BLANK_REST.match(line.text, marker.end()) is not None
    if in_paragraph and (rest_is_blank or marker[1] not in (None, "1")):
        return None  # cannot interrupt a paragraph
    indent, length = line.indent, len(marker[0])
    line.advance_past_start(length)
    padding = line.indent if 1 <= line.indent <= 4 and not rest_is_blank else 1
    line.advance(padding)
    return Item(width=indent + length + padding)


def _html_block(text: str, start: int, *, may_be_any_tag: bool) -> HtmlBlock | None:
    for opening, end in _HTML_UNTIL:
        if opening.match(text, start):
            return HtmlBlock(end)
    if _BLOCK_TAG.match(text, start) or (may_be_any_tag and _ANY_TAG.match(text, start)):
        return HtmlBlock(None)
    return None
