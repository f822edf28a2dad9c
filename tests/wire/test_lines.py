"""The laws of lines: however the bytes arrive, the lines are those between the LFs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.wire.lines import LineSplitter
from tests.strategies import chunks, cut, examples, outputs, places, work

NASTY = [
    b"",
    b"\n",
    b"\n\n",
    b"no line feed at the end",
    b"one\ntwo\n",
    b"one\r\ntwo\r\n",
    b"\none\n\n\ntwo",
    "é \u2028 \u2029 \x85 \x0b \x0c \U0001f600\r\n\n{}\n".encode(),
    b"\xff\xfe\n\xc3\n",
]


@pytest.mark.parametrize("data", NASTY)
def test_one_byte_at_a_time_is_the_whole(data: bytes) -> None:
    assert outputs(LineSplitter(), chunks(data, 1)) == outputs(LineSplitter(), [data])


@pytest.mark.parametrize("data", NASTY)
def test_every_place_to_cut_in_two_gives_the_whole(data: bytes) -> None:
    whole = outputs(LineSplitter(), [data])
    for place in range(len(data) + 1):
        assert outputs(LineSplitter(), [data[:place], data[place:]]) == whole


@given(st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xc3", b"\xa9", b"\xe2\x80\xa8"])).map(b"".join), places)
@examples(500)
def test_any_chunking_gives_the_lines_between_the_lfs(data: bytes, where: list[int]) -> None:
    lines = data.split(b"\n")
    expected = lines if lines[-1] else lines[:-1]
    assert outputs(LineSplitter(), cut(data, where)) == expected


def test_a_line_is_given_as_soon_as_its_lf_has_come() -> None:
    splitter = LineSplitter()
    assert splitter.push(b"one\ntw") == [b"one"]
    assert splitter.push(b"o") == []
    assert splitter.push(b"\nthree") == [b"two"]
    assert splitter.push(b"\n") == [b"three"]
    assert splitter.flush() == []


def test_only_lf_ends_a_line() -> None:
    line = '{"text":"\u2028\u2029\x85\x0b\x0c\x1c"}'.encode()
    assert outputs(LineSplitter(), [line + b"\n"]) == [line]


@pytest.mark.parametrize("data", NASTY)
def test_the_ends_can_be_kept(data: bytes) -> None:
    for pieces in ([data], chunks(data, 1)):
        splitter = LineSplitter(keeps_ends=True)
        lines = [line for piece in pieces for line in splitter.push(piece)]
        assert lines == [line + b"\n" for line in data.split(b"\n")[:-1]]
        assert b"".join([*lines, *splitter.flush()]).removesuffix(b"\n") == data.removesuffix(b"\n")


def test_the_cr_of_a_crlf_is_the_reader_of_the_line_to_strip() -> None:
    assert outputs(LineSplitter(), [b"{}\r\n"]) == [b"{}\r"]


def test_blank_lines_are_lines() -> None:
    assert LineSplitter().push(b"\n\na\n") == [b"", b"", b"a"]


def test_the_last_line_may_lack_its_lf() -> None:
    splitter = LineSplitter()
    assert splitter.push(b'{"type":"result"}') == []
    assert splitter.flush() == [b'{"type":"result"}']
    assert splitter.flush() == []


def test_empty_chunks_are_nothing() -> None:
    assert outputs(LineSplitter(), [b"", b"a", b"", b"b\n", b"", b""]) == [b"ab"]


def test_after_a_flush_the_next_line_starts_over() -> None:
    splitter = LineSplitter()
    assert [*splitter.push(b"cut o"), *splitter.flush(), *splitter.push(b"ff\n")] == [b"cut o", b"ff"]


@given(st.lists(st.sampled_from([b"\n", b"a", b"", b"b\nc", b"\n\n"])))
def test_the_rest_is_the_start_of_a_line_that_is_not_whole(pushed: list[bytes]) -> None:
    splitter = LineSplitter()
    for number, chunk in enumerate(pushed, 1):
        splitter.push(chunk)
        assert b"".join(splitter.rest) == b"".join(pushed[:number]).rpartition(b"\n")[2]
    splitter.flush()
    assert not splitter.rest


def test_a_megabyte_line_in_small_pieces_costs_no_more_per_byte_than_a_short_one() -> None:
    def cost(length: int) -> int:
        data = b"x" * length + b"\n"
        return work(lambda: outputs(LineSplitter(), chunks(data, 64)))

    assert cost(2**20) < 2.1 * cost(2**19)
