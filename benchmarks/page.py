"""What was found, when and where in; docs/performance.md with its picture out. What people wrote is in story.md."""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

from benchmarks.found import Found
from benchmarks.goals import GROUPS, NOISE, Verdict
from benchmarks.picture import picture
from benchmarks.report import goal_text, reason, value_text

DOCS = Path(__file__).parent.parent / "docs"
STORY = Path(__file__).parent / "story.md"
_PICTURE = Path("images") / "performance.svg"
_MARKS = {
    Verdict.MET: "met",
    Verdict.OVER: "**over**",
    Verdict.EXPLAINED: "**explained**",
    Verdict.RED: "**red**",
    Verdict.TOLD: "",
}

_HOW = f"""\
Everything below comes from one run: all servers were up together, the rounds rotated, each ratio was taken within its
round, and what is shown is the median. The sessions are synthetic (`benchmarks/sessions.py`: 100, 2,000 and 50,000
lines, tool results of up to 200 kB), replayed by a small compiled agent that writes line by line, as the real one does,
or in blocks; a compiled client reads. The gateway has everything on: a key, the history, metrics and logs. Every
measurement's first reply is put together again and must be what the agent said; a reply that fails has no figure.

The *byte relay* forwards the agent's bytes on the same stack (bare ASGI, uvicorn, uvloop, httptools) and looks at none.
The *plain FastAPI gateway* is what people usually write: FastAPI, `readline`, `json` and sse-starlette.

A row over its goal is **red**, and fails the build, when it is a ratio of times and more than
{100 * (NOISE - 1):.0f} % over: so far apart lie two runs of the same code on a busy machine. Memory may not be over at
all. An **explained** row, out of reach for the reason that is given, may be a quarter worse than it was when that was
written, and the same noise worse than that. What is red is measured again, twice; red every time, it is a mistake.
"""

_RUN = """\
## How to run it

```sh
make bench                                    # measures, compares, and fails when a row is red
make bench WRITE=1                            # and writes this page and its picture anew
.venv/bin/python -m benchmarks long many      # some parts; --help names them; --short takes fewer rounds
```

It needs Linux, a C compiler and a machine that does nothing else meanwhile.
"""


def write(found: Mapping[str, Found], today: date, machine: str, warning: str = "", docs: Path = DOCS) -> None:
    (docs / "performance.md").write_text(page(found, today, machine, warning), encoding="utf-8")
    (docs / _PICTURE).parent.mkdir(exist_ok=True)
    (docs / _PICTURE).write_text(picture(found), encoding="utf-8")


def page(found: Mapping[str, Found], today: date, machine: str, warning: str = "") -> str:
    measured = f"Measured on {today.day} {today:%B %Y}: {machine}. {warning}".strip()
    return "\n".join(
        [
            "# Performance",
            "",
            "Written by `make bench WRITE=1`; the last part is kept in `benchmarks/story.md`.",
            "",
            measured,
            "",
            f"![Ratios against their goals]({_PICTURE.as_posix()})",
            "",
            _HOW,
            *_tables(found),
            _RUN,
            STORY.read_text(encoding="utf-8"),
        ]
    )


def _tables(found: Mapping[str, Found]) -> Iterator[str]:
    for group in GROUPS:
        rows = [(goal, found[name]) for name, goal in group.rows.items() if name in found]
        if rows:
            yield f"## {group.title}\n"
            yield "| what | found | goal | | made of |\n|---|---:|---:|---|---|"
            for goal, one in rows:
                shown, mark = value_text(goal, one.value), _MARKS[goal.verdict(one.value)]
                yield f"| {goal.what} | {shown} | {goal_text(goal)} | {mark} | {_cell(reason(goal, one))} |"
            yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
