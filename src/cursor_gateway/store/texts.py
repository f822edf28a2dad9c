"""Messages in; the title of their conversation, the text to index and the words of a query, out."""

import hashlib
import re
from collections.abc import Iterable, Sequence

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.stages import search_tokens
from cursor_gateway.stages.search_tokens import LONGEST_TEXT
from cursor_gateway.store.base import NewMessage
from cursor_gateway.wire.surrogates import repair

# --- titles -----------------------------------------------------------------------------------------

_LONGEST = 80
_LOOKED_AT = 10_000  # characters: a message may be a whole file
_UNTITLED = "Untitled"
_SENTENCE = re.compile(r".{8,}?[.!?](?=\s)")  # what is shorter is perhaps an abbreviation


def made_title(messages: Iterable[NewMessage]) -> str:
    """The title of a conversation that begins with these messages."""
    return title_of(next((message.text for message in messages if message.role == "user"), ""))


def title_of(text: str) -> str:
    """The first sentence of the first line with text, white space collapsed, cut at a word boundary."""
    lines = map(_shown, repair(text.lstrip()[:_LOOKED_AT]).splitlines())
    line = next((line for line in lines if line), _UNTITLED)
    if found := _SENTENCE.match(line):
        line = found[0].removesuffix(".")
    if len(line) <= _LONGEST:
        return line
    words, _, _ = line[:_LONGEST].rpartition(" ")
    return f"{words or line[: _LONGEST - 1]}…"


def _shown(line: str) -> str:
    shown = line if line.isprintable() else "".join(c if c.isprintable() else " " for c in line)
    return " ".join(shown.split())


_MOST_WORDS = 32  # of a query: each costs a lookup
_LONGEST_QUERY = 1_000  # characters
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
    kept, room = [], LONGEST_TEXT
    for text in texts:
        if room <= 0:
            break
        kept.append(text[:room])
        room -= len(text) + 1
    return repair("\n".join(kept))
