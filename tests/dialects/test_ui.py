"""The parts of a message: texts, thoughts, calls, documents, and what the run waits for."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import UNSET

from cursor_gateway.dialects.base import ReplyStart
from cursor_gateway.dialects.ui import (
    CallMade,
    CallReturned,
    MessageEnded,
    MessagePart,
    MessageParts,
    PartsEncoder,
    ProseClosed,
    ProseGrew,
    ProseOpened,
    Shown,
    StreamedReply,
    TransientPart,
    asked_in,
    call_id,
    data_frame,
    usage_counts,
)
from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model import documents
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEvent,
    DocumentStarted,
    KnownMetadata,
    Paused,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
    ToolCallStarted,
)
from tests.dialects.runs import RUN, done, ended, paused, words

QUESTION = documents.ClarificationQuestion(
    id="q1", text="Which?", options=[documents.ClarificationOption(id="a", label="A")]
)
ALLOW = documents.PermissionRequest(subject="rm x", rules=["Shell(rm)"])


def parts(*events: DocumentEvent, after: int = 0) -> list[MessagePart]:
    message = MessageParts("chat_1", after)
    return [part for event in events for part in message.push(event)]


def called(name: str = "read_file", result: Any = "text", **more: Any) -> documents.ToolCallMetadata:
    given: dict[str, Any] = {
        "arguments": {"a": 1},
        "result": documents.ToolCallResult(status="success", data=result),
        **more,
    }
    return documents.ToolCallMetadata(tool_name=name, tool_call_id="x", duration_ms=1, **given)


def ran(**more: Any) -> documents.TerminalCommandMetadata:
    given: dict[str, Any] = {"exit_code": 0, "output": "ok", **more}
    return documents.TerminalCommandMetadata(command="ls", duration_ms=1, permissions=[], **given)


def start(type: Any, metadata: KnownMetadata | None = None, raw: str = "") -> DocumentStarted:
    return DocumentStarted("doc_001", type, 1, metadata, raw)


def waits_for(*calls: documents.WaitingCall) -> Paused:
    pause = paused()
    pause.envelope.metadata.waiting_for[:] = calls  # type: ignore[index]  # `paused` sets a list
    return pause


def waiting(name: str = "ask", id: str = "w1") -> documents.WaitingCall:
    return documents.WaitingCall(tool_call_id=id, tool_name=name, arguments={}, document_id="doc_001")


def test_ids_of_calls_are_recognized() -> None:
    assert asked_in(call_id("chat_1", "doc_002")) == ("chat_1", "doc_002")
    assert asked_in("call_5d1e") is None
    assert asked_in("a.b") is None
    assert asked_in("chat_1.x") is None


# --- prose --------------------------------------------------------------------------------------------


def test_white_space_begins_no_part_and_is_not_lost() -> None:
    told = parts(Reasoning("Hm."), start("tool_call", raw="\n\n"), *words("a"), done())
    assert [part.text for part in told if isinstance(part, ProseGrew)] == ["Hm.", "\n\na"]
    at_end = parts(Reasoning("Hm."), start("tool_call", raw="\n"), done())
    assert [(part.kind, part.text) for part in at_end if isinstance(part, ProseGrew)] == [
        ("reasoning", "Hm."),
        ("text", "\n"),
    ]


def test_each_block_of_thinking_is_a_part() -> None:
    told = parts(Reasoning("a", opens=True), Reasoning("b"), Reasoning("c", opens=True), *words("d"))
    assert sum(isinstance(part, ProseOpened) and part.kind == "reasoning" for part in told) == 2
    document = parts(start("thinking"), ContentDelta("doc_001", "a", raw=""), ended(documents.ThinkingMetadata(), "a"))
    assert document == [
        ProseOpened("reasoning", "chat_1-2"),
        ProseGrew("reasoning", "chat_1-2", "a"),
        ProseClosed("reasoning", "chat_1-2"),
    ]


# --- calls --------------------------------------------------------------------------------------------


def test_a_command_is_a_call_from_its_start() -> None:
    told = parts(start("terminal_command", KnownMetadata(command="ls")), TerminalOutput("doc_001", "o"), ended(ran()))
    assert told == [
        CallMade("chat_1.doc_001", "run_terminal_cmd", {"command": "ls"}),
        TransientPart("terminal_output", {"toolCallId": "chat_1.doc_001", "text": "o"}),
        CallReturned("chat_1.doc_001", {"exitCode": 0, "output": "ok"}),
    ]


def test_a_command_that_failed_has_its_output_and_one_that_never_ran_an_error() -> None:
    (_, failed) = parts(start("terminal_command"), ended(ran(exit_code=1)))
    assert failed == CallReturned("chat_1.doc_001", {"exitCode": 1, "output": "ok"})
    (_, refused) = parts(start("terminal_command"), ended(ran(state="rejected", reason="No.")))
    assert isinstance(refused, CallReturned)
    assert refused.error == "No."


def test_an_event_of_a_call_that_began_before_the_pause_is_ignored_until_its_result() -> None:
    rest: list[DocumentEvent] = [ToolCallStarted("doc_001", "a", "x"), ToolCallArguments("doc_001", {"a": 1})]
    assert parts(*rest, ended(called()), after=5) == [CallReturned("chat_1.doc_001", "text")]


def test_documents_are_shown_as_they_are() -> None:
    edit = documents.FileEditMetadata(file_path="a.py", operation="edit", language="python")
    begun, whole = parts(start("file_edit", KnownMetadata(file_path="a.py")), ended(edit, "x"))
    assert isinstance(begun, Shown)
    assert isinstance(whole, Shown)
    assert begun.id == whole.id == "chat_1.doc_001"
    assert begun.value["metadata"] == {"state": "running", "filePath": "a.py"}
    assert (whole.value["content"], whole.value["metadata"]["operation"]) == ("x", "edit")
    (todos,) = parts(start("todo_update"), ended(documents.TodoUpdateMetadata(todos=[])))
    assert isinstance(todos, Shown)
    assert todos.type == "todo_update"
    assert parts(start("error"), ended(documents.ErrorMetadata(error_code="A", source="b", details=""), "c")) == []


# --- what the run waits for ---------------------------------------------------------------------------


def test_a_tool_of_the_caller_is_called_at_the_pause() -> None:
    known = KnownMetadata(state="waiting", ran_by="caller")
    begun: list[DocumentEvent] = [
        start("tool_call", known),
        ToolCallStarted("doc_001", "look", "c1"),
        ToolCallArguments("doc_001", {"a": 1}),
    ]
    call, end = parts(*begun, paused("c1"))
    assert call == CallMade("c1", "look", {"a": 1}, by_caller=True)
    assert isinstance(end, MessageEnded)
    assert (end.is_paused, end.calls, end.asked) == (True, ("c1",), ())
    assert parts(ended(called(ran_by="caller")), after=4) == []  # its caller has it


@pytest.mark.parametrize(
    ("data", "output"), [("rain", "rain"), ('{"a": 1}', {"a": 1}), ("{no", "{no"), ([1], [1]), (None, None)]
)
def test_the_whole_message_has_the_results_as_they_were_sent(data: Any, output: Any) -> None:
    message = MessageParts("chat_1")
    known = KnownMetadata(state="waiting", ran_by="caller")
    begun: list[DocumentEvent] = [start("tool_call", known), ToolCallStarted("doc_001", "look", "c1"), paused("c1")]
    told = [part for event in begun for part in message.push(event)]
    assert message.push(ended(called(ran_by="caller", result=data))) == [CallReturned("c1", output, by_caller=True)]
    assert sum(isinstance(part, CallMade) for part in told) == 1
    failed = documents.ToolCallMetadata(
        tool_name="look",
        tool_call_id="c1",
        arguments={},
        duration_ms=1,
        ran_by="caller",
        result=documents.ToolCallResult(status="error", data="No."),
    )
    again = MessageParts("chat_1")
    for event in begun:
        again.push(event)
    assert again.push(paused("c1"))[0] != CallMade("c1", "look", {"a": 1}, by_caller=True)  # it was made
    assert again.push(ended(failed)) == [CallReturned("c1", "No.", "No.", by_caller=True)]


def test_a_call_of_the_caller_that_is_refused_was_never_asked() -> None:
    known = KnownMetadata(state="waiting", ran_by="caller")
    told = parts(
        start("tool_call", known), ToolCallStarted("doc_001", "look", "c1"), ended(called("look", ran_by="caller"))
    )
    assert told == [CallMade("chat_1.doc_001", "look", {"a": 1}), CallReturned("chat_1.doc_001", "text")]


def test_a_question_is_asked_at_the_pause_and_answered_after_it() -> None:
    known = KnownMetadata(questions=[QUESTION], state="waiting")
    call, end = parts(start("clarification", known), waits_for(waiting()))
    assert isinstance(call, CallMade)
    assert (call.id, call.name, call.by_caller) == ("chat_1.doc_001", "ask_question", True)
    assert call.input["questions"][0]["text"] == "Which?"
    assert isinstance(end, MessageEnded)
    ((asked),) = end.asked
    assert (asked.id, asked.kind, asked.message) == (call.id, "question", "Which?")
    answers = [documents.ClarificationAnswer(question_id="q1", selected_option_ids=["a"])]
    (answer,) = parts(ended(documents.ClarificationMetadata(questions=[QUESTION], answers=answers)), after=2)
    assert isinstance(answer, CallReturned)
    assert answer.output == {"answers": [{"questionId": "q1", "selectedOptionIds": ["a"]}]}
    assert not answer.is_denied


@pytest.mark.parametrize(("option", "is_denied"), [("once", False), ("deny", True)])
def test_a_permission_is_asked_and_decided(option: str, is_denied: bool) -> None:
    known = KnownMetadata(questions=[QUESTION], permission=ALLOW, state="waiting")
    call, end = parts(start("clarification", known), waits_for(waiting()))
    assert call == CallMade("chat_1.doc_001", "request_permission", {"subject": "rm x", "rules": ["Shell(rm)"]})
    assert isinstance(end, MessageEnded)
    assert end.asked[0].kind == "permission"
    answers = [documents.ClarificationAnswer(question_id="q1", selected_option_ids=[option])]
    metadata = documents.ClarificationMetadata(questions=[QUESTION], answers=answers, permission=ALLOW)
    (answer,) = parts(ended(metadata), after=2)
    assert isinstance(answer, CallReturned)
    assert answer.is_denied == is_denied


@pytest.mark.parametrize("accepted", [True, UNSET])
def test_a_plan_is_decided(accepted: Any) -> None:
    plan = documents.PlanMetadata(title="P", overview="", todos=[], accepted=accepted)
    shown, call, end = parts(start("plan", KnownMetadata(title="P", state="waiting")), waits_for(waiting()))
    assert isinstance(shown, Shown)
    assert call == CallMade("chat_1.doc_001", "accept_plan", {"documentId": "doc_001"})
    assert isinstance(end, MessageEnded)
    assert (end.asked[0].kind, end.asked[0].message) == ("plan", "P")
    decided, whole = parts(ended(plan, "# P"), after=3)
    assert isinstance(decided, CallReturned)
    assert decided.is_denied == (accepted is UNSET)
    assert isinstance(whole, Shown)
    assert len(parts(start("plan", KnownMetadata(title="P")), ended(plan, "# P"))) == 2  # nobody was asked


@pytest.mark.parametrize(("permission", "name"), [(UNSET, "ask_question"), (ALLOW, "request_permission")])
def test_a_question_that_nobody_was_asked_is_a_call_of_the_agents(permission: Any, name: str) -> None:
    metadata = documents.ClarificationMetadata(questions=[QUESTION], permission=permission)
    call, answer = parts(start("clarification", KnownMetadata(questions=[QUESTION])), ended(metadata))
    assert isinstance(call, CallMade)
    assert (call.name, call.by_caller) == (name, False)
    assert answer == CallReturned("chat_1.doc_001", {"answers": []})


def test_calls_that_still_run_at_a_pause_are_made_before_it() -> None:
    call, end = parts(start("tool_call"), ToolCallStarted("doc_001", "grep", "x"), waits_for())
    assert call == CallMade("chat_1.doc_001", "grep", {})
    assert isinstance(end, MessageEnded)
    assert not end.calls


@pytest.mark.parametrize(
    ("begun", "metadata"),
    [
        (start("plan", KnownMetadata(title="P")), documents.PlanMetadata(title="P", overview="", todos=[])),
        (
            start("clarification", KnownMetadata(questions=[QUESTION])),
            documents.ClarificationMetadata(questions=[QUESTION]),
        ),
        (start("tool_call", KnownMetadata(state="waiting")), called()),
    ],
)
def test_what_ends_after_a_pause_was_called_before_it(begun: DocumentStarted, metadata: Any) -> None:
    """Also if nobody was asked."""
    before = parts(begun, waits_for())
    (call,) = [part for part in before if isinstance(part, CallMade)]
    assert not call.by_caller
    (returned,) = [part for part in parts(ended(metadata), after=2) if isinstance(part, CallReturned)]
    assert returned.id == call.id


def test_a_pause_for_somebody_else_is_none() -> None:
    assert parts(Paused(paused("c1").envelope, goes_on=True)) == []
    assert parts(start("terminal_command"), waits_for(waiting()))[1:] != []  # and no question either


# --- streams ------------------------------------------------------------------------------------------


class Names(PartsEncoder):
    def began(self) -> bytes:
        return b"began\n\n"

    def encoded(self, parts: Sequence[MessagePart], *, is_passed: bool) -> bytes:
        return b"".join(b"%b%b\n\n" % (type(part).__name__.encode(), b"?" * is_passed) for part in parts)


class NamesReply(StreamedReply):
    def stream(self, run: Any, start: ReplyStart) -> Names:
        return Names("chat_1", start.after)


EVENTS: list[DocumentEvent] = [*words("a"), paused("c1"), *words("b"), done()]


def test_who_resumes_gets_the_rest_of_the_reply() -> None:
    for after, rest in ((3, b"ProseClosed\n\nCallMade"), (4, b"id: 5\nbegan\n\n")):
        encoder, first = NamesReply().resumed(RUN, after)
        assert (first, encoder.push_all(EVENTS).startswith(rest)) == (0, True)


def test_a_whole_answer_is_the_stream() -> None:
    whole = NamesReply().whole(RUN, ReplyStart())
    for event in EVENTS[:4]:
        assert not whole.is_over
        whole.push(event)
    assert whole.is_over
    assert whole.body() == Names("chat_1").push_all(EVENTS)
    assert whole.error_body(AgentCrashed().failure()) is None
    with pytest.raises(NotImplementedError):
        StreamedReply().stream(RUN, ReplyStart())


def test_a_frame_is_one_event() -> None:
    assert data_frame({"a": "b\nc"}) == b'data: {"a":"b\\nc"}\n\n'


def test_only_the_tokens_that_are_known_are_counted() -> None:
    usage = documents.Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5, cached_tokens=1, reasoning_tokens=1)
    counts = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5, "cachedInputTokens": 1, "reasoningTokens": 1}
    assert usage_counts(usage) == counts
    assert usage_counts(documents.Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)) == {"totalTokens": 0}
