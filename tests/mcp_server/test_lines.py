import io
import json

import pytest

from cursor_gateway.mcp_server.server import RepairedLines, repaired


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r'{"a": "x"}', {"a": "x"}),
        (r'{"a": "\ud83d\ude00"}', {"a": "\U0001f600"}),
        (r'{"a": "\ud83d", "b": ["\uDE00"]}', {"a": "\ufffd", "b": ["\ufffd"]}),
        (r'{"\udfff": 1}', {"\ufffd": 1}),
        (r'{"a": "\\ud83d"}', {"a": r"\ud83d"}),  # an escaped backslash
    ],
)
def test_half_a_surrogate_pair_is_replaced(sent: str, read: object) -> None:
    assert json.loads(repaired(sent)) == read
    lines = RepairedLines(io.BytesIO(f"{sent}\n{sent}\n".encode()), encoding="utf-8")
    assert [json.loads(line) for line in iter(lines.readline, "")] == [read, read]


@pytest.mark.parametrize("line", [r'{"a": "\ud83d"', "[" * 100_000 + r'"\ud83d"', ""])
def test_what_is_no_json_is_left_as_it_is(line: str) -> None:
    assert repaired(line) == line
