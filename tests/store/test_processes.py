"""A process that is killed takes back nothing that it told; two of them can share a file."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cursor_gateway.model.document_events import DocumentEvent
from tests.store.blocking import Database
from tests.store.making import ME, append_patiently, deltas, new_run

# Says the number of the last event as soon as it is stored. Batches have one to nine events.
APPENDING = """
import sys
from pathlib import Path
from cursor_gateway.errors import StoreUnavailable
from tests.store.blocking import Database
from tests.store.making import deltas, lease, new_run

folder, run, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = Database(Path(folder))
store.open(0)
store.begin_run(new_run(run, run))
number = 1
while number <= last:
    size = 1 + number % 9
    try:
        store.append(lease(run), number, deltas(*range(number, number + size)))
    except StoreUnavailable:
        continue
    number += size
    print(number - 1, flush=True)
store.close()
"""


def child(folder: Path, run: str, last: int) -> "subprocess.Popen[str]":
    root = Path(__file__).parents[2]
    arguments = [sys.executable, "-c", APPENDING, str(folder), run, str(last)]
    return subprocess.Popen(arguments, cwd=root, stdout=subprocess.PIPE, text=True)


def assert_no_gap(events: Sequence[DocumentEvent]) -> None:
    assert list(events) == deltas(*range(1, len(events) + 1))


def test_two_processes_can_share_a_file(tmp_path: Path) -> None:
    store = Database(tmp_path)
    with child(tmp_path, "theirs", 2000) as process:
        store.begin_run(new_run("ours", "ours"))
        for number in range(1, 2001):
            append_patiently(store, "ours", number)
        assert process.wait() == 0
    for run in ("ours", "theirs"):
        events = store.events(run, ME, max_bytes=10**9).events
        assert len(events) >= 2000
        assert_no_gap(events)
    assert {run.id for run in store.unfinished_runs()} == {"ours", "theirs"}
    store.close()


def test_a_file_that_another_process_writes_to_is_not_taken_for_damaged(tmp_path: Path) -> None:
    with child(tmp_path, "theirs", 10**9) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            for _ in range(20):
                store = Database(tmp_path)
                assert store.open(0) is None
                store.close()
        finally:
            process.kill()
