"""A stream that goes on after any of its events, also after a pause."""

from cursor_gateway.dialects.replies import EventEncoder, Resumed, numbered
from cursor_gateway.model.document_events import DocumentEvent, Done
from tests.dialects.runs import done, paused, words


class Letters(EventEncoder):
    """One letter an event, and where its reply begins."""

    is_cut = False

    def __init__(self, after: int) -> None:
        self.is_over, self._after = False, after

    def push(self, event: DocumentEvent, /) -> bytes:
        self.is_over = isinstance(event, Done)
        return b"%d%b " % (self._after, type(event).__name__[:1].encode())

    def keep_alive(self) -> bytes:
        return b"alive"


EVENTS = [*words("a"), paused("call_1"), *words("b"), done()]
ALL = [b"0D ", b"0C ", b"0D ", b"0P ", b"4D ", b"4C ", b"4D ", b"4D "]


def test_what_the_reader_had_is_left_out_and_the_reply_after_a_pause_is_another() -> None:
    for after in range(4, len(EVENTS)):
        resumed = Resumed(Letters, after, has_numbers=True)
        assert resumed.push_all(EVENTS) == b"".join(ALL[after:])
        assert (resumed.is_over, resumed.is_cut, resumed.is_slow) == (True, False, False)


def test_each_event_has_its_number_as_its_id() -> None:
    assert Resumed(Letters, 5).push_all(EVENTS) == b"id: 6\n4C id: 7\n4D id: 8\n4D "


def test_a_reader_who_has_not_had_the_pause_reads_the_first_reply() -> None:
    resumed = Resumed(Letters, 1, has_numbers=True)
    assert resumed.push_all(EVENTS[:4]) == b"".join(ALL[1:4])
    assert not resumed.is_over
    assert resumed.keep_alive() == b"alive"


def test_the_last_frame_of_an_event_has_its_number() -> None:
    assert numbered(b"", 4) == b""
    assert numbered(b"data: a\n\n", 4) == b"id: 4\ndata: a\n\n"
    assert numbered(b"data: a\n\ndata: b\n\n", 4) == b"data: a\n\nid: 4\ndata: b\n\n"
