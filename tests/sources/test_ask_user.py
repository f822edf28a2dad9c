"""The gateway's own tool for questions."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.agent_events import Question
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.prompting.structured import violation
from cursor_gateway.sources.cursor import ask_user
from cursor_gateway.sources.cursor.tools import read_call

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda some: (
        st.lists(some, max_size=4) | st.dictionaries(st.sampled_from(["question", "prompt", "options", "label"]), some)
    ),
    max_leaves=12,
)
DATABASE = {"question": "Which database?", "options": ["SQLite", "PostgreSQL"]}


def asked(arguments: dict[str, Any]) -> Question:
    made = ask_user.question_arguments(arguments, "ask_1")
    assert made is not None
    question = read_call("askQuestion", made)
    assert isinstance(question, Question)
    return question


def test_a_call_is_a_question_as_the_agents_own_tool_asks_it() -> None:
    arguments = {"title": "Storage", "questions": [DATABASE, {"question": "Why?"}, {**DATABASE, "multiple": True}]}
    assert violation(arguments, ask_user.ASK_USER.parameters) == ""
    question = asked(arguments)
    assert (question.tool, question.title) == ("ask_question", "Storage")
    assert [(one.id, one.text, bool(one.allow_multiple)) for one in question.questions] == [
        ("ask_1_1", "Which database?", False),
        ("ask_1_2", "Why?", False),
        ("ask_1_3", "Which database?", True),
    ]
    assert [(option.id, option.label) for option in question.questions[0].options] == [
        ("1", "SQLite"),
        ("2", "PostgreSQL"),
    ]
    assert question.questions[1].options == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"question": "Which database?", "options": ["SQLite", "PostgreSQL"]},
        {"questions": [{"prompt": "Which database?", "options": [{"label": "SQLite"}, {"id": "PostgreSQL"}]}]},
        {"questions": [{"text": "Which database?", "options": ["SQLite", "SQLite", "", 7, {"text": "PostgreSQL"}]}]},
    ],
)
def test_what_models_send_instead_is_understood(arguments: dict[str, Any]) -> None:
    (question,) = asked(arguments).questions
    assert question.text == "Which database?"
    assert [option.label for option in question.options] == ["SQLite", "PostgreSQL"]


def test_a_call_without_a_question_asks_nothing() -> None:
    assert ask_user.question_arguments({}, "ask_1") is None
    assert [one.text for one in asked({"questions": ["Why?", {"question": "How?"}, 7]}).questions] == ["Why?", "How?"]
    assert ask_user.question_arguments({"questions": [{"question": ""}, {"options": ["a"]}]}, "ask_1") is None


@given(st.dictionaries(st.sampled_from(["title", "questions", "question", "options", "multiple"]), values))
def test_any_arguments_are_understood_or_refused(arguments: dict[str, Any]) -> None:
    made = ask_user.question_arguments(arguments, "ask_1")
    if made is not None:
        question = read_call("askQuestion", made)
        assert isinstance(question, Question)
        assert question.questions
        assert len({one.id for one in question.questions}) == len(question.questions)


def test_whoever_runs_a_turn_is_asked() -> None:
    async def ask(arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(text=f"asked {arguments}")

    tool = ask_user.UserTool("user_1")
    assert asyncio.run(tool.call("ask_user", {})) is ask_user.NOBODY
    tool.ask = ask
    assert asyncio.run(tool.call("ask_user", {})).text == "asked {}"
    assert asyncio.run(tool.call("other", {})) is ask_user.NOBODY
    other = ask_user.UserTool("user_1", "ask_user_7")
    other.ask = ask
    assert [asyncio.run(other.call(name, {})) is ask_user.NOBODY for name in ("ask_user", "ask_user_7")] == [
        True,
        False,
    ]
    assert [one.name for tool in (tool, other) for one in tool.tools] == ["ask_user", "ask_user_7"]
    assert [tool.is_called_by(name) for name in ("user_1", "session-user_1", "xuser_1", "", "user_2")] == [
        *(True, True, False, False, False)
    ]


def test_the_agent_reads_each_question_with_its_answer() -> None:
    question = asked({"questions": [DATABASE, {"question": "Why?"}]})
    answers = [
        ClarificationAnswer(question_id="ask_1_1", selected_option_ids=["2"]),
        ClarificationAnswer(question_id="ask_1_2", selected_option_ids=[], text="It is there."),
    ]
    result = ask_user.answer_result(question, answers)
    assert result.text == "Which database?\n- PostgreSQL\n\nWhy?\n- It is there."
    assert not result.is_error
    assert ask_user.answer_result(question, None) is ask_user.NOBODY
    told = [{"questionId": "ask_1_1", "selectedOptionIds": ["2"]}]
    told.append({"questionId": "ask_1_2", "selectedOptionIds": [], "freeText": "It is there."})
    assert ask_user.encoded_result(answers) == {"success": {"answers": told}}
    assert ask_user.encoded_result(None) == {"rejected": {"reason": ask_user.SKIPPED}}
