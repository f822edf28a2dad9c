"""The last model call's context, out of sums over all calls: exact for one call, always possible, close for several."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.agent_events import Action, Command, FileEdit, OtherTool, Plan, Question, TodoUpdate
from cursor_gateway.model.document_events import Done
from cursor_gateway.model.documents import (
    ClarificationOption,
    ClarificationQuestion,
    Diff,
    Envelope,
    ResponseMetadata,
    TodoChange,
    Usage,
)
from cursor_gateway.stages import usage as context_size
from cursor_gateway.stages.tokens import estimate_tokens

# --- the formula ------------------------------------------------------------------------------------

grown = st.lists(st.integers(0, 50_000), max_size=30).map(
    lambda steps: [0, *(sum(steps[: number + 1]) for number in range(len(steps)))]
)


@given(total=st.integers(0, 10**9))
def test_one_call_read_all_of_it(total: int) -> None:
    assert context_size.last_context(total, [0]) == total


@given(total=st.integers(0, 10**7), added=grown)
def test_the_last_call_read_what_was_added_and_no_more_than_all(total: int, added: list[int]) -> None:
    found = context_size.last_context(total, added)
    assert min(total, added[-1]) <= found <= total
    assert found >= total // len(added)  # a context that only grows is last what it is on average, at least


@given(total=st.integers(0, 10**7), more=st.integers(0, 10**6), added=grown)
def test_more_tokens_in_all_are_no_smaller_context(total: int, more: int, added: list[int]) -> None:
    assert context_size.last_context(total, added) <= context_size.last_context(total + more, added)


@given(base=st.integers(1000, 100_000), added=grown, percent=st.integers(70, 130))
def test_an_error_in_the_estimates_counts_less_than_it_is(base: int, added: list[int], percent: int) -> None:
    guessed = [size * percent // 100 for size in added]
    true = base + added[-1]
    found = context_size.last_context(sum(base + size for size in added), guessed)
    assert abs(found - true) <= abs(guessed[-1] - added[-1]) + 2


def test_what_broke_clients() -> None:
    """240,000 tokens over ten calls are a conversation of 24,000 and a little, not one of 240,000."""
    added = [500 * number for number in range(10)]
    assert context_size.last_context(240_000, added) == 26_250


# --- following a run --------------------------------------------------------------------------------


def test_a_run_of_one_call_is_exact() -> None:
    context = context_size.ContextSize()
    assert context.reported(900, 1) == 900
    assert context.is_exact


def test_several_calls_share_what_was_read() -> None:
    context = context_size.ContextSize()
    context.grow(100, 1)
    context.grow(200, 2)
    assert context.reported(3400, 3) == 1300  # base + 0, base + 100, base + 300
    assert not context.is_exact


def test_without_figures_a_call_read_the_prompt_and_what_was_added() -> None:
    context = context_size.ContextSize()
    assert context.estimated(70, 1) == 70
    context.grow(30, 1)
    assert context.estimated(70, 2) == 100
    context.restart(2)
    context.grow(11, 2)
    assert context.estimated(70, 2) == 111  # an agent that has not spoken yet


@given(
    steps=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 2), st.booleans()), max_size=20),
    total=st.integers(0, 10**6),
)
def test_whatever_happens_the_context_only_grows(steps: list[tuple[int, int, bool]], total: int) -> None:
    context, calls, contexts = context_size.ContextSize(), 0, [0]
    for tokens, more, restarts in steps:
        calls += more
        context.grow(tokens, calls)
        contexts.append(context.estimated(0, calls))
        if restarts:
            context.restart(calls)
    assert contexts == sorted(contexts)
    assert 0 <= context.reported(total, calls + 1) <= total


# --- what a tool adds -------------------------------------------------------------------------------

WORDS = "several words of ten letters or fewer "
QUESTION = ClarificationQuestion(id="q", text=WORDS * 5, options=[ClarificationOption(id="o", label="Yes")])
ACTIONS: dict[str, tuple[Action, str]] = {
    "a command": (Command(tool="x", command="make all", output=WORDS * 9), "make all" + WORDS * 9),
    "a new file": (FileEdit(tool="x", path="a.py", operation="create", content=WORDS * 9), WORDS * 9),
    "an edit": (
        FileEdit(
            tool="x",
            path="a.py",
            operation="edit",
            content=WORDS * 4,
            diff=Diff(old_string=WORDS * 3, new_string=WORDS * 4, start_line=1, end_line=1),
        ),
        WORDS * 7,
    ),
    "a plan": (Plan(tool="x", title="", overview="", markdown=WORDS * 9, todos=[]), WORDS * 9),
    "a question": (Question(tool="x", title="", questions=[QUESTION]), WORDS * 5),
    "to-dos": (TodoUpdate(tool="x", todos=[TodoChange(id="1", status="pending", content=WORDS * 9)]), WORDS * 9),
    "a tool with a text": (OtherTool(tool="x", arguments={"a": WORDS * 3}, data=WORDS * 9), WORDS * 12),
    "a tool with data": (OtherTool(tool="x", arguments={}, data={"found": [WORDS * 3, WORDS * 6]}), WORDS * 9),
}


@pytest.mark.parametrize(("action", "text"), ACTIONS.values(), ids=ACTIONS)
def test_a_call_adds_its_arguments_and_its_result(action: Action, text: str) -> None:
    expected = estimate_tokens(text)
    assert expected <= sum(context_size.tool_tokens(action)) <= expected + 25  # the names of the fields


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("Claude Sonnet 5 1M  Thinking", 1_000_000),
        ("claude-opus-4-8[context=1m,effort=high]", 1_000_000),
        ("gpt-5[effort=high,context=256k]", 256_000),
        ("GPT 5 272K", 272_000),
        ("claude-4.5-sonnet", None),
        ("gpt-5-1m", None),  # which may be anything
        ("auto", None),
    ],
)
def test_the_window_of_a_model_is_known_if_its_name_says_so(model: str, window: int | None) -> None:
    assert context_size.window_of(model) == window


def test_the_use_of_the_context_is_known_if_the_agent_reports_its_tokens() -> None:
    reported = Usage(prompt_tokens=900, completion_tokens=100, total_tokens=1000)
    last = Usage(prompt_tokens=350, completion_tokens=50, total_tokens=400, estimated=True)
    assert context_size.context_use(done(reported)) == context_size.ContextUse(1000)
    assert context_size.context_use(done(reported, last, "Sonnet 1M")) == context_size.ContextUse(400, 1_000_000, True)
    assert context_size.context_use(done(msgspec.structs.replace(reported, estimated=True))) is None
    assert context_size.context_use(done(Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0))) is None


def done(usage: Usage, last: Usage | None = None, model: str = "auto") -> Done:
    metadata = ResponseMetadata(duration_ms=0, tool_call_count=0, turn_count=1)
    envelope = Envelope(
        id="",
        conversation_id="",
        model=model,
        mode="agent",
        created="",
        status="completed",
        usage=usage,
        metadata=metadata,
    )
    return Done(envelope, last_call=last)
