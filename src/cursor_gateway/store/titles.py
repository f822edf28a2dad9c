"""Make the title of a conversation from its first message."""

import re
from collections.abc import Iterable

from cursor_gateway.store.base import NewMessage
from cursor_gateway.wire.surrogates import repair

_LONGEST = 80
_LOOKED_AT = 10_000  # characters: a message may be a whole file
_UNTITLED = "Untitled"
_SENTENCE = re.compile(r".{8,}?[.!?](?=\s)")  # what is shorter is perhaps an abbreviation


def made_title(messages: Iterable[NewMessage]) -> str:
    """Of a conversation that begins with these messages."""
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
