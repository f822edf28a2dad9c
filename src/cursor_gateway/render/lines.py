"""Split texts into lines, and compare two versions of them."""

from difflib import SequenceMatcher
from typing import TypeAlias

_COMPARED = 4_000  # lines; beyond that comparing them takes too long
_CONTEXT = 3

Opcode: TypeAlias = tuple[str, int, int, int, int]  # as in difflib


def split_lines(text: str) -> list[str]:
    """A line feed ends a line; it does not begin another."""
    return text.removesuffix("\n").split("\n") if text else []


def changes(old: list[str], new: list[str], *, compares: bool = True) -> list[list[Opcode]]:
    """In groups, each with its context. Without comparing, all old lines come before all new ones."""
    if not compares or len(old) + len(new) > _COMPARED:
        return [[("replace", 0, len(old), 0, len(new))]]
    return [list(group) for group in SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT)]
