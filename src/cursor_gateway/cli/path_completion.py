"""Let the shell complete files and folders."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_file(_context: click.Context, _parameter: click.Parameter, typed: str) -> "list[CompletionItem]":
    return [_item(typed, "file")]


def complete_folder(_context: click.Context, _parameter: click.Parameter, typed: str) -> "list[CompletionItem]":
    return [_item(typed, "dir")]


def _item(typed: str, kind: str) -> "CompletionItem":
    from click.shell_completion import CompletionItem  # only a completion needs it

    return CompletionItem(typed, type=kind)
