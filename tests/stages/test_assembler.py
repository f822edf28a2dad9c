"""The grammar of a run: tables of what the agent does, and what readers are told of it at each step."""

import pickle
from typing import Any, TypeAlias

import msgspec
import pytest
from msgspec import UNSET

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.agent_events import (
    INTERRUPTED,
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
from cursor_gateway.model.caller_tools import CallerCall, ToolResult
from cursor_gateway.model.costs import Price
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
    reply_usage,
    source_text,
)
from cursor_gateway.model.documents import (
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Document,
    Envelope,
    ErrorDocument,
    Mode,
    Purpose,
    ResponseMetadata,
    TerminalCommandDocument,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    ToolCallDocument,
    ToolTrace,
    Usage,
    WaitingCall,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.stages.assembler import Assembler, OpenProse, OpenTool
from cursor_gateway.stages.tokens import estimate_tokens
from cursor_gateway.stages.tool_documents import Refusals
from cursor_gateway.stages.usage import Turns

Summary: TypeAlias = tuple[object, ...]
Step: TypeAlias = tuple[AgentEvent, list[Summary]]

RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z")
THINKING = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z", include=frozenset({"thinking"}))

FINISHED = RunFinished()
DONE: Summary = ("done", "completed", "")


def summary(event: DocumentEvent) -> Summary:
    match event:
        case DocumentStarted(id=id, type=type, raw=raw):
            return ("start", id, type, raw)
        case ContentDelta(id=id, text=text):
            return ("delta", id, text) if source_text(event) == text else ("delta", id, text, source_text(event))
        case TerminalOutput(id=id, text=text):
            return ("output", id, text)
        case DocumentEnded(document=document, raw=raw):
            return ("end", document.id, document.content, raw)
        case ToolCallStarted(id=id, tool_name=name, tool_call_id=call_id):
            return ("call", id, name, call_id)
        case ToolCallArguments(id=id, arguments=arguments):
            return ("arguments", id, arguments)
        case ToolCallEnded(id=id, result=result):
            return ("result", id, result.status, result.data)
        case Reasoning(text=text, opens=opens):
            return ("opens", text) if opens else ("thinks", text)
        case Paused(envelope=envelope, raw=raw):
            return ("pause", [call.tool_call_id for call in envelope.metadata.waiting_for or ()], raw)
        case Done(envelope=envelope, raw=raw):
            return ("done", envelope.status, raw)


def assemble(events: list[AgentEvent], run: RunInfo = RUN) -> list[DocumentEvent]:
    assembler = Assembler(run)
    return [out for event in events for out in assembler.push(event)]


def documents(events: list[AgentEvent], run: RunInfo = RUN) -> list[Document]:
    return [event.document for event in assemble(events, run) if isinstance(event, DocumentEnded)]


def envelope(events: list[AgentEvent], run: RunInfo = RUN) -> Envelope:
    done = assemble(events, run)[-1]
    assert isinstance(done, Done)
    return done.envelope


def grep(arguments: dict[str, Any] | None = None, data: Any = None) -> Action:
    return OtherTool(tool="grep", arguments=arguments or {}, data=data)


def starts(id: str, action: Action | None = None, model_call: str | None = None) -> ToolStarted:
    return ToolStarted(id, action or grep(), model_call)


def ends(id: str, action: Action | None = None, outcome: Outcome | None = None) -> ToolEnded:
    return ToolEnded(id, action or grep(), outcome or Outcome())


def asks(id: str, arguments: dict[str, Any] | None = None) -> CallerToolAsked:
    return CallerToolAsked(CallerCall(id, "look", arguments or {}))


def answers(id: str, text: str = "seen", *, is_error: bool = False) -> CallerToolAnswered:
    return CallerToolAnswered(id, ToolResult(text=text, is_error=is_error), 7)


def awaits(*ids: str) -> CallerAwaited:
    return CallerAwaited(ids)


FAILED = Outcome(state="failed", code="TOOL_ERROR", message="It broke.", details="why")
SHELL = Command(tool="run_terminal_cmd", command="ls")

# --- tables -----------------------------------------------------------------------------------------

RUNS: dict[str, list[Step]] = {
    "text grows as it comes": [
        (TextDelta("Hel"), [("start", "doc_001", "text", ""), ("delta", "doc_001", "Hel")]),
        (TextDelta("lo"), [("delta", "doc_001", "lo")]),
        (TextDelta(""), []),
        (TextDelta("."), [("delta", "doc_001", ".")]),
        (FINISHED, [("end", "doc_001", "Hello.", ""), DONE]),
    ],
    "line ends wait until text follows, other white space only behind them": [
        (TextDelta("a "), [("start", "doc_001", "text", ""), ("delta", "doc_001", "a ")]),
        (TextDelta(" "), [("delta", "doc_001", " ")]),
        (TextDelta(" \n"), [("delta", "doc_001", " ")]),
        (TextDelta(" "), []),
        (TextDelta("b"), [("delta", "doc_001", "\n b")]),
        (TextDelta(" c\n\n"), [("delta", "doc_001", " c")]),
        (TextDelta("\f"), []),
        (TextDelta("d"), [("delta", "doc_001", "\n\n\fd")]),
        (FINISHED, [("end", "doc_001", "a   \n b c\n\n\fd", ""), DONE]),
    ],
    "white space alone is no document": [(TextDelta("\n \n"), []), (FINISHED, [("done", "completed", "\n \n")])],
    "blank lines before text are no part of it, its indentation is": [
        (TextDelta(" \r\n\n  a"), [("start", "doc_001", "text", " \r\n\n"), ("delta", "doc_001", "  a")]),
        (FINISHED, [("end", "doc_001", "  a", ""), DONE]),
    ],
    "white space after text goes with its end": [
        (TextDelta("a\n"), [("start", "doc_001", "text", ""), ("delta", "doc_001", "a")]),
        (FINISHED, [("end", "doc_001", "a", "\n"), DONE]),
    ],
    "white space inside code is code": [
        (TextDelta("```py\nx "), [("start", "doc_001", "code_block", "```py\n"), ("delta", "doc_001", "x ")]),
        (TextDelta(" "), [("delta", "doc_001", " ")]),
        (FINISHED, [("end", "doc_001", "x  ", ""), DONE]),
    ],
    "code in a list item is dedented, and its source is kept": [
        (TextDelta("- a\n"), [("start", "doc_001", "text", ""), ("delta", "doc_001", "- a")]),
        (
            TextDelta("  ```py\n  x\n  ```\n"),
            [
                ("end", "doc_001", "- a", "\n"),
                ("start", "doc_002", "code_block", "  ```py\n"),
                ("delta", "doc_002", "x", "  x"),
                ("end", "doc_002", "x", "\n  ```"),
            ],
        ),
        (FINISHED, [("done", "completed", "\n")]),
    ],
    "a tool ends the text, and the text after it is Markdown of its own": [
        (TextDelta("```py\nx"), [("start", "doc_001", "code_block", "```py\n"), ("delta", "doc_001", "x")]),
        (
            starts("c"),
            [("end", "doc_001", "x", ""), ("start", "doc_002", "tool_call", ""), ("call", "doc_002", "grep", "c")],
        ),
        (TextDelta("y\n"), [("start", "doc_003", "text", ""), ("delta", "doc_003", "y")]),
        (ends("c"), [("result", "doc_002", "success", None), ("end", "doc_002", None, "")]),
        (TextDelta("z"), [("delta", "doc_003", "\nz")]),
        (FINISHED, [("end", "doc_003", "y\nz", ""), DONE]),
    ],
    "a fence that a tool cut off is over": [
        (TextDelta("```py\nx"), [("start", "doc_001", "code_block", "```py\n"), ("delta", "doc_001", "x")]),
        (starts("c", SHELL), [("end", "doc_001", "x", ""), ("start", "doc_002", "terminal_command", "")]),
        (TextDelta("```js\ny"), [("start", "doc_003", "code_block", "```js\n"), ("delta", "doc_003", "y")]),
    ],
    "what may become a fence is said when a tool comes": [
        (TextDelta("``"), []),
        (
            starts("c", SHELL),
            [
                ("start", "doc_001", "text", ""),
                ("delta", "doc_001", "``"),
                ("end", "doc_001", "``", ""),
                ("start", "doc_002", "terminal_command", ""),
            ],
        ),
    ],
    "thinking is told beside the documents, and ends the text": [
        (TextDelta("a"), [("start", "doc_001", "text", ""), ("delta", "doc_001", "a")]),
        (ThinkingDelta(""), []),
        (ThinkingDelta("h"), [("end", "doc_001", "a", ""), ("opens", "h")]),
        (ThinkingDelta("m"), [("thinks", "m")]),
        (ThinkingDelta(""), []),
        (ThinkingEnded(), []),
        (ThinkingEnded(), []),
        (ThinkingDelta("n"), [("opens", "n")]),
        (TextDelta("b"), [("start", "doc_002", "text", ""), ("delta", "doc_002", "b")]),
        (ThinkingDelta("o"), [("end", "doc_002", "b", ""), ("opens", "o")]),
        (starts("c", SHELL), [("start", "doc_003", "terminal_command", "")]),
        (ThinkingDelta("p"), [("opens", "p")]),
        (ThinkingDelta("q"), [("thinks", "q")]),
    ],
    "white space before a thought is no indentation of the text after it": [
        (TextDelta(" "), []),
        (ThinkingDelta("h"), [("opens", "h")]),
        (TextDelta("a"), [("start", "doc_001", "text", " "), ("delta", "doc_001", "a")]),
    ],
    "arguments that only the end has are told then": [
        (starts("c"), [("start", "doc_001", "tool_call", ""), ("call", "doc_001", "grep", "c")]),
        (
            ends("c", grep({"p": 1})),
            [("arguments", "doc_001", {"p": 1}), ("result", "doc_001", "success", None), ("end", "doc_001", None, "")],
        ),
    ],
    "what a start has said stands": [
        (
            starts("c", grep({"p": 1})),
            [
                ("start", "doc_001", "tool_call", ""),
                ("call", "doc_001", "grep", "c"),
                ("arguments", "doc_001", {"p": 1}),
            ],
        ),
        (ends("c", grep({"p": 2})), [("result", "doc_001", "success", None), ("end", "doc_001", None, "")]),
    ],
    "a call starts once and ends once": [
        (starts("c", SHELL), [("start", "doc_001", "terminal_command", "")]),
        (starts("c", SHELL), []),
        (ends("c", SHELL), [("end", "doc_001", None, "")]),
        (ends("c", SHELL), []),
        (starts("c", SHELL), []),
    ],
    "an edit's content comes with its end": [
        (
            starts("c", FileEdit(tool="edit_file", path="a.py", operation="edit")),
            [("start", "doc_001", "file_edit", "")],
        ),
        (
            ends("c", FileEdit(tool="edit_file", path="a.py", operation="edit", content="x\n")),
            [("delta", "doc_001", "x\n", ""), ("end", "doc_001", "x\n", "")],
        ),
    ],
    "a call of the caller's is announced, waited for, and ends with what the caller's tool gave": [
        (
            asks("k", {"p": 1}),
            [
                ("start", "doc_001", "tool_call", ""),
                ("call", "doc_001", "look", "k"),
                ("arguments", "doc_001", {"p": 1}),
            ],
        ),
        (awaits("k"), [("pause", ["k"], "")]),
        (answers("k"), [("result", "doc_001", "success", "seen"), ("end", "doc_001", None, "")]),
        (TextDelta("So"), [("start", "doc_002", "text", ""), ("delta", "doc_002", "So")]),
        (FINISHED, [("end", "doc_002", "So", ""), DONE]),
    ],
    "a call of the caller's is asked for once and answered once": [
        (asks("k"), [("start", "doc_001", "tool_call", ""), ("call", "doc_001", "look", "k")]),
        (asks("k"), []),
        (answers("k"), [("result", "doc_001", "success", "seen"), ("end", "doc_001", None, "")]),
        (answers("k"), []),
        (asks("k"), []),
        (awaits("k"), [("pause", [], "")]),
    ],
    "a result that nobody asked for says nothing": [(answers("k"), [])],
    "a pause names what is waited for, in the order in which it was asked, and nothing else": [
        (asks("k"), [("start", "doc_001", "tool_call", ""), ("call", "doc_001", "look", "k")]),
        (asks("l"), [("start", "doc_002", "tool_call", ""), ("call", "doc_002", "look", "l")]),
        (asks("m"), [("start", "doc_003", "tool_call", ""), ("call", "doc_003", "look", "m")]),
        (starts("c", SHELL), [("start", "doc_004", "terminal_command", "")]),
        (awaits("m", "k", "c", "z"), [("pause", ["k", "m"], "")]),
        (answers("k"), [("result", "doc_001", "success", "seen"), ("end", "doc_001", None, "")]),
        (awaits("m", "l"), [("pause", ["l", "m"], "")]),
    ],
    "a pause ends the text, and says the white space behind it": [
        (TextDelta("a\n"), [("start", "doc_001", "text", ""), ("delta", "doc_001", "a")]),
        (awaits(), [("end", "doc_001", "a", "\n"), ("pause", [], "")]),
        (TextDelta("\n"), []),
        (awaits(), [("pause", [], "\n")]),
        (TextDelta("b"), [("start", "doc_002", "text", ""), ("delta", "doc_002", "b")]),
    ],
    "a pause ends a thought": [
        (ThinkingDelta("h"), [("opens", "h")]),
        (awaits(), [("pause", [], "")]),
        (ThinkingDelta("m"), [("opens", "m")]),
    ],
    "a tool of the caller's that failed is followed by an error": [
        (asks("k"), [("start", "doc_001", "tool_call", ""), ("call", "doc_001", "look", "k")]),
        (
            answers("k", "No.", is_error=True),
            [
                ("result", "doc_001", "error", "No."),
                ("end", "doc_001", None, ""),
                ("start", "doc_002", "error", ""),
                ("delta", "doc_002", "No.", ""),
                ("end", "doc_002", "No.", ""),
            ],
        ),
    ],
    "a tool that failed is followed by an error, whatever is being said": [
        (starts("c", SHELL), [("start", "doc_001", "terminal_command", "")]),
        (TextDelta("a\n"), [("start", "doc_002", "text", ""), ("delta", "doc_002", "a")]),
        (
            ends("c", SHELL, FAILED),
            [
                ("end", "doc_001", None, ""),
                ("end", "doc_002", "a", "\n"),
                ("start", "doc_003", "error", ""),
                ("delta", "doc_003", "It broke.", ""),
                ("end", "doc_003", "It broke.", ""),
            ],
        ),
    ],
    "a tool that ran out of time is followed by an error": [
        (
            ends("c", SHELL, Outcome(state="timed_out")),
            [
                ("start", "doc_001", "terminal_command", ""),
                ("end", "doc_001", None, ""),
                ("start", "doc_002", "error", ""),
                ("end", "doc_002", "", ""),
            ],
        )
    ],
    "the end of the run ends all that is open": [
        (starts("a", SHELL), [("start", "doc_001", "terminal_command", "")]),
        (starts("b", grep()), [("start", "doc_002", "tool_call", ""), ("call", "doc_002", "grep", "b")]),
        (TextDelta("x\n"), [("start", "doc_003", "text", ""), ("delta", "doc_003", "x")]),
        (
            FINISHED,
            [
                ("end", "doc_003", "x", "\n"),
                ("end", "doc_001", None, ""),
                ("result", "doc_002", "error", INTERRUPTED.message),
                ("end", "doc_002", None, ""),
                DONE,
            ],
        ),
    ],
    "a failure ends all that is open and is told in a document": [
        (TextDelta("x"), [("start", "doc_001", "text", ""), ("delta", "doc_001", "x")]),
        (
            RunFailed(failure=AgentCrashed("It crashed.").failure()),
            [
                ("end", "doc_001", "x", ""),
                ("start", "doc_002", "error", ""),
                ("delta", "doc_002", "It crashed.", ""),
                ("end", "doc_002", "It crashed.", ""),
                ("done", "error", ""),
            ],
        ),
    ],
    "nothing is said after the end": [
        (TextDelta("x"), [("start", "doc_001", "text", ""), ("delta", "doc_001", "x")]),
        (FINISHED, [("end", "doc_001", "x", ""), DONE]),
        (TextDelta("y"), []),
        (TextDelta(""), []),
        (ThinkingDelta("y"), []),
        (ThinkingDelta("y"), []),
        (starts("c"), []),
        (ends("c"), []),
        (FINISHED, []),
        (RunFailed(failure=AgentCrashed("It crashed.").failure()), []),
    ],
    "what makes no document is not told": [
        (RunStarted("s", "Auto"), []),
        (PromptEchoed("Hi"), []),
        (Notice("retrying", 1), []),
        (Unrecognized("?"), []),
        (FINISHED, [DONE]),
    ],
}

WITH_THINKING: dict[str, list[Step]] = {
    "thinking is a document of its own": [
        (ThinkingDelta(" h"), [("start", "doc_001", "thinking", ""), ("delta", "doc_001", "h", "")]),
        (ThinkingDelta("m "), [("delta", "doc_001", "m ", "")]),
        (ThinkingEnded(), [("end", "doc_001", "hm ", "")]),
        (TextDelta("a"), [("start", "doc_002", "text", ""), ("delta", "doc_002", "a")]),
    ],
    "text ends thinking, and thinking ends text": [
        (ThinkingDelta("h"), [("start", "doc_001", "thinking", ""), ("delta", "doc_001", "h", "")]),
        (TextDelta("a\n"), [("end", "doc_001", "h", ""), ("start", "doc_002", "text", ""), ("delta", "doc_002", "a")]),
        (
            ThinkingDelta("m"),
            [("end", "doc_002", "a", "\n"), ("start", "doc_003", "thinking", ""), ("delta", "doc_003", "m", "")],
        ),
        (FINISHED, [("end", "doc_003", "m", ""), DONE]),
    ],
    "a thought of white space is no document": [
        (ThinkingDelta(" \n"), []),
        (ThinkingEnded(), []),
        (ThinkingDelta(" \n"), []),
        (ThinkingDelta("m"), [("start", "doc_001", "thinking", ""), ("delta", "doc_001", "m", "")]),
    ],
    "white space of the text that waits is no thought": [
        (TextDelta("a"), [("start", "doc_001", "text", ""), ("delta", "doc_001", "a")]),
        (ThinkingDelta(" "), [("end", "doc_001", "a", "")]),
        (TextDelta("b"), [("start", "doc_002", "text", ""), ("delta", "doc_002", "b")]),
    ],
}


@pytest.mark.parametrize("steps", RUNS.values(), ids=RUNS)
def test_readers_are_sent_events_at_once(steps: list[Step]) -> None:
    assembler = Assembler(RUN)
    for event, expected in steps:
        assert [summary(out) for out in assembler.push(event)] == expected, event


@pytest.mark.parametrize("steps", WITH_THINKING.values(), ids=WITH_THINKING)
def test_readers_who_ask_for_thinking_are_sent_it(steps: list[Step]) -> None:
    assembler = Assembler(THINKING)
    for event, expected in steps:
        assert [summary(out) for out in assembler.push(event)] == expected, event


def test_events_that_end_without_an_end_have_failed() -> None:
    assembler = Assembler(RUN)
    assembler.push(TextDelta("x"))
    *_, error, done = assembler.flush()
    assert isinstance(error, DocumentEnded)
    assert isinstance(error.document, ErrorDocument)
    assert error.document.metadata.error_code == "AGENT_CRASHED"
    assert isinstance(done, Done)
    assert done.failure is not None
    assert assembler.flush() == []


def test_a_finished_run_that_is_flushed_stays_finished() -> None:
    assembler = Assembler(RUN)
    assembler.push(FINISHED)
    assert assembler.flush() == []


# --- fences -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "purpose"), [("agent", "new_code"), ("debug", "new_code"), ("plan", "suggestion"), ("ask", "example")]
)
def test_the_mode_tells_what_a_code_block_is_for(mode: Mode, purpose: Purpose) -> None:
    run = RunInfo(id="chat_1", created="", mode=mode)
    start, _, end, _ = assemble([TextDelta("```py\nx\n```"), FINISHED], run)
    assert isinstance(start, DocumentStarted)
    assert start.metadata == KnownMetadata(language="py", purpose=purpose)
    assert isinstance(end, DocumentEnded)
    assert end.document.metadata == CodeBlockMetadata(language="py", purpose=purpose)
    assert envelope([FINISHED], run).mode == mode


def test_a_reference_tells_its_lines_and_the_language_of_its_path() -> None:
    start, _, end, _ = assemble([TextDelta("```12:14:src/main.py\nx\n```"), FINISHED])
    assert isinstance(start, DocumentStarted)
    assert start.metadata == KnownMetadata(file_path="src/main.py", start_line=12, end_line=14, language="python")
    assert isinstance(end, DocumentEnded)
    assert end.document.metadata == CodeReferenceMetadata(
        file_path="src/main.py", start_line=12, end_line=14, language="python"
    )


# --- tools ------------------------------------------------------------------------------------------


def call_ids(*agents: str) -> list[str]:
    events: list[AgentEvent] = [starts(id) for id in agents]
    return [event.tool_call_id for event in assemble(events) if isinstance(event, ToolCallStarted)]


def test_an_id_that_readers_can_use_stays_and_another_becomes_one() -> None:
    assert call_ids("toolu_1", "call_x\nfc_y", "", "x" * 65, "x" * 64) == [
        "toolu_1", "call_002", "call_003", "call_004", "x" * 64,
    ]  # fmt: skip


def test_an_id_of_ours_is_never_one_of_the_agents() -> None:
    assert call_ids("call_002", "a\nb", "call_003", "c\nd") == ["call_002", "call_003", "call_004", "call_005"]


def test_the_agents_own_id_is_included_where_it_is_another() -> None:
    (document,) = documents([ends("a\nb")])
    assert isinstance(document, ToolCallDocument)
    assert (document.metadata.tool_call_id, document.metadata.agent_call_id) == ("call_001", "a\nb")


def test_an_end_that_is_another_tools_does_not_change_what_started() -> None:
    (document,) = documents([starts("c", SHELL), ends("c", grep({"p": 1}, data="x"))])
    assert isinstance(document, TerminalCommandDocument)
    assert document.metadata.command == "ls"


def test_an_end_adds_what_its_start_could_not_know() -> None:
    ended = Command(tool="run_terminal_cmd", command="ls", exit_code=0, output="a\n")
    (document,) = documents([starts("c", SHELL), ends("c", ended, Outcome(duration_ms=7))])
    assert isinstance(document, TerminalCommandDocument)
    assert (document.metadata.exit_code, document.metadata.output, document.metadata.duration_ms) == (0, "a\n", 7)


def test_another_call_may_have_the_id_of_one_that_has_ended() -> None:
    one, two = grep({"pattern": "a"}), grep({"pattern": "b"})
    shells = [SHELL, msgspec.structs.replace(SHELL, command="make")]
    events: list[AgentEvent] = [starts("c", one), ends("c", one), starts("c", two), ends("c", two)]
    events += [event for shell in shells for event in (starts("d", shell), CommandOutput("d", "x"), ends("d", shell))]
    found = documents(events)
    arguments = [document.metadata.arguments for document in found if isinstance(document, ToolCallDocument)]
    assert arguments == [{"pattern": "a"}, {"pattern": "b"}]
    commands = [document.metadata.command for document in found if isinstance(document, TerminalCommandDocument)]
    assert commands == [SHELL.command, "make"]


def test_a_call_that_is_repeated_is_shown_once() -> None:
    again: list[AgentEvent] = [starts("c", SHELL), CommandOutput("c", "x"), ends("c", SHELL)]
    late: list[AgentEvent] = [ends("d"), starts("d", grep({"pattern": "late"})), ends("d")]
    assert len(documents([*again, *again, *late])) == 2


def test_what_calls_have_written_is_not_kept() -> None:
    """A run may be long, and a call contain a whole file."""
    assembler = Assembler(RUN)
    assembler.push(starts("c", grep({"content": "x" * 100_000})))
    assembler.push(ends("c"))
    assert len(pickle.dumps(assembler)) < 50_000


def test_a_call_that_never_ended_was_interrupted() -> None:
    (document,) = documents([starts("c", SHELL), FINISHED])
    assert isinstance(document, TerminalCommandDocument)
    assert document.metadata.state == "interrupted"


# --- tools of the caller's --------------------------------------------------------------------------


def pauses(events: list[AgentEvent]) -> list[Envelope]:
    return [event.envelope for event in assemble(events) if isinstance(event, Paused)]


def test_a_call_of_the_callers_says_whose_it_is_at_once_and_at_its_end() -> None:
    start, *_ = assemble([asks("k")])
    assert isinstance(start, DocumentStarted)
    assert start.metadata == KnownMetadata(state="waiting", ran_by="caller")
    (document,) = documents([asks("k"), answers("k")])
    assert isinstance(document, ToolCallDocument)
    reply = document.metadata
    assert (reply.state, reply.ran_by, reply.duration_ms, reply.result.data) == (UNSET, "caller", 7, "seen")


def test_a_tool_of_the_agents_may_wait_for_an_answer_too() -> None:
    start, *_ = assemble([ToolStarted("c", SHELL, waits=True)])
    assert isinstance(start, DocumentStarted)
    assert start.metadata == KnownMetadata(command="ls", state="waiting")
    (paused,) = pauses([ToolStarted("c", SHELL, waits=True), ToolStarted("d", grep({"p": 1}), waits=True), awaits("c")])
    assert paused.metadata.waiting_for == [
        WaitingCall(tool_call_id="c", tool_name="run_terminal_cmd", arguments={}, document_id="doc_001")
    ]
    (document,) = documents([ToolStarted("c", grep(), waits=True), ends("c")])
    assert isinstance(document, ToolCallDocument)
    assert (document.metadata.state, document.metadata.ran_by) == (UNSET, UNSET)


def test_usage_is_counted_up_to_each_pause_with_what_the_callers_tools_gave() -> None:
    asked, said, given = "A longer prompt.", "Two words", "What the tool gave."
    first, second = pauses(
        [PromptEchoed(asked), TextDelta(said), asks("k"), awaits("k"), answers("k", given), TextDelta(said), awaits()]
    )
    for usage in (first.usage, second.usage):
        assert usage.estimated is True
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert first.usage.prompt_tokens == estimate_tokens(asked)
    assert second.usage.prompt_tokens == estimate_tokens(asked) + estimate_tokens(given)
    assert first.usage.completion_tokens == estimate_tokens(said)
    written = second.usage.completion_tokens - 2 * estimate_tokens(said)
    assert 0 < written < 20  # the call's arguments


def test_the_prompt_is_what_was_asked_first_however_often_the_agent_is_started() -> None:
    events: list[AgentEvent] = [PromptEchoed("A longer prompt."), PromptEchoed("x"), FINISHED]
    assert envelope(events).usage.prompt_tokens == estimate_tokens("A longer prompt.")
    assembler = Assembler(RUN)
    for event in events:
        assembler.push(event)
    assert assembler.prompt == "A longer prompt."


@pytest.mark.parametrize(
    ("include", "payload", "raw"),
    [
        (frozenset({"raw"}), {"shellToolCall": {}}, {"shellToolCall": {}}),
        (frozenset({"raw"}), None, UNSET),
        (frozenset({"thinking"}), {"shellToolCall": {}}, UNSET),
    ],
)
def test_the_agents_payload_is_sent_to_those_who_ask(include: frozenset[Any], payload: Any, raw: Any) -> None:
    run = RunInfo(id="chat_1", created="", include=include)
    (document,) = documents([ToolEnded("c", SHELL, Outcome(), payload=payload)], run)
    assert isinstance(document, TerminalCommandDocument)
    assert document.metadata.raw == raw


@pytest.mark.parametrize(
    ("include", "counts", "context"),
    [
        ({"context"}, TokenCounts(prompt=900, completion=40), 940),
        ({"context"}, TokenCounts(prompt=-1, completion=40), UNSET),
        ({"context"}, None, UNSET),  # an estimate from the text would leave out what the agent adds
        ({"raw"}, TokenCounts(prompt=900, completion=40), UNSET),
    ],
)
def test_the_size_of_the_context_is_sent_to_those_who_ask_if_the_agent_reports_it(
    include: set[Any], counts: TokenCounts | None, context: Any
) -> None:
    run = RunInfo(id="chat_1", created="", include=include)
    assert envelope([TextDelta("a"), RunFinished(usage=counts)], run).metadata.context_tokens == context


# --- the envelope -----------------------------------------------------------------------------------


def test_the_envelope_tells_what_was_handed_in() -> None:
    run = RunInfo(id="chat_1", created="then", mode="ask", model="gpt", conversation_id="conv_9")
    assert envelope([RunStarted("s", "Auto"), RunFinished(duration_ms=7)], run) == Envelope(
        id="chat_1",
        conversation_id="conv_9",
        model="gpt",
        mode="ask",
        created="then",
        status="completed",
        usage=Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0, estimated=True),
        metadata=ResponseMetadata(duration_ms=7, tool_call_count=0, turn_count=0),
    )


@pytest.mark.parametrize(
    ("events", "model", "conversation"),
    [
        ([RunStarted("s", "Auto")], "Auto", "conv_s"),
        ([RunStarted("s", "")], "unknown", "conv_s"),
        ([], "unknown", "conv_1"),
    ],
)
def test_model_and_conversation_are_the_agents_where_none_was_handed_in(
    events: list[AgentEvent], model: str, conversation: str
) -> None:
    found = envelope([*events, FINISHED])
    assert (found.model, found.conversation_id) == (model, conversation)


def test_the_model_is_known_as_soon_as_the_agent_reports_it() -> None:
    assembler = Assembler(RUN)
    assert assembler.model == "unknown"
    assembler.push(RunStarted("s", "Auto"))
    assert assembler.model == "Auto"


@pytest.mark.parametrize(("count", "expected"), [(0, UNSET), (2, 2)])
def test_what_nobody_knows_is_counted(count: int, expected: object) -> None:
    events: list[AgentEvent] = [Unrecognized("?")] * count
    assert envelope([*events, FINISHED]).metadata.unrecognized == expected


@pytest.mark.parametrize(("differs", "expected"), [(False, UNSET), (True, True)])
def test_a_result_that_differs_is_marked(differs: bool, expected: object) -> None:
    assert envelope([RunFinished(text_differs=differs)]).metadata.result_differs == expected


@pytest.mark.parametrize(("is_warm", "expected"), [(False, UNSET), (True, True)])
def test_an_agent_that_was_ready_is_mentioned(is_warm: bool, expected: object) -> None:
    events: list[AgentEvent] = [RunStarted("s", "Auto", is_warm=is_warm), FINISHED]
    assert envelope(events).metadata.warm == expected


def test_the_agents_own_figures_are_the_usage() -> None:
    usage = envelope([TextDelta("a"), RunFinished(usage=TokenCounts(prompt=10, completion=5, cached=3))]).usage
    assert usage == Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15, cached_tokens=3)
    usage = envelope([RunFinished(usage=TokenCounts(prompt=10, completion=5))]).usage
    assert usage == Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15)


def test_usage_has_the_cost_of_its_model() -> None:
    prices = {"opus": Price(input=1, output=2)}
    finished = RunFinished(usage=TokenCounts(prompt=1_000_000, completion=500_000))
    for model, cost in (("opus", 2.0), ("auto", UNSET)):
        made = Assembler(RunInfo(id="chat_1", created="", model=model, prices=prices)).push(finished)
        (done,) = (event for event in made if isinstance(event, Done))
        assert done.envelope.usage.cost == cost


@pytest.mark.parametrize(("prompt", "completion", "cached"), [(-1, 5, 0), (5, -1, 0), (5, 5, -1)])
def test_figures_below_zero_are_none(prompt: int, completion: int, cached: int) -> None:
    counts = TokenCounts(prompt=prompt, completion=completion, cached=cached)
    usage = envelope([TextDelta("some words"), RunFinished(usage=counts)]).usage
    assert usage.estimated is True
    assert min(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) >= 0


SAID: list[AgentEvent] = [
    TextDelta("Two words"),
    ThinkingDelta(" \n\n hm"),
    ThinkingDelta(" so"),
    TextDelta("```py\nx\n```"),
]


@pytest.mark.parametrize("run", [RUN, THINKING], ids=["without thinking", "with thinking"])
def test_usage_is_estimated_when_the_agent_reports_none_whatever_is_included(run: RunInfo) -> None:
    usage = envelope([PromptEchoed("A longer prompt."), *SAID, FINISHED], run).usage
    without = envelope([PromptEchoed("A longer prompt."), *SAID, FINISHED], RUN).usage
    assert usage == without
    assert usage.prompt_tokens == estimate_tokens("A longer prompt.")
    assert usage.completion_tokens >= estimate_tokens("Two words hm so x")
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.estimated is True


TURNS: dict[str, tuple[list[AgentEvent], int]] = {
    "nothing": ([], 0),
    "text": ([TextDelta("a"), TextDelta("b")], 1),
    "white space": ([TextDelta(" ")], 0),
    "thinking and text": ([ThinkingDelta("a"), TextDelta("b")], 1),
    "text, a call, text": ([TextDelta("a"), starts("1"), ends("1"), TextDelta("b")], 2),
    "a call and its end": ([starts("1"), ends("1")], 1),
    "a thought, a tool that fails, a thought": (
        [starts("1"), ThinkingDelta("a"), ends("1", outcome=FAILED), ThinkingDelta("b")],
        2,
    ),
    "two calls at once": ([starts("1"), starts("2"), ends("1"), ends("2"), TextDelta("b")], 2),
    "two calls after each other": ([starts("1"), ends("1"), starts("2"), ends("2")], 2),
    "two calls after each other, of one turn": (
        [starts("1", model_call="m"), ends("1"), starts("2", model_call="m"), ends("2"), TextDelta("b")],
        2,
    ),
    "a call that a query told of, then another of the same turn": (
        [starts("1"), starts("1", model_call="m"), ends("1"), starts("2", model_call="m"), ends("2"), TextDelta("b")],
        2,
    ),
    "a call that a query told of after one of the same turn": (
        [starts("1", model_call="m"), ends("1"), starts("2"), starts("2", model_call="m"), ends("2")],
        1,
    ),
    "a call that a query told of after one of another turn": (
        [starts("1", model_call="m"), ends("1"), starts("2"), starts("2", model_call="n"), ends("2")],
        2,
    ),
    "a call that nobody named": ([starts("1", model_call="m"), ends("1"), starts("2")], 2),
    "calls of two turns": (
        [starts("1", model_call="m"), ends("1"), starts("2", model_call="n"), ends("2"), ThinkingDelta("b")],
        3,
    ),
}


@pytest.mark.parametrize(("events", "count"), TURNS.values(), ids=TURNS)
def test_a_turn_is_what_the_model_says_up_to_the_results_it_is_given(events: list[AgentEvent], count: int) -> None:
    for run in (RUN, THINKING):
        assert envelope([*events, FINISHED], run).metadata.turn_count == count


def test_whoever_is_to_decide_on_a_plan_sees_it_at_once_and_once() -> None:
    plan = Plan(tool="create_plan", title="Move", overview="", markdown="# Move", todos=[])
    assembler = Assembler(RUN)
    begun = assembler.push(ToolStarted("p", plan, waits=True))
    assert [event.text for event in begun if isinstance(event, ContentDelta)] == ["# Move"]
    (started,) = (event for event in begun if isinstance(event, DocumentStarted))
    assert started.metadata is not None
    assert started.metadata.state == "waiting"
    (paused,) = assembler.push(CallerAwaited(("p",)))
    assert isinstance(paused, Paused)
    assert [call.document_id for call in paused.envelope.metadata.waiting_for or []] == ["doc_001"]
    (ended,) = assembler.push(ToolEnded("p", plan, Outcome()))
    assert isinstance(ended, DocumentEnded)
    assert ended.document.content == "# Move"


def test_a_run_that_is_resumed_ends_as_if_it_had_never_stopped() -> None:
    so_far: list[AgentEvent] = [
        PromptEchoed("Do it."),
        ToolStarted("c", OtherTool(tool="grep", arguments={"p": 1})),
        TextDelta("Well"),
    ]
    whole = Assembler(RUN)
    for event in so_far:
        whole.push(event)
    turns = Turns()
    turns.tool(None)
    turns.output()
    resumed = Assembler(RUN)
    resumed.resume(
        sequence=2,
        prose=OpenProse("doc_002", 2, TextMetadata(), ["Well"]),
        tools=[OpenTool("doc_001", 1, "c", OtherTool(tool="grep", arguments={"p": 1}))],
        tool_calls=1,
        refused=Refusals(),
        turns=turns,
        model_output=["Well"],
        prompt="Do it.",
    )
    failed = RunFailed(failure=AgentCrashed().failure())
    assert resumed.push(failed) == whole.push(failed)
    assert resumed.push(FINISHED) == []


def test_calls_that_were_not_run_are_counted_and_plans_are_not() -> None:
    rejected = Outcome(state="rejected", code="REJECTED", message="no")
    plan = Plan(tool="create_plan", title="", overview="", markdown="", todos=[])
    command = Command(tool="run_terminal_cmd", command="ls")
    calls = [ends("1", command, rejected), ends("2", outcome=rejected), ends("3", plan, rejected), ends("4")]
    assert envelope([*calls, FINISHED]).metadata.refused_count == 2
    assert envelope([*calls[2:], FINISHED]).metadata.refused_count is UNSET


def test_what_a_subagent_does_names_its_document() -> None:
    child = ToolStarted("2", Command(tool="run_terminal_cmd", command="ls"), parent="1")
    events = assemble([starts("1"), child, starts("3"), ends("1"), ToolStarted("4", grep(), parent="?"), FINISHED])
    known = [event.metadata and event.metadata.parent_id for event in events if isinstance(event, DocumentStarted)]
    assert known == [None, "doc_001", None, None]
    ended = {event.document.id: event.document.metadata for event in events if isinstance(event, DocumentEnded)}
    assert {id: metadata.parent_id for id, metadata in ended.items() if isinstance(metadata, ToolTrace)} == {
        "doc_001": UNSET, "doc_002": "doc_001", "doc_003": UNSET, "doc_004": UNSET,
    }  # fmt: skip


def test_a_run_goes_on_with_another_agent_after_a_note() -> None:
    assembler = Assembler(RUN)
    begun = [*assembler.push(TextDelta("I began")), *assembler.push(starts("t1"))]
    noted = assembler.interrupt("(Another one continues.)")
    rest = [*assembler.push(TextDelta("Done.")), *assembler.push(RunFinished(duration_ms=1))]
    ended = [event.document for event in [*begun, *noted, *rest] if isinstance(event, DocumentEnded)]
    assert [document.content for document in ended] == ["I began", None, "(Another one continues.)", "Done."]
    assert [document.sequence for document in ended] == [1, 2, 3, 4]


def test_a_run_so_far_has_an_envelope() -> None:
    envelope = Assembler(RUN).envelope()
    assert (envelope.id, envelope.status, envelope.metadata.waiting_for) == (RUN.id, "streaming", UNSET)


# --- live output --------------------------------------------------------------------------------------


def test_what_a_running_command_writes_is_shown_and_its_end_has_all_of_it() -> None:
    end = ToolEnded("c", msgspec.structs.replace(SHELL, output="a\nb\n", exit_code=0), Outcome())
    events = assemble([starts("c", SHELL), CommandOutput("c", "a\n"), CommandOutput("c", "b\n"), end, FINISHED])
    assert [summary(event)[:3] for event in events] == [
        ("start", "doc_001", "terminal_command"),
        ("output", "doc_001", "a\n"),
        ("output", "doc_001", "b\n"),
        ("end", "doc_001", None),
        ("done", "completed", ""),
    ]
    (document,) = [event.document for event in events if isinstance(event, DocumentEnded)]
    assert isinstance(document.metadata, TerminalCommandMetadata)
    assert document.metadata.output == "a\nb\n"


@pytest.mark.parametrize(
    "event", [CommandOutput("other", "x"), CommandOutput("g", "x"), CommandOutput("c", "x"), CommandOutput("d", "")]
)
def test_output_of_anything_but_a_running_command_is_left_out(event: CommandOutput) -> None:
    """Another call, another tool, a command that has ended, nothing."""
    assembler = Assembler(RUN)
    for known in (starts("g"), starts("c", SHELL), ToolEnded("c", SHELL, Outcome()), starts("d", SHELL)):
        assembler.push(known)
    assert assembler.push(event) == []


@pytest.mark.parametrize("ends", [[], [ToolEnded("c", SHELL, Outcome(state="timed_out", message="Too long."))]])
def test_a_command_that_ends_without_its_output_keeps_what_was_shown(ends: list[AgentEvent]) -> None:
    document, *_ = documents([starts("c", SHELL), CommandOutput("c", "so far"), *ends, FINISHED])
    assert isinstance(document.metadata, TerminalCommandMetadata)
    assert document.metadata.output == "so far"


def test_live_output_is_bounded_for_a_command_and_for_a_run() -> None:
    def shown(*events: AgentEvent) -> int:
        return sum(len(event.text) for event in assemble([*events]) if isinstance(event, TerminalOutput))

    much = "x" * 50_000
    assert shown(starts("c", SHELL), CommandOutput("c", much), CommandOutput("c", much)) == 65_536
    commands = [(starts(str(number), SHELL), CommandOutput(str(number), much * 2)) for number in range(6)]
    assert shown(*(event for pair in commands for event in pair)) == 4 * 65_536


def test_the_tokens_of_a_session_that_is_resumed_count_as_read() -> None:
    def read(known: int) -> int:
        assembler = Assembler(RUN)
        assembler.know(known)
        events = [*assembler.push(TextDelta("Hi")), *assembler.push(RunFailed(failure=AgentCrashed().failure()))]
        done = events[-1]
        assert isinstance(done, Done)
        return reply_usage(done).prompt_tokens

    assert read(1000) == read(0) + 1000


@pytest.mark.parametrize(("reported", "known"), [(1200, 1200), (0, UNSET), (-5, UNSET), (None, UNSET)])
def test_a_document_of_thinking_has_its_duration_if_it_is_known(reported: int | None, known: object) -> None:
    assembler = Assembler(RunInfo(id="chat_1", created="", include=frozenset({"thinking"})))
    assembler.push(ThinkingDelta("Hm"))
    (ended,) = assembler.push(ThinkingEnded(reported))
    assert isinstance(ended, DocumentEnded)
    assert isinstance(ended.document.metadata, ThinkingMetadata)
    assert ended.document.metadata.duration_ms is known or ended.document.metadata.duration_ms == known
    assert assembler.push(ThinkingEnded(7)) == []
