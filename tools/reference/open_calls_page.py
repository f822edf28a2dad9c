"""The tables of `runs/calls.py` as a page."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from cursor_gateway.runs.calls import PHASES, QUESTIONS, TOOL_CALLS
from tools.reference.markdown import page, table

_State = TypeVar("_State", bound=StrEnum)
_Input = TypeVar("_Input", bound=StrEnum)
_Action = TypeVar("_Action", bound=StrEnum)

_INTRODUCTION = """
An agent can stop and wait: it calls one of the caller's tools, asks a question, or wants its plan accepted.
Each of these is a call. These tables list all that can happen to a call and to the run; an empty cell is no change.
A *detached* call is one for which the agent does not wait: its answer is *owed*, and opens the agent's next turn.
"""


def open_calls_page() -> str:
    return page(
        "What a run waits for",
        _INTRODUCTION,
        "## A call of one of the caller's tools",
        matrix(TOOL_CALLS),
        "## A question, a plan or a permission",
        matrix(QUESTIONS),
        "## The run",
        matrix(PHASES),
    )


def matrix(rows: Mapping[_State, Mapping[_Input, tuple[_State, Sequence[_Action]]]]) -> str:
    """A row for each input, a column for each state that has any."""
    states = [state for state, row in rows.items() if row]
    inputs = list(dict.fromkeys(input for row in rows.values() for input in row))
    return table(
        ["", *(f"**{state.value}**" for state in states)],
        [[input.value, *(_cell(rows[state].get(input)) for state in states)] for input in inputs],
    )


def _cell(found: tuple[_State, Sequence[_Action]] | None) -> str:
    if found is None:
        return ""
    state, actions = found
    return "; ".join([f"→ {state.value}", *(action.value for action in actions)])
