"""JSON-RPC messages."""

import msgspec
import pytest

from cursor_gateway.mcp_server.messages import (
    HostReply,
    Notification,
    Request,
    RpcError,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    read_message,
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}', Request(1, "ping", {})),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "x", "params": {"b": 1}}', Request("a", "x", {"b": 1})),
        (b'{"jsonrpc": "2.0", "method": "x"}', Notification("x", {})),
        (b'{"jsonrpc": "2.0", "id": 2, "result": {"c": 1}}', HostReply(2, {"c": 1})),
        (b'{"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": ""}}', HostReply(2, {})),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud83d"}', Request(1, "\ufffd", {})),  # half a surrogate pair
    ],
)
def test_a_message_is_read(data: bytes, message: object) -> None:
    assert read_message(data) == message


@pytest.mark.parametrize(
    ("data", "code", "id"),
    [
        (b"{", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"[]", -32600, None),
        (b"1", -32600, None),
        (b'{"jsonrpc": "2.0", "id": 3, "method": 1}', -32600, 3),
        (b'{"jsonrpc": "2.0", "id": true, "method": 1}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": %d, "method": "ping"}' % 2**64, -32600, None),
        (b'{"jsonrpc": "2.0", "id": "%s", "method": "ping"}' % (b"x" * 201), -32600, None),
        (b'{"jsonrpc": "1.0", "id": 3, "method": "x"}', -32600, 3),
        (b'{"jsonrpc": "2.0"}', -32600, None),
    ],
)
def test_what_is_no_message_is_an_error(data: bytes, code: int, id: int | None) -> None:
    with pytest.raises(RpcError) as raised:
        read_message(data)
    assert (raised.value.code, raised.value.id) == (code, id)


def test_what_is_written_is_read_again() -> None:
    assert read_message(encode_request("a", "x", {"b": 1})) == Request("a", "x", {"b": 1})
    assert read_message(encode_notification("x", {})) == Notification("x", {})


def test_results_and_errors_are_written() -> None:
    assert msgspec.json.decode(encode_result(1, {"a": 1})) == {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}
    error = msgspec.json.decode(encode_error(None, RpcError(-1, "No.", {"b": 2})))
    assert error == {"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "No.", "data": {"b": 2}}}
    assert "data" not in msgspec.json.decode(encode_error(1, RpcError(-1, "No.")))["error"]
