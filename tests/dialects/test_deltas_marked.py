"""Text of the gateway's own: it is recognized when it comes back, and the agent's words are left as they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.dialects.deltas import marked, question_of, refusal_line, without_marked
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    Metadata,
    PermissionRequest,
    RefusedCall,
    TextMetadata,
    make_document,
)

QUESTION = ClarificationQuestion(
    id="q", text="Which one?", options=[ClarificationOption(id="a", label="A"), ClarificationOption(id="b", label="B")]
)
OPEN = ClarificationMetadata(questions=[QUESTION, ClarificationQuestion(id="r", text="Why?", options=[])])


@given(st.text(alphabet="ab\n▸ "), st.text(alphabet="ab\n▸ "))
def test_the_agents_text_comes_back(text: str, question: str) -> None:
    assert without_marked(text) == text
    assert without_marked(marked(question)) == ""
    assert without_marked(f"\n {marked(question)}") == ""


def call(number: int, subject: str = "npm test", *, can_allow: bool = True, url: bool = True) -> RefusedCall:
    link = f"/#/c/conv_1/chat_1/doc_{number:03d}" if can_allow else UNSET
    address = f"http://127.0.0.1:8787{link}" if link and url else UNSET
    return RefusedCall(document=f"doc_{number:03d}", subject=subject, link=link, url=address)


def test_a_line_says_what_was_not_run_and_where_to_allow_it() -> None:
    where = "http://127.0.0.1:8787/#/c/conv_1/chat_1/doc_002"
    line = f"The agent was not allowed to run `npm test`. Allow it: {where}"
    assert refusal_line([call(1, can_allow=False), call(2)]) == marked(line)
    assert "`npm test` (and 2 more). Allow it: " in refusal_line([call(2), call(3), call(4)])
    path = "Allow it: on the gateway's page, at /#/c/conv_1/chat_1/doc_002"
    assert refusal_line([call(2, url=False)]).endswith(path)
    assert refusal_line([call(2, can_allow=False)]) == refusal_line([]) == ""


def test_a_line_is_one_line_however_long_the_command_is() -> None:
    line = refusal_line([call(2, "echo `date`\nrm  -rf " + "x" * 1000)])
    assert "`echo 'date' rm -rf xxx" in line
    assert "\n" not in line
    assert len(line) < 300


@given(st.text(alphabet="ab\n▸ "))
def test_a_last_line_is_taken_off_an_answer_that_comes_back(text: str) -> None:
    line = refusal_line([call(2)])
    assert without_marked(f"{text}\n\n{line}") == text.rstrip()
    assert without_marked(f"{text}\n{line}\n").strip() == text.strip()
    quoted = f"a{line}"  # not on a line of its own
    assert without_marked(quoted) == quoted
    assert without_marked(f"a\n{line}\nb") == f"a\n{line}\nb"


ANSWER = ClarificationAnswer(question_id="q", selected_option_ids=["a"])


@pytest.mark.parametrize(
    ("metadata", "asked"),
    [
        (OPEN, "Which one?\n- A\n- B\n\nWhy?"),
        (ClarificationMetadata(questions=[QUESTION], answers=[ANSWER]), ""),
        (ClarificationMetadata(questions=[QUESTION], permission=PermissionRequest(subject="npm test", rules=[])), ""),
        (TextMetadata(), ""),
    ],
)
def test_only_a_question_that_the_next_message_can_answer_is_open(metadata: Metadata, asked: str) -> None:
    assert question_of(make_document("doc_001", 1, None, metadata)) == asked
