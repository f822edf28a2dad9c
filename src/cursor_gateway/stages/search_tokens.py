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
from typing import Any

import msgspec
from msgspec import Struct

from cursor_gateway.model import documents

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


# --- the documents of a run: their searchable text, and whether somebody has to decide about a call -


LONGEST_TEXT = 250_000  # characters indexed per run, which takes about 50 ms of a background thread
_MOST_VALUES = 5_000  # of a tool's arguments


class Words(Struct):
    """Collected as documents end, so that documents need not be kept."""

    tool_uses: int = 0
    needs_decision: bool = False
    _names: list[str] = []
    _contents: list[str] = []
    _room: list[int] = msgspec.field(default_factory=lambda: [LONGEST_TEXT, LONGEST_TEXT])  # for names, for contents

    def push(self, document: documents.Document) -> None:
        self.tool_uses += documents.is_tool_use(document)
        trace = document.metadata
        self.needs_decision |= isinstance(trace, documents.ToolTrace) and trace.needs_decision
        names, content = _words_of(document)
        for kept, texts, place in ((self._names, names, 0), (self._contents, [content or ""], 1)):
            for text in texts:
                if text and self._room[place] > 0:
                    kept.append(text[: self._room[place]])
                    self._room[place] -= len(text)

    @property
    def all(self) -> list[str]:
        """Names before contents: a long file must not push out the commands after it."""
        return self._names + self._contents


def _words_of(document: documents.Document) -> tuple[list[str], str | None]:
    """Commands, paths and titles; and the content. Output of tools and commands is not indexed: it is long, and
    people rarely search for it."""
    match document:
        case (
            documents.TextDocument(content=content)
            | documents.CodeBlockDocument(content=content)
            | documents.ThinkingDocument(content=content)
        ):
            return [], content
        case documents.ToolCallDocument(metadata=metadata):
            return [metadata.tool_name, *_strings(metadata.arguments)], None
        case documents.TerminalCommandDocument(metadata=metadata):
            return [metadata.command], None
        case documents.ErrorDocument(content=content, metadata=metadata):
            return [metadata.error_code], content
        case documents.CodeReferenceDocument(content=content, metadata=metadata):
            return [metadata.file_path], content
        case documents.FileEditDocument(content=content, metadata=metadata):
            return [metadata.file_path, metadata.old_path or ""], content
        case documents.PlanDocument(content=content, metadata=metadata):
            return [metadata.title, metadata.overview, *(todo.content for todo in metadata.todos)], content
        case documents.ClarificationDocument(content=content, metadata=metadata):
            options = [option.label for question in metadata.questions for option in question.options]
            return [*(question.text for question in metadata.questions), *options], content
        case documents.TodoUpdateDocument(metadata=metadata):
            return [todo.content or "" for todo in metadata.todos], None


def _strings(value: Any) -> list[str]:
    """The strings in a tool's arguments (paths, patterns, queries) at any depth, up to a limit."""
    found, left, seen = [], [value], 0
    while left and seen < _MOST_VALUES:
        seen += 1
        match left.pop():
            case str(text):
                found.append(text)
            case dict(fields):
                left += reversed(fields.values())
            case list(items):
                left += reversed(items)
            case _:
                pass
    return found
