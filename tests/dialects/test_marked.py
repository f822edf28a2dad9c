"""Text of the gateway's own: it is recognized when it comes back, and the agent's words are left as they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.marked import marked, question_of, without_marked
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    Metadata,
    PermissionRequest,
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
