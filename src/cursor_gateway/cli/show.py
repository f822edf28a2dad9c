"""`cursor-gateway show` and `demo`: show the output of cursor-agent in the terminal, live."""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from cursor_gateway.cli import options
from cursor_gateway.cli.reading import new_reader, read_run
from cursor_gateway.cli.terminals import terminal, unechoed
from cursor_gateway.model.document_events import DocumentEvent, DocumentStarted, Done
from cursor_gateway.model.documents import DocumentType, Mode
from cursor_gateway.model.requests import Fences, Include
from cursor_gateway.reader import DocumentReader

if TYPE_CHECKING:
    from rich.console import Console

_TOOL_SECONDS, _LINE_SECONDS = 0.25, 0.02
_TOOL_TYPES: frozenset[DocumentType] = frozenset(
    {"tool_call", "terminal_command", "file_edit", "plan", "clarification", "todo_update"}
)


@click.command(
    epilog="""\b
    Examples:
      cursor-agent -p --output-format stream-json --stream-partial-output "…" | cursor-gateway show
      cursor-gateway show recording.ndjson --include thinking
    \b
    Without a terminal, with NO_COLOR or with TERM=dumb it prints plain text.
    Exit status: 0 the run completed; 1 it ended in an error; 2 the input cannot be used.""",
)
@options.file
@options.mode
@options.fences
@click.option(
    "--include", type=click.Choice(["thinking"]), multiple=True, help="Also show the model's thinking, dimmed."
)
def show(file: str, mode: Mode, fences: Fences, include: tuple[Include, ...]) -> int:
    """Show cursor-agent output, from FILE or standard input, as documents."""
    return _view(read_run(file, new_reader(mode, fences, include)), terminal())


@click.command()
@click.option("--fast", is_flag=True, help="Play without pauses.")
def demo(fast: bool) -> int:
    """Play a built-in recording of a run."""
    from rich.text import Text

    from cursor_gateway.demo import recording

    console = terminal()
    console.print(Text("Demo: a built-in recording. No agent runs, no files change.", "bold reverse"))
    console.print()
    events = _replayed(recording(), new_reader())
    status = _view(_paced(events) if console.is_terminal and not fast else events, console)
    console.print(_HINTS, soft_wrap=True)
    return status


_HINTS = """
Next steps:
  cursor-agent -p --output-format stream-json "…" > run.ndjson
  cursor-gateway show run.ndjson                      or pipe it in, live
  cursor-gateway convert run.ndjson --to documents    the response as JSON
  cursor-gateway convert run.ndjson --to sse          its events
  cursor-gateway convert run.ndjson --to openai       a chat completion
  cursor-gateway schema --typescript                  the types"""


def _replayed(recording: bytes, reader: DocumentReader) -> Iterator[list[DocumentEvent]]:
    for line in recording.splitlines(keepends=True):
        yield reader.push(line)
    yield reader.flush()


def _paced(batches: Iterable[list[DocumentEvent]]) -> Iterator[list[DocumentEvent]]:
    """Lively, but slow enough to see a tool run."""
    for events in batches:
        yield events
        runs = any(isinstance(event, DocumentStarted) and event.type in _TOOL_TYPES for event in events)
        time.sleep(_TOOL_SECONDS if runs else _LINE_SECONDS)


def _view(batches: Iterable[list[DocumentEvent]], console: "Console") -> int:
    from cursor_gateway.render.terminal import TerminalView

    failed = False
    with unechoed(), TerminalView(console) as view:
        for events in batches:
            for event in events:
                view.push(event)
                failed = failed or (isinstance(event, Done) and event.failure is not None)
    return 1 if failed else 0
