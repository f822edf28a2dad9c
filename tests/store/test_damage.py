"""Damaged files of a history: whatever the damage, the store opens, keeps the damaged file, recovers what can be read,
and fails for what cannot be read alone."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from cursor_gateway.errors import HistoryDamaged, StoreUnavailable
from cursor_gateway.model.document_events import Done
from cursor_gateway.runs.handle import end_interrupted_runs
from cursor_gateway.store.base import HistoryLimits, Stored
from cursor_gateway.store.sql import UNREADABLE, message_of
from cursor_gateway.store.sqlite import copying, opening
from cursor_gateway.store.sqlite.opening import FILE, examine
from tests.store.blocking import Database
from tests.store.damages import damage
from tests.store.making import EVERY_DOCUMENT, ME, new_run, whole_run

NOW = 1_771_842_600_000
RUNS = 20


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One that was closed, and one whose process was killed: most of it is in the WAL."""
    closed, killed = (tmp_path_factory.mktemp("histories") / name for name in ("closed", "killed"))
    store = Database(closed)
    for number in range(RUNS):
        whole_run(store, f"run{number}", f"conv{number}", f"Mend the login {number}", documents=EVERY_DOCUMENT)
    store._files.settle()
    shutil.copytree(closed, killed)
    store.close()
    return closed, killed


@pytest.fixture
def history(histories: tuple[Path, Path], tmp_path: Path) -> Path:
    return shutil.copytree(histories[0], tmp_path / "history") / FILE


def tolerant(call: Callable[[], object]) -> object:
    """No other error than this one."""
    try:
        return call()
    except StoreUnavailable as error:
        return error


def use(store: Database) -> int:
    """Everything that there is. Returns the number of conversations."""
    page = store.conversations(ME, limit=100)
    for found in page.found:
        tolerant(partial(store.messages, found.conversation.id, ME))
        runs = tolerant(partial(store.runs_of, found.conversation.id, ME))
        for run in runs if isinstance(runs, list) else []:
            tolerant(partial(store.events, run.id, ME))
    tolerant(lambda: store.conversations(ME, query="login", limit=100))
    tolerant(lambda: store.recent_runs(ME, 10))
    tolerant(lambda: store.prune(HistoryLimits(max_bytes=10**9), NOW))
    tolerant(lambda: store.delete_conversation("conv0", ME))
    return len(page.found)


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize("number", range(300))
def test_whatever_the_damage_the_store_opens_and_works(
    histories: tuple[Path, Path], tmp_path: Path, number: int
) -> None:
    folder = shutil.copytree(histories[number % 3 == 0], tmp_path / "history")
    name = damage(folder, number)
    store = Database(folder)
    warning = store.open(NOW)
    asyncio.run(end_interrupted_runs(store.store, lambda instance: False, NOW))
    count = use(store)
    assert isinstance(store.begin_run(new_run("fresh", "fresh")), Stored), name
    store.close()
    aside = [file for file in folder.iterdir() if ".damaged-" in file.name]
    assert bool(aside) == (warning is not None and "kept as" in warning), name
    if aside:
        assert warning is not None
        assert str(folder / f"{FILE}.damaged-") in warning
        assert f"{count} conversation" in warning
    assert not (folder / f"{FILE}.recovering").exists()
    again = Database(folder)
    assert again.open(NOW) is None, name
    again.close()
    assert examine(folder / FILE) == ""


# --- what is recovered ------------------------------------------------------------------------------


def test_an_answer_whose_end_is_damaged_is_ended_as_interrupted_with_what_was_before(history: Path) -> None:
    with closing(sqlite3.connect(history)) as connection:
        places = [place for (place,) in connection.execute("SELECT place FROM events WHERE place >> 32 = 3")]
        connection.execute("UPDATE events SET data = x'ff' WHERE place = ?", places[-1:])
        connection.commit()
    assert "a row cannot be read" in examine(history)
    store = Database(history.parent)
    warning = store.open(NOW)
    assert warning is not None
    assert f"{RUNS} conversations recovered, 1 answer only in part" in warning
    assert asyncio.run(end_interrupted_runs(store.store, lambda instance: False, NOW)) == 1
    (run,) = store.runs_of("conv2", ME)
    assert (run.state, run.failure_code) == ("error", "gateway_restarted")
    assert isinstance(store.events("run2", ME).events[-1], Done)
    assert len(store.conversations(ME, query="login", limit=100).found) == RUNS
    store.close()


def test_a_recovery_that_was_interrupted_is_done_again(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(history.read_bytes())
    data[:16] = bytes(16)
    history.write_bytes(data)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(copying, "salvage", killed)
        with pytest.raises(KeyboardInterrupt):
            opening.open_database(history, NOW)
    assert not history.exists()
    warning = opening.open_database(history, NOW)
    assert warning is not None
    assert f"{RUNS} conversations recovered" in warning


def test_no_other_process_makes_a_new_file_during_a_recovery(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Database(history.parent)
    assert len(other.conversations(ME, limit=100).found) == RUNS
    salvage = copying.salvage

    def meanwhile(damaged: Path, new: Path) -> object:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="another gateway recovers it"):
                other.begin_run(new_run("fresh", "fresh"))
        assert not history.exists()
        return salvage(damaged, new)

    monkeypatch.setattr(copying, "salvage", meanwhile)
    with closing(sqlite3.connect(history)) as connection:
        connection.execute("UPDATE events SET data = x'ff' WHERE place = (SELECT max(place) FROM events)")
        connection.commit()
    assert f"{RUNS} conversations recovered" in str(opening.open_database(history, NOW))
    assert isinstance(other.begin_run(new_run("fresh", "fresh")), Stored)
    assert len(other.conversations(ME, limit=100).found) == RUNS + 1
    other.close()
    assert opening.examine(history) == ""


@pytest.mark.parametrize("version", [2, 8, 99, 2**31 - 1, 0])
def test_a_wrong_number_in_the_header_costs_nothing(history: Path, version: int) -> None:
    with closing(sqlite3.connect(history)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("PRAGMA application_id = 7")
    store = Database(history.parent)
    warning = store.open(NOW)
    assert warning is not None
    assert len(store.conversations(ME, limit=100).found) == RUNS
    store.close()


def test_a_warning_does_not_quote_what_was_found_in_the_list_of_tables(history: Path) -> None:
    with closing(sqlite3.connect(history)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        found = "a prompt " * 1000
        connection.execute("UPDATE sqlite_schema SET name = ?, sql = 'x' WHERE name = 'calls_of_run'", (found,))
    assert examine(history) == "malformed database schema"
    store = Database(history.parent)
    assert str(store.open(NOW)).startswith(
        "The history was damaged (malformed database schema). The damaged file is kept as"
    )
    store.close()


def test_an_empty_file_that_was_used_before_is_reported(history: Path) -> None:
    opening.open_database(history, NOW)
    history.write_bytes(b"")
    store = Database(history.parent)
    assert "was empty; a new one was started" in str(store.open(NOW))
    store.close()


# --- damage that shows later ------------------------------------------------------------------------


@pytest.fixture
def later(history: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Database]]:
    """A store that was opened before this statement damaged it."""
    store = Database(history.parent)
    assert store.open(NOW) is None

    def damaged(statement: str) -> Database:
        with closing(sqlite3.connect(history)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            assert connection.execute(statement).rowcount == 1
            connection.commit()
        return store

    yield damaged
    store.close()


_ROWS = {
    "UPDATE conversations SET updated_ms = 1 << 62 WHERE id = 'conv4'": "conversation",
    "UPDATE conversations SET mode = x'00ff' WHERE id = 'conv4'": "conversation",
    "UPDATE runs SET include = '{' WHERE id = 'run4'": "runs_of",
    "UPDATE runs SET total_tokens = 'many' WHERE id = 'run4'": "runs_of",
    "UPDATE runs SET state = 'jumping' WHERE id = 'run4'": "runs_of",
    "UPDATE messages SET role = 'nobody' WHERE conversation = 5 AND number = 1": "messages",
    "UPDATE messages SET text = x'00' WHERE conversation = 5 AND number = 1": "messages",
}


@pytest.mark.parametrize(("statement", "call"), _ROWS.items())
def test_a_damaged_row_costs_its_conversation_alone(
    later: Callable[[str], Database], statement: str, call: str
) -> None:
    store = later(statement)
    for _ in range(2):
        with pytest.raises(HistoryDamaged, match="restart the gateway"):
            getattr(store, call)("conv4", ME)
    assert "is damaged" in store.store.health.problem
    others = {found.conversation.id for found in store.conversations(ME, limit=100).found}
    assert others >= {f"conv{number}" for number in range(RUNS) if number != 4}
    assert getattr(store, call)("conv5", ME)
    assert isinstance(store.begin_run(new_run("fresh", "fresh")), Stored)
    assert store.delete_conversation("conv4", ME)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b'[{"event":"nonsense"}]', b'[{"event":"result_follows","id":"x"}]']
)
def test_damaged_events_cost_their_run_alone(later: Callable[[str], Database], data: bytes) -> None:
    last = "SELECT max(place) FROM events WHERE place >> 32 = 5"
    store = later(f"UPDATE events SET data = x'{data.hex()}' WHERE place = ({last})")
    if data != b"[]":
        with pytest.raises(HistoryDamaged):
            store.events("run4", ME)
    assert store.events("run5", ME).events
    assert len(store.conversations(ME, limit=100).found) == RUNS


def test_text_that_is_no_utf_8_is_shown_as_far_as_it_can_be(later: Callable[[str], Database]) -> None:
    store = later("UPDATE conversations SET title = CAST(x'4d656e64ff' AS TEXT) WHERE id = 'conv4'")
    assert store.conversation("conv4", ME).title == "Mend\ufffd"


def test_a_damaged_index_costs_searches_alone_until_the_next_start(later: Callable[[str], Database]) -> None:
    store = later("UPDATE search_data SET block = x'ff' WHERE id = (SELECT max(id) FROM search_data)")
    tolerant(lambda: store.conversations(ME, query="login"))
    assert isinstance(store.begin_run(new_run("fresh", "fresh")), Stored)
    assert len(store.conversations(ME, limit=100).found) == RUNS + 1


@pytest.mark.parametrize(
    ("error", "is_damage"),
    [
        (sqlite3.OperationalError("locked"), False),
        (opening.Damaged("a page"), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text"), True),
    ],
)
def test_which_errors_are_damage(error: Exception, is_damage: bool) -> None:
    assert opening.is_damage(error) is is_damage


def test_a_message_whose_images_are_no_text_is_damaged() -> None:
    with pytest.raises(UNREADABLE):
        message_of({"number": 1, "role": "user", "text": "", "run_id": "run", "created_ms": 1, "images": 5})
