"""`cursor-gateway convert`: convert the output of cursor-agent, recorded or piped, to another format."""

import sys
import time
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, get_args
from uuid import uuid4

import click
import msgspec

from cursor_gateway.cli import options
from cursor_gateway.cli.output import RunFailed, raw_option, write_frames, write_text
from cursor_gateway.cli.reading import new_reader, read_run
from cursor_gateway.dialects.chat.encoder import ChunkEncoder, CompletionFold, CompletionHead, encode_completion
from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder, encode_response
from cursor_gateway.dialects.replies import TextEncoder
from cursor_gateway.errors import Failure, RunCancelled
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.requests import Fences, Include
from cursor_gateway.reader import DocumentReader
from cursor_gateway.stages.run_state import Transcript

_Form: TypeAlias = Literal["documents", "sse", "ndjson", "openai", "openai-sse", "text"]


T = TypeVar("T")


class _Encoder(Protocol):
    def push(self, event: DocumentEvent, /) -> bytes: ...


@click.command(
    epilog="""\b
    Examples:
      cursor-agent -p --output-format stream-json --stream-partial-output "…" \\
        | cursor-gateway convert --to sse
      cursor-gateway convert recording.ndjson --to documents > response.json
      cursor-gateway convert recording.ndjson --to openai --model my-model
    \b
    Exit status: 0 the run completed; 1 it ended in an error (partial output is printed);
    2 the input cannot be used (nothing is printed).""",
)
@options.file
@click.option(
    "--to",
    "form",
    type=click.Choice(get_args(_Form)),
    default="documents",
    show_default=True,
    help="The output format: the whole response (documents), streaming events (sse, ndjson), an OpenAI chat "
    "completion (openai) or its chunks (openai-sse), or only the answer's text (text).",
)
@options.mode
@options.fences
@click.option(
    "--include",
    type=click.Choice(get_args(Include)),
    multiple=True,
    help="Include the model's thinking, the raw payload of each tool call (raw), or how much of the model's context is "
    "filled (context). Can be repeated.",
)
@click.option("--model", metavar="NAME", help="The model name in the output. Default: the one that the agent reports.")
@raw_option
def convert(
    file: str,
    form: _Form,
    mode: Mode,
    fences: Fences,
    include: tuple[Include, ...],
    model: str | None,
    raw: bool,
) -> int:
    """Convert cursor-agent output from FILE or standard input."""
    reader = new_reader(mode, fences, include, model)
    writer = _Writer(form, reader, raw=raw)
    try:
        for events in read_run(file, reader):
            writer.write(events)
    except KeyboardInterrupt:  # a reader always ends a run
        writer.write(reader.flush(RunCancelled("The conversion was interrupted; run it again.").failure()))
        raise
    if writer.failure is not None:
        raise RunFailed(f"the run failed: {writer.failure.message}")
    return 0


class _Writer:
    """Writes the events of each read at once."""

    def __init__(self, form: _Form, reader: DocumentReader, *, raw: bool) -> None:
        self.failure: Failure | None = None
        self._form, self._reader, self._raw = form, reader, raw
        self._encoder: _Encoder | None = None

    def write(self, events: list[DocumentEvent]) -> None:
        if not events:
            return
        if self._encoder is None:  # only now: the agent's first line names its model
            self._encoder = _encoder(self._form, self._reader.model)
        data = b"".join(map(self._encoder.push, events))
        if data and self._form == "text":
            write_text(data.decode("utf-8", "replace"), raw=self._raw)
        elif data:
            write_frames(data)
        if isinstance(done := events[-1], Done):
            self.failure = done.failure


def _encoder(form: _Form, model: str) -> _Encoder:
    head = CompletionHead(f"chatcmpl-{uuid4().hex}", int(time.time()), model)
    match form:
        case "documents":
            transcript = Transcript()
            return _Whole(transcript.push, transcript.response, encode_response)
        case "sse":
            return SseEncoder()
        case "ndjson":
            return NdjsonEncoder()
        case "openai":
            fold = CompletionFold(head)
            return _Whole(fold.push, fold.completion, encode_completion)
        case "openai-sse":
            return ChunkEncoder(head, include_usage=True)
        case "text":
            return TextEncoder()


class _Whole(Generic[T]):
    """A fold as an encoder: nothing until the run is done, then all of it."""

    def __init__(
        self, push: Callable[[DocumentEvent], None], result: Callable[[], T | None], encode: Callable[[T], bytes]
    ) -> None:
        self._push, self._result, self._encode = push, result, encode

    def push(self, event: DocumentEvent, /) -> bytes:
        self._push(event)
        result = self._result()
        if result is None:
            return b""
        json = self._encode(result)
        return (msgspec.json.format(json, indent=2) if sys.stdout.isatty() else json) + b"\n"
