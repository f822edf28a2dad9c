"""A full disk, a lock, a folder that is read-only: told as what they are, and over when they are over."""

import errno
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cursor_gateway.errors import SettingsError, StoreUnavailable
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent
from cursor_gateway.store.base import Fenced, Lease, Stored
from cursor_gateway.store.sqlite.opening import FILE, migrations
from tests.store.blocking import Database
from tests.store.making import ME, deltas, lease, new_run, run_end, whole_run


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def claimed_run(store: Database) -> Lease:
    """A run whose events are appended to the database, as those of every run that was claimed."""
    store.begin_run(new_run())
    found = store.claim_run("run", 1)
    assert isinstance(found, Lease)
    return found


def patience(store: Database) -> int:
    with store._connections.writing() as connection:
        return int(connection.execute("PRAGMA busy_timeout").fetchone()[0])


def test_while_another_holds_the_lock_nothing_is_written_and_all_is_read(store: Database, tmp_path: Path) -> None:
    whole_run(store, "before", "before", "word")
    assert store.conversations(ME, query="word").found  # whoever searches has all indexed that is not yet
    lease = claimed_run(store)
    with locked(tmp_path):
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="locked by another program") as raised:
                store.append(lease, 1, deltas(1))
            assert raised.value.details.startswith("SQLITE_BUSY: ")
        with pytest.raises(StoreUnavailable):
            store.begin_run(new_run("other", "other"))
        with pytest.raises(StoreUnavailable):
            store.delete_conversation("before", ME)
        assert store.run("run", ME) is not None
        assert [found.conversation.id for found in store.conversations(ME, query="word").found] == ["before"]
    assert isinstance(store.append(lease, 1, deltas(1, 2)), Stored)
    assert store.events("run", ME).events == deltas(1, 2)


def test_who_was_refused_does_not_wait_again_until_it_was_let_in(store: Database, tmp_path: Path) -> None:
    lease = claimed_run(store)
    assert patience(store) == 100
    with locked(tmp_path):
        with pytest.raises(StoreUnavailable):
            store.append(lease, 1, deltas(1))
        writer = store._connections._writer
        assert writer is not None
        assert writer.execute("PRAGMA busy_timeout").fetchone() == (0,)
    assert isinstance(store.append(lease, 1, deltas(1)), Stored)
    assert patience(store) == 100


def test_a_database_that_another_has_for_itself_is_opened_when_it_is_free(tmp_path: Path) -> None:
    first = Database(tmp_path)
    first.open(0)
    first.close()
    store = Database(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute(f"PRAGMA user_version = {len(migrations())}")
        other.execute("COMMIT")
        with pytest.raises(StoreUnavailable, match="locked by another program"):
            store.begin_run(new_run())
    assert isinstance(store.begin_run(new_run()), Stored)
    store.close()


def test_whoever_writes_for_too_long_does_not_keep_others_waiting(store: Database) -> None:
    lease = claimed_run(store)
    with store._connections.writing(), pytest.raises(StoreUnavailable, match="busy"):
        store.append(lease, 1, deltas(1))
    assert isinstance(store.append(lease, 1, deltas(1)), Stored)


def test_a_mistake_within_a_transaction_leaves_nothing_of_it(store: Database) -> None:
    whole_run(store, "before", "before")

    def half() -> None:
        with store._connections.writing() as connection:
            connection.execute("UPDATE runs SET id = 'changed'")
            connection.execute("SELECT nonsense")

    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        half()
    assert store.run("before", ME) is not None
    with pytest.raises(ZeroDivisionError), store._connections.reading():
        raise ZeroDivisionError
    assert isinstance(store.begin_run(new_run()), Stored)
    assert store.run("run", ME) is not None


def test_a_full_disk_is_reported_and_nothing_that_was_stored_is_lost(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    folder = small_disk / "data"
    store = Database(folder)
    store.begin_run(new_run())
    batch: list[DocumentEvent] = [ContentDelta("doc_001", "x" * 20_000)]
    stored = 0

    def fill() -> None:
        nonlocal stored
        while True:
            store.append(lease("run"), stored + 1, batch)
            stored += 1

    with pytest.raises(StoreUnavailable, match="full; free some space") as raised:
        fill()
    assert raised.value.details.startswith("No space left on device")
    assert stored > 20
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            store.append(lease("run"), stored + 1, batch)
    with pytest.raises(StoreUnavailable):
        store.begin_run(new_run("other", "other", "x" * 100_000))
    assert store.run("other", ME) is None
    assert store.events("run", ME, max_bytes=10**9).events == batch * stored
    ballast.unlink()
    assert isinstance(store.append(lease("run"), stored + 1, batch), Stored)
    assert isinstance(store.append(lease("run"), stored + 2, batch, run_end()), Stored)
    assert store.events("run", ME, max_bytes=10**9).events == batch * (stored + 2)
    store.close()
    again = Database(folder)
    assert again.open(0) is None
    assert again.events("run", ME, max_bytes=10**9).events == batch * (stored + 2)
    again.close()


def test_a_disk_that_is_full_from_the_start_is_reported_and_used_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(10_000_000))
    store = Database(small_disk)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            store.open(0)
        with pytest.raises(StoreUnavailable):
            store.begin_run(new_run())
        with pytest.raises(StoreUnavailable):
            store.run("run", ME)
    ballast.unlink()
    assert isinstance(store.begin_run(new_run()), Stored)
    store.close()


def test_a_disk_that_can_only_be_read_is_reported_and_used_when_it_can_be_written(small_disk: Path) -> None:
    first = Database(small_disk)
    first.begin_run(new_run())
    first.close()
    store = Database(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.open(0)
            with pytest.raises(StoreUnavailable):
                store.append(lease("run"), 1, deltas(1))
        with pytest.raises(StoreUnavailable):
            Database(small_disk / "new").open(0)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert isinstance(store.append(lease("run"), 1, deltas(1)), Stored)
    assert store.events("run", ME).events == deltas(1)
    store.close()


def test_a_connection_that_may_only_read_says_so_and_is_made_anew(store: Database) -> None:
    """As when the system makes a disk read-only because it fails."""
    lease = claimed_run(store)
    with store._connections.writing() as connection:
        pass
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="is read-only"):
        store.append(lease, 1, deltas(1))
    assert isinstance(store.append(lease, 1, deltas(1)), Stored)


def test_a_file_that_is_taken_away_is_begun_anew(store: Database, tmp_path: Path) -> None:
    lease = claimed_run(store)
    for _ in range(2):
        for file in tmp_path.glob(f"{FILE}*"):
            file.unlink()
        assert store.run("run", ME) is None
        assert isinstance(store.append(lease, 1, deltas(1)), Fenced)
        assert claimed_run(store) == lease
        assert isinstance(store.append(lease, 1, deltas(1)), Stored)
    assert store.events("run", ME).events == deltas(1)


def test_a_reader_of_a_file_that_is_gone_is_not_used_again(store: Database, tmp_path: Path) -> None:
    connections = store.store._connections
    with connections.reading():
        for file in tmp_path.glob(f"{FILE}*"):
            file.unlink()
        store.begin_run(new_run("run", "conv"))
    assert store.run("run", ME) is not None


def test_permissions_are_the_operators_to_see_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    store = Database(tmp_path)
    with pytest.raises(SettingsError, match="Permission denied; check its permissions"):
        store.open(0)
    with pytest.raises(StoreUnavailable, match="cannot be used") as raised:
        store.begin_run(new_run())
    assert "Permission denied" in raised.value.details
    assert str(tmp_path) not in str(raised.value)
