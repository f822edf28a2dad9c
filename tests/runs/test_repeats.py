"""Replies that are given once more: which call ids are ours, which questions are the same, what is remembered."""

from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.caller_tools import NoTool, Offer, Tool
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs import repeats
from cursor_gateway.runs.caller_tools import call_id, run_of
from cursor_gateway.runs.repeats import Deliveries, Repeats, request_key
from cursor_gateway.runs.run_service import RunRequest
from cursor_gateway.store.base import IdempotentRun
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.runs.scripted import at_once
from tests.store.blocking import blocking
from tests.store.making import ME, YOU, new_run

RUN = f"chat_{'0a' * 16}"
OFFER = Offer(tools=[Tool("weather")])


def test_a_call_tells_its_run() -> None:
    for number in (1, 12, 1000):
        assert run_of(call_id(RUN, number)) == RUN
    assert len(call_id(RUN, 999)) == 40


@pytest.mark.parametrize(
    "id", ["", "call_", "call_1", "toolu_1", call_id(RUN, 1)[:-1], f"{call_id(RUN, 1)}x", call_id(RUN, 1)[1:]]
)
def test_other_calls_are_of_no_run(id: str) -> None:
    assert run_of(id) is None


def key(text: str = "Hello", **more: Any) -> str:
    asked = {"owner": ME, "messages": [UserMessage(text)], "model": "auto", "offer": OFFER, **more}
    return request_key(RunRequest(**asked), "agent")


def test_a_question_is_what_is_asked_and_by_whom() -> None:
    assert key(" Hello\n", body=b"{}") == key()
    others = [
        key(owner=YOU),
        key("Hallo"),
        key(model="another"),
        key(offer=None),
        key(offer=Offer(tools=OFFER.tools, choice=NoTool())),
        key(instructions="Briefly."),
        key(question_id="turn 1"),
    ]
    assert len({key(), *others}) == 8


def test_a_question_that_its_client_names_is_known_by_that_and_its_messages() -> None:
    named = key(question_id="turn 1")
    assert key(question_id="turn 1", offer=None, model="another") == named
    others = [key(question_id="turn 2"), key("Hallo", question_id="turn 1"), key(question_id="turn 1", owner=YOU)]
    assert len({named, *others}) == 4


def test_replies_are_found_in_memory_and_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_MOST", 2)
    store = SqliteStore(tmp_path)
    blocking(store).begin_run(new_run("run"))
    known = Repeats(store)
    for number in range(3):
        at_once(known.note(ME, f"key{number}", IdempotentRun("run", "", number), 1000))
    assert known.recent(ME, "key0") is None
    found = [at_once(known.find(ME, f"key{number}")) for number in range(3)]
    assert found == [IdempotentRun("run", "", n) for n in range(3)]
    assert at_once(known.find(YOU, "key2")) is None
    known.forget(ME, "key2")
    assert known.recent(ME, "key2") is None
    assert at_once(Repeats(store).find(ME, "key1")) == IdempotentRun("run", "", 1)
    blocking(store).close()


class Unreachable(SqliteStore):
    async def find_run_by_idempotency(self, owner: str, key: str) -> IdempotentRun | None:
        raise StoreUnavailable("The disk is gone.")

    async def name_reply(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        raise StoreUnavailable("The disk is gone.")


def test_without_the_store_replies_of_this_process_are_known(tmp_path: Path) -> None:
    known = Repeats(Unreachable(tmp_path))
    at_once(known.note(ME, "key", IdempotentRun("run", "", 3), 1000))
    assert at_once(known.find(ME, "key")) == IdempotentRun("run", "", 3)
    assert at_once(known.find(ME, "other")) is None


# --- when a question is a retry, and when it is asked again ----------------------------------------


def test_a_question_is_asked_again_some_time_after_its_answer() -> None:
    now = [0.0]
    known = Deliveries(5, lambda: now[0])
    assert not known.is_asked_again("me", "key")
    known.note("me", "key")
    now[0] = 4
    assert not known.is_asked_again("me", "key")
    known.note("me", "key")  # the retry was answered, too
    now[0] = 8
    assert not known.is_asked_again("me", "key")
    now[0] = 9
    assert not known.is_asked_again("you", "key")
    assert not known.is_asked_again("me", "another")
    assert known.is_asked_again("me", "key")
    assert not known.is_asked_again("me", "key")  # its own retry


def test_only_so_many_deliveries_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_MOST", 2)
    known = Deliveries(0, lambda: 0.0)
    for key in ("a", "b", "a", "c"):
        known.note("me", key)
    assert [key for key in ("a", "b", "c") if known.is_asked_again("me", key)] == ["a", "c"]
