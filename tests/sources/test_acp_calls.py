"""Tool calls as ACP tells them: which tool it was, what it was given, and how it ended."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.agent_events import Action, Command, FileEdit, OtherTool, Outcome
from cursor_gateway.sources.acp import calls
from cursor_gateway.wire.payload import Fields

PROPOSED = {"type": "diff", "path": "/f", "oldText": "a", "newText": "b"}


def end_of(start: dict[str, Any], end: dict[str, Any]) -> tuple[Action, Outcome]:
    call, update = calls.call_of(Fields({"toolCallId": "1", **start})), Fields({"status": "completed", **end})
    calls.learn(call, update)
    return calls.ended(call, update.text("status"))


@pytest.mark.parametrize(
    ("start", "end", "state"),
    [
        ({"kind": "execute", "title": "`ls`"}, {}, "rejected"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"exitCode": 2, "stdout": "", "stderr": "no"}}, "failed"),
        ({"kind": "edit", "title": "Edit `a.txt`"}, {}, "rejected"),
        ({"kind": "edit"}, {"content": [PROPOSED], "status": "failed"}, "failed"),
        ({"kind": "edit"}, {"content": [PROPOSED], "rawOutput": {"error": "no"}}, "failed"),
        ({"kind": "edit"}, {"content": [PROPOSED], "rawOutput": {"rejected": {"reason": "no"}}}, "rejected"),
        ({"kind": "edit"}, {"content": [PROPOSED], "rawOutput": {"success": {}}}, "completed"),
        ({"kind": "other", "title": "a-b_c: b_c"}, {}, "rejected"),
        ({"kind": "other", "title": "a-b_c: b_c"}, {"rawOutput": {"error": "MCP error -32601"}}, "failed"),
        ({"kind": "other", "title": "a-b_c: b_c"}, {"rawOutput": {"content": []}}, "completed"),
        ({"kind": "read"}, {}, "rejected"),
        ({"kind": "other", "title": "Update TODOs"}, {}, "completed"),
        ({"kind": "other", "title": "New tool"}, {}, "rejected"),
        ({"kind": "read"}, {"content": [{"type": "new"}]}, "completed"),
        ({"kind": "read"}, {"rawOutput": None}, "rejected"),
        ({"kind": "read"}, {"rawOutput": {"content": ""}}, "completed"),
        ({"kind": "read"}, {"rawOutput": {}}, "completed"),
        ({"kind": "read"}, {"status": "failed", "rawOutput": {"message": "gone"}}, "failed"),
        ({"kind": "read"}, {"status": "failed"}, "failed"),
        ({"kind": "search"}, {"rawOutput": {"totalMatches": 3}}, "completed"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"rejected": {"reason": "no"}}}, "rejected"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"success": {"stdout": "x"}}}, "completed"),
        ({"kind": "think", "title": "Consider it"}, {"rawOutput": ["strange"]}, "completed"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"exitCode": "3", "stdout": ""}}, "failed"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"signal": "SIGKILL", "stdout": ""}}, "failed"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"exitCode": 0, "signal": "", "stdout": ""}}, "completed"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"spawnError": {"error": "ENOENT"}}}, "failed"),
        ({"kind": "execute", "title": "`ls`"}, {"rawOutput": {"timeout": {"timeoutMs": 5}}}, "timed_out"),
        ({"kind": "read"}, {"rawOutput": {"error": {"message": "gone"}}}, "failed"),
        ({"kind": "read"}, {"rawOutput": {"errorMessage": "gone"}}, "failed"),
        ({"kind": "read"}, {"rawOutput": {"fileNotFound": {"path": "a"}}}, "failed"),
        ({"kind": "read"}, {"rawOutput": {"content": "x", "error": ""}}, "completed"),
        ({"kind": "fetch"}, {"rawOutput": {"markdown": "x", "timeout": 5}}, "completed"),
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
        ({"kind": "search", "title": "grep"}, OtherTool(tool="grep", arguments={})),
        ({"kind": "search", "title": "Find"}, OtherTool(tool="glob_file_search", arguments={})),
        (
            {"kind": "search", "title": "Find `**/*`"},
            OtherTool(tool="glob_file_search", arguments={"glob_pattern": "**/*"}),
        ),
        ({"kind": "search", "title": 'grep "a b"'}, OtherTool(tool="grep", arguments={"pattern": "a b"})),
        (
            {"kind": "other", "rawInput": {"_toolName": "mcp", "providerIdentifier": "s", "toolName": "t", "q": 1}},
            OtherTool(tool="t", arguments={"q": 1}),
        ),
        (
            {"kind": "other", "rawInput": {"_toolName": "t", "serverIdentifier": "s", "toolName": "t"}},
            OtherTool(tool="t", arguments={}),
        ),
        (
            {
                "kind": "other",
                "rawInput": {"_toolName": "callMcpTool", "server": "s", "toolName": "t", "arguments": {}},
            },
            OtherTool(tool="t", arguments={}),
        ),
        (
            {"kind": "other", "rawInput": {"_toolName": "mcpToolCall", "name": "s-t", "args": {"a": 1}}},
            OtherTool(tool="s-t", arguments={"a": 1}),
        ),
        (
            {"kind": "other", "title": "s-t: t", "rawInput": {"name": "n", "server": "own"}},
            OtherTool(tool="t", arguments={"name": "n", "server": "own"}),
        ),
        ({"kind": "search", "title": "Web Search"}, OtherTool(tool="web_search", arguments={})),
        (
            {"kind": "search", "toolCallId": "web_search_12", "title": "Look for `herons`"},
            OtherTool(tool="web_search", arguments={"search_term": "herons"}),
        ),
        (
            {"kind": "search", "title": "Web search: a b"},
            OtherTool(tool="web_search", arguments={"search_term": "a b"}),
        ),
        (
            {"kind": "search", "title": "Search the web for `a`"},
            OtherTool(tool="web_search", arguments={"search_term": "a"}),
        ),
        (
            {"kind": "fetch", "title": "Fetching https://a.b"},
            OtherTool(tool="web_fetch", arguments={"url": "https://a.b"}),
        ),
        ({"kind": "switch_mode", "title": "Plan"}, OtherTool(tool="switch_mode", arguments={})),
        ({"kind": "other", "title": "Fetch https://a.b/c d"}, OtherTool(tool="web_fetch", arguments={})),
        (
            {"toolCallId": "web_fetch_0", "title": "Fetch https://a.b/c?d"},
            OtherTool(tool="web_fetch", arguments={"url": "https://a.b/c?d"}),
        ),
        ({"kind": "read", "title": "Read todo.md"}, OtherTool(tool="read_file", arguments={})),
        (
            {"kind": "read", "title": "Read TODO", "rawInput": {"path": "/w/TODO"}},
            OtherTool(tool="read_file", arguments={"target_file": "/w/TODO"}),
        ),
        (
            {"kind": "read", "title": "Read lint (3 - 12)", "locations": [{"path": "/w/lint"}]},
            OtherTool(tool="read_file", arguments={"offset": 3, "limit": 10, "target_file": "/w/lint"}),
        ),
        (
            {"kind": "read", "title": "Read a (3 - 2)", "rawInput": {"path": "a"}},
            OtherTool(tool="read_file", arguments={"target_file": "a"}),
        ),
        (
            {"kind": "read", "title": "Read a (3 - 12)", "rawInput": {"path": "a", "offset": 5}},
            OtherTool(tool="read_file", arguments={"target_file": "a", "offset": 5}),
        ),
        ({"kind": "other", "title": "List issues"}, OtherTool(tool="list_issues", arguments={})),
        ({"kind": "other", "title": "Delete branch"}, OtherTool(tool="delete_branch", arguments={})),
        ({"title": "Find references `x`"}, OtherTool(tool="find_references", arguments={})),
        ({"kind": "other", "title": "Delete `a`"}, FileEdit(tool="delete_file", path="a", operation="delete")),
        (
            {"kind": "other", "title": "Search the web for `a`"},
            OtherTool(tool="web_search", arguments={"search_term": "a"}),
        ),
        ({"kind": "read", "title": "Read lints"}, OtherTool(tool="read_lints", arguments={})),
        ({"kind": "other", "title": "Task: make a plan"}, OtherTool(tool="task", arguments={})),
        ({"kind": "edit", "title": "Delete `a`"}, FileEdit(tool="delete_file", path="a", operation="delete")),
        ({"rawOutput": {"exitCode": 0, "stdout": ""}}, Command(tool="run_terminal_cmd", command="")),
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
    assert calls.started(calls.call_of(Fields(start))) == action


@pytest.mark.parametrize(
    "end",
    [
        {"rawOutput": "all of it"},
        {"rawOutput": {"output": "all of it"}},
        {"rawOutput": {"content": "all of it"}},
        {"content": [{"type": "content", "content": {"type": "text", "text": "all of it"}}]},
        {"content": [{"type": "content", "content": {"type": "text", "text": "all of it"}}], "rawOutput": {}},
    ],
)
def test_what_a_command_printed_is_its_output_in_any_shape(end: dict[str, Any]) -> None:
    action, outcome = end_of({"kind": "execute", "title": "`ls`"}, end)
    assert isinstance(action, Command)
    assert (action.output, action.exit_code, outcome.state) == ("all of it", 0, "completed")


def test_output_that_is_no_object_is_kept() -> None:
    for output in ("text", ["a", 1]):
        action, _ = end_of({"kind": "other", "title": "s-t: t"}, {"rawOutput": output})
        assert isinstance(action, OtherTool)
        assert action.data == output


def test_a_first_line_like_a_header_that_names_another_file_is_text() -> None:
    def edited(path: str, old: str, new: str) -> FileEdit:
        diff = {"type": "diff", "path": path, "oldText": old, "newText": new}
        action, _ = end_of({"kind": "edit", "title": f"Edit `{path}`"}, {"content": [diff]})
        assert isinstance(action, FileEdit)
        return action

    lua = edited("/w/f.lua", "-- a/b is a comment\nx\n", "-- a/b is a comment\ny\n")
    assert lua.diff is not None
    assert (lua.diff.old_string, lua.diff.new_string, lua.diff.start_line) == ("x", "y", 2)
    for path in ("/w/f", "f", "C:\\w\\f"):
        patch = edited(path, f"-- a/{path}\r\nold", f"++ b/{path}\r\nnew")
        assert patch.diff is not None
        assert (patch.diff.old_string, patch.diff.new_string) == ("old", "new")
    assert edited("/w/f", "-- a//w/f\r\nold", "++ /dev/null\r").operation == "delete"


def test_an_edit_in_several_places_is_one_edit() -> None:
    diffs = [{"type": "diff", "path": "f", "oldText": old, "newText": new} for old, new in (("a", "b"), ("c", "d"))]
    action, _ = end_of({"kind": "edit", "title": "Edit `f`"}, {"content": diffs})
    assert isinstance(action, FileEdit)
    assert action.diff is not None
    assert (action.diff.old_string, action.diff.new_string) == ("a\nc", "b\nd")


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("start", "end", "data"),
    [
        ({"kind": "read"}, {"content": [{"type": "content", "content": IMAGE}]}, [IMAGE]),
        (
            {"kind": "other", "title": "s-t: t"},
            {"content": [{"type": "content", "content": part} for part in ({"type": "text", "text": "a"}, IMAGE)]},
            [{"type": "text", "text": "a"}, IMAGE],
        ),
        ({"kind": "fetch"}, {"rawOutput": {"content": "# A"}}, "# A"),
        ({"kind": "switch_mode"}, {"rawOutput": {}}, {}),
        ({"kind": "search", "title": "grep"}, {"rawOutput": {}, "content": []}, {}),
    ],
)
def test_what_a_call_returned(start: dict[str, Any], end: dict[str, Any], data: object) -> None:
    action, outcome = end_of(start, end)
    assert isinstance(action, OtherTool)
    assert (outcome.state, action.data) == ("completed", data)


@pytest.mark.parametrize(
    ("kind", "new", "operation"),
    [("delete", "", "delete"), ("edit", None, "delete"), ("edit", "", "edit"), ("delete", "b", "edit")],
)
def test_a_file_that_is_gone(kind: str, new: str | None, operation: str) -> None:
    diff = {"type": "diff", "path": "/f", "oldText": "a", "newText": new}
    action, _ = end_of({"kind": kind, "rawInput": {"path": "/f"}}, {"content": [diff]})
    assert isinstance(action, FileEdit)
    assert (action.path, action.operation) == ("/f", operation)


def diff_of(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def test_each_file_of_a_call_is_a_change() -> None:
    diffs = [diff_of("/b", "x", "y"), diff_of("/a", "1", "2"), diff_of("/c", None, "new"), diff_of("/b", "y", "z")]
    diffs.append({"type": "content", "content": {"type": "text", "text": "Edited three files."}})
    call = calls.call_of(Fields({"kind": "edit", "rawInput": {"path": "/a"}}))
    calls.learn(call, Fields({"status": "completed", "content": diffs}))
    first, others = calls.ended(call), calls.also_changed(call)
    changes = [action for action, _ in (first, *others) if isinstance(action, FileEdit)]
    assert [(one.path, one.operation, one.content) for one in changes] == [
        ("/a", "edit", "2"),
        ("/b", "edit", "z"),
        ("/c", "create", "new"),
    ]


TEXTS = st.lists(st.sampled_from(["a", "b", "-- a/f", "++ b/g", ""]), max_size=6).map("\n".join)


@given(st.dictionaries(st.sampled_from(["/w/f", "/w/g", "/w/h"]), st.lists(TEXTS, min_size=2, max_size=4)), st.data())
def test_any_changes_of_any_files_lead_from_the_old_text_to_the_new(
    versions: dict[str, list[str]], data: st.DataObject
) -> None:
    """Each file has a text, from which the next is made: one diff, or several, mixed with those of other files."""
    waiting = {path: [diff_of(path, *pair) for pair in pairwise(texts)] for path, texts in versions.items()}
    diffs: list[dict[str, Any]] = []
    while left := [path for path, rest in waiting.items() if rest]:
        diffs.append(waiting[data.draw(st.sampled_from(left))].pop(0))
    call = calls.call_of(Fields({"kind": "edit", "rawInput": {"path": "/w/g"}, "content": diffs}))
    ends = [calls.ended(call), *calls.also_changed(call)] if diffs else []
    assert sorted(action.path for action, _ in ends if isinstance(action, FileEdit)) == sorted(versions)
    for action, outcome in ends:
        assert isinstance(action, FileEdit)
        assert action.diff is not None
        old, new = versions[action.path][0], versions[action.path][-1]
        lines, diff = old.split("\n"), action.diff
        if old != new:
            assert lines[diff.start_line - 1 : diff.end_line] == diff.old_string.split("\n")
            lines[diff.start_line - 1 : diff.end_line] = diff.new_string.split("\n") if diff.new_string else []
            assert "\n".join(lines) in (new, f"\n{new}", f"{new}\n"), (old, new, diff)
        assert outcome.state == "completed"


@pytest.mark.parametrize(
    ("old", "new", "place", "lines"),
    [
        ("-- a//f\na", "++ b//f\nb", {"path": "/f", "line": 30}, (30, 30)),
        ("-- a//f\na", "++ b//f\nb", {"path": "/f", "line": 0}, (1, 1)),
        ("-- a//f\na", "++ b//f\nb", {"path": "/f", "line": 2**64}, (10**9, 10**9)),
        ("-- a//f\na", "++ b//f\nb", {"path": "/other", "line": 30}, (1, 1)),
        ("-- a//f\na", "++ b//f\nb", {"path": "/f", "line": None}, (1, 1)),
        ("a\nb\n", "a\nc\n", {"path": "/f", "line": 30}, (31, 31)),
        ("a\nb\n", "a\nc\n", {"path": "/f", "line": 2}, (2, 2)),
    ],
)
def test_a_location_tells_the_line_of_a_part(old: str, new: str, place: dict[str, Any], lines: tuple[int, int]) -> None:
    action, _ = end_of({"kind": "edit"}, {"locations": [place], "content": [diff_of("/f", old, new)]})
    assert isinstance(action, FileEdit)
    assert action.diff is not None
    assert (action.diff.start_line, action.diff.end_line) == lines


def test_a_new_file_ends_as_it_was_written() -> None:
    written = {"kind": "edit", "rawInput": {"_toolName": "edit", "path": "a", "streamContent": "probe\n"}}
    diff = {"type": "diff", "path": "a", "oldText": "-- /dev/null", "newText": "++ b/a\nprobe"}
    edit, _ = end_of(written, {"content": [diff]})
    assert isinstance(edit, FileEdit)
    assert edit.content == "probe\n"


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("hello\n", "Hello\n", (1, 1)),
        ("hello", "Hello", (1, 1)),
        ("a\nb\nc\nd\n", "a\nB\nC\nd\n", (2, 3)),
        ("-- a/x\none\ntwo", "++ b/x\n1", (1, 2)),
        ("-- a/x\none\n", "++ b/x\n1\n", (1, 1)),
    ],
)
def test_the_lines_of_an_edit(old: str, new: str, lines: tuple[int, int]) -> None:
    diff = {"type": "diff", "path": "/w/x", "oldText": old, "newText": new}
    edit, _ = end_of({"kind": "edit"}, {"content": [diff]})
    assert isinstance(edit, FileEdit)
    assert edit.diff is not None
    assert (edit.diff.start_line, edit.diff.end_line) == lines


def test_a_call_that_was_denied_was_rejected_whatever_it_carries() -> None:
    call = calls.call_of(Fields({"kind": "read", "rawOutput": {"content": "x"}}))
    assert calls.ended(call)[1].state == "completed"
    call.is_denied = True
    assert calls.ended(call)[1].state == "rejected"


def test_whose_a_call_is() -> None:
    assert calls.call_of(Fields({"kind": "other", "title": "my-srv-get: get"})).server == "my-srv"
    assert calls.call_of(Fields({"kind": "execute"})).server == ""


@pytest.mark.parametrize("title", ["Update TODOs", "Create Plan", "Ask Question"])
def test_calls_with_messages_of_their_own(title: str) -> None:
    assert calls.call_of(Fields({"kind": "other", "title": title})).has_own_message
    assert not calls.call_of(Fields({"kind": "execute", "title": title})).has_own_message


def test_another_report_of_a_call_adds_what_it_contains() -> None:
    asked = calls.call_of(Fields({"toolCallId": "web_fetch_0", "title": "Fetch https://a.b/c"}))
    asked.is_announced = False
    made = calls.call_of(
        Fields({"toolCallId": "1", "title": "Fetch", "kind": "fetch", "rawInput": {"url": "https://a.b/c"}})
    )
    calls.learn(made, Fields({"status": "completed", "rawOutput": {"markdown": "# C"}}))
    calls.merge(asked, made)
    action, outcome = calls.ended(asked)
    assert (asked.id, asked.is_announced, asked.status, outcome.state) == (
        "web_fetch_0",
        True,
        "completed",
        "completed",
    )
    assert action == OtherTool(tool="web_fetch", arguments={"url": "https://a.b/c"}, data="# C")


def test_a_request_for_permission_names_the_files_of_its_diffs() -> None:
    reason = {"type": "content", "content": {"type": "text", "text": "Not in allowlist"}}
    requested = {"toolCallId": "1", "locations": [{"path": "/a"}], "content": [reason, diff_of("/b", "x", "y")]}
    about = calls.asked_call(Fields(requested))
    assert about.all == {"toolCallId": "1", "locations": [{"path": "/a"}, {"path": "/b"}]}


def test_a_call_that_was_denied_has_the_gateways_reason() -> None:
    call = calls.call_of(Fields({"toolCallId": "1", "kind": "read", "rawInput": {"path": "a"}}))
    action, outcome = calls.denied(call, "Not now.")
    assert action == OtherTool(tool="read_file", arguments={"target_file": "a"}, data="Not now.")
    assert outcome.state == "rejected"


@pytest.mark.parametrize(("id", "expected"), [("web_fetch_0", True), ("web_search_12", True), ("tool_1", False)])
def test_requests_about_web_pages_have_ids_of_their_own(id: str, expected: bool) -> None:
    assert calls.has_made_up_id(calls.call_of(Fields({"toolCallId": id}))) is expected


# --- Permission ------------------------------------------------------------------------------------


def allowed(tool: str, rules: list[str], **args: object) -> bool:
    return calls.is_allowed(calls.AcpCall("1", tool, args=dict(args)), rules, "/w")


@pytest.mark.parametrize(
    ("command", "rules", "expected"),
    [
        ("git status", ["Shell(git)"], True),
        ("git status && git log -1 | head", ["Shell(git)", "Shell(head)"], True),
        ("git status", ["Shell(git status)"], True),
        ("git push", ["Shell(git status)"], False),
        ("curl x", ["Shell(curl:*)"], True),
        ("docker run a:b", ["Shell(docker run a:b)"], True),
        ("docker run a b", ["Shell(docker run a:b)"], False),
        ("gitk", ["Shell(git)"], False),
        ("git status", ["Shell(git.status)"], False),
        ("git status", ["Shell(g?it status)", "Shell([a-z ]+)"], False),
        ("git status; rm -rf /", ["Shell(git)"], False),
        ("git status & rm x", ["Shell(git)"], False),
        ("git status\nrm x", ["Shell(git)"], False),
        ("git log $(rm x)", ["Shell(git)"], False),
        ("git log `rm x`", ["Shell(git)"], False),
        ("git log > /etc/passwd", ["Shell(git)"], False),
        ("PATH=. git log", ["Shell(git)"], False),
        ("git lo…", ["Shell(git)"], False),
        ("", ["Shell(*)"], False),
        (";", ["Shell(git)"], False),
        ("anything $(at all)", ["Shell(*)"], True),
        ("git status", [], False),
        ("git status", ["Write(**)", "no rule"], False),
    ],
)
def test_commands(command: str, rules: list[str], expected: bool) -> None:
    assert allowed("shell", rules, command=command) is expected


@pytest.mark.parametrize(
    ("path", "rule", "expected"),
    [
        ("src/a/b.py", "Write(src/**)", True),
        ("/w/src/a.py", "Write(src/*)", True),
        ("/w/src/a/b.py", "Write(src/*)", False),
        ("src/../../etc/passwd", "Write(src/**)", False),
        ("src/../../etc/passwd", "Write(/w/src/**)", False),
        ("/w/src/../secret", "Write(/w/src/**)", False),
        ("../w/src/a.py", "Write(src/**)", True),
        ("/etc/passwd", "Write(/etc/*)", True),
        ("/etc/passwd", "Write(src/**)", False),
        ("a.py", "Write(**/*.py)", True),
        ("a.py", "Read(**)", False),
        ("", "Write(**)", False),
    ],
)
def test_files(path: str, rule: str, expected: bool) -> None:
    assert allowed("edit", [rule], path=path) is expected


@pytest.mark.parametrize(("tool", "kind"), [("edit", "Write"), ("read", "Read")])
def test_every_file_of_a_call_needs_a_rule(tool: str, kind: str) -> None:
    call = calls.AcpCall("1", tool, args={"path": "src/a"}, places=[("/w/src/a", 1), ("/w/src/b", None)])
    assert calls.is_allowed(call, [f"{kind}(src/**)"], "/w")
    call.places.append(("/etc/passwd", None))
    assert not calls.is_allowed(call, [f"{kind}(src/**)"], "/w")


def test_other_tools() -> None:
    assert allowed("grep", ["Read(**)"])
    assert allowed("glob", ["Read(src)"], targetDirectory="src")
    assert not allowed("read", ["Read(src/**)"], path="/etc/passwd")
    assert allowed("mcp", ["Mcp(tracker:*)"], providerIdentifier="tracker", toolName="get")
    assert not allowed("mcp", ["Mcp(tracker:get)"], providerIdentifier="tracker", toolName="delete")
    assert not allowed("mcp", ["Mcp(tracker:*)"], providerIdentifier="tracker:evil", toolName="get")
    assert not allowed("mcp", ["Mcp(*:get)"], providerIdentifier="tracker", toolName="evil:get")
    assert allowed("mcp", ["Mcp(*)"], providerIdentifier="tracker", toolName="get")
    assert allowed("webFetch", ["WebFetch(*.example.com)"], url="https://docs.example.com/x")
    assert not allowed("webFetch", ["WebFetch(example.com)"], url="https://evil.org/example.com")
    assert not allowed("webFetch", ["WebFetch(*)"], url="file:///etc/passwd")
    for evil in (
        "https://evil.org?@good.com",
        "https://evil.org#@good.com",
        "https://evil.org\\@good.com/",
        "https://a@evil.org",
        "https://me@good.com:8080/x",
        "http://u:p@good.com:80@evil.com/",
    ):
        assert not allowed("webFetch", ["WebFetch(good.com)"], url=evil), evil
    assert allowed("webFetch", ["WebFetch(good.com)"], url="https://GOOD.com:8080/x")
    assert allowed("webFetch", ["WebFetch(Good.com)"], url="https://good.com")
    assert not allowed("task", ["Shell(*)", "Write(**)", "Read(**)", "Mcp(*)", "WebFetch(*)"])


def test_the_answer_is_never_for_always() -> None:
    options = [
        {"optionId": "allow-always", "kind": "allow_always"},
        {"optionId": "allow-once", "kind": "allow_once"},
        {"optionId": "reject-once", "kind": "reject_once"},
    ]
    assert calls.option_for(options, True) == {"outcome": {"outcome": "selected", "optionId": "allow-once"}}
    assert calls.option_for(options, False) == {"outcome": {"outcome": "selected", "optionId": "reject-once"}}
    assert calls.option_for(options[:1], True) == {"outcome": {"outcome": "cancelled"}}
