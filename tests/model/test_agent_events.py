"""Adjacent deltas are merged, and nothing else changes; tokens are added."""

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.agent_events import (
    AgentEvent,
    CommandOutput,
    TextDelta,
    ThinkingDelta,
    ThinkingEnded,
    TokenCounts,
    merge_deltas,
)

events = st.lists(
    st.one_of(st.builds(TextDelta, st.text()), st.builds(ThinkingDelta, st.text()), st.just(ThinkingEnded()))
)


def test_adjacent_deltas_of_a_kind_are_one() -> None:
    given: list[AgentEvent] = [TextDelta("a"), TextDelta("b"), ThinkingDelta("c"), ThinkingEnded(), TextDelta("d")]
    assert merge_deltas(given) == [TextDelta("ab"), *given[2:]]
    assert merge_deltas([]) == []


def test_adjacent_outputs_of_one_command_are_one() -> None:
    pieces = [CommandOutput("1", "a"), CommandOutput("1", "b"), CommandOutput("2", "c")]
    given: list[AgentEvent] = [*pieces, TextDelta("d")]
    assert merge_deltas(given) == [CommandOutput("1", "ab"), *given[2:]]


@given(events)
def test_merging_changes_no_text_and_no_order(some: list[AgentEvent]) -> None:
    merged = merge_deltas(some)
    assert merge_deltas(merged) == merged
    assert _characters(merged) == _characters(some)


def _characters(events: list[AgentEvent]) -> list[object]:
    found: list[object] = []
    for event in events:
        if isinstance(event, TextDelta | ThinkingDelta):
            found += [(type(event), one) for one in event.text]
        else:
            found.append(event)
    return found


def test_tokens_are_added_and_subtracted() -> None:
    one = TokenCounts(prompt=1, completion=2, cached=3, reasoning=4)
    other = TokenCounts(prompt=10, completion=20, cached=30, reasoning=40)
    assert one.plus(other) == TokenCounts(prompt=11, completion=22, cached=33, reasoning=44)
    assert one.plus(other).plus(one, -1) == other
