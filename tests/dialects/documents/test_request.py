"""Requests of the documents dialect: every field is read, and what is wrong is named."""

import base64
import json
from typing import Any

import pytest

from cursor_gateway.dialects.documents.request import (
    AnswerRequest,
    ChatRequest,
    ChosenTool,
    OfferedFunction,
    OfferedTool,
    ToolAnswer,
    answers_of,
    offer_of,
    permissions_of,
    read_answer,
    read_chat_request,
    results_of,
)
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.caller_tools import (
    AutoTool,
    NamedTool,
    NoTool,
    Offer,
    RequiredTool,
    Tool,
    ToolChoice,
    ToolResult,
)
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.model.messages import Image


def read(**fields: Any) -> ChatRequest:
    return read_chat_request(json.dumps(fields).encode())


NOW: dict[str, Any] = {"name": "now"}
PNG = b"\x89PNG"
URI = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def test_a_message_is_enough() -> None:
    assert read(message="Say it.") == ChatRequest(message="Say it.")


def test_every_field_is_read() -> None:
    assert read(
        message="Say it.",
        conversationId="conv_1",
        model="gpt-5-mini",
        mode="plan",
        stream=True,
        include=["thinking", "raw"],
        fences="inline",
        workspace="/w",
        images=["data:image/png;base64,AA=="],
        tools=[{"name": "now"}, {"type": "function", "function": {"name": "read", "description": "Reads."}}],
        toolChoice={"name": "now"},
        parallelToolCalls=False,
        whenClientLeaves="finish",
    ) == ChatRequest(
        message="Say it.",
        conversation_id="conv_1",
        model="gpt-5-mini",
        mode="plan",
        stream=True,
        include={"thinking", "raw"},
        fences="inline",
        workspace="/w",
        images=["data:image/png;base64,AA=="],
        tools=[OfferedTool(name="now"), OfferedTool(function=OfferedFunction(name="read", description="Reads."))],
        tool_choice=ChosenTool(name="now"),
        parallel_tool_calls=False,
        when_client_leaves="finish",
    )


def test_null_is_the_same_as_leaving_out() -> None:
    left_out = dict.fromkeys(("conversationId", "model", "mode", "fences", "workspace"))
    assert read(message="Say it.", **left_out) == ChatRequest(message="Say it.")


def test_the_message_stays_as_it_is() -> None:
    assert read(message="  two\n lines ").message == "  two\n lines "


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "message"),
        ({"message": ""}, "message"),
        ({"message": " \n"}, "message"),
        ({"message": ["a"]}, "message"),
        ({"message": "a", "model": ""}, "model"),
        ({"message": "a", "mode": "wild"}, "mode"),
        ({"message": "a", "include": ["everything"]}, "include[0]"),
        ({"message": "a", "fences": "both"}, "fences"),
        ({"message": "a", "stream": "yes"}, "stream"),
        ({"message": "a", "images": "x"}, "images"),
        ({"message": "a", "conversation_id": "c"}, "conversation_id"),
        ({"message": "a", "tools": {}}, "tools"),
        ({"message": "a", "tools": [{"name": ""}]}, "tools[0].name"),
        ({"message": "a", "tools": [{"function": {}}]}, "tools[0].function.name"),
        ({"message": "a", "tools": [{"name": "x", "parameters": []}]}, "tools[0].parameters"),
        ({"message": "a", "tools": [{"description": "?"}]}, "tools[0].name"),
        ({"message": "a", "tools": [NOW, {"name": "x", "parameters": {"type": "array"}}]}, "tools[1].parameters"),
        ({"message": "a", "tools": [NOW, NOW]}, "tools[1]"),
        ({"message": "a", "tools": [NOW, {"function": NOW}]}, "tools[1]"),
        ({"message": "a", "tools": [NOW], "toolChoice": "maybe"}, "toolChoice"),
        ({"message": "a", "tools": [NOW], "toolChoice": {"name": "then"}}, "toolChoice"),
        ({"message": "a", "tools": [NOW], "toolChoice": {"name": "now", "type": "function"}}, "toolChoice.type"),
        ({"message": "a", "toolChoice": "required"}, "toolChoice"),
        ({"message": "a", "toolChoice": {"name": "now"}}, "toolChoice"),
        ({"message": "a", "conversationId": "conv_1", "follows": "chat_1"}, "follows"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        offer_of(read(**fields))
    assert caught.value.param == param
    assert caught.value.status == 400


# --- tools ------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
READ: dict[str, Any] = {"name": "read", "description": "Reads.", "parameters": SCHEMA}


@pytest.mark.parametrize("tool", [READ, {"type": "function", "function": READ}], ids=["plain", "as OpenAI has it"])
def test_a_tool_has_two_forms(tool: dict[str, Any]) -> None:
    offer = offer_of(read(message="a", tools=[tool]))
    assert offer == Offer(tools=(Tool("read", "Reads.", SCHEMA),))


def test_a_tool_without_parameters_takes_an_object() -> None:
    offer = offer_of(read(message="a", tools=[NOW], parallelToolCalls=False))
    assert offer == Offer(tools=(Tool("now", "", {"type": "object", "properties": {}}),), parallel=False)


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ({}, AutoTool()),
        ({"toolChoice": "auto"}, AutoTool()),
        ({"toolChoice": "none"}, NoTool()),
        ({"toolChoice": "required"}, RequiredTool()),
        ({"toolChoice": {"name": "now"}}, NamedTool("now")),
    ],
)
def test_a_choice_of_tools_has_four_forms(given: dict[str, Any], choice: ToolChoice) -> None:
    offer = offer_of(read(message="a", tools=[NOW, READ], **given))
    assert offer is not None
    assert offer.choice == choice


@pytest.mark.parametrize("given", [{}, {"tools": []}, {"toolChoice": "none"}, {"toolChoice": "auto"}])
def test_without_tools_there_is_no_offer(given: dict[str, Any]) -> None:
    assert offer_of(read(message="a", **given)) is None


# --- results ----------------------------------------------------------------------------------------


def answer(**fields: Any) -> AnswerRequest:
    return read_answer(json.dumps(fields).encode())


def results(*answers: dict[str, Any]) -> dict[str, ToolResult]:
    return results_of(answer(toolResults=answers).tool_results or ())


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


CONTENTS: dict[str, tuple[Any, ToolResult]] = {
    "a text": ("seen", ToolResult(text="seen")),
    "no text": ("", ToolResult(text="")),
    "null": (None, ToolResult(text="null")),
    "an object": ({"a": ["é"]}, ToolResult(text='{"a":["é"]}', structured={"a": ["é"]})),
    "a list": ([1, {"type": "text"}], ToolResult(text='[1,{"type":"text"}]', structured=[1, {"type": "text"}])),
    "an empty list": ([], ToolResult(text="[]", structured=[])),
    "objects of another kind": ([{"type": "x"}], ToolResult(text='[{"type":"x"}]', structured=[{"type": "x"}])),
    "a number": (7, ToolResult(text="7", structured=7)),
    "false": (False, ToolResult(text="false", structured=False)),
    "parts": ([text("a"), text("b")], ToolResult(text="a\nb")),
    "an image": (
        [{"type": "image_url", "image_url": {"url": URI}}],
        ToolResult(text="", images=(Image(0, "image/png", PNG),)),
    ),
    "text and an image, bare": (
        [text("a"), {"type": "image_url", "image_url": URI}, text("b")],
        ToolResult(text="a\nb", images=(Image(0, "image/png", PNG),)),
    ),
}


@pytest.mark.parametrize(("content", "result"), CONTENTS.values(), ids=CONTENTS)
def test_a_result_is_a_text_parts_or_any_value(content: Any, result: ToolResult) -> None:
    assert results({"toolCallId": "k", "content": content}) == {"k": result}


@pytest.mark.parametrize("content", ["no", {"why": 1}, [text("no")]], ids=["text", "value", "parts"])
def test_a_tool_may_have_failed(content: Any) -> None:
    assert results({"toolCallId": "k", "content": content, "isError": True})["k"].is_error


def test_of_two_results_for_one_call_the_first_counts() -> None:
    reply = results(
        {"toolCallId": "k", "content": "1"}, {"toolCallId": "l", "content": "2"}, {"toolCallId": "k", "content": "3"}
    )
    assert {id: result.text for id, result in reply.items()} == {"k": "1", "l": "2"}


def test_an_answer_may_be_streamed_and_outlive_its_client() -> None:
    reply = answer(toolResults=[{"toolCallId": "k", "content": 1}], stream=True, whenClientLeaves="finish")
    assert (reply.stream, reply.when_client_leaves) == (True, "finish")


def test_questions_are_answered_with_options_or_in_words() -> None:
    reply = answer(answers=[{"questionId": "q", "selectedOptionIds": ["a", "b"]}, {"questionId": "r", "text": "No."}])
    assert answers_of(reply.answers or ()) == [
        ClarificationAnswer(question_id="q", selected_option_ids=["a", "b"]),
        ClarificationAnswer(question_id="r", selected_option_ids=[], text="No."),
    ]


@pytest.mark.parametrize("decision", ["accept", "reject"])
def test_a_plan_is_decided_on_with_words_if_need_be(decision: str) -> None:
    assert answer(plan=decision).plan == decision
    assert answer(plan=decision, text="But first test it.").text == "But first test it."


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "toolResults"),
        ({"toolResults": []}, "toolResults"),
        ({"toolResults": [{"toolCallId": "k", "content": "x"}], "plan": "accept"}, "toolResults"),
        ({"answers": [{"questionId": "q"}], "plan": "accept"}, "toolResults"),
        ({"answers": []}, "answers"),
        ({"answers": [{"questionId": ""}]}, "answers[0].questionId"),
        ({"answers": [{"questionId": "q", "selectedOptionIds": "a"}]}, "answers[0].selectedOptionIds"),
        ({"answers": [{"questionId": "q"}], "text": "No."}, "text"),
        ({"plan": "perhaps"}, "plan"),
        ({"toolResults": [{"toolCallId": "k"}]}, "toolResults[0].content"),
        (
            {"toolResults": [{"toolCallId": "k", "content": json.loads("[" * 150 + "]" * 150)}]},
            "toolResults[0].content",
        ),
        ({"toolResults": [{"content": "x"}]}, "toolResults[0].toolCallId"),
        ({"toolResults": [{"toolCallId": "", "content": "x"}]}, "toolResults[0].toolCallId"),
        ({"toolResults": [{"toolCallId": "k", "content": "x", "is_error": True}]}, "toolResults[0].is_error"),
        ({"toolResults": [{"toolCallId": "k", "content": [text("a"), {"type": "x"}]}]}, "toolResults[0].content"),
        ({"toolResults": [{"toolCallId": "k", "content": [text("a"), 7]}]}, "toolResults[0].content"),
        (
            {"toolResults": [{"toolCallId": "k", "content": [{"type": "image_url", "image_url": "http://x"}]}]},
            "toolResults[0].content",
        ),
    ],
)
def test_what_is_wrong_with_an_answer_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        results_of(answer(**fields).tool_results or ())
    assert caught.value.param == param
    assert caught.value.status == 400


def permission(decision: str, reason: str = "", document: str = "doc_002") -> dict[str, Any]:
    return {"documentId": document, "decision": decision, "reason": reason}


def test_commands_are_decided_on_by_their_documents() -> None:
    reply = answer(permissions=[permission("workspace"), permission("deny", "Not now.", "doc_003")])
    assert permissions_of(reply.permissions or ()) == {
        "doc_002": Permission("workspace"),
        "doc_003": Permission("deny", "Not now."),
    }


@pytest.mark.parametrize(
    ("permissions", "param"),
    [
        ([permission("once", "because")], "permissions[0].reason"),
        ([permission("once"), permission("deny")], "permissions[1]"),
    ],
)
def test_a_decision_is_one_and_only_a_denial_has_a_reason(permissions: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        permissions_of(answer(permissions=permissions).permissions or ())
    assert refused.value.param == param


def test_images_of_results_are_counted_together_before_any_is_decoded() -> None:
    image = {"type": "image_url", "image_url": "no image"}
    answers = [ToolAnswer(tool_call_id=str(number), content=[text("a"), image, image]) for number in range(2)]
    with pytest.raises(InvalidRequest, match="4 images, but the limit is 3"):
        results_of(answers, 3)
    structured = [ToolAnswer(tool_call_id="1", content=[{"type": "x"}, image, image])]  # no images, whatever they say
    assert results_of(structured, 1)["1"].structured == structured[0].content
