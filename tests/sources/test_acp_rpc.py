"""Lines as JSON-RPC messages, and back."""

import json

import pytest

from cursor_gateway.sources.acp.rpc import error_text, line_of, message_of


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"id":"a","error":{"code":-32000,"message":"no"}}',
        b'{"method":"session/update","params":{}}',
        b'{"id":0,"method":"session/request_permission","params":{}}',
        b'{"id":null,"method":"session/request_permission","params":{}}',
        b'{"id":1.5,"method":"session/request_permission","params":{}}',
        b'{"id":1.0,"result":0}',
        b'{"id":1,"error":"words"}',
        b'{"id":1}',
    ],
)
def test_messages_are_read(line: bytes) -> None:
    assert message_of(line) == json.loads(line)


@pytest.mark.parametrize(
    "line",
    [
        b"Debugger attached.",
        b"[]",
        b"42",
        b'"text"',
        b"{}",
        b'{"jsonrpc":"2.0"',
        b'{"id":[1],"result":0}',
        b'{"id":null,"error":{"code":-32700,"message":"Parse error"}}',
        b'{"method":7}',
        b'{"id":1,"method":7,"result":0}',
        b'{"method":"a","id":[1]}',
        b"\xff\xfe",
        b'{"method":"a","params":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"method":"\\ud83d","params":' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}",
        b'["\\ud83d"]',
    ],
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    assert message_of(line) is None


def test_half_a_character_is_kept_where_the_other_half_may_follow() -> None:
    chunk = b'{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","text":"\\ud83d"}}}'
    other = b'{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","text":"\\ud83d"}}}'
    assert message_of(chunk) == {
        "method": "session/update",
        "params": {"update": {"sessionUpdate": "agent_message_chunk", "text": "\ud83d"}},
    }
    assert message_of(other) == {
        "method": "session/update",
        "params": {"update": {"sessionUpdate": "tool_call", "text": "\ufffd"}},
    }


def test_a_value_with_very_many_values_is_given_as_json() -> None:
    many: list[list[int]] = [[]] * 150_000
    update = {"sessionUpdate": "tool_call_update", "rawOutput": {"content": many}, "content": many}
    message = message_of(line_of({"method": "session/update", "params": {"sessionId": "s", "update": update}}))
    assert message is not None
    found = message["params"]["update"]
    assert json.loads(found["content"]) == many
    assert json.loads(found["rawOutput"]["content"]) == many
    assert found["sessionUpdate"] == "tool_call_update"


def test_a_message_is_one_line() -> None:
    assert line_of({"text": "a\nb"}) == b'{"text":"a\\nb"}\n'
    assert line_of({"text": "\ud83d"}) == '{"text":"\ufffd"}\n'.encode()


def test_an_error_is_read_in_each_of_its_shapes() -> None:
    assert error_text("Internal error", {"message": "no"}) == "Internal error: no"
    assert error_text("Internal error", {"details": "no"}) == "Internal error: no"
    assert error_text("Internal error", [{"message": "a"}, {"message": "b"}]) == "Internal error: a: b"
    assert error_text("Internal error", "no") == "Internal error: no"
    assert error_text("Internal error", None) == "Internal error"
