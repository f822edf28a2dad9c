"""Any text is words to look for, and a match is shown with what stands around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.store.texts import query_words, searchable, snippet
from tests.strategies import assert_linear

ODD = [
    '"',
    '""',
    "'",
    "*",
    "AND",
    "OR",
    "NOT",
    "NEAR(",
    "(",
    ")",
    "^",
    ":",
    "words:",
    "-",
    "+",
    "{a b}",
    "\0",
    "\ud800",
]
queries = st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=6)), max_size=6).map(" ".join)


def test_what_has_no_letter_or_digit_is_no_word() -> None:
    assert query_words(' "?" foo:bar !! — 3 \0') == ["foo:bar", "3"]


def test_a_query_has_so_many_words_and_no_more() -> None:
    assert len(query_words("a " * 500)) == 32


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("Mend the\n login", ["login"], "Mend the login"),
        ("Mend the LOGIN", ["x", "login"], "Mend the LOGIN"),
        ("résumé first", ["resume"], "résumé first"),
        ("a" * 100 + " needle " + "b" * 200, ["needle"], f"…{'a' * 39} needle {'b' * 113}…"),
        ("a" * 100 + " FirstNeedle " + "b" * 200, ["first_needle"], f"…{'a' * 39} FirstNeedle {'b' * 108}…"),
        ("a" * 100 + " nëëdle " + "b" * 200, ["needle"], f"…{'a' * 39} nëëdle {'b' * 113}…"),
    ],
)
def test_a_snippet_is_what_stands_around_the_word(text: str, words: list[str], expected: str) -> None:
    assert snippet(text, words) == expected


@given(st.text(max_size=300), st.text(min_size=1, max_size=3))
def test_a_snippet_finds_any_word_whatever_its_case(text: str, word: str) -> None:
    """The first place where it stands is seen, if nothing but case is different."""
    text = text.replace("\u0130", "")  # the one character whose lower case is longer
    result = snippet(text + word.upper().lower(), [word.upper().lower()])
    assert " ".join(word.upper().lower().split()) in " ".join(result.lower().split())


def test_a_character_that_grows_in_lower_case_moves_nothing() -> None:
    assert snippet("\u0130" * 200 + "needle", ["NEEDLE"]) == "…" + "\u0130" * 40 + "needle"


@pytest.mark.parametrize("unit", ["a", "ab", "ä", "A"])
def test_a_word_that_nearly_stands_there_costs_linear_time(unit: str) -> None:
    assert_linear(lambda size: snippet((unit * size + "e ") * 8, [unit * size + "é"]))


def test_a_query_may_be_so_long_and_no_longer() -> None:
    assert query_words("a" * 1000) == ["a" * 1000]
    with pytest.raises(InvalidRequest, match="limited to 1,000 characters"):
        query_words("a" * 1001)


@given(st.text(), st.lists(st.text(min_size=1), min_size=1))
def test_a_snippet_is_short_and_in_one_line(text: str, words: list[str]) -> None:
    result = snippet(text, words)
    assert len(result) <= 162
    assert "\n" not in result


def test_a_run_is_indexed_up_to_a_length() -> None:
    assert len(searchable(["x" * 300_000])) == 250_000
