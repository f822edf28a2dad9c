"""What the AI SDK's chat sends."""

import base64
import json
from typing import Any

import pytest

from cursor_gateway.dialects.ai_sdk import UiChat, read_chat
from cursor_gateway.dialects.ui import UiAnswer
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import Permission, PermissionDecisions, PlanDecision, QuestionAnswers, SeveralAnswers
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.model.messages import AssistantMessage, Instructions, ToolCall, ToolMessage, UserMessage

PNG = "data:image/png;base64,iVBORw0KGgo="
HI = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
STEP = {"type": "step-start"}
ASKED = "chat_0a1b.doc_002"


def chat(*messages: Any, **more: Any) -> UiChat:
    return read_chat(json.dumps({"id": "c1", "messages": messages, "trigger": "submit-message", **more}).encode())


def said(*parts: Any, id: str = "chat_0a1b", **more: Any) -> dict[str, Any]:
    return {"id": id, "role": "assistant", "parts": parts, **more}


def tool(name: str = "look", id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": f"tool-{name}", "toolCallId": id, "state": "output-available", "input": {"a": 1}, **more}


def test_messages_are_a_conversation() -> None:
    system = {"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be brief."}]}
    answer = said(
        STEP, {"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}
    )
    again = {"id": "m2", "role": "user", "parts": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]}
    read = chat(system, HI, answer, again)
    assert read.messages == [
        Instructions("Be brief."),
        UserMessage("Hi"),
        AssistantMessage("ab"),
        UserMessage("One\nTwo"),
    ]
    assert read.follows == "chat_0a1b"
    assert (read.question_id, read.continued_message, read.answer) == ("c1 m2", "", None)


def test_an_answer_is_followed_by_the_run_that_it_names() -> None:
    assert chat(HI, said(id="msg-1", metadata={"chatId": "chat_1f"}), HI).follows == "chat_1f"
    assert chat(HI, said(id="msg-1"), HI).follows is None
    assert chat(HI, said(metadata={"chatId": 7}), HI).follows == "chat_0a1b"
    assert chat(HI).follows is None


def test_images_are_read() -> None:
    read = chat(HI, {"id": "m2", "role": "user", "parts": [{"type": "file", "mediaType": "image/png", "url": PNG}]})
    (image,) = read.images
    assert image.message == 1
    assert read.messages[1] == UserMessage("", (image.name,))
    with pytest.raises(InvalidRequest, match=r"messages\[0\].parts\[0\].url"):
        chat({"role": "user", "parts": [{"type": "file", "url": "https://example.org/a.png"}]})


def test_files_of_text_are_text() -> None:
    address = f"data:text/plain;base64,{base64.b64encode('Grüße'.encode()).decode()}"
    file = {"type": "file", "mediaType": "text/plain", "url": address}
    parts = [{"type": "text", "text": "Look."}, file, {"type": "data-place"}, {**file, "filename": "a.txt"}]
    assert chat(HI, {"id": "m2", "role": "user", "parts": parts}).messages[1] == UserMessage(
        "Look.\nGrüße\nFile a.txt:\n\nGrüße", ()
    )
    with pytest.raises(InvalidRequest, match="Only text files and images"):
        chat({"role": "user", "parts": [{"type": "file", "url": "data:application/pdf;base64,/w=="}]})


def test_results_of_the_pages_tools_are_quoted() -> None:
    parts = [
        tool(output={"b": 2}),
        tool(id="c2", state="output-error", errorText="No."),
        tool(id="c3", state="input-available"),
    ]
    dynamic = {**tool(id="c4", output="text", input=None), "type": "dynamic-tool", "toolName": "look"}
    read = chat(HI, said(STEP, {"type": "text", "text": "I look."}, *parts, dynamic))
    names = [ToolCall(f"c{number}", "look", '{"a":1}' if number < 4 else "{}") for number in range(1, 5)]
    assert read.messages[1:] == [
        AssistantMessage("I look.", tuple(names)),
        ToolMessage('{"b":2}', "c1", "look"),
        ToolMessage("No.", "c2", "look", is_error=True),
        ToolMessage("text", "c4", "look"),
    ]
    assert (read.continued_message, read.question_id, read.follows) == ("chat_0a1b", "", None)
    assert chat(HI, said(tool(state="output-error"))).messages[-1].text == "The tool failed."


def approval(name: str, approved: bool | None, id: str = ASKED, **more: Any) -> dict[str, Any]:
    decided = {"id": id, "approved": approved, **more}
    return {
        "type": "dynamic-tool",
        "toolName": name,
        "toolCallId": id,
        "state": "approval-responded",
        "approval": decided,
    }


def test_decisions_are_answers() -> None:
    both = said(
        STEP,
        approval("request_permission", True),
        approval("request_permission", False, "chat_0a1b.doc_003", reason="No."),
    )
    given = PermissionDecisions({"doc_002": Permission("once"), "doc_003": Permission("deny", "No.")})
    assert chat(HI, both).answer == UiAnswer("chat_0a1b", given)
    assert chat(HI, said(STEP, approval("accept_plan", True))).answer == UiAnswer("chat_0a1b", PlanDecision("accept"))
    assert chat(HI, said(approval("accept_plan", False))).answer == UiAnswer("chat_0a1b", PlanDecision("reject"))


def test_answers_to_questions_are_answers() -> None:
    answer = chat(HI, said(STEP, tool("ask_question", ASKED, output={"answers": [{"questionId": "q"}]}))).answer
    assert answer is not None
    assert isinstance(answer.given, QuestionAnswers)
    with pytest.raises(InvalidRequest, match=r"messages\[1\].parts\[0\].output"):
        chat(HI, said(tool("ask_question", ASKED, output="yes")))


def test_one_message_may_answer_all_that_a_run_asks() -> None:
    question = tool("ask_question", ASKED, output={"answers": [{"questionId": "q"}]})
    answer = chat(HI, said(STEP, question, approval("request_permission", True, "chat_0a1b.doc_003"))).answer
    given = SeveralAnswers(
        [
            PermissionDecisions({"doc_003": Permission("once")}),
            QuestionAnswers([ClarificationAnswer(question_id="q", selected_option_ids=[])]),
        ]
    )
    assert answer == UiAnswer("chat_0a1b", given)


def test_what_was_answered_before_is_no_answer() -> None:
    old = tool("ask_question", ASKED, output={"answers": [{"questionId": "q"}]})
    assert chat(HI, said(STEP, old, STEP, tool(output="x"))).answer is None
    assert chat(HI, said(STEP, approval("request_permission", None)), HI).answer is None
    assert chat(HI, said(STEP, old), HI).answer is None


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": "Hi."}],
        [STEP, approval("request_permission", None)],
        [tool("ask_question", ASKED, state="input-available")],
        [tool(output="x"), {"type": "text", "text": "It is x."}],
    ],
)
def test_an_answer_of_the_agents_is_not_asked_again(parts: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match="nothing new"):
        chat(HI, said(*parts))


def test_a_question_that_the_page_could_not_answer_is_not_asked_again() -> None:
    with pytest.raises(InvalidRequest, match="needs an answer"):
        chat(HI, said(STEP, tool("ask_question", ASKED, state="output-error", errorText="No.")))


@pytest.mark.parametrize("body", [{"messages": []}, {"messages": [{**HI, "role": "tool"}]}, {"messages": [said()]}])
def test_what_cannot_be_answered_is_refused(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        read_chat(json.dumps(body).encode())
