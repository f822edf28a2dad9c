"""Render document events as fragments, each of which tells a page what to add, append or replace.

Applied in order to an empty page, the fragments produce what `render_answer` returns for the finished documents. A
growing text is rendered again only from its last block on; code is appended, and highlighted when it is complete.
"""

import re
from bisect import insort
from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.model import document_events, documents
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.render.html import work
from cursor_gateway.render.html.code import code_part as plain_code_part
from cursor_gateway.render.html.code import fold
from cursor_gateway.render.html.documents import article, code_article, continues_item, first_line, prose_article
from cursor_gateway.render.html.markdown import continued
from cursor_gateway.render.html.pieces import exact, plain, prose
from cursor_gateway.render.visible import visible
from cursor_gateway.stages.run_state import RunState

# --- Markdown that is still growing: the finished blocks once, the open rest again and again ---------


_LONG = 8_000  # characters of one block


class GrowingMarkdown:
    """The open rest is rendered again when it has grown by an eighth, or by half if it is long, so a text costs time
    by its length even if all of it is one block.

    `is_whole` says whether the HTML so far, with that of the rest, is the HTML of the whole. It is not when link
    reference definitions reach over blocks, nor after something took too long to render: from then on the open text
    is shown as it is written.
    """

    def __init__(self, do: work.Do) -> None:
        self._do = do
        self._pieces: list[str] = []
        self._size = 0
        self._due = 1
        self._is_plain = False
        self.is_whole = True

    def push(self, text: str) -> work.Rendered | None:
        """The finished blocks and the open rest. None: it is not worth rendering yet."""
        self._pieces.append(text)
        self._size += len(text)
        if self._size < self._due or self._is_plain:
            return None
        written = "".join(self._pieces)
        done = self._do(work.OpenText(written))
        if done is None:
            self._is_plain, self.is_whole = True, False
            return work.Rendered(["", plain(written)], continues=True)
        self._pieces, self._size = [done.rest], len(done.rest)
        self._due = self._size + max(self._size // (8 if self._size < _LONG else 2), 16)
        self.is_whole = self.is_whole and not done.has_references
        return done

    def finish(self) -> str:
        """The HTML of what was open."""
        done = self._do(work.Blocks(visible("".join(self._pieces)))) if self.is_whole else None
        self.is_whole = self.is_whole and done is not None and not done.has_references
        return done.html[0] if done is not None else ""


# --- fragments ---------------------------------------------------------------------------------------


class Added(Struct, frozen=True, tag_field="fragment", tag="added"):
    """An article, after all others."""

    id: str
    html: str


class Appended(Struct, frozen=True, tag_field="fragment", tag="appended"):
    """What comes last in the element of the article `id` whose `data-part` is `part`."""

    id: str
    part: str
    html: str


class Replaced(Struct, frozen=True, tag_field="fragment", tag="replaced"):
    """What takes the place of that element, tags and all; of the article itself, if `part` is empty."""

    id: str
    part: str
    html: str


Fragment: TypeAlias = Added | Appended | Replaced

_Prose: TypeAlias = documents.TextDocument | documents.ThinkingDocument
_Code: TypeAlias = documents.CodeBlockDocument | documents.CodeReferenceDocument


class LiveRenderer:
    """Push a run's events in order; each push returns the fragments that show the event.

    What `do` finds too slow is shown as plain text: the end of its document replaces all of it, so that a document
    looks the same whether it was read live or not.
    """

    def __init__(self, do: work.Do = work.perform) -> None:
        self._do = do
        self._open: dict[str, _Growing] = {}
        self._places: dict[str, int] = {}  # in the order of starts
        self._todos = _LiveTodos(do)

    def push(self, event: document_events.DocumentEvent, /) -> list[Fragment]:
        match event:
            case document_events.DocumentStarted(id=id):
                growing = self._open[id] = _growing(event, self._do)
                self._places[id] = len(self._places)
                return [Added(id, growing.html)]
            case document_events.ContentDelta(id=id, text=text):
                return list(self._open[id].grow(text)) if id in self._open else []
            case document_events.TerminalOutput(id=id, text=text):
                return list(self._open[id].show(text)) if id in self._open else []
            case document_events.ToolCallStarted(id=id) | document_events.ToolCallArguments(id=id):
                return list(self._open[id].learn(event)) if id in self._open else []
            case document_events.DocumentEnded(document=document):
                return list(self._end(document))
            case (
                document_events.ToolCallEnded()
                | document_events.Reasoning()
                | document_events.Paused()
                | document_events.Done()
            ):
                return []  # an end repeats a result; the rest is not about a document

    def _end(self, document: documents.Document) -> Iterator[Fragment]:
        place = self._places.setdefault(document.id, len(self._places))
        growing = self._open.pop(document.id, None)
        if isinstance(document, work.TodoDocument):
            lists = self._todos.push(place, document)
            html = work.render_article(document, lists.pop(document.id), self._do)
            yield Added(document.id, html) if growing is None else Replaced(document.id, "", html)
            yield from (Replaced(id, "todos", list) for id, list in lists.items())
        elif growing is None:
            yield Added(document.id, work.render_document(document, self._do))
        else:
            yield from growing.end(document)


# --- what is open -----------------------------------------------------------------------------------


class _Growing:
    """A document that is complete only at its end: until then, shows what is known about it."""

    def __init__(self, started: document_events.DocumentStarted, do: work.Do) -> None:
        self._id, self._do = started.id, do
        self._events: list[document_events.DocumentEvent] = [started]
        self._waits = started.metadata is not None and started.metadata.state == "waiting"
        self.html = self._begin()

    def _begin(self) -> str:
        return work.render_document(self._so_far(), self._do)

    def _so_far(self) -> documents.Document:
        (document,) = RunState().push_all(self._events).response([], _ANY_RUN, "").documents
        return document

    def learn(self, event: document_events.ToolCallStarted | document_events.ToolCallArguments) -> Iterator[Fragment]:
        self._events.append(event)
        yield Replaced(self._id, "", work.render_document(self._so_far(), self._do))

    def grow(self, text: str) -> Iterator[Fragment]:
        """What somebody is to decide on is shown at once; otherwise the end follows."""
        if self._waits:
            self._events.append(document_events.ContentDelta(self._id, text))
            yield Replaced(self._id, "", work.render_document(self._so_far(), self._do))

    def show(self, output: str) -> Iterator[Fragment]:
        yield from ()

    def end(self, document: documents.Document) -> Iterator[Fragment]:
        yield Replaced(self._id, "", work.render_document(document, self._do))


class _GrowingCommand(_Growing):
    """Shows the last lines that the command has written. All of it may be long, and is sent once, at the end."""

    def _begin(self) -> str:
        self._output = ""
        return super()._begin()

    def show(self, output: str) -> Iterator[Fragment]:
        self._output += output
        if len(self._output) > _LAST_OUTPUT:
            cut = self._output[-_LAST_OUTPUT:]
            self._output = cut.partition("\n")[2] or cut
        self._events[1:] = [document_events.TerminalOutput(self._id, self._output)]
        yield Replaced(self._id, "", work.render_document(self._so_far(), self._do))


_LAST_OUTPUT = 4000  # characters of a running command's output that are shown
_ANY_RUN = RunInfo(id="", created="")


class _GrowingProse(_Growing):
    """The last block has a part of its own. Between two renderings of it, new text is appended unformatted."""

    def _begin(self) -> str:
        self._pieces: list[str] = []
        self._markdown = GrowingMarkdown(self._do)
        document = self._so_far()
        assert isinstance(document, _Prose)
        self._document = document
        return self._framed(_open_part("", False, ""))

    def _framed(self, html: str) -> str:
        self._frame = prose_article(self._document, "")
        return prose_article(self._document, html)

    def grow(self, text: str) -> Iterator[Fragment]:
        self._pieces.append(text)
        if len(self._pieces) == 1:
            self._document = msgspec.structs.replace(self._document, content=text)
            if continues_item(self._document):
                yield Replaced(self._id, "", self._framed(_open_part("", False, "")))
                text = continued(text)
        growth = self._markdown.push(text)
        if growth is not None:
            finished, open = growth.html
            yield Replaced(self._id, "open", finished + _open_part(open, growth.continues, _spaces_after(growth.rest)))
        elif text:
            yield Appended(self._id, "tail", prose(text))

    def end(self, document: documents.Document) -> Iterator[Fragment]:
        rest = self._markdown.finish()
        if (
            isinstance(document, _Prose)
            and document.metadata.format == "markdown"
            and self._markdown.is_whole
            and prose_article(document, "") == self._frame
            and "".join(self._pieces) == document.content
        ):
            yield Replaced(self._id, "open", rest)
        else:
            yield from super().end(document)


_CLOSING = re.compile(
    r"(?:</(?:p|li|[uo]l|blockquote|h[3-6]|t[dhr]|tbody|thead|table|div|figure)>\s*|</code></pre>)+\Z"
)
_ALL_THAT_CLOSES = 400  # characters: nothing is nested so deeply that its closing tags take more


def _open_part(html: str, continues: bool, spaces: str) -> str:
    """Text that is appended to the last line is inside whatever element that line is in, after its last spaces, which
    only code keeps."""
    closing = _CLOSING.search(html, max(len(html) - _ALL_THAT_CLOSES, 0)) if continues else None
    end = closing.start() if closing else len(html)
    is_prose = closing is not None and "</pre>" not in closing[0]
    tail = f'<span data-part="tail">{spaces if is_prose else ""}</span>'
    return f'<div data-part="open">{html[:end]}{tail}{html[end:]}</div>'


def _spaces_after(text: str) -> str:
    return text[len(text.rstrip(" ")) :]


_FOLD_PLACE = '<div data-part="fold"></div>'  # for what folds long code, when it is known to be long


class _GrowingCode(_Growing):
    def _begin(self) -> str:
        self._pieces: list[str] = []
        self._held: list[str] = []  # may be the beginning of a control sequence, which is not shown
        self._holds_back = False
        document = self._so_far()
        assert isinstance(document, _Code)
        self._next_line = first_line(document)
        self._separator = ""  # between two numbers
        self._starts_a_line = True
        self._frame = code_article(document, "", "")
        return code_article(document, "", plain_code_part("")).replace("</figure>", f"{_FOLD_PLACE}</figure>")

    def grow(self, text: str) -> Iterator[Fragment]:
        self._pieces.append(text)
        self._held.append(text)
        if self._holds_back and "\n" not in text:  # a long line must not be searched again for every piece
            return
        held = "".join(self._held)
        escape = held.find("\x1b", held.rfind("\n") + 1)
        self._holds_back = escape >= 0
        end = escape if self._holds_back else len(held) - held.endswith("\r")
        self._held = [held[end:]]
        yield from self._show(held[:end])

    def _show(self, text: str) -> Iterator[Fragment]:
        text = visible(text)
        if not text:
            return
        begun = self._starts_a_line + text.count("\n") - text.endswith("\n")
        self._starts_a_line = text.endswith("\n")
        if begun:
            numbers = "\n".join(map(str, range(self._next_line, self._next_line + begun)))
            yield Appended(self._id, "numbers", self._separator + numbers)
            self._next_line += begun
            self._separator = "\n"
        yield Appended(self._id, "code", exact(text))

    def end(self, document: documents.Document) -> Iterator[Fragment]:
        if (
            isinstance(document, _Code)
            and code_article(document, "", "") == self._frame
            and "".join(self._pieces) == document.content
        ):
            yield from self._show("".join(self._held))
            done = self._do(work.CodePart(document))
            if done is None:
                yield Replaced(self._id, "", article(document, "", as_plain=True))
            else:
                yield Replaced(self._id, "fold", fold(self._next_line - first_line(document)))
                if done.html[0] != plain_code_part(exact(document.content)):
                    yield Replaced(self._id, "code", done.html[0])
        else:
            yield from super().end(document)


def _growing(started: document_events.DocumentStarted, do: work.Do) -> _Growing:
    match started.type:
        case "text" | "thinking":
            return _GrowingProse(started, do)
        case "code_block" | "code_reference":
            return _GrowingCode(started, do)
        case "terminal_command":
            return _GrowingCommand(started, do)
        case _:
            return _Growing(started, do)


class _LiveTodos:
    """Takes plans and changes in the order in which they end, and returns the lists that have changed.

    Tools run side by side, so an earlier document may end later: then all is folded again.
    """

    def __init__(self, do: work.Do) -> None:
        self._do = do
        self._documents: list[tuple[int, work.TodoDocument]] = []
        self._lists = work.TodoLists(do)
        self._shown: dict[str, str] = {}

    def push(self, place: int, document: work.TodoDocument) -> dict[str, str]:
        """By the document's id; the document's own list is among them."""
        comes_last = not self._documents or place > self._documents[-1][0]
        insort(self._documents, (place, document), key=lambda placed: placed[0])
        if comes_last:
            found = {document.id: self._lists.push(document)}
        else:
            self._lists = work.TodoLists(self._do)
            found = self._lists.push_all(document for _, document in self._documents)
        found |= self._lists.plan()
        changed = {id: html for id, html in found.items() if html != self._shown.get(id)}
        self._shown |= changed
        return {document.id: found[document.id], **changed}
