"""The fuzzer itself: a broken law is noticed, told once and made small; changed inputs stay nearly what they were."""

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from fuzz.cases import Breach, breach_of, reduced
from fuzz.mutations import Mutator
from fuzz.target import HERE, Shape, Target

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


@pytest.mark.slow  # it fuzzes for a second; what it puts together is tested above
@pytest.mark.skipif(find_spec("atheris") is None, reason="there is no atheris for this Python on this system")
def test_the_command_fuzzes_and_reports_what_it_did(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--seconds", "1", "--keep", str(tmp_path), "frames"],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heading, row = done.stdout.splitlines()
    assert heading.split() == ["target", "runs", "runs/s", "edges", "new", "broken"]
    name, runs, _, edges, _, broken = row.split()
    assert (name, broken) == ("frames", "none")
    assert int(runs) > 0
    assert int(edges) > 0
