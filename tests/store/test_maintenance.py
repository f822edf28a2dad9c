"""What is deleted is gone, to the last word in the file, in short steps; and the log does not grow for ever."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from string import ascii_letters

import pytest
from msgspec.structs import replace

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent
from cursor_gateway.store.base import HistoryLimits, Idempotency
from cursor_gateway.store.sqlite import maintenance
from cursor_gateway.store.sqlite.opening import FILE
from tests.store.blocking import Database
from tests.store.making import (
    DAY_MS,
    ME,
    YOU,
    append_patiently,
    deltas,
    lease,
    new_run,
    run_end,
    text_document,
    whole_run,
)


def sweep(store: Database) -> None:
    """Now, and not behind our backs."""
    assert store.prune(HistoryLimits(), 0) == 0


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.005)
    pytest.fail("it never came true")


def words_in_files(folder: Path, word: str) -> list[str]:
    return [file.name for file in folder.rglob("*") if file.is_file() and word.encode() in file.read_bytes()]


def rows(store: Database) -> dict[str, int]:
    tables = ("conversations", "runs", "messages", "events", "idempotency", "search")
    with store._connections.reading() as connection:
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def test_a_run_that_goes_on_after_its_conversation_was_deleted_leaves_no_row(store: Database) -> None:
    store.begin_run(new_run())
    store.delete_conversation("conv", ME)
    sweep(store)
    store.append(lease("run"), 1, deltas(1))
    store.append(lease("run"), 1, deltas(1), run_end())
    assert rows(store) == dict.fromkeys(rows(store), 0)


def test_no_row_is_left_of_what_is_too_old_or_too_much(store: Database) -> None:
    for day in range(3):
        whole_run(store, f"run{day}", f"conv{day}", at=day * DAY_MS)
    whole_run(store, "yours", "yours", owner=YOU, at=2 * DAY_MS)
    assert store.prune(HistoryLimits(max_age_seconds=1), 2 * DAY_MS) == 2
    assert (rows(store)["conversations"], rows(store)["runs"]) == (2, 2)
    assert store.prune(HistoryLimits(max_bytes_per_owner=0), 0) == 2
    assert rows(store) == dict.fromkeys(rows(store), 0)


@pytest.mark.parametrize("rebuilds", [False, True])
def test_nothing_of_what_was_deleted_is_left_in_any_file(
    tmp_path: Path, rebuilds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the index is merged or rebuilt."""
    monkeypatch.setattr(maintenance, "_MERGES_PER_REBUILD", 0 if rebuilds else 1)
    store = Database(tmp_path)
    for number in range(40):
        whole_run(store, f"run{number}", f"conv{number}", f"Keepsake{number}", documents=[text_document("common")])
    store.begin_run(new_run("secret", "secret", "Xylophone", idempotency=Idempotency("Xylophone", "h")))
    store.append(lease("secret"), 1, [ContentDelta("doc_001", f"Xylophone {'x' * 5000}") for _ in range(20)])
    end = run_end(documents=[text_document("xylophone")], answer="Xylophone")
    store.append(lease("secret"), 21, [], replace(end, session_id="Xylophone", fingerprint="Xylophone"))
    assert words_in_files(tmp_path, "Xylophone")
    assert store.conversations(ME, query="xylophone").found  # its words are in the index now
    store.delete_conversation("secret", ME)
    sweep(store)
    assert words_in_files(tmp_path, "Xylophone") == []
    assert words_in_files(tmp_path, "xylophone") == []
    assert len(store.conversations(ME, query="common", limit=100).found) == 40
    assert rows(store)["conversations"] == 40
    with store._connections.reading() as connection:
        assert connection.execute("SELECT merges FROM upkeep").fetchone() == (0 if rebuilds else 1,)
    store.close()


def test_an_index_that_cannot_be_rebuilt_now_is_merged(
    tmp_path: Path, store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_MERGES_PER_REBUILD", 0)
    whole_run(store, "run", "conv", "Xylophone")
    assert store.conversations(ME, query="xylophone").found
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not store._maintenance._rebuild_index()
    monkeypatch.setattr(store._maintenance, "_rebuild_index", lambda: False)
    store.delete_conversation("conv", ME)
    sweep(store)
    assert words_in_files(tmp_path, "xylophone") == []


def test_it_is_done_behind_the_backs_of_those_who_write(store: Database, tmp_path: Path) -> None:
    whole_run(store, "run", "conv", "Xylophone")
    store.delete_conversation("conv", ME)
    wait_for(lambda: rows(store)["conversations"] == 0 and not words_in_files(tmp_path, "Xylophone"))


def test_what_was_left_to_remove_is_removed_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(maintenance.Maintenance, "sweep_soon", lambda self: None)
        store = Database(tmp_path)
        whole_run(store, "run", "conv", "Xylophone")
        store.delete_conversation("conv", ME)
        store.close()
    again = Database(tmp_path)
    again.open(0)
    wait_for(lambda: rows(again)["conversations"] == 0)
    again.close()


def test_closing_does_not_wait_until_all_is_removed(tmp_path: Path) -> None:
    store = Database(tmp_path)
    store.begin_run(new_run())
    for number in range(1, 501):
        store.append(lease("run"), number, deltas(number))
    store.delete_conversation("conv", ME)
    store.close()
    with pytest.raises(StoreUnavailable):
        sweep(store)
    again = Database(tmp_path)
    sweep(again)
    assert rows(again) == dict.fromkeys(rows(again), 0)
    again.close()


# --- limits -----------------------------------------------------------------------------------------


def test_the_oldest_go_until_the_rest_fits_and_the_disk_gets_its_space_back(store: Database) -> None:
    text = "".join(Random(1).choices(ascii_letters, k=40_000))  # which takes space even if it is compressed
    batch: list[DocumentEvent] = [ContentDelta("doc_001", text)]
    for number in range(100):
        store.begin_run(new_run(f"run{number}", f"conv{number:03}", at=1000 + number))
        store.append(lease(f"run{number}"), 1, batch)
        store.append(lease(f"run{number}"), 2, batch, run_end(at=1000 + number))
    store.conversations(ME, query="word")  # all is indexed now: nothing is written in the background from here on
    before = store.size()
    limit = 2_000_000
    assert before > limit
    gone = store.prune(HistoryLimits(max_bytes=limit), 10**6)
    assert 0 < gone < 100
    assert store.size() <= limit
    kept = [found.conversation.id for found in store.conversations(ME, limit=200).found]
    assert kept == [f"conv{number:03}" for number in range(99, gone - 1, -1)]
    assert store.events("run99", ME).events == batch * 2


def test_while_all_is_removed_others_can_write(store: Database) -> None:
    """No step is long: who waits to write gets its turn."""
    for number in range(200):
        whole_run(store, f"run{number}", f"conv{number}", "word " * 50)
    store.begin_run(new_run("live", "live", at=10**6))
    removing = threading.Thread(target=store.prune, args=(HistoryLimits(max_age_seconds=1), 10**5))
    removing.start()
    for number in range(1, 201):
        append_patiently(store, "live", number)
    removing.join()
    assert store.run("live", ME) is not None
    assert len(store.events("live", ME).events) == 200
    assert rows(store)["conversations"] == 1


# --- the log ----------------------------------------------------------------------------------------


def test_the_log_is_copied_into_the_database_and_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_LOG_BYTES", 100_000)
    monkeypatch.setattr(maintenance, "_LONGEST_LOG", 200)
    store = Database(tmp_path)
    store.begin_run(new_run())
    lease = store.claim_run("run", 1)  # so that its events are appended to the database
    log = tmp_path / f"{FILE}-wal"

    lengths: list[int] = []

    def begins_anew() -> bool:
        store.append(lease, len(lengths) + 1, [ContentDelta("doc_001", "x" * 10_000)])
        lengths.append(log.stat().st_size)
        return len(lengths) > 500 and lengths[-1] == lengths[-100]

    wait_for(begins_anew)
    assert (tmp_path / FILE).stat().st_size > 4_000_000
    assert len(store.events("run", ME, max_bytes=10**9).events) == len(lengths)
    store.close()
    assert not log.exists()


def test_what_is_deleted_while_it_sweeps_is_swept_too(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last look at what is deleted is over when somebody else deletes something."""
    for name in ("first", "second"):
        whole_run(store, name, name, "word")
    release_pages = maintenance.Maintenance._release_pages

    def meanwhile(keeper: maintenance.Maintenance) -> bool:
        store.delete_conversation("second", ME)
        return release_pages(keeper)

    monkeypatch.setattr(maintenance.Maintenance, "_release_pages", meanwhile)
    assert store.delete_conversation("first", ME)
    wait_for(lambda: rows(store)["conversations"] == 0)


def test_a_mistake_does_not_end_the_thread(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_run(store, "run", "conv", "word")
    with monkeypatch.context() as patch:
        called = threading.Event()

        def fail(keeper: maintenance.Maintenance) -> bool:
            called.set()
            raise KeyError

        patch.setattr(maintenance.Maintenance, "_is_anything_deleted", fail)
        assert store.delete_conversation("conv", ME)
        assert called.wait(30)
    whole_run(store, "next", "next", "word")
    assert store.delete_conversation("next", ME)
    wait_for(lambda: rows(store)["conversations"] == 0)


def test_what_a_migration_has_left_free_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_FEW_PAGES", 10)
    store = Database(tmp_path)
    store.open(0)
    with store._connections.writing() as connection:
        connection.execute("CREATE TABLE old (data BLOB)")
        connection.execute("INSERT INTO old VALUES (zeroblob(1000000))")
        connection.execute("DROP TABLE old")
    before = store.size()
    sweep(store)
    assert store.size() < before - 900_000
    store.close()
