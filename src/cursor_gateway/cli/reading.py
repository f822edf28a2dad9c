"""Read a run from a file or standard input, as it arrives."""

import select
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

import click

from cursor_gateway.errors import Failure, UnusableInput
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.requests import Fences, Include, RunInfo
from cursor_gateway.reader import DocumentReader
from cursor_gateway.sources.cursor.failures import known_failure

_PIECE = 64 * 1024
_HOW = "cursor-agent -p --output-format stream-json"


def new_reader(
    mode: Mode = "agent", fences: Fences = "split", include: Iterable[Include] = ("thinking",), model: str | None = None
) -> DocumentReader:
    """Of a run that begins now."""
    return DocumentReader(
        RunInfo(
            id=f"chat_{uuid4()}",
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            mode=mode,
            model=model,
            fences=fences,
            include=frozenset(include),
        )
    )


def read_run(file: str, reader: DocumentReader) -> Iterator[list[DocumentEvent]]:
    """What each read of the input meant. Raises `UnusableInput`, before the first event, for what is no run."""
    name = "standard input" if file == "-" else repr(file)
    if file == "-" and sys.stdin is not None and sys.stdin.isatty():
        click.echo(f"Reading the output of `{_HOW} …` from standard input; Ctrl-D ends it.", err=True)
    failure: Failure | None = None
    try:
        # unbuffered: a read gives what is there and does not wait for more
        with open(0 if file == "-" else file, "rb", buffering=0, closefd=file != "-") as source:
            while (piece := source.read(_PIECE)) != b"":
                if piece is None:  # a pipe that does not wait
                    select.select([source], [], [])
                    continue
                yield reader.push(piece)
    except OSError as error:
        failure = UnusableInput(f"{name} cannot be read: {error.strerror}; name a recording, or pipe one in.").failure()
    events = reader.flush(failure)
    if not reader.recognized and known_failure(reader.stray_text) is None:
        problem = f"{name} contains no cursor-agent output; create some with `{_HOW} …`, or try `cursor-gateway demo`."
        raise UnusableInput(failure.message if failure else problem)
    yield events
