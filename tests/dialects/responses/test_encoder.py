"""Runs as responses, streamed and whole."""

from typing import Any

import pytest

from cursor_gateway.dialects.deltas import Ended, WholeAnswer, refusal_line
from cursor_gateway.dialects.responses.conversation import unpack
from cursor_gateway.dialects.responses.encoder import ResponseFold, ResponseHead, ResponseStream, failure_frames
from cursor_gateway.dialects.responses.request import KeptRequest
from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, DocumentStarted, Reasoning
from cursor_gateway.model.documents import (
    ClarificationMetadata,
    ClarificationQuestion,
    RefusedCall,
    TerminalCommandMetadata,
)
from cursor_gateway.model.messages import ToolCall
from tests.dialects.runs import USAGE, done, ended, paused, words
from tests.responses_shapes import (
    Compaction,
    FunctionCall,
    KeepAlive,
    McpCall,
    Message,
    Response,
    read_events,
    read_response,
    read_stream,
    text_of,
)
from tests.responses_shapes import Reasoning as ReasoningItem

COMMAND = TerminalCommandMetadata(command="ls", exit_code=0, output="a", duration_ms=1, permissions=[])
ACTION: list[DocumentEvent] = [DocumentStarted("doc_002", "terminal_command", 2, raw="\n"), ended(COMMAND, sequence=2)]
RUN: list[DocumentEvent] = [Reasoning("Hm.", opens=True), *words("Hel", "lo"), *ACTION, *words(" you"), done()]


def head(**asked: Any) -> ResponseHead:
    return ResponseHead("chat_0a1b", 0, 1_771_842_600, "auto", KeptRequest(**asked))


def both(events: list[DocumentEvent], prompt_tokens: int = 0, **asked: Any) -> Response:
    """Streamed and whole, which must be the same."""
    stream, whole = ResponseStream(head(**asked), prompt_tokens), ResponseFold(head(**asked), prompt_tokens)
    sent = stream.push_all(events)
    for event in events:
        whole.push(event)
    assert (stream.is_over, stream.is_cut) == (whole.is_over, whole.is_cut)
    assert sent.endswith(b'"response":%b}\n\n' % whole.body())
    assert read_stream(sent) == read_response(whole.body())
    return read_stream(sent)


def test_an_open_question_is_a_message_of_its_own() -> None:
    ask = ended(ClarificationMetadata(questions=[ClarificationQuestion(id="q", text="Which?", options=[])]), sequence=2)
    response = both([ask, done()])
    assert [type(item) for item in response.output] == [McpCall, Message]
    last = response.output[-1]
    assert isinstance(last, Message)
    assert [part.text for part in last.content] == ["▸\u2063 Which?"]
    assert text_of(both([*words("Hm."), ask, *words("This ", "one."), done()])) == "Hm.This one."


def test_nothing_follows_the_end() -> None:
    stream = ResponseStream(head())
    stream.push_all(RUN)
    assert stream.is_over
    assert stream.push_all(RUN) == b""


def test_a_failure_is_reported_in_the_stream_and_is_an_error_of_the_whole() -> None:
    failure = AgentCrashed("It broke.").failure()
    response = both([*words("Hel"), done(failure)])
    assert (response.status, text_of(response)) == ("failed", "Hel")
    whole = ResponseFold(head())
    whole.push(done(failure))
    assert (whole.failure, whole.error_body(failure)) == (failure, None)


def test_a_limit_of_tokens_cuts_it() -> None:
    events = [*words("one two three four five"), *ACTION, done()]
    response = both(events, prompt_tokens=7, max_tokens=2)
    assert (response.status, len(response.output)) == ("incomplete", 1)
    assert text_of(response) == "one two "
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.estimated) == (7, True)
    assert both([*words("one"), done()], max_tokens=9).status == "completed"


def test_json_is_taken_out_of_the_answer() -> None:
    events = [*words("Here:\n```json\n", '{"a": 1}\n```\n'), *ACTION, paused("c1")]
    response = both(events, is_json=True)
    assert text_of(response) == '{"a": 1}'
    assert [type(item) for item in response.output] == [ReasoningItem, Message, FunctionCall]
    assert text_of(both([*words("No."), done()], is_json=True)) == "No."
    quoting = [*words('It has {"b": [1, 2]}.'), *ACTION, *words('{"a": 1}'), done()]
    assert text_of(both(quoting, is_json=True)) == '{"a": 1}'


def test_a_compaction_has_the_whole_answer_in_one_item() -> None:
    (item,) = both(RUN, is_compaction=True).output
    assert isinstance(item, Compaction)
    assert unpack(item.encrypted_content)[0]["content"].endswith("Hello\n you")


@pytest.mark.parametrize("is_codex", [False, True])
def test_silence(is_codex: bool) -> None:
    """Codex does not count comments; others may know no other events than OpenAI's."""
    stream = ResponseStream(head(is_codex=is_codex))
    begun = stream.keep_alive()
    assert [event.sequence_number for event in read_events(begun)] == [0, 1]
    assert read_events(stream.keep_alive()) == ([KeepAlive(sequence_number=1)] if is_codex else [])
    sent = begun + stream.keep_alive() + stream.push_all(RUN)
    assert read_stream(sent) == both(RUN, is_codex=is_codex)


def test_a_reader_gets_only_what_it_lacks() -> None:
    everything = read_events(ResponseStream(head()).push_all(RUN))
    rest = read_events(ResponseStream(head(), after=5).push_all(RUN))
    assert rest == everything[6:]
    known = frozenset({"rs_0a1b_0_0", "msg_0a1b_0_1"})
    unknown = read_events(ResponseStream(head(), known=known).push_all(RUN))
    assert [getattr(event, "output_index", None) for event in unknown].count(1) == 0
    assert unknown[-1] == everything[-1]


def test_an_answer_that_is_there_already() -> None:
    answer = WholeAnswer("Hello", "Hm.", (ToolCall("c1", "f", "{}"),), Ended(USAGE))
    stream = read_stream(ResponseStream(head()).answer(answer))
    assert [type(item) for item in stream.output] == [ReasoningItem, Message, FunctionCall]
    assert text_of(read_stream(ResponseStream(head()).answer(WholeAnswer("", "", (), Ended(USAGE))))) == ""
    failed = read_stream(failure_frames(head(), AgentCrashed("It broke.").failure()))
    assert (failed.status, failed.output) == ("failed", [])


@pytest.mark.parametrize("is_codex", [False, True])
def test_fast_and_slow_ways_send_the_same(is_codex: bool) -> None:
    """Text that comes with a raw form of itself, and a stream of which not all is sent, take the slow way."""
    thoughts = [
        Reasoning("a", opens=True),
        Reasoning("b"),
        Reasoning("c\n"),
        Reasoning("d", opens=True),
        Reasoning("e"),
    ]
    fast = [*thoughts, *words("a", "b", "c"), done()]
    slow: list[DocumentEvent] = [
        ContentDelta(event.id, event.text, event.text) if isinstance(event, ContentDelta) else event for event in fast
    ]
    expected = ResponseStream(head(is_codex=is_codex), known={"none"}).push_all(slow)
    for events in (fast, slow):
        assert ResponseStream(head(is_codex=is_codex)).push_all(events) == expected
    assert both(fast, is_codex=is_codex) == read_stream(expected)


def test_what_was_not_run_is_the_end_of_the_last_message() -> None:
    call = RefusedCall(document="doc_001", subject="npm test", link="/#/c/conv_1/chat_1/doc_001")
    said = text_in(both([*words("Hi"), done(refused=[call])], text="readable"))
    assert said == f"Hi\n\n{refusal_line([call])}"
    assert text_in(both([done(refused=[call])], text="readable")) == refusal_line([call])
    assert text_in(both([*words("Hi"), done(refused=[call])])) == "Hi"


def text_in(response: Response) -> str:
    last = response.output[-1]
    assert isinstance(last, Message)
    return last.content[0].text
