"""What the table of faults says is so: a row is green only when its proof came, in time, and nobody is left behind."""

import sys

import pytest

from chaos.running import Entry, Judged, entries, judged
from chaos.table import GROUPS, faults_of
from cursor_gateway.sources.processes import start_of
from tests.tools import sample_faults

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the faults need Linux's /proc"),
    pytest.mark.slow,  # each fault runs in a process of its own, and one of them until its time is up
]

MODULE = sample_faults.__name__


@pytest.fixture(scope="module")
def found() -> list[Judged]:
    told: list[Judged] = []
    all = [Entry("Samples", MODULE, number, fault) for number, fault in enumerate(faults_of(MODULE))]
    found = judged(all, is_short=True, told=told.append)
    assert sorted(one.entry.number for one in told) == [one.entry.number for one in found]
    return found


def test_every_verdict_is_reported(found: list[Judged]) -> None:
    verdicts = {one.entry.fault.prove.__name__: (one.verdict.outcome, one.verdict.told) for one in found}
    outcome, left = verdicts.pop("leaves")
    assert outcome == "red"
    assert "left behind" in left
    assert "sleep 600" in left
    assert verdicts == {
        "holds": ("green", "3 | of\n3"),
        "fails": ("red", "AssertionError: there are [2] of them"),
        "skipped": ("skipped", "the moon is not full"),
        "hangs": ("red", "took longer than 2 s"),
        "exits": ("red", "ended with status 3"),
    }


def test_nobody_outlives_its_fault(found: list[Judged]) -> None:
    (left,) = (one.verdict.told for one in found if "left behind" in one.verdict.told)
    assert start_of(int(left.partition(": ")[2].partition(" ")[0])) is None


def test_every_fault_of_the_table_says_what_it_is() -> None:
    all = entries()
    assert {entry.module for entry in all} == set(GROUPS)
    names = [entry.fault.name for entry in all]
    assert len(names) == len(set(names))
    for entry in all:
        for sentence in (entry.fault.provoked, entry.fault.holds):
            assert sentence.endswith("."), entry.fault.name
        assert 0 < entry.fault.seconds <= 1800  # 300 damaged histories; CI runs fewer
