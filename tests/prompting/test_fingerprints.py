"""The same conversation has the same fingerprint; any other one, and anybody else's, has another."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cursor_gateway.dialects.chat.dialect import read_request
from cursor_gateway.model.messages import AssistantMessage, Instructions, Message, ToolCall, ToolMessage, UserMessage
from cursor_gateway.prompting.fingerprints import Scope, answered, fingerprint

SCOPE = Scope(owner="a", workspace="/w", mode="agent")
TALK: list[Message] = [
    Instructions("Be brief."),
    UserMessage("Hi", images=("1.png",)),
    AssistantMessage("Hello.", (ToolCall("c", "bash", "{}"),)),
    ToolMessage("done", "c", "bash"),
    AssistantMessage("Done."),
]

texts = st.text(max_size=5)
messages = st.lists(
    st.one_of(
        st.builds(Instructions, texts),
        st.builds(UserMessage, texts),
        st.builds(AssistantMessage, texts),
        st.builds(ToolMessage, texts, texts),
    ),
    max_size=5,
)


@pytest.mark.parametrize(
    "other",
    [{"owner": "b"}, {"workspace": "/v"}, {"mode": "ask"}, {"tools": ("bash",)}, {"client_session": "ses_1"}],
    ids=lambda other: next(iter(other)),
)
def test_a_session_is_found_in_its_own_scope_only(other: dict[str, object]) -> None:
    assert fingerprint(SCOPE, TALK) != fingerprint(msgspec.structs.replace(SCOPE, **other), TALK)


@pytest.mark.parametrize(
    "other",
    [
        TALK[:-1],
        TALK[1:],
        [*TALK[:2], *TALK[:1:-1]],
        [*TALK, UserMessage("More.")],
        [Instructions("Be long."), *TALK[1:]],
        [TALK[0], UserMessage("Hi"), *TALK[2:]],
        [TALK[0], UserMessage("Hi", images=("2.png",)), *TALK[2:]],
        [*TALK[:2], AssistantMessage("Hello.", (ToolCall("c", "bash", '{"a": 1}'),)), *TALK[3:]],
        [*TALK[:2], AssistantMessage("Hello.", (ToolCall("c", "bash", "no JSON"),)), *TALK[3:]],
        [TALK[0], UserMessage("Hi", images=("1.png",), name="x"), *TALK[2:]],
        [*TALK[:2], AssistantMessage("Hello."), *TALK[3:]],
        [*TALK[:3], ToolMessage("done", "d"), *TALK[4:]],
    ],
)
def test_another_history_is_another(other: list[Message]) -> None:
    assert fingerprint(SCOPE, TALK) != fingerprint(SCOPE, other)


def test_what_clients_change_on_the_way_does_not_matter() -> None:
    sent_back: list[Message] = [
        Instructions("Be brief.\n"),
        UserMessage(" Hi", images=("1.png",)),
        AssistantMessage("Hello.\n\n", (ToolCall("c", "bash", " { } "),)),
        ToolMessage("done\n", "c"),
        AssistantMessage("Do\n\nne."),  # it came in two parts
    ]
    assert fingerprint(SCOPE, TALK) == fingerprint(SCOPE, sent_back)


@given(messages, messages)
def test_two_histories_share_a_fingerprint_only_when_they_say_the_same(one: list[Message], two: list[Message]) -> None:
    assume([(type(m), "".join(m.text.split())) for m in one] != [(type(m), "".join(m.text.split())) for m in two])
    assert fingerprint(SCOPE, one) != fingerprint(SCOPE, two)


def test_what_is_answered_ends_with_the_last_answer() -> None:
    assert answered([]) == answered(TALK[:2]) == 0
    assert answered(TALK) == answered([*TALK, UserMessage("More.")]) == 5
    assert answered(TALK[:4]) == 3


# --- what clients write about the date, the folder and git ----------------------------------------------
# Each file in `snapshots` has the shape of a client's requests, in words of our own: a conversation as it was `sent`,
# the same `again` on the next day after a file was written, and `another` one, which differs in something else.

RECORDINGS = sorted((Path(__file__).parent / "snapshots").glob("*.json"))
GIT, END_OF_GIT = '<context name="gitStatus">', "</context>"
DATE, END_OF_DATE = "<system-reminder>\nThe current date is: ", "</system-reminder>"


def recorded(messages: list[dict[str, Any]]) -> str:
    return fingerprint(SCOPE, read_request(msgspec.json.encode({"model": "auto", "messages": messages})).messages)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_same_conversation_is_recognized_on_another_day(path: Path) -> None:
    recording = json.loads(path.read_text(encoding="utf-8"))
    sent, again, another = (recorded(recording[name]) for name in ("sent", "again", "another"))
    assert sent == again != another
    assert recording["sent"] != recording["again"]


def same(kind: type[Instructions | UserMessage], one: str, two: str) -> bool:
    return fingerprint(SCOPE, [kind(one)]) == fingerprint(SCOPE, [kind(two)])


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (UserMessage, "Hi.<system-reminder>\nBe brief.\n</system-reminder>", "Hi."),
        (UserMessage, f"Hi.{DATE}Tuesday", f"Hi.{DATE}Wednesday"),  # which does not end
        (UserMessage, f"Hi.{GIT}a{END_OF_GIT}", f"Hi.{GIT}b{END_OF_GIT}"),  # not in the instructions
        (UserMessage, "Current date: 2026-11-17", "Current date: 2026-11-18"),
        (Instructions, f"Hi.{DATE}Tuesday{END_OF_DATE}", f"Hi.{DATE}Wednesday{END_OF_DATE}"),
        (Instructions, f"Current date: {'a' * 41}", f"Current date: {'b' * 41}"),  # no date
        (Instructions, "The Current date: a", "The Current date: b"),
    ],
)
def test_nothing_else_is_ignored(kind: type[Instructions | UserMessage], one: str, two: str) -> None:
    assert not same(kind, one, two)


def test_each_passage_is_ignored_wherever_it_stands() -> None:
    assert same(Instructions, f"A.\n\n{GIT}1{END_OF_GIT}\n\nB.{GIT}2{END_OF_GIT}", "A.\nB.")
    assert same(UserMessage, f"{DATE}1{END_OF_DATE}\nA.", "A.")
    assert same(Instructions, "A.\n  Today's date: x", "A.\n  Today's date: y")
