"""Answers that are looked up."""

import json
from typing import Any

import pytest

from cursor_gateway.dialects.responses.dialect import deleted, list_items, starting_after
from cursor_gateway.errors import InvalidRequest

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "three"}]},
]


def page(**query: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(list_items(ITEMS, query))
    return found


def test_items_are_complete() -> None:
    one, two, called, output, three = page(order="asc")["data"]
    assert one == {
        "type": "message",
        "id": "msg_input_0",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "one"}],
    }
    assert two["content"] == [{"type": "output_text", "text": "two", "annotations": []}]
    assert called == ITEMS[2]
    assert output == {**ITEMS[3], "id": "fco_input_3"}
    assert three["content"] == ITEMS[4]["content"]


def test_the_latest_comes_first() -> None:
    found = page()
    assert [item["id"] for item in found["data"]] == [
        "msg_input_4",
        "fco_input_3",
        "fc_1",
        "msg_input_1",
        "msg_input_0",
    ]
    assert (found["first_id"], found["last_id"], found["has_more"]) == ("msg_input_4", "msg_input_0", False)
    assert page(order="") == found


def test_pages() -> None:
    first = page(limit="2", order="asc")
    assert (first["last_id"], first["has_more"]) == ("msg_input_1", True)
    rest = page(order="asc", after="msg_input_1")
    assert (rest["first_id"], rest["has_more"]) == ("fc_1", False)
    assert page(order="asc", after="msg_input_4") == {
        "object": "list",
        "data": [],
        "first_id": "",
        "last_id": "",
        "has_more": False,
    }


@pytest.mark.parametrize(
    ("name", "value"), [("limit", "0"), ("limit", "x"), ("limit", "101"), ("order", "up"), ("after", "msg_9")]
)
def test_a_wrong_query_names_its_field(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        page(**{name: value})
    assert raised.value.param == name


def test_the_last_event_that_a_reader_has() -> None:
    assert starting_after({}) == -1
    assert starting_after({"starting_after": "7"}) == 7
    with pytest.raises(InvalidRequest):
        starting_after({"starting_after": "-1"})


def test_a_deleted_answer() -> None:
    assert json.loads(deleted("resp_1")) == {"id": "resp_1", "object": "response", "deleted": True}
