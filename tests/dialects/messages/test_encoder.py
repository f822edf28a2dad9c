"""A message as events and as a whole: every event valid and in order, and both the same."""

import json

import msgspec
import pytest

from cursor_gateway.dialects.messages.encoder import PING, Composer, Display, MessageEncoder, MessageHead, message_of
from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, Reasoning
from cursor_gateway.model.documents import TerminalCommandMetadata
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.wire.sse import SseDecoder
from tests.anthropic_shapes import Error, Message, MessageStart, events_of, fold, read_message
from tests.dialects.runs import done, ended, paused, words

HEAD = MessageHead(id="msg_0a1b", model='claude "x"', signature="chat_0a1b", input_tokens=7)
ALL = Display(thinking=True, actions="native")
RAN = ended(TerminalCommandMetadata(command="é" * 2000, exit_code=0, output="a", duration_ms=1, permissions=[]))
RUN: list[DocumentEvent] = [
    Reasoning("Let me ", opens=True),
    Reasoning("see."),
    *words("I ", "look…"),
    RAN,
    Reasoning("Well.", opens=True),
    *words("\n", "There ", "it is."),
]


def composer(cutter: Cutter | None = None) -> Composer:
    return Composer("chat_0a1b", ALL, cutter)


def stream(events: list[DocumentEvent], cutter: Cutter | None = None) -> bytes:
    return MessageEncoder(HEAD, composer(cutter)).push_all(events)


def whole(events: list[DocumentEvent], cutter: Cutter | None = None) -> Message:
    composing = composer(cutter)
    steps = [step for event in events for step in composing.push(event)]
    return read_message(msgspec.json.encode(message_of(HEAD, steps)))


@pytest.mark.parametrize("end", [done(), paused("call_1", "call_2")])
@pytest.mark.parametrize("cutter", [(), ("it",)])
def test_the_stream_folds_to_the_whole(end: DocumentEvent, cutter: tuple[str, ...]) -> None:
    events = [*RUN, end]
    cutters = [Cutter(cutter) if cutter else None for _ in range(2)]
    assert fold(events_of(stream(events, cutters[0]))) == whole(events, cutters[1])


def test_the_first_event_has_an_estimate_of_the_context() -> None:
    start, *_ = events_of(stream([*words("Hi"), done()]))
    assert isinstance(start, MessageStart)
    assert (start.message.id, start.message.model) == ("msg_0a1b", 'claude "x"')
    assert (start.message.usage.input_tokens, start.message.usage.output_tokens) == (7, 0)


def test_the_signature_names_the_run_and_comes_last() -> None:
    names = [json.loads(frame.data) for frame in SseDecoder().push(stream([*RUN[:2], *words("x"), done()]))]
    deltas = [event["delta"] for event in names if event["type"] == "content_block_delta"]
    assert deltas[2] == {"type": "signature_delta", "signature": "chat_0a1b"}


def test_a_ping_comes_after_the_start() -> None:
    encoder = MessageEncoder(HEAD, composer())
    data = encoder.keep_alive() + encoder.keep_alive() + encoder.push_all([*words("Hi"), done()])
    assert [event.__class__.__name__ for event in events_of(data)][:3] == ["MessageStart", "Ping", "Ping"]
    assert fold(events_of(data)) == whole([*words("Hi"), done()])
    assert encoder.keep_alive() == PING


def test_it_is_over_with_the_end_and_says_no_more() -> None:
    encoder = MessageEncoder(HEAD, composer())
    assert not encoder.is_over
    encoder.push_all([*words("Hi"), done()])
    assert (encoder.is_over, encoder.is_cut, encoder.is_slow) == (True, False, False)
    assert encoder.push(ContentDelta("doc_001", "more")) == b""


def test_a_failure_is_the_last_event() -> None:
    failed = fold(events_of(stream([*words("Hel"), done(AgentCrashed("It crashed.").failure())])))
    assert isinstance(failed, Error)
    assert failed.error.message == "It crashed."
