"""What a tool returns: text for a model, and the response with long outputs cut."""

import json
from typing import Any

import msgspec
import pytest

from cursor_gateway.mcp_server.results import (
    failed_result,
    progress_line,
    progress_of,
    structured,
    task_result,
    text_of,
    tool_result,
)
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    KnownMetadata,
    Paused,
    Reasoning,
    TerminalOutput,
)
from cursor_gateway.model.documents import (
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    Document,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    PermissionRequest,
    PlanMetadata,
    QueuePlace,
    ReplayedRecording,
    TextMetadata,
    WaitingCall,
    make_document,
)
from tests.mcp_server.responses import command, response

SAID = make_document("doc_001", 1, "Here it is.", TextMetadata())
END = "Run chat_1 is completed; conversation conv_1."


def document(metadata: Metadata, content: str | None = None) -> Document:
    return make_document("doc_003", 3, content, metadata)


def calls(text: str) -> list[dict[str, Any]]:
    """The examples of what to send."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def words(content: dict[str, Any]) -> tuple[str, str]:
    """Those that a host shows its model first."""
    assert [*content][:2] == ["summary", "nextStep"]
    return content["summary"], content["nextStep"]


def test_what_was_said_and_done() -> None:
    assert text_of(response(SAID, command("npm test")).whole) == (
        f"Here it is.\n\nActions:\n- Ran `npm test` (exit status 0)\n\n{END}"
    )


def test_only_the_last_actions_are_listed() -> None:
    text = text_of(response(*(command(f"step {number}") for number in range(60))).whole)
    assert "`step 10`" in text
    assert "`step 9`" not in text


def test_a_recording_says_so_first() -> None:
    played = response(SAID, recording=ReplayedRecording(name="hello", reason="default")).whole
    text = text_of(played)
    assert text.startswith("DEMO: this answer is a recording.")
    assert structured(played)["summary"].startswith("DEMO: this answer is a recording.")


def test_an_error_is_shown_with_how_the_run_ended() -> None:
    failed = document(ErrorMetadata(error_code="AGENT_CRASHED", source="agent", details=""), "The agent crashed.")
    whole = response(failed, status="error").whole
    summary = "Error: The agent crashed.\n\nRun chat_1 has ended with an error; conversation conv_1."
    step = 'To continue the conversation, call `ask` or `run` with\n{"prompt":"…","conversationId":"conv_1"}'
    assert text_of(whole) == f"{summary}\n\n{step}"
    assert words(structured(whole)) == (summary, step)


def test_a_run_that_works_or_waits() -> None:
    working = response(status="streaming").whole
    summary = "Run chat_1 is still working; conversation conv_1."
    step = 'To wait for it, call `status` with\n{"runId":"chat_1","waitSeconds":60}'
    assert text_of(working) == f"{summary}\n\n{step}"
    assert words(structured(working)) == (summary, step)
    call = WaitingCall(tool_call_id="c", tool_name="t", arguments={}, document_id="doc_003")
    waiting = text_of(response(status="streaming", waiting_for=[call]).whole)
    assert waiting == "Run chat_1 waits for an answer; conversation conv_1."


def test_questions_come_with_an_answer_to_send() -> None:
    options = [ClarificationOption(id="a", label="The first"), ClarificationOption(id="b", label="The second")]
    questions = [
        ClarificationQuestion(id="which", text="Which one?", options=options),
        ClarificationQuestion(id="why", text="And why?", options=[]),
    ]
    asked = response(document(ClarificationMetadata(questions=questions, state="unanswered"))).whole
    text = text_of(asked)
    assert text.endswith(words(structured(asked))[1])
    assert "- Which one? (`questionId`: `which`)\n  - `a`: The first\n  - `b`: The second\n- And why?" in text
    answers = [{"questionId": "which", "selectedOptionIds": ["a"]}, {"questionId": "why", "text": "…"}]
    assert calls(text) == [{"runId": "chat_1", "answers": answers}]
    answered = document(ClarificationMetadata(questions=questions))
    assert not calls(text_of(response(answered).whole))


@pytest.mark.parametrize("state", ["waiting", "rejected"])
def test_permissions_come_with_a_decision_to_send(state: Any) -> None:
    wanted = PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    needed = response(command("npm test", exit_code=-1, state=state, permission=wanted)).whole
    text = text_of(needed)
    assert text.endswith(words(structured(needed))[1])
    assert calls(text) == [{"runId": "chat_1", "permissions": [{"documentId": "doc_002", "decision": "once"}]}]
    ran = command("npm test", permission=wanted)
    assert not calls(text_of(response(ran).whole))


_REJECTED = PlanMetadata(title="", overview="", todos=[], state="rejected")


def test_a_plan_comes_with_a_decision_to_send() -> None:
    plan = document(PlanMetadata(title="Move", overview="", todos=[]), "1. Dump\n2. Load\n")
    proposed = response(plan, mode="plan").whole
    assert "The agent proposes a plan: Move\n\n1. Dump\n2. Load\n" in text_of(proposed)
    assert "`text` can say why" in text_of(proposed)
    assert calls(text_of(proposed)) == [{"runId": "chat_1", "plan": "accept"}]
    assert calls(words(structured(proposed))[1]) == calls(text_of(proposed))
    for decided in (PlanMetadata(title="", overview="", todos=[], accepted=True), _REJECTED):
        assert "nextStep" not in structured(response(document(decided, "1. Dump"), mode="plan").whole)
    assert not calls(text_of(response(plan).whole))
    waiting = document(PlanMetadata(title="Move", overview="", todos=[], state="waiting"), "1. Dump")
    assert "`text` can say why" not in text_of(response(waiting).whole)
    assert calls(text_of(response(waiting).whole))


def test_long_outputs_and_files_are_cut_and_the_agents_text_is_not() -> None:
    long = "a" * 3_000 + "b" * 3_000
    said = make_document("doc_001", 1, long, TextMetadata())
    file = document(FileEditMetadata(file_path="a.txt", operation="create", language="text"), long)
    whole = response(said, command("ls"), file).whole
    content = structured(whole)
    assert [one["content"] for one in content["documents"]] == [
        long,
        None,
        f"{'a' * 1_500}\n… 3,000 characters left out …\n{'b' * 1_500}",
    ]
    short = response(SAID, command("ls")).whole
    assert structured(short) == {"summary": END, **msgspec.to_builtins(short)}


def text(content: str) -> DocumentEvent:
    return DocumentEnded(make_document("doc_001", 1, content, TextMetadata()))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="npm\n test")), "Running `npm test`"),
        (DocumentStarted("doc_001", "text", 1), ""),
        (ContentDelta("doc_001", "Hello"), ""),
        (TerminalOutput("doc_001", "x"), ""),
        (text("\nFirst line.\nSecond line."), "First line."),
        (text("x" * 300), "x" * 199 + "…"),
        (DocumentEnded(command("npm test")), "Ran `npm test` (exit status 0)"),
        (DocumentEnded(make_document("doc_001", 1, "No.", ErrorMetadata(error_code="X", source="y", details=""))), ""),
        (Reasoning("Hm."), ""),
        (Paused(response().envelope), "Waiting for an answer"),
    ],
)
def test_the_line_of_an_event(event: DocumentEvent, line: str) -> None:
    assert progress_line(event) == line


# --- results, as `tools/call` returns them ------------------------------------------------------------


def test_a_result_has_the_text_and_the_response() -> None:
    whole = response(SAID).whole
    text = {"type": "text", "text": text_of(whole)}
    assert tool_result(whole) == {"content": [text], "structuredContent": structured(whole), "isError": False}
    failed = tool_result(whole, message="It failed.")
    assert (failed["content"][0]["text"], failed["isError"]) == ("It failed.", True)
    assert failed_result("No.") == {"content": [{"type": "text", "text": "No."}], "isError": True}


def test_the_result_of_a_task_says_why_it_failed() -> None:
    error = document(ErrorMetadata(error_code="X", source="agent", details=""), "It failed.")
    assert task_result(response(error, status="error").whole)["content"][0]["text"] == "It failed."
    assert not task_result(response(SAID).whole)["isError"]
    assert not task_result(response().whole)["isError"]


def test_the_last_thing_that_was_done_is_the_progress() -> None:
    assert progress_of(response(SAID, command("npm test")).whole) == "Ran `npm test` (exit status 0)"
    assert progress_of(response().whole) == ""
    queued = response(status="streaming", queue=QueuePlace(age_seconds=1.0, expires="2026-11-18T10:00:00Z")).whole
    assert progress_of(queued) == "Waiting in the queue"
    assert "waits in the queue" in text_of(queued)
    waiting = WaitingCall(tool_call_id="call_1", tool_name="ask", arguments={}, document_id="doc_1")
    assert progress_of(response(SAID, status="streaming", waiting_for=[waiting]).whole) == "Waiting for an answer"
