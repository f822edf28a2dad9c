"""The laws of Anthropic's messages, on generated recordings and on agent events in any order: every event is valid and
in its place, the stream folds to the whole, and the text is the agent's, byte for byte."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.base import ReplyStart, RunView
from cursor_gateway.dialects.deltas import MARK
from cursor_gateway.dialects.messages.dialect import MessagesReply
from cursor_gateway.dialects.messages.encoder import PING, Display
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.model.requests import RunInfo
from tests.anthropic_shapes import Error, Message, Text, ToolUse, events_of, fold, read_message, text_of
from tests.laws import laws
from tests.laws.agent import Recording
from tests.laws.strategies import agent_events, examples, runs, torn_recordings

displays = st.builds(
    Display,
    thinking=st.booleans(),
    actions=st.sampled_from(["thinking", "text", "native", "none", "search"]),
    notes=st.booleans(),
)


def assert_the_events_fold_to_the_message(
    events: list[DocumentEvent], run: RunInfo, display: Display, pings: frozenset[int] = frozenset()
) -> None:
    """Each reply of a run. `pings` come before the events of these numbers."""
    view, reply = RunView(run, 0, "A prompt."), MessagesReply(model="claude-x", display=display)
    for part in laws.replies(events):
        start = ReplyStart(part.after)
        encoder, whole = reply.stream(view, start), reply.whole(view, start)
        stream = b""
        for number, event in enumerate(events[part.after :]):
            assert whole.is_over == encoder.is_over
            stream += encoder.keep_alive() if number in pings and not encoder.is_over else b""
            stream += encoder.push_all([event])
            whole.push(event)
        last = part.events[-1]
        message = fold(events_of(stream))
        if isinstance(last, Done) and last.failure is not None:
            assert whole.failure is not None
            assert (whole.failure.code, whole.failure.status) == (last.failure.code, last.failure.status)
            assert isinstance(message, Error)
            assert message.error.message == last.failure.message
            continue
        assert message == read_message(whole.body())
        assert isinstance(message, Message)
        assert text_of(message) == laws.text_of(part.events)
        if display == Display():
            _assert_tools_separate_the_blocks(message, part.events)
        _assert_complete(message, last)


def _assert_tools_separate_the_blocks(message: Message, events: Sequence[DocumentEvent]) -> None:
    """White space alone is no block: it belongs to the text that follows."""
    expected, text = [], ""
    for text_so_far in laws.texts_between_tools(events):
        text += text_so_far
        if text.strip():
            expected.append(text)
            text = ""
    blocks = [block.text for block in message.content if isinstance(block, Text) and not block.text.startswith(MARK)]
    assert blocks == [*expected, *([text] if text else [])]


def _assert_complete(message: Message, last: DocumentEvent) -> None:
    calls = [block.id for block in message.content if isinstance(block, ToolUse)]
    if isinstance(last, Paused):
        asked = [call.tool_call_id for call in last.envelope.metadata.waiting_for or ()]
        assert (calls, message.stop_reason) == (asked, "tool_use")
    else:
        assert (calls, message.stop_reason) == ([], "end_turn")
        assert any(isinstance(block, Text) and block.text.strip() for block in message.content)


@examples(300)
@given(torn_recordings, runs, displays, st.frozensets(st.integers(0, 20)))
def test_the_events_of_a_recording_fold_to_its_message(
    recording: Recording, run: RunInfo, display: Display, pings: frozenset[int]
) -> None:
    assert_the_events_fold_to_the_message(laws.read(recording.data, run), run, display, pings)


@examples(400)
@given(agent_events, runs, displays)
def test_the_events_of_any_agent_fold_to_its_message(events: list[AgentEvent], run: RunInfo, display: Display) -> None:
    assert_the_events_fold_to_the_message(laws.assemble(events, run), run, display)


@examples(150)
@given(torn_recordings, runs, displays, st.floats(0, 1))
def test_a_recording_that_is_cut_anywhere_gives_valid_events(
    recording: Recording, run: RunInfo, display: Display, where: float
) -> None:
    events = laws.read(recording.data[: int(where * len(recording.data))], run)
    assert_the_events_fold_to_the_message(events, run, display)


@examples(150)
@given(agent_events, runs, displays, st.lists(st.text(min_size=1, max_size=2), max_size=2), st.integers(1, 20))
def test_a_message_that_is_cut_folds_to_the_whole(
    events: list[AgentEvent], run: RunInfo, display: Display, stop: list[str], limit: int
) -> None:
    view = RunView(run, 0, "")
    reply = MessagesReply(model="claude-x", display=display, stop=tuple(stop), max_tokens=limit)
    encoder, whole = reply.stream(view, ReplyStart()), reply.whole(view, ReplyStart())
    stream = b""
    for event in laws.assemble(events, run):
        stream += encoder.push_all([event])
        whole.push(event)
    assert (encoder.is_over, encoder.is_cut) == (whole.is_over, whole.is_cut)
    message = fold(events_of(stream))
    assert message == (read_message(whole.body()) if whole.failure is None else message)


def test_a_ping_is_what_the_form_says() -> None:
    assert msgspec.json.decode(PING.partition(b"data: ")[2]) == {"type": "ping"}
