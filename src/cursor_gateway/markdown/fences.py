"""Split streamed Markdown into prose and fenced code, without delay and without loss.

The current line is in one of three states:

    undecided   it may still become an opening or closing fence; the text of the line is held back
    decided     it is not a fence: text is passed on as it arrives, but how the line ends still matters to the
                block parser (it may become a heading's underline, or end an HTML block), so the line is also kept
    settled     nothing that follows in the line matters: text is passed on and not kept

So at most one line is held back, and only while it may still be a fence. In code, the last line end is held back as
well, because it belongs to the closing fence if one follows. A fence is closed by its closing line, by the end of
its container, or by the end of the text. Joined in order, the raw texts of all pieces are the input.
"""

import re
from typing import TypeAlias

from msgspec import Struct

from cursor_gateway.markdown.blocks import BlockParser, Closed, Content, Opened
from cursor_gateway.markdown.blocks import Prose as ProseLine
from cursor_gateway.model.requests import Fences

_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r)")
_OPENING = frozenset(" \t>`~-+*0123456789")  # characters that a line with an opening fence may start with
# The beginnings of lines with an opening fence, and of those with the closing one: the markers of the containers, then
# part of another marker, part of a fence, or a fence and what may follow it.
_OPENING_LINE = re.compile(
    r"(?:[ \t>]|(?:[-+*]|[0-9]{1,9}[.)])[ \t])*+"
    r"(?:(?P<partial>[-+*]|[0-9]{1,9}[.)]?|`{1,2}|~{1,2})|(?P<fence>`{3,}+[^`]*|~{3,}.*))?"
)
_CLOSING_LINES = {char: re.compile(rf"[ \t>]*+(?P<partial>)(?P<fence>{char}+[ \t]*)?") for char in "`~"}
_REFERENCE = re.compile(r"(\d{1,9}):(\d{1,9}):(.+)", re.DOTALL | re.ASCII)


class CodeTag(Struct, frozen=True):
    """A fence with a language."""

    language: str


class ReferenceTag(Struct, frozen=True):
    """Cursor's `start:end:path`."""

    start_line: int
    end_line: int
    path: str


Tag: TypeAlias = CodeTag | ReferenceTag


class Prose(Struct, frozen=True, gc=False):
    text: str


class FenceOpened(Struct, frozen=True):
    tag: Tag
    indent: int
    raw: str


class Code(Struct, frozen=True, gc=False):
    text: str
    raw: str


class FenceClosed(Struct, frozen=True, gc=False):
    raw: str


Piece: TypeAlias = Prose | FenceOpened | Code | FenceClosed


def read_info(info: str) -> Tag | None:
    """Parses a fence's info string; None if it names no language."""
    if reference := _REFERENCE.fullmatch(info):
        path = reference[3].strip()
        if path:
            return ReferenceTag(int(reference[1]), int(reference[2]), path)
    words = info.split(maxsplit=1)
    return CodeTag(words[0]) if words else None


class FenceSplitter:
    def __init__(self, fences: Fences = "split") -> None:
        self._fences = fences
        self._reset()

    def _reset(self) -> None:
        self._has_begun = False  # something was pushed
        self._blocks = BlockParser()
        self.in_code = False  # inside a fence that is split from the prose
        self._line: list[str] = []  # the current line so far
        self._decided = False  # the current line is not a fence: it is passed on as it arrives
        self._settled = False  # and the rest of it does not matter to the block parser
        self.flowing = False  # text without a line end need not be pushed: it continues the open prose or code
        self._scan: _Scan | None = None  # of an undecided line
        self._line_end = ""  # of the last line of code: held until another line of code follows
        self._held_return = False  # a CR that may be half of a CRLF
        self._out: list[Piece] = []
        self._texts: list[str] = []  # consecutive prose or code that is not a piece yet
        self._raws: list[str] = []  # the same as received; for code only

    def begin(self, text: str) -> str | None:
        """Fast path for text without a line end that starts a line of prose or code. Returns the text to pass on, in
        code with the line end before it; None if it may be a fence or is otherwise complicated, and must be pushed."""
        if self._line or self._decided or self._held_return or text[0] in _OPENING:
            return None
        fence = self._blocks.fence
        if fence is None:
            self._has_begun = True
            if not self._blocks.settles(text):
                return None
        elif not self.in_code or text[0] == fence.char or self._blocks.content_of(text) != text:
            return None
        self._decided = self._settled = self.flowing = True
        text, self._line_end = self._line_end + text, ""
        return text

    def push(self, text: str, /) -> list[Piece]:
        self._has_begun = True
        if self._held_return or "\r" in text:
            self._push_returns(text)
        elif "\n" in text:
            self._push_lines(text)
        else:
            self._grow_line(text)
        self.flowing = self._settled and not self._held_return
        return self._take()

    def _push_returns(self, text: str) -> None:
        """Text with line ends of any kind. A CR at its end is held back: it may be half of a CRLF."""
        if self._held_return:
            text = "\r" + text
        self._held_return = text.endswith("\r")
        if self._held_return:
            text = text[:-1]
        end = 0
        for match in _LINE.finditer(text):
            self._end_line(match[1], match[2])
            end = match.end()
        self._grow_line(text[end:])

    def _push_lines(self, text: str) -> None:
        """Text with line ends, all of them LF."""
        start, end = 0, text.rfind("\n") + 1
        if self._line or self._decided:
            start = text.find("\n") + 1
            self._end_line(text[: start - 1], "\n")
        while start < end:
            stop = self._blocks.skip(text, start, end)
            if stop == start:
                stop = text.index("\n", start) + 1
                self._end_line(text[start : stop - 1], "\n")
            elif self.in_code:
                self._emit_code(text[start : stop - 1], text[start : stop - 1])
                self._line_end = "\n"
            else:
                self._emit(text[start:stop])
            start = stop
        if end < len(text):
            self._grow_line(text[end:])

    def flush(self) -> list[Piece]:
        """The end of the text, which also closes an open fence. The next push starts from scratch."""
        if not self._has_begun:
            return []
        if self._held_return:
            self._end_line("", "\r")
        if self._line or self._settled:
            self._end_line("", "")
        if self.in_code:
            self._close(self._line_end)
        pieces = self._take()
        self._reset()
        return pieces

    def _grow_line(self, text: str) -> None:
        if not text:
            return
        if not self._settled:
            self._line.append(text)
        if self._decided:
            self._emit(text)
            return
        if self._scan is None:
            fence = self._blocks.fence
            if fence is None and text[0] not in _OPENING:
                self._decide(text)
                return
            self._scan = _Scan(_CLOSING_LINES[fence.char] if fence else _OPENING_LINE)
        if not self._scan.may_continue(text):
            self._decide("".join(self._line))

    def _decide(self, start: str) -> None:
        """The line is not a fence: pass on what there is of it."""
        content = self._blocks.content_of(start)
        if content is not None:
            self._settled = True
        else:
            if self._blocks.fence is not None:  # outside its container, so the fence has ended
                self._leave_fence()
                self._scan = _Scan(_OPENING_LINE)
                if self._scan.may_continue(start):
                    return
            self._settled = self._blocks.settles(start)
        self._decided = True
        if self._settled:
            self._line = []
        if content is not None and self.in_code:
            self._emit_code(content, start)
        else:
            self._emit(start)

    def _end_line(self, tail: str, line_end: str) -> None:
        if self._settled:
            self._decided = self._settled = False
            self._scan = None
            if self.in_code:
                self._emit(tail)
                self._line_end = line_end
            else:
                self._emit(tail + line_end)
            return
        line = tail
        if self._line:
            self._line.append(tail)
            line = "".join(self._line)
            self._line = []
        pending = tail if self._decided else line
        kind = self._blocks.line(line)
        match kind:
            case ProseLine():
                if self.in_code:
                    self._leave_fence()
                self._emit(pending + line_end)
            case Content(text=text):
                if not self.in_code:
                    self._emit(pending + line_end)
                else:  # undecided: a decided line of code is always settled
                    self._emit_code(text, line)
                    self._line_end = line_end
            case Opened():
                self._leave_fence()
                self._open(kind, line + line_end)
            case Closed():
                if self.in_code:
                    self._close(self._line_end + line)
                    self._emit(line_end)
                else:
                    self._emit(line + line_end)
        self._decided = False
        self._scan = None

    def _open(self, opened: Opened, raw: str) -> None:
        tag = None if opened.quoted else read_info(opened.info)
        if tag is None or (self._fences == "inline" and isinstance(tag, CodeTag)):
            self._emit(raw)
            return
        self._end_run()
        self._out.append(FenceOpened(tag, opened.column, raw))
        self.in_code = True
        self._line_end = ""

    def _close(self, raw: str) -> None:
        self._end_run()
        self._out.append(FenceClosed(raw))
        self.in_code = False
        self._line_end = ""

    def _leave_fence(self) -> None:
        """The fence ended with its container; the line end before this line is prose again."""
        if self.in_code:
            line_end = self._line_end
            self._close("")
            self._emit(line_end)

    def _emit_code(self, text: str, raw: str) -> None:
        self._texts.append(self._line_end + text)
        self._raws.append(self._line_end + raw)
        self._line_end = ""

    def _emit(self, text: str) -> None:
        if text:
            self._texts.append(text)
            if self.in_code:
                self._raws.append(text)

    def _end_run(self) -> None:
        """Turns consecutive texts into one piece."""
        if self._texts:
            text = "".join(self._texts)
            self._texts = []
            if not self.in_code:
                self._out.append(Prose(text))
                return
            raw = "".join(self._raws)
            self._raws = []
            if raw:
                self._out.append(Code(text, raw))

    def _take(self) -> list[Piece]:
        if self._texts:
            self._end_run()
        pieces, self._out = self._out, []
        return pieces


class _Scan:
    """Whether a line, read so far, may still become a fence.

    A growing line takes linear time: of what was read, only a few characters are kept, which decide like all of it.
    """

    def __init__(self, beginning: re.Pattern[str]) -> None:
        self._beginning = beginning
        self._kept = ""

    def may_continue(self, text: str) -> bool:
        found = self._beginning.fullmatch(self._kept + text)
        if found is None:
            return False
        if fence := found["fence"]:  # the marks that count, and whether anything follows them
            self._kept = fence[:3] + fence.lstrip(fence[0])[:1]
        else:
            self._kept = found["partial"] or ""
        return True
