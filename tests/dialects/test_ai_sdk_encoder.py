"""The chunks of a UI message stream; their order is checked by `tests/ui_streams.py`."""

from typing import Any

import pytest

from cursor_gateway.dialects.ai_sdk import UiMessageEncoder
from cursor_gateway.errors import AgentCrashed, RunCancelled
from cursor_gateway.model.document_events import DocumentEvent, KnownMetadata, Reasoning, TerminalOutput
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationMetadata, RefusedCall, TodoUpdateMetadata
from tests.dialects.runs import RUN, done, ended, paused, words
from tests.dialects.test_ui import ALLOW, QUESTION, called, ran, start, waiting, waits_for
from tests.ui_streams import AiSdkMessage


def message(*events: DocumentEvent, after: int = 0, into: AiSdkMessage | None = None, id: str = "") -> AiSdkMessage:
    encoder = UiMessageEncoder(RUN, after, id)
    return (into or AiSdkMessage()).read(encoder.push_all(events))


def test_a_message_is_named_after_its_run_and_says_whose_answer_it_is() -> None:
    told = message(Reasoning("Hm."), *words("Hi."), done())
    assert (told.id, told.text, told.reasoning, told.finish) == ("chat_0a1b", "Hi.", ["Hm."], "stop")
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    assert told.metadata == {"chatId": "chat_0a1b", "conversationId": "conv_1", "model": "auto", "usage": usage}


def test_what_the_agent_did_was_run_by_it() -> None:
    told = message(
        start("terminal_command", KnownMetadata(command="ls")), TerminalOutput("doc_001", "o"), ended(ran()), done()
    )
    (call,) = told.calls.values()
    assert (call["toolName"], call["input"], call["state"]) == (
        "run_terminal_cmd",
        {"command": "ls"},
        "output-available",
    )
    assert call["providerExecuted"]
    assert call["dynamic"]
    assert told.transient[0]["type"] == "data-terminal_output"
    failed = message(start("tool_call"), ended(called(state="failed", reason="No.")), done())
    (call,) = failed.calls.values()
    assert (call["state"], call["errorText"]) == ("output-error", "No.")


def test_documents_are_data() -> None:
    told = message(start("todo_update"), ended(TodoUpdateMetadata(todos=[])), done())
    assert told.data["chat_0a1b.doc_001"]["type"] == "data-todo_update"


def test_a_tool_of_the_page_ends_the_message_and_its_result_continues_it() -> None:
    told = message(*words("I look."), paused("c1"))
    assert told.finish == "tool-calls"
    assert "providerExecuted" not in told.calls["c1"]
    message(*words(" Rain."), done(), after=4, into=told, id="m1")
    assert (told.id, told.text, told.finish) == ("m1", "I look. Rain.", "stop")


@pytest.mark.parametrize(("option", "state"), [("once", "output-available"), ("deny", "output-denied")])
def test_a_permission_is_an_approval(option: str, state: str) -> None:
    known = KnownMetadata(questions=[QUESTION], permission=ALLOW, state="waiting")
    told = message(start("clarification", known), waits_for(waiting()))
    call = told.calls["chat_0a1b.doc_001"]
    assert (call["state"], call["approvalId"], call["reason"]) == ("approval-request", "chat_0a1b.doc_001", "Which?")
    answers = [ClarificationAnswer(question_id="q1", selected_option_ids=[option])]
    decided = ended(ClarificationMetadata(questions=[QUESTION], answers=answers, permission=ALLOW))
    message(decided, done(), after=2, into=told)
    assert call["state"] == state


def test_an_approval_without_words_has_no_reason() -> None:
    known = KnownMetadata(questions=[], permission=ALLOW, state="waiting")
    call = message(start("clarification", known), waits_for(waiting())).calls["chat_0a1b.doc_001"]
    assert "reason" not in call


def test_a_question_is_a_tool_of_the_page() -> None:
    known = KnownMetadata(questions=[QUESTION], state="waiting")
    call = message(start("clarification", known), waits_for(waiting())).calls["chat_0a1b.doc_001"]
    assert (call["toolName"], call["state"]) == ("ask_question", "called")
    assert "providerExecuted" not in call


@pytest.mark.parametrize(
    ("error", "finish", "shown"),
    [(AgentCrashed("It fell over."), "error", "It fell over."), (RunCancelled("You stopped it."), "abort", None)],
)
def test_a_run_that_failed_says_why(error: Any, finish: str, shown: str | None) -> None:
    told = message(*words("Hi."), done(error.failure()))
    assert (told.finish, told.error) == (finish, shown)
    assert told.metadata["usage"]


def test_what_was_refused_is_said() -> None:
    refused = RefusedCall(document="doc_001", subject="rm x")
    assert message(done(refused=[refused])).metadata["refused"][0]["subject"] == "rm x"
