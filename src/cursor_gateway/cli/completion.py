"""`cursor-gateway completion`: print a shell completion script."""

import click

from cursor_gateway.cli.output import write_text

_SHELLS = ("bash", "zsh", "fish")


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
@click.argument("shell", metavar="[bash|zsh|fish]", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a shell completion script for commands, options and their values."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    write_text(made(context.find_root().command, {}, "cursor-gateway", "_CURSOR_GATEWAY_COMPLETE").source())
    return 0
