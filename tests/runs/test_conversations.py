"""Conversations: whose they are, what of them the agent knows already, and which run the next one waits for."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cursor_gateway.errors import InvalidRequest, NotFound, RunCancelled, StoreUnavailable
from cursor_gateway.model.agent_events import RunFinished, TextDelta
from cursor_gateway.model.messages import AssistantMessage, Instructions, Message, UserMessage
from cursor_gateway.prompting.fingerprints import Scope
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.log import LiveLog, Quoted
from cursor_gateway.runs.run import Run
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.store.base import NewMessage, NewRun
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.runs.scripted import at_once, info, new_run
from tests.store.blocking import blocking

SCOPE = Scope(owner="me", workspace="/w", mode="agent")
TOLD: list[Message] = [UserMessage("one"), AssistantMessage("1")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path)
    yield opened
    blocking(opened).close()


@pytest.fixture
def latest() -> dict[str, Run]:
    return {}


@pytest.fixture
def known(store: SqliteStore, tmp_path: Path, latest: dict[str, Run]) -> Conversations:
    return Conversations(store, tmp_path / "conversations", latest=latest.get)


def said(
    store: SqliteStore, id: str = "conv_1", owner: str = "me", session_id: str | None = "session-1", asked: str = "one"
) -> None:
    """A turn of this conversation, from its prompt to its answer `1`."""
    run_id = f"chat_{id}_{asked}"
    new = NewRun(
        id=run_id,
        conversation_id=id,
        owner=owner,
        instance="instance",
        workspace="/w",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        messages=[NewMessage("user", asked)],
        started_ms=0,
    )
    log = LiveLog(store, new, lambda: 0)
    log.session_id = session_id
    scope = Scope(owner=owner, workspace="/w", mode="agent")
    log.quoted = Quoted(scope, [UserMessage(asked)])
    assert at_once(log.begin()) is None
    assembler = Assembler(info(run_id, id))
    log.add([*assembler.push(TextDelta("1")), *assembler.push(RunFinished())])
    assert at_once(log.try_again())


# --- by name --------------------------------------------------------------------------------------------


def test_one_is_found_by_its_owner_with_what_was_said(known: Conversations, store: SqliteStore) -> None:
    said(store)
    found = asyncio.run(known.named("conv_1", "me", None, [UserMessage("two")]))
    assert (found.id, found.workspace, found.session_id) == ("conv_1", "/w", "session-1")
    assert (list(found.known), list(found.new), found.given_known) == (TOLD, [UserMessage("two")], 0)
    assert asyncio.run(known.named("conv_1", "me", "/w", [UserMessage("two")])) == found


def test_what_the_request_tells_of_it_stands(known: Conversations, store: SqliteStore) -> None:
    said(store)
    result: list[Message] = [Instructions("Be brief."), *TOLD]
    found = asyncio.run(known.named("conv_1", "me", None, [*result, UserMessage("two"), UserMessage("three")]))
    assert (list(found.known), found.given_known) == (result, 3)
    assert list(found.new) == [UserMessage("two"), UserMessage("three")]


def test_somebody_elses_cannot_be_distinguished_from_none_at_all(known: Conversations, store: SqliteStore) -> None:
    said(store)
    result = set()
    for id, owner in (("conv_1", "you"), ("conv_2", "me"), ("", "me"), ("../../etc", "me"), ("x" * 10_000, "me")):
        with pytest.raises(NotFound) as caught:
            asyncio.run(known.named(id, owner, None, [UserMessage("two")]))
        assert caught.value.param == "conversationId"
        result.add(str(caught.value).replace(repr(id[:100]), "X"))
    assert len(result) == 1


def test_it_does_not_move(known: Conversations, store: SqliteStore) -> None:
    said(store)
    with pytest.raises(InvalidRequest, match="uses the workspace '/w'") as caught:
        asyncio.run(known.named("conv_1", "me", "/elsewhere", [UserMessage("two")]))
    assert caught.value.param == "workspace"


def test_something_new_must_be_said(known: Conversations, store: SqliteStore) -> None:
    said(store)
    with pytest.raises(InvalidRequest, match="no new message") as caught:
        asyncio.run(known.named("conv_1", "me", None, TOLD))
    assert caught.value.param == "messages"


# --- by what was said -----------------------------------------------------------------------------------


def test_a_client_that_tells_all_is_known_by_what_it_tells(known: Conversations, store: SqliteStore) -> None:
    said(store)
    found = at_once(known.find_by_history(SCOPE, [*TOLD, UserMessage("two")]))
    assert (found.id, found.session_id, list(found.new)) == ("conv_1", "session-1", [UserMessage("two")])
    assert (list(found.known), found.given_known) == (TOLD, 2)


@pytest.mark.parametrize(
    "messages",
    [
        [UserMessage("one")],
        [UserMessage("one"), AssistantMessage("2"), UserMessage("two")],
        [UserMessage("other"), AssistantMessage("1"), UserMessage("two")],
        [Instructions("Be brief."), *TOLD, UserMessage("two")],
        [*TOLD, UserMessage("two"), AssistantMessage("2"), UserMessage("three")],
        TOLD,
    ],
)
def test_another_story_is_another_conversation(
    known: Conversations, store: SqliteStore, messages: list[Message]
) -> None:
    said(store)
    found = at_once(known.find_by_history(SCOPE, messages))
    assert found.id != "conv_1"
    assert (found.session_id, list(found.known), list(found.new)) == (None, [], messages)


@pytest.mark.parametrize(
    "scope",
    [
        Scope(owner="you", workspace="/w", mode="agent"),
        Scope(owner="me", workspace="/other", mode="agent"),
        Scope(owner="me", workspace="/w", mode="plan"),
        Scope(owner="me", workspace="/w", mode="agent", tools=("bash",)),
        Scope(owner="me", workspace="/w", mode="agent", client_session="tab"),
    ],
)
def test_the_same_story_elsewhere_is_another_conversation(
    known: Conversations, store: SqliteStore, scope: Scope
) -> None:
    said(store)
    assert at_once(known.find_by_history(scope, [*TOLD, UserMessage("two")])).id != "conv_1"


def test_one_at_work_is_passed_over_for_another_that_said_the_same(
    known: Conversations, latest: dict[str, Run], store: SqliteStore
) -> None:
    said(store, "conv_1")
    said(store, "conv_2")
    messages = [*TOLD, UserMessage("two")]
    first = at_once(known.find_by_history(SCOPE, messages)).id
    busy = new_run("chat_2")
    latest[first] = busy
    second = at_once(known.find_by_history(SCOPE, messages)).id
    assert {first, second} == {"conv_1", "conv_2"}
    latest[second] = busy
    assert at_once(known.find_by_history(SCOPE, messages)).id not in (first, second)


def test_a_history_that_is_out_of_reach_costs_the_memory_and_not_the_answer(
    known: Conversations, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("The history is out of reach; try again.")

    said(store)
    monkeypatch.setattr(store, "conversations", refuse)
    messages: list[Message] = [*TOLD, UserMessage("two")]
    assert list(at_once(known.find_by_history(SCOPE, messages)).new) == messages


# --- one turn at a time ---------------------------------------------------------------------------------


def test_the_session_is_that_of_the_latest_run(
    known: Conversations, latest: dict[str, Run], store: SqliteStore
) -> None:
    said(store, session_id="session-1")
    run = new_run("chat_2", session_id="session-2")
    latest["conv_1"] = run
    assert asyncio.run(known.named("conv_1", "me", None, [UserMessage("two")])).session_id == "session-2"
    run.log.session_id = None
    assert asyncio.run(known.named("conv_1", "me", None, [UserMessage("two")])).session_id == "session-1"


# --- removing -------------------------------------------------------------------------------------------


def test_folders_without_a_conversation_are_strays(
    known: Conversations, latest: dict[str, Run], store: SqliteStore
) -> None:
    said(store, "conv_1")
    latest["conv_2"] = new_run()  # the store did not take it yet
    for id in ("conv_1", "conv_2", "conv_3", "notes"):
        known.folder(id).mkdir(parents=True)
    for id in ("conv_1", "conv_3", "conv_4"):
        (known.data / "changes" / id).mkdir(parents=True)
    made = known.folder("conv_3").stat().st_mtime
    assert asyncio.run(known.strays(store, made + 60)) == []  # young ones may be about to be stored
    assert sorted(asyncio.run(known.strays(store, made + 7200))) == ["conv_3", "conv_4"]


def test_the_files_of_each_conversation_are_counted(known: Conversations, store: SqliteStore) -> None:
    said(store, "conv_1")
    for id in ("conv_1", "conv_2", "notes"):
        (known.folder(id) / "images").mkdir(parents=True)
        (known.folder(id) / "images" / "a.png").write_bytes(b"x" * 999)
        (known.folder(id) / "broken").symlink_to("a")
    assert asyncio.run(known.file_sizes()) == {"conv_1": 1000, "conv_2": 1000}


def test_a_run_that_was_stopped_keeps_nobody_waiting(
    known: Conversations, latest: dict[str, Run], store: SqliteStore
) -> None:
    said(store)
    run = new_run("chat_2", session_id="session-1")
    latest["conv_1"] = run
    messages = [*TOLD, UserMessage("two")]
    assert at_once(known.find_by_history(SCOPE, messages)).id != "conv_1"
    run.machine.stop_reason = RunCancelled("Stopped.")
    assert at_once(known.find_by_history(SCOPE, messages)).id == "conv_1"
