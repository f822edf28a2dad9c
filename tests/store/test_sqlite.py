"""The protocol: what is handed in is handed out again, to its owner, once, however often it was handed in."""

import asyncio
import tempfile
import threading
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import InvalidRequest, StoreUnavailable
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, Done
from cursor_gateway.model.documents import Document, Usage
from cursor_gateway.model.run_info import RunInfo
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.store.base import Idempotency, IdempotentRun, MessageRecord, NewMessage, RunRecord
from cursor_gateway.store.sqlite.database import Database
from tests.laws.strategies import agent_events, examples
from tests.store.making import (
    EVERY_DOCUMENT,
    EVERY_EVENT,
    ME,
    YOU,
    deltas,
    envelope,
    new_run,
    run_end,
    text_document,
    whole_run,
)
from tests.store.test_search import queries


def everything(store: Database, run: str = "run", owner: str = ME) -> list[DocumentEvent]:
    return store.events(run, owner, max_bytes=10**9).events


def ids(store: Database, owner: str = ME, query: str | None = None, limit: int = 100) -> list[str]:
    return [found.conversation.id for found in store.conversations(owner, query=query, limit=limit).found]


def all_pages(store: Database, limit: int, query: str | None = None) -> list[str]:
    found: list[str] = []
    page = store.conversations(ME, limit=limit, query=query)
    while True:
        assert len(page.found) <= limit
        found += [item.conversation.id for item in page.found]
        if page.next is None:
            return found
        page = store.conversations(ME, limit=limit, query=query, before=page.next)


# --- events -----------------------------------------------------------------------------------------


def test_there_is_an_example_of_every_kind_of_event_and_document() -> None:
    assert {type(event) for event in EVERY_EVENT} == set(get_args(DocumentEvent))
    assert {type(document) for document in EVERY_DOCUMENT} == set(get_args(Document))


def test_every_kind_of_event_comes_back_as_it_was(store: Database) -> None:
    store.begin_run(new_run())
    assert store.append("run", 1, EVERY_EVENT)
    back = everything(store)
    assert back == EVERY_EVENT
    assert [type(event) for event in back] == [type(event) for event in EVERY_EVENT]


@given(agent_events, st.integers(1, 5))
@examples(40)
def test_whatever_an_agent_does_comes_back_as_it_was(did: list[AgentEvent], size: int) -> None:
    assembler = Assembler(RunInfo(id="run", created="2026-02-23T10:30:00Z", include=frozenset({"thinking", "raw"})))
    events = [out for event in did for out in assembler.push(event)]
    with tempfile.TemporaryDirectory() as folder:
        store = Database(Path(folder))
        store.begin_run(new_run())
        for start in range(0, len(events), size):
            assert store.append("run", start + 1, events[start : start + size])
        assert everything(store) == events
        for after in range(len(events) + 2):
            assert store.events("run", ME, after=after).events == events[after:]
        store.close()


@pytest.mark.parametrize("max_bytes", [1, 100, 10_000])
def test_events_come_in_pages_that_join_without_a_gap(store: Database, max_bytes: int) -> None:
    store.begin_run(new_run())
    for first in range(1, 100, 7):
        store.append("run", first, deltas(*range(first, first + 7)))
    for after in (0, 1, 6, 7, 8, 50):
        found, place = [], after
        while (page := store.events("run", ME, after=place, max_bytes=max_bytes)).events:
            assert page.first_number == place + 1
            found += page.events
            place = page.last_number
        assert found == deltas(*range(after + 1, 106))


@pytest.mark.parametrize("after", [3, 4, 10**30])
def test_after_the_last_event_there_is_none(store: Database, after: int) -> None:
    store.begin_run(new_run())
    store.append("run", 1, deltas(1, 2, 3))
    assert store.events("run", ME, after=after).events == []
    assert store.events("run", ME, after=-1).events == deltas(1, 2, 3)


def test_of_a_batch_whose_beginning_is_stored_only_the_rest_is(store: Database) -> None:
    store.begin_run(new_run())
    assert store.append("run", 1, deltas(1, 2)) is not None
    assert store.append("run", 1, deltas(1, 2)) is not None
    assert store.append("run", 1, deltas(1, 2, 3, 4))
    assert store.append("run", 4, deltas(4, 5))
    assert store.append("run", 6, []) is not None
    assert everything(store) == deltas(1, 2, 3, 4, 5)


def test_a_gap_is_a_mistake(store: Database) -> None:
    store.begin_run(new_run())
    store.append("run", 1, deltas(1))
    with pytest.raises(ValueError, match="before number 4 are missing: 2"):
        store.append("run", 4, deltas(4))
    assert everything(store) == deltas(1)


def test_events_of_a_run_that_is_not_there_are_not_stored(store: Database) -> None:
    assert store.append("run", 1, deltas(1)) is None
    assert store.end_run("run", 1, deltas(1), run_end()) is None
    assert everything(store) == []


# --- runs -------------------------------------------------------------------------------------------


def test_a_run_is_kept_as_it_began(store: Database) -> None:
    assert store.begin_run(new_run())
    store.append("run", 1, deltas(1, 2))
    expected = RunRecord(
        id="run",
        conversation_id="conv",
        owner=ME,
        instance="host:1",
        state="running",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        fences="split",
        include=frozenset({"raw", "thinking"}),
        started_ms=1000,
        first_event_ms=None,
        ended_ms=None,
        usage=None,
        failure_code=None,
        event_count=2,
    )
    assert store.run("run", ME) == expected
    assert store.runs_of("conv", ME) == [expected]
    assert store.unfinished_runs() == [expected]
    conversation = store.conversation("conv", ME)
    assert conversation is not None
    assert conversation.is_running


def test_a_run_is_kept_as_it_ended(store: Database) -> None:
    store.begin_run(new_run())
    store.append("run", 1, deltas(1, 2))
    end = run_end(session_id="s1", fingerprint="f1")
    assert store.end_run("run", 3, [Done(envelope())], end)
    run, conversation = store.run("run", ME), store.conversation("conv", ME)
    assert run is not None
    assert (run.state, run.model, run.event_count, run.failure_code) == ("completed", "opus", 3, None)
    assert (run.started_ms, run.first_event_ms, run.ended_ms) == (1000, 1500, 2000)
    assert run.usage == end.envelope.usage
    assert conversation is not None
    assert (conversation.session_id, conversation.fingerprint) == ("s1", "f1")
    assert (conversation.created_ms, conversation.updated_ms) == (1000, 2000)
    assert not conversation.is_running
    assert store.unfinished_runs() == []
    assert everything(store) == [*deltas(1, 2), Done(envelope())]


def test_usage_comes_back_with_what_was_told_and_nothing_more(store: Database) -> None:
    usage = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0, estimated=True)
    store.begin_run(new_run())
    end = run_end(status="error")
    store.end_run(
        "run", 1, [], msgspec.structs.replace(end, envelope=msgspec.structs.replace(end.envelope, usage=usage))
    )
    run = store.run("run", ME)
    assert run is not None
    assert run.usage == usage
    assert (run.state, run.failure_code) == ("error", "agent_crashed")


def test_what_is_done_twice_is_done_once(store: Database) -> None:
    for _ in range(2):
        assert store.begin_run(new_run("run", "conv", "one", "two"))
    for _ in range(2):
        assert store.end_run("run", 1, [*deltas(1), Done(envelope())], run_end()) is not None
    assert store.begin_run(new_run("run", "conv", "one", "two"))  # and does not begin again
    assert [message.text for message in store.messages("conv", ME)] == ["one", "two", "Hi"]
    assert everything(store) == [*deltas(1), Done(envelope())]
    assert ids(store, query="one") == ["conv"]
    assert store.unfinished_runs() == []


def test_what_comes_after_the_end_is_not_stored(store: Database) -> None:
    """Somebody else has ended it: whoever thought that its process was dead."""
    store.begin_run(new_run())
    store.end_run("run", 1, deltas(1), run_end())
    assert store.append("run", 1, deltas(1)) is not None
    assert store.append("run", 1, deltas(1, 2)) is None
    assert store.end_run("run", 1, deltas(1, 2), run_end(status="error")) is None
    assert everything(store) == deltas(1)


def test_an_idempotency_key_is_one_runs(store: Database) -> None:
    key = Idempotency("key", "hash")
    assert store.find_run_by_idempotency(ME, "key") is None
    assert store.begin_run(new_run("run", idempotency=key))
    assert store.begin_run(new_run("run", idempotency=key))
    assert not store.begin_run(new_run("other", "another", idempotency=key))
    assert store.run("other", ME) is None
    assert store.conversation("another", ME) is None
    assert store.find_run_by_idempotency(ME, "key") == IdempotentRun("run", "hash")


def test_a_key_can_name_a_reply_of_a_run(store: Database) -> None:
    for run in ("run", "other"):
        store.begin_run(new_run(run, run))
    for reply in (IdempotentRun("run", "hash", 7), IdempotentRun("other", "", 9)):
        store.name_reply(ME, "key", reply, 1000)
        assert store.find_run_by_idempotency(ME, "key") == reply
    store.name_reply(YOU, "key", IdempotentRun("run", "hash", 7), 1000)  # not this owner's run
    store.name_reply(ME, "none", IdempotentRun("nowhere", "hash", 7), 1000)
    assert store.find_run_by_idempotency(YOU, "key") is None
    assert store.find_run_by_idempotency(ME, "none") is None
    assert store.delete_conversation("other", ME)
    assert store.find_run_by_idempotency(ME, "key") is None


# --- conversations ----------------------------------------------------------------------------------


def test_a_conversation_goes_on_with_its_next_run(store: Database) -> None:
    whole_run(store, "a", "conv", "Mend the login\nplease", at=1000, fingerprint="f1")
    store.set_session("conv", ME, "s1", "f1")
    whole_run(store, "b", "conv", "And now?", at=5000)
    conversation = store.conversation("conv", ME)
    assert conversation is not None
    assert (conversation.title, conversation.workspace, conversation.model) == ("Mend the login", "/w", "opus")
    assert (conversation.created_ms, conversation.updated_ms) == (1000, 5000)
    assert (conversation.session_id, conversation.fingerprint) == ("s1", "f1")
    assert [run.id for run in store.runs_of("conv", ME)] == ["a", "b"]
    assert store.messages("conv", ME) == [
        MessageRecord(number=1, role="user", text="Mend the login\nplease", run_id="a", created_ms=1000),
        MessageRecord(number=2, role="assistant", text="Hi", run_id="a", created_ms=1000),
        MessageRecord(number=3, role="user", text="And now?", run_id="b", created_ms=5000),
        MessageRecord(number=4, role="assistant", text="Hi", run_id="b", created_ms=5000),
    ]


def test_a_history_that_a_client_brings_is_kept_in_its_order_and_titled_by_the_user(store: Database) -> None:
    said = [NewMessage("assistant", "Welcome"), NewMessage("user", "Thanks \ud800"), NewMessage("assistant", "Well?")]
    store.begin_run(msgspec.structs.replace(new_run(), messages=said))
    assert [(m.role, m.text) for m in store.messages("conv", ME)] == [
        ("assistant", "Welcome"),
        ("user", "Thanks \ufffd"),
        ("assistant", "Well?"),
    ]
    assert store.conversations(ME).found[0].conversation.title == "Thanks \ufffd"


def test_a_conversation_without_a_word_of_the_user_has_a_title(store: Database) -> None:
    store.begin_run(msgspec.structs.replace(new_run(), messages=[]))
    store.end_run("run", 1, [], run_end(answer=""))
    assert store.conversations(ME).found[0].conversation.title == "Untitled"
    assert store.messages("conv", ME) == []


def test_a_session_can_be_forgotten(store: Database) -> None:
    whole_run(store, "run", "conv", fingerprint="f1")
    store.set_session("conv", ME, None, None)
    conversation = store.conversation("conv", ME)
    assert conversation is not None
    assert (conversation.session_id, conversation.fingerprint) == (None, None)


def test_a_fingerprint_finds_idle_conversations_the_newest_first(store: Database) -> None:
    for number in range(3):
        whole_run(store, f"run{number}", f"conv{number}", at=1000 + number, fingerprint="f1")
    whole_run(store, "run3", "conv3", at=2000, fingerprint="f2")
    assert [c.id for c in store.find_by_fingerprint(ME, "f1")] == ["conv2", "conv1", "conv0"]
    store.begin_run(new_run("again", "conv1"))
    assert [c.id for c in store.find_by_fingerprint(ME, "f1")] == ["conv2", "conv0"]


def test_nothing_of_another_owner_is_found(store: Database) -> None:
    whole_run(store, "run", "conv", "secret", fingerprint="f1")
    store.begin_run(new_run("other", "conv2", "secret", idempotency=Idempotency("key", "hash")))
    assert store.run("run", YOU) is None
    assert store.events("run", YOU).events == []
    assert store.conversation("conv", YOU) is None
    assert store.conversations(YOU).found == []
    assert store.conversations(YOU, query="secret").found == []
    assert store.messages("conv", YOU) == []
    assert store.runs_of("conv", YOU) == []
    assert store.find_by_fingerprint(YOU, "f1") == []
    assert store.find_run_by_idempotency(YOU, "key") is None
    assert not store.delete_conversation("conv", YOU)
    store.set_session("conv", YOU, "mine", "mine")
    conversation = store.conversation("conv", ME)
    assert conversation is not None
    assert conversation.fingerprint == "f1"


def test_two_owners_may_use_the_same_names(store: Database) -> None:
    key = Idempotency("key", "hash")
    assert store.begin_run(new_run("a", "conv", "mine", idempotency=key))
    assert store.begin_run(new_run("b", "conv", "yours", owner=YOU, idempotency=key))
    assert [run.id for run in store.runs_of("conv", ME)] == ["a"]
    assert [run.id for run in store.runs_of("conv", YOU)] == ["b"]
    assert store.find_run_by_idempotency(YOU, "key") == IdempotentRun("b", "hash")
    assert store.delete_conversation("conv", ME)
    assert store.messages("conv", YOU)[0].text == "yours"


# --- pages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [None, "word"])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_hold_all_conversations_once_and_the_newest_first(store: Database, query: str | None, limit: int) -> None:
    for number in range(20):
        at = 1000 + number // 3  # several in the same moment
        whole_run(store, f"run{number:02}", f"conv{number:02}", f"word {number}", at=at)
    assert all_pages(store, limit, query) == [f"conv{number:02}" for number in reversed(range(20))]


@pytest.mark.parametrize("query", [None, "word"])
def test_what_is_added_meanwhile_neither_repeats_nor_hides_what_was_there(store: Database, query: str | None) -> None:
    for number in range(9):
        whole_run(store, f"run{number}", f"conv{number}", "word", at=1000 + number)
    found: list[str] = []
    before = None
    for turn in range(4):
        page = store.conversations(ME, limit=3, before=before, query=query)
        found += [item.conversation.id for item in page.found]
        whole_run(store, f"new{turn}", f"new{turn}", "word", at=9000)
        if query:  # a conversation that is yet to come, and one that was there, go on
            whole_run(store, f"more{turn}", "conv0", "word", at=9000)
        whole_run(store, f"again{turn}", "conv8", "word", at=9000)
        before = page.next
        if before is None:
            break
    assert found == [f"conv{number}" for number in reversed(range(9))]


def test_a_conversation_is_found_once_where_its_newest_match_is(store: Database) -> None:
    for number in range(12):
        whole_run(store, f"run{number}", f"conv{number % 3}", "word", at=1000 + number)
    whole_run(store, "last", "conv0", "something else", at=5000)
    for limit in (1, 2, 3):
        assert all_pages(store, limit, "word") == ["conv2", "conv1", "conv0"]


@pytest.mark.parametrize("query", [None, "word"])
@pytest.mark.parametrize("before", ["", "x", "ü", "W10", "WzEsIDEsIDFd", "WzFlOTksICJ4Il0", "bnVsbA", "\ud800"])
def test_a_place_that_never_was_is_refused(store: Database, before: str, query: str | None) -> None:
    with pytest.raises(InvalidRequest, match="not a cursor") as raised:
        store.conversations(ME, before=before, query=query)
    assert raised.value.param == "before"


# --- search -----------------------------------------------------------------------------------------


def test_messages_contents_commands_and_paths_are_found(store: Database) -> None:
    whole_run(store, "run", "conv", "Why does the Übersicht page fail?", documents=EVERY_DOCUMENT)
    whole_run(store, "other", "other", "Something else")
    for query in (
        "ubersicht page",
        "prose",
        "pytest -k login",
        "src/main.py",
        "main.py",
        "old_name",
        "needle",
        "TOOL_ERR",
    ):
        found = store.conversations(ME, query=query).found
        assert [item.conversation.id for item in found] == ["conv"], query
        assert found[0].snippet
    assert ids(store, query="page pytest") == ["conv"]  # of the question and of what was done
    assert ids(store, query="page nothing") == []
    assert ids(store, query="main/src") == []  # words of one piece stand in their order


def test_a_run_is_found_by_its_question_while_it_goes_on(store: Database) -> None:
    store.begin_run(new_run("run", "conv", "Mend the login"))
    assert ids(store, query="logi") == ["conv"]
    assert ids(store, query="log mend") == []  # only the last word may be a beginning


def test_a_query_without_words_finds_nothing_and_an_empty_one_lists_all(store: Database) -> None:
    whole_run(store, "run", "conv", "Hello!?")
    assert ids(store, query="!?") == []
    assert ids(store, query=" ") == ["conv"]


def test_any_text_can_be_kept_and_looked_for() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Database(Path(folder))

        @given(queries, queries)
        def try_it(said: str, query: str) -> None:
            number = len(store.runs_of("conv", ME))
            whole_run(store, f"run{number}", "conv", f"{said} marker{number}", documents=[text_document(said)])
            store.conversations(ME, query=query, limit=3)
            assert ids(store, query=f'"marker{number}') == ["conv"]
            store.run(query, ME)
            store.conversation(query, ME)

        try_it()
        store.close()


# --- threads ----------------------------------------------------------------------------------------


def test_many_threads_read_what_one_writes(store: Database) -> None:
    store.begin_run(new_run())
    done = threading.Event()

    def read() -> list[str]:
        texts: list[str] = []
        while not done.is_set() or store.events("run", ME, after=len(texts)).events:
            texts += [e.text for e in store.events("run", ME, after=len(texts)).events if isinstance(e, ContentDelta)]
        return texts

    async def both() -> list[list[str]]:
        readers = [asyncio.create_task(asyncio.to_thread(read)) for _ in range(6)]
        for number in range(1, 301):
            store.append("run", number, deltas(number))
            await asyncio.sleep(0)
        done.set()
        return await asyncio.gather(*readers)

    for texts in asyncio.run(both()):
        assert texts == [str(number) for number in range(1, 301)]


def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    store = Database(tmp_path)
    store.begin_run(new_run())
    store.close()
    store.close()
    for call in (lambda: store.append("run", 1, []), lambda: store.run("run", ME), store.size):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()


def test_a_store_that_was_never_used_leaves_no_file(tmp_path: Path) -> None:
    Database(tmp_path / "not yet").close()
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_a_store(store: Database) -> None:
    as_promised: Database = store
    assert as_promised.size() > 0
