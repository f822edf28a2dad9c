"""Run all scenarios with Cursor's own runtime, and all recordings of real agents; tables in docs/reliability.md out.

    python -m tools.runtime_report [--only runtime|recordings] [--write]

A scenario is a test in tests/backend whose docstring says what must happen. It takes several minutes: the runtime waits
between its retries. Recordings are read where they are at hand; the others are left as they were.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import click
import pytest

_ROOT = Path(__file__).resolve().parents[1]
_PAGE, _PARTS = _ROOT / "docs" / "reliability.md", _ROOT / "docs" / "parts"
_CAPTURES = sorted((_ROOT.parent / "shared" / "captures").glob("*.jsonl"))
_NEXT = "## Soak test"  # the part that follows on the page
_TITLE = "## Cursor's own runtime"
_MARKS = {"passed": "✓ passed", "failed": "✗ failed", "skipped": "– skipped"}

_ABOUT = """
The wheel `cursor-sdk` {version} contains Cursor's agent runtime. Here it runs unmodified behind the whole gateway
(`source = sdk`), with a mock of Cursor's servers on this machine (`tests/backend/`). The model's part is played;
commands, files, searches, tools, hooks, sub-agents, retries and conversations are the runtime's own. What a mock cannot
show is what Cursor's servers really send. `make test` has the quick scenarios, `make test-slow` all, and `make runtime
WRITE=1` writes this table.
""".strip()


_RECORDINGS_TITLE = "## Recordings of real agents"
_ABOUT_RECORDINGS = """
Recordings of Cursor's CLI and of its ACP server, as others have published them in their test data and notes; they are
not part of this repository. A recording of the CLI is decoded and passed through every law of `tests/laws` (in any
pieces, cut anywhere, with strange lines between, in every dialect); one of ACP is played to the whole source by an
agent that sends exactly these messages. Some are single messages or fragments. `make runtime WRITE=1` writes this
table.
""".strip()
_RECORDING_TESTS = {"CLI": "tests/laws/test_captures.py", "ACP": "tests/sources/test_acp_recordings.py"}
_NO_OUTPUT = ("hook-stdin-payloads",)  # what hooks get, not what an agent prints


class Row(NamedTuple):
    scenario: str
    case: str
    result: str


class Collector:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            file, _, name = report.nodeid.partition("::")
            name, _, case = name.partition("[")
            module = import_module(".".join(Path(file).with_suffix("").parts))
            if told := getattr(module, name).__doc__:
                self.rows[report.nodeid] = Row(" ".join(told.split()), case.removesuffix("]"), report.outcome)


def part(rows: Mapping[str, Row], today: date) -> str:
    """Cases of a scenario with the same result are one row."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for _, row in sorted(rows.items()):
        grouped.setdefault((row.scenario, row.result), []).append(row.case)
    lines = [
        f"| {_cell(scenario)} | {len(cases)} | {_MARKS.get(result, result)} |"
        for (scenario, result), cases in grouped.items()
    ]
    passed = sum(row.result == "passed" for row in rows.values())
    return "\n".join(
        [
            _TITLE,
            "",
            _ABOUT.format(version=version("cursor-sdk")),
            "",
            f"Measured on {today.day} {today:%B %Y}: **{passed} of {len(rows)} cases passed.**",
            "",
            "| scenario | cases | result |",
            "|---|--:|---|",
            *lines,
        ]
    )


class Checks(NamedTuple):
    """What became of the checks of one recording."""

    name: str
    backend: str
    outcomes: list[str]

    @property
    def result(self) -> str:
        worst = next((one for one in ("failed", "passed") if one in self.outcomes), "skipped")
        return _MARKS[worst]


class RecordingCollector:
    """A plugin of pytest."""

    def __init__(self, names: Iterable[str]) -> None:
        self.checks = {
            name: Checks(name, "ACP" if "-acp-" in name else "CLI", [])
            for name in names
            if not name.endswith(_NO_OUTPUT)
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        file, _, name = report.nodeid.partition("::")
        case = name.partition("[")[2].removesuffix("]")
        found = max((one for one in self.checks if case.startswith(one) or case.endswith(one)), key=len, default="")
        if found and file.endswith(_RECORDING_TESTS[self.checks[found].backend]):
            self.checks[found].outcomes.append(report.outcome)


def recordings_part(checks: Iterable[Checks], today: date) -> str:
    rows = [one for one in checks if one.outcomes]
    lines = [
        f"| {' '.join(words).removeprefix('acp ')} | {version} | {one.backend} | {len(one.outcomes)} | {one.result} |"
        for one in rows
        for version, *words in [one.name.split("-")]
    ]
    passed = sum(one.result == _MARKS["passed"] for one in rows)
    return "\n".join(
        [
            _RECORDINGS_TITLE,
            "",
            _ABOUT_RECORDINGS,
            "",
            f"Measured on {today.day} {today:%B %Y}: **{passed} of {len(rows)} recordings passed.**",
            "",
            "| recording | agent | backend | checks | result |",
            "|---|---|---|--:|---|",
            *lines,
        ]
    )


def placed(page: str, text: str) -> str:
    """The page with this part in place of the one of the same title that it has."""
    title = text.partition("\n")[0]
    page = re.sub(rf"{re.escape(title)}\n.*?(?=^## )", "", page, flags=re.DOTALL | re.MULTILINE)
    return page.replace(_NEXT, f"{text}\n\n{_NEXT}", 1)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _runtime() -> tuple[str, int]:
    collector = Collector()
    status = pytest.main([str(_ROOT / "tests" / "backend"), "-q", "-n", "6"], plugins=[collector])
    return part(collector.rows, date.today()), int(status)


def _recordings() -> tuple[str, int]:
    if not _CAPTURES:
        click.echo("The recordings are not at hand: their table stays as it is.")
        return "", 0
    collector = RecordingCollector(path.stem for path in _CAPTURES)
    tests = [str(_ROOT / file) for file in _RECORDING_TESTS.values()]
    status = pytest.main([*tests, "-q", "-n", "2"], plugins=[collector])
    return recordings_part(collector.checks.values(), date.today()), int(status)


_TABLES = {"runtime": _runtime, "recordings": _recordings}


@click.command()
@click.option("--only", type=click.Choice(list(_TABLES)), help="Only this table.")
@click.option("--write", is_flag=True, help="Write the tables to docs/parts, and to docs/reliability.md.")
def main(only: str | None, write: bool) -> None:
    statuses = []
    for name in [only] if only else _TABLES:
        text, status = _TABLES[name]()
        statuses.append(status)
        click.echo(text)
        if write and text:
            (_PARTS / f"{name}.md").write_text(f"{text}\n", "utf-8")
            _PAGE.write_text(placed(_PAGE.read_text("utf-8"), text), "utf-8")
    raise SystemExit(max(statuses))


if __name__ == "__main__":
    main()
