"""The commands with their `--help` in; the manual page of cursor-gateway, in roff, out."""

import re
from collections.abc import Iterator
from importlib.metadata import version

import click

from cursor_gateway.settings import FILE_VARIABLE, PREFIX
from tools.reference.table_pages import commands_below


def man_page() -> str:
    from cursor_gateway.cli.main import cli  # late: the other pages do not need the commands

    lines = [
        '.\\" Written by `make docs` from the source; change that, not this page.',
        f'.TH CURSOR-GATEWAY 1 "" "cursor-gateway {version("cursor-gateway")}" "User Commands"',
        ".SH NAME",
        "cursor-gateway \\- use Cursor's agent through OpenAI's and Anthropic's APIs, in a browser or a terminal",
        ".SH SYNOPSIS",
        ".B cursor-gateway",
        "COMMAND [OPTIONS] ...",
        ".SH DESCRIPTION",
        *_paragraphs(cli.help or ""),
        *_options(cli, click.Context(cli, **cli.context_settings)),
        ".SH COMMANDS",
    ]
    for command, context in list(commands_below(cli, "cursor-gateway"))[1:]:
        lines += [f'.SS "{_escaped(context.command_path)}"', ".B " + _escaped(_usage(command, context)), ".PP"]
        lines += [*_paragraphs(command.help or ""), *_options(command, context), *_paragraphs(command.epilog or "")]
    return "\n".join([*(line.rstrip() for line in lines), *_END, ""])


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _paragraphs(text: str) -> Iterator[str]:
    """As click has them: after a line with only \\b, a paragraph keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"\f.*", "", text, flags=re.DOTALL)):
        lines = paragraph.strip("\n").splitlines()
        if not lines:
            continue
        yield ".PP"
        if lines[0].strip() == "\b":
            kept = lines[1:]
            margin = min(len(line) - len(line.lstrip()) for line in kept)
            yield from (".nf", *(_text(line[margin:]) for line in kept), ".fi")
        else:
            yield _text(" ".join(line.strip() for line in lines))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
            names, meaning = record
            yield from (".TP", f".B {_escaped(names)}", _text(" ".join(meaning.split())))


def _text(line: str) -> str:
    """A dot or a quote at the start of a line would be a command of roff."""
    escaped = _escaped(line)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


_ESCAPES = {"\\": "\\e", "-": "\\-", "`": "\\(ga", "'": "\\(aq", '"': "\\(dq"}


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter if letter.isascii() else f"\\[u{ord(letter):04X}]") for letter in text)


_END = [
    ".SH ENVIRONMENT",
    ".TP",
    f".B {_escaped(FILE_VARIABLE)}",
    "The configuration file.",
    ".TP",
    f".B {_escaped(PREFIX)}...",
    "Each setting, such as CURSOR_GATEWAY_PORT; cursor\\-gateway settings lists all of them.",
    ".SH FILES",
    ".TP",
    ".I ~/.config/cursor\\-gateway/config.toml",
    "The settings, in TOML.",
    ".TP",
    ".I ~/.local/share/cursor\\-gateway/",
    "The history, and what belongs to it.",
    ".SH EXIT STATUS",
    "0 success; 1 the run failed; 2 it could not begin, or the arguments are wrong; 130 interrupted.",
    ".SH SEE ALSO",
    ".BR cursor\\-agent (1)",
]
