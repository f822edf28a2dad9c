"""Tables of scenarios and recordings, from what the tests report."""

from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from tools.runtime_report import RecordingCollector, Row, part, placed, recordings_part

pytestmark = pytest.mark.slow
DAY = date(2026, 11, 18)


def report(file: str, case: str, outcome: str, when: str = "call") -> Any:
    return SimpleNamespace(nodeid=f"{file}::test_it[{case}]", outcome=outcome, when=when)


def test_each_recording_is_a_row_with_its_backend_and_its_worst_result() -> None:
    names = ("2026.10.01-acp-tools", "2026.10.01-shell", "2026.10.01-hook-stdin-payloads", "2026.01-never-run")
    collector = RecordingCollector(names)
    laws, acp = "tests/laws/test_captures.py", "tests/sources/test_acp_recordings.py"
    for one in (
        report(laws, "2026.10.01-shell", "passed", "setup"),
        report(laws, "2026.10.01-shell", "skipped", "setup"),
        report(laws, "as it is-2026.10.01-shell", "passed"),
        report(laws, "2026.10.01-shell-none", "failed"),
        report(laws, "2026.10.01-acp-tools", "failed"),  # not how ACP is checked
        report(acp, "2026.10.01-acp-tools", "passed"),
        report(acp, "another", "failed"),
        report(laws, "2026.10.01-hook-stdin-payloads", "failed"),
    ):
        collector.pytest_runtest_logreport(one)
    lines = recordings_part(collector.checks.values(), DAY).splitlines()
    assert lines[-2:] == [
        "| tools | 2026.10.01 | ACP | 1 | ✓ passed |",
        "| shell | 2026.10.01 | CLI | 3 | ✗ failed |",
    ]
    assert "Measured on 18 November 2026: **1 of 2 recordings passed.**" in lines


def test_a_table_takes_the_place_of_the_one_with_its_title() -> None:
    first = part({"a": Row("It works.", "", "passed")}, DAY)
    page = "# Page\n\n## Soak test\n\nLong.\n"
    once = placed(page, first)
    assert once.index(first) < once.index("## Soak test")
    again = placed(placed(once, recordings_part([], DAY)), first)
    assert again.count("## Cursor's own runtime") == again.count("## Recordings of real agents") == 1
    assert again.endswith("## Soak test\n\nLong.\n")
