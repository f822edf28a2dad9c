"""Encode document events as the specification's Server-Sent Events, NDJSON or `ChatResponse`."""

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any

import msgspec

from cursor_gateway.dialects.base import NDJSON
from cursor_gateway.dialects.replies import EventEncoder
from cursor_gateway.model import document_events
from cursor_gateway.model.documents import ChatResponse, Document, ToolCallDocument, ToolCallResult
from cursor_gateway.wire.sse import frame

_encode = msgspec.json.encode
_NO_RESULT = (ToolCallResult(status="success", data=None), b"")


def encode_response(response: ChatResponse) -> bytes:
    return _encode(response)


class _Payload(msgspec.Struct, frozen=True):
    """One event of the specification: its name, the document it is about, its data."""

    name: str
    document_id: str
    data: bytes


class _PayloadEncoder(EventEncoder):
    is_cut = False  # it encodes all events

    def __init__(self, after: int = 0, *, until_pause: bool = False, live: bool = False) -> None:
        """`after` is the number of the last event that the reader has. A reply may end with a pause of the run. `live`:
        with what running commands write."""
        self.is_over = False
        self._until_pause, self._live = until_pause, live
        self._result = _NO_RESULT  # the last one, and its JSON, until its document ends
        self._number = after

    @property
    def place(self) -> Hashable | None:
        """An event's bytes depend on nothing but its number, except where a pause ends the reply."""
        return None if self._until_pause else (self.__class__, self._live, self._number)

    def skip(self, count: int, /) -> None:
        self._number += count

    def push(self, event: document_events.DocumentEvent, /) -> bytes:
        self._number += 1
        is_aside = self._until_pause and isinstance(event, document_events.Paused) and event.goes_on
        payload = None if self.is_over or is_aside else self._payload(event)
        if payload is None:
            return b""
        self.is_over = self._until_pause and isinstance(event, document_events.Paused)
        return self._framed(payload)

    def _payload(self, event: document_events.DocumentEvent) -> _Payload | None:
        """None for what the specification has no event for."""
        match event:
            case document_events.ContentDelta(id=id, text=text):
                if not text:
                    return None  # only the source had something here
                return _Payload("content_delta", id, b'{"documentId":%b,"delta":%b}' % (_encode(id), _encode(text)))
            case document_events.TerminalOutput(id=id, text=text):
                if not self._live:
                    return None
                return _Payload("terminal_output", id, _encode({"documentId": id, "text": text}))
            case document_events.DocumentStarted(id=id, type=type, sequence=sequence, metadata=metadata):
                known = b',"metadata":' + _encode(metadata) if metadata else b""
                data = b'{"id":%b,"type":%b,"sequence":%d%b}' % (_encode(id), _encode(type), sequence, known)
                return _Payload("document_start", id, data)
            case document_events.ToolCallStarted(id=id, tool_name=name, tool_call_id=call_id):
                data = _encode({"documentId": id, "toolName": name, "toolCallId": call_id})
                return _Payload("tool_call_start", id, data)
            case document_events.ToolCallArguments(id=id, arguments=arguments):
                return _Payload("tool_call_arguments", id, _encode({"documentId": id, "arguments": arguments}))
            case document_events.ToolCallEnded(id=id, result=result):
                self._result = (result, _encode(result))
                return _Payload("tool_result", id, b'{"documentId":%b,"result":%b}' % (_encode(id), self._result[1]))
            case document_events.DocumentEnded(document=document):
                final = b"" if document.content is None else b',"finalContent":' + _encode(document.content)
                encoded = self._metadata(document)
                data = b'{"documentId":%b%b,"metadata":%b}' % (_encode(document.id), final, encoded)
                return _Payload("document_end", document.id, data)
            case document_events.Paused(envelope=envelope) | document_events.Done(envelope=envelope):
                return _Payload("done", "", _encode(envelope))
            case document_events.Reasoning():
                return None

    def _metadata(self, document: Document) -> bytes:
        """A tool's result may be a whole file, and its event has just been encoded: that is not done twice."""
        (result, encoded), self._result = self._result, _NO_RESULT
        if isinstance(document, ToolCallDocument) and document.metadata.result is result:
            fields: dict[str, Any] = {"result": msgspec.Raw(encoded)}
            return _encode(msgspec.structs.replace(document.metadata, **fields))
        return _encode(document.metadata)

    @abstractmethod
    def _framed(self, payload: _Payload) -> bytes: ...


class SseEncoder(_PayloadEncoder):
    """Each event is one frame; its id is the event's number in the run, so a reader can resume after it."""

    _growing = ""  # the document that grew last
    _delta_head = b""  # what all its deltas begin with

    def push(self, event: document_events.DocumentEvent, /) -> bytes:
        if event.__class__ is document_events.ContentDelta and event.text and not self.is_over:  # nearly every event
            self._number += 1
            if event.id != self._growing:
                self._growing = event.id
                self._delta_head = b'event: content_delta\ndata: {"documentId":%b,"delta":' % _encode(event.id)
            return b"id: %d\n%b%b}\n\n" % (self._number, self._delta_head, _encode(event.text))
        return super().push(event)

    def _framed(self, payload: _Payload) -> bytes:
        return frame(payload.data, event=payload.name, id=str(self._number))


class NdjsonEncoder(_PayloadEncoder):
    """The specification's `StreamEvent`, one a line; `data` is the frame's payload, `id` its number in the run."""

    def _framed(self, payload: _Payload) -> bytes:
        about = b',"documentId":' + _encode(payload.document_id) if payload.document_id else b""
        return b'{"id":%d,"type":%b%b,"data":%b}\n' % (self._number, _encode(payload.name), about, payload.data)

    def keep_alive(self) -> bytes:
        return NDJSON.keep_alive
