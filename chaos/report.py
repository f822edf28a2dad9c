"""Verdicts in; a table for the terminal, and the page `docs/reliability.md`, out."""

import os
import platform
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from string import Template

from rich.table import Table
from rich.text import Text

from chaos.one import Outcome
from chaos.running import Judged

_MARKS: dict[Outcome, tuple[str, str]] = {
    "green": ("✓", "green"),
    "red": ("✗", "bold red"),
    "skipped": ("–", "yellow"),
}
_TEMPLATE = Path(__file__).with_name("reliability.md.in")
_ROOT = Path(__file__).resolve().parents[1]
PAGE = _ROOT / "docs" / "reliability.md"
_PARTS = _ROOT / "docs" / "parts"  # what other commands have measured, one file for each


# --- for the terminal -----------------------------------------------------------------------------------


def line(judged: Judged) -> Text:
    mark, style = _MARKS[judged.verdict.outcome]
    return Text.assemble((f"{mark} ", style), f"{judged.entry.fault.name} ", (f"{judged.verdict.seconds:.1f} s", "dim"))


def table(all: Sequence[Judged]) -> Table:
    found = Table(show_lines=True, expand=True)
    for title, ratio in (("group", 2), ("fault", 3), ("expected", 5), ("result", 5)):
        found.add_column(title, ratio=ratio)
    found.add_column("verdict", no_wrap=True)
    found.add_column("s", justify="right", no_wrap=True)
    for judged in all:
        fault, verdict = judged.entry.fault, judged.verdict
        outcome = Text(verdict.outcome, _MARKS[verdict.outcome][1])
        # Text, not markup: a proof may quote anything
        words = (judged.entry.group, fault.name, fault.holds, verdict.told)
        found.add_row(*map(Text, words), outcome, f"{verdict.seconds:.1f}")
    return found


def summary(all: Sequence[Judged]) -> str:
    counted = [f"{sum(one.verdict.outcome == outcome for one in all)} {outcome}" for outcome in _MARKS]
    return f"{len(all)} faults: {', '.join(counted)}"


# --- the page -------------------------------------------------------------------------------------------


def page(all: Sequence[Judged], today: date) -> str:
    groups = dict.fromkeys(judged.entry.group for judged in all)
    tables = [f"### {group}\n\n{_rows([one for one in all if one.entry.group == group])}" for group in groups]
    # their links lead from their own folder, the page's from the one above it
    parts = [path.read_text("utf-8").strip().replace("](../", "](") for path in sorted(_PARTS.glob("*.md"))]
    filled = Template(_TEMPLATE.read_text("utf-8")).substitute(
        date=f"{today.day} {today:%B %Y}",
        machine=machine(),
        summary=summary(all),
        tables="\n\n".join(tables),
        parts="\n\n".join(parts),
    )
    return f"{filled.strip()}\n"


def _rows(all: Sequence[Judged]) -> str:
    rows = ["| fault | injection | expected | result | |", "|---|---|---|---|---|"]
    for judged in all:
        fault, verdict = judged.entry.fault, judged.verdict
        words = (fault.name, fault.provoked, fault.holds, verdict.told)
        rows.append(f"| {' | '.join(map(_cell, words))} | {_MARKS[verdict.outcome][0]} {verdict.outcome} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def machine() -> str:
    """Its kind, and nothing that tells which one it is."""
    cores = len(os.sched_getaffinity(0))
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    release = ".".join(platform.release().split(".")[:2])
    return (
        f"{cores} cores ({found[1].strip() if found else platform.machine()}), {memory:.0f} GB, Linux {release}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
