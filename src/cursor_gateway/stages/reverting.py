"""Undo the agent's edits of a file, or say why that is not possible.

An edit's document has the lines that it replaced and those that it wrote. It is reverted only where the written lines
still are: at the recorded place if the file has not changed since, else only if they are in the file exactly once.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct

from cursor_gateway.model.documents import Diff, FileEditDocument


class Before(Struct, frozen=True):
    text: str | None  # None: there was no such file


class Misfit(Struct, frozen=True):
    reason: Literal["changed", "gone", "unrecorded"]


def before(text: str | None, edits: Sequence[FileEditDocument], *, is_untouched: bool) -> Before | Misfit:
    """`text` is the file now, None if there is none; `edits` are in their order."""
    for edit in reversed(edits):
        found = _before_one(text, edit, is_untouched)
        if isinstance(found, Misfit):
            return found
        text = found.text
    return Before(text)


def _before_one(text: str | None, edit: FileEditDocument, is_untouched: bool) -> Before | Misfit:
    metadata = edit.metadata
    if metadata.operation in ("delete", "rename"):
        return Misfit("unrecorded")
    if text is None:
        return Misfit("gone")
    if metadata.operation == "create":
        is_same = edit.content is not None and text.removesuffix("\n") == edit.content.removesuffix("\n")
        return Before(None) if is_same else Misfit("changed")
    if metadata.diff is UNSET:
        return Misfit("unrecorded")
    return _undone(text.split("\n"), metadata.diff, is_untouched)


def _undone(lines: list[str], diff: Diff, is_untouched: bool) -> Before | Misfit:
    old, place = diff.old_string.split("\n"), diff.start_line - 1
    if not diff.new_string:  # a deletion has no lines to find, and may also be one empty line
        if not is_untouched or place > len(lines):
            return Misfit("changed")
        if lines[place : place + 1] == [""]:
            return Misfit("unrecorded")
        return Before("\n".join([*lines[:place], *old, *lines[place:]]))
    new = diff.new_string.split("\n")
    places = [at for at in range(len(lines) - len(new) + 1) if lines[at] == new[0] and lines[at : at + len(new)] == new]
    # Some agents do not report where they edited: then it is line 1.
    is_known = is_untouched and place > 0 and place in places
    if not is_known and len(places) != 1:
        return Misfit("changed")
    at = place if is_known else places[0]
    return Before("\n".join([*lines[:at], *old, *lines[at + len(new) :]]))
