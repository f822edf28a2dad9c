"""Encode a run as HTML fragments in numbered Server-Sent Events, for the page."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.dialects.replies import EventEncoder
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    Done,
    Paused,
    TerminalOutput,
)
from cursor_gateway.model.documents import Envelope
from cursor_gateway.render.html.live import Added, Appended, Fragment, LiveRenderer, Replaced
from cursor_gateway.render.html.work import Do, perform
from cursor_gateway.stages.usage import ContextUse, context_use
from cursor_gateway.wire.sse import frame


class HtmlEncoder(EventEncoder):
    """All events are pushed, even those that the reader has, because how a text continues depends on its beginning.

    The HTML of an open document depends on the pieces in which it arrived. So a reader that reconnects gets its open
    documents again in full, and the same fragments as others from then on.
    """

    is_over = False  # it sends everything that the run has
    is_cut = False
    is_slow = True

    def __init__(self, after: int, do: Do = perform) -> None:
        self._after, self._number = after, 0
        self._renderer = LiveRenderer(do)
        self._open: dict[str, _Open] = {}  # those that the reader has seen begin, until it is up to date

    def push(self, event: DocumentEvent, /) -> bytes:
        return self.push_all([event])

    def push_all(self, events: Sequence[DocumentEvent], /) -> bytes:
        """One frame for all events that arrived together, and one for each pause and for the end."""
        known = min(max(0, self._after - self._number), len(events))
        for event in events[:known]:
            self._skip(event)
        number = self._number = self._number + known
        frames: list[bytes] = []
        if number >= self._after and self._open:
            frames.append(_frame("fragments", self._open_again(), number))
        rest = events[known:]
        self._number += len(rest)
        while rest:
            end = next((place for place, event in enumerate(rest) if isinstance(event, Paused | Done)), len(rest))
            fragments = [fragment for event in _joined(rest[:end]) for fragment in self._renderer.push(event)]
            if fragments:
                frames.append(_frame("fragments", list(_condensed(fragments)), number + end))
            if end < len(rest) and isinstance(last := rest[end], Paused | Done):
                frames.append(_frame("done", _end(last), number + end + 1))
            number, rest = number + end + 1, rest[end + 1 :]
        return b"".join(frames)

    def _skip(self, event: DocumentEvent) -> None:
        match event:
            case ContentDelta(id=id, text=text) if id in self._open:
                self._open[id].text.append(text)
            case TerminalOutput(id=id, text=text) if id in self._open:
                self._open[id].output.append(text)
            case DocumentEnded(document=document):
                open = self._open.pop(document.id, None)
                if open is not None and open.text:
                    self._renderer.push(ContentDelta(document.id, "".join(open.text)))
                self._renderer.push(event)
            case _:
                for fragment in self._renderer.push(event):
                    self._open.setdefault(fragment.id, _Open()).shown.append(fragment)

    def _open_again(self) -> list[Fragment]:
        fragments: list[Fragment] = []
        for id, open in self._open.items():
            shown = [Replaced(id, "", one.html) if isinstance(one, Added) else one for one in open.shown]
            grown = self._renderer.push(ContentDelta(id, "".join(open.text))) if open.text else []
            if open.output:
                grown += self._renderer.push(TerminalOutput(id, "".join(open.output)))
            fragments += [*shown, *grown]
        self._open = {}
        return fragments


class _Open(Struct):
    shown: list[Fragment] = []
    text: list[str] = []
    output: list[str] = []


class _End(Envelope, frozen=True, kw_only=True):
    """An envelope, with what only the page shows."""

    context: ContextUse | UnsetType = UNSET


def _end(last: Paused | Done) -> Envelope:
    context = context_use(last) if isinstance(last, Done) else None
    return last.envelope if context is None else _End(**msgspec.structs.asdict(last.envelope), context=context)


def _frame(name: str, value: object, number: int) -> bytes:
    return frame(msgspec.json.encode(value), event=name, id=str(number))


def _joined(events: Iterable[DocumentEvent]) -> Iterator[DocumentEvent]:
    """Pieces of a text, or of a command's output, that arrived together are rendered together."""
    for place, group in groupby(events, _place):
        if place is None:
            yield from group
        else:
            kind, id = place
            yield kind(id, "".join(event.text for event in group if isinstance(event, kind)))


def _place(event: DocumentEvent) -> tuple[type[ContentDelta | TerminalOutput], str] | None:
    return (type(event), event.id) if isinstance(event, ContentDelta | TerminalOutput) else None


def _condensed(fragments: Iterable[Fragment]) -> Iterator[Fragment]:
    """What is appended to the same place is one fragment."""
    for place, group in groupby(fragments, lambda one: (one.id, one.part) if isinstance(one, Appended) else None):
        if place is None:
            yield from group
        else:
            yield Appended(*place, "".join(fragment.html for fragment in group))
