"""Tool calls as ACP tells them: which tool it was, what it was given, and how it ended."""

from typing import Any

import pytest

from cursor_gateway.model.actions import Action, Command, FileEdit, OtherTool, Outcome
from cursor_gateway.sources.acp.calls import call_of, ended, learn, started
from cursor_gateway.wire.payload import Fields


def end_of(start: dict[str, Any], end: dict[str, Any]) -> tuple[Action, Outcome]:
    call, update = call_of(Fields({"toolCallId": "1", **start})), Fields({"status": "completed", **end})
    learn(call, update)
    return ended(call, update)


@pytest.mark.parametrize(
    ("start", "end", "state"),
    [
        ({"kind": "execute", "title": "`ls`"}, {}, "rejected"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"exitCode": 2, "stdout": "", "stderr": "no"}}, "failed"),
        ({"kind": "edit", "title": "Edit `a.txt`"}, {}, "rejected"),
        ({"kind": "other", "title": "a-b_c: b_c"}, {}, "rejected"),
        ({"kind": "other", "title": "a-b_c: b_c"}, {"rawOutput": {"error": "MCP error -32601"}}, "failed"),
        ({"kind": "other", "title": "a-b_c: b_c"}, {"rawOutput": {"content": []}}, "completed"),
        ({"kind": "read"}, {}, "completed"),
        ({"kind": "read"}, {"rawOutput": {}}, "completed"),
        ({"kind": "read"}, {"status": "failed", "rawOutput": {"message": "gone"}}, "failed"),
        ({"kind": "read"}, {"status": "failed"}, "failed"),
        ({"kind": "search"}, {"rawOutput": {"totalMatches": 3}}, "completed"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"rejected": {"reason": "no"}}}, "rejected"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"success": {"stdout": "x"}}}, "completed"),
        ({"kind": "think", "title": "Consider it"}, {"rawOutput": ["strange"]}, "completed"),
    ],
)
def test_how_a_call_ended_is_inferred_from_what_it_carries(
    start: dict[str, Any], end: dict[str, Any], state: str
) -> None:
    assert end_of(start, end)[1].state == state


@pytest.mark.parametrize(
    ("start", "action"),
    [
        ({"kind": "search", "rawInput": {"pattern": "x"}}, OtherTool(tool="grep", arguments={"pattern": "x"})),
        (
            {"kind": "search", "rawInput": {"globPattern": "*.py"}},
            OtherTool(tool="glob_file_search", arguments={"glob_pattern": "*.py"}),
        ),
        ({"kind": "search", "title": "Search `x`"}, OtherTool(tool="search", arguments={})),
        ({"kind": "think"}, OtherTool(tool="think", arguments={})),
        ({}, OtherTool(tool="tool", arguments={})),
        (
            {"kind": "read", "locations": [{"path": "/w/a"}]},
            OtherTool(tool="read_file", arguments={"target_file": "/w/a"}),
        ),
        ({"kind": "read", "title": "Read `/w/a`"}, OtherTool(tool="read_file", arguments={"target_file": "/w/a"})),
        (
            {"kind": "other", "title": "x", "rawInput": {"_toolName": "web_fetch_tool_call", "url": "u"}},
            OtherTool(tool="web_fetch", arguments={"url": "u"}),
        ),
        (
            {"kind": "other", "title": "my-srv-get: get", "rawInput": {"a": 1}},
            OtherTool(tool="get", arguments={"a": 1}),
        ),
        (
            {"kind": "other", "rawInput": {"providerIdentifier": "s", "toolName": "t", "args": {"a": 1}}},
            OtherTool(tool="t", arguments={"a": 1}),
        ),
        ({"kind": "delete", "title": "`a`"}, FileEdit(tool="delete_file", path="a", operation="delete")),
    ],
)
def test_a_call_is_named_by_what_it_says(start: dict[str, Any], action: object) -> None:
    assert started(call_of(Fields(start))) == action


def test_text_that_a_call_gave_is_its_result() -> None:
    content = [{"type": "content", "content": {"type": "text", "text": "all of it"}}]
    action, _ = end_of({"kind": "read", "title": "Read `a`"}, {"content": content})
    assert isinstance(action, OtherTool)
    assert action.data == "all of it"


def test_what_comes_later_is_learnt() -> None:
    later = {"title": "x", "rawInput": {"command": "ls", "_toolName": "shell"}, "rawOutput": {"exitCode": 0}}
    action, _ = end_of({"kind": "execute", "title": "Run"}, later)
    assert isinstance(action, Command)
    assert action.command == "ls"


def test_a_new_file_ends_as_it_was_written() -> None:
    written = {"kind": "edit", "rawInput": {"_toolName": "edit", "path": "a", "streamContent": "probe\n"}}
    diff = {"type": "diff", "path": "a", "oldText": "-- /dev/null", "newText": "++ b/a\nprobe"}
    edit, _ = end_of(written, {"content": [diff]})
    assert isinstance(edit, FileEdit)
    assert edit.content == "probe\n"


@pytest.mark.parametrize(
    ("diff", "expected"),
    [
        ({"oldText": "-- /dev/null", "newText": "++ b//w/a.txt\nprobe"}, ("create", "probe", None)),
        ({"oldText": None, "newText": "probe"}, ("create", "probe", None)),
        ({"oldText": "-- a//w/a.txt\none", "newText": "++ b//w/a.txt\ntwo"}, ("edit", "two", ("one", "two"))),
        ({"oldText": "one", "newText": "two"}, ("edit", "two", ("one", "two"))),
        ({"oldText": "-- a//w/a.txt\none", "newText": "++ /dev/null"}, ("delete", None, None)),
    ],
)
def test_a_diff_is_read_without_the_header_in_it(diff: dict[str, Any], expected: tuple[Any, ...]) -> None:
    edit, _ = end_of({"kind": "edit"}, {"content": [{"type": "diff", "path": "/w/a.txt", **diff}]})
    assert isinstance(edit, FileEdit)
    changed = (edit.diff.old_string, edit.diff.new_string) if edit.diff else None
    assert (edit.path, (edit.operation, edit.content, changed)) == ("/w/a.txt", expected)


def test_a_call_that_was_denied_was_rejected_whatever_it_carries() -> None:
    call = call_of(Fields({"kind": "read"}))
    call.is_denied = True
    assert ended(call, Fields({"rawOutput": {"content": "x"}}))[1].state == "rejected"


def test_whose_a_call_is() -> None:
    assert call_of(Fields({"kind": "other", "title": "my-srv-get: get"})).server == "my-srv"
    assert call_of(Fields({"kind": "execute"})).server == ""


@pytest.mark.parametrize("title", ["Update TODOs", "Create Plan", "Ask Question"])
def test_calls_with_messages_of_their_own(title: str) -> None:
    assert call_of(Fields({"kind": "other", "title": title})).has_own_message
    assert not call_of(Fields({"kind": "execute", "title": title})).has_own_message
