"""The options that several commands share."""

from typing import get_args

import click

from cursor_gateway.cli.path_completion import complete_file
from cursor_gateway.model.documents import MODES
from cursor_gateway.model.requests import Fences

file = click.argument("file", default="-", metavar="[FILE|-]", shell_complete=complete_file)
mode = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="agent",
    show_default=True,
    help="The mode that the agent ran in; it determines the purpose of code blocks.",
)
fences = click.option(
    "--fences",
    type=click.Choice(get_args(Fences)),
    default="split",
    show_default=True,
    help="Whether code blocks become separate documents.",
)
