"""A run as fragments of a page: in any pieces, and however often the reader comes back, the page ends as the answer."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.demo import recordings
from cursor_gateway.model.document_events import (
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    TerminalOutput,
)
from cursor_gateway.model.documents import Envelope
from cursor_gateway.render.html.live import Fragment
from cursor_gateway.render.html.work import render_answer
from cursor_gateway.server.html_stream import HtmlEncoder
from cursor_gateway.wire.sse import SseDecoder, SseEvent
from tests.laws.laws import assemble
from tests.laws.strategies import agent_events
from tests.render.test_html_live import EVERYTHING, Page
from tests.render.views import events_of
from tests.strategies import examples

_fragments = msgspec.json.Decoder(list[Fragment])


def applied(page: Page, frames: list[SseEvent]) -> None:
    for one in frames:
        if one.event == "fragments":
            for fragment in _fragments.decode(one.data):
                page.apply(fragment)


def final(events: list[DocumentEvent]) -> str:
    ended = [event.document for event in events if isinstance(event, DocumentEnded)]
    return render_answer(sorted(ended, key=lambda document: document.sequence))


def read(events: list[DocumentEvent], batches: list[int], breaks: list[int]) -> tuple[Page, list[SseEvent]]:
    """A reader who gets the events in batches of those sizes, and is cut off after so many of them, again and again."""
    page, last, seen = Page(), 0, list[SseEvent]()
    sizes = [*batches, len(events)]
    for cut in [*breaks, len(sizes)]:
        encoder, place, batch = HtmlEncoder(last), 0, 0
        while place < len(events) and batch < cut + 1:
            size = max(1, sizes[batch % len(sizes)])
            frames = SseDecoder().push(encoder.push_all(events[place : place + size]))
            applied(page, frames)
            seen += frames
            last = max([last, *(int(one.id) for one in frames)])
            place, batch = place + size, batch + 1
    return page, seen


def check(events: list[DocumentEvent], batches: list[int], breaks: list[int]) -> None:
    breaks = [*breaks, 10**6]  # in the end it reads all
    page, seen = read(events, batches, breaks)
    assert page.html == final(events)
    ends = [one for one in seen if one.event == "done"]
    result = [event for event in events if isinstance(event, Paused | Done)]
    envelopes = {msgspec.json.encode(msgspec.json.decode(one.data, type=Envelope)) for one in ends}
    assert envelopes == {msgspec.json.encode(event.envelope) for event in result}
    assert [int(one.id) for one in seen][-1] == len(events)


batches = st.lists(st.integers(1, 7), max_size=6)
cuts = st.lists(st.integers(0, 12), max_size=4)


@examples(150)
@given(agent_events, batches, cuts)
def test_any_run_read_in_any_pieces_ends_as_its_answer(
    events: list[object], sizes: list[int], breaks: list[int]
) -> None:
    check(assemble(events, EVERYTHING), sizes, breaks)  # type: ignore[arg-type] # the strategy's own type


def test_what_comes_at_once_is_one_frame() -> None:
    events = events_of(recordings()["hello"])
    frames = SseDecoder().push(HtmlEncoder(0).push_all(events))
    assert [one.event for one in frames] == ["fragments", "done"]
    assert [one.id for one in frames] == [str(len(events) - 1), str(len(events))]


def test_who_has_it_all_hears_nothing() -> None:
    events = events_of(recordings()["hello"])
    assert HtmlEncoder(len(events)).push_all(events) == b""


def test_a_reader_that_comes_back_sees_what_a_running_command_wrote() -> None:
    started = DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="make"))
    events: list[DocumentEvent] = [started, TerminalOutput("doc_001", "one\n"), TerminalOutput("doc_001", "two\n")]
    (first,) = SseDecoder().push(HtmlEncoder(0).push_all(events))
    assert first.data.count("Replaced") + first.data.count('"replaced"') == 1  # both pieces at once
    encoder = HtmlEncoder(2)
    frames = SseDecoder().push(encoder.push_all(events[:2]) + encoder.push_all(events[2:]))
    page = Page()
    page.articles["doc_001"] = ""
    applied(page, frames)
    assert "one\ntwo" in page.html
