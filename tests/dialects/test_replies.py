"""What replies share; a stream that goes on after any of its events, also after a pause."""

import pytest

from cursor_gateway.dialects.base import SSE, ReplyStart, RunView
from cursor_gateway.dialects.documents.encoder import SseEncoder
from cursor_gateway.dialects.replies import EventEncoder, JsonReply, Resumed, context_tokens, numbered
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.documents import Usage
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from tests.dialects.descriptions import SAMPLE
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


def test_an_encoder_with_its_own_state_shares_nothing() -> None:
    assert Letters(0).place is None
    with pytest.raises(NotImplementedError):
        Letters(0).skip(1)


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


def test_a_replys_context_is_that_of_the_prompt_or_of_the_reply_before() -> None:
    run = RunView(RunInfo(id="chat_1", created="2026-01-01T00:00:00Z", known_tokens=7), 0, "x" * 12)
    assert context_tokens(run, ReplyStart()) == 7 + estimate_tokens_by_sample("x" * 12)
    usage = Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15)
    assert context_tokens(run, ReplyStart(3, usage)) == 15


def test_an_encoder_takes_several_events_at_once() -> None:
    encoder = SseEncoder()
    one_by_one = b"".join(map(encoder.push, SAMPLE.events))
    assert SseEncoder().push_all(SAMPLE.events) == one_by_one
    assert encoder.keep_alive() == SSE.keep_alive


def test_most_replies_have_no_headers_of_their_own() -> None:
    run = RunView(RunInfo(id="chat_1", created="2026-01-01T00:00:00Z"), 0, "")
    assert JsonReply().headers(run) == {}
