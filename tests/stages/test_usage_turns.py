"""A turn is what the model says and calls, up to the results it is given; the agent's own name of a turn decides."""

from collections.abc import Callable

import pytest

from cursor_gateway.stages.usage import Turns

says: Callable[[Turns], None] = Turns.output
ends: Callable[[Turns], None] = Turns.end


def calls(model_call: str | None) -> Callable[[Turns], None]:
    return lambda turns: turns.tool(model_call)


COUNTS: dict[str, tuple[list[Callable[[Turns], None]], int]] = {
    "nothing": ([], 0),
    "text": ([says, says], 1),
    "a call after text": ([says, calls("m"), ends], 1),
    "text after a call": ([says, calls("m"), ends, says], 2),
    "two calls of one turn, one after the other": ([calls("m"), ends, calls("m"), ends], 1),
    "calls of two turns": ([calls("m"), ends, calls("n"), ends], 2),
    "two calls at once that nobody named": ([calls(None), calls(None), ends, ends], 1),
    "a call that nobody has named yet": ([calls("m"), ends, calls(None)], 2),
    "a call that is named afterwards, of the same turn": ([calls("m"), ends, calls(None), calls("m"), ends], 1),
    "a call that is named afterwards, of another turn": ([calls("m"), ends, calls(None), calls("n"), ends], 2),
}


@pytest.mark.parametrize(("steps", "count"), COUNTS.values(), ids=COUNTS)
def test_turns_are_counted(steps: list[Callable[[Turns], None]], count: int) -> None:
    turns = Turns()
    for step in steps:
        step(turns)
    assert turns.count == count


@pytest.mark.parametrize(
    ("steps", "is_open"), [([], False), ([says], True), ([says, calls("m")], True), ([calls("m"), ends], False)]
)
def test_a_turn_is_open_until_the_model_is_given_results(steps: list[Callable[[Turns], None]], is_open: bool) -> None:
    turns = Turns()
    for step in steps:
        step(turns)
    assert turns.is_open == is_open


def test_another_agent_begins_another_turn() -> None:
    turns = Turns()
    turns.output()
    turns.end()
    turns.output()
    assert turns.count == 2
