"""A database that this version can use: made, brought up to date, refused, or begun anew with the old one kept."""

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cursor_gateway.errors import HistoryDamaged, SettingsError, StoreUnavailable
from cursor_gateway.model.document_events import DocumentEnded
from cursor_gateway.store import batches
from cursor_gateway.store.base import Lease, Stored
from cursor_gateway.store.sql import Migration
from cursor_gateway.store.sqlite import opening
from cursor_gateway.store.sqlite.opening import FILE, migrations, open_database
from tests.store.blocking import Database
from tests.store.making import EVERY_DOCUMENT, ME, deltas, lease, new_run, run_end, text_document, whole_run

NOW = 1_771_842_600_000  # 2026-02-23T10:30:00Z
ASIDE = f"{FILE}.damaged-20260223T103000Z"


def filled(folder: Path, runs: int = 30) -> Path:
    store = Database(folder)
    for number in range(runs):
        whole_run(store, f"run{number}", f"conv{number}", "Mend the login " * 50, documents=EVERY_DOCUMENT)
    store.close()
    return folder / FILE


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


def works(store: Database) -> bool:
    store.begin_run(new_run("fresh", "fresh"))
    return isinstance(store.append(lease("fresh"), 1, deltas(1)), Stored)


def test_a_new_database_is_the_owners_alone_and_set_up_as_designed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    store = Database(folder)
    assert store.open(NOW) is None
    assert works(store)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600), file
    assert [file.name for file in folder.rglob("*.ndjson")] == ["fresh.ndjson"]
    store.close()
    path = folder / FILE
    assert pragma(path, "journal_mode") == "wal"
    assert pragma(path, "auto_vacuum") == 2
    assert pragma(path, "user_version") == len(migrations())
    assert not path.with_name(f"{FILE}-wal").exists()


def test_a_store_that_was_never_used_leaves_no_file(tmp_path: Path) -> None:
    Database(tmp_path / "not yet").close()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_gets_its_tables(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    store = Database(tmp_path)
    assert store.open(NOW) is None
    assert works(store)
    store.close()
    assert pragma(tmp_path / FILE, "auto_vacuum") == 2


def test_what_is_there_stays_when_it_is_opened_again(tmp_path: Path) -> None:
    filled(tmp_path)
    store = Database(tmp_path)
    assert store.open(NOW) is None
    assert len(store.conversations(ME, limit=100).found) == 30
    store.close()


def test_migrations_are_applied_once_each_and_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path)
    known = list(migrations())
    script = "CREATE TABLE extra (a TEXT);\nINSERT INTO extra VALUES ('x;\n');\n"
    monkeypatch.setattr(opening, "migrations", lambda: [*known, Migration(len(known) + 1, "extra", script)])
    for _ in range(2):
        assert open_database(path, NOW) is None
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM upkeep").fetchall() == [(len(known) + 1,)]
        assert connection.execute("SELECT a FROM extra").fetchall() == [("x;\n",)]
        assert connection.execute("SELECT count(*) FROM conversations").fetchone() == (30,)
    assert pragma(path, "user_version") == len(known) + 1


def test_an_older_history_is_searched_by_the_tokens_of_today(tmp_path: Path) -> None:
    """As format 5 stored it: the words in an index of their own, and no epochs."""
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        for migration in migrations()[:5]:
            connection.executescript(migration.script)
        connection.execute(f"PRAGMA application_id = {opening.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 5")
        values = "1, 'conv', ?, 'T', '/w', 'agent', 'auto', 1, 1, NULL, NULL"
        connection.execute(f"INSERT INTO conversations VALUES ({values})", (ME,))
        for key, state in ((1, "completed"), (2, "running")):
            connection.execute(
                "INSERT INTO runs (key, id, conversation, instance, state, model, mode, created, fences, include,"
                " started_ms) VALUES (?, ?, 1, 'i', ?, 'auto', 'agent', '2026-02-23T10:30:00Z', 'split', '[]', 1)",
                (key, f"run{key}", state),
            )
        connection.execute("INSERT INTO messages VALUES (1, 1, 'user', 'Rename getUserName', 1, 1)")
        said = batches.encode([DocumentEnded(text_document("修复登录页面"))])
        connection.execute("INSERT INTO events VALUES (1 << 32 | 1, 1, ?)", (said,))
        connection.execute("INSERT INTO search (rowid, scope, words) VALUES (-1, 'o c1', 'Rename getUserName')")
        connection.commit()
    store = Database(tmp_path)
    assert store.open(NOW) is None
    for query in ("rename", "getUserName", "user_name", "登录"):
        assert [found.conversation.id for found in store.conversations(ME, query=query).found] == ["conv"], query
    assert [run.epoch for run in store.runs_of("conv", ME)] == [1, 1]
    assert isinstance(store.append(Lease("run2", 1), 1, [], run_end("run2")), Stored)
    store.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path)
    known = list(migrations())
    broken = Migration(len(known) + 1, "extra", "CREATE TABLE extra (a TEXT);\nCREATE TABLE extra (a TEXT);\n")
    monkeypatch.setattr(opening, "migrations", lambda: [*known, broken])
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        open_database(path, NOW)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema WHERE name = 'extra'").fetchall() == []
    assert pragma(path, "user_version") == len(known)


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "newer", ["CREATE TABLE newer (a)", "UPDATE upkeep SET version = 99"], ids=["other tables", "exactly our tables"]
)
def test_a_newer_database_is_refused_and_left_alone(newer: str, tmp_path: Path) -> None:
    path = filled(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(newer)
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    store = Database(tmp_path)
    known = len(migrations())
    with pytest.raises(SettingsError, match=rf"newer cursor-gateway \(format 99, this version supports {known}\)"):
        store.open(NOW)
    with pytest.raises(StoreUnavailable, match="cannot be used") as raised:
        store.begin_run(new_run())
    assert "newer cursor-gateway" in raised.value.details
    store.close()
    assert path.read_bytes() == before


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(SettingsError, match="another program's"):
        Database(tmp_path).open(NOW)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_database_that_another_process_is_creating_is_not_another_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    path, connect, executed = tmp_path / FILE, opening.connect, count(1)

    class Slow:
        """The other process creates the tables after so many of its statements."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, *statement: Any) -> Any:
            found = self._connection.execute(*statement).fetchall()
            if next(executed) == after:
                monkeypatch.setattr(opening, "connect", connect)
                opening.update(path, 1)
            return Mock(fetchone=lambda: found[0])

    monkeypatch.setattr(opening, "connect", lambda *given: Slow(connect(*given)))
    opening.update(path, 1)
    assert pragma(path, "user_version") == len(migrations())


def test_a_folder_that_can_be_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SettingsError, match="cannot be kept in") as raised:
            Database(folder).open(NOW)
        assert raised.value.param == "data_dir"


# --- what is set aside ------------------------------------------------------------------------------


def no_database(path: Path) -> None:
    path.write_bytes(b"This is a letter, not a database. " * 200)


def a_smashed_header(path: Path) -> None:
    change(path, 0, b"\xff" * 100)


def half_a_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def a_smashed_page(path: Path) -> None:
    change(path, path.stat().st_size // 2 // 4096 * 4096, b"\xff" * 4096)


def a_smashed_schema(path: Path) -> None:
    change(path, 100, b"\xff" * 3000)


# How many of 30 conversations are recovered at least.
DAMAGES = {no_database: 0, a_smashed_header: 30, half_a_file: 30, a_smashed_page: 29, a_smashed_schema: 30}


@pytest.mark.parametrize(("damage", "least"), DAMAGES.items())
def test_a_damaged_database_is_kept_and_what_can_be_read_is_recovered(
    tmp_path: Path, damage: Callable[[Path], None], least: int
) -> None:
    path = filled(tmp_path)
    damage(path)
    damaged = path.read_bytes()
    store = Database(tmp_path)
    warning = store.open(NOW)
    assert warning is not None
    assert "was damaged" in warning
    assert str(tmp_path / ASIDE) in warning
    assert (tmp_path / ASIDE).read_bytes() == damaged
    found = store.conversations(ME, limit=100).found
    assert len(found) >= least
    assert f"{len(found)} conversations recovered" in warning
    assert works(store)
    store.close()
    again = Database(tmp_path)
    assert again.open(NOW) is None
    assert again.run("fresh", ME) is not None
    again.close()


def test_what_was_set_aside_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / FILE
    for number in range(3):
        path.write_text(f"no database, the {number}. " * 100)
        path.with_name(f"{FILE}-wal").write_text(f"log {number}")
        assert open_database(path, NOW) is not None
    for number, name in enumerate([ASIDE, f"{ASIDE}-2", f"{ASIDE}-3"]):
        assert f"the {number}." in (tmp_path / name).read_text()
        assert (tmp_path / f"{name}-wal").read_text() == f"log {number}"


def test_damage_that_shows_later_is_reported_and_mended_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file is not read through at every start."""
    monkeypatch.setattr(opening, "_CHECKED_WHOLE", 0)
    path = filled(tmp_path)
    for page in range(44, path.stat().st_size // 4096):  # after the schema
        change(path, page * 4096, b"\xff" * 4096)
    store = Database(tmp_path)
    assert store.open(NOW) is None
    for _ in range(2):
        with pytest.raises(HistoryDamaged, match="damaged; restart the gateway"):
            [store.events(f"run{number}", ME) for number in range(30)]
    assert "is damaged" in store.store.health.problem
    store.close()
    again = Database(tmp_path)
    assert again.open(NOW) is not None
    assert works(again)
    again.close()
    assert open_database(path, NOW) is None


def test_a_damaged_index_is_made_anew_from_what_it_is_of(tmp_path: Path) -> None:
    path = filled(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM search_data WHERE id > 100")
        connection.commit()
    store = Database(tmp_path)
    assert store.open(NOW) is None
    assert len(store.conversations(ME, query="login", limit=100).found) == 30
    store.close()
