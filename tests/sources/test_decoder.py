"""cursor-agent's lines to agent events, for every type and version that is known."""

import json
from itertools import pairwise
from typing import Any

import pytest

from cursor_gateway.errors import RunCancelled
from cursor_gateway.model.agent_events import (
    Action,
    AgentEvent,
    Command,
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
    TokenCounts,
    ToolEnded,
    ToolStarted,
    Unrecognized,
)
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.sources.cursor.ask_user import UserTool
from cursor_gateway.sources.cursor.tools import read_call, read_named, read_result
from tests.laws.agent import to_line

END = RunFinished(duration_ms=9)


def line(type: str, subtype: str | None = None, **fields: Any) -> bytes:
    given = {"type": type, "subtype": subtype, **fields, "session_id": "s"}
    return to_line({name: value for name, value in given.items() if value is not None}).rstrip(b"\n")


def said(text: Any, **fields: Any) -> bytes:
    return line("assistant", message={"role": "assistant", "content": [{"type": "text", "text": text}]}, **fields)


def delta(text: str, at: int = 1) -> bytes:
    return said(text, timestamp_ms=at)


def flush(text: str) -> bytes:
    return said(text, timestamp_ms=1, model_call_id="m")


def thought(text: str, at: int | None = 1) -> bytes:
    return line("thinking", "delta", text=text, timestamp_ms=at)


def call(subtype: str, tool: str, body: dict[str, Any], *, id: str | None = "c1", **fields: Any) -> bytes:
    payload = {f"{tool}ToolCall": body, **fields.pop("beside", {})}
    return line("tool_call", subtype, call_id=id, tool_call=payload, **fields)


STARTED = call("started", "read", {"args": {"path": "a"}})
COMPLETED = call("completed", "read", {"result": {"success": {"content": "x"}}})


def query(kind: str, body: Any, id: int = 0) -> bytes:
    return line("interaction_query", "request", query_type=kind, query={"id": id, kind: body}, timestamp_ms=1)


def answer(kind: str, body: Any, id: int = 0) -> bytes:
    return line("interaction_query", "response", query_type=kind, response={"id": id, kind: body}, timestamp_ms=1)


def result(text: str | None = None, **fields: Any) -> bytes:
    return line("result", "success", duration_ms=9, is_error=False, result=text, **fields)


RESULT = result()


def one_by_one(lines: list[bytes]) -> list[AgentEvent]:
    decoder = CursorDecoder()
    events = [event for each in lines for event in decoder.push_line(each)]
    return [*events, *decoder.flush()]


def together(lines: list[bytes]) -> list[AgentEvent]:
    decoder = CursorDecoder()
    return [*decoder.push(lines), *decoder.flush()]


def joined(events: list[AgentEvent]) -> list[AgentEvent]:
    """Adjacent deltas made one, and empty ones left out."""
    out: list[AgentEvent] = []
    for event in events:
        match (out[-1] if out else None, event):
            case (_, TextDelta(text="") | ThinkingDelta(text="")):
                pass
            case (TextDelta(text=before), TextDelta(text=text)):
                out[-1] = TextDelta(before + text)
            case (ThinkingDelta(text=before), ThinkingDelta(text=text)):
                out[-1] = ThinkingDelta(before + text)
            case _:
                out.append(event)
    return out


def decoded(*lines: bytes) -> list[AgentEvent]:
    """What the lines mean, however they arrive."""
    whole = joined(together(list(lines)))
    assert joined(one_by_one(list(lines))) == whole
    for place in range(1, len(lines)):
        decoder = CursorDecoder()
        assert (
            joined([*decoder.push(list(lines[:place])), *decoder.push(list(lines[place:])), *decoder.flush()]) == whole
        )
    return whole


def said_by(*lines: bytes) -> str:
    return "".join(event.text for event in decoded(*lines) if isinstance(event, TextDelta))


def thought_by(*lines: bytes) -> str:
    return "".join(event.text for event in decoded(*lines) if isinstance(event, ThinkingDelta))


# --- the grain of a stream --------------------------------------------------------------------------


def test_lines_that_arrive_one_by_one_keep_their_grain() -> None:
    texts = ["Hello", " ", "world", ",", " ", "Hello", "!"]
    events = one_by_one([thought("a"), thought("b"), *map(delta, texts), RESULT])
    assert events == [ThinkingDelta("a"), ThinkingDelta("b"), *map(TextDelta, texts), END]


def test_adjacent_deltas_that_arrive_together_become_one() -> None:
    events = together([thought("a"), thought("b"), delta("x"), delta("yz"), thought("c"), delta("."), RESULT])
    assert events == [ThinkingDelta("ab"), TextDelta("xyz"), ThinkingDelta("c"), TextDelta("."), END]


@pytest.mark.parametrize(
    ("lines", "took"),
    [
        ([thought("", at=100), thought("a", at=200), thought("b", at=300)], 900),
        ([thought("a", at=None), thought("b", at=200)], 800),
        ([thought("a", at=100), delta("x", at=200), thought("b", at=300)], 700),  # the first end was lost
        ([thought("a", at=100), STARTED, thought("b", at=300)], 700),
        ([thought("a\ud83d", at=100)], 900),
        ([thought("a", at=2000)], 0),  # a clock that was set back
        ([thought("a", at=None)], None),
    ],
)
def test_thinking_lasts_from_its_first_delta_to_its_end(lines: list[bytes], took: int | None) -> None:
    ended = line("thinking", "completed", timestamp_ms=1000)
    for read in (one_by_one, together):
        assert [event for event in read([*lines, ended, RESULT]) if isinstance(event, ThinkingEnded)] == [
            ThinkingEnded(took)
        ]
    assert ThinkingEnded() in one_by_one([*lines, line("thinking", "completed"), RESULT])


def test_blank_lines_are_nothing() -> None:
    decoder = CursorDecoder()
    assert decoder.push([b""]) == decoder.push([b"", b" "]) == decoder.push([]) == decoder.push_line(b" \r") == []


@pytest.mark.parametrize("strange", [b"", b"oops", b"{}", line("telemetry"), b"[]"])
def test_only_a_line_of_the_agents_makes_its_output_recognized(strange: bytes) -> None:
    for own in (delta("a"), thought("a"), line("system", "init"), STARTED, RESULT):
        assert not _recognizes([strange, strange])
        assert _recognizes([strange, own])
        assert _recognizes([own, strange])


def _recognizes(lines: list[bytes]) -> bool:
    together, one_by_one = CursorDecoder(), CursorDecoder()
    together.push(lines)
    for each in lines:
        one_by_one.push_line(each)
    assert together.recognized == one_by_one.recognized
    return bool(together.recognized)


# --- events of one line -----------------------------------------------------------------------------

EVENTS: dict[str, tuple[bytes, list[AgentEvent]]] = {
    "init": (line("system", "init", model="Auto", cwd="/w"), [RunStarted("s", "Auto")]),
    "a background task": (line("system", "task_notification", x=1), [Notice("background")]),
    "a background shell": (line("system", "background_shell_timeout"), [Notice("background")]),
    "system news": (line("system", "weather"), [Unrecognized("system weather")]),
    "the prompt": (
        line("user", message={"role": "user", "content": [{"text": "Do"}, {"text": " it"}]}),
        [PromptEchoed("Do it")],
    ),
    "the prompt as a string": (line("user", message={"content": "Do it"}), [PromptEchoed("Do it")]),
    "thinking": (thought("hm"), [ThinkingDelta("hm")]),
    "thinking of 2025": (line("thinking", content="hm"), [ThinkingDelta("hm")]),
    "thinking of another kind": (line("thinking", "summary", text="hm"), [ThinkingDelta("hm")]),
    "the end of thinking": (line("thinking", "completed", timestamp_ms=1), [ThinkingEnded()]),
    "the end of thinking with its text": (
        line("thinking", "completed", text="hm"),
        [ThinkingDelta("hm"), ThinkingEnded()],
    ),
    "the end of thinking with its text, torn": (
        line("thinking", "completed", text="\ud83d."),
        [ThinkingDelta("\ufffd."), ThinkingEnded()],
    ),
    "text": (delta("Hi"), [TextDelta("Hi")]),
    "text in two parts": (
        line("assistant", message={"content": [{"text": "H"}, {"text": "i"}]}, timestamp_ms=1),
        [TextDelta("Hi")],
    ),
    "text as a string": (line("assistant", message={"content": "Hi"}, timestamp_ms=1), [TextDelta("Hi")]),
    "text with a time as a string": (said("Hi", timestamp_ms="1"), [TextDelta("Hi")]),
    "a segment before a tool": (flush("Hi"), [TextDelta("Hi")]),
    "a segment at the end": (said("Hi"), [TextDelta("Hi")]),
    "a lost connection": (line("connection", "reconnecting", attempt=2, endpoint_url="u"), [Notice("reconnecting", 2)]),
    "a lost connection, loosely": (line("connection", "reconnecting", attempt="2"), [Notice("reconnecting", 2)]),
    "a connection again": (line("connection", "reconnected", timestamp_ms=1), [Notice("reconnected")]),
    "a retry": (line("retry", "starting", attempt=1, is_resume=True), [Notice("retrying", 1)]),
    "a retry that resumes": (line("retry", "resuming", attempt=1, checkpoint_turn_count=3), [Notice("retrying", 1)]),
    "an unknown type": (line("telemetry"), [Unrecognized("type 'telemetry'")]),
    "a known type in an unknown shape": (line("connection", attempt={}), [Unrecognized("type 'connection'")]),
    "no JSON": (b"Warning: something", [Unrecognized("no JSON object")]),
    "a known type, nested deeply around half a character": (
        b'{"type":"user","message":%b"\\ud800"%b}' % (b"[" * 600, b"]" * 600),
        [Unrecognized("no JSON object")],
    ),
    "an unknown type, nested deeply around half a character": (
        b'{"type":"telemetry","x":%b"\\ud800"%b}' % (b"[" * 600, b"]" * 600),
        [Unrecognized("no JSON object")],
    ),
    "a JSON array": (b"[]", [Unrecognized("no JSON object")]),
    "broken UTF-8": (b'{"type":"assistant","message":\xff"a"}', [Unrecognized("no JSON object")]),
    "broken UTF-8 in a text": (b'{"type":"assistant","message":"a\xff"}', [TextDelta("a\ufffd")]),
    "raw control characters in a text": (b'{"type":"assistant","message":"a\tb\0"}', [TextDelta("a\tb\0")]),
    "a byte order mark": (b'\xef\xbb\xbf{"type":"assistant","message":"a"}', [TextDelta("a")]),
}


@pytest.mark.parametrize(("given", "events"), EVENTS.values(), ids=EVENTS)
def test_a_line_means_its_event(given: bytes, events: list[AgentEvent]) -> None:
    assert decoded(given, RESULT) == [*events, END]


# --- the end of a run -------------------------------------------------------------------------------

RESULTS: dict[str, tuple[bytes, list[AgentEvent]]] = {
    "all figures": (
        result("Hi", usage={"inputTokens": 100, "outputTokens": 20, "cacheReadTokens": 30, "cacheWriteTokens": 4}),
        [RunFinished(usage=TokenCounts(prompt=134, completion=20, cached=30), duration_ms=9)],
    ),
    "some figures, as strings": (
        result("Hi", usage={"inputTokens": "100", "outputTokens": 20, "cacheReadTokens": None}),
        [RunFinished(usage=TokenCounts(prompt=100, completion=20), duration_ms=9)],
    ),
    "no figures": (result("Hi"), [RunFinished(duration_ms=9)]),
    "no duration": (line("result", "success", result="Hi"), [RunFinished()]),
    "more text than was streamed": (result("Hi there"), [TextDelta(" there"), RunFinished(duration_ms=9)]),
    "other text than was streamed": (result("Ho"), [RunFinished(duration_ms=9, text_differs=True)]),
    "no text": (result(None), [RunFinished(duration_ms=9)]),
}


@pytest.mark.parametrize(("end", "events"), RESULTS.values(), ids=RESULTS)
def test_a_result_finishes_the_run(end: bytes, events: list[AgentEvent]) -> None:
    assert joined(decoded(delta("Hi"), end)) == joined([TextDelta("Hi"), *events])


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({}, "agent_failed", "no reason"),
        ({"result": "The moon is full"}, "agent_failed", "The moon is full"),
        ({"error": "The moon is full"}, "agent_failed", "The moon is full"),
        ({"error": {"message": "The moon is full"}}, "agent_failed", "The moon is full"),
        ({"message": "The moon is full"}, "agent_failed", "The moon is full"),
        ({"error": "You've hit your usage limit"}, "insufficient_quota", "usage limit"),
        ({"error": [], "duration_ms": []}, "agent_failed", "no reason"),
    ],
)
def test_an_error_result_is_a_failure_in_the_agents_own_words(fields: dict[str, object], code: str, says: str) -> None:
    for subtype in ("error", "error_max_turns"):
        (failed,) = decoded(line("result", subtype, **fields))
        assert isinstance(failed, RunFailed)
        assert failed.failure.code == code
        assert says in failed.failure.message


def test_a_run_has_one_result() -> None:
    assert decoded(result("a"), result("ab"), line("result", "error")) == [TextDelta("a"), END]


def test_output_that_ends_without_a_result_is_a_failure_that_stray_text_explains() -> None:
    failed = decoded(delta("Hi"), b"RetriableError: [resource_exhausted] Error")[-1]
    assert isinstance(failed, RunFailed)
    assert (failed.failure.code, failed.failure.details) == (
        "agent_overloaded",
        "RetriableError: [resource_exhausted] Error",
    )


def test_the_caller_may_know_better_why_the_output_ended() -> None:
    decoder = CursorDecoder()
    decoder.push([delta("Hi"), b"RetriableError: [resource_exhausted] Error"])
    failure = RunCancelled("Stopped.").failure()
    (failed,) = decoder.flush(failure)
    assert isinstance(failed, RunFailed)
    assert failed.failure == failure


def test_a_run_that_never_said_how_long_it_took_is_timed_by_its_first_and_last_timestamps() -> None:
    begin = [line("system", "init", model="Auto"), line("user", message={"content": "Hi"})]
    for lines, duration in [
        ([], 0),
        (begin, 0),
        ([*begin, delta("a", at=1000)], 0),
        ([*begin, delta("a", at=1000), delta("b", at=4000)], 3000),
        ([*begin, delta("a", at=1000), delta("b", at=4000), b"T: [internal]"], 3000),
        ([delta("a", at=4000), delta("b", at=1000)], 0),
    ]:
        failed = decoded(*lines)[-1]
        assert isinstance(failed, RunFailed)
        assert (failed.duration_ms or 0) == duration, lines


def test_only_the_last_forty_stray_lines_are_kept() -> None:
    decoder = CursorDecoder()
    for number in range(100):
        decoder.push([f"stray {number}".encode()])
    assert decoder.stray_text.split("\n") == [f"stray {number}" for number in range(60, 100)]


# --- text said once ---------------------------------------------------------------------------------

QUERY = query("webSearchRequestQuery", {"args": {"searchTerm": "x", "toolCallId": "c1"}})

STREAMS: dict[str, tuple[list[bytes], str]] = {
    "partial, a tool": (
        [delta("Let "), delta("me."), flush("Let me."), STARTED, delta("Done"), said("Done"), RESULT],
        "Let me.Done",
    ),
    "whole segments, a tool": ([flush("Let me."), STARTED, COMPLETED, said("Done"), RESULT], "Let me.Done"),
    "partial, a query": (
        [delta("Let "), delta("me."), delta("Let me."), QUERY, STARTED, delta("Done"), said("Done"), RESULT],
        "Let me.Done",
    ),
    "whole segments, a query": ([delta("Let me."), QUERY, STARTED, said("Done"), RESULT], "Let me.Done"),
    "partial, thinking between": ([delta("a"), thought("hm"), delta("b"), flush("ab"), STARTED, RESULT], "ab"),
    "partial, a tool ends between": ([STARTED, delta("a"), COMPLETED, delta("b"), said("ab"), RESULT], "ab"),
    "a word twice, then thinking": ([delta("ha"), delta("ha"), thought("hm"), said("haha"), RESULT], "haha"),
    "a word twice, then a query": ([delta("ha"), delta("ha"), delta("haha"), QUERY, RESULT], "haha"),
    "a word twice, then a notice": (
        [delta("ha"), delta("ha"), line("connection", "reconnecting"), said("haha"), RESULT],
        "haha",
    ),
    "a word twice, then a strange line": ([delta("ha"), delta("ha"), b"oops", said("haha"), RESULT], "haha"),
    "a strange line before a repetition": ([delta("ha"), b"oops", delta("ha"), b"{}", QUERY, RESULT], "ha"),
    "a retry that keeps the segment": (
        [delta("a"), line("retry", "starting"), delta("b"), flush("ab"), STARTED, RESULT],
        "ab",
    ),
    "a retry that forgets the segment": (
        [delta("a"), line("retry", "starting"), delta("b"), flush("b"), STARTED, RESULT],
        "ab",
    ),
    "a retry that forgets the segment, a query": (
        [delta("a"), line("retry", "starting"), delta("b"), delta("b"), QUERY, RESULT],
        "ab",
    ),
    "a query without a call": ([delta("a"), delta("b"), delta("ab"), QUERY, delta("c"), said("c"), RESULT], "abc"),
    "a repetition right before a tool": ([delta("ha"), delta("ha"), STARTED, delta("x"), said("x"), RESULT], "hax"),
    "a resumption is no second retry": ([delta("a"), line("retry", "resuming"), delta("a"), said("aa"), RESULT], "aa"),
    "a word twice, a retry that forgets, a query": (
        [delta("ha"), delta("ha"), line("retry", "starting"), delta("x"), delta("x"), QUERY, RESULT],
        "hahax",
    ),
    "an old call after a repetition": ([delta("ha"), delta("ha"), line("tool_call", name="grep"), RESULT], "ha"),
}


@pytest.mark.parametrize(("lines", "text"), STREAMS.values(), ids=STREAMS)
def test_each_text_is_said_once(lines: list[bytes], text: str) -> None:
    assert said_by(*lines) == text


@pytest.mark.parametrize("news", [thought("hm"), line("thinking", "completed"), thought("\ud83d")])
def test_text_that_was_held_is_said_before_the_thought_that_follows_it(news: bytes) -> None:
    said, *_ = decoded(delta("ha"), delta("ha"), news, RESULT)
    assert said == TextDelta("haha")


# --- characters cut in two --------------------------------------------------------------------------

HIGH, LOW, WHOLE = "\ud83d", "\ude00", "\U0001f600"

TORN: dict[str, tuple[list[bytes], str]] = {
    "rejoined across deltas": ([delta(f"a{HIGH}"), delta(f"{LOW}b"), said(f"a{WHOLE}b")], f"a{WHOLE}b"),
    "rejoined across thinking": ([delta(HIGH), thought("hm"), delta(LOW), said(WHOLE)], WHOLE),
    "rejoined across the end of a tool": ([STARTED, delta(HIGH), COMPLETED, delta(LOW), said(WHOLE)], WHOLE),
    "rejoined across a strange line": ([delta(HIGH), b"oops", delta(LOW), said(WHOLE)], WHOLE),
    "rejoined across an empty delta": ([delta(HIGH), delta(""), delta(LOW), said(WHOLE)], WHOLE),
    "a replacement character before a cut one": ([delta(f"\ufffd{HIGH}"), delta(LOW)], f"\ufffd{WHOLE}"),
    "several in a row": ([delta(HIGH), delta(f"{LOW}{HIGH}"), delta(LOW), said(WHOLE * 2)], WHOLE * 2),
    "a first half alone": ([delta(f"a{HIGH}"), delta("b"), said(f"a{HIGH}b")], "a\ufffdb"),
    "a first half alone, inside a delta": ([delta(f"a{HIGH}b"), said(f"a{HIGH}b")], "a\ufffdb"),
    "a first half alone, in a long segment": (
        [delta("A long start"), delta(" of it"), delta(f"x{HIGH}"), delta("y"), said(f"A long start of itx{HIGH}y")],
        "A long start of itx\ufffdy",
    ),
    "rejoined in a long segment": (
        [delta("A long start"), delta(" of it"), delta(f"x{HIGH}"), delta(f"{LOW}y"), delta("z")],
        f"A long start of itx{WHOLE}yz",
    ),
    "a second half alone": ([delta("a"), delta(f"{LOW}b"), said(f"a{LOW}b")], "a\ufffdb"),
    "two first halves": ([delta(HIGH), delta(HIGH), delta("x"), said(f"{HIGH}{HIGH}x")], "\ufffd\ufffdx"),
    "a half before the flush of a tool": ([delta(f"a{HIGH}"), flush(f"a{HIGH}"), STARTED], "a\ufffd"),
    "a half before the flush of a query": ([delta("a"), delta(HIGH), delta(f"a{HIGH}"), QUERY], "a\ufffd"),
    "a half before a tool": ([delta(f"a{HIGH}"), STARTED], "a\ufffd"),
    "a half before the last flush": ([delta(f"a{HIGH}"), said(f"a{HIGH}")], "a\ufffd"),
    "a half before the result": ([delta(f"a{HIGH}")], "a\ufffd"),
    "a half in whole segments": ([flush(f"a{HIGH}"), STARTED, said(f"{LOW}b")], "a\ufffd\ufffdb"),
    "a half in two parts": (
        [line("assistant", message={"content": [{"text": f"a{HIGH}"}, {"text": f"{LOW}b"}]}, timestamp_ms=1)],
        f"a{WHOLE}b",
    ),
}


@pytest.mark.parametrize(("lines", "text"), TORN.values(), ids=TORN)
def test_a_character_cut_in_two_is_whole_again_or_replaced(lines: list[bytes], text: str) -> None:
    assert said_by(*lines, RESULT) == text


def test_a_half_at_the_end_of_the_output_is_replaced() -> None:
    assert said_by(delta(f"a{HIGH}")) == "a\ufffd"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([thought(f"a{HIGH}"), thought(f"{LOW}b")], f"a{WHOLE}b"),
        ([thought(f"a{HIGH}"), thought(""), thought(f"{LOW}b")], f"a{WHOLE}b"),
        ([thought(f"a{HIGH}"), thought("b")], "a\ufffdb"),
        ([thought(f"a{HIGH}"), line("thinking", "completed")], "a\ufffd"),
        ([line("thinking", "completed", text=f"a{HIGH}"), thought(LOW)], "a\ufffd\ufffd"),
        ([thought(f"a{HIGH}"), STARTED], "a\ufffd"),
        ([thought(f"a{HIGH}")], "a\ufffd"),
        ([line("thinking", content=f"a{HIGH}"), line("thinking", content=LOW)], f"a{WHOLE}"),
    ],
)
def test_thinking_is_mended_like_text(lines: list[bytes], text: str) -> None:
    assert thought_by(*lines, RESULT) == text


def test_a_torn_thought_tells_that_the_held_delta_was_text() -> None:
    assert said_by(delta("ha"), delta("ha"), thought(HIGH), RESULT) == "haha"


def test_halves_in_a_payload_are_replaced() -> None:
    started = call("started", "read", {"args": {"path": f"a{HIGH}", f"{LOW}k": [HIGH + LOW]}})
    event = decoded(started, RESULT)[0]
    assert isinstance(event, ToolStarted)
    assert event.action == read_call("read", {"path": "a\ufffd", "\ufffdk": [WHOLE]})


# --- tools ------------------------------------------------------------------------------------------

SUCCESS = {"success": {"content": "x"}}


def tools(*lines: bytes) -> list[tuple[object, ...]]:
    """Starts and ends, without payloads."""
    found: list[tuple[object, ...]] = []
    for event in decoded(*lines, RESULT):
        match event:
            case ToolStarted(call_id=id, action=action, model_call=model_call):
                found.append(("started", id, action, model_call))
            case ToolEnded(call_id=id, action=action, outcome=outcome, model_call=model_call):
                found.append(("ended", id, action, outcome, model_call))
            case Unrecognized(reason=reason):
                found.append((reason,))
            case _:
                pass
    return found


READ = read_call("read", {"path": "a"})


def ended(tool: str, args: Any, result: Any, duration_ms: int | None = None) -> tuple[Action, Outcome]:
    action, outcome = read_result(tool, args, result)
    if duration_ms is not None:
        outcome = Outcome(state=outcome.state, code=outcome.code, message=outcome.message, duration_ms=duration_ms)
    return action, outcome


def test_a_call_starts_and_ends_under_its_id_whatever_stands_beside_it() -> None:
    beside = {"hookAdditionalContexts": [], "toolCallId": "other"}
    found = tools(
        call("started", "read", {"args": {"path": "a"}}, id="x\ny", model_call_id="m", beside=beside),
        call(
            "completed", "read", {"args": {"path": "a"}, "result": SUCCESS}, id="x\ny", model_call_id="m", beside=beside
        ),
    )
    assert found == [("started", "x\ny", READ, "m"), ("ended", "x\ny", *ended("read", {"path": "a"}, SUCCESS), "m")]


MCP = {"name": "caller-look", "toolName": "look", "providerIdentifier": "caller", "args": {"p": 1}}
CALLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "by its provider": ("mcp", MCP),
    "by its name": ("mcp", {"name": "caller-look", "toolName": "look", "args": {}}),
    "by its server": ("mcp", {"serverIdentifier": "caller", "toolName": "look", "args": {}}),
    "a look at what there is": ("getMcpTools", {"server": "caller"}),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "another server": ("mcp", {**MCP, "providerIdentifier": "others"}),
    "another name": ("mcp", {"name": "callers-look", "toolName": "look", "args": {}}),
    "another tool": ("read", {"path": "a", "providerIdentifier": "caller"}),
}
GAVE = {"success": {"content": [{"text": {"text": "seen"}}], "isError": False}}


def calls_of(server: str, tool: str, args: dict[str, Any], result: Any) -> list[str]:
    start, end = call("started", tool, {"args": args}), call("completed", tool, {"args": args, "result": result})
    decoder = CursorDecoder(server)
    events = [*decoder.push([start, end, RESULT]), *decoder.flush()]
    return [type(event).__name__ for event in events if isinstance(event, ToolStarted | ToolEnded)]


@pytest.mark.parametrize(("tool", "args"), CALLERS.values(), ids=CALLERS)
def test_a_call_of_the_callers_tools_is_reported_by_whoever_holds_it(tool: str, args: dict[str, Any]) -> None:
    assert calls_of("caller", tool, args, GAVE) == []
    assert calls_of("", tool, args, GAVE) == ["ToolStarted", "ToolEnded"]


@pytest.mark.parametrize(("tool", "args"), CALLERS.values(), ids=CALLERS)
def test_that_the_agent_gave_such_a_call_up_is_reported(tool: str, args: dict[str, Any]) -> None:
    assert calls_of("caller", tool, args, {"error": {"error": "timed out"}}) == ["ToolEnded"]


@pytest.mark.parametrize(("tool", "args"), OTHERS.values(), ids=OTHERS)
def test_other_calls_are_the_agents_own(tool: str, args: dict[str, Any]) -> None:
    assert calls_of("caller", tool, args, GAVE) == ["ToolStarted", "ToolEnded"]


USERS: dict[str, tuple[str, dict[str, Any]]] = {
    "by its provider": ("mcp", {"providerIdentifier": "plugin-a-user_1", "toolName": "ask_user", "args": {}}),
    "by its name": ("mcp", {"name": "plugin-a-user_1-ask_user", "toolName": "ask_user", "args": {}}),
    "a look at what there is": ("getMcpTools", {"server": "plugin-a-user_1"}),
}
MCP_REJECTED = {"rejected": {"reason": "MCP tool execution rejected by user: plugin-a-user_1-ask_user "}}


def users_calls(tool: str, args: dict[str, Any], result: Any) -> tuple[int, list[AgentEvent]]:
    start, end = call("started", tool, {"args": args}), call("completed", tool, {"args": args, "result": result})
    decoder = CursorDecoder("", UserTool("user_1"))
    events = [*decoder.push([start, end, RESULT]), *decoder.flush()]
    return decoder.user_calls, [event for event in events if isinstance(event, ToolStarted | ToolEnded)]


@pytest.mark.parametrize("result", [GAVE, {"error": {"error": "timed out"}}])
@pytest.mark.parametrize(("tool", "args"), USERS.values(), ids=USERS)
def test_a_call_of_the_users_tool_is_a_question_and_nothing_else(tool: str, args: dict[str, Any], result: Any) -> None:
    assert users_calls(tool, args, result) == (int(tool == "mcp"), [])


def test_a_call_of_the_users_tool_that_is_rejected_is_shown_and_no_rule_can_help() -> None:
    _, (ended,) = users_calls(*USERS["by its provider"], MCP_REJECTED)
    assert isinstance(ended, ToolEnded)
    assert (ended.outcome.state, ended.outcome.permission) == ("rejected", None)


@pytest.mark.parametrize(("tool", "args"), [*CALLERS.values(), *OTHERS.values()])
def test_calls_of_other_tools_are_no_questions(tool: str, args: dict[str, Any]) -> None:
    count, events = users_calls(tool, args, GAVE)
    assert (count, len(events)) == (0, 2)


def test_an_end_without_a_start_is_reported() -> None:
    assert tools(call("completed", "read", {"result": SUCCESS})) == [
        ("ended", "c1", *ended("read", None, SUCCESS), None)
    ]


@pytest.mark.parametrize(
    "record",
    [
        call("started", "read", {"args": {"path": "a"}}, id=None, beside={"toolCallId": "own"}),
        call("started", "read", {"args": {"path": "a", "toolCallId": "own"}}, id=None),
        call("started", "read", {"args": {"path": "a", "toolCallId": "other"}}, id="own"),
    ],
)
def test_a_calls_id_is_looked_for_in_three_places(record: bytes) -> None:
    assert tools(record)[0][1] == "own"


def test_calls_without_an_id_end_in_the_order_of_their_starts() -> None:
    start = [call("started", tool, {"args": {}}, id=None) for tool in ("read", "read", "grep")]
    end = [call("completed", tool, {"result": SUCCESS}, id=None) for tool in ("grep", "read", "read", "read")]
    found = tools(*start, *end)
    first, second, third = (event[1] for event in found[:3])
    assert len({first, second, third}) == 3
    assert [event[1] for event in found[3:6]] == [third, first, second]
    assert found[6][1] not in (first, second, third)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (line("tool_call", "started", call_id="c"), "tool_call without a tool"),
        (line("tool_call", "started", tool_call={"toolCallId": "c"}), "tool_call without a tool"),
        (line("tool_call", "paused", tool_call={"readToolCall": {}}), "tool_call paused"),
    ],
)
def test_a_call_that_tells_no_tool_is_counted_and_skipped(record: bytes, reason: str) -> None:
    assert tools(record) == [(reason,)]


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def test_absurd_nesting_is_counted_and_skipped() -> None:
    deep = _nested(150)
    assert tools(call("started", "read", {"args": deep})) == [("nested too deeply",)]
    assert tools(line("tool_call", name="grep", arguments=deep)) == [("nested too deeply",)]
    assert tools(query("webSearchRequestQuery", {"args": deep, "toolCallId": "c"})) == []
    assert tools(call("started", "read", {"args": _nested(90)})) == [
        ("started", "c1", read_call("read", _nested(90)), None)
    ]


def test_large_numbers_stay_as_they_are() -> None:
    (_, _, action, _), *_ = tools(call("started", "new", {"args": {"n": 10**30}}))
    assert action == OtherTool(tool="new", arguments={"n": 10**30})


DURATIONS: dict[str, tuple[list[bytes], int | None]] = {
    "what the tool measured comes first": (
        [
            call("started", "shell", {"args": {}}, timestamp_ms=0, beside={"startedAtMs": "0"}),
            call(
                "completed",
                "shell",
                {"result": {"success": {"executionTime": 7}}},
                timestamp_ms=90,
                beside={"completedAtMs": "50"},
            ),
        ],
        7,
    ),
    "then the service's clock, whose numbers are strings": (
        [
            call("started", "shell", {"args": {}}, timestamp_ms=0, beside={"startedAtMs": "100"}),
            call("completed", "shell", {}, timestamp_ms=90, beside={"completedAtMs": "150"}),
        ],
        50,
    ),
    "the service's clock, all in the end": (
        [call("completed", "shell", {}, beside={"startedAtMs": "100", "completedAtMs": "150"})],
        50,
    ),
    "then the CLI's clock": (
        [call("started", "shell", {"args": {}}, timestamp_ms=10), call("completed", "shell", {}, timestamp_ms=90)],
        80,
    ),
    "a clock that went back": (
        [call("started", "shell", {"args": {}}, timestamp_ms=90), call("completed", "shell", {}, timestamp_ms=10)],
        0,
    ),
    "no clock": ([call("started", "shell", {"args": {}}), call("completed", "shell", {}, timestamp_ms=90)], None),
}


@pytest.mark.parametrize(("lines", "duration_ms"), DURATIONS.values(), ids=DURATIONS)
def test_a_calls_duration_is_that_of_the_best_clock(lines: list[bytes], duration_ms: int | None) -> None:
    outcome = tools(*lines)[-1][3]
    assert isinstance(outcome, Outcome)
    assert outcome.duration_ms == duration_ms


# --- calls of the oldest shapes ---------------------------------------------------------------------

GREP = read_named("grep", {"pattern": "x"})


def _told(tool: str, id: str, arguments: dict[str, Any]) -> list[tuple[object, ...]]:
    action = OtherTool(tool=tool, arguments=arguments)
    return [("started", id, action, None), ("ended", id, action, Outcome(), None)]


NAMED: dict[str, tuple[bytes, list[tuple[object, ...]]]] = {
    "a name and arguments": (
        line("tool_call", name="grep", arguments={"pattern": "x"}, id="c1"),
        [("started", "c1", GREP, None), ("ended", "c1", GREP, Outcome(), None)],
    ),
    "arguments as a JSON string": (
        line("tool_call", name="grep", arguments='{"pattern":"x"}', call_id="c1"),
        [("started", "c1", GREP, None), ("ended", "c1", GREP, Outcome(), None)],
    ),
    "a function": (
        line("tool_call", call_id="c1", tool_call={"function": {"name": "grep", "arguments": '{"pattern":"x"}'}}),
        [("started", "c1", GREP, None), ("ended", "c1", GREP, Outcome(), None)],
    ),
    "a function that only starts": (
        line(
            "tool_call",
            "started",
            call_id="c1",
            tool_call={"function": {"name": "grep", "arguments": {"pattern": "x"}}},
        ),
        [("started", "c1", GREP, None)],
    ),
    "the editor's name of a command": (
        line("tool_call", name="run_terminal_cmd", arguments={"command": "ls"}, id="c1"),
        [
            ("started", "c1", Command(tool="run_terminal_cmd", command="ls"), None),
            ("ended", "c1", Command(tool="run_terminal_cmd", command="ls"), Outcome(), None),
        ],
    ),
    "half a character in a JSON string": (
        rb'{"type":"tool_call","name":"foo","arguments":"{\"a\":\"\\ud800\"}","id":"x"}',
        _told("foo", "x", {"a": "\ufffd"}),
    ),
    "half a character as a key in a JSON string": (
        rb'{"type":"tool_call","name":"foo","arguments":"{\"\\ud800\":1}","id":"x"}',
        _told("foo", "x", {"\ufffd": 1}),
    ),
    "half a character in a function's JSON string": (
        rb'{"type":"tool_call","call_id":"x","tool_call":{"function":{"name":"foo","arguments":"{\"a\":\"\\ud800\"}"}}}',
        _told("foo", "x", {"a": "\ufffd"}),
    ),
    "a JSON string nested too deeply stays a string": (
        line("tool_call", name="foo", arguments="[" * 300 + "]" * 300, id="x"),
        _told("foo", "x", {"input": "[" * 300 + "]" * 300}),
    ),
    "no arguments": (
        line("tool_call", "started", name="grep", id="c1"),
        [("started", "c1", OtherTool(tool="grep", arguments={}), None)],
    ),
}


@pytest.mark.parametrize(("record", "events"), NAMED.values(), ids=NAMED)
def test_a_call_by_name_is_reported_whole(record: bytes, events: list[tuple[object, ...]]) -> None:
    assert tools(record) == events


@pytest.mark.parametrize("query_type", ["webSearchRequestQuery", ""])
def test_a_query_is_found_by_its_type_or_else_as_the_first_thing_there(query_type: str) -> None:
    asked = {"webSearchRequestQuery": {"args": {"searchTerm": "x", "toolCallId": "c"}}}
    for body in ({"id": 0, **asked}, {"id": 0, **({"note": {}} if query_type else {}), **asked}):
        (output,) = tools(line("interaction_query", "request", query_type=query_type, query=body, timestamp_ms=1))
        assert output[:2] == ("started", "c")


def test_a_function_without_an_id_starts_and_ends_once() -> None:
    call = {"function": {"name": "grep", "arguments": {"pattern": "x"}}}
    found = tools(line("tool_call", "started", tool_call=call), line("tool_call", "completed", tool_call=call))
    assert len({output[1] for output in found}) == 1
    assert found[-1][0] == "ended"


def test_calls_by_name_without_an_id_are_distinguished() -> None:
    found = tools(line("tool_call", name="grep"), line("tool_call", name="grep"))
    assert found[0][1] == found[1][1] != found[2][1] == found[3][1]


# --- queries ----------------------------------------------------------------------------------------

SEARCH_ARGS = {"searchTerm": "x", "toolCallId": "c1"}
SEARCH = query("webSearchRequestQuery", {"args": SEARCH_ARGS})
SEARCH_CALL = ("started", "c1", read_call("webSearch", SEARCH_ARGS), None)
REJECTED = {"rejected": {"reason": "User Rejected"}}


def test_a_query_before_the_start_of_its_call_starts_it() -> None:
    start = call("started", "webSearch", {"args": SEARCH_ARGS}, model_call_id="m")
    found = tools(SEARCH, answer("webSearchRequestResponse", {"approved": {}}), start)
    assert found == [SEARCH_CALL, ("started", "c1", read_call("webSearch", SEARCH_ARGS), "m")]


def test_a_query_after_the_start_of_its_call_adds_nothing() -> None:
    start = call("started", "webSearch", {"args": SEARCH_ARGS})
    assert tools(start, SEARCH, answer("webSearchRequestResponse", REJECTED)) == [SEARCH_CALL]


def test_a_call_that_only_a_query_mentioned_ends_with_the_querys_answer() -> None:
    for body in (REJECTED, {"result": REJECTED}):
        assert tools(SEARCH, answer("webSearchRequestResponse", body)) == [
            SEARCH_CALL,
            ("ended", "c1", *ended("webSearch", SEARCH_ARGS, REJECTED), None),
        ]


def test_an_answered_query_ends_when_the_output_does() -> None:
    *_, end, failed = decoded(SEARCH, answer("webSearchRequestResponse", REJECTED))
    assert isinstance(end, ToolEnded)
    assert end.payload == REJECTED
    assert isinstance(failed, RunFailed)


@pytest.mark.parametrize(
    "news", [delta("So"), thought("so"), flush("So"), said("So"), delta(f"So{HIGH}"), thought(f"so{HIGH}")]
)
def test_a_query_that_was_answered_has_ended_when_the_agent_goes_on(news: bytes) -> None:
    events = decoded(SEARCH, answer("webSearchRequestResponse", REJECTED), news, RESULT)
    assert [type(event) for event in events[:2]] == [ToolStarted, ToolEnded]


def test_answered_queries_end_in_the_order_they_were_asked() -> None:
    ids = [f"call {number}" for number in range(20)]
    lines = [
        each
        for number, id in enumerate(ids)
        for each in (
            query("webSearchRequestQuery", {"args": {"toolCallId": id}}, id=number),
            answer("webSearchRequestResponse", REJECTED, id=number),
        )
    ]
    assert [found[1] for found in tools(*lines, delta("So"))] == [*ids, *ids]


def test_a_call_keeps_the_arguments_that_only_its_query_or_its_start_had() -> None:
    asked = {"plan": "p", "name": "n", "toolCallId": "c1"}
    plan = query("createPlanRequestQuery", {"args": asked})
    start = call("started", "createPlan", {"args": {"plan": "q"}})
    found = tools(plan, start, call("completed", "createPlan", {"args": {"overview": "o"}, "result": {"success": {}}}))
    expected = {**asked, "plan": "q", "overview": "o"}
    assert found[-1] == ("ended", "c1", *ended("createPlan", expected, {"success": {}}), None)


@pytest.mark.parametrize(
    "reply",
    [
        answer("webSearchRequestResponse", {"approved": {}}),
        answer("webSearchRequestResponse", "yes"),
        answer("webSearchRequestResponse", REJECTED, id=7),
        line("interaction_query", "response"),
    ],
)
def test_an_answer_that_is_none_leaves_the_call_open(reply: bytes) -> None:
    assert tools(SEARCH, reply) == [SEARCH_CALL]


@pytest.mark.parametrize(
    ("kind", "body", "tool"),
    [
        ("askQuestionInteractionQuery", {"args": {"title": "t"}, "toolCallId": "c"}, "askQuestion"),
        ("createPlanRequestQuery", {"args": {"plan": "p", "toolCallId": "c"}}, "createPlan"),
        ("switchModeQuery", {"args": {"toolCallId": "c"}}, "switchMode"),
        ("webFetchArgs", {"url": "u", "toolCallId": "c"}, "webFetch"),
    ],
)
def test_a_querys_name_tells_its_tool(kind: str, body: dict[str, Any], tool: str) -> None:
    args = body.get("args", body if kind.endswith("Args") else None)
    assert tools(query(kind, body)) == [("started", "c", read_call(tool, args), None)]


@pytest.mark.parametrize(
    "record",
    [
        line("interaction_query", "request"),
        line("interaction_query", "request", query_type="webSearchRequestQuery"),
        query("webSearchRequestQuery", {"args": {"searchTerm": "x"}}),
        query("webSearchRequestQuery", "x"),
        query("Query", {"toolCallId": "c"}),
    ],
)
def test_a_query_that_names_no_call_ends_the_text_and_no_more(record: bytes) -> None:
    assert tools(record) == []
    assert said_by(delta("ha"), delta("ha"), record, RESULT) == "ha"


@pytest.mark.parametrize("server", ["", "caller"])
def test_a_rejected_command_needs_a_rule_unless_it_is_the_callers_to_run(server: str) -> None:
    decoder = CursorDecoder(server)
    lines = [
        call("started", "shell", {"args": {"command": "npm test"}}),
        call("completed", "shell", {"result": {"rejected": {"command": "npm test", "reason": ""}}}),
    ]
    *_, ended = [event for line in lines for event in decoder.push_line(line)]
    assert isinstance(ended, ToolEnded)
    assert ended.outcome.state == "rejected"
    rules = None if ended.outcome.permission is None else ended.outcome.permission.rules
    assert rules == (None if server else ["Shell(npm)"])


@pytest.mark.parametrize(
    ("tool", "args", "reason", "offered"),
    [
        ("shell", {"command": "npm test"}, "", True),
        ("shell", {"command": "npm test"}, " \n", True),
        ("shell", {"command": "npm test"}, "Command execution was blocked by a hook.\n\nTo view it, go on.", False),
        ("shell", {"command": "npm test"}, "Command blocked by permissions configuration", False),
        ("shell", {"command": "npm test"}, "MCP tool execution rejected by a hook", False),
        ("webFetch", {"url": "https://a.b/c"}, "User Rejected", True),
        ("webFetch", {"url": "https://a.b/c"}, "User Rejected by a hook", False),
        ("mcp", {"providerIdentifier": "s", "toolName": "t"}, "MCP tool execution rejected by user: t", True),
        ("mcp", {"providerIdentifier": "s", "toolName": "t"}, "User rejected MCP: t", False),
    ],
)
def test_a_call_that_the_agent_refused_keeps_its_reason_and_is_not_offered(
    tool: str, args: dict[str, Any], reason: str, offered: bool
) -> None:
    start, end = call("started", tool, {"args": args}), {"result": {"rejected": {"reason": reason}}}
    *_, ended, _ = decoded(start, call("completed", tool, end), RESULT)
    assert isinstance(ended, ToolEnded)
    assert ended.outcome.state == "rejected"
    assert (ended.outcome.permission is not None) is offered
    assert offered or ended.outcome.message == reason


@pytest.mark.parametrize("where", ["args", "result"])
def test_a_command_that_a_hook_changed_is_the_one_that_ran(where: str) -> None:
    body: dict[str, Any] = {"result": {"success": {"exitCode": 0}}}
    if where == "args":
        body["args"] = {"command": "safe cat a"}
    else:
        body["result"]["success"]["command"] = "safe cat a"
    *_, ended, _ = decoded(
        call("started", "shell", {"args": {"command": "cat a"}}), call("completed", "shell", body), RESULT
    )
    assert isinstance(ended, ToolEnded)
    assert isinstance(ended.action, Command)
    assert ended.action.command == "safe cat a"


@pytest.mark.parametrize("whole", ["First.Then.", "Then."])
def test_the_agent_may_go_on_after_background_work_before_its_one_result(whole: str) -> None:
    note = line("system", "task_notification", task_id="1", status="completed", title="sleep")
    again = [line("system", "init"), note, delta("Then."), flush("Then.")]
    events = decoded(line("system", "init"), delta("First."), said("First."), *again, result(whole))
    assert sum(isinstance(event, RunStarted) for event in events) == 1
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "First.Then."
    assert isinstance(events[-1], RunFinished)
    assert not events[-1].text_differs
    other = decoded(line("system", "init"), delta("First."), said("First."), *again, result("Else."))[-1]
    assert isinstance(other, RunFinished)
    assert other.text_differs


def test_a_result_with_very_many_values_is_given_as_json() -> None:
    content: list[Any] = [[]] * 150_000
    lines = [
        call("started", "mcp", {"args": {"toolName": "x"}}),
        call("completed", "mcp", {"result": {"success": {"content": content}}}),
    ]
    *_, ended, _ = decoded(*lines, RESULT)
    assert isinstance(ended, ToolEnded)
    assert isinstance(ended.action, OtherTool)
    assert json.loads(ended.action.data) == {"content": content}


# --- all of it --------------------------------------------------------------------------------------


def test_every_pair_of_lines_means_the_same_in_one_read_and_in_two() -> None:
    kinds = [
        *(given for given, _ in EVENTS.values()),
        STARTED,
        COMPLETED,
        SEARCH,
        delta("Hi"),
        delta(HIGH),
        thought(LOW),
    ]
    for first, second in [*pairwise(kinds), *((one, one) for one in kinds)]:
        decoded(delta("Hi"), first, second, RESULT)
