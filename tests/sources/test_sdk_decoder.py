"""The SDK's stream as agent events: deltas once, tools, usage, and how a run ends."""

from typing import Any

import pytest
from cursor_sdk import RunStreamEvent
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import AgentCrashed, AgentTimedOut
from cursor_gateway.model.agent_events import (
    AgentEvent,
    Command,
    CommandOutput,
    FileEdit,
    Notice,
    OtherTool,
    Outcome,
    PromptEchoed,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    ThinkingDelta,
    ThinkingEnded,
    TodoUpdate,
    TokenCounts,
    ToolEnded,
    ToolStarted,
    Unrecognized,
)
from cursor_gateway.sources.cursor.tools import read_result
from cursor_gateway.sources.sdk.decoder import (
    CALLERS_SERVER,
    SdkDecoder,
    plain,
    protocol_arguments,
    protocol_result,
    size_of,
)

Record = tuple[str, dict[str, Any]]
BEGUN: list[AgentEvent] = [RunStarted("agent-1", "auto"), PromptEchoed("Say it.")]


def update(type: str, **fields: Any) -> Record:
    return "interaction_update", {"type": type, **fields}


def message(type: str, **fields: Any) -> Record:
    return "sdk_message", {"type": type, "agent_id": "agent-1", "run_id": "run-1", **fields}


def result(status: str = "FINISHED", **fields: Any) -> Record:
    return "result", {"runId": "run-1", "status": f"RUN_LIFECYCLE_STATUS_{status}", **fields}


def text(said: str) -> Record:
    return update("text-delta", text=said)


def call(end: str, type: str, call_id: str = "c1", **fields: Any) -> Record:
    return update(f"tool-call-{end}", call_id=call_id, model_call_id="m1", tool_call={"type": type, **fields})


def decoded(*records: Record, offers_tools: bool = False) -> list[AgentEvent]:
    """Each comes 5 ms after the one before."""
    decoder = SdkDecoder("agent-1", "auto", "Say it.", offers_tools=offers_tools)
    for number, (kind, body) in enumerate(records):
        decoder.push(kind, body, number * 5)
    return decoder.take()


def after_start(*records: Record, offers_tools: bool = False) -> list[AgentEvent]:
    first, prompt, *events = decoded(*records, offers_tools=offers_tools)
    assert [first, prompt] == BEGUN
    return events


def failure(events: list[AgentEvent]) -> str:
    last = events[-1]
    assert isinstance(last, RunFailed)
    return last.failure.code


# --- text and thinking ------------------------------------------------------------------------------------


def test_the_deltas_are_said_and_the_whole_messages_are_not() -> None:
    events = decoded(
        message("status", status="RUNNING", message=""),
        update("thinking-delta", text="Hm"),
        update("thinking-delta", text="m."),
        update("thinking-completed", thinking_duration_ms=7),
        message("thinking"),
        text("He"),
        text("llo"),
        message("assistant"),
        result(result="Hello", durationMs="12"),
        ("done", {}),
    )
    assert events == [*BEGUN, ThinkingDelta("Hmm."), ThinkingEnded(7), TextDelta("Hello"), RunFinished(duration_ms=12)]


def test_a_run_begins_with_its_status() -> None:
    """Its text may follow minutes later, and that is no failure to start."""
    assert decoded(message("status", status="RUNNING", message="")) == BEGUN
    assert decoded(message("status", status="CREATING", message="")) == []
    again = message("status", status="RUNNING", message="")
    assert decoded(again, message("system"), message("user"), again, text("a")) == [*BEGUN, TextDelta("a")]


def test_who_reads_often_gets_the_grain() -> None:
    decoder = SdkDecoder("agent-1", "auto", "Say it.")
    batches = []
    for kind, body in (text("a"), text("b"), update("thinking-delta", text="c"), text("")):
        decoder.push(kind, body, 0)
        batches.append(decoder.take())
    assert batches == [[*BEGUN, TextDelta("a")], [TextDelta("b")], [ThinkingDelta("c")], []]


def test_a_character_that_is_cut_in_two_is_joined() -> None:
    assert after_start(text("a\ud83d"), text("\ude00b")) == [TextDelta("a😀b")]
    assert after_start(update("thinking-delta", text="\ud83d"), update("thinking-delta", text="\ude00")) == [
        ThinkingDelta("😀")
    ]


def test_half_a_character_alone_is_replaced() -> None:
    half = update("thinking-delta", text="\ud83d")
    assert after_start(text("a\ud83d"), call("started", "read"))[0] == TextDelta("a\ufffd")
    assert after_start(half, text("b")) == [ThinkingDelta("\ufffd"), TextDelta("b")]
    assert after_start(half, update("thinking-completed")) == [ThinkingDelta("\ufffd"), ThinkingEnded()]
    assert after_start(text("\ude00")) == [TextDelta("\ufffd")]


@pytest.mark.parametrize(
    ("expected", "more", "differs"),
    [("Hello", [], False), ("Hello you", [TextDelta("Hello you")], False), ("llo", [], False), ("Bye", [], True)],
)
def test_what_the_result_adds_is_sent(expected: str, more: list[AgentEvent], differs: bool) -> None:
    *said, last = after_start(text("Hello"), result(result=expected))
    assert said == (more or [TextDelta("Hello")])
    assert last == RunFinished(text_differs=differs)


def test_a_run_that_tells_nothing_but_its_result_has_said_that() -> None:
    assert decoded(result(result="All of it.")) == [*BEGUN, TextDelta("All of it."), RunFinished()]


# --- tools ------------------------------------------------------------------------------------------------


def test_a_tool_starts_and_ends() -> None:
    args = {"command": "ls", "workingDirectory": "/w"}
    value = {"exitCode": 0, "signal": "", "stdout": "a\n", "stderr": "", "executionTime": 3}
    started, ended = after_start(
        call("started", "shell", args=args),
        update("partial-tool-call", call_id="c1", tool_call={"type": "shell"}),
        update("shell-output-delta", event={}),
        call("completed", "shell", args=args, result={"status": "success", "value": value}),
    )
    assert isinstance(started, ToolStarted)
    assert started.action == Command(tool="run_terminal_cmd", command="ls", working_directory="/w")
    assert (started.call_id, started.model_call, started.payload) == ("c1", "m1", {"type": "shell", "args": args})
    assert isinstance(ended, ToolEnded)
    assert ended.action == Command(
        tool="run_terminal_cmd", command="ls", working_directory="/w", exit_code=0, output="a\n"
    )
    assert ended.outcome == Outcome(duration_ms=3)


def test_the_end_may_leave_out_what_the_start_has_said() -> None:
    (_, ended) = after_start(
        call("started", "read", args={"path": "/a"}),
        update("tool-call-completed", call_id="c1", model_call_id="", tool_call={"result": {"status": "success"}}),
    )
    assert isinstance(ended, ToolEnded)
    assert ended.action == OtherTool(tool="read_file", arguments={"target_file": "/a"})
    assert ended.outcome.duration_ms == 5
    assert ended.model_call is None


def test_an_end_without_a_start_is_reported_all_the_same() -> None:
    (ended,) = after_start(
        call("completed", "read", args={"path": "/a"}, result={"status": "error", "error": {"message": "no"}})
    )
    assert isinstance(ended, ToolEnded)
    assert ended.outcome.state == "failed"
    assert ended.outcome.message == "no"
    assert ended.outcome.duration_ms is None
    (nameless,) = after_start(update("tool-call-completed", call_id="c1", tool_call={}))
    assert isinstance(nameless, ToolEnded)
    assert nameless.action == OtherTool(tool="tool", arguments={})


def test_what_is_nested_absurdly_is_left_out() -> None:
    deep: Any = "x"
    for _ in range(2000):
        deep = [deep]
    events = after_start(call("started", "read", args=deep), call("completed", "read", args=deep))
    assert events == [Unrecognized("nested too deeply"), Unrecognized("nested too deeply")]


# --- tools of the caller's --------------------------------------------------------------------------------

CALLERS = {"providerIdentifier": CALLERS_SERVER, "toolName": "add", "args": {"a": 1}}


@pytest.mark.parametrize("args", [CALLERS, {"toolName": "add", "args": {"a": 1}}])
@pytest.mark.parametrize("tool", ["mcp", "getMcpTools"])
def test_the_callers_tools_are_left_out_where_they_went_well(tool: str, args: dict[str, Any]) -> None:
    value = {"content": [{"text": {"text": "2"}}], "isError": False}
    assert (
        after_start(
            call("started", tool, args=args),
            call("completed", tool, args=args, result={"status": "success", "value": value}),
            offers_tools=True,
        )
        == []
    )


@pytest.mark.parametrize(
    ("name", "result", "shown"),
    [
        ("ask_user_7", {"status": "success", "value": {"content": []}}, []),
        ("ask_user_7", {"status": "error", "error": {"message": "gone"}}, []),
        ("ask_user_7", {"status": "error", "error": {"message": "no\n\nAgent note: no"}}, ["ToolEnded"]),
        ("ask_user_8", {"status": "success", "value": {"content": []}}, ["ToolStarted", "ToolEnded"]),
    ],
)
def test_a_call_of_the_users_tool_is_a_question_and_nothing_else(
    name: str, result: dict[str, Any], shown: list[str]
) -> None:
    """Unless it was rejected, so that nobody was asked."""
    decoder = SdkDecoder("agent-1", "auto", "Say it.", user_tool="ask_user_7")
    args = {"providerIdentifier": CALLERS_SERVER, "toolName": name, "args": {}}
    for kind, body in (call("started", "mcp", args=args), call("completed", "mcp", args=args, result=result)):
        decoder.push(kind, body, 0)
    assert [type(event).__name__ for event in decoder.take()[2:]] == shown
    assert decoder.user_calls == int(name == "ask_user_7")


def test_other_servers_and_other_tools_are_reported() -> None:
    other = {**CALLERS, "providerIdentifier": "tracker"}
    assert len(after_start(call("started", "mcp", args=other), offers_tools=True)) == 1
    assert len(after_start(call("started", "read", args=CALLERS), offers_tools=True)) == 1
    assert len(after_start(call("started", "mcp", args=CALLERS))) == 1


# --- usage ------------------------------------------------------------------------------------------------

TURN = {"input_tokens": 10, "output_tokens": 4, "cache_read_tokens": 3, "cache_write_tokens": 1, "total_tokens": 14}
CAMEL = {"inputTokens": "10", "outputTokens": "4", "cacheReadTokens": "3", "totalTokens": "14"}


def test_usage_is_summed_over_the_turns_and_counted_once() -> None:
    records = [update("turn-ended", usage=CAMEL), message("usage", usage=TURN)] * 2
    last = decoded(*records, result(usage=CAMEL))[-1]
    assert last == RunFinished(usage=TokenCounts(prompt=28, completion=8, cached=6))


def test_thinking_is_counted() -> None:
    usage = {**CAMEL, "reasoningTokens": 2}
    ended = update("turn-ended", usage=usage)
    counted = TokenCounts(prompt=26, completion=8, cached=6, reasoning=4)
    assert decoded(ended, ended, result())[-1] == RunFinished(usage=counted)


def test_usage_may_be_reported_by_the_turns_ends_or_the_result_alone() -> None:
    counted = TokenCounts(prompt=13, completion=4, cached=3)
    assert decoded(update("turn-ended", usage=CAMEL), result())[-1] == RunFinished(usage=counted)
    assert decoded(update("turn-ended", usage=None), result(usage=CAMEL))[-1] == RunFinished(usage=counted)
    assert decoded(update("turn-ended"), result(usage={"totalTokens": 3}))[-1] == RunFinished()
    assert decoded(result(usage={"outputTokens": 4}))[-1] == RunFinished(usage=TokenCounts(prompt=0, completion=4))


# --- the end ----------------------------------------------------------------------------------------------


def test_a_run_that_failed_says_so_in_its_result() -> None:
    events = decoded(text("a"), message("usage", usage=TURN), result("ERROR", errorCode="usage_limit_exceeded"))
    assert events[:3] == [*BEGUN, TextDelta("a")]
    assert failure(events) == "insufficient_quota"
    assert isinstance(last := events[-1], RunFailed)
    assert last.usage == TokenCounts(prompt=14, completion=4, cached=3)


def test_a_failure_that_comes_first_is_the_only_event() -> None:
    assert len(decoded(result("ERROR", errorMessage="It failed."))) == 1
    assert len(decoded(message("status", status="ERROR", message="x"), result("ERROR"))) == 1


def test_the_status_gives_a_reason_that_the_result_lacks() -> None:
    events = decoded(message("status", status="ERROR", message="You've hit your usage limit"), result("ERROR"))
    assert failure(events) == "insufficient_quota"


def test_only_the_first_result_counts_and_a_running_one_is_none() -> None:
    events = decoded(result("RUNNING"), result(), result("ERROR"))
    assert events == [*BEGUN, RunFinished()]


def flushed(*records: Record, known: Any = None) -> list[AgentEvent]:
    decoder = SdkDecoder("agent-1", "auto", "Say it.")
    for kind, body in records:
        decoder.push(kind, body, 0)
    return decoder.flush(known)


def test_a_stream_that_ends_without_a_result_is_a_failure() -> None:
    assert failure(flushed(text("a\ud83d"))) == "agent_crashed"
    assert flushed(text("a\ud83d"))[2] == TextDelta("a\ufffd")
    assert flushed() == [RunFailed(failure=AgentCrashed().failure())]
    assert failure(flushed(message("status", status="RUNNING"))) == "agent_crashed"
    assert failure(flushed(message("status", status="CANCELLED"))) == "cancelled"
    known = AgentTimedOut("late").failure()
    assert flushed(message("status", status="ERROR"), known=known) == [RunFailed(failure=known)]


def test_after_the_result_there_is_nothing_left_to_say() -> None:
    assert flushed(result(), known=AgentTimedOut("late").failure()) == [*BEGUN, RunFinished()]


# --- live output --------------------------------------------------------------------------------------------


def wrote(data: str, case: str = "stdout") -> Record:
    return update("shell-output-delta", event={"case": case, "value": {"data": data}})


def outputs(*records: Record) -> list[tuple[str, str]]:
    return [(event.call_id, event.text) for event in decoded(*records) if isinstance(event, CommandOutput)]


def test_output_is_that_of_the_only_running_command() -> None:
    first, second = call("started", "shell", "a", args={"command": "x"}), call("started", "shell", "b", args={})
    read, end = call("started", "read", "r", args={}), call("completed", "shell", "a", result={"status": "success"})
    assert outputs(wrote("before"), first, wrote("1"), read, wrote("2", "stderr"), end, wrote("after")) == [
        ("a", "1"),
        ("a", "2"),
    ]
    assert outputs(first, end, second, wrote("3")) == [("b", "3")]


def test_output_that_may_be_of_either_of_two_commands_is_of_none_of_them() -> None:
    """Also when one of them has ended: the output of the other would lack its beginning."""
    first, second = call("started", "shell", "a", args={"command": "x"}), call("started", "shell", "b", args={})
    end = call("completed", "shell", "a", result={"status": "success"})
    assert outputs(first, wrote("1"), second, wrote("2"), end, wrote("3")) == [("a", "1")]


# --- what is of no interest, and what is not known ----------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        ("unknown", {}),
        ("step", {}),
        ("done", {}),
        message("request", request_id="r"),
        message("tool_call"),
        update("token-delta", tokens=1),
        update("step-started", step_id=1),
        update("step-completed", step_id=1),
        update("summary", summary="x"),
        update("summary-started"),
        update("summary-completed"),
        update("user-message-appended", user_message={}),
        update("tool-requests-listed", update={}),
        update("tool-call-delta", update={}),
    ],
)
def test_these_say_nothing(record: Record) -> None:
    assert decoded(record) == []


@pytest.mark.parametrize(
    ("record", "events"),
    [
        (("weather", {}), [Unrecognized("kind 'weather'")]),
        (update("weather"), [Unrecognized("update 'weather'")]),
        (update("text-delta", text=7), [Unrecognized("update 'text-delta'")]),
        (message("weather"), [Unrecognized("message 'weather'")]),
        (("sdk_message", {}), [Unrecognized("message ''")]),
        (("sdk_message", {"type": {}}), [Unrecognized("message ''")]),
        (("interaction_update", {"type": []}), [Unrecognized("update ''")]),
        (message("task", status="running"), [Notice("background")]),
    ],
)
def test_what_is_strange_is_counted(record: Record, events: list[AgentEvent]) -> None:
    assert decoded(record) == events


def test_half_a_character_in_a_name_or_a_reason_is_replaced() -> None:
    """Found by fuzzing: it cannot be encoded."""
    half = "x\ud83d"
    events = decoded(
        call("started", "shell", half, args={"command": "ls"}), result("ERROR", errorCode="INTERNAL", errorMessage=half)
    )
    assert [event.call_id for event in events if isinstance(event, ToolStarted)] == ["x\ufffd"]
    last = events[-1]
    assert isinstance(last, RunFailed)
    assert last.failure.details == "x\ufffd"
    decoder = SdkDecoder("agent-1", "auto", "Say it.")
    decoder.push(*message("status", status="ERROR", message=half), 0)
    (failed,) = decoder.flush()
    assert isinstance(failed, RunFailed)
    assert failed.failure.details == "x\ufffd"


# --- laws -------------------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-16", exclude_categories=()), max_size=4)
records = st.one_of(
    words.map(text),
    words.map(lambda said: update("thinking-delta", text=said)),
    st.just(update("thinking-completed")),
    st.builds(call, st.sampled_from(["started", "completed"]), st.sampled_from(["shell", "read", "mcp", "x"])),
    st.just(update("turn-ended", usage=CAMEL)),
    st.just(message("usage", usage=TURN)),
    st.just(("unknown", {})),
    st.just(update("weather")),
)


@given(st.lists(records, max_size=12), st.booleans())
def test_however_often_it_is_read_the_same_is_returned(expected: list[Record], ends: bool) -> None:
    expected = [*expected, result()] if ends else expected
    whole, pieces = SdkDecoder("agent-1", "auto", "Say it."), SdkDecoder("agent-1", "auto", "Say it.")
    one_by_one: list[AgentEvent] = []
    for kind, body in expected:
        whole.push(kind, body, 0)
        pieces.push(kind, body, 0)
        one_by_one += pieces.take()
    one_by_one += pieces.flush()
    events = whole.flush()
    assert _joined(one_by_one) == _joined(events)
    assert [isinstance(event, RunFinished | RunFailed) for event in events].count(True) == 1
    assert isinstance(events[-1], RunFinished if ends else RunFailed)
    known = [event for event in events[:-1] if not isinstance(event, Unrecognized)]
    assert [isinstance(event, RunStarted) for event in known] == [True, *[False] * (len(known) - 1)][: len(known)]


@given(st.lists(words, max_size=8))
def test_the_text_out_is_the_text_in(said: list[str]) -> None:
    whole = "".join(said)
    last = _joined(decoded(*map(text, said), result(result=whole)))
    texts = "".join(event.text for event in last if isinstance(event, TextDelta))
    assert texts == whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _joined(events: list[AgentEvent]) -> list[AgentEvent]:
    out: list[AgentEvent] = []
    for event in events:
        match event, out[-1:]:
            case TextDelta(text), [TextDelta(before)]:
                out[-1] = TextDelta(before + text)
            case ThinkingDelta(text), [ThinkingDelta(before)]:
                out[-1] = ThinkingDelta(before + text)
            case _:
                out.append(event)
    return out


# --- The SDK's values as those of the protocol -----------------------------------------------------


def read(tool: str, args: Any, result: Any) -> tuple[Any, Outcome]:
    return read_result(tool, protocol_arguments(tool, args), protocol_result(tool, result))


def success(value: Any) -> dict[str, Any]:
    return {"status": "success", "value": value}


def test_a_command_that_fails_is_no_success() -> None:
    value = {"exitCode": 2, "signal": "", "stdout": "", "stderr": "no\n", "executionTime": 4}
    action, outcome = read("shell", {"command": "false"}, success(value))
    assert action == Command(tool="run_terminal_cmd", command="false", exit_code=2, output="no\n")
    assert (outcome.state, outcome.code, outcome.duration_ms) == ("failed", "COMMAND_FAILED", 4)
    assert outcome.message == "The command exited with status 2."
    _, outcome = read("shell", {"command": "false"}, success({"signal": "SIGKILL", "stdout": "", "stderr": ""}))
    assert (outcome.state, outcome.message) == ("failed", "The command was ended by SIGKILL.")


def test_a_tool_that_fails_says_why() -> None:
    action, outcome = read("read", {"path": "/a"}, {"status": "error", "error": {"message": "no such file"}})
    assert action == OtherTool(tool="read_file", arguments={"target_file": "/a"}, data="no such file")
    assert (outcome.state, outcome.code) == ("failed", "FILE_NOT_FOUND")
    assert read("read", {}, {"status": "error", "error": "plainly"})[1].message == "plainly"
    assert read("read", {}, {"status": "error"})[1].state == "failed"


def test_a_result_of_no_known_shape_is_left_as_it_is() -> None:
    assert protocol_result("read", None) is None
    assert protocol_result("read", {"success": {}}) == {"success": {}}


def test_a_plan_has_the_title_of_its_first_heading() -> None:
    assert protocol_arguments("createPlan", {"plan": "x\n## The plan ##\n"})["name"] == "The plan"
    assert protocol_arguments("createPlan", {"plan": "x"})["name"] == ""
    assert protocol_arguments("createPlan", {"plan": "# A", "name": "B"})["name"] == "B"


@pytest.mark.parametrize(
    ("status", "meant"),
    [("pending", "pending"), ("inProgress", "in_progress"), ("completed", "completed"), ("cancelled", "cancelled")],
)
def test_todos_have_the_states_that_they_have(status: str, meant: str) -> None:
    todos = {"todos": [{"content": "a", "status": status}]}
    action, _ = read("updateTodos", todos, success({**todos, "totalCount": 1}))
    assert isinstance(action, TodoUpdate)
    assert not action.merge
    assert [(todo.id, todo.content, todo.status) for todo in action.todos] == [("1", "a", meant)]
    from_result, _ = read("updateTodos", {}, success(todos))
    assert isinstance(from_result, TodoUpdate)
    assert from_result.todos == action.todos


def test_an_edit_is_described_by_its_patch() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c"
    action, _ = read("edit", {"path": "/x"}, success({"diffString": patch}))
    assert isinstance(action, FileEdit)
    assert (action.operation, action.content) == ("edit", "c")
    assert action.diff is not None
    assert (action.diff.old_string, action.diff.start_line, action.diff.end_line) == ("b", 2, 2)


@pytest.mark.parametrize("head", ["--- /dev/null\n+++ b/x\n@@ -1 +1,2 @@\n-", "@@ -0,0 +1,2 @@"])
def test_a_new_file_is_described_whole(head: str) -> None:
    action, _ = read("edit", {"path": "/x"}, success({"diffString": f"{head}\n+a\n+b"}))
    assert action == FileEdit(tool="edit_file", path="/x", operation="create", content="a\nb\n")


def test_the_lines_of_a_new_file_may_look_like_a_patch() -> None:
    patch = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,3 @@\n+++ x\n+-- y\n+@@ z\n\\ No newline at end of file"
    action, _ = read("edit", {"path": "/x"}, success({"diffString": patch}))
    assert action == FileEdit(tool="edit_file", path="/x", operation="create", content="++ x\n-- y\n@@ z")


def test_hits_of_a_search_are_lines_files_or_counts() -> None:
    match = {"file": "a", "lineNumber": 3, "line": "hit", "beforeContext": ["b"], "afterContext": ["c", "d"]}
    found = {
        "/w": {"type": "content", "output": {"matches": [match], "totalMatches": 1}},
        "/f": {"type": "files", "output": {"files": ["x"], "count": 1}},
        "/c": {"type": "count", "output": {"counts": [{"file": "y", "count": 2}], "total": 2}},
    }
    action, _ = read("grep", {"pattern": "h"}, success({"workspaceResults": found}))
    assert isinstance(action, OtherTool)
    assert action.data == [
        {"file": "a", "line": 2, "content": "b", "context": True},
        {"file": "a", "line": 3, "content": "hit"},
        {"file": "a", "line": 4, "content": "c", "context": True},
        {"file": "a", "line": 5, "content": "d", "context": True},
        "x",
        {"file": "y", "count": 2},
    ]
    nowhere = {"activeEditorResult": {"type": "content", "output": {"matches": [{"file": "a", "line": "hit"}]}}}
    action, _ = read("grep", {"pattern": "h"}, success(nowhere))
    assert isinstance(action, OtherTool)
    assert action.data == [{"file": "a", "line": None, "content": "hit"}]


def test_a_search_whose_lines_were_lost_still_names_the_files() -> None:
    """SDK 1.1.0 drops them, and counts nothing."""
    matches = [{"file": "./a"}, {"file": "./b"}, {"file": "./a"}]
    lost = {"/w": {"type": "content", "output": {"matches": matches, "totalMatches": 0}}}
    action, outcome = read("grep", {"pattern": "h"}, success({"workspaceResults": lost}))
    assert isinstance(action, OtherTool)
    assert (action.data, outcome.state) == (["./a", "./b"], "completed")


def test_a_reason_that_was_lost_is_not_shown_as_one() -> None:
    _, outcome = read("read", {"path": "/a"}, {"status": "error", "error": {"message": "error"}})
    assert outcome.message == "The tool failed; Cursor's SDK does not say why."
    _, outcome = read(
        "shell", {"command": "ls"}, {"status": "error", "error": {"message": "Blocked: no", "command": "ls"}}
    )
    assert outcome.message == "Blocked: no"


@pytest.mark.parametrize(
    ("tool", "name", "state", "message"),
    [
        ("ls", "rejected", "rejected", "The call was rejected."),
        ("delete", "notFile", "failed", "The path is not a file."),
        ("delete", "fileNotFound", "failed", "The file does not exist."),
        ("delete", "permissionDenied", "failed", "Permission was denied."),
    ],
)
def test_an_outcome_of_which_only_the_name_is_left(tool: str, name: str, state: str, message: str) -> None:
    _, outcome = read(tool, {"path": "/a"}, {"status": "error", "error": {"message": name, "path": "/a"}})
    assert (outcome.state, outcome.message, outcome.details) == (state, message, "/a")


def test_a_call_that_a_hook_blocks_was_rejected() -> None:
    error = {"message": "No rule allows it.\n\nAgent note: try something else", "command": "ls"}
    action, outcome = read("shell", {"command": "ls"}, {"status": "error", "error": error})
    assert isinstance(action, Command)
    assert (outcome.state, outcome.message) == ("rejected", "No rule allows it.")
    error = {"message": "Command execution was blocked by a hook: not today", "command": "ls"}
    _, outcome = read("shell", {"command": "ls"}, {"status": "error", "error": error})
    assert (outcome.state, outcome.message) == ("rejected", error["message"])


@pytest.mark.parametrize(
    ("tool", "args", "value", "data"),
    [
        ("read", {"path": "/a"}, {"content": "x", "totalLines": 1, "fileSize": 1}, "x"),
        ("glob", {"globPattern": "*"}, {"files": ["a"], "totalFiles": 1}, ["a"]),
        ("semSearch", {"query": "q"}, {"results": "text"}, "text"),
        ("task", {"prompt": "p"}, {"conversationSteps": [{"assistantMessage": {"text": "done"}}]}, "done"),
        ("mcp", {"toolName": "t", "args": {}}, {"content": [{"text": {"text": "y"}}], "isError": False}, "y"),
        ("readLints", {"paths": []}, {"fileDiagnostics": [], "totalFiles": 0}, []),
        ("webFetch", {"url": "u"}, {"markdown": "m"}, "m"),
    ],
)
def test_the_others_are_as_the_protocol_has_them(tool: str, args: Any, value: Any, data: Any) -> None:
    action, outcome = read(tool, args, success(value))
    assert isinstance(action, OtherTool)
    assert action.data == data
    assert outcome.state == "completed"


def of(**wire: Any) -> Any:
    return plain(RunStreamEvent.from_json(wire))


@pytest.mark.parametrize(
    ("update", "meant"),
    [
        ({"type": "text-delta", "text": "a"}, {"type": "text-delta", "text": "a"}),
        ({"type": "weather", "sky": 1}, {"type": "weather", "update": {"type": "weather", "sky": 1}}),
        (
            {"type": "tool-call-started", "callId": "c", "modelCallId": "m", "toolCall": {"type": "read"}},
            {"type": "tool-call-started", "call_id": "c", "model_call_id": "m", "tool_call": {"type": "read"}},
        ),
        ({"type": "turn-ended"}, {"type": "turn-ended", "usage": None}),
    ],
)
def test_updates(update: dict[str, Any], meant: dict[str, Any]) -> None:
    assert of(interactionUpdate={"type": update["type"], "update": update}) == meant


def sent_message(type: str, **fields: Any) -> Any:
    return of(sdkMessage={"type": type, "message": {"type": type, "agent_id": "a", "run_id": "r", **fields}})


def test_messages() -> None:
    user = sent_message("user", message={"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "x"}]})
    assert user["message"] == {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "x"}]}
    assert sent_message("system", model={"id": "m"})["model"] == {"id": "m", "params": []}
    assert sent_message("usage", usage={"inputTokens": "3"})["usage"]["input_tokens"] == 3
    assert sent_message("weather", sky=1) == {"type": "weather", "agent_id": "a", "run_id": "r", "sky": 1}


@pytest.mark.parametrize("type", ["assistant", "thinking", "tool_call"])
def test_of_what_the_deltas_have_sent_only_the_kind_is_kept(type: str) -> None:
    assert sent_message(type, text="long", args={"a": 1}) == {"type": type}


def test_results_and_the_rest() -> None:
    assert of(result={"status": "X", "errorCode": "e", "result": {"status": "Y"}}) == {"status": "Y", "errorCode": "e"}
    assert of(result={"status": "X"}) == {"status": "X"}
    assert of() == {}
    assert of(done={}) == {}


def test_an_update_is_as_large_as_what_it_says() -> None:
    delta = {"type": "text-delta", "text": "x" * 1000}
    assert size_of(of(interactionUpdate={"type": "text-delta", "update": delta})) in range(1000, 1100)
    nested: Any = "x" * 1000
    for _ in range(10_000):
        nested = [{"a": nested}]
    assert size_of({"result": nested, "count": 1}) in range(11_000, 11_100)
    content = {"role": "user", "content": [{"type": "text", "text": "x" * 1000}]}
    event = RunStreamEvent.from_json({"sdkMessage": {"type": "user", "message": {"type": "user", "message": content}}})
    assert size_of({"message": event.sdk_message}) in range(1000, 1200)
