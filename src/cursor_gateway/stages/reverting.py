"""Undo the agent's edits of a file, or say why that is not possible.

An edit's document has the lines that it replaced and those that it wrote. It is reverted only where the written lines
still are: at the recorded place if the file has not changed since, else only if they are in the file exactly once.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import UNSET, Struct

from cursor_gateway.model.documents import Diff, FileEditDocument

_MOST_LINES = 500_000
_MOST_WORK = 500_000_000  # a second or two


class Before(Struct, frozen=True):
    text: str | None  # None: there was no such file


class Misfit(Struct, frozen=True):
    reason: Literal["changed", "gone", "unrecorded", "large"]


def before(
    text: str | None,
    edits: Sequence[FileEditDocument],
    *,
    is_untouched: bool,
    is_over: Callable[[], bool] = lambda: False,
) -> Before | Misfit:
    """`text` is the file now, None if there is none; `edits` are in their order. The work has a limit, and ends when it
    `is_over`.
    """
    if text is not None and text.count("\n") > _MOST_LINES:
        return Misfit("large")
    file = None if text is None else _File(text)
    for edit in reversed(edits):
        if edit.metadata.operation in ("delete", "rename"):
            return Misfit("unrecorded")
        if file is None:
            return Misfit("gone")
        if file.work > _MOST_WORK or is_over():
            return Misfit("large")
        if edit.metadata.operation == "create":
            if not file.is_created(edit.content):
                return Misfit("changed")
            file = None
        elif edit.metadata.diff is UNSET:
            return Misfit("unrecorded")
        elif (misfit := file.undo(edit.metadata.diff, is_untouched)) is not None:
            return misfit
    return Before(None if file is None else "\n".join(file.lines))


class _File:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.work = 0  # lines that were moved, and characters that were searched

    def is_created(self, content: str | None) -> bool:
        return content is not None and "\n".join(self.lines).removesuffix("\n") == content.removesuffix("\n")

    def undo(self, diff: Diff, is_untouched: bool) -> Misfit | None:
        place = diff.start_line - 1
        if not diff.new_string:  # a deletion has no lines to find, and may also be one empty line
            if not is_untouched or not 0 <= place <= len(self.lines):
                return Misfit("changed")
            if self.lines[place : place + 1] == [""]:
                return Misfit("unrecorded")
            self._put(diff.old_string, place, 0)
            return None
        new = diff.new_string.split("\n")
        # Some agents do not report where they edited: then it is line 1.
        is_known = is_untouched and place > 0 and self.lines[place : place + len(new)] == new
        at = place if is_known else self._only_place(diff.new_string)
        if at is None:
            return Misfit("changed")
        self._put(diff.old_string, at, len(new))
        return None

    def _put(self, text: str, at: int, count: int) -> None:
        self.lines[at : at + count] = text.split("\n")
        self.work += len(self.lines)

    def _only_place(self, wanted: str) -> int | None:
        """The line where this text is, if it is nowhere else. A search takes linear time, whatever is in them."""
        text, wanted = "\n".join(["", *self.lines, ""]), f"\n{wanted}\n"
        self.work += len(text)
        first = text.find(wanted)
        is_only = first >= 0 and text.find(wanted, first + 1) < 0
        return text.count("\n", 0, first) if is_only else None
