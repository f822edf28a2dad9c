"""Large lines of JSON: what has too many values becomes text, and nothing is lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.wire import large_json
from cursor_gateway.wire.large_json import LARGE, MAX_VALUES, bounded

MANY: list[Any] = [[]] * (MAX_VALUES // 2 + 10)


def record(content: Any) -> bytes:
    """A record of a tool call as the CLI writes it."""
    body = {"args": {"name": "x"}, "result": {"success": {"content": content}}}
    call = {"type": "tool_call", "subtype": "completed", "call_id": "a", "tool_call": {"mcpToolCall": body}}
    return json.dumps(call, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("content", ["a,b,c,[{:" * 60_000, [{"text": '\\",[{:' * 60_000}], [""] * 90_000])
def test_long_strings_are_left_as_they_are(content: Any) -> None:
    line = record(content)
    assert len(line) > LARGE
    assert bounded(line) == line


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("content", [MANY, ["x"] * (MAX_VALUES + 10), {"a": {"b": MANY}}])
def test_a_value_with_too_many_values_becomes_its_json(content: Any) -> None:
    found = json.loads(bounded(record(content)))
    result = found["tool_call"]["mcpToolCall"].pop("result")["success"]
    assert json.loads(result) == {"content": content}
    assert found["tool_call"]["mcpToolCall"] == {"args": {"name": "x"}}
    assert found["call_id"] == "a"


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(MANY).encode(),
        b"[" * LARGE,
        b'{"a":' + b"[" * LARGE,
        b'{"\\ud800":' + json.dumps(MANY).encode() + b"}",
        b'{"a":' + json.dumps(MANY).encode()[:-1] + b',"\xff"]}',
    ],
)
def test_what_is_no_record_is_cut_short(line: bytes) -> None:
    assert bounded(line) == line[:2000]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab"[,'), inner),
)


@given(st.dictionaries(st.text("abc"), values))
def test_what_is_replaced_is_its_own_json(value: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(large_json, "MAX_VALUES", 5)
        line = bounded(json.dumps(value).encode())
    assert _same(json.loads(line), value)


def _same(found: Any, value: Any) -> bool:
    match found, value:
        case str(), list() | dict():
            return bool(json.loads(found) == value)
        case dict(), dict():
            return found.keys() == value.keys() and all(_same(found[name], value[name]) for name in value)
        case _:
            return bool(found == value)
