"""What the requests of user interfaces share."""

import pytest

from cursor_gateway.dialects import ui
from cursor_gateway.dialects.base import ContinueRun, StartRun
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import Permission, PermissionDecisions, PlanDecision, SeveralAnswers
from cursor_gateway.model.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from cursor_gateway.model.requests import INTERACTIVE

A, B = ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}")


def test_a_page_that_answers_gets_an_agent_that_can_wait() -> None:
    assert ui.options_of(None, {})["may_be_asked"] is False
    asked = ui.options_of(ui.UiOptions(may_ask=True), {})
    assert (asked["may_be_asked"], asked["source"]) == (True, INTERACTIVE)
    assert ui.options_of(ui.UiOptions(source="cli"), {"x-cursor-may-ask": "true"})["source"] == "cli"
    with pytest.raises(InvalidRequest, match="x-cursor-may-ask"):
        ui.options_of(None, {"x-cursor-may-ask": "perhaps"})


def test_an_answer_continues_its_run_and_a_question_starts_one() -> None:
    options = ui.options_of(None, {"x-cursor-conversation-id": "conv_1"})
    answer = ui.UiAnswer("chat_1", PlanDecision("accept"))
    continued = ui.run_action(answer, ui.StreamedReply(), options, follows=None, question_id="", messages=[])
    assert isinstance(continued, ContinueRun)
    assert (continued.run_id, continued.given) == ("chat_1", PlanDecision("accept"))
    asked = ui.run_action(None, ui.StreamedReply(), options, follows="chat_1", question_id="m1", messages=[])
    assert isinstance(asked, StartRun)
    assert (asked.follows, asked.conversation_id, asked.attempt) == (None, "conv_1", "unknown")


def test_tools_have_names_of_their_own() -> None:
    offer = ui.offer_of([ui.PageTool(name="a"), ui.PageTool(name="b")])
    assert offer is not None
    assert [tool.name for tool in offer.tools] == ["a", "b"]
    assert ui.offer_of([]) is None
    with pytest.raises(InvalidRequest, match=r"tools\[1\]"):
        ui.offer_of([ui.PageTool(name="a"), ui.PageTool(name="a")])


def test_the_run_of_an_id() -> None:
    assert ui.run_in("chat_0a1b-7") == ui.run_in("chat_0a1b.doc_001") == ui.run_in("chat_0a1b") == "chat_0a1b"
    assert ui.run_in("msg-1") is None


def test_texts_of_one_answer_are_joined() -> None:
    quoted = ui.QuotedMessages()
    quoted.add(UserMessage("Hi"))
    quoted.say("a")
    quoted.say("b")
    assert quoted.next == 2
    assert quoted.all() == [UserMessage("Hi"), AssistantMessage("ab")]


def test_calls_that_were_made_together_come_before_their_results() -> None:
    quoted = ui.QuotedMessages()
    for call in (A, B):
        quoted.call(call)
        quoted.result(ToolMessage("r", call.id))
    quoted.say("Rain.")
    quoted.add(UserMessage("And now?"))
    results = [ToolMessage("r", "a"), ToolMessage("r", "b")]
    assert quoted.all() == [AssistantMessage("", (A, B)), *results, AssistantMessage("Rain."), UserMessage("And now?")]


def test_results_at_the_end_stay_there() -> None:
    quoted = ui.QuotedMessages()
    quoted.say("I look.")
    quoted.call(A)
    quoted.result(ToolMessage("r", "a"))
    assert quoted.all() == [AssistantMessage("I look.", (A,)), ToolMessage("r", "a")]


def test_answers_of_one_message_are_one() -> None:
    plan, allowed = PlanDecision("accept"), {"doc_001": Permission("once")}
    assert ui.all_answers({}, [plan]) == plan
    assert ui.all_answers(allowed, []) == PermissionDecisions(allowed)
    assert ui.all_answers(allowed, [plan]) == SeveralAnswers([PermissionDecisions(allowed), plan])


def test_an_approval_is_a_permission() -> None:
    assert ui.permission_of(ui.Approval(approved=True)) == Permission("once")
    assert ui.permission_of(ui.Approval(approved=True, decision="workspace")) == Permission("workspace")
    assert ui.permission_of(ui.Approval(approved=False, reason="No.")) == Permission("deny", "No.")


def test_answers_are_read() -> None:
    (first,) = ui.question_answers({"answers": [{"questionId": "q", "text": "t"}]}, "x").answers
    assert (first.question_id, first.selected_option_ids, first.text) == ("q", [], "t")
    wrong: object
    for wrong in ({"answers": []}, {}, None, "yes"):
        with pytest.raises(InvalidRequest, match="questionId"):
            ui.question_answers(wrong, "x")
