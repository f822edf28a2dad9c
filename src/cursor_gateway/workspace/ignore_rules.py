"""The text of a `.gitignore` file in; whether it ignores a path, as git decides it, out.

Git is not asked: a repository's configuration can name programs that git starts. Anybody may have written the patterns,
so no pattern may take long. They become regular expressions whose stars never backtrack beyond their own part: the
first place where the part after a star fits is as good as any later one, so it is kept (`(?>…)`). Each expression is
short, because matching holds the interpreter's lock.

As in git, all of this is about bytes: `?` matches one byte.
"""

import re
from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

_MOST_BYTES = 1000  # of a pattern, and of the patterns in one regular expression
_SPECIAL = re.compile(rb"[*?\[\\]")
_NAMED_SETS = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\v\f\r",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}


class _Pattern(Struct, frozen=True):
    expression: bytes
    size: int
    is_ignored: bool  # False: it began with `!`
    is_name: bool  # it is compared with the last part of the path only


class _Group(Struct, frozen=True):
    """Consecutive patterns of one kind."""

    expression: re.Pattern[bytes]
    is_ignored: bool
    is_name: bool


class IgnoreRules:
    """Those of one file."""

    def __init__(self, text: bytes) -> None:
        found = [pattern for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n") if (pattern := _pattern(line))]
        self._groups = list(_groups(found))[::-1]  # the last pattern that matches decides

    def __bool__(self) -> bool:
        return bool(self._groups)

    def verdict(self, path: bytes, name: bytes) -> bool | None:
        """Whether it is ignored; None if no pattern matches. The path is relative to the folder of the file, `name` is
        its last part, and both begin with a slash for a folder.
        """
        for group in self._groups:
            if group.expression.fullmatch(name if group.is_name else path):
                return group.is_ignored
        return None


def _groups(patterns: list[_Pattern]) -> Iterator[_Group]:
    for (is_ignored, is_name), run in groupby(patterns, lambda one: (one.is_ignored, one.is_name)):
        some: list[_Pattern] = []
        for pattern in run:
            if some and sum(one.size for one in some) + pattern.size > _MOST_BYTES:
                yield _Group(_any(some), is_ignored, is_name)
                some = []
            some.append(pattern)
        yield _Group(_any(some), is_ignored, is_name)


def _any(patterns: list[_Pattern]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(one.expression for one in patterns), re.DOTALL)


def _pattern(line: bytes) -> _Pattern | None:
    """None for lines that match nothing: empty, comments, too long, or not well-formed."""
    text = _trimmed(line.removesuffix(b"\r"))
    if not text or text.startswith(b"#") or len(text) > _MOST_BYTES:
        return None
    glob = text.removeprefix(b"!")
    is_folder = glob.endswith(b"/")
    glob = glob[:-1] if is_folder else glob
    is_name = b"/" not in glob
    glob = glob.removeprefix(b"/")
    expression = _expression(glob, is_name) if glob else None
    if expression is None:
        return None
    begin = b"/" if is_folder else b"/?+"  # the mark of a folder
    return _Pattern(begin + expression, len(text), not text.startswith(b"!"), is_name)


def _trimmed(line: bytes) -> bytes:
    """Without spaces at the end, unless a backslash precedes them."""
    bare = line.rstrip(b" ")
    escapes = len(bare) - len(bare.rstrip(b"\\"))
    return bare + b" " if escapes % 2 and len(bare) < len(line) else bare


def _expression(glob: bytes, is_name: bool) -> bytes | None:
    """Of the path without the mark of a folder. None if nothing can match."""
    special = _SPECIAL.search(glob)
    first = special.start() if special else len(glob)
    parts = [b""]  # those after the first one follow a star
    stars: list[bytes] = []
    at = 0
    while at < len(glob):
        match glob[at : at + 1]:
            case b"*":
                begin, at = at, at + 1
                while glob[at : at + 1] == b"*":
                    at += 1
                # Git compares the text before the first special character on its own, so that `a**/b` is like `**/b`.
                is_deep = at - begin > 1 and not is_name and (begin in (0, first) or glob[begin - 1 : begin] == b"/")
                if is_deep and glob[at : at + 1] == b"/":
                    at += 1
                    stars.append(rb"(?:[^/]*/)*")
                elif is_deep and glob[at : at + 2] == b"\\/":
                    at += 2
                    stars.append(rb"(?:[^/]*/)+")
                elif is_deep and at == len(glob):
                    stars.append(rb".*")
                else:
                    stars.append(rb"[^/]*")
                parts.append(b"")
            case b"?":
                parts[-1] += rb"[^/]"
                at += 1
            case b"[":
                found = _set(glob, at + 1)
                if found is None:
                    return None
                expression, at = found
                parts[-1] += expression
            case b"\\":
                if at + 1 == len(glob):
                    return None
                parts[-1] += re.escape(glob[at + 1 : at + 2])
                at += 2
            case literal:
                parts[-1] += re.escape(literal)
                at += 1
    return parts[0] + b"".join(_steps(stars, parts[1:]))


def _steps(stars: list[bytes], parts: list[bytes]) -> Iterator[bytes]:
    """A star and the part after it, and so on. Only the last star may have to try again."""
    while stars:
        # Stars within a folder's name are tried anew for each folder that a `**` before them skips.
        inner = next((count for count, star in enumerate(stars[1:], 1) if star != rb"[^/]*"), len(stars))
        if stars[0] == rb"[^/]*":
            inner = 1
        body = parts[0] + b"".join(_steps(stars[1:inner], parts[1:inner]))
        if inner == len(stars):
            yield stars[0] + body
        else:
            yield b"(?>" + stars[0] + b"?" + body + b")"
        stars, parts = stars[inner:], parts[inner:]


def _set(glob: bytes, at: int) -> tuple[bytes, int] | None:
    """The set whose content begins here, and where it ends. None: it has no end, or names an unknown class."""
    is_negated = glob[at : at + 1] in (b"!", b"^")
    at += is_negated
    items: list[bytes] = []
    before = b""  # the character that a range could begin with
    is_first = True
    while is_first or glob[at : at + 1] != b"]":
        is_first = False
        one = glob[at : at + 1]
        if not one:
            return None
        if one == b"[" and glob[at + 1 : at + 2] == b":":
            end = glob.find(b"]", at + 2)
            if end < 0:
                return None
            if glob[end - 1 : end] == b":" and end - 1 >= at + 2:
                if glob[at + 2 : end - 1] not in _NAMED_SETS:
                    return None
                items.append(_NAMED_SETS[glob[at + 2 : end - 1]])
                before, at = b"", end + 1
                continue
        is_range = one == b"-" and before and glob[at + 1 : at + 2] not in (b"", b"]")
        at += bool(is_range)
        if glob[at : at + 1] == b"\\":
            at += 1
        one = glob[at : at + 1]
        if not one:
            return None
        if is_range:
            items += [re.escape(before) + b"-" + re.escape(one)] if before <= one else []
        else:
            items.append(re.escape(one))
        before = b"" if is_range else one
        at += 1
    inside = b"".join(items)
    if is_negated:
        return b"[^/" + inside + b"]", at + 1
    return (b"(?!/)[" + inside + b"]" if inside else rb"(?!)"), at + 1
