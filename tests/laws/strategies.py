"""What the laws are tried on: stories for the model of cursor-agent, strange lines, and agent events in any order."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.errors import AgentCrashed, AgentUnauthenticated, RunCancelled
from cursor_gateway.model import documents
from cursor_gateway.model.agent_events import (
    Action,
    AgentEvent,
    CallerAwaited,
    CallerToolAnswered,
    CallerToolAsked,
    Command,
    CommandOutput,
    FileEdit,
    Notice,
    OtherTool,
    Outcome,
    Plan,
    PromptEchoed,
    Question,
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
from cursor_gateway.model.caller_tools import CallerCall, ToolResult
from cursor_gateway.model.messages import Image
from cursor_gateway.model.requests import RunInfo
from tests.laws.agent import (
    Asks,
    Ends,
    Notifies,
    Reconnects,
    Recording,
    Retries,
    Says,
    Starts,
    Step,
    StopsThinking,
    Story,
    Thinks,
    play,
)


def examples(number: int) -> settings:
    """In proportion: so many where the profile says 100."""
    return settings(max_examples=max(10, number * settings().max_examples // 100))


# --- text -------------------------------------------------------------------------------------------

_PLAIN = [
    "ha", "ha", "ha", "haha", " ", "", "a", "Hello ", "world", ".", "\n", "\n\n", "  \n", "\t", "\r", "\r\n",
    "é", "\U0001f600", "\u2028", "\u0085", "\x00", '"\\', "x = 1\n", "    x\n", "# Title\n", "- ", "1. ", "> ",
    "<div>\n",
]  # fmt: skip
_FENCES = [
    "```", "`", "``", "```python\n", "```\n", "\n```\n", "````md\n", "````\n", "~~~sh\n", "~~~\n", "  ```js\n",
    "```1:3:src/a b.py\n", "```12:14:C:\\x.ts\n", "- ```py\n", "  ```\n", "> ```py\n", "\n```python\nx\n```\n",
]  # fmt: skip

texts = st.one_of(st.sampled_from(_PLAIN), st.sampled_from(_PLAIN + _FENCES), st.text(max_size=4))


# --- stories ----------------------------------------------------------------------------------------

_calls = st.integers(0, 11)
_endings = st.sampled_from(["success", "success", "error", "rejected", "timeout", "permissionDenied", "nothing"])


def _steps(retry: Retries) -> st.SearchStrategy[Step]:
    says: st.SearchStrategy[Step] = st.builds(Says, texts)
    others: st.SearchStrategy[Step] = st.one_of(
        st.builds(Thinks, texts),
        st.builds(StopsThinking),
        st.builds(Starts, _calls),
        st.builds(Ends, _calls, _endings),
        st.builds(Asks, _calls, st.booleans()),
        st.sampled_from([Reconnects(), Notifies(), retry]),
    )
    return st.one_of(says, says, others)


stories: st.SearchStrategy[Story] = st.one_of(
    st.lists(_steps(Retries(forgets=False)), max_size=25), st.lists(_steps(Retries(forgets=True)), max_size=25)
)

# Characters cut in two, and halves that never meet their other half.
_torn: st.SearchStrategy[Story] = st.one_of(
    st.builds(
        lambda before, between, after: [Says(f"{before}\ud83d"), *between, Says(f"\ude00{after}")],
        texts,
        st.sampled_from([[], [], [Says("")], [Thinks("hm")], [Ends(9, "success")], [Reconnects(), Notifies()]]),
        texts,
    ),
    st.builds(
        lambda before, between, after: [Thinks(f"{before}\ud83d"), *between, Thinks(f"\ude00{after}")],
        texts,
        st.sampled_from([[], [Thinks("")], [Notifies()]]),
        texts,
    ),
    st.builds(lambda before, after: [Says(f"{before}\ud83d{after}.")], texts, texts),
    st.builds(lambda before, after: [Says(f"{before}.\ude00{after}")], texts, texts),
    st.builds(lambda before, call: [Says(f"{before}.\ud83d"), Asks(call, approves=True)], texts, _calls),
    st.builds(lambda before: [Thinks(f"{before}.\ud83d"), StopsThinking()], texts),
)
torn_stories: st.SearchStrategy[Story] = st.lists(
    st.one_of(_steps(Retries(forgets=False)).map(lambda step: [step]), _torn), max_size=12
).map(lambda parts: [step for part in parts for step in part])


def _played(story: Story, partial: bool, counts_tokens: bool) -> Recording:
    return play(story, partial=partial, counts_tokens=counts_tokens)


recordings: st.SearchStrategy[Recording] = st.builds(_played, stories, st.booleans(), st.booleans())
torn_recordings: st.SearchStrategy[Recording] = st.builds(_played, torn_stories, st.booleans(), st.booleans())

runs: st.SearchStrategy[RunInfo] = st.builds(
    RunInfo,
    id=st.just("chat_1"),
    created=st.just("2026-02-23T10:30:00Z"),
    mode=st.sampled_from(["agent", "plan", "ask", "debug"]),
    fences=st.sampled_from(["split", "inline"]),
    include=st.frozensets(st.sampled_from(["thinking", "raw"])),
    page_url=st.sampled_from([None, "", "http://127.0.0.1:8787"]),
)

STRANGE_LINES: dict[str, bytes] = {
    "text of another program": b"T: [internal] Failed to run step, exceeded max retries",
    "an unknown type": b'{"type":"telemetry","session_id":"x","nested":{"type":"assistant"}}',
    "an unknown subtype": b'{"type":"system","subtype":"weather","session_id":"x"}',
    "no type": b'{"grepToolCall":{"args":{}}}',
    "a type that is no string": b'{"type":7}',
    "broken UTF-8": b'{"type":"assistant","message":\xff\xfe{"content":[{"text":"no"}]}}',
    "absurd nesting": b'{"type":"assistant","message":' + b"[" * 100_000,
    "a call nested absurdly": b'{"type":"tool_call","subtype":"started","tool_call":{"readToolCall":{"args":'
    + b'{"a":' * 150
    + b"1"
    + b"}" * 150
    + b"}}}",
    "a known type, nested deeply, with half a character": b'{"type":"user","message":%b"\\ud800"%b}'
    % (b"[" * 600, b"]" * 600),
    "an unknown type, nested deeply, with half a character": b'{"type":"telemetry","x":%b"\\ud800"%b}'
    % (b"[" * 600, b"]" * 600),
    "a JSON array": b'[{"type":"assistant","message":{"content":[{"text":"no"}]}}]',
    "half a record": b'{"type":"assistant","message":{"content":[{"type":"text","te',
    "a number": b"12",
    "an assistant without a message": b'{"type":"assistant","session_id":"x"}',
    "a call without a tool": b'{"type":"tool_call","subtype":"started","call_id":"c"}',
}

# Calls of the oldest builds, whose arguments are JSON in a string: what is strange in there is theirs alone.
# Each beside a plain call of the same shape.
_NAMED = '{"type":"tool_call","name":"foo","arguments":%s,"id":"x"}'
_FUNCTION = '{"type":"tool_call","call_id":"x","tool_call":{"function":{"name":"foo","arguments":%s}}}'
_STRANGE_ARGUMENTS = {
    "half a character as a value": r'{"a":"\ud800"}',
    "half a character as a key": r'{"\ud800":"a"}',
    "halves that meet": r'{"a":"\ud83d\ude00"}',
    "half a character alone": r'"\udfff"',
    "300 levels": '{"a":' * 300 + "1" + "}" * 300,
    "300 levels around half a character": "[" * 300 + r'"\ud800"' + "]" * 300,
    "absurd nesting": "[" * 100_000,
    "a number beyond 64 bits": '{"a":123456789012345678901234567890}',
}
STRANGE_CALLS: dict[str, tuple[bytes, bytes]] = {
    f"{name}, {place}": ((shape % json.dumps(arguments)).encode(), (shape % json.dumps("{}")).encode())
    for name, arguments in _STRANGE_ARGUMENTS.items()
    for place, shape in (("named", _NAMED), ("as a function", _FUNCTION))
}


# --- agent events -----------------------------------------------------------------------------------

_call_ids = st.sampled_from(["a", "b", "c", "call_x\nfc_y", "", "call_001", "x" * 100, "é"])
_json: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 10**20), st.sampled_from(["", "v", "\u2028\n", "\U0001f600"])),
    lambda values: st.one_of(st.lists(values, max_size=2), st.dictionaries(st.sampled_from("ab"), values, max_size=2)),
    max_leaves=4,
)
_todo_status = st.sampled_from(["pending", "in_progress", "completed", "cancelled"])
_diffs = st.just(documents.Diff(old_string="a", new_string="b", start_line=1, end_line=1))

actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        FileEdit,
        tool=st.just("edit_file"),
        path=st.sampled_from(["a.py", "", "Makefile"]),
        operation=st.sampled_from(["create", "edit", "delete", "rename"]),
        content=st.none() | texts,
        diff=st.none() | _diffs,
        old_path=st.none() | st.just("old.py"),
    ),
    st.builds(
        Command,
        tool=st.just("run_terminal_cmd"),
        command=texts,
        working_directory=st.sampled_from(["", "/w"]),
        exit_code=st.integers(-1, 2),
        output=texts,
        permissions=st.lists(st.just("network"), max_size=1),
    ),
    st.builds(
        Plan,
        tool=st.just("create_plan"),
        title=texts,
        overview=texts,
        markdown=texts,
        todos=st.lists(
            st.builds(
                documents.PlanTodo, id=st.just("1"), content=texts, status=_todo_status, dependencies=st.just([])
            ),
            max_size=2,
        ),
    ),
    st.builds(
        Question,
        tool=st.just("ask_question"),
        title=texts,
        questions=st.lists(
            st.builds(
                documents.ClarificationQuestion,
                id=st.just("q"),
                text=texts,
                options=st.lists(st.builds(documents.ClarificationOption, id=st.just("o"), label=texts), max_size=2),
            ),
            max_size=2,
        ),
        answers=st.lists(
            st.builds(documents.ClarificationAnswer, question_id=st.just("q"), selected_option_ids=st.just(["o"])),
            max_size=2,
        ),
    ),
    st.builds(
        TodoUpdate,
        tool=st.just("todo_write"),
        todos=st.lists(st.builds(documents.TodoChange, id=st.just("1"), status=_todo_status), max_size=2),
        merge=st.booleans(),
    ),
    st.builds(
        OtherTool,
        tool=st.sampled_from(["read_file", "grep", "x"]),
        arguments=st.dictionaries(st.sampled_from(["path", "query"]), _json, max_size=2),
        data=_json,
    ),
)
_outcomes = st.builds(
    Outcome,
    state=st.sampled_from(["completed", "failed", "rejected", "timed_out", "interrupted"]),
    code=st.sampled_from(["", "TOOL_ERROR"]),
    message=st.sampled_from(["", "It broke.\n", " "]),
    details=st.sampled_from(["", "why"]),
    duration_ms=st.none() | st.integers(0, 9),
)
_counts = st.none() | st.builds(
    TokenCounts, prompt=st.integers(0, 99), completion=st.integers(0, 99), cached=st.integers(0, 9)
)
_failures = st.sampled_from(
    [error("It failed.").failure() for error in (AgentCrashed, AgentUnauthenticated, RunCancelled)]
)
_CALLER_IDS = ("caller_1", "caller_2", "caller_3")  # those are the gateway's own
_caller_ids = st.sampled_from(_CALLER_IDS)
_caller_calls = st.builds(
    CallerCall,
    _caller_ids,
    st.sampled_from(["bash", "x"]),
    st.dictionaries(st.sampled_from(["path", "query"]), _json | st.just("é" * 3000), max_size=2),
)
_caller_results = st.builds(
    ToolResult,
    text=texts,
    images=st.sampled_from([(), (Image(0, "image/png", b"x"),)]),
    structured=st.just(UNSET) | _json,
    is_error=st.booleans(),
)
_model_calls = st.sampled_from([None, "m1", "m2"])
_ends: st.SearchStrategy[AgentEvent] = st.one_of(
    st.builds(RunFinished, usage=_counts, duration_ms=st.none() | st.just(5), text_differs=st.booleans()),
    st.builds(RunFailed, failure=_failures, usage=_counts, duration_ms=st.none() | st.just(5)),
)
_middles: st.SearchStrategy[AgentEvent] = st.one_of(
    st.builds(TextDelta, texts),
    st.builds(TextDelta, texts),
    st.builds(ThinkingDelta, texts),
    st.just(ThinkingEnded()),
    st.builds(ToolStarted, _call_ids, actions, _model_calls, _json),
    st.builds(ToolEnded, _call_ids, actions, _outcomes, _model_calls, _json),
    st.builds(CommandOutput, _call_ids, texts),
    st.builds(CallerToolAsked, _caller_calls),
    st.builds(CallerToolAsked, _caller_calls),
    st.builds(CallerToolAnswered, _caller_ids, _caller_results, st.integers(0, 9)),
    st.builds(ToolEnded, _caller_ids, actions, _outcomes),
    st.builds(CallerAwaited, st.lists(_caller_ids, max_size=3, unique=True).map(tuple), st.booleans()),
    st.builds(RunStarted, st.sampled_from(["", "s1"]), st.sampled_from(["", "Auto"])),
    st.builds(PromptEchoed, texts),
    st.sampled_from([Notice("retrying", 1), Notice("background"), Unrecognized("?")]),
)
# A call of the caller's as it goes: asked for, waited for, answered, with anything between.
_rounds: st.SearchStrategy[list[AgentEvent]] = st.builds(
    lambda call, before, after, result: [
        CallerToolAsked(call),
        *before,
        CallerAwaited(_CALLER_IDS),
        *after,
        CallerToolAnswered(call.id, result),
    ],
    _caller_calls,
    st.lists(_middles, max_size=2),
    st.lists(_middles, max_size=2),
    _caller_results,
)
agent_events: st.SearchStrategy[list[AgentEvent]] = st.builds(
    lambda before, ends, after: [*(event for part in before for event in part), *ends, *after],
    st.lists(st.one_of(_middles.map(lambda event: [event]), _rounds), max_size=14),
    st.lists(_ends, max_size=2),
    st.lists(_middles, max_size=3),
)
