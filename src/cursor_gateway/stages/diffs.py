"""Describe the differences between two versions of a file, or those of a patch, as one change."""

import re

from cursor_gateway.model.documents import Diff

_HUNK = re.compile(r"@@ -([0-9]+)(?:,[0-9]+)? \+[0-9]+(?:,[0-9]+)? @@")
_MOST_DIGITS = 9  # of a line's number: those of any file have fewer


def line_diff(before: str, after: str) -> Diff:
    """The smallest range of old lines that covers every change.

    Neither text is empty: an insertion, and a change that leaves nothing or a blank line, include the line before them
    (at the top, the one after), as in the specification's own example. So replacing one by the other is the change.
    """
    if before == after:
        return Diff(old_string="", new_string="", start_line=1, end_line=1)
    old, new = before + "\n", after + "\n"  # so that every line has a line end
    start = old.rfind("\n", 0, _common_start(old, new)) + 1
    kept = _common_end(old, new, start)
    old_end, new_end = len(old) - kept, len(new) - kept
    while start == old_end or new[start:new_end] in ("", "\n"):
        if start > 0:
            start = old.rfind("\n", 0, start - 1) + 1
        elif old_end < len(old):
            more = old.index("\n", old_end) + 1 - old_end
            old_end, new_end = old_end + more, new_end + more
        else:
            break  # nothing is left of the text
    first = old.count("\n", 0, start) + 1
    return Diff(
        old_string=old[start:old_end].removesuffix("\n"),
        new_string=new[start:new_end].removesuffix("\n"),
        start_line=first,
        end_line=first + old.count("\n", start, old_end) - 1,
    )


def split_lines(text: str) -> list[str]:
    """A line feed ends a line; it does not begin another."""
    return text.removesuffix("\n").split("\n") if text else []


def diff_lines(diff: Diff, old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines of both texts of a diff. If its range counts them as lines without a line end after the last one, as
    `line_diff` does, then an old text that is empty or ends with a line feed ends with a blank line.
    """
    if not new or old.count("\n") != diff.end_line - diff.start_line:
        return split_lines(old), split_lines(new)
    return old.split("\n"), new.split("\n")


def _common_start(old: str, new: str) -> int:
    """Binary search comparing whole slices, which is much faster than a loop over lines."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(old: str, new: str, start: int) -> int:
    """The length of the common lines at the end, none of them before `start`."""
    low, high = 0, min(len(old), len(new)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]:
            low = middle
        else:
            high = middle - 1
    if all(at == start or text[at - 1] == "\n" for text, at in ((old, len(old) - low), (new, len(new) - low))):
        return low
    return len(old) - old.index("\n", len(old) - low) - 1


def patch_diff(patch: str, after: str | None = None) -> Diff | None:
    """The same from a unified diff, for results that have nothing else; None if it has no hunk.

    A patch lacks the lines between hunks, so with several hunks the strings are theirs, joined. A patch without
    headers is one hunk, located by its new lines in `after`, the changed file.
    """
    if not _HUNK.search(patch):
        patch = _with_header(patch, after)
    old: list[str] = []
    new: list[str] = []
    numbers: list[int] = []  # of the old lines, in the file
    number: int | None = None
    for line in patch.split("\n"):
        if hunk := _HUNK.match(line):
            number = int(hunk[1][-_MOST_DIGITS:]) if len(hunk[1].lstrip("0")) <= _MOST_DIGITS else 10**_MOST_DIGITS
        elif number is None:
            continue  # the header
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(("-", " ")):
            old.append(line[1:])
            numbers.append(number)
            number += 1
            if line.startswith(" "):
                new.append(line[1:])
    if number is None:
        return None
    change = line_diff("\n".join(old), "\n".join(new))
    numbers = numbers or [1]  # an empty file
    return Diff(
        old_string=change.old_string,
        new_string=change.new_string,
        start_line=numbers[change.start_line - 1],
        end_line=numbers[change.end_line - 1],
    )


def _with_header(patch: str, after: str | None) -> str:
    lines = [line for line in patch.removesuffix("\n").split("\n") if not line.startswith("\\")]
    if len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ "):
        lines = lines[2:]
    if not any(line.startswith(("+", "-")) for line in lines):
        return ""
    if any(line and not line.startswith(("+", "-", " ")) for line in lines):
        return ""
    new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    place = f"\n{after}\n".find(f"\n{new}") if after is not None else 0
    start = 1 + (f"\n{after}".count("\n", 0, place) if place > 0 else 0)
    return "\n".join([f"@@ -{start} +{start} @@", *(line or " " for line in lines)])
