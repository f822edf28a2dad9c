"""Deltas: what any text dialect is made of."""

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from cursor_gateway.dialects.deltas import (
    AgentTools,
    AnswerFold,
    AnswerText,
    Called,
    Delta,
    Ended,
    Noted,
    OpenQuestion,
    Thought,
    Translator,
    WholeAnswer,
    action_text,
    add_usage,
    refusal_line,
)
from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model import documents
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEvent,
    DocumentStarted,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
)
from cursor_gateway.model.messages import ToolCall
from cursor_gateway.stages.cutting import Cutter
from tests.dialects.runs import USAGE, done, ended, paused, words

RESULT = documents.ToolCallResult(status="success", data=None)
COMMAND = documents.TerminalCommandMetadata(command="ls", exit_code=0, output="", duration_ms=1, permissions=[])
PLAN = documents.PlanMetadata(title="All", overview="", todos=[])


def deltas(events: list[DocumentEvent], agent_tools: AgentTools = "reasoning") -> list[Delta]:
    translator = Translator("0123456789abcdef0123456789abcdef", agent_tools)
    return [delta for event in events for delta in translator.push(event)]


def test_the_agents_text_is_content_and_the_end_has_the_usage() -> None:
    assert deltas([*words("Hi ", "you"), ToolCallArguments("doc_002", {}), done()]) == [
        AnswerText("Hi "),
        AnswerText("you"),
        Ended(USAGE, USAGE),
    ]


def test_a_failed_run_ends_with_its_failure() -> None:
    failure = AgentCrashed("It crashed.").failure()
    assert deltas([done(failure)]) == [Ended(USAGE, USAGE, failure)]


def test_thinking_is_reasoning_in_blocks() -> None:
    events: list[DocumentEvent] = [
        DocumentStarted("doc_001", "thinking", 1),
        ContentDelta("doc_001", "one", raw=""),
        Reasoning("two\n", opens=True),
        Reasoning("three"),
        DocumentStarted("doc_002", "thinking", 2),
    ]
    assert "".join(delta.text for delta in deltas(events) if isinstance(delta, Thought)) == "one\n\ntwo\nthree\n\n"
    assert deltas([Reasoning("one\n"), Reasoning("two", opens=True)])[1] == Thought("\n")


def test_thinking_that_a_dialect_encodes_itself_counts() -> None:
    translator = Translator("run", "reasoning")
    translator.note_reasoning("one")
    assert translator.push(Reasoning("two", opens=True))[0] == Thought("\n\n")


def test_a_reply_says_why_its_run_failed_and_what_followed_its_last_action() -> None:
    fold, failure = AnswerFold("run", "none"), AgentCrashed().failure()
    for event in (
        *words("I look."),
        DocumentStarted("doc_002", "terminal_command", 2),
        *words("Found."),
        done(failure),
    ):
        fold.push(event)
    assert fold.failure == failure
    assert (answer := fold.answer()) is not None
    assert (answer.text, answer.last) == ("I look.Found.", "Found.")


def readable(*events: DocumentEvent) -> str:
    translator = Translator("run", "none", text="readable")
    return "".join(delta.text for event in events for delta in translator.push(event) if isinstance(delta, AnswerText))


def test_readable_text_has_a_blank_line_where_a_tool_call_was() -> None:
    tool = DocumentStarted("doc_002", "terminal_command", 2)
    assert readable(*words("Hi", "you"), tool, *words("Done", ".")) == "Hiyou\n\nDone."
    assert readable(*words("Hi "), tool, *words("Done")) == "Hi Done"
    assert readable(*words("Hi"), tool, *words("\nDone")) == "Hi\nDone"
    assert readable(tool, *words("Done")) == "Done"
    assert readable(*words("Hi"), DocumentStarted("doc_002", "error", 2), *words("Done")) == "HiDone"


REFUSED = documents.RefusedCall(document="doc_001", subject="npm test", link="/#/c/conv_1/chat_1/doc_001")
NOTE = refusal_line([REFUSED])


def test_a_readable_text_ends_with_what_was_not_run() -> None:
    translator = Translator("run", "none", text="readable")
    said = [*words("Hi"), done(refused=[REFUSED])]
    end = Ended(USAGE, USAGE, refused_count=1, refused=(REFUSED,))
    assert [delta for event in said for delta in translator.push(event)] == [AnswerText("Hi"), Noted(NOTE), end]
    assert deltas(said) == [AnswerText("Hi"), end]  # data in any case
    failed = done(AgentCrashed("It crashed.").failure(), [REFUSED])
    assert not any(isinstance(delta, Noted) for delta in Translator("run", "none", text="readable").push(failed))


def test_the_last_line_is_no_part_of_what_is_cut() -> None:
    fold = AnswerFold("run", cutter=Cutter(("npm",), None), text="readable")
    for event in (*words("Hi"), done(refused=[REFUSED])):
        fold.push(event)
    answer = fold.answer()
    assert answer is not None
    assert answer.text == f"Hi\n\n{NOTE}"
    cut = AnswerFold("run", cutter=Cutter(("i",), None), text="readable")
    for event in (*words("Hi"), done(refused=[REFUSED])):
        cut.push(event)
    assert (answer := cut.answer()) is not None
    assert answer.text == "H"


def test_a_pause_asks_for_its_calls_and_ends_the_reply() -> None:
    call = ToolCall("k", "look", '{"a":1}')
    assert deltas([paused("k")]) == [Called(0, call), Ended(USAGE, reason="tool_calls")]
    mixed = deltas([ended(COMMAND), paused("k")], "tool_calls")
    assert [delta.index for delta in mixed if isinstance(delta, Called)] == [0, 1]


def test_live_output_says_nothing() -> None:
    assert deltas([TerminalOutput("doc_001", "x")]) == []


def test_the_agents_own_tools_are_lines_of_reasoning() -> None:
    first, second = deltas([Reasoning("hm"), ended(COMMAND)])
    assert first == Thought("hm")
    assert isinstance(second, Thought)
    assert second.text.startswith("\n")
    assert second.text.endswith("\n")
    (plan,) = deltas([ended(PLAN, "Do it.")])
    assert isinstance(plan, Thought)
    assert plan.text.endswith("\n\nDo it.\n")
    assert deltas([ended(documents.TextMetadata(), "Hi")]) == []
    assert action_text(ended(documents.TextMetadata(), "Hi").document) is None
    assert deltas([ended(COMMAND)], "none") == []


@pytest.mark.parametrize("agent_tools", ["reasoning", "tool_calls"])
def test_what_the_caller_has_run_is_not_repeated(agent_tools: AgentTools) -> None:
    run = documents.ToolCallMetadata(
        tool_name="look", tool_call_id="k", arguments={}, result=RESULT, duration_ms=1, ran_by="caller"
    )
    assert deltas([ended(run)], agent_tools) == []


def cut(events: list[DocumentEvent], cutter: Cutter) -> list[Delta]:
    pushed = Translator("run", "tool_calls", cutter, 100)
    return [delta for event in events for delta in pushed.push(event)]


def test_a_cut_answer_ends_at_once_with_an_estimate() -> None:
    content, end = cut([*words("one two three")[:2]], Cutter(("two",), None))
    assert content == AnswerText("one ")
    assert isinstance(end, Ended)
    assert (end.reason, end.usage.prompt_tokens, end.usage.estimated, end.total) == ("stop", 100, True, None)


def test_what_is_held_back_is_said_before_a_call_and_before_the_end() -> None:
    events: list[DocumentEvent] = [Reasoning("hm"), *words("one t"), ended(COMMAND), done()]
    said = cut(events, Cutter(("two",), None))
    assert [type(delta) for delta in said] == [Thought, AnswerText, AnswerText, Called, Ended]
    assert "".join(delta.text for delta in said if isinstance(delta, AnswerText)) == "one t"
    assert said[-1] == Ended(USAGE, USAGE)


def test_what_is_held_back_may_be_where_the_answer_is_cut() -> None:
    said = cut([*words("one two"), ended(COMMAND), done()], Cutter((), 1))
    assert not any(isinstance(delta, Called) for delta in said)
    assert isinstance(said[-1], Ended)
    assert said[-1].reason == "length"


QUESTION = documents.ClarificationMetadata(
    questions=[documents.ClarificationQuestion(id="q", text="Which?", options=[])]
)


def test_a_question_is_not_cut_but_left_out_of_an_answer_that_is() -> None:
    ask, whole = ended(QUESTION), Translator("run", "none", Cutter(("x",), None))
    events: list[DocumentEvent] = [ask, done()]
    assert [delta for event in events for delta in whole.push(event)] == [OpenQuestion("Which?"), Ended(USAGE, USAGE)]
    cut = AnswerFold("run", "none", Cutter(("b",), None))
    for event in [ask, *words("ab"), ask, done()]:
        cut.push(event)
    assert (answer := cut.answer()) is not None
    assert (answer.text, answer.question) == ("a", "")
    fold = AnswerFold("run", "none")
    for event in events:
        fold.push(event)
    assert (answer := fold.answer()) is not None
    assert (answer.text, answer.question) == ("", "Which?")


def test_a_fold_joins_the_deltas_up_to_the_end() -> None:
    fold = AnswerFold("run", "tool_calls")
    assert (fold.is_over, fold.is_cut, fold.answer()) == (False, False, None)
    for event in [Reasoning("hm"), *words("a", "b"), ended(COMMAND), done(), *words("c")]:
        fold.push(event)
    call = ToolCall("call_run_1", "run_terminal_cmd", '{"command":"ls"}')
    assert fold.answer() == WholeAnswer("ab", "hm", (call,), Ended(USAGE, USAGE), last="ab")
    assert (fold.is_over, fold.is_cut) == (True, False)


def test_usage_is_added_up() -> None:
    first = documents.Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15, cached_tokens=70)
    second = documents.Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3, reasoning_tokens=1, estimated=True)
    assert add_usage(first, second) == documents.Usage(
        prompt_tokens=11, completion_tokens=7, total_tokens=18, cached_tokens=10, reasoning_tokens=1, estimated=True
    )


@pytest.mark.parametrize(
    ("one", "two", "both"), [(0.1, 0.2, 0.3), (0.1, UNSET, 0.1), (UNSET, 0.2, 0.2), (UNSET, UNSET, UNSET)]
)
def test_costs_that_are_known_are_added_up(
    one: float | UnsetType, two: float | UnsetType, both: float | UnsetType
) -> None:
    used = documents.Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    assert add_usage(replace(used, cost=one), replace(used, cost=two)).cost == both


def test_an_answer_is_made_of_the_same_deltas_again() -> None:
    call, end = ToolCall("k", "look", "{}"), Ended(USAGE, reason="tool_calls")
    answer = WholeAnswer("Hi", "Hm", (call,), end)
    assert answer.deltas() == [Thought("Hm"), AnswerText("Hi"), Called(0, call), end]
    assert WholeAnswer("", "", (), end).deltas() == [end]


def test_a_reply_says_why_its_run_failed() -> None:
    fold, failure = AnswerFold("run", "none"), AgentCrashed().failure()
    assert fold.error_body(failure) is None
    assert fold.failure is None
    fold.push(done(failure))
    assert fold.failure == failure
