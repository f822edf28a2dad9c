"""What a run asks while it waits, and what the agent continued without."""

from typing import Any

import msgspec
from hypothesis import given

from cursor_gateway.errors import AgentFailed
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    Reasoning,
)
from cursor_gateway.model.documents import (
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    Metadata,
    PermissionRequest,
    PlanMetadata,
    TerminalCommandMetadata,
    TextMetadata,
    WaitingCall,
)
from cursor_gateway.stages.run_questions import PermissionAsked, PlanAsked, QuestionsAsked, RunQuestion, RunQuestions
from tests.acp_server.test_updates import done, whole
from tests.laws.laws import assemble
from tests.laws.strategies import agent_events, examples

RULE = PermissionRequest(subject="make", rules=["Shell(make)"])
QUESTION = ClarificationQuestion(
    id="file",
    text="Which file?",
    options=[ClarificationOption(id="a", label="A"), ClarificationOption(id="b", label="B")],
)


def asked_by(*events: DocumentEvent) -> RunQuestions:
    asked = RunQuestions()
    for event in events:
        asked.push(event)
    return asked


def waiting(*events: DocumentEvent) -> list[RunQuestion]:
    ids = [event.id for event in events if isinstance(event, DocumentStarted)]
    calls = [WaitingCall(tool_call_id="c", tool_name="t", arguments={}, document_id=id) for id in [*ids, "doc_009"]]
    return list(asked_by(*events).waiting(calls))


def test_a_pause_asks_for_permissions_plans_and_answers() -> None:
    events: list[DocumentEvent] = [
        DocumentStarted(id="doc_001", type="clarification", sequence=1, metadata=KnownMetadata(permission=RULE)),
        DocumentStarted(id="doc_002", type="plan", sequence=2, metadata=KnownMetadata(title="Move")),
        ContentDelta(id="doc_002", text="# Mo"),
        ContentDelta(id="doc_002", text="ve"),
        DocumentStarted(id="doc_003", type="clarification", sequence=3, metadata=KnownMetadata(questions=[QUESTION])),
        DocumentStarted(id="doc_004", type="clarification", sequence=4),
        DocumentStarted(id="doc_005", type="text", sequence=5),
        Reasoning("Hm."),
    ]
    assert waiting(*events) == [
        PermissionAsked("doc_001", RULE),
        PlanAsked("doc_002", "Move", "# Move"),
        QuestionsAsked("doc_003", [QUESTION]),
    ]


def left(*documents: Metadata, mode: str = "agent", has_failed: bool = False) -> list[RunQuestion]:
    events = [event for number, one in enumerate(documents) for event in whole(one, "text", id=f"doc_{number}")]
    end = done("auto")
    end = Done(
        msgspec.structs.replace(end.envelope, mode=mode), failure=AgentFailed("No.").failure() if has_failed else None
    )
    return asked_by(*events).left(end)


def command(subject: str, state: Any = "rejected") -> TerminalCommandMetadata:
    rule = PermissionRequest(subject=subject, rules=[])
    return TerminalCommandMetadata(
        command=subject, exit_code=-1, output="", duration_ms=0, permissions=[], state=state, permission=rule
    )


def test_what_was_rejected_is_asked_once_after_the_run() -> None:
    found = left(command("make"), command("make"), command("rm"), ClarificationMetadata(questions=[], state="failed"))
    assert [(one.document_id, one.is_past) for one in found] == [("doc_1", True), ("doc_2", True)]


def test_a_question_without_an_answer_is_asked_after_the_run() -> None:
    unanswered = ClarificationMetadata(questions=[QUESTION], state="unanswered")
    assert left(unanswered, command("make", "failed")) == [QuestionsAsked("doc_0", [QUESTION], is_past=True)]
    assert left(unanswered, has_failed=True) == []


def plan(title: str, **more: Any) -> PlanMetadata:
    return PlanMetadata(title=title, overview="", todos=[], **more)


def test_the_last_plan_is_asked_about_in_the_mode_plan() -> None:
    assert left(plan("One"), plan("Two"), mode="plan") == [PlanAsked("doc_1", "Two", "text", is_past=True)]
    assert left(plan("One")) == []
    assert left(plan("One", accepted=True), mode="plan") == []
    assert left(plan("One", accepted=False), mode="plan") == []
    assert left(plan("One", state="rejected"), mode="plan") == []


def test_texts_and_answered_questions_ask_nothing() -> None:
    assert left(TextMetadata(), ClarificationMetadata(questions=[QUESTION], state="completed")) == []


def test_what_was_asked_first_is_asked_first_after_the_run() -> None:
    unanswered = ClarificationMetadata(questions=[QUESTION], state="unanswered")
    assert [one.document_id for one in left(plan("One"), unanswered, mode="plan")] == ["doc_0"]
    assert [one.document_id for one in left(unanswered, plan("One"), mode="plan")] == ["doc_0"]


@examples(200)
@given(agent_events)
def test_what_any_run_asks_is_in_one_of_its_documents(events: list[AgentEvent]) -> None:
    asked, known, asks = RunQuestions(), set[str](), list[RunQuestion]()
    for event in assemble(events):
        asked.push(event)
        if isinstance(event, DocumentStarted):
            known.add(event.id)
        if isinstance(event, Paused):
            asks += asked.waiting(event.envelope.metadata.waiting_for or ())
    rejected = asked.rejected()
    assert len({one.request.subject for one in rejected}) == len(rejected)
    assert {one.document_id for one in (*asks, *rejected, *asked.unanswered())} <= known
