"""Updates of an ACP session as events: of the capture, of builds that say more, in any pieces."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.agent_events import (
    AgentEvent,
    Command,
    FileEdit,
    Notice,
    OtherTool,
    Outcome,
    Plan,
    Question,
    RunFailed,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    ThinkingEnded,
    TitleGiven,
    TodoUpdate,
    TokenCounts,
    ToolEnded,
    ToolStarted,
    Unrecognized,
)
from cursor_gateway.sources.acp.calls import call_of
from cursor_gateway.sources.acp.decoder import AcpDecoder, counted
from cursor_gateway.sources.cursor.ask_user import UserTool
from cursor_gateway.sources.cursor.tools import read_call
from cursor_gateway.wire.payload import Fields

CAPTURE = Path(__file__).parents[3] / "shared" / "captures" / "2026.08.11-acp-wire.jsonl"
SHELL = "call-aaaa9a3f-33b2-441e-87e9-6afeb6eccde2-0\nfc_1d06cbc2-409c-933a-ab58-55ccbae321a8_0"
END = {"stopReason": "end_turn"}
CRASHED = AgentCrashed().failure()


def text(said: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": said}}


def call(id: str, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call", "toolCallId": id, "status": "pending", **fields}


def done(id: str, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed", **fields}


def pushed(decoder: AcpDecoder, *updates: Any) -> list[AgentEvent]:
    return [event for update in updates for event in decoder.push(update)]


def decoded(*updates: Any) -> list[AgentEvent]:
    decoder = AcpDecoder()
    return [*pushed(decoder, *updates), *decoder.finish(END)]


def end_of(*updates: Any) -> ToolEnded:
    (end,) = (event for event in decoded(*updates) if isinstance(event, ToolEnded))
    return end


def said(events: Iterable[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# --- text and thinking ----------------------------------------------------------------------------------


def test_text_and_thoughts_are_pure_deltas() -> None:
    events = decoded(text("Hm.", "agent_thought_chunk"), text("o"), text("k"), text("", "agent_thought_chunk"))
    assert events == [ThinkingDelta("Hm."), ThinkingEnded(), TextDelta("o"), TextDelta("k"), RunFinished()]


def test_thinking_lasts_until_what_follows_it_arrives() -> None:
    decoder = AcpDecoder()
    thought = text("Hm.", "agent_thought_chunk")
    assert decoder.push(thought, 1000) == decoder.push(thought, 2000) == [ThinkingDelta("Hm.")]
    assert decoder.push(text("ok"), 4000.5) == [ThinkingEnded(3000), TextDelta("ok")]
    decoder.push(thought, 5000)
    assert decoder.ask("1", Question(tool="ask", title="", questions=[]), {})[0] == ThinkingEnded()


def test_the_agents_title_is_passed_on() -> None:
    named = {"sessionUpdate": "session_info_update", "title": "File And Shell"}
    assert decoded(named, {**named, "title": None}, {**named, "title": ""}) == [
        TitleGiven("File And Shell"),
        RunFinished(),
    ]
    spawned = {"sessionUpdate": "subagent_spawned", "subagentSessionId": "child", "name": "a", "task": "b"}
    decoder = AcpDecoder()
    pushed(decoder, spawned)
    assert decoder.push(named, session_id="child") == []  # that is not what the conversation is about


@pytest.mark.parametrize("kind", ["agent_message_chunk", "agent_thought_chunk"])
def test_halves_of_a_character_are_joined(kind: str) -> None:
    events = decoded(text("a\ud83d", kind), text("\ude00b\ud83d", kind))
    result = "".join(event.text for event in events if isinstance(event, TextDelta | ThinkingDelta))
    assert result == "a😀b\ufffd"


def test_half_a_character_alone_is_thinking_too() -> None:
    assert decoded(text("\ud83d", "agent_thought_chunk"))[:2] == [ThinkingDelta("\ufffd"), ThinkingEnded()]


def test_content_that_is_no_text_is_counted() -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": ""}}
    assert decoded(update)[0] == Unrecognized("content 'image'")


# --- failures that come as text -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trailer", "code"),
    [
        ("RetriableError: [resource_exhausted] Error", "agent_overloaded"),
        ("RetriableError: [unavailable] PING timed out", "agent_unreachable"),
        ("T: [internal] Failed to run step, exceeded max retries", "agent_unreachable"),
        ("ActionRequiredError: You've reached your usage limit", "insufficient_quota"),
        ("You've hit your usage limit\nfallbackModel:\nspendLimitHit: false", "insufficient_quota"),
        ("ConnectError: something new", "agent_failed"),
    ],
)
def test_a_failure_at_the_end_of_the_text_is_a_failure(trailer: str, code: str) -> None:
    events = decoded(text("Some "), text("text."), text(f"\n\nError: {trailer}"))
    assert said(events) == "Some text."
    assert isinstance(events[-1], RunFailed)
    assert events[-1].failure.code == code


def test_a_failure_that_was_reported_explains_an_end_without_an_answer() -> None:
    decoder = AcpDecoder()
    pushed(decoder, text("\n\nError: RetriableError: [resource_exhausted] Error"))
    (failed,) = decoder.flush(CRASHED)
    assert isinstance(failed, RunFailed)
    assert failed.failure.code == "agent_overloaded"
    assert decoder.finished


PIECES = st.lists(
    st.sampled_from(
        ["\n", "\n\n", "Error: ", "RetriableError: ", "T: ", "[internal] ", "a", "```", "Not logged in", "é"]
    ),
    max_size=12,
)


@given(PIECES, st.integers(1, 5))
def test_text_is_what_its_pieces_are(pieces: list[str], size: int) -> None:
    whole = "".join(pieces)
    cut = decoded(*(text(whole[at : at + size]) for at in range(0, len(whole), size)))
    assert said(cut) == whole
    assert cut[-1] == RunFinished()


@pytest.mark.parametrize("before", [text("Hm.", "agent_thought_chunk"), call("1", kind="read")])
def test_a_sentence_about_the_account_counts_only_if_nothing_came_before(before: dict[str, Any]) -> None:
    sentence = "Please sign in to continue"
    assert said(decoded(before, text(sentence))) == sentence
    assert isinstance(decoded(text(sentence))[-1], RunFailed)


# --- generated turns ------------------------------------------------------------------------------------

CALLS: list[list[dict[str, Any]]] = [
    [
        call("g", title="grep", kind="search", rawInput={}),
        {**done("g"), "status": "", "title": 'grep "x"', "rawInput": {"pattern": "x"}},
        {**done("g"), "status": "in_progress"},
        done("g", rawOutput={"totalMatches": 1}),
    ],
    [call("s", title="`ls`", kind="execute", rawInput={"command": "ls"}), done("s")],
    [
        call("e", title="Edit File", kind="edit", rawInput={}),
        {**done("e"), "status": "in_progress", "rawInput": {"path": "a"}},
        done("e", content=[{"type": "diff", "path": "a", "oldText": "1\n", "newText": "2\n"}]),
    ],
    [call("t", title="Task: x", kind="other", rawInput={"_toolName": "task"}), done("t", rawOutput={"durationMs": 5})],
    [call("m", title="s-get: get", kind="other", rawInput={"a": 1}), done("m", rawOutput={"content": []})],
]


@given(st.data())
def test_calls_end_the_same_however_their_updates_are_mixed(data: st.DataObject) -> None:
    one_by_one = {
        event.call_id: (event.action, event.outcome)
        for event in decoded(*(update for updates in CALLS for update in updates))
        if isinstance(event, ToolEnded)
    }
    waiting = [list(updates) for updates in CALLS] + [[text("a"), text("b")], [text("Hm", "agent_thought_chunk")]]
    mixed: list[dict[str, Any]] = []
    while waiting := [updates for updates in waiting if updates]:
        mixed.append(data.draw(st.sampled_from(waiting), label="next").pop(0))
    events = decoded(*mixed)
    assert said(events) == "ab"
    assert {
        event.call_id: (event.action, event.outcome) for event in events if isinstance(event, ToolEnded)
    } == one_by_one
    started = [event.call_id for event in events if isinstance(event, ToolStarted)]
    assert sorted(started) == sorted(one_by_one)


# --- permissions under another id -----------------------------------------------------------------------

REFUSED = Outcome(state="rejected", code="NOT_ALLOWED", message="Not run: it was not allowed.")


@given(st.data())
def test_permissions_and_calls_of_web_pages_are_one_call_each_in_any_order(data: st.DataObject) -> None:
    """A call says which page it is about at once, or later; it runs when its permission has been decided."""
    pages = [f"https://host{number}.example/p" for number in range(data.draw(st.integers(1, 4), label="pages"))]
    allowed = {page: data.draw(st.booleans(), label="allowed") for page in pages}
    decoder, events = AcpDecoder(), list[AgentEvent]()
    is_late = data.draw(st.booleans(), label="the page comes later")
    steps: dict[str, list[str]] = {}
    for page in pages:
        before = ["call", "page"] if data.draw(st.booleans(), label="the call comes first") else []
        steps[page] = [*before, "permission", *([] if before else ["call", "page"]), "run", "end"]
    while waiting := [page for page in pages if steps[page]]:
        page = data.draw(st.sampled_from(waiting), label="next")
        number = pages.index(page)
        about = {"title": f"Fetch {page}", "kind": "fetch"}
        match steps[page].pop(0):
            case "permission":
                decoder.announce(call_of(Fields({"toolCallId": f"web_fetch_{number}", "status": "pending", **about})))
                id = f"web_fetch_{number}"
                events += decoder.begin(id) if allowed[page] else decoder.deny(id, REFUSED)
            case "call":
                told = {"title": "Fetch", "kind": "fetch"} if is_late else about
                events += decoder.push(call(f"tool_{number}", rawInput={}, **told))
            case "page":
                events += decoder.push({**done(f"tool_{number}"), "status": "", **about, "rawInput": {"url": page}})
            case "run":
                events += decoder.push({**done(f"tool_{number}"), "status": "in_progress"})
            case _:
                output = {"rawOutput": {"markdown": page}} if allowed[page] else {}
                events += decoder.push(done(f"tool_{number}", **output))
    ends = [event for event in events if isinstance(event, ToolEnded)]
    assert len([event for event in events if isinstance(event, ToolStarted)]) == len(ends) == len(pages)
    found = {}
    for end in ends:
        assert isinstance(end.action, OtherTool)
        found[end.action.arguments["url"]] = (end.outcome.state, end.action.data)
    assert found == {page: ("completed", page) if allowed[page] else ("rejected", REFUSED.message) for page in pages}


def test_a_call_that_never_says_its_page_takes_a_permission_when_it_runs() -> None:
    decoder = AcpDecoder()
    decoder.announce(call_of(Fields({"toolCallId": "web_search_1", "title": "Web Search", "kind": "search"})))
    assert decoder.begin("web_search_1") == []
    events = pushed(
        decoder,
        call("s", title="Web Search", kind="search", rawInput={}),
        {**done("s"), "status": "in_progress"},
        done("s", rawOutput={"references": []}),
    )
    assert [type(event) for event in events] == [ToolStarted, ToolEnded]


def test_a_call_is_not_shown_as_running_before_its_permission() -> None:
    """An update without a status does not change it."""
    decoder = AcpDecoder()
    later = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "`ls`", "rawInput": {"command": "ls"}}
    assert pushed(decoder, call("1", kind="execute", title="Run", rawInput={}), later) == []
    (start,) = decoder.begin("1")
    assert isinstance(start, ToolStarted)
    assert start.action == Command(tool="run_terminal_cmd", command="ls")


# --- to-dos -----------------------------------------------------------------------------------------------


def entries(*todos: tuple[str, str]) -> dict[str, Any]:
    return {"sessionUpdate": "plan", "entries": [{"content": content, "status": status} for content, status in todos]}


def reported(events: list[AgentEvent]) -> list[list[tuple[str, str]]]:
    """The ids and statuses of each list."""
    updates = [event.action for event in events if isinstance(event, ToolEnded)]
    return [[(todo.id, todo.status) for todo in one.todos] for one in updates if isinstance(one, TodoUpdate)]


def test_a_list_keeps_its_ids_whether_a_plan_or_a_list_with_ids_comes_first() -> None:
    todos = [
        {"id": "find", "content": "Find", "status": "pending"},
        {"id": "fix", "content": "Fix", "status": "pending"},
    ]
    plan, whole = entries(("Find", "pending"), ("Fix", "pending")), {"toolCallId": "a", "todos": todos, "merge": False}
    change = {"toolCallId": "b", "todos": [{"id": "fix", "status": "completed"}], "merge": True}
    changed = entries(("New", "pending"), ("Find", "pending"), ("Fix", "completed"))
    decoder = AcpDecoder()
    events = [*decoder.push(plan), *decoder.extension("cursor/update_todos", whole)]
    events += [*decoder.extension("cursor/update_todos", change), *decoder.push(changed)]
    assert reported(events) == [
        [("1", "pending"), ("2", "pending")],
        [("2", "completed")],
        [("3", "pending"), ("1", "pending"), ("2", "completed")],
    ]
    decoder = AcpDecoder()
    events = [*decoder.extension("cursor/update_todos", whole), *decoder.push(plan)]
    events += [*decoder.extension("cursor/update_todos", change), *decoder.push(changed)]
    assert reported(events) == [
        [("find", "pending"), ("fix", "pending")],
        [("fix", "completed")],
        [("1", "pending"), ("find", "pending"), ("fix", "completed")],
    ]


def test_a_list_that_names_an_id_twice_is_one_todo() -> None:
    todo = {"id": "x", "content": "A", "status": "pending"}
    decoder = AcpDecoder()
    events = decoder.push(entries(("A", "pending")))
    events += decoder.extension("cursor/update_todos", {"toolCallId": "t", "todos": [todo, todo], "merge": False})
    assert reported(events) == [[("1", "pending")]]


# --- sub-agents -----------------------------------------------------------------------------------------


def spawned(child: str, call_id: str = "", **fields: Any) -> dict[str, Any]:
    about = {"cursor": {"toolCallId": call_id, "model": "m"}} if call_id else {}
    return {"sessionUpdate": "subagent_spawned", "subagentSessionId": child, "_meta": about, **fields}


def state(child: str, name: str) -> dict[str, Any]:
    return {"sessionUpdate": "subagent_state_update", "subagentSessionId": child, "state": name}


def test_a_subagents_calls_have_a_parent_and_its_last_message_is_the_result() -> None:
    decoder = AcpDecoder()
    pushed(
        decoder, call("t", rawInput={"_toolName": "task", "description": "d"}), spawned("c", "t", name="n", task="p")
    )
    events = [
        event
        for update in (
            text("Hm.", "agent_thought_chunk"),
            text("First I look."),
            {"sessionUpdate": "plan", "entries": [{"content": "x"}]},
            call("1", kind="read", rawInput={"path": "a"}),
            done("1", rawOutput={"content": "x"}),
            spawned("d", "2", name="deeper"),
            text("It "),
            text("is x."),
        )
        for event in decoder.push(update, None, "c")
    ]
    assert [event.parent for event in events if isinstance(event, ToolStarted)] == ["t", "t"]
    assert said(events) == ""
    assert pushed(decoder, done("t", rawOutput={"durationMs": 1, "isBackground": True})) == []
    assert decoder.extension("cursor/update_todos", {"toolCallId": "1", "todos": [{"id": "1"}]}) == []
    (end,) = pushed(decoder, state("c", "completed"))
    assert isinstance(end, ToolEnded)
    assert end.action == OtherTool(
        tool="task", arguments={"description": "d", "prompt": "p", "model": "m"}, data="It is x."
    )


@pytest.mark.parametrize(("ends", "expected"), [("completed", "completed"), ("failed", "failed")])
def test_a_subagent_without_a_call_of_its_own_is_one(ends: str, expected: str) -> None:
    decoder = AcpDecoder()
    (start,) = pushed(decoder, spawned("c", name="explore", task="Look."))
    assert isinstance(start, ToolStarted)
    assert pushed(decoder, state("c", "running"), state("unknown", "completed")) == []
    decoder.push(text("Done."), None, "c")
    (end,) = pushed(decoder, state("c", ends))
    assert isinstance(end, ToolEnded)
    assert (end.call_id, end.outcome.state) == (start.call_id, expected)
    assert pushed(decoder, state("c", ends)) == []


def test_a_task_that_took_time_was_not_rejected() -> None:
    decoder = AcpDecoder()
    pushed(decoder, call("t", rawInput={"_toolName": "task"}), done("t"))
    (end,) = decoder.extension("cursor/task", {"toolCallId": "t", "prompt": "p", "durationMs": 5})
    assert isinstance(end, ToolEnded)
    assert (end.outcome.state, end.outcome.duration_ms) == ("completed", 5)


def test_a_subagent_that_is_not_over_ends_with_the_turn() -> None:
    events = decoded(
        call("t", rawInput={"_toolName": "task"}), spawned("c", "t"), done("t", rawOutput={"isBackground": True})
    )
    assert [type(event) for event in events] == [ToolStarted, ToolEnded, RunFinished]


def test_a_call_that_ends_ends_its_subagent_unless_it_goes_on_in_the_background() -> None:
    decoder = AcpDecoder()
    pushed(decoder, call("t", rawInput={"_toolName": "task"}), spawned("c", "t"), spawned("d", "u"))
    decoder.push(text("Done."), None, "c")
    assert pushed(decoder, done("t", rawOutput={"isBackground": False})) == []  # more may be told about it
    (end, _) = pushed(decoder, text("Good."))
    assert isinstance(end, ToolEnded)
    assert isinstance(end.action, OtherTool)
    assert end.action.data == "Done."


def test_a_task_is_told_what_it_was_after_its_end() -> None:
    decoder = AcpDecoder()
    task = call("t", title="Task: Subagent task", kind="other", rawInput={"_toolName": "task"})
    (start,) = pushed(decoder, task, done("t", rawOutput={"durationMs": 13075, "isBackground": False}))
    assert isinstance(start, ToolStarted)
    told = {"toolCallId": "t", "description": "List files", "prompt": "…", "durationMs": 13075}
    (end,) = decoder.extension("cursor/task", told)
    assert isinstance(end, ToolEnded)
    assert isinstance(end.action, OtherTool)
    assert (end.action.arguments, end.outcome.duration_ms) == ({"description": "List files", "prompt": "…"}, 13075)


# --- permission before the call ---------------------------------------------------------------------------


def asked(decoder: AcpDecoder, id: str, title: str) -> None:
    decoder.announce(call_of(Fields({"toolCallId": id, "title": title, "kind": "fetch"})))


def test_a_call_takes_the_place_of_its_request_for_permission() -> None:
    decoder = AcpDecoder()
    asked(decoder, "web_fetch_0", "Fetch https://a.b/1")
    asked(decoder, "web_fetch_1", "Fetch https://a.b/2")
    assert decoder.begin("web_fetch_0") == []  # it is reported when it runs
    assert len(decoder.deny("web_fetch_1", Outcome(state="rejected"))) == 2
    events = pushed(decoder, call("x", kind="fetch", title="Fetch"), done("x", rawOutput={"markdown": "m"}))
    assert [(type(event), event.call_id) for event in events if isinstance(event, ToolStarted | ToolEnded)] == [
        (ToolStarted, "web_fetch_0"), (ToolEnded, "web_fetch_0"),
    ]  # fmt: skip
    assert pushed(decoder, call("y", kind="fetch", title="Fetch https://a.b/2"), done("y")) == []
    assert len(pushed(decoder, call("z", kind="fetch", title="Fetch https://a.b/3"), done("z"))) == 2


@pytest.mark.parametrize(
    ("id", "title", "expected"),
    [
        ("web_fetch_0", "Fetch https://a.b/1", False),
        ("web_fetch_0", "Fetch https://a.b/2", True),
        ("web_fetch_1", "Fetch https://a.b/2", False),
    ],
)
def test_a_request_with_the_id_of_another_page_is_another_one(id: str, title: str, expected: bool) -> None:
    decoder = AcpDecoder()
    asked(decoder, "web_fetch_0", "Fetch https://a.b/1")
    request = call_of(Fields({"toolCallId": id, "title": title, "kind": "fetch"}))
    assert decoder.is_another(request) is expected


def test_another_call_does_not_take_the_place_of_a_request() -> None:
    decoder = AcpDecoder()
    decoder.announce(call_of(Fields({"toolCallId": "1", "title": "`rm x`", "kind": "execute"})))
    decoder.deny("1", Outcome(state="rejected"))
    assert len(pushed(decoder, call("2", title="`ls`", kind="execute"), done("2", rawOutput={"exitCode": 0}))) == 2
    asked(decoder, "web_fetch_0", "Fetch https://a.b/1")
    assert decoder.begin("web_fetch_0") == []
    events = pushed(decoder, call("web_fetch_0", title="Fetch", kind="fetch"), done("web_fetch_0"))
    assert len(events) == 2


# --- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "code"),
    [("cancelled", "cancelled"), ("refusal", "agent_failed"), ("max_tokens", "agent_failed"),
     ("max_turn_requests", "agent_failed")],
)  # fmt: skip
def test_reasons_to_stop_that_are_no_success(stop: str, code: str) -> None:
    (failed,) = AcpDecoder().finish({"stopReason": stop}, TokenCounts(prompt=1, completion=2))
    assert isinstance(failed, RunFailed)
    assert (failed.failure.code, failed.usage) == (code, TokenCounts(prompt=1, completion=2))


def test_a_reason_that_is_new_is_a_success() -> None:
    assert AcpDecoder().finish({"stopReason": "tired"}) == [RunFinished()]


def test_figures_are_read_where_they_are() -> None:
    assert counted(END) is None
    figures = {"inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 3, "cachedWriteTokens": 1}
    assert counted({"usage": figures}) == TokenCounts(prompt=9, completion=2, cached=3)


# --- tools ----------------------------------------------------------------------------------------------


def test_a_command_and_its_output() -> None:
    start = call(SHELL, title="`echo hello`", kind="execute", rawInput={"command": "echo hello"})
    decoder = AcpDecoder()
    (started,) = pushed(decoder, start, {**done(SHELL), "status": "in_progress"})
    assert isinstance(started, ToolStarted)
    assert started.action == Command(tool="run_terminal_cmd", command="echo hello")
    (ended,) = pushed(decoder, done(SHELL, rawOutput={"exitCode": 0, "stdout": "hello\n", "stderr": ""}))
    assert isinstance(ended, ToolEnded)
    assert ended.action == Command(tool="run_terminal_cmd", command="echo hello", exit_code=0, output="hello\n")
    assert pushed(decoder, done(SHELL)) == []  # once is enough


def test_how_long_a_call_took_is_seen_from_outside() -> None:
    decoder = AcpDecoder()
    decoder.push(call("1", kind="read"), 1000.0)
    _, end = decoder.push(done("1"), 1250.5)
    assert isinstance(end, ToolEnded)
    assert end.outcome.duration_ms == 250
    assert decoder.finish(END, duration_ms=300) == [RunFinished(duration_ms=300)]


def test_a_call_that_changes_several_files_is_an_edit_of_each() -> None:
    diffs = [{"type": "diff", "path": path, "oldText": "a", "newText": path} for path in ("/w/a", "/w/b", "/w/c")]
    events = decoded(call("1", kind="edit"), done("1", content=diffs))
    ends = [event for event in events if isinstance(event, ToolEnded)]
    assert [event.call_id for event in events if isinstance(event, ToolStarted)] == ["1", "1 2", "1 3"]
    assert [end.action.path for end in ends if isinstance(end.action, FileEdit)] == ["/w/a", "/w/b", "/w/c"]
    (failed,) = [one for one in decoded(done("1", content=diffs, status="failed")) if isinstance(one, ToolEnded)]
    assert failed.outcome.state == "failed"


def test_what_comes_late_about_a_call_of_the_turn_before_is_left_out() -> None:
    before = AcpDecoder()
    before.push(call("1", kind="execute", rawInput={"command": "sleep 9"}))
    assert before.call_ids == {"1"}
    decoder = AcpDecoder(last_calls=before.call_ids)
    assert decoder.push(done("1", rawOutput={"exitCode": 0, "stdout": ""})) == []
    again = pushed(decoder, call("1", kind="read", rawInput={"path": "a"}), done("1", rawOutput={"content": "b"}))
    assert [type(event) for event in again] == [ToolStarted, ToolEnded]  # another call, with the same id


def test_another_call_may_have_the_id_of_one_that_has_ended() -> None:
    one, two = ({"kind": "read", "title": f"Read {path}", "rawInput": {"path": path}} for path in "ab")
    ended = done("1", rawOutput={"content": "x"})
    events = decoded(call("1", **one), ended, call("1", **one), ended, call("1", **two), ended)
    assert [type(event) for event in events[:-1]] == [ToolStarted, ToolEnded] * 2
    early = decoded(ended, call("1", **one), ended)  # what comes late says nothing new
    assert [type(event) for event in early[:-1]] == [ToolStarted, ToolEnded]


def test_a_call_that_never_ran_is_shown_at_the_end() -> None:
    """Unless it has a message of its own, or is known only from a request for permission."""
    shell = call("1", kind="execute", rawInput={"command": "make"})
    decoder = AcpDecoder()
    assert pushed(decoder, shell, call("2", kind="other", title="Create Plan")) == []
    decoder.announce(call_of(Fields(call("web_fetch_0", title="Fetch https://a.example"))))
    started, _ = decoder.finish(END)
    assert isinstance(started, ToolStarted)
    assert isinstance(started.action, Command)
    assert started.action.command == "make"


def test_a_call_without_an_id_and_one_too_deep_are_counted() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    assert decoded({"sessionUpdate": "tool_call"}, call("1", rawInput=deep))[:2] == [
        Unrecognized("update 'tool_call'"),
        Unrecognized("nested too deeply"),
    ]


def test_todos_that_are_nested_too_deeply_are_counted_and_a_question_is_asked_without_its_payload() -> None:
    """Found by fuzzing: written into a document, one level deeper, they could not be encoded."""
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    decoder = AcpDecoder()
    todos = {"todos": [{"id": "1", "content": "x", "more": deep}]}
    assert decoder.extension("cursor/update_todos", todos) == [Unrecognized("nested too deeply")]
    assert pushed(decoder, {"sessionUpdate": "plan", "entries": [deep]}) == [Unrecognized("nested too deeply")]
    question = Question(tool="ask_question", title="", questions=[])
    assert decoder.ask("1", question, deep) == [ToolStarted("1", question, waits=True)]


def test_a_call_that_we_denied_was_rejected() -> None:
    decoder = AcpDecoder()
    assert pushed(decoder, call("1", kind="read")) == []  # it does not run yet
    refused = Outcome(state="rejected", message="no")
    start, end = decoder.deny("1", refused)
    assert decoder.deny("1", refused) == decoder.deny("unknown", refused) == []
    assert decoder.call("1") is not None
    assert decoder.call("unknown") is None
    assert isinstance(start, ToolStarted)
    assert isinstance(end, ToolEnded)
    assert end.outcome == refused
    assert pushed(decoder, done("1", rawOutput={"content": "x"})) == []


def test_updates_that_mean_nothing_here_and_those_that_are_new() -> None:
    known = ["available_commands_update", "current_mode_update", "user_message_chunk"]
    assert decoded(*({"sessionUpdate": name} for name in known)) == [RunFinished()]
    assert decoded({"sessionUpdate": "weather"}, 7)[:2] == [Unrecognized("update 'weather'"), Unrecognized("update ''")]


# --- the caller's server --------------------------------------------------------------------------------


def test_what_went_well_with_the_callers_server_is_left_out() -> None:
    decoder = AcpDecoder("caller")
    title = {"kind": "other", "title": "caller-weather: weather"}
    assert pushed(decoder, call("1", **title), done("1", rawOutput={"content": []})) == []
    assert pushed(decoder, call("2", **title), done("2")) == []  # whatever came of it, the server knows
    assert pushed(decoder, call("3", rawInput={"_toolName": "getMcpTools"}), done("3")) == []
    (failed,) = pushed(decoder, call("4", **title), done("4", rawOutput={"error": "timed out"}))
    assert isinstance(failed, ToolEnded)
    assert pushed(decoder, call("5", **title)) == []
    (denied,) = decoder.deny("5", Outcome(state="rejected"))
    assert isinstance(denied, ToolEnded)
    assert len(pushed(decoder, call("6", kind="other", title="their-tool: tool"), done("6", rawOutput={"a": 1}))) == 2


def test_calls_of_the_users_tool_are_counted_and_left_out() -> None:
    decoder = AcpDecoder(user_tool=UserTool("user_1"))
    asked = {"kind": "other", "title": "user_1-ask_user: ask_user"}
    assert pushed(decoder, call("1", **asked), done("1", rawOutput={"content": []})) == []
    given = {"providerIdentifier": "session-user_1", "toolName": "ask_user", "args": {}}
    assert pushed(decoder, call("2", kind="other", rawInput=given), done("2")) == []
    schema = {"_toolName": "getMcpTools", "server": "user_1"}
    assert pushed(decoder, call("3", rawInput=schema), done("3")) == []
    assert decoder.user_calls == 2
    assert len(pushed(decoder, call("4", kind="other", title="their-tool: tool"), done("4", rawOutput={"a": 1}))) == 2
    assert decoder.user_calls == 2


# --- questions, plans and todos -------------------------------------------------------------------------


def test_what_is_asked_is_reported_and_then_settled_once() -> None:
    decoder = AcpDecoder()
    question = read_call("askQuestion", {"questions": [{"id": "q", "prompt": "Which?", "options": []}]})
    assert isinstance(question, Question)
    result = pushed(decoder, text("Hm."), call("1", kind="other", title="Ask Question"))
    assert result == [TextDelta("Hm.")]  # its own message says more
    assert decoder.ask("1", question, {}) == [ToolStarted("1", question, payload={}, waits=True)]
    assert decoder.settle("1", question, Outcome()) == [ToolEnded("1", question, Outcome())]
    assert pushed(decoder, done("1")) == []
    assert decoder.ask("2", question, {}, waits=False) == [ToolStarted("2", question, payload={})]


def test_a_call_that_no_message_followed_is_reported_at_its_end() -> None:
    events = decoded(call("1", kind="other", title="Ask Question"), done("1"))
    assert [type(event) for event in events] == [ToolStarted, ToolEnded, RunFinished]


def test_a_plans_todos_are_not_reported_again() -> None:
    decoder = AcpDecoder()
    plan = read_call("createPlan", {"name": "P", "todos": [{"id": "a", "content": "Find", "status": "pending"}]})
    assert isinstance(plan, Plan)
    decoder.ask("1", plan, {})
    same = {"sessionUpdate": "plan", "entries": [{"content": "Find", "priority": "medium", "status": "pending"}]}
    assert decoder.push(same) == []
    other = {"sessionUpdate": "plan", "entries": [{"content": "Find", "priority": "medium", "status": "completed"}]}
    started, ended = decoder.push(other)
    assert isinstance(started, ToolStarted)
    assert isinstance(ended, ToolEnded)
    assert isinstance(ended.action, TodoUpdate)
    assert [(todo.content, todo.status) for todo in ended.action.todos] == [("Find", "completed")]


def test_todos_are_reported_once_whichever_message_comes_first() -> None:
    todos = [{"id": "a", "content": "Find", "status": "in_progress"}]
    entries = {"sessionUpdate": "plan", "entries": [{"content": "Find", "status": "in_progress"}]}
    decoder = AcpDecoder()
    assert pushed(decoder, call("1", kind="other", title="Update TODOs")) == []
    events = decoder.extension("cursor/update_todos", {"toolCallId": "1", "todos": todos, "merge": False})
    assert [type(event) for event in events] == [ToolStarted, ToolEnded]
    assert [*decoder.push(entries), *pushed(decoder, done("1"))] == []
    change = {"toolCallId": "1", "todos": [{"id": "a", "status": "completed"}], "merge": True}
    again = decoder.extension("cursor/update_todos", change)
    assert isinstance(again[0], ToolStarted)
    assert again[0].call_id == "todos 1"
    decoder = AcpDecoder()
    decoder.push(entries)
    assert decoder.extension("cursor/update_todos", {"toolCallId": "2", "todos": todos, "merge": False}) == []
    assert [*pushed(decoder, call("2", kind="other", title="Update TODOs")), *pushed(decoder, done("2"))] == []


def test_todos_that_a_call_itself_names_are_reported_by_it() -> None:
    todos = [{"id": "a", "content": "Find", "status": "pending"}]
    end = end_of(
        call("1", kind="other", rawInput={"_toolName": "updateTodos", "todos": todos, "merge": False}),
        done("1", rawOutput={"todos": todos}),
        {"sessionUpdate": "plan", "entries": todos},
    )
    assert isinstance(end.action, TodoUpdate)


def test_messages_of_cursors_own() -> None:
    decoder = AcpDecoder()
    for method in ("cursor/task", "cursor/generate_image", "cursor/canvas"):
        assert decoder.extension(method, {}) == [Notice("background")]
    assert decoder.extension("cursor/weather", {}) == [Unrecognized("method 'cursor/weather'")]


# --- the capture ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not CAPTURE.exists(), reason="the capture stands beside the repository")
def test_the_capture_is_understood() -> None:
    messages = [json.loads(line)["msg"] for line in CAPTURE.read_text().splitlines()]
    updates = [message["params"]["update"] for message in messages if message.get("method") == "session/update"]
    events = decoded(*updates)
    assert not [event for event in events if isinstance(event, Unrecognized)]
    assert said(events) == "ok"
    states = [event.outcome.state for event in events if isinstance(event, ToolEnded)]
    assert states == ["completed", "rejected", "completed", "completed"]
