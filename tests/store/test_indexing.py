"""What is stored is found at once by whoever searches; it is indexed behind the backs of those who write."""

import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import DocumentEnded
from cursor_gateway.stages.search_tokens import query
from cursor_gateway.store.sqlite import indexing, maintenance
from cursor_gateway.store.sqlite.indexing import Note, expression
from cursor_gateway.store.sqlite.maintenance import Maintenance
from cursor_gateway.store.texts import owner_scope, query_words
from tests.store.blocking import Database
from tests.store.making import ME, lease, new_run, run_end, text_document, whole_run
from tests.store.test_connections import locked
from tests.store.test_maintenance import sweep, wait_for
from tests.store.test_search import queries


def found(store: Database, query: str) -> list[str]:
    return [found.conversation.id for found in store.conversations(ME, query=query).found]


def indexed(store: Database) -> list[str]:
    """As it stands in the file: nobody's search has caught up with it."""
    with store._connections.reading() as connection:
        return [text for (text,) in connection.execute("SELECT text FROM texts ORDER BY run")]


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is indexed behind anybody's back."""
    monkeypatch.setattr(maintenance, "_QUIET", 3600)


@pytest.mark.usefixtures("never")
def test_who_stores_does_not_wait_for_the_index_and_who_searches_finds_all(store: Database) -> None:
    whole_run(store, "run", "conv", "word")
    store.begin_run(new_run("live", "live", "another"))
    assert indexed(store) == []
    assert (found(store, "word"), found(store, "another")) == (["conv"], ["live"])


@pytest.mark.usefixtures("never")
def test_a_run_is_found_by_its_question_while_it_runs_and_by_its_answer_when_it_has_ended(store: Database) -> None:
    store.begin_run(new_run("run", "conv", "question"))
    assert found(store, "question") == ["conv"]
    store.append(lease("run"), 1, [], run_end("run", documents=[text_document("reply")]))
    assert (found(store, "question"), found(store, "reply")) == (["conv"], ["conv"])
    assert len(indexed(store)) == 1


def test_it_is_indexed_although_nobody_searches(store: Database) -> None:
    for number in range(3):
        whole_run(store, f"run{number}", f"conv{number}", f"word{number}")
    wait_for(lambda: len(indexed(store)) == 3)


@pytest.mark.usefixtures("never")
def test_what_is_not_indexed_when_it_is_closed_is_indexed_then(tmp_path: Path) -> None:
    store = Database(tmp_path)
    store.open(0)
    whole_run(store, "run", "conv", "word")
    store.close()
    assert len(indexed(Database(tmp_path))) == 1


def test_what_a_process_had_not_indexed_when_it_died_is_indexed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Database(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "_QUIET", 3600)
        dead.open(0)
        dead.begin_run(new_run("run", "conv", "question"))
        said = [DocumentEnded(document) for document in (text_document("first"), text_document("second"))]
        dead.append(lease("run"), 1, said, run_end("run", documents=[event.document for event in said]))
        dead.begin_run(new_run("live", "live", "unfinished"))
        assert indexed(dead) == []
        store = Database(tmp_path)
        store.open(0)
        assert found(store, "question") == found(store, "first") == found(store, "second") == ["conv"]
        assert found(store, "unfinished") == []  # whoever ends it has it indexed
    store.close()


@pytest.mark.usefixtures("never")
def test_runs_that_are_indexed_together_fill_their_pages(store: Database) -> None:
    def pages() -> int:
        with store._connections.reading() as connection:
            return int(connection.execute("PRAGMA page_count").fetchone()[0])

    for number in range(40):
        whole_run(store, f"run{number}", f"conv{number}", " ".join(f"{number}w{place:02}" for place in range(100)))
    store._files.settle()
    before = pages()
    store._indexer.catch_up()
    assert len(indexed(store)) == 40
    assert pages() - before < 70  # in the order in which they were stored: 82


@pytest.mark.usefixtures("never")
def test_what_an_earlier_version_indexed_is_shown(store: Database) -> None:
    """It stored the text with the tokens."""
    whole_run(store, "run", "conv", "word")
    assert found(store, "word") == ["conv"]
    with store._connections.writing() as connection:
        connection.execute("UPDATE search SET text = 'an old word'")
        connection.execute("DELETE FROM texts")
    assert [one.snippet for one in store.conversations(ME, query="word").found] == ["an old word"]


@pytest.mark.usefixtures("never")
def test_what_is_deleted_before_it_was_indexed_never_is(store: Database) -> None:
    whole_run(store, "run", "conv", "word")
    assert store.delete_conversation("conv", ME)
    assert found(store, "word") == []
    sweep(store)
    store._indexer.note(1, Note("run", b"word", is_whole=True))  # as of a run that was swept since
    store._indexer.catch_up()
    assert indexed(store) == []


@pytest.mark.usefixtures("never")
def test_the_words_of_a_run_that_was_deleted_are_nobody_elses(tmp_path: Path, store: Database) -> None:
    """Another process deletes it, and the next run gets its key."""
    whole_run(store, "run", "conv", "secret")
    another = Database(tmp_path)
    assert another.delete_conversation("conv", ME)
    sweep(another)
    another.begin_run(new_run("next", "next", "harmless"))
    another.close()
    assert (found(store, "secret"), found(store, "harmless")) == ([], ["next"])


def test_an_answer_is_found_although_its_process_died_when_only_the_question_was_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_QUIET", 3600)
    dead = Database(tmp_path)
    dead.begin_run(new_run("run", "conv", "question"))
    assert found(dead, "question") == ["conv"]
    reply = text_document("reply")
    dead.append(lease("run"), 1, [DocumentEnded(reply)], run_end("run", documents=[reply]))
    assert found(Database(tmp_path), "reply") == ["conv"]


def test_a_batch_that_cannot_be_read_keeps_nobody_from_being_found(
    tmp_path: Path, store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_QUIET", 3600)
    for number in range(2):
        whole_run(store, f"run{number}", f"conv{number}", f"word{number}")
    with store._connections.writing() as connection:
        connection.execute("UPDATE events SET data = x'ff' WHERE place >> 32 = 1")
    assert found(Database(tmp_path), "word1") == ["conv1"]
    assert found(Database(tmp_path), "word0") == ["conv0"]


@pytest.mark.usefixtures("never")
def test_what_cannot_be_indexed_now_is_not_forgotten(store: Database, tmp_path: Path) -> None:
    whole_run(store, "run", "conv", "word")
    with locked(tmp_path):
        assert found(store, "word") == []
        with pytest.raises(StoreUnavailable):
            store._indexer.step()
        assert store._indexer.has_work
    assert found(store, "word") == ["conv"]


@pytest.mark.usefixtures("never")
def test_much_is_indexed_in_steps(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_RUNS_PER_STEP", 2)
    for number in range(5):
        whole_run(store, f"run{number}", f"conv{number}", "word")
    assert store._indexer.step()
    assert len(indexed(store)) == 2
    assert len(found(store, "word")) == 5


@pytest.mark.usefixtures("never")
def test_how_much_is_queued_is_counted_whatever_replaces_what(store: Database, tmp_path: Path) -> None:
    store.begin_run(new_run("run", "conv", "question"))
    store.append(lease("run"), 1, [], run_end("run", documents=[text_document("reply 🙂")]))
    store._files.settle()
    size = len("question\nreply 🙂".encode())  # an emoji must not make each letter take four bytes
    assert store._indexer._bytes == size
    with locked(tmp_path), pytest.raises(StoreUnavailable):
        store._indexer.step()
    assert store._indexer._bytes == size
    store._indexer.catch_up()
    assert store._indexer._bytes == 0
    assert found(store, "reply") == ["conv"]


@pytest.mark.parametrize(("limit", "value"), [("_MOST_RUNS", 2), ("_MOST_BYTES", 10)])
def test_when_much_is_queued_it_is_indexed_although_others_write(
    store: Database, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(indexing, limit, value)
    monkeypatch.setattr(maintenance.Maintenance, "_is_quiet", lambda self: bool(self._stop.wait(0.01)))  # never
    for number in range(4):
        whole_run(store, f"run{number}", f"conv{number}", f"word{number}")
    wait_for(lambda: len(indexed(store)) >= 2)
    assert found(store, "word3") == ["conv3"]


def test_it_is_quiet_when_nothing_was_written_for_a_moment(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    maintenance: Maintenance = store._maintenance
    writers = [lambda: maintenance.wrote(0), lambda: None]

    class Moment(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            writers.pop(0)()  # meanwhile
            return False

    monkeypatch.setattr(maintenance, "_many_files", Moment())
    assert not maintenance._is_quiet()
    assert maintenance._is_quiet()
    assert maintenance._is_quiet()  # still, without another look
    assert writers == []


@pytest.mark.usefixtures("never")
def test_a_long_backlog_is_read_a_few_runs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_RUNS_PER_STEP", 2)
    dead = Database(tmp_path)
    for number in range(5):
        whole_run(dead, f"run{number}", f"conv{number}", "word")
    store = Database(tmp_path)
    assert store._indexer.note_unknown()
    assert len(store._indexer._noted) == 2
    assert len(found(store, "word")) == 5
    assert not store._indexer.note_unknown()


def test_the_backlog_of_a_new_index_is_worked_off_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "_RUNS_PER_STEP", 2)
    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "_QUIET", 3600)
        dead = Database(tmp_path)
        for number in range(5):
            whole_run(dead, f"run{number}", f"conv{number}", "word")
    store = Database(tmp_path)
    store.open(0)
    wait_for(lambda: len(indexed(store)) == 5)
    store.close()


@given(queries)
def test_whatever_is_typed_is_a_valid_expression(typed: str) -> None:
    if words := query_words(typed):
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE VIRTUAL TABLE search USING fts5 (tokens)")
        match = expression(query(words), owner_scope("x"))
        connection.execute("SELECT * FROM search WHERE search MATCH ?", (match,)).fetchall()
        connection.close()


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("log", '"__c1" AND "log" *'),
        ("src/main.py log", '"__c1" AND "_src_main" AND "_main_py" AND "log" *'),
        ('say"no"', '"__c1" AND "_say_no" *'),
        ("OR x", '"__c1" AND "or" AND "x"'),  # nearly all words begin with one letter or another
    ],
)
def test_all_tokens_are_needed_and_the_last_may_be_a_prefix(typed: str, written: str) -> None:
    assert expression(query(query_words(typed)), "__c1") == written


def test_an_owner_is_one_token_whatever_the_name() -> None:
    scopes = {owner_scope(name) for name in ("a b", "a", "b", "", '"', "\ud800")}
    assert len(scopes) == 6
    assert all(scope.startswith("__") and scope[2:].isalnum() for scope in scopes)
