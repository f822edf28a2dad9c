"""Headers of a request, and its body."""

from typing import Any

import pytest

from cursor_gateway.mcp_server.messages import Request, RpcError
from cursor_gateway.mcp_server.peers import accepts_both, check_headers

META: dict[str, Any] = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
SAID = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "run"}
CALL = Request(1, "tools/call", {"name": "run", **META})


def test_headers_that_agree_with_the_body_pass() -> None:
    check_headers(CALL, SAID)
    check_headers(CALL, {**SAID, "mcp-name": "=?base64?cnVu?="})
    task = Request(1, "tasks/get", {"taskId": "chat_1", **META})
    check_headers(task, {**SAID, "mcp-method": "tasks/get", "mcp-name": "chat_1"})
    check_headers(task, {"mcp-protocol-version": "2026-07-28", "mcp-method": "tasks/get"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", "TOOLS/CALL"),
        ("mcp-name", "ask"),
        ("mcp-name", "=?base64?!?="),
        ("mcp-name", None),
        ("mcp-method", None),
    ],
)
def test_headers_that_do_not_agree_are_refused(name: str, value: str | None) -> None:
    said = {key: text for key, text in {**SAID, name: value}.items() if text is not None}
    with pytest.raises(RpcError) as raised:
        check_headers(CALL, said)
    assert raised.value.code == -32020


def test_a_host_must_accept_both_forms_of_replies() -> None:
    assert accepts_both({"accept": "text/event-stream, application/json"})
    assert accepts_both({"accept": "*/*"})
    assert not accepts_both({"accept": "application/json"})
    assert not accepts_both({})
