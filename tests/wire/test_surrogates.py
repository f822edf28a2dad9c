"""Halves of characters are joined or replaced, and nothing else is changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.wire.surrogates import PairJoiner, repair, repair_json

HIGH, LOW, WHOLE = "\ud83d", "\ude00", "\U0001f600"
any_text = st.lists(st.sampled_from([HIGH, LOW, WHOLE, "a", "é", "\ufeff", "\0"]), max_size=8).map("".join)


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("", ""),
        (f"a\0{WHOLE}é", f"a\0{WHOLE}é"),
        (f"a{HIGH}{LOW}b", f"a{WHOLE}b"),
        (f"a{HIGH}b", "a\ufffdb"),
        (f"{LOW}b", "\ufffdb"),
        (f"{LOW}{HIGH}", "\ufffd\ufffd"),
        (f"{HIGH}{HIGH}{LOW}", f"\ufffd{WHOLE}"),
        (f"\ufeff{HIGH}", "\ufeff\ufffd"),
    ],
)
def test_pairs_become_their_character_and_lone_halves_are_replaced(text: str, repaired: str) -> None:
    assert repair(text) == repaired


def test_every_string_in_a_value_is_repaired() -> None:
    assert repair_json({f"k{HIGH}": [f"{HIGH}{LOW}", 1, None, {"a": LOW}]}) == {
        "k\ufffd": [WHOLE, 1, None, {"a": "\ufffd"}]
    }


@given(st.text())
def test_text_without_halves_stays_as_it_is(text: str) -> None:
    assert repair(text) == text


@given(any_text, st.data())
def test_however_a_text_is_cut_its_pieces_join_to_the_same(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    joiner = PairJoiner()
    first, second = joiner.push(text[:cut]), joiner.push(text[cut:])
    assert first + second + joiner.flush() == repair(text)
    assert joiner.flush() == ""
    (first + second).encode()


def test_half_a_character_waits_for_the_rest() -> None:
    joiner = PairJoiner()
    assert (joiner.push(f"a{HIGH}"), joiner.half) == ("a", HIGH)
    assert (joiner.push(f"{LOW}b{HIGH}"), joiner.half) == (f"{WHOLE}b", HIGH)
    assert (joiner.push("b"), joiner.half) == ("\ufffdb", "")
