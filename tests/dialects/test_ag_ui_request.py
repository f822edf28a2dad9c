"""What an AG-UI client sends."""

import json
from typing import Any

import pytest

from cursor_gateway.dialects.ag_ui import AgUiRun, read_input
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import Permission, PermissionDecisions, PlanDecision, QuestionAnswers, SeveralAnswers
from cursor_gateway.model.messages import AssistantMessage, Instructions, ToolCall, ToolMessage, UserMessage

HI = {"id": "m1", "role": "user", "content": "Hi"}
IMAGE = {"type": "image", "source": {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}}


def asked(*messages: Any, **more: Any) -> AgUiRun:
    return read_input(json.dumps({"threadId": "t", "runId": "r", "messages": messages, **more}).encode())


def called(*ids: str, id: str = "chat_0a1b-4") -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return {"id": id, "role": "assistant", "toolCalls": calls}


def result(id: str, **more: Any) -> dict[str, Any]:
    return {"id": f"of {id}", "role": "tool", "toolCallId": id, "content": "Rain.", **more}


def test_messages_are_a_conversation() -> None:
    read = asked(
        {"id": "s", "role": "system", "content": "Be brief."},
        HI,
        {"id": "x", "role": "reasoning", "content": "Hm."},
        {"id": "chat_0a1b-2", "role": "assistant", "content": "a"},
        called("chat_0a1b.doc_001"),
        result("chat_0a1b.doc_001"),
        {"id": "y", "role": "activity", "activityType": "plan", "content": {"a": 1}},
        {"id": "chat_0a1b-9", "role": "assistant", "content": "b"},
        {**HI, "name": "Ada"},
    )
    assert read.messages == [
        Instructions("Be brief."),
        UserMessage("Hi"),
        AssistantMessage("ab"),
        UserMessage("Hi", (), "Ada"),
    ]
    assert read.follows == "chat_0a1b"
    assert read.answer is None


def test_results_of_the_pages_tools_are_quoted() -> None:
    read = asked(HI, called("c1"), called("c2"), result("c1"), result("c2", error="No."))
    calls = (ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "{}"))
    results = [ToolMessage("Rain.", "c1"), ToolMessage("No.", "c2", is_error=True)]
    assert read.messages[1:] == [AssistantMessage("", calls), *results]
    assert read.follows is None


def test_images_are_read() -> None:
    read = asked(
        {**HI, "content": [{"type": "text", "text": "See."}, IMAGE]}, called("c1"), result("c1", content=[IMAGE])
    )
    first, second = read.images
    assert (first.message, second.message) == (0, 2)
    assert read.messages[0] == UserMessage("See.", (first.name,))
    for part in (
        {**IMAGE, "source": {"type": "url", "value": "https://example.org"}},
        {"type": "image"},
        {"type": "audio"},
    ):
        with pytest.raises(InvalidRequest, match="only text and images"):
            asked({**HI, "content": [part]})
    with pytest.raises(InvalidRequest, match=r"messages\[0\].content"):
        asked({**HI, "content": 7})


def test_what_the_page_knows_is_said() -> None:
    context = [{"description": "The city", "value": "Bergen"}]
    read = asked(HI, context=context, state={"a": 1})
    assert read.instructions == 'The city: Bergen\n\nThe state of the application: {"a":1}'
    assert asked(HI, state={}).instructions == ""


def entry(kind: str, document: str = "doc_002", **more: Any) -> dict[str, Any]:
    return {"interruptId": f"{kind}:chat_0a1b.{document}", "status": "resolved", **more}


def test_decisions_are_answers() -> None:
    first = entry("permission", payload={"approved": True, "decision": "workspace"})
    answer = asked(resume=[first, {**entry("permission", "doc_003"), "status": "cancelled"}]).answer
    assert answer is not None
    assert answer.run_id == "chat_0a1b"
    assert answer.given == PermissionDecisions({"doc_002": Permission("workspace"), "doc_003": Permission("deny")})
    for approved, decision in ((True, "accept"), (False, "reject")):
        answer = asked(HI, resume=[entry("plan", payload={"approved": approved})]).answer
        assert answer is not None
        assert answer.given == PlanDecision(decision)  # type: ignore[arg-type]  # a literal of the loop


def test_answers_to_questions_are_answers() -> None:
    answer = asked(HI, resume=[entry("question", payload={"answers": [{"questionId": "q"}]})]).answer
    assert answer is not None
    assert isinstance(answer.given, QuestionAnswers)
    all = [
        entry("question", payload={"answers": [{"questionId": "q"}]}),
        entry("permission", payload={"approved": True}),
    ]
    both = asked(HI, resume=all).answer
    assert both is not None
    decided = PermissionDecisions({"doc_002": Permission("once")})
    assert both.given == SeveralAnswers([decided, answer.given])


@pytest.mark.parametrize(
    ("resumed", "reason"),
    [
        ({"interruptId": "x", "status": "resolved"}, "no such interrupt"),
        ({**entry("question"), "status": "cancelled"}, "needs an answer"),
        (entry("permission", payload="yes"), "approved"),
        (entry("plan"), "approved"),
    ],
)
def test_what_answers_nothing_is_refused(resumed: Any, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        asked(HI, resume=[resumed])


@pytest.mark.parametrize(
    "more",
    [
        [{"id": "a", "role": "assistant", "content": "Hi."}],
        [{"id": "t", "role": "tool", "toolCallId": "chat_0a1b.doc_002", "content": "yes"}],
        [{"id": "a", "role": "assistant", "content": "Hi."}, {"id": "r", "role": "reasoning", "content": "Hm."}],
    ],
)
def test_an_answer_of_the_agents_is_not_asked_again(more: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match="nothing new"):
        asked(HI, *more)
    assert asked(HI, *more, HI).answer is None
    assert asked({"id": "d", "role": "developer", "content": "Be brief."}).answer is None


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        asked()
    with pytest.raises(InvalidRequest, match=r"forwardedProps.cursor.mode"):
        asked(HI, forwardedProps={"cursor": {"mode": "x"}})
