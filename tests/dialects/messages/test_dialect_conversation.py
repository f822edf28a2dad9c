"""Anthropic's messages: every block is read or skipped, and how a text is written changes nothing."""

import base64
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.deltas import MARK
from cursor_gateway.dialects.messages.dialect import (
    MessageContent,
    MessagesConversation,
    WireMessage,
    read_conversation,
)
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.messages import AssistantMessage, Instructions, Message, ToolCall, ToolMessage, UserMessage
from tests.strategies import examples

PNG = base64.b64encode(b"png").decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
CALL = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"a": 1}}
CALLED = AssistantMessage("", (ToolCall("call_1", "look", '{"a":1}'),))


def read(*messages: tuple[str, Any], system: MessageContent | None = None, max_images: int = 5) -> MessagesConversation:
    wire = [WireMessage(role, content) for role, content in messages]  # type: ignore[arg-type] # each one of them
    return read_conversation(system, wire, max_images)


def said(*messages: tuple[str, Any], system: MessageContent | None = None) -> list[Message]:
    return list(read(*messages, system=system).messages)


def text(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


# --- roles ------------------------------------------------------------------------------------------


def test_a_string_and_a_block_are_the_same() -> None:
    as_strings = said(("user", "Hi"), ("assistant", "Yes?"), ("system", "Env."), ("user", "Go."), system="Be kind.")
    cached = {"cache_control": {"type": "ephemeral"}}
    as_blocks = said(
        ("user", [text("Hi", **cached)]),
        ("assistant", [text("Yes?")]),
        ("system", [text("Env.")]),
        ("user", [text("Go.", **cached)]),
        system=[text("Be kind.", **cached)],
    )
    assert as_strings == as_blocks
    expected = [Instructions("Be kind."), UserMessage("Hi"), AssistantMessage("Yes?"), Instructions("Env.")]
    assert as_strings == [*expected, UserMessage("Go.")]


def test_the_billing_line_is_no_part_of_the_instructions() -> None:
    billed = [text("x-anthropic-billing-header: cc_version=2.1; cch=ab12"), text("Be kind."), text("Be short.")]
    assert said(("user", "Hi"), system=billed)[0] == Instructions("Be kind.\n\nBe short.")
    assert said(("user", "Hi"), system=billed[:1]) == [UserMessage("Hi")]
    assert said(("user", "Hi"), ("system", "")) == [UserMessage("Hi")]


def test_several_user_messages_stay_apart_and_the_last_may_be_the_assistants() -> None:
    messages = said(("user", "Hi"), ("user", [text("a"), text("b")]), ("assistant", "{"))
    assert messages == [UserMessage("Hi"), UserMessage("a\nb"), AssistantMessage("{")]


def test_an_answer_is_its_texts_joined_without_the_gateways_own() -> None:
    answer = [
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "redacted_thinking", "data": "x"},
        text("Look:"),
        text(f"\n{MARK}Ran `ls`\n"),
        text(f"{MARK}Ran `ls`\n"),
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        text("\nThere."),
        CALL,
        {"type": "something_new", "text": None},
    ]
    assert said(("user", "Hi"), ("assistant", answer))[1] == AssistantMessage("Look:\nThere.", CALLED.calls)


# --- results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"content": "ok"}, ToolMessage("ok", "call_1", "look")),
        ({"content": [text("a"), text("b")], "is_error": True}, ToolMessage("a\nb", "call_1", "look", (), True)),
        ({}, ToolMessage("", "call_1", "look")),
        ({"content": [{"type": "tool_reference", "tool_name": "x"}]}, ToolMessage("x", "call_1", "look")),
    ],
)
def test_results_are_messages(content: dict[str, Any], expected: ToolMessage) -> None:
    result = {"type": "tool_result", "tool_use_id": "call_1", **content}
    assert said(("user", "Hi"), ("assistant", [CALL]), ("user", [result])) == [UserMessage("Hi"), CALLED, expected]


def test_reminders_beside_a_result_belong_to_it_and_a_persons_words_do_not() -> None:
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "ok"}
    reminder = "<system-reminder>Be quick.</system-reminder>"
    messages = said(("assistant", [CALL]), ("user", [result, text(reminder), text("Also this.")]), ("system", "Env."))
    assert messages == [
        CALLED,
        ToolMessage(f"ok\n\n{reminder}", "call_1", "look"),
        UserMessage("Also this."),
        Instructions("Env."),
    ]
    empty = {"type": "tool_result", "tool_use_id": "call_1"}
    noted = ToolMessage("<system-reminder>\nEnv.\n</system-reminder>", "call_1", "look")
    assert said(("assistant", [CALL]), ("user", [empty]), ("system", "Env.")) == [CALLED, noted]
    assert said(("user", [text(reminder), text("Hi")])) == [UserMessage(f"{reminder}\nHi")]


# --- images and documents ---------------------------------------------------------------------------


def test_images_belong_to_their_messages() -> None:
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [text("See"), IMAGE]}
    data_uri = {"type": "image", "source": {"type": "url", "url": f"data:image/png;base64,{PNG}"}}
    found = read(("user", [text("Hi"), IMAGE]), ("assistant", [CALL]), ("user", [result, data_uri]), system="S")
    assert [image.message for image in found.images] == [1, 3, 4]
    shown = [found.messages[place] for place in (1, 3, 4)]
    assert [message.images for message in shown if not isinstance(message, AssistantMessage | Instructions)] == [
        (found.images[0].name,)
    ] * 3


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}, "[Image: https://x/a.png]"),
        ({"type": "document", "source": {"type": "text", "data": "D"}, "title": "T"}, "T\nD"),
        ({"type": "document", "source": {"type": "content", "content": [text("D"), text("E")]}}, "D\nE"),
        ({"type": "document", "source": {"type": "content", "content": "D"}}, "D"),
        ({"type": "document", "source": {"type": "content"}}, ""),
        ({"type": "document", "source": {"type": "url", "url": "https://x"}}, "[Document: https://x]"),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "R3LDvMOfZQ=="}},
            "Grüße",
        ),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "/w=="}},
            "[A document that the agent cannot read: text/plain]",
        ),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}},
            "[A document that the agent cannot read: application/pdf]",
        ),
        (
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
            "[A document that the agent cannot read: a stored file]",
        ),
        ({"type": "search_result", "source": "https://x", "title": "", "content": [text("R")]}, "https://x\nR"),
    ],
)
def test_documents_are_read_as_text(block: dict[str, Any], expected: str) -> None:
    assert said(("user", [text("Hi"), block]))[0] == UserMessage(f"Hi\n{expected}")


def test_a_document_has_its_title_and_its_context() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "abc"}
    block = {"type": "document", "source": source, "title": "Notes", "context": "Of May."}
    assert said(("user", [block])) == [UserMessage("Notes\nOf May.\nabc")]


def test_a_summary_stands_for_what_came_before() -> None:
    summary = {"type": "compaction", "content": "We counted."}
    assert said(("user", [summary, text("Go on.")])) == [UserMessage("We counted.\nGo on.")]
    assert said(("user", "Hi"), ("assistant", [summary]))[1] == AssistantMessage("We counted.")


@pytest.mark.parametrize(
    "source",
    [
        {"type": "file", "file_id": "f"},
        {"type": "base64", "media_type": "image/tiff", "data": PNG},
        {"type": "base64", "media_type": "image/png", "data": "%"},
    ],
)
def test_an_image_that_cannot_be_shown_is_refused(source: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        said(("user", [{"type": "image", "source": source}]))
    assert refused.value.param == "messages[0].content[0].source"


# --- limits -----------------------------------------------------------------------------------------


def test_too_many_images_are_refused() -> None:
    result = {"type": "tool_result", "tool_use_id": "x", "content": [IMAGE]}
    with pytest.raises(InvalidRequest, match="2 images"):
        read(("user", [IMAGE, result]), max_images=1)


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="limit is 10,000"):
        said(*[("user", "Hi")] * 10_001)


@pytest.mark.parametrize("content", ["", " ", [], [text("")], [{"type": "thinking"}], ["nothing"]])
def test_a_conversation_of_nothing_is_refused(content: Any) -> None:
    with pytest.raises(InvalidRequest, match="no text and no image"):
        said(("user", content))


def test_an_image_or_a_call_is_something() -> None:
    assert said(("user", [IMAGE]))
    assert said(("assistant", [CALL]))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "source"]), inner),
    max_leaves=8,
)
_kinds = st.sampled_from(["text", "image", "document", "tool_use", "tool_result", "search_result", "thinking", "x"])
_blocks = st.fixed_dictionaries(
    {"type": _kinds},
    optional=dict.fromkeys(("text", "source", "content", "input", "id", "tool_use_id", "name", "is_error"), _json),
)


@examples(300)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), st.lists(_blocks, max_size=4)), min_size=1))
def test_any_blocks_are_read_or_refused(messages: list[tuple[str, list[dict[str, Any]]]]) -> None:
    with suppress(InvalidRequest):
        assert msgspec.json.encode(said(*messages))
