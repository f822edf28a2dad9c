"""Render code with line numbers, highlighted by Pygments if it knows the language."""

import re
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from cursor_gateway.render.html.pieces import exact, exact_line
from cursor_gateway.render.lines import split_lines
from cursor_gateway.render.visible import visible

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

_HIGHLIGHTED = 200_000  # characters; beyond that colours are not worth the wait
# Lexers are made of regular expressions, and many take the square, in time, of the length of a line, of a gap or of
# words (Java's) that nothing separates.
_TAKES_TOO_LONG = re.compile(r"[^\n]{1000}|\s{200}|\b(?:\w++\s++){60}")

_SHOWN = 30  # lines; longer code is folded
_SOURCES = {"mermaid": "Mermaid diagram (source)", "math": "Formula (source)", "latex": "LaTeX (source)"}

COPY = '<button type="button" class="copy" data-copy>Copy</button>'


def listing(text: str, language: str) -> str:
    return framed(numbers(text), code_part(highlighted(text, language)))


def framed(numbers: str, code: str) -> str:
    """It scrolls, so the keyboard must be able to reach it. If it is long, only its beginning is shown at first."""
    return (
        '<div class="listing" tabindex="0">'
        f'<div class="gutter" aria-hidden="true"><pre data-part="numbers">{numbers}</pre></div><pre>{code}</pre></div>'
        + fold(numbers.count("\n") + 1)
    )


def fold(lines: int) -> str:
    """What shows the rest of a listing with so many lines."""
    return f'<details class="fold"><summary>Show all {lines:,} lines</summary></details>' if lines > _SHOWN else ""


def code_part(html: str) -> str:
    return f'<code data-part="code">{html}</code>'


def figure(caption: str, listing: str) -> str:
    return f'<figure class="code"><figcaption>{caption}{COPY}</figcaption>{listing}</figure>'


def named_figure(text: str, language: str) -> str:
    """Code of which at most the language is known."""
    if not language:
        return f'<figure class="code bare">{COPY}{listing(text, language)}</figure>'
    return figure(language_label(language), listing(text, language))


def language_label(language: str) -> str:
    """What would be a picture elsewhere is shown as its source, and says so."""
    name = _SOURCES.get(language.strip().lower())
    return f'<span class="language">{name or exact_line(language)}</span>'


def numbers(text: str, first: int = 1) -> str:
    return "\n".join(map(str, range(first, first + len(split_lines(visible(text))))))


# --- colours ----------------------------------------------------------------------------------------


def highlighted(text: str, language: str) -> str:
    """The text's own lines: no tag goes across the end of a line."""
    text = visible(text)
    lexer = _lexer(language.strip().lower()) if 0 < len(text) <= _HIGHLIGHTED else None
    if lexer is None or _TAKES_TOO_LONG.search(text):
        return exact(text)
    pieces = [(_class(kind), value) for kind, value in lexer.get_tokens(text)]
    if "".join(value for _, value in pieces) != text:  # a lexer that puts the text in order first
        return exact(text)
    return "".join(
        _coloured("".join(value for _, value in run), its_class) for its_class, run in groupby(pieces, itemgetter(0))
    )


def _coloured(text: str, its_class: str) -> str:
    if not its_class:
        return exact(text)
    return "\n".join(f'<span class="{its_class}">{exact(line)}</span>' if line else "" for line in text.split("\n"))


@cache
def _class(kind: "_TokenType") -> str:
    """Pygments' own short names, but only those that have a colour of their own here."""
    from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String

    coloured = {
        Comment: "c", Comment.Preproc: "cp", Keyword: "k", Operator.Word: "k", String: "s", Number: "m",
        Name.Function: "nf", Name.Class: "nc", Name.Builtin: "nb", Name.Decorator: "nd", Name.Tag: "nt",
        Name.Attribute: "na", Name.Exception: "nc", Name.Constant: "nb",
        Generic.Deleted: "gd", Generic.Inserted: "gi", Generic.Heading: "k", Generic.Subheading: "k",
    }  # fmt: skip
    for ancestor in reversed(kind.split()):
        if ancestor in coloured:
            return coloured[ancestor]
    return ""


@cache
def _names() -> frozenset[str]:
    """Without plug-ins: the lookup is slow, and the language name is untrusted."""
    from pygments.lexers import get_all_lexers

    return frozenset(alias for _, aliases, _, _ in get_all_lexers(plugins=False) for alias in aliases)


@cache
def _known_lexer(language: str) -> "Lexer":
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


def _lexer(language: str) -> "Lexer | None":
    if language in ("", "text", "plaintext", "plain") or language not in _names():
        return None
    return _known_lexer(language)
