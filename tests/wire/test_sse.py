"""Server-Sent Events: what is framed is read back, and a stream is read by the WHATWG's rules, one test each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.wire.sse import SseDecoder, SseEvent, frame
from tests.strategies import chunks, cut, examples, outputs, places, work

SOUP = [b"\n", b"\n\n", b"\r", b"\r\n", b":", b" ", b"data", b"data: a", b"event: e", b"id: 7", b"id", b"retry: 9"]
SOUP += ["é".encode(), b"\xef\xbb\xbf", b"\xff", b"\0", b"x"]

one_line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))
data_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))
events = st.builds(SseEvent, data=data_text, event=one_line.filter(bool), id=one_line.filter(bool))


def decoded(*pieces: bytes) -> list[SseEvent]:
    return outputs(SseDecoder(), pieces)


# --- There and back ---------------------------------------------------------------------------------


@given(st.lists(events, max_size=4), places)
@examples(1000)
def test_what_is_framed_is_read_back_in_any_chunking(sent: list[SseEvent], where: list[int]) -> None:
    stream = b"".join(frame(event.data.encode(), event=event.event, id=event.id) for event in sent)
    assert decoded(*cut(stream, where)) == sent
    assert decoded(*chunks(stream, 1)) == sent


def test_a_frame_says_only_what_it_was_given() -> None:
    assert frame(b"hi") == b"data: hi\n\n"
    assert frame(b"hi", event="done") == b"event: done\ndata: hi\n\n"
    assert frame(b"", id="4") == b"id: 4\ndata: \n\n"
    assert frame(b"a\nb\n", event="e", id="5") == b"id: 5\nevent: e\ndata: a\ndata: b\ndata: \n\n"


@pytest.mark.parametrize("broken", ["\r", "a\rb", "a\r\nb"])
def test_data_with_a_cr_is_refused_because_it_would_come_back_as_another_line_end(broken: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        frame(broken.encode())


@pytest.mark.parametrize("broken", ["\r", "\n", "a\nb", "a\r\nb"])
def test_a_line_end_in_an_event_name_or_an_id_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        frame(b"", event=broken)
    with pytest.raises(ValueError, match="line end"):
        frame(b"", id=broken)


def test_an_id_with_a_nul_is_refused_because_a_reader_ignores_it() -> None:
    with pytest.raises(ValueError, match="line end"):
        frame(b"", id="a\0b")


def test_a_comment_between_events_is_no_event() -> None:
    assert decoded(b": keep-alive\n\n", frame(b"a"), b": keep-alive\n\n") == [SseEvent("a")]


# --- The standard's rules ---------------------------------------------------------------------------


@given(st.lists(st.sampled_from(SOUP)).map(b"".join), places)
@examples(1000)
def test_the_chunking_never_matters(stream: bytes, where: list[int]) -> None:
    whole = decoded(stream)
    assert decoded(*cut(stream, where)) == whole
    assert decoded(*chunks(stream, 1)) == whole


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lf_cr_and_crlf_end_a_line(end: bytes) -> None:
    assert decoded(end.join([b"data: a", b"data: b", b"", b"data: c", b"", b""])) == [SseEvent("a\nb"), SseEvent("c")]


def test_line_ends_may_be_mixed() -> None:
    assert decoded(b"data: a\rdata: b\r\ndata: c\n\r") == [SseEvent("a\nb\nc")]


def test_a_crlf_that_two_chunks_share_is_one_line_end() -> None:
    assert decoded(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [SseEvent("a\nb")]


def test_an_lf_that_is_not_right_after_a_cr_is_a_line_end_of_its_own() -> None:
    assert decoded(b"data: a\r", b"data: b", b"\n", b"\n") == [SseEvent("a\nb")]
    assert decoded(b"\n", b"data: a\n\n") == [SseEvent("a")]


def test_an_empty_chunk_inside_a_crlf_changes_nothing() -> None:
    assert decoded(b"data: a\r", b"", b"\ndata: b\r\n\r\n") == [SseEvent("a\nb")]


def test_an_event_is_given_with_the_cr_that_ends_it() -> None:
    decoder = SseDecoder()
    assert decoder.push(b"data: a\r\n\r") == [SseEvent("a")]
    assert decoder.push(b"\n") == []


def test_a_byte_order_mark_is_skipped_at_the_start_of_the_stream_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert decoded(mark + b"data: a\n\n") == [SseEvent("a")]
    assert decoded(mark[:1], mark[1:], b"data: a\n\n") == [SseEvent("a")]
    assert decoded(mark + mark + b"data: a\n\n") == []
    assert decoded(b"data: a\n\n" + mark + b"data: b\n\n") == [SseEvent("a")]
    assert decoded(b"\n" + mark + b"data: a\n\n") == []


def test_a_line_that_begins_with_a_colon_is_a_comment() -> None:
    assert decoded(b": hello\n:\n:data: no\ndata: a\n: bye\n\n") == [SseEvent("a")]


def test_data_lines_are_joined_with_lf() -> None:
    assert decoded(b"data: a\ndata:\ndata: b\n\n") == [SseEvent("a\n\nb")]


def test_data_without_a_colon_is_an_empty_line_of_data() -> None:
    assert decoded(b"data\n\n") == [SseEvent("")]
    assert decoded(b"data\ndata\n\n") == [SseEvent("\n")]


def test_one_space_after_the_colon_is_removed_and_no_more() -> None:
    assert decoded(b"data:a\n\ndata: a\n\ndata:  a\n\ndata:\ta\n\n") == [
        SseEvent("a"),
        SseEvent("a"),
        SseEvent(" a"),
        SseEvent("\ta"),
    ]


def test_only_the_first_colon_divides_name_and_value() -> None:
    assert decoded(b'data: {"a": 1}\n\n') == [SseEvent('{"a": 1}')]


def test_unknown_fields_and_other_spellings_are_ignored() -> None:
    assert decoded(b"foo: a\nDATA: b\n data: c\ndata : d\n\n") == []


def test_an_event_name_lasts_for_one_event() -> None:
    assert decoded(b"event: done\ndata: a\n\ndata: b\n\n") == [SseEvent("a", event="done"), SseEvent("b")]


def test_an_empty_event_name_is_message() -> None:
    assert decoded(b"event: done\nevent\ndata: a\n\n") == [SseEvent("a", event="message")]


def test_an_event_without_data_is_not_given_and_its_name_is_forgotten() -> None:
    assert decoded(b"event: lost\nid: 1\n\ndata: a\n\n") == [SseEvent("a", id="1")]


def test_an_id_holds_until_the_next() -> None:
    assert decoded(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\n") == [
        SseEvent("a", id="1"),
        SseEvent("b", id="1"),
        SseEvent("c", id="2"),
    ]


@pytest.mark.parametrize("empty", [b"id", b"id:", b"id: "])
def test_an_empty_id_resets_it(empty: bytes) -> None:
    assert decoded(b"id: 1\ndata: a\n\n" + empty + b"\ndata: b\n\n") == [SseEvent("a", id="1"), SseEvent("b")]


def test_an_id_with_a_nul_is_ignored() -> None:
    assert decoded(b"id: 1\nid: 2\0\ndata: a\n\n") == [SseEvent("a", id="1")]


def test_the_last_event_id_is_where_a_reader_goes_on() -> None:
    decoder = SseDecoder()
    assert decoder.last_event_id == ""
    outputs(decoder, [b"id: 3\ndata: a\n\nid: 4\n\n"])
    assert decoder.last_event_id == "4"


def test_an_event_that_is_cut_off_does_not_move_the_last_event_id() -> None:
    decoder = SseDecoder()
    assert outputs(decoder, [b"id: 3\ndata: a\n\nid: 4\ndata: b\n"]) == [SseEvent("a", id="3")]
    assert decoder.last_event_id == "3"  # from 4 on, event 4 would never be read


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3000", 3000),
        ("0", 0),
        ("007", 7),
        ("", 5),
        ("-1", 5),
        ("1.5", 5),
        ("3 ", 5),
        ("٣", 5),
        ("9" * 15, 10**15 - 1),
        ("9" * 16, 5),
        ("9" * 5000, 5),
    ],
)
def test_retry_takes_digits_only(value: str, expected: int) -> None:
    decoder = SseDecoder()
    assert decoder.retry_ms is None
    assert outputs(decoder, [f"retry: 5\nretry: {value}\n\n".encode()]) == []
    assert decoder.retry_ms == expected


@pytest.mark.parametrize("rest", [b"data: b", b"data: b\n", b"data: b\nevent: e\n", b"data: b\r"])
def test_an_event_that_the_end_cuts_off_is_dropped(rest: bytes) -> None:
    assert decoded(b"data: a\n\n" + rest) == [SseEvent("a")]


@pytest.mark.parametrize("rest", [b"data: b", b"data: b\n", b"event: e\n"])
def test_what_was_cut_off_does_not_leak_into_the_stream_after_a_reconnect(rest: bytes) -> None:
    decoder = SseDecoder()
    assert outputs(decoder, [b"id: 1\ndata: a\n\n", rest]) == [SseEvent("a", id="1")]
    assert outputs(decoder, [b"data: c\n\n"]) == [SseEvent("c", id="1")]


def test_after_a_reconnect_a_byte_order_mark_is_at_the_start_again() -> None:
    decoder = SseDecoder()
    assert outputs(decoder, [b"data: a\n\n"]) == [SseEvent("a")]
    assert outputs(decoder, [b"\xef\xbb\xbfdata: b\n\n"]) == [SseEvent("b")]


@pytest.mark.parametrize(
    ("sent", "read"),
    [(b"\xff", "\ufffd"), (b"a\xc3", "a\ufffd"), (b"\xe2\x82b", "\ufffdb"), (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd")],
)
def test_invalid_utf_8_is_replaced(sent: bytes, read: str) -> None:
    assert decoded(b"data: " + sent + b"\n\n") == [SseEvent(read)]


def test_a_character_that_chunks_share_is_one_character() -> None:
    assert decoded(*chunks("data: é\u2028\U0001f600\n\n".encode(), 1)) == [SseEvent("é\u2028\U0001f600")]


def test_a_megabyte_event_in_small_pieces_costs_no_more_per_byte_than_a_short_one() -> None:
    def cost(length: int) -> int:
        stream = b"data: " + b"x" * length + b"\n\n"
        return work(lambda: decoded(*chunks(stream, 64)))

    assert cost(2**20) < 2.1 * cost(2**19)
