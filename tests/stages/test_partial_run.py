"""A run cut anywhere: its snapshot holds what was told, and the events that end it make a well-formed stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.actions import INTERRUPTED
from cursor_gateway.model.agent_events import RunFinished, TextDelta
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    Reasoning,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.model.documents import (
    ClarificationMetadata,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    PlanMetadata,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    WaitingCall,
    make_document,
)
from cursor_gateway.model.run_info import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.stages.partial_run import PartialRun
from cursor_gateway.stages.transcript import Transcript
from tests.laws.laws import assert_well_formed, text_of
from tests.scenarios.golden import Scenario, scenarios
from tests.strategies import examples

RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z", model="auto", conversation_id="conv_1")
FAILURE = AgentCrashed("The gateway was killed.").failure()
RESULT = ToolCallResult(status="success", data="x")

# of each type: what is told while it is open, and its metadata when it never ends
REASON = INTERRUPTED.message
OPEN: dict[str, tuple[list[DocumentEvent], Metadata, Metadata]] = {
    "text": ([DocumentStarted("doc_001", "text", 1)], TextMetadata(), TextMetadata()),
    "thinking": ([DocumentStarted("doc_001", "thinking", 1)], ThinkingMetadata(), ThinkingMetadata()),
    "code_block": (
        [DocumentStarted("doc_001", "code_block", 1, KnownMetadata(language="python", purpose="example", indent=2))],
        CodeBlockMetadata(language="python", purpose="example", indent=2),
        CodeBlockMetadata(language="python", purpose="example", indent=2),
    ),
    "code_block of which nothing is known": (
        [DocumentStarted("doc_001", "code_block", 1)],
        CodeBlockMetadata(language="text", purpose="new_code"),
        CodeBlockMetadata(language="text", purpose="new_code"),
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
        CodeReferenceMetadata(file_path="a.py", start_line=1, end_line=2, language="python"),
        CodeReferenceMetadata(file_path="a.py", start_line=1, end_line=2, language="python"),
    ),
    "file_edit": (
        [DocumentStarted("doc_001", "file_edit", 1, KnownMetadata(file_path="a.py"))],
        FileEditMetadata(file_path="a.py", operation="edit", language="python", state="running"),
        FileEditMetadata(file_path="a.py", operation="edit", language="python", state="interrupted", reason=REASON),
    ),
    "terminal_command": (
        [DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="ls", working_directory="/w"))],
        TerminalCommandMetadata(
            command="ls",
            working_directory="/w",
            exit_code=-1,
            output="",
            duration_ms=0,
            permissions=[],
            state="running",
        ),
        TerminalCommandMetadata(
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
        PlanMetadata(title="t", overview="o", todos=[], state="running"),
        PlanMetadata(title="t", overview="o", todos=[], state="interrupted", reason=REASON),
    ),
    "clarification": (
        [DocumentStarted("doc_001", "clarification", 1)],
        ClarificationMetadata(questions=[], state="running"),
        ClarificationMetadata(questions=[], state="interrupted", reason=REASON),
    ),
    "todo_update": (
        [DocumentStarted("doc_001", "todo_update", 1)],
        TodoUpdateMetadata(todos=[], state="running"),
        TodoUpdateMetadata(todos=[], state="interrupted", reason=REASON),
    ),
    "tool_call": (
        [
            DocumentStarted("doc_001", "tool_call", 1),
            ToolCallStarted("doc_001", "grep", "c"),
            ToolCallArguments("doc_001", {"p": 1}),
        ],
        ToolCallMetadata(
            tool_name="grep",
            tool_call_id="c",
            arguments={"p": 1},
            result=ToolCallResult(status="error", data=None),
            duration_ms=0,
            state="running",
        ),
        ToolCallMetadata(
            tool_name="grep",
            tool_call_id="c",
            arguments={"p": 1},
            result=ToolCallResult(status="error", data=REASON),
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
        ToolCallMetadata(
            tool_name="grep", tool_call_id="c", arguments={}, result=RESULT, duration_ms=0, state="running"
        ),
        ToolCallMetadata(
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
        ToolCallMetadata(
            tool_name="look",
            tool_call_id="k",
            arguments={},
            result=ToolCallResult(status="error", data=None),
            duration_ms=0,
            state="waiting",
            ran_by="caller",
        ),
        ToolCallMetadata(
            tool_name="look",
            tool_call_id="k",
            arguments={},
            result=ToolCallResult(status="error", data=REASON),
            duration_ms=0,
            state="interrupted",
            reason=REASON,
            ran_by="caller",
        ),
    ),
    "error": (
        [DocumentStarted("doc_001", "error", 1)],
        ErrorMetadata(error_code="UNKNOWN", source="agent", details=""),
        ErrorMetadata(error_code="UNKNOWN", source="agent", details=""),
    ),
}


@pytest.mark.parametrize(("events", "running", "interrupted"), OPEN.values(), ids=OPEN)
def test_what_is_open_is_sent_with_what_is_known(
    events: list[DocumentEvent], running: Metadata, interrupted: Metadata
) -> None:
    run = PartialRun(events)
    snapshot = run.snapshot(RUN, "a b")
    assert snapshot.documents == [make_document("doc_001", 1, None, running)]
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
    assert first == make_document("doc_001", 1, None, interrupted)
    assert error == make_document(
        "doc_002", 2, FAILURE.message, ErrorMetadata(error_code="AGENT_CRASHED", source="agent", details="")
    )


def test_what_was_said_counts_though_nobody_counted_it() -> None:
    events: list[DocumentEvent] = [DocumentStarted("doc_001", "text", 1), ContentDelta("doc_001", "one two three")]
    usage = PartialRun(events).snapshot(RUN, "a b").usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, usage.estimated) == (2, 3, 5, True)
    (document,) = PartialRun(events).snapshot(RUN, "").documents
    assert document.content == "one two three"
    nameless = PartialRun(events).snapshot(RunInfo(id="chat_1", created=RUN.created), "")
    assert (nameless.model, nameless.conversation_id) == ("unknown", "")


def test_a_run_that_is_done_after_all_is_whole() -> None:
    *result, done = read_events(scenarios()[0].lines, scenarios()[0].run)
    assert PartialRun(result).response(RUN, "").status == "streaming"
    assert isinstance(done, Done)
    assert PartialRun([*result, done]).response(RUN, "").status == done.envelope.status


def test_thinking_is_a_turn_and_counts() -> None:
    snapshot = PartialRun([Reasoning("hm hm", opens=True)]).snapshot(RUN, "")
    assert (snapshot.usage.completion_tokens, snapshot.metadata.turn_count, snapshot.documents) == (2, 1, [])


def test_a_call_that_had_no_name_yet_gets_one() -> None:
    started = DocumentStarted("doc_001", "tool_call", 1)
    ended = [started, *PartialRun([started]).end(RUN, "", FAILURE)]
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
    waiting = [WaitingCall(tool_call_id="k", tool_name="look", arguments={"p": 1}, document_id="doc_001")]
    assert PartialRun(ASKED).snapshot(RUN, "").metadata.waiting_for == waiting
    assert PartialRun(ASKED[3:5]).snapshot(RUN, "").metadata.waiting_for is UNSET
    done = PartialRun(ASKED).end(RUN, "", FAILURE)[-1]
    assert isinstance(done, Done)
    assert done.envelope.metadata.waiting_for is UNSET, "nobody waits for it any more"


def test_at_a_pause_the_run_is_what_the_pause_says_until_it_goes_on() -> None:
    started = read_events(scenarios()[0].lines, scenarios()[0].run)
    envelope = next(event.envelope for event in started if isinstance(event, Done))
    paused = PartialRun([*ASKED, Paused(envelope)])
    assert paused.response(RUN, "a b").usage == envelope.usage
    assert paused.response(RUN, "a b").id == envelope.id
    paused.push(DocumentStarted("doc_004", "text", 4))
    assert paused.response(RUN, "a b").usage.prompt_tokens == 2
    assert paused.response(RUN, "a b").id == RUN.id


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
@examples(10)
@given(cut=st.floats(0, 1))
def test_a_run_cut_anywhere_ends_well(scenario: Scenario, cut: float) -> None:
    whole = list(read_events(scenario.lines, scenario.run))
    result = whole[: int(cut * (len(whole) - 1))]  # never `Done`
    run = PartialRun(result)
    assert {document.id for document in run.snapshot(RUN, "").documents} == {
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
    counted = PartialRun([*result, done]).snapshot(RUN, "").metadata
    assert counted.tool_call_count == done.envelope.metadata.tool_call_count
    # At least: which calls are of one turn, only the agent itself tells, and not in these events.
    assert bool(counted.turn_count) == bool(done.envelope.metadata.turn_count)


@pytest.mark.parametrize("type", OPEN)
def test_another_agent_can_go_on_with_it(type: str) -> None:
    """What was open is ended, a note says what has happened, and what follows has the next numbers."""
    begun, *_ = OPEN[type]
    assembler, closing = PartialRun(begun).interrupt(RUN, "Do it.", "(Another one continues.)")
    events = [*begun, *closing, *assembler.push(TextDelta("Done.")), *assembler.push(RunFinished(duration_ms=1))]
    assert_well_formed(events)
    transcript = Transcript()
    for event in events:
        transcript.push(event)
    response = transcript.response()
    assert response is not None
    assert [document.content for document in response.documents[1:]] == ["(Another one continues.)", "Done."]
    assert [document.sequence for document in response.documents] == [1, 2, 3]
