"""Runs in files: seen by every process, moved into the database together, and finished by whoever comes next."""

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from cursor_gateway.errors import HistoryDamaged, StoreUnavailable
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, Done, Paused
from cursor_gateway.model.documents import Usage, WaitingCall
from cursor_gateway.store import base, batches
from cursor_gateway.store.base import Behind, Fenced, HistoryLimits, Idempotency, KeyTaken, NewRun, RunEnd, Stored
from cursor_gateway.store.sqlite import maintenance, moving, run_files, writing
from cursor_gateway.store.sqlite.opening import FILE, examine
from cursor_gateway.store.sqlite.run_files import EventBatch, RunFile, begin_line
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.store.blocking import Database, blocking
from tests.store.making import ME, deltas, envelope, lease, new_run, run_end
from tests.store.test_connections import locked


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Database]:
    """Another process's."""
    store = Database(tmp_path)
    yield store
    store.close()


@pytest.fixture(autouse=True)
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is moved in the background, unless a test says so."""
    monkeypatch.setattr(maintenance.Maintenance, "has_files", lambda self: None)


def first(run: str = "run", conversation: str = "conv") -> NewRun:
    return replace(new_run(run, conversation), is_first=True)


def files(folder: Path) -> list[str]:
    """Without the empty ones, which are for the next runs."""
    return sorted(file.name for file in (folder / "runs").iterdir() if file.stat().st_size)


def in_database(folder: Path, table: str = "runs") -> int:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def ended(store: Database, run: str = "run", conversation: str = "conv", request: bytes = b"") -> None:
    assert isinstance(store.begin_run(replace(first(run, conversation), request=request), deltas(1)), Stored)
    assert isinstance(store.append(lease(run), 2, [Done(envelope(run))], run_end(run)), Stored)


# --- a run is a file --------------------------------------------------------------------------------


def test_a_run_that_begins_a_conversation_is_a_file_until_somebody_asks(store: Database, tmp_path: Path) -> None:
    store.open(0)
    assert isinstance(store.begin_run(first()), Stored)
    store.append(lease("run"), 1, deltas(1, 2))
    assert (files(tmp_path), in_database(tmp_path)) == (["run.ndjson"], 0)
    run = store.run("run", ME)
    assert (run.state, run.event_count) == ("running", 2)
    assert (in_database(tmp_path), in_database(tmp_path, "events")) == (1, 0)
    assert store.events("run", ME).events == deltas(1, 2)
    store.append(lease("run"), 3, [Done(envelope())], run_end())
    assert files(tmp_path) == ["run.ndjson"]
    assert store.run("run", ME).state == "completed"
    assert (files(tmp_path), in_database(tmp_path, "events")) == ([], 1)
    assert store.events("run", ME).events == [*deltas(1, 2), Done(envelope())]


def test_a_whole_run_is_written_at_once(store: Database, tmp_path: Path) -> None:
    store.open(0)
    assert isinstance(store.begin_run(first(), [*deltas(1), Done(envelope())], run_end()), Stored)
    assert (files(tmp_path), in_database(tmp_path)) == (["run.ndjson"], 0)
    assert [found.conversation.id for found in store.conversations(ME, query="Hello").found] == ["conv"]
    assert store.events("run", ME, after=1).events == [Done(envelope())]


def test_a_run_with_a_key_is_compared_with_others_at_once(store: Database, other: Database) -> None:
    key = Idempotency("key", "hash")
    assert isinstance(store.begin_run(replace(first(), idempotency=key), deltas(1)), Stored)
    assert isinstance(other.begin_run(replace(first("two", "two"), idempotency=key), deltas(1)), KeyTaken)


def test_other_processes_see_what_is_in_files(store: Database, other: Database) -> None:
    store.begin_run(first(), deltas(1))
    assert (other.run("run", ME).state, other.run("run", ME).event_count) == ("running", 1)
    assert [run.id for run in other.unfinished_runs()] == ["run"]
    store.append(lease("run"), 2, deltas(2))
    assert other.events("run", ME, after=1).events == deltas(2)
    assert other.run("run", ME).event_count == 2
    store.append(lease("run"), 3, [Done(envelope())], run_end())
    assert other.run("run", ME).state == "completed"
    assert store.run("run", ME).state == "completed"
    assert store.append(lease("run"), 3, [Done(envelope())], run_end()) == Stored(0)


def test_pages_of_a_long_file_are_read_from_where_they_are(store: Database, tmp_path: Path) -> None:
    store.begin_run(first())
    said: list[DocumentEvent] = [ContentDelta("doc_001", f"{number} " * 5000) for number in range(40)]
    for number, event in enumerate(said, 1):
        store.append(lease("run"), number, [event])
    read: list[DocumentEvent] = []
    while page := store.events("run", ME, after=len(read), max_bytes=50_000).events:
        assert len(page) < 10
        read += page
    assert read == said
    store.append(lease("run"), 41, [Done(envelope())], run_end())
    assert store.events("run", ME, max_bytes=10**9).events == [*said, Done(envelope())]
    assert 1 < in_database(tmp_path, "events") < 10


def test_what_is_sent_again_must_be_the_same(store: Database) -> None:
    store.begin_run(first(), deltas(1, 2))
    assert store.append(lease("run"), 1, deltas(1, 2)) == Stored(0)
    assert isinstance(store.append(lease("run"), 2, deltas(2, 3)), Stored)
    with pytest.raises(ValueError, match="event 3 is stored already"):
        store.append(lease("run"), 3, deltas(4))
    assert store.events("run", ME).events == deltas(1, 2, 3)
    store.append(lease("run"), 4, [], run_end())
    assert store.append(lease("run"), 4, deltas(4)) == Fenced("ended")


def test_calls_are_found_by_other_processes(store: Database, other: Database) -> None:
    waiting = replace(
        envelope().metadata,
        waiting_for=[WaitingCall(tool_call_id="call_1", tool_name="tool", arguments={}, document_id="doc_001")],
    )
    paused = Paused(replace(envelope(status="streaming"), metadata=waiting))
    assert isinstance(store.begin_run(first(), [*deltas(1), paused]), Stored)
    found = other.find_run_by_calls(ME, ["call_1"])
    assert found is not None
    assert (found.id, found.event_count) == ("run", 2)
    assert other.claim_run("run", 1) == lease("run", 2)
    assert store.append(lease("run"), 3, [paused]) == Fenced("claimed")


# --- a file that is not as it was left --------------------------------------------------------------


def test_a_writer_whose_file_is_gone_sends_its_events_again(store: Database, tmp_path: Path) -> None:
    for run in (first("run", "conv"), new_run("old", "old")):
        store.begin_run(run, deltas(1))
        assert store.run(run.id, ME) is not None  # so the database knows of it
        (tmp_path / "runs" / f"{run.id}.ndjson").unlink()
        assert store.append(lease(run.id), 2, deltas(2)) == Behind(0)
        assert isinstance(store.append(lease(run.id), 1, deltas(1, 2)), Stored)
        assert store.events(run.id, ME).events == deltas(1, 2)


def test_a_run_survives_the_loss_of_the_database(store: Database, tmp_path: Path) -> None:
    store.begin_run(first(), deltas(1))
    assert store.run("run", ME) is not None
    for file in tmp_path.glob(f"{FILE}*"):
        file.unlink()
    assert isinstance(store.append(lease("run"), 2, [Done(envelope())], run_end()), Stored)
    assert store.run("run", ME).state == "completed"
    assert store.events("run", ME).events == [*deltas(1), Done(envelope())]


def test_a_marked_file_is_not_written_to(
    store: Database, other: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process that takes it over was killed before its transaction was committed."""
    store.begin_run(first(), deltas(1))
    with monkeypatch.context() as patch:
        patch.setattr(writing, "take_over", kill)
        with pytest.raises(KeyboardInterrupt):
            other.claim_run("run", 1)
    assert b"claimed" in (tmp_path / "runs/run.ndjson").read_bytes()
    assert isinstance(store.append(lease("run"), 2, deltas(2)), Stored)  # to the database, with what the file had
    assert other.events("run", ME).events == deltas(1, 2)
    assert other.claim_run("run", 1) == lease("run", 2)
    assert store.append(lease("run"), 3, deltas(3)) == Fenced("claimed")


def kill(connection: sqlite3.Connection, run_id: str, rows: Iterable[EventBatch]) -> None:
    list(rows)  # which marks the file
    raise KeyboardInterrupt


def test_two_that_write_with_one_lease_write_to_one_log(store: Database, other: Database, tmp_path: Path) -> None:
    store.begin_run(first(), deltas(1))
    assert isinstance(other.append(lease("run"), 2, deltas(2)), Stored)
    assert files(tmp_path) == []
    assert isinstance(store.append(lease("run"), 3, deltas(3)), Stored)
    assert store.events("run", ME).events == deltas(1, 2, 3)


def test_a_deleted_conversation_never_comes_back(store: Database, other: Database, tmp_path: Path) -> None:
    store.begin_run(first(), deltas(1))
    assert other.delete_conversation("conv", ME)
    assert files(tmp_path) == []
    other.prune(HistoryLimits(), 0)  # to the last row
    assert store.append(lease("run"), 2, deltas(2)) == Fenced("deleted")
    assert store.conversation("conv", ME) is None


def test_nor_if_it_is_deleted_before_the_first_event_of_its_next_run(store: Database, other: Database) -> None:
    ended(store)
    assert isinstance(store.begin_run(new_run("next")), Stored)
    assert other.delete_conversation("conv", ME)
    other.prune(HistoryLimits(), 0)
    done = [*deltas(1), Done(envelope("next"))]
    assert store.append(lease("next"), 1, done, run_end("next")) == Fenced("deleted")
    assert store.conversation("conv", ME) is None


def test_a_run_that_is_claimed_before_its_first_event_is_not_written_by_its_process(
    store: Database, other: Database
) -> None:
    ended(store)
    store.begin_run(new_run("next"))
    assert other.claim_run("next", 1) == lease("next", 2)
    assert store.append(lease("next"), 1, deltas(1)) == Fenced("claimed")


def test_a_run_whose_transaction_failed_can_begin_again(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = moving.RunFiles.enter

    def fails(self: moving.RunFiles, connection: sqlite3.Connection, new: NewRun) -> None:
        enter(self, connection, new)
        raise sqlite3.OperationalError("disk I/O error")

    ended(store)
    with monkeypatch.context() as patch:
        patch.setattr(moving.RunFiles, "enter", fails)
        with pytest.raises(sqlite3.OperationalError):
            store.begin_run(new_run("next"))
    assert isinstance(store.begin_run(new_run("next")), Stored)
    assert isinstance(store.append(lease("next"), 1, deltas(1)), Stored)
    assert files(tmp_path) == ["next.ndjson"]
    assert store.events("next", ME).events == deltas(1)


# --- moving -----------------------------------------------------------------------------------------


def test_they_are_moved_in_the_background_many_at_a_time(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(maintenance, "_GATHERING", 600.0)  # it does not wait for that, but for many of them
    moved = threading.Event()
    original = moving.RunFiles.move_some

    def move_some(self: moving.RunFiles) -> int:
        size = original(self)
        moved.set()
        return size

    monkeypatch.setattr(moving.RunFiles, "move_some", move_some)
    store.open(0)
    for number in range(64):
        ended(store, f"run{number}", f"conv{number}")
    assert moved.wait(60)
    assert (files(tmp_path), in_database(tmp_path)) == ([], 64)


def test_while_runs_keep_ending_they_are_moved_although_some_are_to_be_indexed(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(maintenance, "_GATHERING", 600.0)  # it does not wait for that, nor until it is quiet
    monkeypatch.setattr(maintenance, "_QUIET", 600.0)
    store.open(0)
    for number in range(256):
        ended(store, f"run{number}", f"conv{number}")
    deadline = time.monotonic() + 60
    while in_database(tmp_path) <= 256 - 64:  # fewer wait for others
        assert time.monotonic() < deadline
        time.sleep(0.01)


def everything_in(folder: Path) -> dict[str, list[object]]:
    """All rows of the database, besides those of the index."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        kept = [name for name in tables if not name.startswith(("search", "sqlite_"))]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in kept}


GUESSED = replace(
    envelope("guessed"), usage=Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3, estimated=True)
)
WHOLE_RUNS: list[tuple[NewRun, RunEnd]] = [
    (first("guessed", "c8"), replace(run_end("guessed"), envelope=GUESSED)),
    (first("plain", "c1"), run_end("plain")),
    (replace(first("asked", "c2"), request=b"asked", continuation=b"more", client="curl"), run_end("asked")),
    (replace(first("failed", "c3"), request=b"asked", continuation=b"more"), run_end("failed", status="error")),
    (replace(first("silent", "c4"), owner="you", include=frozenset()), run_end("silent", answer="")),
    (
        replace(
            first("long", "c5"), messages=[base.NewMessage("user", "a\ud800b", ("1.png", "2.png"))] * 2, mode="plan"
        ),
        replace(run_end("long", session_id="s", fingerprint="f"), words=["w\ud800"], tool_uses=3, needs_decision=True),
    ),
    (first("named", "c6"), replace(run_end("named"), title=base.TitleChange("Hello", "Greeting"), first_event_ms=None)),
    (
        first("other name", "c7"),
        replace(run_end("other name"), title=base.TitleChange("Goodbye", "Greeting"), ended_ms=10),
    ),
]


def test_many_are_moved_as_each_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(news: base.RunNews) -> list[base.Notice]:
        return [base.Notice(webhook="w", id=f"n-{news.envelope.id}", body=news.owner.encode(), number=news.number)]

    found, indexed = [], []
    for name in ("together", "alone"):
        store = blocking(SqliteStore(tmp_path / name, make))
        store.open(0)
        for new, end in WHOLE_RUNS:
            assert isinstance(store.begin_run(new, deltas(1, 2)), Stored)
            assert isinstance(store.append(lease(new.id), 3, [Done(end.envelope)], end), Stored)
            if name == "alone":
                store._files.settle()
        with monkeypatch.context() as patched:
            patched.setattr(writing, "move", None)  # none of those that are left is moved by itself
            store._files.settle()
        indexed.append(store._indexer._noted)
        found.append(everything_in(tmp_path / name))
        store.close()
    for rows in found:
        assert len(rows["runs"]) == len(WHOLE_RUNS)
        rows["notices"] = [row[:-1] for row in rows["notices"]]  # type: ignore[index] # without when they are due
    assert found[0] == found[1]
    assert indexed[0] == indexed[1]


def test_one_of_many_that_was_deleted_meanwhile_does_not_come_back(store: Database, tmp_path: Path) -> None:
    for number in range(4):
        ended(store, f"run{number}", f"conv{number}")
    (tmp_path / "runs" / "run2.ndjson").unlink()
    store._files.settle()
    assert [store.run(f"run{number}", ME) is not None for number in range(4)] == [True, True, False, True]
    assert files(tmp_path) == []


def test_one_of_many_that_another_process_has_moved_is_not_moved_again(
    store: Database, other: Database, tmp_path: Path
) -> None:
    for number in range(3):
        ended(store, f"run{number}", f"conv{number}")
    copies = {file: file.read_bytes() for file in (tmp_path / "runs").iterdir()}
    assert other.run("run1", ME) is not None  # so it has moved all
    before = everything_in(tmp_path)
    for file, data in copies.items():
        file.write_bytes(data)  # as if it had not removed them yet
    store._files.settle()
    assert everything_in(tmp_path) == before
    assert files(tmp_path) == []


def test_one_of_many_that_is_damaged_does_not_hold_up_the_others(store: Database, tmp_path: Path) -> None:
    for number in range(3):
        ended(store, f"run{number}", f"conv{number}")
    path = tmp_path / "runs" / "run1.ndjson"
    path.write_bytes(path.read_bytes().replace(b'"first":1', b'"first":7'))
    store._files.settle()
    assert [store.run(f"run{number}", ME).state for number in range(3)] == ["completed", "running", "completed"]
    assert files(tmp_path) == ["run1.ndjson"]


def test_a_run_that_ends_while_it_is_entered_is_not_removed(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.begin_run(first(), deltas(1))
    original = writing.move

    def move(*values: object) -> object:
        monkeypatch.setattr(writing, "move", original)
        store._files.append(store._files.of(lease("run")), 2, [Done(envelope())], run_end())
        return original(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "move", move)
    store._files.settle()
    assert files(tmp_path) == ["run.ndjson"]
    assert store.events("run", ME).events == [*deltas(1), Done(envelope())]


def test_while_the_database_is_locked_runs_are_stored_and_moved_later(store: Database, tmp_path: Path) -> None:
    ended(store, "before", "before")
    assert store.run("before", ME) is not None
    with locked(tmp_path):
        ended(store, request=b"asked")
        found, events = store.run("run", ME), store.events("run", ME).events
        assert (events, store.events("run", ME, after=1).events) == ([*deltas(1), Done(envelope())], [Done(envelope())])
        assert store.kept_request("run", ME, 0) == b"asked"
        with pytest.raises(StoreUnavailable, match="locked"):
            store.run("run", "you")  # else it would seem not to exist
        with pytest.raises(StoreUnavailable, match="locked"):
            store.events("run", "you")
        with pytest.raises(StoreUnavailable, match="locked"):
            store.kept_request("run", ME, 1)
        with pytest.raises(StoreUnavailable, match="locked"):
            store.conversation("conv", ME)
        assert [found.conversation.id for found in store.conversations(ME).found] == ["before"]
    assert store.run("run", ME) == found
    assert files(tmp_path) == []


def test_a_mistake_in_one_does_not_cost_the_others(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for run in ("bad", "good"):
        ended(store, run, run)
    original = run_files.rows_in

    def rows_in(path: str, count: int) -> object:
        if "bad" in path:
            raise ZeroDivisionError
        return original(path, count)

    pack = RunFile.pack

    def packed(self: RunFile) -> None:
        if "bad" in self.path:
            raise ZeroDivisionError
        pack(self)

    monkeypatch.setattr(moving, "rows_in", rows_in)
    monkeypatch.setattr(RunFile, "pack", packed)
    for _ in range(2):
        assert store.run("good", ME).state == "completed"
        assert store.run("bad", ME) is None
    assert caplog.text.count("bug in moving a run") == caplog.text.count("bug in recovering a run") == 1
    monkeypatch.undo()
    assert files(tmp_path) == ["bad.ndjson"]
    again = Database(tmp_path)
    again.open(0)
    assert again.run("bad", ME).state == "completed"
    assert files(tmp_path) == []
    again.close()


def test_who_moves_them_takes_turns(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_TURN_SECONDS", 0.01)
    ended(store)
    with store._files._turn, pytest.raises(StoreUnavailable, match="busy writing"):
        store._files.settle()
    store._files.settle()
    assert not store._files.has_work


def test_closing_moves_them(tmp_path: Path) -> None:
    store = Database(tmp_path)
    ended(store)
    store.begin_run(first("live", "live"), deltas(1))
    store.close()
    assert (files(tmp_path), in_database(tmp_path)) == (["live.ndjson"], 2)
    with pytest.raises(StoreUnavailable, match="closed"):
        store.append(lease("live"), 2, deltas(2))


def test_the_file_of_a_run_that_was_moved_is_used_again(store: Database, tmp_path: Path) -> None:
    ended(store, "one", "one")
    inode = (tmp_path / "runs/one.ndjson").stat().st_ino
    store._files.settle()
    (spare,) = (tmp_path / "runs").iterdir()
    assert (spare.stat().st_ino, spare.stat().st_size) == (inode, 0)
    store.begin_run(first("two", "two"), deltas(1))
    assert (tmp_path / "runs/two.ndjson").stat().st_ino == inode
    assert not spare.exists()
    assert store.events("two", ME).events == deltas(1)
    ended(store, "three", "three")
    store._files.settle()
    (tmp_path / "runs/three.ndjson").unlink()
    assert isinstance(store.begin_run(first("four", "four"), deltas(1)), Stored)
    store.close()
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == ["four.ndjson", "two.ndjson"]


def test_few_empty_files_are_kept(store: Database, tmp_path: Path) -> None:
    for number in range(100):
        ended(store, f"run{number}", f"conv{number}")
    store._files.settle()
    assert len(list((tmp_path / "runs").iterdir())) == 64


def test_an_empty_file_that_a_run_did_not_need_is_kept_for_the_next(store: Database, tmp_path: Path) -> None:
    ended(store, "one", "one")
    store._files.settle()
    (spare,) = (tmp_path / "runs").iterdir()
    store.begin_run(new_run("two", "two"))
    store.delete_conversation("two", ME)
    assert isinstance(store.begin_run(first("three", "three"), deltas(1)), Stored)
    assert not spare.exists()


def test_only_a_write_to_its_folder_shows_that_files_can_be_written_again(store: Database, tmp_path: Path) -> None:
    ended(store)
    store._files.settle()
    folder, aside = tmp_path / "runs", tmp_path / "aside"
    folder.rename(aside)
    folder.touch()
    with pytest.raises(StoreUnavailable, match="Not a directory"):
        store.begin_run(first("two", "two"), deltas(1))
    with pytest.raises(StoreUnavailable, match="Not a directory"):
        store.probe()
    with store._connections.writing():
        pass
    assert "Not a directory" in store.health.problem
    assert store.run("run", ME) is not None
    folder.unlink()
    aside.rename(folder)
    store.probe()
    assert store.health.problem == ""
    assert not list(folder.glob("*-probe"))


def test_a_reader_never_gets_the_events_of_the_next_run_in_a_file(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.begin_run(first("one", "one"), deltas(1))
    original = run_files.lines_of

    def lines_of(*values: object) -> object:
        monkeypatch.setattr(moving, "lines_of", original)
        store.append(lease("one"), 2, [Done(envelope("one"))], run_end("one"))
        store._files.settle()
        store.begin_run(first("two", "two"), deltas(1, 2, 3))
        return original(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(moving, "lines_of", lines_of)
    assert store._files.read("one", 1) == []
    assert store.events("one", ME).events == [*deltas(1), Done(envelope("one"))]


# --- what a killed process left ---------------------------------------------------------------------


def test_the_next_process_finishes_what_has_ended_and_keeps_what_has_not(tmp_path: Path) -> None:
    killed = Database(tmp_path)
    ended(killed)
    killed.begin_run(first("live", "live"), deltas(1))
    store = Database(tmp_path)
    assert store.open(0) is None
    assert (files(tmp_path), in_database(tmp_path)) == (["live.ndjson"], 2)
    assert store.claim_run("live", 1) == lease("live", 2)
    assert (files(tmp_path), in_database(tmp_path, "events")) == ([], 2)
    assert isinstance(store.append(lease("live", 2), 2, [Done(envelope("live"))], run_end("live")), Stored)
    assert store.unfinished_runs() == []
    assert killed.append(lease("live"), 2, deltas(2)) == Fenced("claimed")
    killed.close()
    store.close()


def test_a_run_that_has_ended_cannot_be_claimed(tmp_path: Path) -> None:
    killed = Database(tmp_path)
    ended(killed)
    store = Database(tmp_path)
    assert store.claim_run("run", 1) is None
    assert store.run("run", ME).state == "completed"
    assert files(tmp_path) == []
    store.close()


def test_a_file_whose_run_is_in_the_database_is_removed(tmp_path: Path) -> None:
    killed = Database(tmp_path)
    ended(killed)
    left = (tmp_path / "runs/run.ndjson").read_bytes()
    assert killed.run("run", ME) is not None
    (tmp_path / "runs/run.ndjson").write_bytes(left)  # killed before it was removed
    killed.begin_run(first("live", "live"), deltas(1))
    live = (tmp_path / "runs/live.ndjson").read_bytes()
    store = Database(tmp_path)
    assert store.claim_run("live", 1) is not None
    (tmp_path / "runs/live.ndjson").write_bytes(live)
    assert Database(tmp_path).open(0) is None
    assert files(tmp_path) == []
    assert store.events("run", ME).events == [*deltas(1), Done(envelope())]
    assert store.events("live", ME).events == deltas(1)
    store.close()


def test_the_file_of_a_claimed_run_adds_nothing(store: Database, other: Database, tmp_path: Path) -> None:
    """Even if the process that lost the run wrote it to its end, and the one that has it nothing yet."""
    elsewhere = Database(tmp_path / "elsewhere")
    ended(elsewhere)
    whole = (tmp_path / "elsewhere/runs/run.ndjson").read_bytes()
    elsewhere.close()
    store.begin_run(first())
    assert other.claim_run("run", 1) == lease("run", 2)
    (tmp_path / "runs/run.ndjson").write_bytes(whole)
    assert Database(tmp_path).open(0) is None
    assert other.events("run", ME).events == []
    assert other.run("run", ME).state == "running"
    assert isinstance(other.append(lease("run", 2), 1, deltas(1)), Stored)


def test_an_empty_file_is_removed_unless_somebody_is_about_to_write(tmp_path: Path, store: Database) -> None:
    store.begin_run(first("other", "other"), deltas(1))
    path = tmp_path / "runs/run.ndjson"
    path.write_bytes(begin_line(first())[:10])
    with run_files.locked(str(path)):
        store._files.recover()
        assert path.exists()
    store._files.recover()
    assert not path.exists()


def test_a_damaged_file_is_kept_and_what_can_be_read_is_recovered(tmp_path: Path) -> None:
    killed = Database(tmp_path)
    killed.open(0)
    killed.begin_run(first(), deltas(1))
    killed.append(lease("run"), 2, deltas(2))
    killed.append(lease("run"), 3, deltas(3))
    path = tmp_path / "runs/run.ndjson"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"content_delta", b"content_dexta"), lines[3]]))
    assert "run.ndjson: " in examine(tmp_path / FILE)
    store = Database(tmp_path)
    store.open(0)
    with pytest.raises(HistoryDamaged):
        store.events("run", ME)
    assert store.claim_run("run", 1) == lease("run", 2)
    assert store.events("run", ME).events == deltas(1)
    assert files(tmp_path) == ["run.ndjson.damaged"]
    assert "kept as" in store.health.problem
    assert examine(tmp_path / FILE) == ""
    store.close()


def test_a_file_without_a_beginning_is_kept_and_reported(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/run.ndjson").write_bytes(b"nonsense\n")
    store = Database(tmp_path)
    warning = store.open(0)
    assert warning is not None
    assert "run.ndjson.damaged" in warning
    assert files(tmp_path) == ["run.ndjson.damaged"]
    store.close()


def test_a_damaged_file_of_a_run_of_this_process_is_reported(store: Database, tmp_path: Path) -> None:
    ended(store)
    path = tmp_path / "runs/run.ndjson"
    path.write_bytes(path.read_bytes().replace(b'"first":1', b'"first":2'))
    store._files.settle()
    assert "is damaged (events are missing)" in store.health.problem
    assert path.exists()


def test_a_run_whose_conversation_has_another_is_set_aside(tmp_path: Path) -> None:
    """As after a history was restored from a backup."""
    store = Database(tmp_path)
    store.begin_run(new_run("old", "conv"))
    file = RunFile(str(tmp_path / "runs"), first("new"), is_entered=False)
    file.append(begin_line(first("new")), 0)
    again = Database(tmp_path)
    warning = again.open(0)
    assert warning is not None
    assert "its conversation has another run" in warning
    assert files(tmp_path) == ["new.ndjson.damaged", "old.ndjson"]
    again.close()
    store.close()


def test_stored_events_are_compressed(store: Database, tmp_path: Path) -> None:
    said: list[DocumentEvent] = [ContentDelta("doc_001", "the same words " * 1000)]
    store.begin_run(first(), [*said, Done(envelope())], run_end())
    assert store.events("run", ME).events == [*said, Done(envelope())]
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        ((data,),) = connection.execute("SELECT data FROM events").fetchall()
    assert len(data) < 1000
    assert batches.decode(data) == [*said, Done(envelope())]
