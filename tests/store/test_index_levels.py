"""However often something is deleted, the index stays one that SQLite can read.

FTS5 puts what it merges a level or two higher each time, and takes more than 2,000 levels for damage: found by a soak,
after a thousand deletions. So the index is made anew from time to time.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cursor_gateway.store.sqlite import maintenance
from cursor_gateway.store.sqlite.opening import FILE
from tests.store.blocking import Database
from tests.store.making import ME, whole_run

RUNS, KEPT = 80, 10  # each deletion adds two levels to an index that nobody makes anew


def levels(folder: Path) -> int:
    """The first number after the four bytes at the start of FTS5's record of its parts."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        (structure,) = connection.execute("SELECT block FROM search_data WHERE id = 10").fetchone()
    found = 0
    for byte in structure[4:]:
        found = found << 7 | byte & 0x7F
        if not byte & 0x80:
            break
    return found


def test_the_index_is_made_anew_long_before_it_has_too_many_levels() -> None:
    assert 2 * maintenance._MERGES_PER_REBUILD < 2000


def test_deletions_do_not_raise_the_index_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_MERGES_PER_REBUILD", 25)
    store = Database(tmp_path)
    store.open(0)
    whole_run(store, "kept", "kept")
    most = 0
    for number in range(RUNS):
        whole_run(store, f"run{number}", f"conv{number}", " ".join(f"word{number * nth % 499}" for nth in range(50)))
        if number >= KEPT:
            store._indexer.catch_up()
            assert store.delete_conversation(f"conv{number - KEPT}", ME)
            store._maintenance.sweep()
        most = max(most, levels(tmp_path))
    assert most < 80, most
    store.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
    again = Database(tmp_path)
    assert again.open(0) is None
    assert again.run("kept", ME) is not None
    assert [found.conversation.id for found in again.conversations(ME, query="word1").found] != []
    again.close()
