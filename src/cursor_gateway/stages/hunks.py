"""Two versions of a file in; the lines that differ, as hunks, and as a patch that `git apply` accepts, out.

Lines that both versions have exactly once are compared first (patience diff): they show which parts belong together,
in little more than linear time. What is between them is compared by Myers' algorithm, up to a limit of work; beyond
it, the old lines of that part are replaced by the new ones as a whole. So the result is always correct, and small
where that can be found out in time.

All of this is about bytes: a file is restored exactly, whatever its encoding and its line ends are.
"""

import zlib
from base64 import b85encode
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from hashlib import sha1

from msgspec import Struct

CONTEXT = 3  # lines around a change in a patch
_MOST_EDITS = 400  # that Myers' algorithm looks for in one part
_MOST_WORK = 2_000_000  # steps of Myers' algorithm in one comparison: a second or so
_BINARY = 8000  # bytes in which a file that is not text has a NUL, by the rule of git
_COUNTS = b" ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NO_END = b"\n\\ No newline at end of file\n"


class Hunk(Struct, frozen=True, rename="camel"):
    """Consecutive lines that were replaced. Line numbers count from 0, and the end is not included."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int

    @property
    def added(self) -> int:
        return self.new_end - self.new_start

    @property
    def removed(self) -> int:
        return self.old_end - self.old_start


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY]


def lines_of(data: bytes) -> list[bytes]:
    """Each with its line feed; the last one may have none."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks_between(old: Sequence[bytes | str], new: Sequence[bytes | str]) -> list[Hunk]:
    """In order, with at least one equal line between two of them."""
    known: dict[bytes | str, int] = {}
    before, after = ([known.setdefault(line, len(known)) for line in lines] for lines in (old, new))
    pairs = _Comparison(before, after).pairs()
    found: list[Hunk] = []
    at_old = at_new = 0
    for old_start, new_start, length in [*pairs, (len(old), len(new), 0)]:
        if at_old < old_start or at_new < new_start:
            found.append(Hunk(at_old, old_start, at_new, new_start))
        at_old, at_new = old_start + length, new_start + length
    return found


def with_hunks(old: bytes, new: bytes, chosen: Collection[int]) -> bytes:
    """The old version with these hunks of the new one, by their numbers from 0."""
    before, after = lines_of(old), lines_of(new)
    parts: list[bytes] = []
    at = 0
    for number, hunk in enumerate(hunks_between(before, after)):
        parts += before[at : hunk.old_start]
        parts += after[hunk.new_start : hunk.new_end] if number in chosen else before[hunk.old_start : hunk.old_end]
        at = hunk.old_end
    return b"".join([*parts, *before[at:]])


class FileContent(Struct, frozen=True):
    """A file's content and its mode."""

    data: bytes
    mode: int = 0o644

    @property
    def git_mode(self) -> str:
        return "100755" if self.mode & 0o100 else "100644"


def patch_of(path: str, old: FileContent | None, new: FileContent | None, context: int = CONTEXT) -> bytes:
    """For `git apply`; None is a file that does not exist. Empty if nothing differs."""
    if old == new:
        return b""
    a, b = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    head = [b"diff --git %s %s" % (a, b)]
    if old is None and new is not None:
        head.append(f"new file mode {new.git_mode}".encode())
    elif new is None and old is not None:
        head.append(f"deleted file mode {old.git_mode}".encode())
    elif old is not None and new is not None and old.git_mode != new.git_mode:
        head += [f"old mode {old.git_mode}".encode(), f"new mode {new.git_mode}".encode()]
    before, after = old.data if old is not None else b"", new.data if new is not None else b""
    if before == after:
        return b"".join(line + b"\n" for line in head) if len(head) > 1 else b""
    if is_binary(before) or is_binary(after):
        head += [b"index %s..%s" % (_git_hash(old), _git_hash(new)), b"GIT binary patch"]
        return b"".join(line + b"\n" for line in [*head, *_literal(after), *_literal(before)])
    head += [b"--- " + (a + _tab(path) if old is not None else b"/dev/null")]
    head += [b"+++ " + (b + _tab(path) if new is not None else b"/dev/null")]
    return b"".join(line + b"\n" for line in head) + b"".join(_body(lines_of(before), lines_of(after), context))


def _git_hash(content: FileContent | None) -> bytes:
    if content is None:
        return b"0" * 40
    return sha1(b"blob %d\0%b" % (len(content.data), content.data), usedforsecurity=False).hexdigest().encode()


def _literal(data: bytes) -> Iterator[bytes]:
    """All of a binary file, in lines of at most 52 bytes that begin with a letter for their number."""
    packed = zlib.compress(data)
    yield b"literal %d" % len(data)
    for at in range(0, len(packed), 52):
        part = packed[at : at + 52]
        yield _COUNTS[len(part) : len(part) + 1] + b85encode(part, pad=True)
    yield b""


def _body(before: list[bytes], after: list[bytes], context: int) -> Iterator[bytes]:
    for group in grouped(hunks_between(before, after), context):
        first, last = group[0], group[-1]
        lead = min(context, first.old_start)
        trail = min(context, len(before) - last.old_end)
        old_start, new_start = first.old_start - lead, first.new_start - lead
        old_count, new_count = last.old_end + trail - old_start, last.new_end + trail - new_start
        yield f"@@ -{_range(old_start, old_count)} +{_range(new_start, new_count)} @@\n".encode()
        at = old_start
        for hunk in group:
            yield from _signed(b" ", before[at : hunk.old_start])
            yield from _signed(b"-", before[hunk.old_start : hunk.old_end])
            yield from _signed(b"+", after[hunk.new_start : hunk.new_end])
            at = hunk.old_end
        yield from _signed(b" ", before[at : at + trail])


def grouped(hunks: Sequence[Hunk], context: int) -> list[list[Hunk]]:
    """Those that share lines of their context are together."""
    groups: list[list[Hunk]] = []
    for hunk in hunks:
        if groups and hunk.old_start - groups[-1][-1].old_end <= 2 * context:
            groups[-1].append(hunk)
        else:
            groups.append([hunk])
    return groups


def _range(start: int, count: int) -> str:
    """Lines are numbered from 1; an empty range is named by the line before it."""
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


def _signed(sign: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield sign + line if line.endswith(b"\n") else sign + line + _NO_END


def _tab(path: str) -> bytes:
    """As git writes it after a name with a space, so that other programs do not read the rest as a time."""
    return b"\t" if " " in path else b""


def _quoted(path: str) -> bytes:
    """As git does it: names with special characters are in quotes, with escapes."""
    data = path.encode()
    if all(byte >= 0x20 and byte not in b'"\\\x7f' for byte in data):
        return data
    escapes = {0x22: b'\\"', 0x5C: b"\\\\", 0x09: b"\\t", 0x0A: b"\\n", 0x0D: b"\\r"}
    is_plain = range(0x20, 0x7F)
    return b'"%s"' % b"".join(
        escapes.get(byte) or (bytes([byte]) if byte in is_plain else b"\\%03o" % byte) for byte in data
    )


class _Comparison:
    """Equal lines of two versions, as (place in the old one, place in the new one, number of lines), in order."""

    def __init__(self, old: list[int], new: list[int]) -> None:
        self._old, self._new = old, new
        self._work = 0

    def pairs(self) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        waiting = [(0, len(self._old), 0, len(self._new))]
        while waiting:
            old_start, old_end, new_start, new_end = waiting.pop()
            head = self._common_head(old_start, old_end, new_start, new_end)
            tail = self._common_tail(old_start + head, old_end, new_start + head, new_end)
            found += [(old_start, new_start, head)] if head else []
            found += [(old_end - tail, new_end - tail, tail)] if tail else []
            part = (old_start + head, old_end - tail, new_start + head, new_end - tail)
            if set(self._old[part[0] : part[1]]).isdisjoint(self._new[part[2] : part[3]]):
                continue
            anchors = self._anchors(*part)
            if not anchors:
                found += self._shortest(*part)
                continue
            at_old, at_new = part[0], part[2]
            for old_at, new_at in [*anchors, (part[1], part[3])]:
                waiting.append((at_old, old_at, at_new, new_at))
                at_old, at_new = old_at, new_at  # the anchor is the head of the next part
        return _joined(sorted(found))

    def _common_head(self, old_start: int, old_end: int, new_start: int, new_end: int) -> int:
        most = min(old_end - old_start, new_end - new_start)
        return next((n for n in range(most) if self._old[old_start + n] != self._new[new_start + n]), most)

    def _common_tail(self, old_start: int, old_end: int, new_start: int, new_end: int) -> int:
        most = min(old_end - old_start, new_end - new_start)
        return next((n for n in range(most) if self._old[old_end - 1 - n] != self._new[new_end - 1 - n]), most)

    def _anchors(self, old_start: int, old_end: int, new_start: int, new_end: int) -> list[tuple[int, int]]:
        """Lines that are in both parts exactly once: the longest sequence that is in the same order in both."""
        old_counts = Counter(self._old[old_start:old_end])
        new_counts = Counter(self._new[new_start:new_end])
        places = {line: at for at, line in enumerate(self._old[old_start:old_end], old_start) if old_counts[line] == 1}
        shared = [
            (places[line], at)
            for at, line in enumerate(self._new[new_start:new_end], new_start)
            if new_counts[line] == 1 and line in places
        ]
        return _longest_increasing(shared)

    def _shortest(self, old_start: int, old_end: int, new_start: int, new_end: int) -> list[tuple[int, int, int]]:
        """Myers' algorithm: `ends[k]` is how far a path on diagonal k has got in the old part."""
        old, new = self._old[old_start:old_end], self._new[new_start:new_end]
        ends = {1: 0}
        trace: list[dict[int, int]] = []
        for edits in range(min(len(old) + len(new), _MOST_EDITS) + 1):
            trace.append(dict(ends))
            for k in range(-edits, edits + 1, 2):
                is_down = k == -edits or (k != edits and ends[k - 1] < ends[k + 1])
                x = ends[k + 1] if is_down else ends[k - 1] + 1
                begun, y = x, x - k
                while x < len(old) and y < len(new) and old[x] == new[y]:
                    x, y = x + 1, y + 1
                ends[k] = x
                self._work += x - begun + 1
                if x >= len(old) and y >= len(new):
                    return [(old_start + a, new_start + b, 1) for a, b in _steps(trace, len(old), len(new))]
            if self._work > _MOST_WORK:
                break
        return []


def _steps(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """The equal lines on the path that the trace has found, backwards from its end."""
    found: list[tuple[int, int]] = []
    for edits in range(len(trace) - 1, -1, -1):
        ends, k = trace[edits], x - y
        is_down = k == -edits or (k != edits and ends[k - 1] < ends[k + 1])
        before_k = k + 1 if is_down else k - 1
        before_x = ends[before_k] if edits else 0
        before_y = before_x - before_k if edits else 0
        while x > before_x and y > before_y:
            x, y = x - 1, y - 1
            found.append((x, y))
        x, y = before_x, before_y
    return found


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """By the first number; they are sorted by the second."""
    tops: list[int] = []  # the smallest end of a sequence of each length
    at_top: list[int] = []  # which pair that is
    before: list[int] = []
    for index, (value, _) in enumerate(pairs):
        place = bisect_left(tops, value)
        before.append(at_top[place - 1] if place else -1)
        tops[place : place + 1] = [value]
        at_top[place : place + 1] = [index]
    chosen: list[tuple[int, int]] = []
    index = at_top[-1] if at_top else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def _joined(pairs: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    joined: list[tuple[int, int, int]] = []
    for old, new, length in pairs:
        if joined and joined[-1][0] + joined[-1][2] == old and joined[-1][1] + joined[-1][2] == new:
            joined[-1] = joined[-1][0], joined[-1][1], joined[-1][2] + length
        else:
            joined.append((old, new, length))
    return joined
