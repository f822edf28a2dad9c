"""The fuzzer itself: a broken law is noticed, told once and made small; changed inputs stay nearly what they were."""

import random
import re
from collections.abc import Iterator

import pytest

from fuzz.cases import Breach, breach_of, reduced
from fuzz.mutations import Mutator
from fuzz.target import Shape, Target

pytestmark = pytest.mark.slow  # tests of a tool


def _must_not_hold_x(data: bytes) -> None:
    assert b"x" not in data or len(data) < 3


def _seeds() -> Iterator[bytes]:
    yield b'{"type":"a","text":"hello"}\n{"type":"b"}'


TARGET = Target("made up", "There is no x.", _must_not_hold_x, _seeds, "bytes")


def test_a_broken_law_is_reported_by_its_place_and_made_small() -> None:
    breach = breach_of(TARGET, b"some bytes with an x in the middle")
    assert isinstance(breach, Breach)
    assert breach.error == "AssertionError"
    assert re.fullmatch(r"AssertionError-test_fuzzer-\d+", breach.name)
    smallest = reduced(TARGET, b"some bytes with an x in the middle", breach)
    assert len(smallest) == 3
    assert b"x" in smallest
    assert breach_of(TARGET, b"none") is None


@pytest.mark.parametrize("shape", ["bytes", "text", "json", "lines"])
def test_changes_are_the_same_for_the_same_dice(shape: Shape) -> None:
    mutator = Mutator(shape, _seeds())
    data = b'{"type":"a","text":"hello"}'
    changed = {mutator.mutated(data, random.Random(number), bytes) for number in range(50)}
    assert len(changed) > 10
    for number in range(50):
        once, again = (mutator.mutated(data, random.Random(number), bytes) for _ in range(2))
        assert once == again
