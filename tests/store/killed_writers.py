"""Several runs that are appended to files and moved into the database, in processes that are killed at one point after
another; and processes that recover what such a process left, killed in the same way.

`python -m tests.store.killed_writers FOLDER EVERY FIRST`: at every so many points, from the first; prints how many
there were. A point is a call or a return in the modules that store and show events. Each process is forked from this
one, so that nothing has to be imported again.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from msgspec.structs import replace

from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.runs import log
from cursor_gateway.runs.handle import RunHandle, end_interrupted_runs
from cursor_gateway.runs.log import LiveLog
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.store import sql as values
from cursor_gateway.store.sqlite import connections, moving, run_files, store, writing
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.runs.scripted import FINISHED, info, say
from tests.store.blocking import Database
from tests.store.making import ME, new_run

RUNS = ("a", "b", "c", "d")
STORING = (log, store, run_files, moving, writing, values, connections)
MODULES = {module.__file__ for module in STORING}


def events_of(run: str) -> list[DocumentEvent]:
    assembler = Assembler(info(run, f"conv_{run}"))
    return [event for one in [*say(f"{run} says this."), FINISHED] for event in assembler.push(one)]


class Points:
    """Counts them, and kills this process at one of them."""

    def __init__(self, fatal: int | None) -> None:
        self.count, self._fatal = 0, fatal

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_filename in MODULES:
            self.count += 1
            if self.count == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)


async def live(folder: Path, result: Callable[[str], None], *, leaves: bool = False) -> None:
    """Readers tell at once what they see. Then all is moved into the database; or the process ends, and leaves two runs
    halfway and two that have ended."""
    opened = SqliteStore(folder)
    new = {run: replace(new_run(run, f"conv_{run}"), is_first=run in "bd") for run in RUNS}
    logs = {run: LiveLog(opened, new[run], lambda: 1000) for run in RUNS}
    for run in RUNS[:2]:  # the others begin with their first events
        await logs[run].begin()

    async def write(run: str) -> None:
        for event in events_of(run)[: -2 if leaves and run in "ab" else None]:
            logs[run].add([event])
            await logs[run].flush()

    async def read(run: str) -> None:
        reader = RunHandle(info(run), logs[run]).reader()
        while not reader.at_end:
            await reader.next()
            result(f"{run} {reader.place}\n")

    await asyncio.gather(*map(write, RUNS), *(() if leaves else map(read, RUNS)))
    if not leaves:
        opened._files.settle()


async def leave(folder: Path, _: Callable[[str], None]) -> None:
    await live(folder, void, leaves=True)


async def recover(folder: Path, _: Callable[[str], None]) -> None:
    """As the next gateway does when it starts."""
    opened = SqliteStore(folder)
    await opened.open(2000)
    await end_interrupted_runs(opened, lambda instance: False, 3000)


Process: TypeAlias = Callable[[Path, Callable[[str], None]], Coroutine[None, None, None]]


def forked(process: Process, folder: Path, fatal: int | None) -> tuple[Counter[str], int]:
    """How many events of each run a process has told before it was killed; and its points, if it was not."""
    reading, writing_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        points = Points(fatal)
        sys.setprofile(points)
        asyncio.run(process(folder, lambda line: void(os.write(writing_end, line.encode()))))
        sys.setprofile(None)
        os.write(writing_end, f"points {points.count}\n".encode())
        os._exit(0)
    os.close(writing_end)
    with open(reading, encoding="ascii") as lines:
        result = Counter[str]()
        for run, count in map(str.split, lines):
            result[run] = int(count)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != (0 if fatal is None else -signal.SIGKILL):
        raise AssertionError(f"a process ended with {status}")
    return result, result.pop("points", 0)


def void(_: object) -> None:
    pass


def check(folder: Path, result: Counter[str]) -> None:
    """All that was told is stored, in order, and no part of a batch."""
    found = Database(folder)
    try:
        for run in RUNS:
            stored, expected = found.events(run, ME).events, events_of(run)
            if len(stored) < result[run] or stored != expected[: len(stored)]:
                raise AssertionError(f"{result[run]} events of {run} were told, but {len(stored)} are stored")
            record = found.run(run, ME)
            if stored and (record is None or (record.state == "completed") != (len(stored) == len(expected))):
                raise AssertionError(f"with {len(stored)} events the run is {record}")
    finally:
        found.close()


def check_recovered(folder: Path) -> None:
    """The next gateway finishes it: runs that had ended are complete, and the others have what they had."""
    forked(recover, folder, None)
    found = Database(folder)
    try:
        for run in RUNS:
            stored, expected = found.events(run, ME).events, events_of(run)
            same = len(expected) - 2 if run in "ab" else len(expected)
            record = found.run(run, ME)
            if record is None or record.state != ("error" if run in "ab" else "completed"):
                raise AssertionError(f"the run {run} is {record}")
            if stored[:same] != expected[:same] or not isinstance(stored[-1], Done):
                raise AssertionError(f"of the run {run}, this is left: {stored}")
        if left := list((folder / "runs").glob("*.ndjson")):
            raise AssertionError(f"{left} are left")
    finally:
        found.close()


def main(folder: Path, every: int, first: int) -> int:
    empty, left = folder / "empty", folder / "left"
    empty.mkdir()
    made = Database(empty)
    made.open(0)
    made.close()
    forked(leave, Path(shutil.copytree(empty, left)), None)
    return kill(live, empty, every, first, check) + kill(
        recover, left, every, first, lambda place, _: check_recovered(place)
    )


def kill(process: Process, start: Path, every: int, first: int, check: Callable[[Path, Counter[str]], None]) -> int:
    tried = 0
    _, points = forked(process, Path(shutil.copytree(start, start.with_name("whole"))), None)
    shutil.rmtree(start.with_name("whole"))
    for fatal in range(first, points, every):
        place = Path(shutil.copytree(start, start.with_name(f"at-{fatal}")))
        result, _ = forked(process, place, fatal)
        check(place, result)
        shutil.rmtree(place)
        tried += 1
    return tried


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))}\n")
