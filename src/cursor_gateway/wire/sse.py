"""Server-Sent Events: values to frames, and bytes of a stream back to events (WHATWG HTML §9.2)."""

import re

import msgspec

from cursor_gateway.wire.lines import LineSplitter

_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True):
    data: str
    event: str = "message"
    id: str = ""


def frame(data: bytes, *, event: str = "", id: str = "") -> bytes:
    """One event. Raises `ValueError` for a line end in `event` or `id`, or a CR in `data`: it could not be decoded."""
    if b"\r" in data or re.search(r"[\r\n]", event) or re.search(r"[\r\n\0]", id):
        raise ValueError("an SSE field cannot carry this line end; encode the value as JSON")
    number = f"id: {id}\n" if id else ""
    name = f"event: {event}\n" if event else ""
    return b"%bdata: %b\n\n" % ((number + name).encode(), data.replace(b"\n", b"\ndata: "))


class SseDecoder:
    """Bytes of an event stream in, events out. An event that the end of the stream cuts off is dropped."""

    def __init__(self) -> None:
        self.last_event_id = ""
        self.retry_ms: int | None = None
        self._lines = LineSplitter()
        self._ends_in_cr = False
        self._at_start = True
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def push(self, chunk: bytes, /) -> list[SseEvent]:
        if self._ends_in_cr and chunk:
            # The LF of a CRLF split across two chunks is not another line end.
            chunk = chunk.removeprefix(b"\n")
            self._ends_in_cr = False
        if chunk.endswith(b"\r"):
            self._ends_in_cr = True
        lines = self._lines.push(chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        return [event for line in lines if (event := self._line(line)) is not None]

    def flush(self) -> list[SseEvent]:
        """The end of the stream. The decoder can be reused for a stream that resumes after `last_event_id`."""
        self._lines, self._data, self._event, self._id = LineSplitter(), [], "", self.last_event_id
        self._at_start, self._ends_in_cr = True, False
        return []

    def _line(self, line: bytes) -> SseEvent | None:
        if self._at_start:
            line = line.removeprefix(_BOM)
            self._at_start = False
        if not line:
            return self._dispatch()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if (
                value.isascii() and value.isdigit() and len(value) < 16
            ):  # int() refuses thousands of digits
                self.retry_ms = int(value)
            case _:  # a comment (no name) or a field the standard does not know
                pass
        return None

    def _dispatch(self) -> SseEvent | None:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        self.last_event_id = self._id
        if not data:
            return None
        return SseEvent(data="\n".join(data), event=event or "message", id=self.last_event_id)
