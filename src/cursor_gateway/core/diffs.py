"""Two versions of a file, or a patch, in; the one change that covers all of it out."""

import re

from cursor_gateway.core.documents import Diff

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


def line_diff(before: str, after: str) -> Diff:
    """The smallest range of old lines that covers every change.

    An insertion touches no old line; it then takes the line before it along (at the top, the one
    after it), as the specification's own example does, so that the range is never empty.
    """
    if before == after:
        return Diff(old_string="", new_string="", start_line=1, end_line=1)
    old, new = before.split("\n"), after.split("\n")
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    kept = 0
    while kept < shorter - start and old[-1 - kept] == new[-1 - kept]:
        kept += 1
    end = len(old) - kept
    if start == end and start > 0:
        start -= 1
    elif start == end:
        end += 1
        kept -= 1
    return Diff(
        old_string="\n".join(old[start:end]),
        new_string="\n".join(new[start : len(new) - kept]),
        start_line=start + 1,
        end_line=end,
    )


def patch_diff(patch: str) -> Diff | None:
    """The same from a unified diff, for results that carry nothing else; None when it holds no hunk.

    Lines between two hunks are not in a patch, so with several hunks the strings are theirs, joined.
    """
    old: list[str] = []
    new: list[str] = []
    numbers: list[int] = []  # of the old lines, in the file
    number: int | None = None
    for line in patch.split("\n"):
        if hunk := _HUNK.match(line):
            number = int(hunk[1])
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
    numbers = numbers or [1]  # of an empty file
    return Diff(
        old_string=change.old_string,
        new_string=change.new_string,
        start_line=numbers[change.start_line - 1],
        end_line=numbers[change.end_line - 1],
    )
