"""`cursor-gateway show`, `demo`, `convert` and `export`: an answer, recorded or stored, in another form; and `schema`,
their form itself."""

import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args
from uuid import uuid4

import click
import msgspec

from cursor_gateway.cli.assembly.local_client import AnyClient, find, or_none, unknown
from cursor_gateway.cli.assembly.remote import GatewayChoice
from cursor_gateway.cli.commands.conversations import where, with_history, write_to
from cursor_gateway.cli.output import (
    FailedRun,
    Trouble,
    complete_file,
    output_option,
    raw_option,
    terminal,
    unechoed,
    valid_text,
    write_frames,
    write_json,
    write_text,
)
from cursor_gateway.dialects.documents.encoder import encode_response
from cursor_gateway.errors import Failure, RunCancelled, UnusableInput
from cursor_gateway.model.document_events import DocumentEvent, DocumentStarted, Done
from cursor_gateway.model.documents import MODES, ChatResponse, DocumentType, Mode
from cursor_gateway.model.requests import Fences, Include, RunInfo
from cursor_gateway.reader import DocumentReader
from cursor_gateway.render.visible import visible_json
from cursor_gateway.sources.cursor.failures import known_failure
from cursor_gateway.stages.run_state import Transcript

if TYPE_CHECKING:
    from rich.console import Console

_Form: TypeAlias = Literal["documents", "sse", "ndjson", "openai", "openai-sse", "text"]
_Batches: TypeAlias = Iterable[list[DocumentEvent]]
_Encoder: TypeAlias = Callable[[DocumentEvent], bytes]
_Asked: TypeAlias = tuple[ChatResponse, str]  # an answer, and what was asked
_Whole = TypeVar("_Whole")

_PIECE = 64 * 1024
_HOW = "cursor-agent -p --output-format stream-json"
_TOOL_SECONDS, _LINE_SECONDS = 0.25, 0.02  # of the demo
_TOOL_TYPES: frozenset[DocumentType] = frozenset(
    {"tool_call", "terminal_command", "file_edit", "plan", "clarification", "todo_update"}
)

_file = click.argument("file", default="-", metavar="[FILE|-]", shell_complete=complete_file)
_mode = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="agent",
    show_default=True,
    help="The mode that the agent ran in; it determines the purpose of code blocks.",
)
_fences = click.option(
    "--fences",
    type=click.Choice(get_args(Fences)),
    default="split",
    show_default=True,
    help="Whether code blocks become separate documents.",
)


# --- a recording --------------------------------------------------------------------------------------


def _new_reader(
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


def _read_run(file: str, reader: DocumentReader) -> Iterator[list[DocumentEvent]]:
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


# --- show and demo ------------------------------------------------------------------------------------


@click.command(
    epilog="""\b
    Examples:
      cursor-agent -p --output-format stream-json --stream-partial-output "…" | cursor-gateway show
      cursor-gateway show recording.ndjson --include thinking
    \b
    Without a terminal, with NO_COLOR or with TERM=dumb it prints plain text.
    Exit status: 0 the run completed; 1 it ended in an error; 2 the input cannot be used.""",
)
@_file
@_mode
@_fences
@click.option(
    "--include", type=click.Choice(["thinking"]), multiple=True, help="Also show the model's thinking, dimmed."
)
def show(file: str, mode: Mode, fences: Fences, include: tuple[Include, ...]) -> int:
    """Show cursor-agent output, from FILE or standard input, as documents."""
    return _view(_read_run(file, _new_reader(mode, fences, include)), terminal())


@click.command()
@click.option("--fast", is_flag=True, help="Play without pauses.")
def demo(fast: bool) -> int:
    """Play a built-in recording of a run."""
    from rich.text import Text

    from cursor_gateway.demo import recording

    console, reader = terminal(), _new_reader()
    console.print(Text("Demo: a built-in recording. No agent runs, no files change.", "bold reverse"))
    console.print()
    events = [*map(reader.push, recording().splitlines(keepends=True)), reader.flush()]
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


def _paced(batches: _Batches) -> Iterator[list[DocumentEvent]]:
    """Lively, but slow enough to see a tool run."""
    for events in batches:
        yield events
        runs = any(isinstance(event, DocumentStarted) and event.type in _TOOL_TYPES for event in events)
        time.sleep(_TOOL_SECONDS if runs else _LINE_SECONDS)


def _view(batches: _Batches, console: "Console") -> int:
    from cursor_gateway.render.terminal import TerminalView

    failed = False
    with unechoed(), TerminalView(console) as view:
        for events in batches:
            for event in events:
                view.push(event)
                failed = failed or (isinstance(event, Done) and event.failure is not None)
    return 1 if failed else 0


# --- convert ------------------------------------------------------------------------------------------


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
@_file
@click.option(
    "--to",
    "form",
    type=click.Choice(get_args(_Form)),
    default="documents",
    show_default=True,
    help="The output format: the whole response (documents), streaming events (sse, ndjson), an OpenAI chat "
    "completion (openai) or its chunks (openai-sse), or only the answer's text (text).",
)
@_mode
@_fences
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
    file: str, form: _Form, mode: Mode, fences: Fences, include: tuple[Include, ...], model: str | None, raw: bool
) -> int:
    """Convert cursor-agent output from FILE or standard input."""
    reader = _new_reader(mode, fences, include, model)
    encode: _Encoder | None = None
    failure: Failure | None = None

    def write(events: list[DocumentEvent]) -> None:
        """The events of each read together."""
        nonlocal encode, failure
        if not events:
            return
        encode = encode or _encoder(form, reader.model)  # only now: the agent's first line names its model
        data = b"".join(map(encode, events))
        if data and form == "text":
            write_text(data.decode("utf-8", "replace"), raw=raw)
        elif data:
            write_frames(data)
        if isinstance(done := events[-1], Done):
            failure = done.failure

    try:
        for events in _read_run(file, reader):
            write(events)
    except KeyboardInterrupt:  # a reader always ends a run
        write(reader.flush(RunCancelled("The conversion was interrupted; run it again.").failure()))
        raise
    if failure is not None:
        raise FailedRun(f"the run failed: {failure.message}")
    return 0


def _encoder(form: _Form, model: str) -> _Encoder:
    from cursor_gateway.dialects.chat.encoder import ChunkEncoder, CompletionFold, CompletionHead, encode_completion
    from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder
    from cursor_gateway.dialects.replies import TextEncoder

    head = CompletionHead(f"chatcmpl-{uuid4().hex}", int(time.time()), model)
    match form:
        case "documents":
            transcript = Transcript()
            return _whole(transcript.push, transcript.response, encode_response)
        case "sse":
            return SseEncoder().push
        case "ndjson":
            return NdjsonEncoder().push
        case "openai":
            fold = CompletionFold(head)
            return _whole(fold.push, fold.completion, encode_completion)
        case "openai-sse":
            return ChunkEncoder(head, include_usage=True).push
        case "text":
            return TextEncoder().push


def _whole(
    push: Callable[[DocumentEvent], None], result: Callable[[], _Whole | None], encode: Callable[[_Whole], bytes]
) -> _Encoder:
    """Nothing until the run is done, then all of it."""

    def encoded(event: DocumentEvent) -> bytes:
        push(event)
        return b"" if (whole := result()) is None else _indented(encode(whole)) + b"\n"

    return encoded


def _indented(json: bytes) -> bytes:
    """Indented for people, on a terminal only."""
    return msgspec.json.format(json, indent=2) if sys.stdout.isatty() else json


# --- export -------------------------------------------------------------------------------------------


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway export last -o answer.html
      cursor-gateway export chat_0123… --to json
      cursor-gateway export recording.ndjson -o run.html
      cursor-agent -p --output-format stream-json "…" | cursor-gateway export - -o run.html
    \b
    Exit status: 0 success; 2 there is no such answer, or the input cannot be used.""",
)
@click.argument("target", metavar="ID|FILE|-")
@click.option(
    "--to",
    "form",
    type=click.Choice(["html", "json"]),
    default="html",
    show_default=True,
    help="A self-contained HTML file, or the answer's documents as JSON.",
)
@output_option
@_mode
@_fences
@raw_option
@where
def export(
    target: str,
    form: Literal["html", "json"],
    output: str | None,
    mode: Mode,
    fences: Fences,
    raw: bool,
    place: GatewayChoice,
) -> int:
    """Export an answer from the history, or a cursor-agent recording, as one file.

    ID is the id of an answer (chat_…). The id of a conversation, or `last`, selects its newest answer. --mode and
    --fences apply to recordings only.
    """
    if target == "-" or Path(target).is_file():
        response, prompt = _recorded(target, mode, fences)
    else:
        response, prompt = with_history(place, lambda client: _stored(client, valid_text(target)))
    if form == "html":
        from cursor_gateway.render.html.work import render_page

        text = render_page(response, prompt=prompt)
    else:
        text = visible_json(_indented(encode_response(response))).decode() + "\n"
    write_to(output, text, raw=raw)
    return 0


def _recorded(file: str, mode: Mode, fences: Fences) -> _Asked:
    reader, transcript = _new_reader(mode, fences), Transcript()
    for events in _read_run(file, reader):
        for event in events:
            transcript.push(event)
    response = transcript.response()
    assert response is not None  # a reader ends every run
    return response, reader.prompt


async def _stored(client: AnyClient, name: str) -> _Asked:
    if name.startswith("chat_"):
        response = await or_none(client.response(name))
        if response is None:
            raise Trouble(f"Unknown answer {name[:100]!r}; see `cursor-gateway conversations`.")
    else:
        runs = (await find(client, name)).runs
        response = await or_none(client.response(runs[-1].id)) if runs else None
        if response is None:
            raise unknown(name)
    detail = await or_none(client.conversation(response.conversation_id))
    asked = [m.text for m in detail.messages if m.chat_id == response.id and m.role == "user"] if detail else []
    return response, "\n\n".join(asked)


# --- schema ------------------------------------------------------------------------------------------


_Notation: TypeAlias = Literal["typescript", "openapi-components"]


@click.command()
@click.option("--typescript", "notation", flag_value="typescript", help="Print TypeScript definitions.")
@click.option(
    "--openapi-components",
    "notation",
    flag_value="openapi-components",
    help="Print the `components` of an OpenAPI document.",
)
def schema(notation: _Notation | None) -> int:
    """Print the JSON Schema of responses, documents and events."""
    from cursor_gateway.schema import json_schema, openapi_components, typescript

    match notation:
        case "typescript":
            click.echo(typescript(), nl=False)
        case "openapi-components":
            write_json(msgspec.json.encode(openapi_components()), indented=True)
        case None:
            write_json(msgspec.json.encode(json_schema()), indented=True)
    return 0
