"""AG-UI's events; their order is checked by `tests/ui_streams.py`."""

import json

from cursor_gateway.dialects.ag_ui import AgUiEncoder
from cursor_gateway.errors import AgentCrashed, RunCancelled
from cursor_gateway.model.document_events import DocumentEvent, KnownMetadata, Reasoning, TerminalOutput
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationMetadata, TodoUpdateMetadata
from tests.dialects.runs import RUN, done, ended, paused, words
from tests.dialects.test_ui import ALLOW, QUESTION, called, ran, start, waiting, waits_for
from tests.ui_streams import AgUiThread


def thread(*events: DocumentEvent, after: int = 0, into: AgUiThread | None = None) -> AgUiThread:
    return (into or AgUiThread()).read(AgUiEncoder(RUN, after, "t1", "r1").push_all(events))


def test_a_run_has_the_ids_of_its_client() -> None:
    told = thread(Reasoning("Hm."), *words("Hi."), done())
    assert (told.text, told.reasoning) == ("Hi.", ["Hm."])
    assert (told.started["threadId"], told.started["runId"]) == ("t1", "r1")
    assert told.finished["outcome"] == {"type": "success"}
    assert told.finished["usage"] == [{"model": "auto", "inputTokens": 10, "outputTokens": 5, "totalTokens": 15}]


def test_what_the_agent_did_has_a_result() -> None:
    command: list[DocumentEvent] = [
        start("terminal_command", KnownMetadata(command="ls")),
        TerminalOutput("doc_001", "o"),
        ended(ran()),
    ]
    told = thread(*command, done())
    call = told.calls["chat_0a1b.doc_001"]
    assert (call["name"], json.loads(call["arguments"])) == ("run_terminal_cmd", {"command": "ls"})
    assert (json.loads(call["result"]), call["is_error"]) == ({"exitCode": 0, "output": "ok"}, False)
    assert told.custom[0]["name"] == "terminal_output"
    failed = thread(start("tool_call"), ended(called(state="failed", reason="No.")), done())
    assert failed.calls["chat_0a1b.doc_001"]["is_error"]
    assert failed.calls["chat_0a1b.doc_001"]["result"] == "No."


def test_documents_are_activities() -> None:
    told = thread(start("todo_update"), ended(TodoUpdateMetadata(todos=[])), done())
    assert told.activities["chat_0a1b.doc_001"]["activityType"] == "todo_update"


def test_a_tool_of_the_page_is_pending() -> None:
    told = thread(*words("I look."), paused("c1"))
    assert told.finished["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    thread(*words(" Rain."), done(), after=4, into=told)
    assert told.text == "I look. Rain."


def test_a_permission_is_an_interrupt_and_its_answer_a_result() -> None:
    known = KnownMetadata(questions=[QUESTION], permission=ALLOW, state="waiting")
    told = thread(start("clarification", known), waits_for(waiting()))
    (interrupt,) = told.finished["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["toolCallId"]) == ("permission:chat_0a1b.doc_001", "chat_0a1b.doc_001")
    assert (interrupt["reason"], interrupt["message"]) == ("tool_call", "Which?")
    assert interrupt["responseSchema"]["required"] == ["approved"]
    answers = [ClarificationAnswer(question_id="q1", selected_option_ids=["deny"])]
    decided = ended(ClarificationMetadata(questions=[QUESTION], answers=answers, permission=ALLOW))
    thread(decided, done(), after=2, into=told)
    assert told.calls["chat_0a1b.doc_001"]["is_error"]


def test_an_interrupt_without_words_has_no_message() -> None:
    told = thread(start("clarification", KnownMetadata(questions=[], state="waiting")), waits_for(waiting()))
    (interrupt,) = told.finished["outcome"]["interrupts"]
    assert "message" not in interrupt
    assert interrupt["responseSchema"]["required"] == ["answers"]


def test_a_run_that_failed_or_was_stopped_says_so() -> None:
    failed = thread(*words("Hi."), done(AgentCrashed("It fell over.").failure())).finished
    assert (failed["type"], failed["message"], failed["code"]) == ("RUN_ERROR", "It fell over.", "agent_crashed")
    stopped = thread(done(RunCancelled("You stopped it.").failure())).finished
    assert stopped["outcome"] == {"type": "cancelled"}


def test_a_plan_is_confirmed() -> None:
    told = thread(start("plan", KnownMetadata(title="", state="waiting")), waits_for(waiting()))
    (interrupt,) = told.finished["outcome"]["interrupts"]
    assert interrupt["id"].startswith("plan:")
    assert interrupt["message"] == "The agent asks whether to carry out its plan."
