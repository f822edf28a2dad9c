"""Faults in; their verdicts, two at a time and each within its time, out. Nothing that one starts outlives it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chaos.one import Verdict
from chaos.place import processes_below, wait_until
from chaos.table import GROUPS, Fault, faults_of

AT_ONCE = 2


class Entry(Struct, frozen=True):
    group: str
    module: str
    number: int  # in its module
    fault: Fault


class Judged(Struct, frozen=True):
    entry: Entry
    verdict: Verdict


def entries(word: str = "") -> list[Entry]:
    """Those with this in their group's or their own name; all, without a word."""
    found = [
        Entry(group, module, number, fault)
        for module, group in GROUPS.items()
        for number, fault in enumerate(faults_of(module))
    ]
    return [entry for entry in found if word.lower() in f"{entry.group} {entry.module} {entry.fault.name}".lower()]


def judged(all: Sequence[Entry], *, is_short: bool, told: Callable[[Judged], None]) -> list[Judged]:
    """In the order of the table; `told` is called with each as soon as it is known."""

    def one(entry: Entry) -> Judged:
        found = Judged(entry, _verdict(entry, is_short))
        told(found)
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(one, all))
    return [_again(judged, is_short) if judged.verdict.outcome == "red" else judged for judged in found]


def _again(before: Judged, is_short: bool) -> Judged:
    """On its own: a machine with two faults at once may be too slow for one of them, and what is broken stays red."""
    verdict = _verdict(before.entry, is_short)
    told = f"on its own, after it was red beside another ({before.verdict.told}): {verdict.told}"
    return replace(before, verdict=replace(verdict, told=told) if verdict.outcome == "green" else verdict)


def _verdict(entry: Entry, is_short: bool) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        place = Path(folder).resolve()
        try:
            verdict = _run(entry, place, is_short)
            left = _settled(place)
            if left and verdict.outcome == "green":
                verdict = replace(verdict, outcome="red", told=f"left behind: {', '.join(map(_name, left))}")
            return verdict
        finally:
            with suppress(AssertionError):
                wait_until(lambda: not _killed(place), 10)


def _killed(folder: Path) -> list[int]:
    """Whoever was still there; perhaps others have been started meanwhile."""
    found = processes_below(folder)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _run(entry: Entry, folder: Path, is_short: bool) -> Verdict:
    form = "short" if is_short else "full"
    began = time.monotonic()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, "-m", "chaos.one", entry.module, str(entry.number), str(folder), form],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        try:
            told, _ = process.communicate(timeout=entry.fault.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Verdict("red", f"took longer than {entry.fault.seconds:g} s", time.monotonic() - began)
        try:
            return msgspec.json.decode(told, type=Verdict)
        except msgspec.DecodeError:
            errors.seek(0)
            said = errors.read().decode(errors="replace")
            return Verdict("red", f"ended with status {process.returncode}", time.monotonic() - began, said)


def _settled(folder: Path) -> list[int]:
    """Whoever is still there after a moment."""
    with suppress(AssertionError):
        wait_until(lambda: not processes_below(folder), 5)
    return processes_below(folder)


def _name(pid: int) -> str:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{pid} ({command.strip()[:80]})"
    return str(pid)
