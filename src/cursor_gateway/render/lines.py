"""Split texts into lines, and compare two versions of them."""

from typing import TypeAlias

from cursor_gateway.model.documents import Diff
from cursor_gateway.stages.hunks import CONTEXT, Hunk, grouped, hunks_between

_COMPARED = 200_000  # lines; beyond that comparing them takes too long

Opcode: TypeAlias = tuple[str, int, int, int, int]  # as in difflib


def split_lines(text: str) -> list[str]:
    """A line feed ends a line; it does not begin another."""
    return text.removesuffix("\n").split("\n") if text else []


def diff_lines(diff: Diff, old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines of both texts of a diff. If its range counts them as lines without a line end after the last one, as
    `line_diff` does, then an old text that is empty or ends with a line feed ends with a blank line.
    """
    if old.count("\n") != diff.end_line - diff.start_line:
        return split_lines(old), split_lines(new)
    return old.split("\n"), new.split("\n") if new else []


def changes(old: list[str], new: list[str], *, compares: bool = True) -> list[list[Opcode]]:
    """In groups, each with its context. Without comparing, all old lines come before all new ones."""
    if not compares or len(old) + len(new) > _COMPARED:
        return [[("replace", 0, len(old), 0, len(new))]]
    return [_opcodes(group, len(old)) for group in grouped(hunks_between(old, new), CONTEXT)]


def _opcodes(group: list[Hunk], length: int) -> list[Opcode]:
    """With the equal lines around and between the hunks."""
    codes: list[Opcode] = []
    old_at = max(group[0].old_start - CONTEXT, 0)
    new_at = 0
    for hunk in group:
        if hunk.old_start > old_at:
            codes.append(("equal", old_at, hunk.old_start, hunk.new_start - (hunk.old_start - old_at), hunk.new_start))
        tag = "replace" if hunk.added and hunk.removed else "insert" if hunk.added else "delete"
        codes.append((tag, hunk.old_start, hunk.old_end, hunk.new_start, hunk.new_end))
        old_at, new_at = hunk.old_end, hunk.new_end
    if (end := min(old_at + CONTEXT, length)) > old_at:
        codes.append(("equal", old_at, end, new_at, new_at + end - old_at))
    return codes
