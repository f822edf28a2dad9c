"""The same conversation has the same fingerprint; any other one, and anybody else's, has another."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cursor_gateway.model.messages import AssistantMessage, Call, Instructions, Message, ToolMessage, UserMessage
from cursor_gateway.prompting.fingerprints import Scope, answered, fingerprint

SCOPE = Scope(owner="a", workspace="/w", mode="agent")
TALK: list[Message] = [
    Instructions("Be brief."),
    UserMessage("Hi", images=("1.png",)),
    AssistantMessage("Hello.", (Call("c", "bash", "{}"),)),
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
    [
        {"owner": "b"},
        {"workspace": "/v"},
        {"mode": "ask"},
        {"tools": ("bash",)},
        {"client_session": "ses_1"},
    ],
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
        [*TALK[:2], AssistantMessage("Hello.", (Call("c", "bash", '{"a": 1}'),)), *TALK[3:]],
        [*TALK[:2], AssistantMessage("Hello.", (Call("c", "bash", "no JSON"),)), *TALK[3:]],
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
        AssistantMessage("Hello.\n\n", (Call("c", "bash", " { } "),)),
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
