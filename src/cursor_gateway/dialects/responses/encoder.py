"""Encode document events as a response: Server-Sent Events, or the whole response."""

from collections.abc import Set

import msgspec
from msgspec.structs import replace

from cursor_gateway.dialects.base import SSE
from cursor_gateway.dialects.deltas import (
    AnswerFold,
    AnswerText,
    Called,
    Delta,
    Ended,
    Noted,
    OpenQuestion,
    ReplyState,
    Thought,
    Translator,
    WholeAnswer,
    marked,
)
from cursor_gateway.dialects.replies import EventEncoder
from cursor_gateway.dialects.responses.output import GrowingItem, Output, ResponseHead
from cursor_gateway.dialects.responses.shapes import ResponseEvent
from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Reasoning,
)
from cursor_gateway.model.documents import Usage
from cursor_gateway.prompting.structured import extract_json
from cursor_gateway.stages.cutting import Cutter

_encode = msgspec.json.encode
_DELTA = b'event: %b\ndata: {"type":"%b","sequence_number":'
_TEXT_DELTA = _DELTA % ((b"response.output_text.delta",) * 2)
_SUMMARY_DELTA = _DELTA % ((b"response.reasoning_summary_text.delta",) * 2)


class ResponseEvents(ReplyState):
    """A run's events to those of its response, up to where the run pauses, is cut or ends."""

    def __init__(self, head: ResponseHead, prompt_tokens: int = 0) -> None:
        """`prompt_tokens` estimates the context of a response that is cut."""
        asked = self._asked = head.asked
        self.output = Output(head)
        cutter = None if asked.max_tokens is None else Cutter((), asked.max_tokens)
        # The whole text of these becomes something else.
        self._fold: AnswerFold | None = None
        if asked.is_compaction or asked.is_json:
            self._fold = AnswerFold(head.run_id, "reasoning", cutter, prompt_tokens)
        if self._fold is not None:
            super().__init__(self._fold.deltas)
        else:
            has_notes = asked.text == "readable"
            super().__init__(Translator(head.run_id, "none", cutter, prompt_tokens, notes=has_notes))

    @property
    def growing(self) -> GrowingItem | None:
        """The item to which the next text of its kind is only added."""
        is_plain = self.deltas.cutter is None and self._fold is None
        return self.output.open_item if is_plain else None

    def grow_reasoning(self, text: str) -> int:
        """More of the open reasoning; the number of the delta."""
        self.deltas.note_reasoning(text)
        return self.output.grow(text)

    def push(self, event: DocumentEvent, /) -> list[ResponseEvent]:
        if self.deltas.end is not None:
            return []
        events = self.output.begin()
        if self._fold is not None:
            return events + self._folded(self._fold, event)
        duration = event.envelope.metadata.duration_ms if isinstance(event, Done) else 0
        deltas = self.deltas.push(event)
        for delta in deltas:
            events += _delta_events(self.output, delta, duration)
        if deltas and isinstance(deltas[-1], Ended):
            return events
        match event:
            case DocumentStarted():
                return events + self.output.start_action(event)
            case DocumentEnded(document=document):
                return events + self.output.end_action(document)
            case _:
                return events

    def _folded(self, fold: AnswerFold, event: DocumentEvent) -> list[ResponseEvent]:
        fold.push(event)
        answer = fold.answer()
        if answer is None:
            return []
        if self._asked.is_compaction:
            return [*self.output.compact(answer.text), *self.output.end(answer.end)]
        found = extract_json(answer.text, answer.last) or answer.text
        return answer_events(self.output, replace(answer, text=found))


def answer_events(output: Output, answer: WholeAnswer) -> list[ResponseEvent]:
    """Of an answer that is complete."""
    events = output.begin()
    for delta in answer.deltas():
        events += _delta_events(output, delta)
    return events


def _delta_events(output: Output, delta: Delta, duration_ms: int = 0) -> list[ResponseEvent]:
    match delta:
        case AnswerText(text=text):
            return output.say(text)
        case Thought(text=text):
            return output.think(text)
        case Called(call=call):
            return output.call(call)
        case OpenQuestion(text=text):
            return [*output.close(), *output.say(marked(text))]
        case Noted(text=text):  # in the last message: some clients print only that one
            return output.say(f"\n\n{text}" if output.open_item == "message" else text)
        case Ended():
            return output.end(delta, duration_ms)


class ResponseStream(ReplyState, EventEncoder):
    """The streaming reply. It begins with `response.created` and ends with one event that has the whole response.

    `known` are items that the client has already got: their events are left out. `after` is the number of the last
    event that it has. The numbers stay those of the whole stream.
    """

    def __init__(
        self, head: ResponseHead, prompt_tokens: int = 0, *, known: Set[str] = frozenset(), after: int = -1
    ) -> None:
        self._events = ResponseEvents(head, prompt_tokens)
        super().__init__(self._events.deltas)
        self._output = self._events.output
        self._known, self._after, self._is_codex = known, after, head.asked.is_codex
        self._sends_all = not known and after < 0
        # The item that grows, if one does and all of it is sent, and what is the same in each of its deltas.
        self._growing: GrowingItem | None = None
        self._before = b""

    def push(self, event: DocumentEvent, /) -> bytes:
        if event.__class__ is ContentDelta and event.raw is None and self._growing == "message":  # nearly every event
            number = self._output.grow(event.text)
            return b'%b%d%b%b,"logprobs":[]}\n\n' % (_TEXT_DELTA, number, self._before, _encode(event.text))
        if event.__class__ is Reasoning and not event.opens and self._growing == "reasoning":
            number = self._events.grow_reasoning(event.text)
            return b"%b%d%b%b}\n\n" % (_SUMMARY_DELTA, number, self._before, _encode(event.text))
        frames = b"".join(map(self._frame, self._events.push(event)))
        self._growing = self._events.growing if self._sends_all else None
        if self._growing is not None:
            part = b"content_index" if self._growing == "message" else b"summary_index"
            place = (_encode(self._output.item_id), self._output.index, part)
            self._before = b',"item_id":%b,"output_index":%d,"%b":0,"delta":' % place
        return frames

    def keep_alive(self) -> bytes:
        """A comment, which no client can misread; for Codex, which does not count comments, an event. That one has no
        number of its own, so that the stream stays the same."""
        if not self._output.has_begun:
            return b"".join(map(self._frame, self._output.begin()))
        return keep_alive(self._output.last_number) if self._is_codex else SSE.keep_alive

    def answer(self, answer: WholeAnswer) -> bytes:
        """All frames of an answer that is complete."""
        return b"".join(map(self._frame, answer_events(self._output, answer)))

    def _frame(self, event: ResponseEvent) -> bytes:
        if not self._sends_all and (event.sequence_number <= self._after or self._is_known(event)):
            return b""
        if event.type == "response.output_item.done":
            item = msgspec.Raw(_encode(event.item))
            self._output.keep_encoded(event.output_index or 0, item)
            event = replace(event, item=item)
        # Not `frame`: JSON and the names of events have no line ends, and the data may be megabytes.
        return b"event: %b\ndata: %b\n\n" % (event.type.encode(), _encode(event))

    def _is_known(self, event: ResponseEvent) -> bool:
        return (event.item_id or getattr(event.item, "id", "")) in self._known


class ResponseFold(ReplyState):
    """The whole reply; as far as it is there before it is over."""

    def __init__(self, head: ResponseHead, prompt_tokens: int = 0) -> None:
        self.after = head.after
        self._events = ResponseEvents(head, prompt_tokens)
        super().__init__(self._events.deltas)
        self._growing: GrowingItem | None = None

    def push(self, event: DocumentEvent, /) -> None:
        if event.__class__ is ContentDelta and event.raw is None and self._growing == "message":
            self._events.output.grow(event.text)
        elif event.__class__ is Reasoning and not event.opens and self._growing == "reasoning":
            self._events.grow_reasoning(event.text)
        else:
            self._events.push(event)
            self._growing = self._events.growing

    def error_body(self, failure: Failure) -> bytes | None:
        return None

    def body(self) -> bytes:
        return _encode(self._events.output.response())


def keep_alive(number: int = 0) -> bytes:
    """For Codex."""
    return b'event: keepalive\ndata: {"type":"keepalive","sequence_number":%d}\n\n' % number


def failure_frames(head: ResponseHead, failure: Failure) -> bytes:
    """The whole stream of a run that failed."""
    nothing = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
    return ResponseStream(head).answer(WholeAnswer("", "", (), Ended(nothing, failure=failure)))
