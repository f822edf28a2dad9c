"""What an agent waits for as forms, and filled forms as answers."""

from typing import Any

import pytest
from msgspec import UNSET

from cursor_gateway.dialects.documents.request import PermissionAnswer, QuestionAnswer
from cursor_gateway.mcp_server.elicitation import FilledForm, answer_to, forms, has_questions, read_form
from cursor_gateway.mcp_server.peers import Peer
from cursor_gateway.mcp_server.tools import AnswerArguments
from cursor_gateway.model import documents
from tests.mcp_server.responses import command, response, waiting

NEW, OLD = Peer("2026-07-28", True), Peer("2025-06-18", True)
_OPTIONS = [documents.ClarificationOption(id="a", label="A"), documents.ClarificationOption(id="b", label="B")]


def asking(*, is_multiple: bool = False, has_options: bool = True) -> documents.ChatResponse:
    options = _OPTIONS if has_options else []
    question = documents.ClarificationQuestion(id="q", text="Which?", options=options, allow_multiple=is_multiple)
    return waits(documents.ClarificationMetadata(questions=[question], state="waiting"))


def waits(metadata: documents.Metadata, content: str | None = None) -> documents.ChatResponse:
    return waiting(documents.make_document("doc_002", 2, content, metadata))


def wanting(warning: str = "") -> documents.ChatResponse:
    wanted = documents.PermissionRequest(subject="npm test", rules=["Shell(npm)"], warning=warning or UNSET)
    return waiting(command("npm test", permission=wanted, state="waiting"))


PLAN = waits(documents.PlanMetadata(title="Move", overview="", todos=[], state="waiting"), "1. Dump\n")


def properties(response: documents.ChatResponse, peer: Peer) -> dict[str, Any]:
    found: dict[str, Any] = forms(response, peer)["doc_002"]["requestedSchema"]["properties"]
    return found


def test_a_command_can_be_allowed_or_denied() -> None:
    form = forms(wanting(), NEW)["doc_002"]
    assert form["message"] == "Cursor's agent needs permission for:\n\nnpm test"
    assert form["requestedSchema"]["required"] == ["decision"]
    choices = [choice["const"] for choice in properties(wanting(), NEW)["decision"]["oneOf"]]
    assert choices == ["once", "conversation", "workspace", "deny"]
    assert forms(wanting("npm runs anything."), NEW)["doc_002"]["message"].endswith("\n\nnpm runs anything.")


def test_hosts_before_titles_get_names_beside_the_choices() -> None:
    decision = properties(wanting(), OLD)["decision"]
    assert decision["enum"] == ["once", "conversation", "workspace", "deny"]
    assert decision["enumNames"][-1] == "Deny"
    assert "mode" not in forms(wanting(), OLD)["doc_002"]


def test_a_question_has_its_options_and_room_for_words() -> None:
    assert properties(asking(), NEW) == {
        "q": {
            "title": "Which?",
            "type": "string",
            "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}],
        },
        "q.text": {"type": "string", "title": "In your own words"},
    }
    several = properties(asking(is_multiple=True), NEW)["q"]
    assert (several["type"], several["items"]["anyOf"][1]) == ("array", {"const": "b", "title": "B"})
    assert properties(asking(is_multiple=True), OLD)["q"]["enum"] == ["a", "b"]
    assert properties(asking(has_options=False), NEW) == {"q": {"type": "string", "title": "Which?"}}


def test_a_plan_is_shown_whole() -> None:
    assert forms(PLAN, NEW)["doc_002"]["message"] == "Cursor's agent proposes a plan: Move\n\n1. Dump"
    assert [choice["const"] for choice in properties(PLAN, NEW)["decision"]["oneOf"]] == ["accept", "reject"]


def test_only_what_a_run_waits_for_is_asked() -> None:
    assert not forms(response(*wanting().documents).whole, NEW)
    assert not forms(response(*wanting().documents, status="streaming").whole, NEW)
    assert not forms(waits(documents.TextMetadata()), NEW)
    assert not forms(waiting(command("npm test", state="waiting")), NEW)


@pytest.mark.parametrize(
    ("asked", "content", "answer"),
    [
        (asking(), {"q": "b"}, QuestionAnswer(question_id="q", selected_option_ids=["b"])),
        (asking(), {"q": "c"}, QuestionAnswer(question_id="q", text="c")),
        (asking(), {"q.text": "both"}, QuestionAnswer(question_id="q", text="both")),
        (
            asking(is_multiple=True),
            {"q": ["a", "b", 1]},
            QuestionAnswer(question_id="q", selected_option_ids=["a", "b"]),
        ),
        (asking(has_options=False), {"q": "x"}, QuestionAnswer(question_id="q", text="x")),
    ],
)
def test_a_question_is_answered(asked: documents.ChatResponse, content: dict[str, Any], answer: QuestionAnswer) -> None:
    assert answer_to(asked, "doc_002", FilledForm("accept", content)) == AnswerArguments(
        run_id="chat_1", answers=[answer]
    )


@pytest.mark.parametrize(
    ("form", "decision"),
    [
        (FilledForm("accept", {"decision": "workspace", "reason": "x"}), ("workspace", "")),
        (FilledForm("accept", {"decision": "deny", "reason": "not now"}), ("deny", "not now")),
        (FilledForm("accept", {"decision": "always"}), ("deny", "")),
        (FilledForm("accept"), ("deny", "")),
        (FilledForm("decline", {"decision": "once"}), ("deny", "")),
    ],
)
def test_only_a_clear_yes_allows_a_command(form: FilledForm, decision: tuple[Any, str]) -> None:
    wanted = PermissionAnswer(document_id="doc_002", decision=decision[0], reason=decision[1])
    assert answer_to(wanting(), "doc_002", form) == AnswerArguments(run_id="chat_1", permissions=[wanted])


@pytest.mark.parametrize(
    ("form", "choice"), [(FilledForm("accept", {"decision": "accept"}), "accept"), (FilledForm("decline"), "reject")]
)
def test_a_plan_is_decided(form: FilledForm, choice: Any) -> None:
    assert answer_to(PLAN, "doc_002", form) == AnswerArguments(run_id="chat_1", plan=choice)


def test_without_a_decision_there_is_no_answer_unless_nobody_else_is_asked() -> None:
    assert answer_to(wanting(), "doc_002", FilledForm("cancel")) is None
    assert answer_to(wanting(), "doc_003", FilledForm("accept")) is None
    for form in (FilledForm("decline"), FilledForm("cancel")):
        assert answer_to(asking(), "doc_002", form) is None
        final = answer_to(asking(), "doc_002", form, is_final=True)
        assert final is not None
        assert final.answers is not None
        assert "did not want to answer" in final.answers[0].text
    denied = answer_to(wanting(), "doc_002", FilledForm("cancel"), is_final=True)
    assert denied is not None
    assert denied.permissions == [PermissionAnswer(document_id="doc_002", decision="deny")]


def test_what_is_no_form_is_no_decision() -> None:
    assert read_form({"action": "accept", "content": {"a": 1}}) == FilledForm("accept", {"a": 1})
    assert read_form({"action": "perhaps"}) == read_form(None) == FilledForm("cancel")


def test_a_question_that_is_not_decided_yet_is_known() -> None:
    running = command("npm test", permission=documents.PermissionRequest(subject="npm", rules=[]), state="running")
    assert has_questions(asking())
    assert has_questions(response(running, status="streaming").whole)
    assert not has_questions(response(running).whole)
    assert not has_questions(response(command("npm test", state="running"), status="streaming").whole)
