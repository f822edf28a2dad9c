"""The command `cursor-gateway`: its subcommands, its errors and its exit status."""

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

_UNUSABLE, _INTERRUPTED = 2, 130

_COMMANDS = {
    "serve": "Run the gateway.",
    "chat": "Send a prompt to the agent.",
    "conversations": "List, search, show, export and delete conversations.",
    "launch": "Start Claude Code, Codex or another client with the gateway.",
    "connect": "Configure a client or an editor to use the gateway.",
    "mcp": "Offer the agent to MCP hosts, on standard input and output.",
    "permissions": "List and revoke what the agent may do.",
    "models": "List the models.",
    "doctor": "Check the agent, the settings and this machine.",
    "verify": "Check with short prompts that the agent does what the gateway expects.",
    "convert": "Convert agent output to JSON, SSE, OpenAI or text.",
    "show": "Show agent output in the terminal.",
    "export": "Export an answer as an HTML page.",
    "demo": "Play a built-in recording.",
    "schema": "Print the JSON Schema or TypeScript types.",
    "migrate": "Update the tables of a PostgreSQL database.",
    "history": "Copy conversations to a PostgreSQL database.",
    "runners": "List the processes in a cluster.",
    "drain": "Tell a process in a cluster to accept no new work.",
    "settings": "Show all settings and where they come from.",
    "key": "Create an API key.",
    "share": "Log in another device at your gateway.",
    "service": "Run the gateway in the background, starting at login.",
    "completion": "Print a shell completion script.",
}
_MODULES = {"demo": "show", "drain": "runners"}  # of those that share one


class _Command(click.Command):
    """What the list of commands shows of one; the command itself is imported when it is used."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        name = self.name or ""
        command: click.Command = getattr(import_module(f"cursor_gateway.cli.{_MODULES.get(name, name)}"), name)
        return command.make_context(info_name, args, parent, **extra)


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from cursor_gateway.cli.version import full_version

        click.echo(f"cursor-gateway {full_version()}")
        context.exit()


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Examples:
      cursor-gateway serve
      cursor-gateway chat "Explain this repo"
      cursor-gateway launch claude
      cursor-gateway doctor
      cursor-agent -p --output-format stream-json --stream-partial-output "…" | cursor-gateway show
      cursor-gateway convert recording.ndjson --to documents""",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version, and the commit that it was built from.",
)
def cli() -> None:
    """Use Cursor's agent from any OpenAI- or Anthropic-compatible tool, in a browser, or in the terminal."""


for name, short_help in _COMMANDS.items():
    cli.add_command(_Command(name, short_help=short_help))


def run(arguments: Sequence[str]) -> int:
    try:
        return cli.main(list(arguments), prog_name="cursor-gateway", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return _INTERRUPTED
    except OSError as error:  # a full disk or a closed terminal; errors of reading are handled elsewhere
        return _cannot_write(error.strerror or str(error))
    except Exception as error:
        from cursor_gateway.errors import GatewayError, StoreUnavailable  # only now: `--help` needs none of it

        if not isinstance(error, GatewayError):
            raise
        from cursor_gateway.render.visible import visible_line

        # Paths are for the user of this machine, not for clients of the gateway.
        more = f" ({error.details})" if isinstance(error, StoreUnavailable) and error.details else ""
        click.echo(f"cursor-gateway: {visible_line(f'{error}{more}')}", err=True)
        return _UNUSABLE


def _cannot_write(reason: str) -> int:
    if sys.stderr is not None:
        click.echo(f"cursor-gateway: cannot write the output: {reason}.", err=True)
    return _UNUSABLE


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head` ends this program as it ends any other
    if sys.stdout is None:
        sys.exit(_cannot_write("standard output is closed"))
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        status = _cannot_write(error.strerror or str(error))
        sys.stdout = None  # or Python tries again at exit, and prints a traceback
    sys.exit(status)
