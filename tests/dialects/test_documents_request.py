"""Requests of the documents dialect: every field is read, and what is wrong is named."""

import json
from typing import Any

import pytest

from cursor_gateway.dialects.documents_request import ChatRequest, read_chat_request
from cursor_gateway.errors import InvalidRequest


def read(**fields: Any) -> ChatRequest:
    return read_chat_request(json.dumps(fields).encode())


def test_a_message_is_enough() -> None:
    assert read(message="Say it.") == ChatRequest(message="Say it.")


def test_every_field_is_read() -> None:
    assert read(
        message="Say it.",
        conversationId="conv_1",
        model="gpt-5-mini",
        mode="plan",
        stream=True,
        include=["thinking", "raw"],
        fences="inline",
        workspace="/w",
        images=["data:image/png;base64,AA=="],
    ) == ChatRequest(
        message="Say it.",
        conversation_id="conv_1",
        model="gpt-5-mini",
        mode="plan",
        stream=True,
        include=["thinking", "raw"],
        fences="inline",
        workspace="/w",
        images=["data:image/png;base64,AA=="],
    )


def test_null_is_the_same_as_leaving_out() -> None:
    left_out = dict.fromkeys(("conversationId", "model", "mode", "fences", "workspace"))
    assert read(message="Say it.", **left_out) == ChatRequest(message="Say it.")


def test_the_message_stays_as_it_is() -> None:
    assert read(message="  two\n lines ").message == "  two\n lines "


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "message"),
        ({"message": ""}, "message"),
        ({"message": " \n"}, "message"),
        ({"message": ["a"]}, "message"),
        ({"message": "a", "model": ""}, "model"),
        ({"message": "a", "mode": "wild"}, "mode"),
        ({"message": "a", "include": ["everything"]}, "include[0]"),
        ({"message": "a", "fences": "both"}, "fences"),
        ({"message": "a", "stream": "yes"}, "stream"),
        ({"message": "a", "images": "x"}, "images"),
        ({"message": "a", "conversation_id": "c"}, "conversation_id"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    assert caught.value.param == param
    assert caught.value.status == 400
