"""Generated turns of ACP: updates, extension messages and permissions of every shape that is known, in any order.

Whatever comes, each call starts and ends once, and the laws of documents and dialects hold.
"""

from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.deltas import AgentTools
from cursor_gateway.model.agent_events import AgentEvent, Outcome, ToolEnded, ToolStarted
from cursor_gateway.sources.acp.calls import call_of
from cursor_gateway.sources.acp.decoder import AcpDecoder
from cursor_gateway.wire.payload import Fields
from tests.laws import laws
from tests.strategies import examples

Json = dict[str, Any]

IDS = st.sampled_from(["a", "b", "call_x\nfc_y", "web_fetch_0", "web_search_1", "todo", "task"])
SESSIONS = st.sampled_from(["", "", "", "child", "grandchild", "unknown"])
TITLES = st.sampled_from(
    [
        "grep",
        'grep "x"',
        "Find",
        "Find `**/*`",
        "Fetch",
        "Fetch https://a.b/c",
        "Web search: x",
        "`ls -la`",
        "Edit File",
        "Edit `/w/f`",
        "Delete `x`",
        "Task: x",
        "Update TODOs",
        "Create Plan",
        "srv-tool: tool",
        "Read x",
        "",
        "new `",
    ]
)
KINDS = st.sampled_from(["execute", "edit", "search", "read", "other", "fetch", "delete", "think", "switch_mode", ""])
INPUTS: st.SearchStrategy[Json] = st.one_of(
    st.sampled_from(
        [
            {},
            {"command": "ls"},
            {"path": "/w/f"},
            {"url": "https://a.b/c"},
            {"pattern": "x"},
            {"serverIdentifier": "s"},
            {"providerIdentifier": "s", "toolName": "t", "args": {"a": 1}},
            {"providerIdentifier": "s", "toolName": "t", "args": None, "b": 2},
            {"_toolName": "updateTodos", "todos": [{"id": "1", "content": "c", "status": "pending"}]},
        ]
    ),
    st.sampled_from(["task", "updateTodos", "createPlan", "mcp", "web_fetch", "new_tool"]).map(
        lambda name: {"_toolName": name}
    ),
)
OUTPUTS = st.sampled_from(
    [None, "text", 5, True, "", [], ["a"], {}, {"error": "x"}, {"error": {"message": "m"}}, {"content": "c"}]
    + [{"exitCode": code, "stdout": "o", "stderr": ""} for code in (0, 1, None, "2")]
    + [{"rejected": {"reason": "r"}}, {"success": {}}, {"timeout": {}}, {"spawnError": "x"}, {"fileNotFound": {}}]
    + [{"totalMatches": 1}, {"isBackground": True}, {"durationMs": 3}, {"content": [{"text": "p"}], "isError": True}]
)
CONTENTS = st.one_of(
    st.sampled_from([[], [{"type": "content", "content": {"type": "text", "text": "told"}}], [{"type": "diff"}], [5]]),
    st.lists(
        st.fixed_dictionaries(
            {
                "type": st.just("diff"),
                "path": st.sampled_from(["/w/f", "/w/f", "/w/g", ""]),
                "oldText": st.sampled_from([None, "", "a\n", "-- a//w/f\nx", "-- /dev/null"]),
                "newText": st.sampled_from(["", "a\n", "b\n", "++ b//w/f\ny", "++ /dev/null"]),
            }
        ),
        max_size=3,
    ),
)
STATUSES = st.sampled_from(["pending", "in_progress", "completed", "failed"])
CALLS = st.fixed_dictionaries(
    {"sessionUpdate": st.sampled_from(["tool_call", "tool_call_update"]), "toolCallId": IDS},
    optional={
        "title": TITLES,
        "kind": KINDS,
        "status": STATUSES,
        "rawInput": INPUTS,
        "rawOutput": OUTPUTS,
        "content": CONTENTS,
    },
)
TEXTS = st.builds(
    lambda kind, text: {"sessionUpdate": kind, "content": {"type": "text", "text": text}},
    st.sampled_from(["agent_message_chunk", "agent_thought_chunk"]),
    st.sampled_from(
        ["Hello ", "```py\nx\n```\n", "\n\n", "\n\nError: RetriableError: x", "Please sign in to continue"]
    ),
)
PLANS = st.builds(
    lambda entries: {
        "sessionUpdate": "plan",
        "entries": [{"content": text, "status": state} for text, state in entries],
    },
    st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from(["pending", "completed"])), max_size=3),
)
CHILDREN = st.sampled_from(["child", "grandchild", ""])
SPAWNED = st.builds(
    lambda child, call: {
        "sessionUpdate": "subagent_spawned",
        "subagentSessionId": child,
        "name": "n",
        "_meta": {"cursor": {"toolCallId": call}},
    },
    CHILDREN,
    IDS | st.just(""),
)
STATES = st.builds(
    lambda child, state: {"sessionUpdate": "subagent_state_update", "subagentSessionId": child, "state": state},
    CHILDREN,
    st.sampled_from(["running", "completed", "failed", "cancelled"]),
)
TODOS = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["1", "2", "x", ""]), "status": st.just("pending")},
        optional={"content": st.sampled_from("ABC")},
    ),
    max_size=3,
)
EXTENSIONS = st.tuples(
    st.sampled_from(["cursor/update_todos", "cursor/task", "cursor/canvas", "cursor/new"]),
    st.fixed_dictionaries(
        {"toolCallId": IDS, "merge": st.booleans(), "todos": TODOS}, optional={"durationMs": st.just(3)}
    ),
)
STEPS = st.one_of(
    st.tuples(st.just("update"), st.one_of(CALLS, CALLS, CALLS, TEXTS, PLANS, SPAWNED, STATES), SESSIONS),
    st.tuples(st.just("extension"), EXTENSIONS, st.just("")),
    st.tuples(st.just("permission"), CALLS, SESSIONS),
    st.tuples(st.sampled_from(["allowed", "denied"]), IDS, st.just("")),
)
REFUSED = Outcome(state="rejected", code="NOT_ALLOWED", message="Not run: it was not allowed.")


def played(steps: list[tuple[str, Any, str]]) -> list[AgentEvent]:
    decoder, events = AcpDecoder(), list[AgentEvent]()
    for kind, what, session in steps:
        match kind:
            case "update":
                events += decoder.push(what, 1.0, session)
            case "extension":
                events += decoder.extension(*what)
            case "permission":  # as a running turn does it: a call that is known is not announced again
                if decoder.call(what["toolCallId"]) is None:
                    about = {name: value for name, value in what.items() if name != "content"}
                    decoder.announce(call_of(Fields(about)), session)
            case "allowed":
                events += decoder.begin(what)
            case _:
                events += decoder.deny(what, REFUSED)
    return events + decoder.finish({"stopReason": "end_turn"})


@examples(200)
@given(st.lists(STEPS, max_size=25))
def test_calls_start_and_end_once_and_the_laws_hold(steps: list[tuple[str, Any, str]]) -> None:
    events = played(steps)
    for kind in (ToolStarted, ToolEnded):
        ids = [event.call_id for event in events if isinstance(event, kind)]
        assert len(ids) == len(set(ids))
    shown = laws.assemble(events)
    laws.assert_well_formed(shown)
    laws.assert_says_exactly(laws.text_of(shown), shown)
    laws.assert_the_stream_folds_to_the_response(shown)
    for agent_tools in get_args(AgentTools):
        laws.assert_the_chunks_fold_to_the_completion(shown, agent_tools=agent_tools, include_usage=True)
    laws.assert_readable_text_has_blank_lines_between_tools(shown)
