"""The laws of the two UI streams: the text of a message is the agent's, whatever happens; each stream is well formed,
and can be resumed after any event."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from cursor_gateway.dialects.ag_ui import ag_ui_dialect
from cursor_gateway.dialects.ai_sdk import ai_sdk_dialect
from cursor_gateway.dialects.base import Replay, ReplyStart, RunView
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_events
from tests.laws.agent import Recording
from tests.laws.laws import RUN, assemble, read, replies, text_of
from tests.laws.strategies import agent_events, examples, runs, torn_recordings
from tests.laws.test_captures import every_recording
from tests.ui_streams import AgUiThread, AiSdkMessage

_DIALECTS: dict[str, tuple[Replay, Callable[[], AiSdkMessage | AgUiThread]]] = {
    "ai-sdk": (ai_sdk_dialect(50).replays[0], AiSdkMessage),
    "ag-ui": (ag_ui_dialect(50).replays[0], AgUiThread),
}
each_dialect = pytest.mark.parametrize("dialect", _DIALECTS)


def assert_lawful(events: list[DocumentEvent], dialect: str, run: RunInfo = RUN) -> None:
    replay, reader = _DIALECTS[dialect]
    assert replay.reply is not None
    view, message = RunView(run, 0, ""), reader()
    for reply in replies(events):
        encoder = replay.reply.stream(view, ReplyStart(reply.after))
        stream = encoder.push_all(events[reply.after :])  # it is over at its pause, whatever the run does then
        assert encoder.is_over
        message.read(stream)
    assert message.text == text_of(events)
    failure = events[-1].failure if isinstance(events[-1], Done) else None
    if isinstance(message, AiSdkMessage):
        assert (message.finish == "stop") == (failure is None)
    else:
        assert (message.finished.get("outcome") == {"type": "success"}) == (failure is None)


def assert_resumable(events: list[DocumentEvent], dialect: str, run: RunInfo = RUN) -> None:
    """After any event: who has read up to there gets the rest of its reply."""
    replay, _ = _DIALECTS[dialect]
    assert replay.reply is not None
    view = RunView(run, 0, "")
    for reply in replies(events):
        encoder = replay.reply.stream(view, ReplyStart(reply.after))
        told = [encoder.push_all([event]) for event in reply.events]
        for place in range(len(told)):
            resumed, first = replay.open(view, reply.after + place)
            assert first == 0
            rest = resumed.push_all(events)
            assert rest == b"".join(told[place:])


@each_dialect
@every_recording
def test_a_recording_is_said_exactly_one_byte_at_a_time(path: Path, dialect: str) -> None:
    data = path.read_bytes()
    pieces = [data[place : place + 1] for place in range(len(data))] if len(data) < 20_000 else [data]
    assert_lawful(list(read_events(pieces, RUN)), dialect)


@each_dialect
@examples(150)
@given(torn_recordings, runs)
def test_any_recording_is_said_exactly(dialect: str, recording: Recording, run: RunInfo) -> None:
    assert_lawful(read(recording.data, run), dialect, run)


@each_dialect
@examples(300)
@given(agent_events, runs)
def test_any_events_in_any_order_are_said_exactly(dialect: str, events: list[AgentEvent], run: RunInfo) -> None:
    assert_lawful(assemble(events, run), dialect, run)


@each_dialect
@examples(100)
@given(agent_events)
def test_a_stream_is_resumed_after_any_event(dialect: str, events: list[AgentEvent]) -> None:
    assert_resumable(assemble(events), dialect)
