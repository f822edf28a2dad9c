"""The words of a search query, the searchable text of documents, and the text around a match."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.documents import (
    ClarificationDocument,
    CodeBlockDocument,
    CodeReferenceDocument,
    Document,
    ErrorDocument,
    FileEditDocument,
    PlanDocument,
    TerminalCommandDocument,
    TextDocument,
    ThinkingDocument,
    TodoUpdateDocument,
    ToolCallDocument,
    ToolTrace,
    is_tool_use,
)
from cursor_gateway.stages import search_tokens
from cursor_gateway.wire.surrogates import repair

_MOST_WORDS = 32  # of a query: each costs a lookup
_LONGEST_QUERY = 1_000  # characters
_LONGEST_TEXT = 250_000  # characters indexed per run, which takes about 50 ms of a background thread
_MOST_VALUES = 5_000  # of a tool's arguments
_BEFORE, _AFTER = 40, 120  # characters of a snippet


# --- queries ----------------------------------------------------------------------------------------


def query_words(query: str) -> list[str]:
    """Words without a letter or digit are dropped: the index ignores them, and they would match nothing."""
    if len(query) > _LONGEST_QUERY:
        raise InvalidRequest(f"A search is limited to {_LONGEST_QUERY:,} characters; use fewer words.", param="q")
    words = repair(query).replace("\0", " ").split()
    return [word for word in words if any(character.isalnum() for character in word)][:_MOST_WORDS]


def snippet(text: str, words: Sequence[str]) -> str:
    """The text around the first match, in one line."""
    folded, first = _folded(text), len(text)
    for word in map(_folded, words):
        found = folded.find(word, 0, first + len(word))
        first = first if found < 0 else min(first, found)
    at = first if first < len(text) else search_tokens.find(text, search_tokens.query(words))
    start, end = max(0, at - _BEFORE), min(len(text), at + _AFTER)
    line = " ".join(text[start:end].split())
    return f"{'…' if start > 0 else ''}{line}{'…' if end < len(text) else ''}"


def _folded(text: str) -> str:
    """Lower case, of the same length: the lower case of U+0130 alone would be two characters."""
    return text.replace("\u0130", "i").lower()


# --- scopes -----------------------------------------------------------------------------------------
# Tokens by which an index finds the runs of an owner or a conversation. No token of a text begins with `__`.


def owner_scope(owner: str) -> str:
    """The owner as a single token, whatever characters the name has."""
    return f"__o{hashlib.sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def conversation_scope(key: int) -> str:
    return f"__c{key}"


# --- indexed text -----------------------------------------------------------------------------------


def searchable(texts: Iterable[str]) -> str:
    """The text of a run to index, cut at the limit."""
    kept, room = [], _LONGEST_TEXT
    for text in texts:
        if room <= 0:
            break
        kept.append(text[:room])
        room -= len(text) + 1
    return repair("\n".join(kept))


class Words:
    """A run's searchable text, collected as its documents end, so that documents need not be kept."""

    def __init__(self) -> None:
        self.tool_uses = 0
        self.needs_decision = False
        self._names: list[str] = []
        self._contents: list[str] = []
        self._room = [_LONGEST_TEXT, _LONGEST_TEXT]  # for names, and for contents

    def push(self, document: Document) -> None:
        self.tool_uses += is_tool_use(document)
        trace = document.metadata
        self.needs_decision |= isinstance(trace, ToolTrace) and trace.needs_decision
        names, content = _words(document)
        for kept, texts, place in ((self._names, names, 0), (self._contents, [content or ""], 1)):
            for text in texts:
                if text and self._room[place] > 0:
                    kept.append(text[: self._room[place]])
                    self._room[place] -= len(text)

    @property
    def all(self) -> list[str]:
        """Names before contents: a long file must not push out the commands after it."""
        return self._names + self._contents


def _words(document: Document) -> tuple[list[str], str | None]:
    """Commands, paths and titles; and the content. Output of tools and commands is not indexed: it is long, and
    people rarely search for it."""
    match document:
        case TextDocument(content=content) | CodeBlockDocument(content=content) | ThinkingDocument(content=content):
            return [], content
        case ErrorDocument(content=content, metadata=metadata):
            return [metadata.error_code], content
        case CodeReferenceDocument(content=content, metadata=metadata):
            return [metadata.file_path], content
        case FileEditDocument(content=content, metadata=metadata):
            return [metadata.file_path, metadata.old_path or ""], content
        case TerminalCommandDocument(metadata=metadata):
            return [metadata.command], None
        case ToolCallDocument(metadata=metadata):
            return [metadata.tool_name, *_strings(metadata.arguments)], None
        case PlanDocument(content=content, metadata=metadata):
            return [metadata.title, metadata.overview, *(todo.content for todo in metadata.todos)], content
        case ClarificationDocument(content=content, metadata=metadata):
            options = [option.label for question in metadata.questions for option in question.options]
            return [*(question.text for question in metadata.questions), *options], content
        case TodoUpdateDocument(metadata=metadata):
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
