"""`cursor-gateway export`: write a stored answer or a recording to one file."""

import sys
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import click
import msgspec

from cursor_gateway.cli import options
from cursor_gateway.cli.conversation_names import find, or_none, unknown
from cursor_gateway.cli.conversations import where, with_history, write_to
from cursor_gateway.cli.local_client import AnyClient
from cursor_gateway.cli.output import Trouble, output_option, raw_option, valid_text
from cursor_gateway.cli.reading import new_reader, read_run
from cursor_gateway.cli.remote import Place
from cursor_gateway.dialects.documents.encoder import encode_response
from cursor_gateway.model.documents import ChatResponse, Mode
from cursor_gateway.model.requests import Fences
from cursor_gateway.render.visible import visible_json
from cursor_gateway.stages.run_state import Transcript

_Form: TypeAlias = Literal["html", "json"]
_Asked: TypeAlias = tuple[ChatResponse, str]  # an answer, and what was asked


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
    type=click.Choice(get_args(_Form)),
    default="html",
    show_default=True,
    help="A self-contained HTML file, or the answer's documents as JSON.",
)
@output_option
@options.mode
@options.fences
@raw_option
@where
def export(
    target: str,
    form: _Form,
    output: str | None,
    mode: Mode,
    fences: Fences,
    raw: bool,
    place: Place,
) -> int:
    """Export an answer from the history, or a cursor-agent recording, as one file.

    ID is the id of an answer (chat_…). The id of a conversation, or `last`, selects its newest answer. --mode and
    --fences apply to recordings only.
    """
    if target == "-" or Path(target).is_file():
        response, prompt = _recorded(target, mode, fences)
    else:
        response, prompt = with_history(place, lambda client: _stored(client, valid_text(target)))
    write_to(output, _written(response, prompt, form), raw=raw)
    return 0


def _recorded(file: str, mode: Mode, fences: Fences) -> _Asked:
    reader = new_reader(mode, fences)
    transcript = Transcript()
    for events in read_run(file, reader):
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


def _written(response: ChatResponse, prompt: str, form: _Form) -> str:
    match form:
        case "html":
            from cursor_gateway.render.html import render_page

            return render_page(response, prompt=prompt)
        case "json":
            json = encode_response(response)
            return visible_json(msgspec.json.format(json, indent=2) if sys.stdout.isatty() else json).decode() + "\n"
