"""Arguments in, an exit status out."""

import signal
import sys
from collections.abc import Sequence

import click

from cursor_gateway.cli.chat import chat
from cursor_gateway.cli.conversations import conversations
from cursor_gateway.cli.convert import convert
from cursor_gateway.cli.doctor import doctor
from cursor_gateway.cli.export import export
from cursor_gateway.cli.key import key
from cursor_gateway.cli.models import models
from cursor_gateway.cli.schema import schema
from cursor_gateway.cli.serve import serve
from cursor_gateway.cli.settings import settings
from cursor_gateway.cli.show import demo, show
from cursor_gateway.errors import GatewayError

_UNUSABLE, _INTERRUPTED = 2, 130


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Examples:
      cursor-gateway serve
      cursor-gateway chat "Explain this repo"
      cursor-gateway doctor
      cursor-agent -p --output-format stream-json --stream-partial-output "…" | cursor-gateway show
      cursor-gateway convert recording.ndjson --to documents""",
)
@click.version_option(package_name="cursor-gateway", message="%(prog)s %(version)s")
def cli() -> None:
    """Cursor's agent from everywhere: as ordered, typed documents, and as OpenAI's API."""


for command in (serve, chat, conversations, models, doctor, convert, show, export, demo, schema, settings, key):
    cli.add_command(command)


def run(arguments: Sequence[str]) -> int:
    try:
        return cli.main(list(arguments), prog_name="cursor-gateway", standalone_mode=False) or 0
    except GatewayError as error:
        click.echo(f"cursor-gateway: {error}", err=True)
        return _UNUSABLE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return _INTERRUPTED
    except OSError as error:  # reading has its own: this is a full disk, a closed terminal
        return _cannot_write(error.strerror or str(error))


def _cannot_write(reason: str) -> int:
    if sys.stderr is not None:
        click.echo(f"cursor-gateway: the output cannot be written: {reason}; give it another place.", err=True)
    return _UNUSABLE


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head` ends this program as it ends any other
    if sys.stdout is None:
        sys.exit(_cannot_write("the standard output is closed"))
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        status = _cannot_write(error.strerror or str(error))
        sys.stdout = None  # or Python tries once more at its end, and says so at length
    sys.exit(status)
