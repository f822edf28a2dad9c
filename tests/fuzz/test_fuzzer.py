"""The fuzzer itself: a broken law is noticed, told once and made small; changed inputs stay nearly what they were."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pytest

from fuzz import cases, corpus
from fuzz.__main__ import sweep
from fuzz.cases import Breach, breach_of, keep, reduced
from fuzz.mutations import Mutator
from fuzz.report import part
from fuzz.rows import Row
from fuzz.sweep import VALUES, swept
from fuzz.target import FOUND, HERE, Shape, Target, cuttings, dice
from fuzz.targets import NAMES, target_named

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


def test_a_case_is_kept_with_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "FOUND", tmp_path / "found")
    breach = Breach("ValueError", "decoder.py:7")
    path = keep(TARGET, b"axb", breach)
    assert path.relative_to(tmp_path / "found") == Path("made up", "ValueError-decoder-7")
    assert path.read_bytes() == b"axb"


def test_of_many_inputs_those_are_kept_that_reach_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CORPUS", tmp_path / "corpus")
    found = tmp_path / "found"
    found.mkdir()
    for number in range(40):
        (found / str(number)).write_bytes(b"1|a|%d" % number)
    corpus.write(target_named("frames"), found)
    kept = [path.read_bytes() for path in (tmp_path / "corpus" / "frames").iterdir()]
    assert 0 < len(kept) <= 16, "most of them reach the same"


@pytest.mark.parametrize("shape", ["bytes", "text", "json", "lines"])
def test_changes_are_the_same_for_the_same_dice(shape: Shape) -> None:
    mutator = Mutator(shape, _seeds())
    data = b'{"type":"a","text":"hello"}'
    changed = {mutator.mutated(data, random.Random(number), bytes) for number in range(50)}
    assert len(changed) > 10
    for number in range(50):
        once, again = (mutator.mutated(data, random.Random(number), bytes) for _ in range(2))
        assert once == again


def test_json_stays_json_nearly_always() -> None:
    mutator = Mutator("json", _seeds())
    data = b'{"type":"a","text":["hello",{"b":null}]}'
    readable = 0
    for number in range(300):
        try:
            json.loads(mutator.mutated(data, random.Random(number), lambda part: part[1:]))
        except (ValueError, RecursionError):
            continue
        readable += 1
    assert readable > 200


def test_a_sweep_puts_every_value_into_every_field_once() -> None:
    inputs = list(swept([b'{"type":"a","b":[1,2,3]}', b'{"type":"a","b":[7]}\nno JSON']))
    places = ("the whole", "type", "b", "b[]")
    assert len(inputs) == len(places) * len(VALUES)
    assert {"type": "a", "b": [-7, 2, 3]} in [json.loads(data) for data in inputs]
    both = list(swept([b"first\n[1]"]))
    assert len(both) == 2 * 2 * len(VALUES)
    assert b"first\n[-1]" in both


def test_what_a_sweep_finds_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "FOUND", tmp_path)
    row = sweep(TARGET, 60)
    assert row.runs > 100
    (breach,) = row.breaches  # one place, though many inputs break the law there
    assert [path.name for path in (tmp_path / TARGET.name).iterdir()] == [breach]


def test_the_report_tells_of_every_target_and_every_case() -> None:
    targets = [target_named(name) for name in NAMES]
    result = part([Row(name, 1000, 2, 7, 0, []) for name in NAMES], targets, 2, date(2026, 2, 23))
    assert result.startswith("## Fuzzing\n")
    assert f"2 s for each of {len(NAMES)} targets: {len(NAMES)},000 runs, 0 broken laws." in result
    for name in NAMES:
        assert re.search(rf"^\| `{name}` \| .* \| 1,000 \| 500 \| 7 \| \d+ \| none \|$", result, re.MULTILINE)
    for path in FOUND.rglob("*"):
        if path.is_file():
            assert path.name in result, "a case that the report does not explain"


def test_cuttings_lose_nothing() -> None:
    for data in (b"", b"a", b"some bytes that are longer"):
        for pieces in cuttings(data, dice(data)):
            assert b"".join(pieces) == data


@pytest.mark.parametrize("name", NAMES)
def test_a_target_says_what_holds(name: str) -> None:
    target = target_named(name)
    assert target.name == name
    assert target.holds.endswith(".")
    assert any(len(seed) <= target.longest for seed in target.seeds())


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


def test_a_target_that_is_not_there_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "nothing"], cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no target nothing" in done.stderr
