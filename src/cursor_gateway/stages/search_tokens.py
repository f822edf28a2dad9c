"""Split texts and queries into the tokens of the full-text search.

A text is a sequence of words: runs of letters and digits, where each CJK character is a word of its own. Its tokens are

    each word                    `UserName` -> `username`
    each pair of neighbours      `src/main.py` -> `_src_main`, `_main_py`; 登录页 -> `_登_录`, `_录_页`
    the parts of an identifier   `UserName` -> `user`, `name`, `_user_name`

without case and Latin accents. A query is split at white space, and a text matches if it has all of the query's tokens:
the word, or for words without space between them (`main.py`, `1.28.3`, 登录) the pairs. The last token may be a prefix.

The tokens are a set, with no positions and no operators, so every engine that can look up keys and prefixes finds the
same. Words consist of letters and digits. Pairs begin with `_`, so that the prefix of a word is looked up among words
only: there are many more pairs. No token is too long for any engine.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

_LONGEST_WORD = 128  # characters; longer words are cut, in texts and in queries
_SHORTEST_PREFIX = 2  # characters: a single letter would match nearly everything
_MOST_TOKENS = 64  # of a query: each costs a lookup

_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_ACCENTS = "\u0300-\u036f"  # combining ones
_WORD = re.compile(rf"(?=[{_CJK}])[^\W_]|[^\W_{_CJK}]+(?:[{_ACCENTS}]+[^\W_{_CJK}]*)*")
_ACCENT = re.compile(f"[{_ACCENTS}]")
_PART = re.compile("A+(?!a)|A?a+")  # of an identifier, with A for upper case and a for everything else


class Query(Struct, frozen=True):
    tokens: tuple[str, ...] = ()  # which a text must have
    prefix: str = ""  # of another token that it must have; empty: no prefix


def tokens(text: str) -> list[str]:
    """Each token once."""
    found: dict[str, None] = {}
    folded: dict[str, str] = {}  # most words of a text are repetitions
    last = ""
    for word in _words(text):
        token = folded.get(word)
        if token is None:
            token = folded[word] = fold(word)
            found[token] = None
            if parts := _parts(word):
                found |= dict.fromkeys(parts)
                found |= dict.fromkeys(_pairs(parts))
        if last:
            found[f"_{last}_{token}"] = None
        last = token
    return list(found)


def query(words: Sequence[str]) -> Query:
    """Of each part between white space. Words without a letter or digit are ignored."""
    known = [found for word in words if (found := [fold(part) for part in _words(word)])]
    needed = [token for found in known for token in (_pairs(found) if len(found) > 1 else found)]
    if not needed or len(needed[-1]) < _SHORTEST_PREFIX:
        return Query(tuple(dict.fromkeys(needed[:_MOST_TOKENS])))
    return Query(tuple(dict.fromkeys(needed[:-1][:_MOST_TOKENS])), needed[-1])


def find(text: str, query: Query) -> int:
    """Where the first of the query's words is, or an identifier with it; 0 if there is none."""
    *first, last = (token.split("_") for token in (*query.tokens, query.prefix))
    whole, begun = {part for token in (*first, last[:-1]) for part in token if part}, last[-1]
    seen: set[str] = set()
    for found in _WORD.finditer(text):
        word = found.group()[:_LONGEST_WORD]
        if word not in seen:
            seen.add(word)
            for token in (fold(word), *_parts(word)):
                if token in whole or (begun and token.startswith(begun)):
                    return found.start()
    return 0


def fold(word: str) -> str:
    """Without case and Latin accents."""
    if word.isascii():
        return word.lower()
    return _ACCENT.sub("", "".join(map(_without_accent, word.casefold())))


def _without_accent(character: str) -> str:
    """`é` is an accented `e`, but `й` is a letter."""
    base = unicodedata.normalize("NFD", character)[0]
    return base if base.isascii() else character


def _pairs(words: Sequence[str]) -> list[str]:
    return [f"_{first}_{second}" for first, second in pairwise(words)]


def _words(text: str) -> Iterator[str]:
    """No word contains a line break: line by line, the words of a long text are never all in memory."""
    return (word[:_LONGEST_WORD] for line in text.splitlines() for word in _WORD.findall(line))


def _parts(word: str) -> list[str]:
    """Empty unless there are several."""
    if word.islower() or word.isupper() or word[1:].islower():
        return []
    shape = "".join("A" if character.isupper() else "a" for character in word)
    parts = [fold(word[part.start() : part.end()]) for part in _PART.finditer(shape)]
    return parts if len(parts) > 1 else []
