"""What a run asks, and what the user of an editor answers."""

from typing import Any

import msgspec
import pytest
from acp import schema

from cursor_gateway.acp_server import questions
from cursor_gateway.dialects.documents.request import QuestionAnswer
from cursor_gateway.model.documents import ClarificationOption, ClarificationQuestion, PermissionRequest
from cursor_gateway.stages.run_questions import PermissionAsked, PlanAsked, QuestionsAsked
from tests.acp_server.editor import checked

RULE = PermissionRequest(subject="make", rules=["Shell(make)"])
QUESTION = ClarificationQuestion(
    id="file",
    text="Which file?",
    options=[ClarificationOption(id="a", label="A"), ClarificationOption(id="b", label="B")],
)
OPEN = ClarificationQuestion(id="why", text="Why?", options=[])
SEVERAL = ClarificationQuestion(
    id="all", text="Which?", options=[ClarificationOption(id="a", label="A")], allow_multiple=True
)


def chosen(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


# --- permissions -------------------------------------------------------------------------------------


def test_a_permission_is_asked_for_once_or_for_its_rules() -> None:
    params = msgspec.to_builtins(questions.permission_params("s", "call", PermissionAsked("doc_001", RULE)))
    checked(params, schema.RequestPermissionRequest)
    assert [(one["optionId"], one["kind"]) for one in params["options"]] == [
        ("once", "allow_once"),
        ("conversation", "allow_always"),
        ("workspace", "allow_always"),
        ("deny", "reject_once"),
    ]
    assert params["options"][1]["name"] == "Always allow Shell(make) in this conversation"
    assert params["toolCall"]["title"] == "make"


def test_without_rules_nothing_is_allowed_always_and_a_warning_is_shown() -> None:
    rule = PermissionRequest(subject="sudo make", rules=[], warning="It can run anything.")
    params = msgspec.to_builtins(questions.permission_params("s", "call", PermissionAsked("doc_001", rule)))
    checked(params, schema.RequestPermissionRequest)
    assert [one["optionId"] for one in params["options"]] == ["once", "deny"]
    assert params["toolCall"]["content"][0]["content"]["text"] == "It can run anything."


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (chosen("once"), "once"),
        (chosen("conversation"), "conversation"),
        (chosen("workspace"), "workspace"),
        (chosen("deny"), "deny"),
        (chosen("everything"), "deny"),
        ({"outcome": {"outcome": "cancelled"}}, "deny"),
        ({"outcome": "selected"}, "deny"),
        (None, "deny"),
    ],
)
def test_only_what_was_chosen_is_allowed(answer: object, decision: str) -> None:
    now, past = PermissionAsked("doc_001", RULE), PermissionAsked("doc_001", RULE, is_past=True)
    given = questions.decision_of(now, answer)
    assert given is not None
    assert (given.document_id, given.decision) == ("doc_001", decision)
    assert questions.decision_of(past, answer) == (None if decision == "deny" else given)


# --- plans -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["# Move", ""])
def test_a_plan_is_accepted_or_rejected(text: str) -> None:
    now, past = PlanAsked("doc_001", "Move", text), PlanAsked("doc_001", "", text, is_past=True)
    for one, accept in ((now, "Accept the plan"), (past, "Accept the plan and carry it out")):
        params = msgspec.to_builtins(questions.plan_params("s", "call", one))
        checked(params, schema.RequestPermissionRequest)
        assert [option["name"] for option in params["options"]] == [accept, "Reject it"]
    assert questions.choice_of(now, chosen("accept")) == questions.choice_of(past, chosen("accept")) == "accept"
    assert (questions.choice_of(now, chosen("reject")), questions.choice_of(past, None)) == ("reject", None)


# --- questions ---------------------------------------------------------------------------------------


def test_questions_are_a_form() -> None:
    asked = QuestionsAsked("doc_001", [QUESTION, SEVERAL, OPEN])
    params = msgspec.to_builtins(questions.form_params("s", "call", asked))
    checked(params, schema.CreateElicitationRequest)
    assert params["message"] == "The agent has some questions."
    fields = params["requestedSchema"]["properties"]
    assert list(fields) == ["file", "file (own answer)", "all", "all (own answer)", "why"]
    assert fields["file"]["oneOf"][0] == {"const": "a", "title": "A"}
    assert fields["all"]["items"] == {"anyOf": [{"const": "a", "title": "A"}]}
    assert msgspec.to_builtins(questions.form_params("s", "call", QuestionsAsked("d", [OPEN])))["message"] == "Why?"


@pytest.mark.parametrize(
    ("content", "answers"),
    [
        (
            {"file": "b", "all": ["a", "own"], "why": "So."},
            [("file", ["b"], ""), ("all", ["a"], "own"), ("why", [], "So.")],
        ),
        (
            {"file": 7, "file (own answer)": "C", "all (own answer)": " "},
            [("file", [], "C"), ("all", [], ""), ("why", [], "")],
        ),
        (None, [("file", [], ""), ("all", [], ""), ("why", [], "")]),
    ],
)
def test_a_form_is_read(content: Any, answers: list[tuple[str, list[str], str]]) -> None:
    asked = QuestionsAsked("doc_001", [QUESTION, SEVERAL, OPEN])
    expected = [QuestionAnswer(question_id=id, selected_option_ids=chosen, text=text) for id, chosen, text in answers]
    assert questions.form_answers(asked, {"action": "accept", "content": content}) == expected


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel", "content": {"file": "a"}}, None, 7])
def test_a_form_that_was_not_accepted_has_no_answers(answer: object) -> None:
    (given,) = questions.form_answers(QuestionsAsked("doc_001", [QUESTION]), answer)
    assert (given.selected_option_ids, given.text) == ([], "")


def test_without_forms_the_answers_are_options() -> None:
    params = msgspec.to_builtins(questions.question_params("s", "call", QUESTION))
    checked(params, schema.RequestPermissionRequest)
    assert [one["name"] for one in params["options"]] == ["A", "B", "Skip this question"]
    assert questions.question_answer(QUESTION, chosen("1")).selected_option_ids == ["b"]
    assert questions.question_answer(QUESTION, chosen("skip")).selected_option_ids == []
