"""A run's events as session updates."""

from typing import Any

import msgspec
import pytest
from acp import schema
from hypothesis import given

from cursor_gateway import read_events
from cursor_gateway.acp_server.updates import RunUpdates, SessionTodos
from cursor_gateway.model import documents
from cursor_gateway.model.agent_events import AgentEvent
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
from cursor_gateway.model.requests import RunInfo
from tests.acp_server.editor import Update, checked, folded
from tests.laws.agent import Recording
from tests.laws.laws import assemble, read, response_of
from tests.laws.strategies import agent_events, examples, recordings, runs
from tests.scenarios.golden import Scenario, scenarios

QUESTION = documents.ClarificationQuestion(
    id="file", text="Which file?", options=[documents.ClarificationOption(id="a", label="notes.txt")]
)
ASKED = documents.ClarificationQuestion(id="p", text="May it?", options=[])
RULE = documents.PermissionRequest(subject="make", rules=["Shell(make)"])


def shown(*events: DocumentEvent) -> list[Update]:
    """Each checked against the official schema."""
    updates = RunUpdates("chat_1", "/project", SessionTodos())
    plain: list[Update] = [msgspec.to_builtins(update) for event in events for update in updates.push(event)]
    for update in plain:
        checked({"sessionId": "s", "update": update}, schema.SessionNotification)
    return plain


def whole(
    metadata: documents.Metadata, content: str | None = None, known: KnownMetadata | None = None, id: str = "doc_001"
) -> list[DocumentEvent]:
    """A document from start to end."""
    started = DocumentStarted(id=id, type=documents.document_type(metadata), sequence=1, metadata=known)
    grown = [ContentDelta(id=id, text=content)] if content else []
    return [started, *grown, DocumentEnded(documents.make_document(id, 1, content, metadata))]


def call_of(*events: DocumentEvent) -> dict[str, Any]:
    """The one that an editor shows in the end."""
    (call,) = folded(shown(*events)).values()
    assert call.pop("toolCallId") == "chat_1/doc_001"
    return call


def done(model: str, **metadata: Any) -> Done:
    usage = documents.Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    figures = documents.ResponseMetadata(duration_ms=1, tool_call_count=0, turn_count=1, **metadata)
    return Done(
        documents.Envelope(
            id="chat_1",
            conversation_id="conv_1",
            model=model,
            mode="agent",
            created="",
            status="completed",
            usage=usage,
            metadata=figures,
        )
    )


# --- the law: the chunks are the text ----------------------------------------------------------------


def assert_the_chunks_are_the_text(events: list[DocumentEvent]) -> None:
    updates = shown(*events)
    chunks = [update for update in updates if update["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(chunk["content"]["text"] for chunk in chunks) == response_of(events).text
    for call in folded(updates).values():  # every call has an end
        assert call["status"] in ("completed", "failed")


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_the_chunks_of_every_scenario_are_its_text(scenario: Scenario) -> None:
    assert_the_chunks_are_the_text(list(read_events(scenario.lines, scenario.run)))


@examples(100)
@given(recordings, runs)
def test_the_chunks_of_any_recording_are_its_text(recording: Recording, run: RunInfo) -> None:
    assert_the_chunks_are_the_text(read(recording.data, run))


@examples(100)
@given(agent_events, runs)
def test_the_chunks_of_any_events_are_their_text(events: list[AgentEvent], run: RunInfo) -> None:
    assert_the_chunks_are_the_text(assemble(events, run))


# --- text and thinking -------------------------------------------------------------------------------


def test_an_empty_line_is_between_two_documents() -> None:
    code = documents.CodeBlockMetadata(language="py", purpose="example")
    events = [*whole(documents.TextMetadata(), "One."), *whole(code, "x = 1", id="doc_002")]
    assert [update["content"]["text"] for update in shown(*events)] == ["One.", "\n\n```py\nx = 1\n```"]


def test_thinking_is_a_thought() -> None:
    started = DocumentStarted(id="doc_001", type="thinking", sequence=1)
    (thought, reasoning) = shown(started, ContentDelta(id="doc_001", text="Hm."), Reasoning("More."))
    assert (thought["sessionUpdate"], thought["content"]["text"]) == ("agent_thought_chunk", "Hm.")
    assert reasoning["content"]["text"] == "\n\nMore."


# --- tools -------------------------------------------------------------------------------------------


def test_a_tool_has_a_kind_a_title_and_the_file_that_it_reads() -> None:
    result = documents.ToolCallResult(status="success", data="alpha\n")
    metadata = documents.ToolCallMetadata(
        tool_name="read_file",
        tool_call_id="call_1",
        arguments={"target_file": "src/a.py"},
        result=result,
        duration_ms=1,
    )
    assert call_of(
        DocumentStarted(id="doc_001", type="tool_call", sequence=1),
        ToolCallStarted(id="doc_001", tool_name="read_file", tool_call_id="call_1"),
        ToolCallArguments(id="doc_001", arguments={"target_file": "/project/src/a.py"}),
        ToolCallEnded(id="doc_001", result=result),
        DocumentEnded(documents.make_document("doc_001", 1, None, metadata)),
    ) == {
        "title": "read_file: src/a.py",
        "kind": "read",
        "status": "completed",
        "locations": [{"path": "/project/src/a.py"}],
        "rawInput": {"target_file": "/project/src/a.py"},
        "content": [text("```\nalpha\n```")],
        "rawOutput": "alpha\n",
    }


@pytest.mark.parametrize(("data", "content"), [(None, None), ({"a": 1}, '```\n{"a":1}\n```')])
def test_any_result_of_an_unknown_tool_is_shown(data: Any, content: str | None) -> None:
    result = documents.ToolCallResult(status="error", data=data)
    metadata = documents.ToolCallMetadata(
        tool_name="deploy", tool_call_id="c", arguments={}, result=result, duration_ms=1
    )
    call = call_of(
        DocumentStarted(id="doc_001", type="tool_call", sequence=1),
        ToolCallStarted(id="doc_001", tool_name="deploy", tool_call_id="c"),
        ToolCallArguments(id="doc_001", arguments={"number": 7}),
        DocumentEnded(documents.make_document("doc_001", 1, None, metadata)),
    )
    assert (call["title"], call["kind"], call["status"]) == ("deploy", "other", "failed")
    assert call.get("content") == ([text(content)] if content else None)


def text(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def test_a_command_shows_its_output_while_it_runs_and_how_it_ended() -> None:
    metadata = documents.TerminalCommandMetadata(
        command="make", exit_code=2, output="one\ntwo\n", duration_ms=1, permissions=[], state="failed", reason="No."
    )
    known = KnownMetadata(command="make", working_directory="/project")
    started, ended = whole(metadata, known=known)
    outputs = [TerminalOutput("doc_001", "one\n"), TerminalOutput("doc_001", "two\n" * 2000)]
    first, second, third, last = shown(started, *outputs, ended)
    assert (first["kind"], first["title"], first["status"]) == ("execute", "make", "in_progress")
    assert first["rawInput"] == {"command": "make", "cwd": "/project"}
    assert second["content"] == [text("```\none\n```")]
    assert len(third["content"][0]["content"]["text"]) < 4_100
    assert last["status"] == "failed"
    assert last["content"] == [text("```\none\ntwo\n```"), text("No.")]
    assert last["rawOutput"] == {"exitCode": 2, "stdout": "one\ntwo\n", "stderr": ""}


def test_a_long_output_is_cut_and_cannot_end_its_block() -> None:
    metadata = documents.TerminalCommandMetadata(
        command="", exit_code=0, output="```\n" + "x" * 20_000, duration_ms=1, permissions=[]
    )
    call = call_of(*whole(metadata))
    content = call["content"][0]["content"]["text"]
    assert content.startswith("````\n```\n")
    assert content.endswith("… 10,004 characters more\n````")
    assert call["title"] == "A command"


# --- edits -------------------------------------------------------------------------------------------


def edited(metadata: documents.FileEditMetadata, content: str | None = None) -> dict[str, Any]:
    return call_of(*whole(metadata, content, KnownMetadata(file_path=metadata.file_path)))


def test_an_edit_is_a_diff_at_its_line() -> None:
    diff = documents.Diff(old_string="a\n", new_string="b\n", start_line=3, end_line=3)
    call = edited(
        documents.FileEditMetadata(file_path="src/a.py", operation="edit", language="python", diff=diff), "b\n"
    )
    assert call == {
        "title": "Edit src/a.py",
        "kind": "edit",
        "status": "completed",
        "content": [{"type": "diff", "path": "/project/src/a.py", "oldText": "a\n", "newText": "b\n"}],
        "locations": [{"path": "/project/src/a.py", "line": 3}],
    }


def test_a_new_file_has_no_old_text() -> None:
    call = edited(documents.FileEditMetadata(file_path="/project/b.py", operation="create", language="python"), "x\n")
    assert call["title"] == "Create b.py"
    assert call["content"] == [{"type": "diff", "path": "/project/b.py", "oldText": None, "newText": "x\n"}]


def test_a_file_is_deleted_renamed_or_not_changed() -> None:
    deleted = edited(documents.FileEditMetadata(file_path="b.py", operation="delete", language="python"))
    assert (deleted["kind"], deleted["title"]) == ("delete", "Delete b.py")
    renamed = edited(
        documents.FileEditMetadata(file_path="b.py", operation="rename", language="python", old_path="/project/a.py")
    )
    assert (renamed["kind"], renamed["title"]) == ("move", "Rename a.py to b.py")
    failed = call_of(
        *whole(documents.FileEditMetadata(file_path="b.py", operation="edit", language="python", state="rejected"))
    )
    assert (failed["status"], failed["title"]) == ("failed", "Edit b.py")


# --- plans and to-dos --------------------------------------------------------------------------------


TODOS = [documents.PlanTodo(id="1", content="Dump", status="pending", dependencies=[])]


def test_a_plan_is_a_call_with_its_text_and_its_steps() -> None:
    known = KnownMetadata(title="Move", todos=TODOS)
    metadata = documents.PlanMetadata(title="Move", overview="", todos=TODOS, accepted=True)
    updates = shown(*whole(metadata, "# Move", known))
    call = folded(updates)["chat_1/doc_001"]
    assert (call["title"], call["kind"], call["status"]) == ("Plan: Move", "think", "completed")
    assert call["content"] == [text("# Move")]
    plans = [update["entries"] for update in updates if update["sessionUpdate"] == "plan"]
    assert plans == [[{"content": "Dump", "status": "pending", "priority": "medium"}]] * 2


def test_a_rejected_plan_without_steps() -> None:
    metadata = documents.PlanMetadata(title="", overview="", todos=[], accepted=False)
    call = call_of(*whole(metadata))
    assert (call["title"], call["status"]) == ("Plan", "failed")


def test_to_dos_are_listed_in_full_and_cancelled_ones_are_left_out() -> None:
    first = documents.TodoUpdateMetadata(
        todos=[
            documents.TodoChange(id="1", status="pending", content="Dump"),
            documents.TodoChange(id="2", status="pending"),
        ]
    )
    second = documents.TodoUpdateMetadata(
        todos=[documents.TodoChange(id="1", status="completed"), documents.TodoChange(id="2", status="cancelled")],
        merge=True,
    )
    third = documents.TodoUpdateMetadata(todos=[documents.TodoChange(id="1", status="in_progress")], merge=False)
    entries = [update["entries"] for update in shown(*whole(first), *whole(second), *whole(third))]
    assert [[(one["content"], one["status"]) for one in listed] for listed in entries] == [
        [("Dump", "pending"), ("2", "pending")],
        [("Dump", "completed")],
        [("Dump", "in_progress")],
    ]


# --- questions and permissions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (documents.ClarificationAnswer(question_id="file", selected_option_ids=["a"]), "Which file? notes.txt"),
        (
            documents.ClarificationAnswer(question_id="file", selected_option_ids=["b"], text="Both."),
            "Which file? b, Both.",
        ),
        (None, "Which file? (no answer)"),
    ],
)
def test_a_question_and_its_answer(answer: documents.ClarificationAnswer | None, said: str) -> None:
    metadata = documents.ClarificationMetadata(questions=[QUESTION], answers=[answer] if answer else msgspec.UNSET)
    call = call_of(*whole(metadata, known=KnownMetadata(questions=[QUESTION])))
    assert (call["title"], call["kind"], call["status"]) == ("Which file?", "other", "completed")
    assert call["content"] == [text(said)]


def test_a_question_that_is_not_known_yet() -> None:
    assert call_of(*whole(documents.ClarificationMetadata(questions=[])))["title"] == "A question"


def permission(*chosen: str, id: str = "doc_001", **trace: Any) -> list[DocumentEvent]:
    answers = [documents.ClarificationAnswer(question_id="p", selected_option_ids=list(chosen))]
    metadata = documents.ClarificationMetadata(questions=[ASKED], answers=answers, permission=RULE, **trace)
    return whole(metadata, known=KnownMetadata(questions=[ASKED], permission=RULE), id=id)


COMMAND = documents.TerminalCommandMetadata(command="make", exit_code=0, output="", duration_ms=1, permissions=[])


def test_a_command_continues_the_call_that_asked_for_it() -> None:
    events = [*permission("once"), *whole(COMMAND, known=KnownMetadata(command="make"), id="doc_002")]
    updates = shown(*events)
    assert [update["status"] for update in updates] == ["pending", "in_progress", "completed"]
    assert list(folded(updates)) == ["chat_1/doc_001"]
    again = whole(COMMAND, known=KnownMetadata(command="make"), id="doc_003")
    assert list(folded(shown(*events, *again))) == ["chat_1/doc_001", "chat_1/doc_003"]


def test_a_command_that_is_asked_for_twice_leaves_no_call_open() -> None:
    command = whole(COMMAND, known=KnownMetadata(command="make"), id="doc_003")
    events = [*permission("deny"), *permission("once", id="doc_002"), *command]
    states = {id: call["status"] for id, call in folded(shown(*events)).items()}
    assert states == {"chat_1/doc_001": "failed", "chat_1/doc_002": "completed"}


def test_a_permission_for_another_tool_ends_before_its_call() -> None:
    rule = documents.PermissionRequest(subject="https://example.com", rules=["WebFetch(example.com)"])
    metadata = documents.ClarificationMetadata(questions=[ASKED], permission=rule)
    known = KnownMetadata(questions=[ASKED], permission=rule)
    assert call_of(*whole(metadata, known=known))["status"] == "completed"


@pytest.mark.parametrize("events", [permission("deny"), permission(state="interrupted")])
def test_what_was_not_allowed_has_failed(events: list[DocumentEvent]) -> None:
    assert folded(shown(*events, done("auto")))["chat_1/doc_001"]["status"] == "failed"
    rejected = msgspec.structs.replace(COMMAND, state="rejected")
    (call,) = folded(shown(*events, *whole(rejected, known=KnownMetadata(command="make"), id="doc_002"))).values()
    assert call["status"] == "failed"


# --- errors, and the end -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "code", "number"),
    [("agent", "AGENT_FAILED", 1), ("gateway", "CANCELLED", 0), ("run_terminal_cmd", "COMMAND_FAILED", 0)],
)
def test_an_error_of_the_run_is_shown_once(source: str, code: str, number: int) -> None:
    metadata = documents.ErrorMetadata(error_code=code, source=source, details="")
    updates = shown(*whole(metadata, "The agent failed. " + "Try again. " * 30))
    assert len(updates) == number
    for update in updates:
        assert (update["status"], len(update["title"])) == ("failed", 200)


def test_the_context_is_shown_if_its_size_is_known() -> None:
    assert shown(done("opus-4.8[context=200k]", context_tokens=5_000)) == [
        {"sessionUpdate": "usage_update", "used": 5_000, "size": 200_000}
    ]
    assert shown(done("auto", context_tokens=5_000)) == shown(done("opus-4.8[context=200k]")) == []


def test_a_recording_is_said_to_be_one() -> None:
    (update,) = shown(done("auto", recording=documents.ReplayedRecording(name="tour", reason="default")))
    assert update["title"].startswith("DEMO: ")


def test_a_pause_shows_nothing() -> None:
    assert shown(Paused(done("auto").envelope)) == []


@pytest.mark.parametrize("kind", ["code_block", "error"])
def test_what_grows_and_is_shown_at_its_end_is_not_shown_before(kind: documents.DocumentType) -> None:
    started = DocumentStarted(id="doc_001", type=kind, sequence=1)
    assert shown(started, ContentDelta(id="doc_001", text="x"), ContentDelta(id="doc_009", text="y")) == []
