"""The laws, on generated recordings and on agent events in any order."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.deltas import AgentTools
from cursor_gateway.model.agent_events import AgentEvent, TextDelta
from cursor_gateway.model.requests import RunInfo
from tests.laws import laws, strategies
from tests.laws.agent import Asks, Recording, Retries, Says, Starts, Step, Story, Thinks, play

_agent_tools: st.SearchStrategy[AgentTools] = st.sampled_from(["reasoning", "tool_calls", "none"])


# --- 1 ----------------------------------------------------------------------------------------------


@strategies.examples(200)
@given(strategies.recordings, strategies.runs)
def test_one_byte_at_a_time_is_the_same_as_all_at_once(recording: Recording, run: RunInfo) -> None:
    laws.assert_chunking_does_not_matter(recording.data, run)


@strategies.examples(200)
@given(strategies.torn_recordings, strategies.runs)
def test_chunking_does_not_matter_where_characters_are_cut_in_two(recording: Recording, run: RunInfo) -> None:
    laws.assert_chunking_does_not_matter(recording.data, run)


@strategies.examples(150)
@given(strategies.torn_recordings, strategies.runs, st.floats(0, 1))
def test_chunking_does_not_matter_where_the_stream_is_cut(recording: Recording, run: RunInfo, where: float) -> None:
    laws.assert_chunking_does_not_matter(recording.data[: int(where * len(recording.data))], run)


@strategies.examples(250)
@given(strategies.agent_events, strategies.runs)
def test_one_character_at_a_time_is_the_same_whatever_happens_between(events: list[AgentEvent], run: RunInfo) -> None:
    split: list[AgentEvent] = []
    for event in events:
        split += [TextDelta(character) for character in event.text] if isinstance(event, TextDelta) else [event]
    assert laws.joined(laws.assemble(split, run)) == laws.joined(laws.assemble(events, run))


# --- 2 ----------------------------------------------------------------------------------------------


@strategies.examples(400)
@given(strategies.stories, st.booleans(), strategies.runs)
def test_what_is_said_is_what_the_agent_said(story: Story, partial: bool, run: RunInfo) -> None:
    recording = play(story, partial=partial)
    events = laws.read(recording.data, run)
    laws.assert_says_exactly(recording.text, events)
    assert not laws.response_of(events).metadata.result_differs


@strategies.examples(400)
@given(strategies.torn_stories, st.booleans(), strategies.runs)
def test_characters_that_were_cut_in_two_are_whole_again(story: Story, partial: bool, run: RunInfo) -> None:
    recording = play(story, partial=partial)
    laws.assert_says_exactly(recording.text, laws.read(recording.data, run))


@strategies.examples(300)
@given(strategies.stories)
def test_partial_output_says_the_same_as_whole_segments(story: Story) -> None:
    texts = {laws.text_of(laws.read(play(story, partial=partial).data)) for partial in (True, False)}
    assert len(texts) == 1


@pytest.mark.slow  # all of the stories that the other laws take samples of
def test_every_short_story_of_one_repeated_word_is_said_exactly() -> None:
    """All of them that begin with it, up to five steps: where a delta and a repetition look the same, only what
    follows tells."""
    for length in range(5):
        for steps in product("wW", *["wWqtrk"] * length):
            story = [_short_step(step, number) for number, step in enumerate(steps)]
            recording = play(story, partial=True)
            assert laws.text_of(laws.read(recording.data)) == recording.text, story


def _short_step(step: str, number: int) -> Step:
    match step:
        case "w":
            return Says("ha")
        case "W":
            return Says("haha")
        case "q":
            return Asks(number, approves=True)
        case "t":
            return Starts(number)
        case "r":
            return Retries(forgets=True)
        case _:
            return Thinks("ha")


@strategies.examples(250)
@given(strategies.agent_events, strategies.runs)
def test_any_text_between_any_events_is_said_exactly(events: list[AgentEvent], run: RunInfo) -> None:
    texts = [event.text for event in events[: _end_of(events)] if isinstance(event, TextDelta)]
    laws.assert_says_exactly("".join(texts), laws.assemble(events, run))


# --- 3 ----------------------------------------------------------------------------------------------


@strategies.examples(500)
@given(strategies.agent_events, strategies.runs)
def test_any_events_in_any_order_give_a_well_formed_stream(events: list[AgentEvent], run: RunInfo) -> None:
    laws.assert_well_formed(laws.assemble(events, run))


@strategies.examples(250)
@given(strategies.torn_recordings, strategies.runs)
def test_any_recording_gives_a_well_formed_stream(recording: Recording, run: RunInfo) -> None:
    laws.assert_well_formed(laws.read(recording.data, run))


@strategies.examples(400)
@given(st.lists(st.one_of(st.sampled_from(list(strategies.STRANGE_LINES.values())), st.binary(max_size=9)), max_size=8))
def test_any_bytes_at_all_give_a_well_formed_stream_that_failed(lines: list[bytes]) -> None:
    events = laws.read(b"\n".join(lines))
    laws.assert_well_formed(events)
    assert laws.response_of(events).status == "error"


# --- 4 ----------------------------------------------------------------------------------------------


@strategies.examples(500)
@given(strategies.torn_recordings, strategies.runs, st.floats(0, 1))
def test_a_stream_cut_after_any_byte_says_that_it_failed(recording: Recording, run: RunInfo, where: float) -> None:
    cut = int(where * len(recording.data))
    laws.assert_a_cut_is_told(recording.data, cut, whole=recording.text, run=run)


@strategies.examples(100)
@given(strategies.recordings, strategies.runs)
def test_a_stream_cut_after_any_line_says_that_it_failed(recording: Recording, run: RunInfo) -> None:
    cut = 0
    for line in [b"", *recording.lines]:
        cut += len(line)
        laws.assert_a_cut_is_told(recording.data, cut, whole=recording.text, run=run)


# --- 5 ----------------------------------------------------------------------------------------------


@strategies.examples(300)
@given(strategies.recordings, strategies.runs)
def test_the_stream_of_a_recording_folds_to_its_response(recording: Recording, run: RunInfo) -> None:
    laws.assert_the_stream_folds_to_the_response(laws.read(recording.data, run))


@strategies.examples(400)
@given(strategies.agent_events, strategies.runs)
def test_the_stream_of_any_events_folds_to_their_response(events: list[AgentEvent], run: RunInfo) -> None:
    laws.assert_the_stream_folds_to_the_response(laws.assemble(events, run))


@strategies.examples(400)
@given(strategies.agent_events, strategies.runs)
def test_at_a_pause_there_is_what_was_reported_so_far(events: list[AgentEvent], run: RunInfo) -> None:
    laws.assert_a_pause_is_what_there_is(laws.assemble(events, run))


# --- 6 ----------------------------------------------------------------------------------------------


@strategies.examples(300)
@given(strategies.recordings, strategies.runs, _agent_tools, st.booleans())
def test_the_chunks_of_a_recording_fold_to_its_completion(
    recording: Recording, run: RunInfo, agent_tools: AgentTools, usage: bool
) -> None:
    events = laws.read(recording.data, run)
    laws.assert_the_chunks_fold_to_the_completion(events, agent_tools=agent_tools, include_usage=usage)


@strategies.examples(400)
@given(strategies.agent_events, strategies.runs, _agent_tools, st.booleans())
def test_the_chunks_of_any_events_fold_to_their_completion(
    events: list[AgentEvent], run: RunInfo, agent_tools: AgentTools, usage: bool
) -> None:
    laws.assert_the_chunks_fold_to_the_completion(
        laws.assemble(events, run), agent_tools=agent_tools, include_usage=usage
    )


@strategies.examples(300)
@given(strategies.agent_events, strategies.runs)
def test_readable_text_has_blank_lines_between_tools(events: list[AgentEvent], run: RunInfo) -> None:
    laws.assert_readable_text_has_blank_lines_between_tools(laws.assemble(events, run))


# --- 7 ----------------------------------------------------------------------------------------------


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("strange", strategies.STRANGE_LINES.values(), ids=strategies.STRANGE_LINES)
@strategies.examples(30)
@given(strategies.torn_recordings, strategies.runs, st.integers(0, 40))
def test_a_strange_line_anywhere_changes_nothing_but_its_count(
    strange: bytes, recording: Recording, run: RunInfo, at: int
) -> None:
    before_the_result = min(at, len(recording.lines) - 1)
    laws.assert_a_strange_line_changes_nothing(recording.lines, before_the_result, strange, run)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(("strange", "plain"), strategies.STRANGE_CALLS.values(), ids=strategies.STRANGE_CALLS)
@strategies.examples(10)
@given(strategies.torn_recordings, strategies.runs, st.integers(0, 40))
def test_strange_arguments_anywhere_change_nothing_but_their_call(
    strange: bytes, plain: bytes, recording: Recording, run: RunInfo, at: int
) -> None:
    before_the_result = min(at, len(recording.lines) - 1)
    laws.assert_strange_arguments_are_only_their_calls(recording.lines, before_the_result, strange, plain, run)


@strategies.examples(100)
@given(strategies.torn_recordings, st.integers(0, 40), st.sampled_from([b"\n", b"\r\n", b" \t\n", b"\n\n"]))
def test_a_blank_line_anywhere_changes_nothing_at_all(recording: Recording, at: int, blank: bytes) -> None:
    lines = [*recording.lines[:at], blank, *recording.lines[at:]]
    assert laws.response_of(laws.read(b"".join(lines))) == laws.response_of(laws.read(recording.data))


# --- 8 ----------------------------------------------------------------------------------------------


@strategies.examples(400)
@given(strategies.recordings, strategies.runs)
def test_thinking_adds_its_documents_and_changes_nothing_else(recording: Recording, run: RunInfo) -> None:
    laws.assert_thinking_only_adds_its_documents(recording.data, run)


@strategies.examples(400)
@given(strategies.recordings)
def test_fences_inline_and_split_have_the_same_text(recording: Recording) -> None:
    laws.assert_fences_do_not_change_the_text(recording.data)


def _end_of(events: list[AgentEvent]) -> int:
    ends = [number for number, event in enumerate(events) if type(event).__name__ in ("RunFinished", "RunFailed")]
    return ends[0] if ends else len(events)
