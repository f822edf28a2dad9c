"""Read the output of cursor-agent, in pieces of any size, as document events or as a whole response.

This is the library's entry point: the pure stages combined, and short loops that drive them.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import Transcript
from cursor_gateway.wire.lines import LineSplitter


class DocumentReader:
    """Push bytes as they arrive; each push returns the events that they complete. Call `flush` at the end.

    A stream that stops short is an error of the run, not an exception: the events end with an
    `error` document and a `Done` whose status is `error`.
    """

    def __init__(self, run: RunInfo) -> None:
        self._lines = LineSplitter(keeps_ends=True)
        self._decoder = CursorDecoder()
        self._assembler = Assembler(run)
        self._decode_line, self._assemble = self._decoder.push_line, self._assembler.push

    @property
    def model(self) -> str:
        return self._assembler.model

    @property
    def prompt(self) -> str:
        """What the agent was asked, as it repeats it."""
        return self._assembler.prompt

    @property
    def recognized(self) -> bool:
        """Anything in the input was cursor-agent's."""
        return self._decoder.recognized

    @property
    def stray_text(self) -> str:
        """Lines among the events that are not JSON: usually the end of the agent's stderr."""
        return self._decoder.stray_text

    def push(self, chunk: bytes, /) -> list[DocumentEvent]:
        if chunk.find(b"\n") == len(chunk) - 1 and not self._lines.rest:  # a line, as the agent writes them
            events = self._decode_line(chunk)
            if len(events) == 1:
                return self._assemble(events[0])
        else:
            events = self._decoder.push(self._lines.push(chunk))
        return [out for event in events for out in self._assemble(event)]

    def flush(self, failure: Failure | None = None) -> list[DocumentEvent]:
        """`failure` is why the output ended, if the caller knows more than the output says."""
        events = self._decoder.push(self._lines.flush()) + self._decoder.flush(failure)
        return [out for event in events for out in self._assemble(event)]


def read_events(chunks: Iterable[bytes], run: RunInfo) -> Iterator[DocumentEvent]:
    reader = DocumentReader(run)
    for chunk in chunks:
        yield from reader.push(chunk)
    yield from reader.flush()


async def aread_events(chunks: AsyncIterable[bytes], run: RunInfo) -> AsyncIterator[DocumentEvent]:
    reader = DocumentReader(run)
    async for chunk in chunks:
        for event in reader.push(chunk):
            yield event
    for event in reader.flush():
        yield event


def read_response(chunks: Iterable[bytes], run: RunInfo) -> ChatResponse:
    transcript = Transcript()
    for event in read_events(chunks, run):
        transcript.push(event)
    return _response(transcript)


async def aread_response(chunks: AsyncIterable[bytes], run: RunInfo) -> ChatResponse:
    transcript = Transcript()
    async for event in aread_events(chunks, run):
        transcript.push(event)
    return _response(transcript)


def _response(transcript: Transcript) -> ChatResponse:
    response = transcript.response()
    assert response is not None  # a flushed run is done
    return response


def whole_line(line: str | bytes) -> bytes:
    """A line, with or without its line end, as a chunk: `read_events(map(whole_line, lines), run)`."""
    data = line.encode() if isinstance(line, str) else line
    return data.rstrip(b"\r\n") + b"\n"
