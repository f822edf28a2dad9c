"""A run cut anywhere: its snapshot holds what was told, and the events that end it make a well-formed stream."""

from collections.abc import Iterable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, structs

from cursor_gateway.errors import AgentCrashed, RunCancelled
from cursor_gateway.model import agent_events, documents
from cursor_gateway.model.caller_tools import CallerCall, ToolResult
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.model.messages import AssistantMessage, ToolCall, ToolMessage
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState, Transcript
from cursor_gateway.store.batches import decode, encode
from tests.laws.laws import assert_well_formed, response_so_far, text_of
from tests.scenarios.golden import Scenario, scenarios
from tests.strategies import examples

REFUSED = documents.TerminalCommandMetadata(
    command="ls", exit_code=-1, output="", duration_ms=0, permissions=[], state="rejected"
)
RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z", model="auto", conversation_id="conv_1")
FAILURE = AgentCrashed("The gateway was killed.").failure()
RESULT = documents.ToolCallResult(status="success", data="x")

# of each type: what is told while it is open, and its metadata when it never ends
REASON = agent_events.INTERRUPTED.message
OPEN: dict[str, tuple[list[DocumentEvent], documents.Metadata, documents.Metadata]] = {
    "text": ([DocumentStarted("doc_001", "text", 1)], documents.TextMetadata(), documents.TextMetadata()),
    "thinking": (
        [DocumentStarted("doc_001", "thinking", 1)],
        documents.ThinkingMetadata(),
        documents.ThinkingMetadata(),
    ),
    "code_block": (
        [DocumentStarted("doc_001", "code_block", 1, KnownMetadata(language="python", purpose="example", indent=2))],
        documents.CodeBlockMetadata(language="python", purpose="example", indent=2),
        documents.CodeBlockMetadata(language="python", purpose="example", indent=2),
    ),
    "code_block of which nothing is known": (
        [DocumentStarted("doc_001", "code_block", 1)],
        documents.CodeBlockMetadata(language="text", purpose="new_code"),
        documents.CodeBlockMetadata(language="text", purpose="new_code"),
    ),
    "code_reference": (
        [
            DocumentStarted(
                "doc_001",
                "code_reference",
                1,
                KnownMetadata(file_path="a.py", start_line=1, end_line=2, language="python"),
            )
        ],
        documents.CodeReferenceMetadata(file_path="a.py", start_line=1, end_line=2, language="python"),
        documents.CodeReferenceMetadata(file_path="a.py", start_line=1, end_line=2, language="python"),
    ),
    "file_edit": (
        [DocumentStarted("doc_001", "file_edit", 1, KnownMetadata(file_path="a.py"))],
        documents.FileEditMetadata(file_path="a.py", operation="edit", language="python", state="running"),
        documents.FileEditMetadata(
            file_path="a.py", operation="edit", language="python", state="interrupted", reason=REASON
        ),
    ),
    "terminal_command": (
        [DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="ls", working_directory="/w"))],
        documents.TerminalCommandMetadata(
            command="ls",
            working_directory="/w",
            exit_code=-1,
            output="",
            duration_ms=0,
            permissions=[],
            state="running",
        ),
        documents.TerminalCommandMetadata(
            command="ls",
            working_directory="/w",
            exit_code=-1,
            output="",
            duration_ms=0,
            permissions=[],
            state="interrupted",
            reason=REASON,
        ),
    ),
    "plan": (
        [DocumentStarted("doc_001", "plan", 1, KnownMetadata(title="t", overview="o", todos=[]))],
        documents.PlanMetadata(title="t", overview="o", todos=[], state="running"),
        documents.PlanMetadata(title="t", overview="o", todos=[], state="interrupted", reason=REASON),
    ),
    "clarification": (
        [DocumentStarted("doc_001", "clarification", 1)],
        documents.ClarificationMetadata(questions=[], state="running"),
        documents.ClarificationMetadata(questions=[], state="interrupted", reason=REASON),
    ),
    "todo_update": (
        [DocumentStarted("doc_001", "todo_update", 1)],
        documents.TodoUpdateMetadata(todos=[], state="running"),
        documents.TodoUpdateMetadata(todos=[], state="interrupted", reason=REASON),
    ),
    "tool_call": (
        [
            DocumentStarted("doc_001", "tool_call", 1),
            ToolCallStarted("doc_001", "grep", "c"),
            ToolCallArguments("doc_001", {"p": 1}),
        ],
        documents.ToolCallMetadata(
            tool_name="grep",
            tool_call_id="c",
            arguments={"p": 1},
            result=documents.ToolCallResult(status="error", data=None),
            duration_ms=0,
            state="running",
        ),
        documents.ToolCallMetadata(
            tool_name="grep",
            tool_call_id="c",
            arguments={"p": 1},
            result=documents.ToolCallResult(status="error", data=REASON),
            duration_ms=0,
            state="interrupted",
            reason=REASON,
        ),
    ),
    "tool_call with its result": (
        [
            DocumentStarted("doc_001", "tool_call", 1),
            ToolCallStarted("doc_001", "grep", "c"),
            ToolCallEnded("doc_001", RESULT),
        ],
        documents.ToolCallMetadata(
            tool_name="grep", tool_call_id="c", arguments={}, result=RESULT, duration_ms=0, state="running"
        ),
        documents.ToolCallMetadata(
            tool_name="grep",
            tool_call_id="c",
            arguments={},
            result=RESULT,
            duration_ms=0,
            state="interrupted",
            reason=REASON,
        ),
    ),
    "tool_call of the caller's": (
        [
            DocumentStarted("doc_001", "tool_call", 1, KnownMetadata(state="waiting", ran_by="caller")),
            ToolCallStarted("doc_001", "look", "k"),
        ],
        documents.ToolCallMetadata(
            tool_name="look",
            tool_call_id="k",
            arguments={},
            result=documents.ToolCallResult(status="error", data=None),
            duration_ms=0,
            state="waiting",
            ran_by="caller",
        ),
        documents.ToolCallMetadata(
            tool_name="look",
            tool_call_id="k",
            arguments={},
            result=documents.ToolCallResult(status="error", data=REASON),
            duration_ms=0,
            state="interrupted",
            reason=REASON,
            ran_by="caller",
        ),
    ),
    "error": (
        [DocumentStarted("doc_001", "error", 1)],
        documents.ErrorMetadata(error_code="UNKNOWN", source="agent", details=""),
        documents.ErrorMetadata(error_code="UNKNOWN", source="agent", details=""),
    ),
}


@pytest.mark.parametrize(("events", "running", "interrupted"), OPEN.values(), ids=OPEN)
def test_what_is_open_is_sent_with_what_is_known(
    events: list[DocumentEvent], running: documents.Metadata, interrupted: documents.Metadata
) -> None:
    run = fold(events)
    snapshot = so_far(events, RUN, "a b")
    assert snapshot.documents == [documents.make_document("doc_001", 1, None, running)]
    assert (snapshot.id, snapshot.conversation_id, snapshot.model, snapshot.status) == (
        "chat_1",
        "conv_1",
        "auto",
        "streaming",
    )
    ended = [*events, *run.end(RUN, "a b", FAILURE)]
    assert_well_formed(ended)
    transcript = Transcript()
    for event in ended:
        transcript.push(event)
    first, error = transcript.documents
    assert first == documents.make_document("doc_001", 1, None, interrupted)
    assert error == documents.make_document(
        "doc_002", 2, FAILURE.message, documents.ErrorMetadata(error_code="AGENT_CRASHED", source="agent", details="")
    )


def so_far(events: Iterable[DocumentEvent], run: RunInfo = RUN, prompt: str = "") -> documents.ChatResponse:
    return response_so_far(events, run, prompt)


def fold(events: Iterable[DocumentEvent]) -> RunState:
    return RunState().push_all(events)


def test_a_running_command_has_the_output_so_far() -> None:
    started = DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="make"))
    events: list[DocumentEvent] = [started, TerminalOutput("doc_001", "a"), TerminalOutput("doc_001", "b")]
    snapshot, ended = so_far(events).documents[0], fold(events).end(RUN, "", FAILURE)[0]
    assert isinstance(ended, DocumentEnded)
    for document in (snapshot, ended.document):
        assert isinstance(document.metadata, documents.TerminalCommandMetadata)
        assert document.metadata.output == "ab"


def test_what_was_said_counts_though_nobody_counted_it() -> None:
    events: list[DocumentEvent] = [DocumentStarted("doc_001", "text", 1), ContentDelta("doc_001", "one two three")]
    usage = so_far(events, RUN, "a b").usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, usage.estimated) == (2, 3, 5, True)
    (document,) = so_far(events).documents
    assert document.content == "one two three"
    nameless = so_far(events, RunInfo(id="chat_1", created=RUN.created))
    assert (nameless.model, nameless.conversation_id) == ("unknown", "")


def test_a_run_that_is_done_after_all_is_whole() -> None:
    *result, done = read_events(scenarios()[0].lines, scenarios()[0].run)
    assert so_far(result).status == "streaming"
    assert isinstance(done, Done)
    assert so_far([*result, done]).status == done.envelope.status


def test_thinking_is_a_turn_and_counts() -> None:
    snapshot = so_far([Reasoning("hm hm", opens=True)])
    assert (snapshot.usage.completion_tokens, snapshot.metadata.turn_count, snapshot.documents) == (2, 1, [])


def test_a_call_that_had_no_name_yet_gets_one() -> None:
    started = DocumentStarted("doc_001", "tool_call", 1)
    ended = [started, *fold([started]).end(RUN, "", FAILURE)]
    assert_well_formed(ended)
    assert ended[1] == ToolCallStarted("doc_001", "unknown", "call_001")


WAITING = KnownMetadata(state="waiting", ran_by="caller")
ASKED: list[DocumentEvent] = [
    DocumentStarted("doc_001", "tool_call", 1, WAITING),
    ToolCallStarted("doc_001", "look", "k"),
    ToolCallArguments("doc_001", {"p": 1}),
    DocumentStarted("doc_002", "tool_call", 2),
    ToolCallStarted("doc_002", "grep", "c"),
    DocumentStarted("doc_003", "tool_call", 3, WAITING),
]


def test_what_the_caller_is_to_do_is_sent_as_soon_as_it_has_a_name() -> None:
    waiting = [documents.WaitingCall(tool_call_id="k", tool_name="look", arguments={"p": 1}, document_id="doc_001")]
    assert so_far(ASKED).metadata.waiting_for == waiting
    assert so_far(ASKED[3:5]).metadata.waiting_for is UNSET
    done = fold(ASKED).end(RUN, "", FAILURE)[-1]
    assert isinstance(done, Done)
    assert done.envelope.metadata.waiting_for is UNSET, "nobody waits for it any more"


def test_at_a_pause_the_run_is_what_the_pause_says_until_it_goes_on() -> None:
    started = read_events(scenarios()[0].lines, scenarios()[0].run)
    envelope = next(event.envelope for event in started if isinstance(event, Done))
    events = [*ASKED, Paused(envelope)]
    assert so_far(events, RUN, "a b").usage == envelope.usage
    assert so_far(events, RUN, "a b").id == envelope.id
    events.append(DocumentStarted("doc_004", "text", 4))
    assert so_far(events, RUN, "a b").usage.prompt_tokens == 2
    assert so_far(events, RUN, "a b").id == RUN.id


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
@examples(10)
@given(cut=st.floats(0, 1))
def test_a_run_cut_anywhere_ends_well(scenario: Scenario, cut: float) -> None:
    whole = list(read_events(scenario.lines, scenario.run))
    result = whole[: int(cut * (len(whole) - 1))]  # never `Done`
    run = fold(result)
    assert {document.id for document in so_far(result).documents} == {
        event.id for event in result if isinstance(event, DocumentStarted)
    }
    end = run.end(RUN, "", FAILURE)
    assert_well_formed([*result, *end])
    assert text_of([*result, *end]) == text_of(result)
    assert isinstance(done := end[-1], Done)
    assert (done.failure, done.envelope.status) == (FAILURE, "error")


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_calls_are_counted_as_the_run_itself_counts_them(scenario: Scenario) -> None:
    *result, done = list(read_events(scenario.lines, scenario.run))
    assert isinstance(done, Done)
    counted = so_far(result).metadata
    assert counted.tool_call_count == done.envelope.metadata.tool_call_count
    # At least: which calls are of one turn, only the agent itself tells, and not in these events.
    assert bool(counted.turn_count) == bool(done.envelope.metadata.turn_count)


@pytest.mark.parametrize("type", OPEN)
def test_another_agent_can_go_on_with_it(type: str) -> None:
    """What was open is ended, a note says what has happened, and what follows has the next numbers."""
    begun, *_ = OPEN[type]
    assembler, closing = fold(begun).interrupt(RUN, "Do it.", "(Another one continues.)")
    events = [
        *begun,
        *closing,
        *assembler.push(agent_events.TextDelta("Done.")),
        *assembler.push(agent_events.RunFinished(duration_ms=1)),
    ]
    assert_well_formed(events)
    transcript = Transcript()
    for event in events:
        transcript.push(event)
    response = transcript.response()
    assert response is not None
    assert [document.content for document in response.documents[1:]] == ["(Another one continues.)", "Done."]
    assert [document.sequence for document in response.documents] == [1, 2, 3]


def test_what_was_refused_and_what_a_subagent_does_is_remembered() -> None:
    events: list[DocumentEvent] = [
        DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="ls")),
        DocumentEnded(documents.make_document("doc_001", 1, None, REFUSED)),
        DocumentStarted("doc_002", "terminal_command", 2, KnownMetadata(command="wc", parent_id="doc_001")),
    ]
    snapshot = so_far(events)
    assert snapshot.metadata.refused_count == 1
    for metadata in (snapshot.documents[1].metadata, fold(events).end(RUN, "", FAILURE)[0].document.metadata):  # type: ignore[union-attr]
        assert isinstance(metadata, documents.TerminalCommandMetadata)
        assert metadata.parent_id == "doc_001"


# --- the calls of the caller's tools ----------------------------------------------------------------


def pause(*ids: str) -> Paused:
    waiting = [
        documents.WaitingCall(tool_call_id=id, tool_name="t", arguments={}, document_id=f"of {id}") for id in ids
    ]
    metadata = documents.ResponseMetadata(duration_ms=0, tool_call_count=0, turn_count=0, waiting_for=waiting)
    usage = documents.Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
    return Paused(
        documents.Envelope(
            id="chat_1",
            conversation_id="conv_1",
            model="auto",
            mode="agent",
            created="",
            status="streaming",
            usage=usage,
            metadata=metadata,
        )
    )


def ended(id: str, data: object = None, *, ran_by: Literal["caller"] | None = "caller") -> DocumentEnded:
    """Without data it was never answered."""
    metadata = documents.ToolCallMetadata(
        tool_name="t",
        tool_call_id=id,
        arguments={"n": id},
        result=documents.ToolCallResult(status="success", data=data),
        duration_ms=0,
        state="interrupted" if data is None else UNSET,
        ran_by=ran_by or UNSET,
    )
    return DocumentEnded(documents.make_document(id, 2, None, metadata))


EVENTS: list[DocumentEvent] = [
    DocumentStarted("doc_001", "text", 1, raw="I look. "),
    *(DocumentStarted(id, "tool_call", 2) for id in ("a", "b", "own", "c")),
    pause("a", "b"),  # 6
    ended("a", {"sky": "blue"}),
    ended("own", "x", ran_by=None),
    pause("b"),  # 9: the rest, asked for again
    ended("b", "two"),
    ContentDelta("doc_001", "And now. "),
    pause("c"),  # 12
    ended("c"),
    ContentDelta("doc_001", "The end."),
]


def results(*ids: str) -> dict[str, ToolResult]:
    return {id: ToolResult(text=f"now {id}") for id in ids}


def test_which_pause_waited_for_it() -> None:
    state = fold(EVENTS)
    assert [state.pause_for(calls=results(id)) for id in ("a", "b", "c", "own", "x")] == [6, 9, 12, None, None]
    assert [state.pause_for(document_id=id) for id in ("of a", "of b", "doc_001")] == [6, 9, None]
    assert [state.are_missing(results(id)) for id in ("a", "b", "c", "x")] == [False, False, True, False]


def test_what_a_fresh_agent_is_given() -> None:
    result = fold(EVENTS).messages(results("a", "c"))
    assert result == [
        AssistantMessage("I look. ", (ToolCall("a", "t", '{"n":"a"}'), ToolCall("b", "t", '{"n":"b"}'))),
        ToolMessage('{"sky":"blue"}', "a", "t"),  # what it gave then, not what is said of it now
        ToolMessage("two", "b", "t"),
        AssistantMessage("And now. ", (ToolCall("c", "t", '{"n":"c"}'),)),
        ToolMessage("now c", "c", "t"),
    ]
    assert fold(EVENTS).messages({})[-1] == ToolMessage("There is no result: the run was interrupted.", "c", "t")


def test_a_reply_is_what_was_said_between_two_pauses() -> None:
    state = fold(EVENTS)
    assert [state.reply_text(after) for after in (0, 6, 9, 12)] == ["I look. ", "", "And now. ", "The end."]
    assert (state.text, state.last_reply) == ("I look. And now. The end.", "The end.")
    assert fold(EVENTS[:2]).last_reply == "I look. "
    found = [state.next_pause(after) for after in (0, 5, 6, 11, 12)]
    assert [None if pause is None else pause.number for pause in found] == [6, 6, 9, 12, None]
    assert (state.paused_at, fold(EVENTS[:5]).paused_at) == (12, 0)


def test_a_reply_asks_for_the_calls_that_its_pause_waits_for() -> None:
    state = fold(EVENTS)
    assert [[call.id for call in state.reply_calls(after)] for after in (0, 6, 9, 12)] == [["a", "b"], ["b"], ["c"], []]


def test_white_space_that_belongs_to_no_document_is_said_too() -> None:
    *_, done = read_events(scenarios()[0].lines, scenarios()[0].run)
    assert isinstance(done, Done)
    state = fold([structs.replace(pause("a"), raw="\n"), structs.replace(done, raw="\n\n")])
    assert (state.said, state.reply_text(0), state.last_reply) == (["\n", "\n\n"], "\n", "\n\n")


def test_text_counts_even_where_the_beginning_of_its_document_is_lost() -> None:
    state = RunState()
    for event in (ContentDelta("doc_009", "lost "), ended("gone", "found")):
        with pytest.raises(LookupError):
            state.push(event)
    assert (state.text, state.words.all, state.count) == ("lost ", ["t", "gone"], 2)


def test_an_assembler_that_continues_leaves_the_state_alone() -> None:
    """What it makes is pushed into the same state: that must not count twice."""
    begun: list[DocumentEvent] = [DocumentStarted("doc_001", "text", 1), ContentDelta("doc_001", "One. ")]
    state = fold(begun)
    assembler, closing = state.interrupt(RUN, "", "(Another one continues.)")
    assert state == fold(begun)
    events = [
        *begun,
        *closing,
        *assembler.push(agent_events.TextDelta("Two.")),
        *assembler.push(agent_events.RunFinished(duration_ms=1)),
    ]
    assert state.push_all(events[2:]) == fold(events)


# --- a whole run, step by step ----------------------------------------------------------------------


def test_a_run_from_its_start_to_its_end_by_its_events_alone() -> None:
    """Text, a call, a pause; the agent dies, a late result, another process takes over, and the run is cancelled."""
    state, assembler, log = RunState(), Assembler(RUN), list[DocumentEvent]()

    def say(*events: agent_events.AgentEvent) -> None:
        shown = [shown for event in events for shown in assembler.push(event)]
        state.push_all(shown)
        log.extend(shown)

    say(agent_events.RunStarted("session", "auto"), agent_events.TextDelta("I look. "))
    assert (state.text, state.has_output, list(state.open), state.pauses) == ("I look. ", True, ["doc_001"], [])

    say(agent_events.CallerToolAsked(CallerCall("k", "weather", {"place": "a"})), agent_events.CallerAwaited(("k",)))
    first = state.paused_at
    assert (state.count, state.open["doc_002"].known.state) == (first, "waiting")
    assert state.pause_for(calls=["k"]) == state.pause_for(document_id="doc_002") == first

    say(agent_events.CallerToolAnswered("k", ToolResult(text="rain"), 5), agent_events.TextDelta("It rains. "))
    assert (state.are_missing(["k"]), state.reply_text(first)) == (False, "It rains. ")

    say(agent_events.CallerToolAsked(CallerCall("l", "weather", {"place": "b"})), agent_events.CallerAwaited(("l",)))
    second = state.paused_at

    # The process that had the agent dies. Another one has the log, and so the state, and takes over.
    state = RunState().push_all(decode(encode(log)))
    assembler, closing = state.interrupt(RUN, "Look.", "(Another agent continues.)")
    state.push_all(closing)
    assert (state.open, state.are_missing(["l"]), state.pause_for(calls=["l"])) == ({}, True, second)
    late = state.messages({"l": ToolResult(text="sun")})
    assert late == [
        AssistantMessage("I look. ", (ToolCall("k", "weather", '{"place":"a"}'),)),
        ToolMessage("rain", "k", "weather"),
        AssistantMessage("It rains. ", (ToolCall("l", "weather", '{"place":"b"}'),)),
        ToolMessage("sun", "l", "weather"),
    ]

    say(agent_events.RunStarted("another", "auto"), agent_events.TextDelta("The sun shines"))
    state.push_all(state.end(RUN, "Look.", RunCancelled("Stopped.").failure()))
    assert state.done is not None
    assert (state.done.envelope.status, state.open) == ("error", {})
    assert state.last_reply == "(Another agent continues.)The sun shines"


def test_a_pause_for_others_is_in_the_midst_of_a_reply() -> None:
    paused = [structs.replace(event, goes_on=True) if isinstance(event, Paused) else event for event in EVENTS]
    state = fold(paused)
    assert state.paused_at > 0
    assert state.next_pause(0) is None
    assert state.last_reply == state.reply_text(0) == state.text
    assert state.messages({}) == []
