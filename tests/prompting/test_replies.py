"""Answers to questions and plans, as the agent is told them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from cursor_gateway.errors import InvalidRequest, NotFound
from cursor_gateway.model import documents
from cursor_gateway.model.answers import Decision, Permission
from cursor_gateway.prompting.replies import (
    answers_message,
    decisions_in,
    permission_of,
    permissions_message,
    plan_message,
    with_later_answers,
)

FILE = documents.ClarificationQuestion(
    id="file",
    text="Which file?",
    options=[
        documents.ClarificationOption(id="a", label="notes.txt"),
        documents.ClarificationOption(id="b", label="other.txt"),
    ],
)
WHY = documents.ClarificationQuestion(id="why", text="Why?", options=[])


def asked(*questions: documents.ClarificationQuestion) -> list[documents.Document]:
    return [
        documents.make_document("doc_001", 1, "Hello.", documents.TextMetadata()),
        documents.make_document("doc_002", 2, None, documents.ClarificationMetadata(questions=list(questions))),
    ]


def answer(question: str, *options: str, text: str = "") -> documents.ClarificationAnswer:
    return documents.ClarificationAnswer(question_id=question, selected_option_ids=list(options), text=text)


def test_answers_stand_below_their_questions() -> None:
    several = replace(FILE, allow_multiple=True)
    result = answers_message(asked(several, WHY), [answer("file", "b", "a", text="and all of src"), answer("why")])
    assert result == "Which file?\n- other.txt\n- notes.txt\n- and all of src\n\nWhy?\n- (no answer)"


@pytest.mark.parametrize(
    ("given", "param", "there"),
    [
        (answer("other", "a"), "answers[0].questionId", "choose from file, why"),
        (answer("file", "c"), "answers[0].selectedOptionIds", "there are a, b"),
        (answer("file", "a", "b"), "answers[0].selectedOptionIds", "takes one option, not 2"),
        (answer("why", "c"), "answers[0].selectedOptionIds", "send `text`"),
    ],
)
def test_answers_to_something_else_are_refused(given: documents.ClarificationAnswer, param: str, there: str) -> None:
    with pytest.raises(InvalidRequest, match=there) as refused:
        answers_message(asked(FILE, WHY), [given])
    assert refused.value.param == param


def test_a_run_that_has_asked_nothing_takes_no_answer() -> None:
    with pytest.raises(NotFound, match="no question to answer"):
        answers_message(asked(), [answer("file", "a")])


def planned(*titles: str) -> list[documents.Document]:
    return [
        documents.make_document(
            f"doc_{number:03d}", number, "# Plan", documents.PlanMetadata(title=title, overview="", todos=[])
        )
        for number, title in enumerate(titles, 1)
    ]


def test_a_plan_is_accepted_or_not() -> None:
    assert plan_message(planned("Old", "Move"), "accept", "") == "I accept the plan “Move”. Carry it out now."
    assert (
        plan_message(planned(""), "reject", "Too long.") == "I do not accept the plan. Make another one.\n\nToo long."
    )
    with pytest.raises(NotFound, match="no plan"):
        plan_message(asked(FILE), "accept", "")


def test_a_decision_about_commands_is_described_with_them() -> None:
    npm = documents.PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    several = documents.PermissionRequest(subject="cd a\nls", rules=["Shell(cd)", "Shell(ls)"])
    assert permissions_message([(npm, Permission("once")), (several, Permission("workspace"))]) == (
        "You may run this once:\n\n    npm test\n\nRun it now, then continue.\n\n"
        "You may run this from now on:\n\n    cd a\n    ls\n\nRun it now, then continue."
    )
    denied = "Do not run this:\n\n    npm test\n\nContinue without it."
    assert permissions_message([(npm, Permission("deny"))]) == denied
    assert permissions_message([(npm, Permission("deny", "Use pnpm."))]) == f"{denied} Use pnpm."


def test_a_message_about_decisions_is_read_back_as_sentences() -> None:
    npm = documents.PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    several = documents.PermissionRequest(subject="cd a\nls", rules=["Shell(cd)", "Shell(ls)"])
    decided = [
        (npm, Permission("once")),
        (several, Permission("workspace")),
        (npm, Permission("deny")),
        (npm, Permission("deny", "Use pnpm.\n\nOr yarn.")),
    ]
    assert decisions_in(permissions_message(decided)) == [
        "You allowed `npm test` once.",
        "You allowed `cd a` … from now on.",
        "You denied `npm test`.",
        "You denied `npm test`: Use pnpm.\n\nOr yarn.",
    ]
    for other in ("", "Run npm test.", f"{permissions_message(decided[:1])} And then?", "You may run this once:\n\n"):
        assert decisions_in(other) == []


@given(st.lists(st.tuples(st.text(), st.sampled_from(["once", "workspace", "deny"])), min_size=1))
def test_any_decisions_are_read_back(decided: list[tuple[str, Decision]]) -> None:
    requests = [
        (documents.PermissionRequest(subject=text, rules=[]), Permission(decision)) for text, decision in decided
    ]
    verbs = {"once": "once.", "workspace": "from now on.", "deny": "You denied"}
    found = decisions_in(permissions_message(requests))
    assert len(found) == len(decided)
    assert all(verbs[decision] in sentence for sentence, (_, decision) in zip(found, decided, strict=True))


@pytest.mark.parametrize("decision", ["once", "conversation", "workspace", "deny"])
def test_a_permission_is_an_option(decision: Decision) -> None:
    assert permission_of(answer("permission", decision)) == Permission(decision)


def test_words_are_the_reason_of_a_denial_and_nothing_else() -> None:
    assert permission_of(replace(answer("permission", "deny"), text="No.")) == Permission("deny", "No.")
    with pytest.raises(InvalidRequest, match="only be sent with `deny`"):
        permission_of(replace(answer("permission", "once"), text="Go."))
    for unclear in (replace(answer("permission"), text="Yes!"), answer("permission"), answer("permission", "yes")):
        with pytest.raises(InvalidRequest, match="text` alone is no decision"):
            permission_of(unclear, 1)


# --- answers that came later ------------------------------------------------------------------------

BOTH = [
    documents.ClarificationAnswer(question_id="file", selected_option_ids=["a"]),
    documents.ClarificationAnswer(question_id="why", selected_option_ids=[], text="Because.\n- First\n\nSecond"),
]


def unanswered(*questions: documents.ClarificationQuestion) -> documents.ClarificationDocument:
    metadata = documents.ClarificationMetadata(questions=list(questions), state="unanswered", reason="Went on.")
    return documents.ClarificationDocument(id="doc_001", sequence=1, content=None, metadata=metadata)


@pytest.mark.parametrize(
    "answers",
    [
        BOTH,
        BOTH[::-1],
        BOTH[:1],
        [replace(BOTH[0], selected_option_ids=["a", "b"], text="Or others")],
        [replace(BOTH[0], selected_option_ids=[], text="Something else")],
    ],
)
def test_later_answers_are_found_again(answers: list[documents.ClarificationAnswer]) -> None:
    asked = unanswered(replace(FILE, allow_multiple=True), WHY)
    message = answers_message([asked], answers)
    (found,) = with_later_answers([asked], ["Hello", message])
    assert isinstance(found, documents.ClarificationDocument)
    assert sorted(found.metadata.answers or [], key=str) == sorted(answers, key=str)
    assert (found.metadata.state, found.metadata.reason) == (UNSET, UNSET)


def test_other_messages_answer_nothing() -> None:
    asked = unanswered(FILE, WHY)
    nothing = answers_message([asked], [documents.ClarificationAnswer(question_id="why", selected_option_ids=[])])
    assert with_later_answers([asked], ["Which file is meant?", nothing]) == [asked]


def test_only_unanswered_questions_are_looked_at() -> None:
    waiting = replace(unanswered(FILE), metadata=documents.ClarificationMetadata(questions=[FILE], state="waiting"))
    text = documents.TextDocument(id="doc_002", sequence=2, content="x", metadata=documents.TextMetadata())
    message = answers_message([waiting], BOTH[:1])
    assert with_later_answers([waiting, text], [message]) == [waiting, text]
