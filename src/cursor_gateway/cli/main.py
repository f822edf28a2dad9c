"""The command `cursor-gateway`: its subcommands, its errors and its exit status."""

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

_UNUSABLE, _INTERRUPTED = 2, 130

_GROUPS = {
    "Use the agent": {
        "serve": "Run the gateway: the web page and the APIs.",
        "chat": "Talk to the agent, or send it one prompt.",
        "conversations": "List, search, show, export and delete conversations, and review changes.",
        "permissions": "List and revoke what the agent may do.",
        "links": "List, create and revoke read-only links to conversations.",
        "models": "List the models.",
        "demo": "Play a built-in recording.",
    },
    "Connect other programs": {
        "launch": "Start Claude Code, Codex or another client with the gateway.",
        "connect": "Configure a client or an editor to use the gateway.",
        "acp": "Offer the agent to editors such as Zed, on standard input and output.",
        "mcp": "Offer the agent to MCP hosts, on standard input and output.",
        "key": "Create an API key.",
        "share": "Log in another device at your gateway.",
    },
    "Look at answers and problems": {
        "doctor": "Check the agent, the settings and this machine.",
        "verify": "Check with short prompts that the agent does what the gateway expects.",
        "settings": "Show all settings and where they come from.",
        "show": "Show agent output in the terminal.",
        "convert": "Convert agent output to JSON, SSE, OpenAI or text.",
        "export": "Export an answer as an HTML page.",
        "schema": "Print the JSON Schema or TypeScript types.",
    },
    "Operate": {
        "service": "Run the gateway in the background, starting at login.",
        "completion": "Print a shell completion script.",
        "webhooks": "Test the webhooks of the settings.",
        "runners": "List the processes in a cluster, and drain them.",
        "drain": "The same as `runners drain`.",
        "migrate": "Update the tables of a PostgreSQL database.",
        "history": "Copy conversations to a PostgreSQL database.",
    },
}
_MODULES = {  # of those that share one
    **dict.fromkeys(("convert", "demo", "export", "schema", "show"), "answers"),
    **dict.fromkeys(("acp", "mcp"), "stdio"),
    **dict.fromkeys(("drain", "history", "key", "migrate", "runners", "webhooks"), "operations"),
    "links": "conversations",
}


class _Command(click.Command):
    """What the list of commands shows of one; the command itself is imported when it is used."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        name = self.name or ""
        command: click.Command = getattr(import_module(f"cursor_gateway.cli.commands.{_MODULES.get(name, name)}"), name)
        return command.make_context(info_name, args, parent, **extra)


class _Commands(click.Group):
    """Lists its commands by what they are for."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for names in _GROUPS.values() for name in names)
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), short_help) for name, short_help in commands.items()])


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from cursor_gateway.cli.output import full_version

        click.echo(f"cursor-gateway {full_version()}")
        context.exit()


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Examples:
      cursor-gateway                             a conversation, in this folder
      cursor-gateway chat "Explain this repo"
      cursor-gateway serve
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
@click.pass_context
def cli(context: click.Context) -> int:
    """Use Cursor's agent from any OpenAI- or Anthropic-compatible tool, in a browser, or in the terminal.

    Without a command, on a terminal: a conversation with the agent (see `cursor-gateway chat`).
    """
    if context.invoked_subcommand is not None:
        return 0
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.exceptions.NoArgsIsHelpError(context)
    with _Command("chat").make_context("chat", [], parent=context) as chat:
        status: int = chat.command.invoke(chat)
        return status


@click.command(
    epilog="""\b
    Bash (4.4 or newer), in ~/.bashrc:
      eval "$(cursor-gateway completion bash)"

    \b
    Zsh, in ~/.zshrc after compinit:
      eval "$(cursor-gateway completion zsh)"

    \b
    Fish:
      cursor-gateway completion fish > ~/.config/fish/completions/cursor-gateway.fish""",
)
@click.argument("shell", metavar="[bash|zsh|fish]", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a shell completion script for commands, options and their values."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "cursor-gateway", "_CURSOR_GATEWAY_COMPLETE").source(), nl=False)
    return 0


for _commands in _GROUPS.values():
    for _name, _short_help in _commands.items():
        cli.add_command(_Command(_name, short_help=_short_help) if _name != completion.name else completion)


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
