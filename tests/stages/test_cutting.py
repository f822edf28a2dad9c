"""The cut is where the whole text says, whatever the pieces; and a long answer is not read again and again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.stages.cutting import CutReason, Cutter
from cursor_gateway.stages.tokens import estimate_tokens
from tests.strategies import assert_linear, chunks, cut, examples, places, work


def said(cutter: Cutter, pieces: list[str]) -> str:
    return "".join([*map(cutter.push, pieces), cutter.flush()])


def plain_cut(text: str, stop: tuple[str, ...], max_tokens: int | None) -> tuple[str, CutReason | None]:
    """The same, said as simply as it can be."""
    reason: CutReason | None = None
    ends = [(at, at - len(s)) for s in stop for at in range(len(s), len(text) + 1) if text[:at].endswith(s)]
    if ends:
        text, reason = text[: min(ends)[1]], "stop"
    if max_tokens is not None and estimate_tokens(text) > max_tokens:
        fitting = [end for end in range(len(text)) if estimate_tokens(text[:end]) <= max_tokens]
        return text[: max(fitting)], "length"
    return text, reason


# --- stop sequences ---------------------------------------------------------------------------------

# text, sequences, what is said, why it ends
STOPS: dict[str, tuple[str, tuple[str, ...], str, CutReason | None]] = {
    "none is there": ("a b c", ("d",), "a b c", None),
    "in the middle": ("a END b", ("END",), "a ", "stop"),
    "at the start": ("END b", ("END",), "", "stop"),
    "at the end": ("a END", ("END",), "a ", "stop"),
    "the first of two": ("a END b END", ("END",), "a ", "stop"),
    "the one that is complete first": ("xabcd", ("abcd", "bc"), "xa", "stop"),
    "of two that end together the longer one": ("xabc", ("bc", "abc"), "x", "stop"),
    "after a beginning that was none": ("aab", ("ab",), "a", "stop"),
    "only a beginning": ("a EN", ("END",), "a EN", None),
    "a beginning of another one": ("aaax", ("aab", "aaac"), "aaax", None),
    "letters of a pattern": ("a.b*c", ("b*",), "a.", "stop"),
    "a line end": ("a\nb", ("\n",), "a", "stop"),
    "case matters": ("end END", ("END",), "end ", "stop"),
    "beyond the first plane": ("a\U0001f600\U0001f601", ("\U0001f601",), "a\U0001f600", "stop"),
}


@pytest.mark.parametrize(("text", "stop", "expected", "reason"), STOPS.values(), ids=STOPS)
def test_the_text_before_a_stop_sequence_is_sent(
    text: str, stop: tuple[str, ...], expected: str, reason: CutReason | None
) -> None:
    assert plain_cut(text, stop, None) == (expected, reason)
    for pieces in ([text], list(text), ["", *chunks(text, 2), ""]):
        cutter = Cutter(stop)
        assert said(cutter, pieces) == expected
        assert cutter.reason == reason


def test_the_sequence_that_was_found_is_known() -> None:
    for text, stop, expected in [("xabcd", ("abcd", "bc"), "bc"), ("xabc", ("bc", "abc"), "abc"), ("x", ("b",), None)]:
        cutter = Cutter(stop)
        said(cutter, list(text))
        assert cutter.stop_sequence == expected
    cutter = Cutter(("stop",), max_tokens=1)
    said(cutter, ["one two three stop"])
    assert (cutter.reason, cutter.stop_sequence) == ("length", None)


def test_what_was_held_back_is_said_once_and_what_follows_is_a_text_of_its_own() -> None:
    cutter = Cutter(("END",))
    assert [cutter.push("a EN"), cutter.flush(), cutter.flush()] == ["a ", "EN", ""]
    assert [cutter.push("D E"), cutter.flush()] == ["D ", "E"]
    assert cutter.reason is None


def test_only_what_may_be_the_beginning_of_a_sequence_is_held_back() -> None:
    cutter = Cutter(("\n\nHuman:", "</s>"))
    assert [cutter.push(piece) for piece in ["Hi", " <", "b></", "p>\n", "\n", "Hum", "ble\n", "x"]] == [
        "Hi",
        " ",
        "<b>",
        "</p>",
        "",
        "",
        "\n\nHumble",
        "\nx",
    ]


def test_after_a_cut_nothing_is_sent() -> None:
    for cutter in (Cutter(("b",)), Cutter(max_tokens=1)):
        assert cutter.push("a b") == "a "
        assert cutter.reason is not None
        assert [cutter.push("c"), cutter.push(""), cutter.flush()] == ["", "", ""]


def test_without_limits_everything_is_sent() -> None:
    cutter = Cutter()
    assert [cutter.push("a"), cutter.push("b"), cutter.flush()] == ["a", "b", ""]
    assert cutter.reason is None


# --- tokens -----------------------------------------------------------------------------------------

# text, tokens, what is said, whether it is cut
LIMITS: dict[str, tuple[str, int, str, bool]] = {
    "all of it": ("one two three", 3, "one two three", False),
    "one word less": ("one two three", 2, "one two ", True),
    "the first word": ("one two three", 1, "one ", True),
    "white space that costs nothing": ("one ", 1, "one ", False),
    "white space that costs": ("one\n\n", 1, "one", True),
    "white space that is paid for": ("one\n" + " " * 99, 2, "one\n" + " " * 99, False),
    "a part of a long word": ("internationalization", 1, "internatio", True),
    "digits by three": ("123456", 1, "123", True),
    "no spaces at all": ("世界世界世界", 4, "世界世界世", True),
    "marks": ("------", 1, "---", True),
}


@pytest.mark.parametrize(("text", "tokens", "expected", "is_cut"), LIMITS.values(), ids=LIMITS)
def test_as_much_is_said_as_the_limit_allows(text: str, tokens: int, expected: str, is_cut: bool) -> None:
    assert plain_cut(text, (), tokens) == (expected, "length" if is_cut else None)
    for pieces in ([text], list(text), chunks(text, 2)):
        cutter = Cutter(max_tokens=tokens)
        assert said(cutter, pieces) == expected
        assert cutter.reason == ("length" if is_cut else None)


def test_the_limit_counts_what_was_held_back() -> None:
    cutter = Cutter(("three.",), max_tokens=2)
    assert cutter.push("one two three") == "one two "
    assert (cutter.flush(), cutter.reason) == ("", "length")


def test_what_comes_first_is_the_reason() -> None:
    for text, tokens, reason in [("one two END", 2, "stop"), ("one two three END", 2, "length")]:
        cutter = Cutter(("END",), tokens)
        assert said(cutter, [text]) == "one two "
        assert cutter.reason == reason


# --- laws -------------------------------------------------------------------------------------------

PIECES = ["a", "b", "ab", "word", " ", "  ", "\n", "\n  ", "\t", "7", "é", "世", "-", "_", "\u3000", "\x1c"]
texts = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=24).map("".join)
sequences = st.lists(st.text("ab -", min_size=1, max_size=4), max_size=4).map(tuple)


@examples(800)
@given(texts, sequences, st.none() | st.integers(1, 12), places)
def test_the_pieces_do_not_matter(text: str, stop: tuple[str, ...], tokens: int | None, at: list[int]) -> None:
    expected = plain_cut(text, stop, tokens)
    for pieces in ([text], list(text), cut(text, at)):
        cutter = Cutter(stop, tokens)
        assert (said(cutter, pieces), cutter.reason) == expected
        if tokens is not None:
            assert estimate_tokens(expected[0]) <= tokens


@examples(300)
@given(texts, st.characters())
def test_one_more_character_costs_one_token_or_none(text: str, more: str) -> None:
    assert 0 <= estimate_tokens(text + more) - estimate_tokens(text) <= 1


@examples(300)
@given(texts.map(str.rstrip), st.sampled_from([" ", "\n", "\u3000", "\x1c"]), texts)
def test_beside_white_space_estimates_add_up(before: str, space: str, after: str) -> None:
    assert estimate_tokens(before + space + after) == estimate_tokens(before) + estimate_tokens(space + after)


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("unit", ["a", "a b ", " ", "世", "-_", "\n\n", "word\n"])
@pytest.mark.parametrize("tokens", [0.01, 0.3, 1.0])
def test_a_long_answer_is_counted_about_once(unit: str, tokens: float) -> None:
    def run(size: int) -> None:
        cutter = Cutter(max_tokens=int(size * tokens) + 1)
        for piece in chunks(unit * (size // len(unit)), 7):
            cutter.push(piece)

    assert_linear(run)


@pytest.mark.parametrize(
    ("stop", "unit"), [("a" * 400 + "b", "a"), ("ab" * 300 + "c", "ab"), ("x", "a"), ("aab", "a"), ("\n\n", "a\n")]
)
def test_a_stop_sequence_that_nearly_matches_is_searched_once(stop: str, unit: str) -> None:
    def run(size: int) -> int:
        cutter = Cutter((stop,) * 4)
        return work(lambda: [cutter.push(piece) for piece in chunks(unit * size, 3)])

    assert run(4000) < 6 * run(1000)
