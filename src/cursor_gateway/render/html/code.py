"""Render code, changes of files, and the output of commands, as HTML."""

import re
from collections.abc import Iterable, Iterator, Sequence
from colorsys import rgb_to_hls
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from cursor_gateway.model.documents import Diff
from cursor_gateway.render.html.pieces import count, exact, exact_line
from cursor_gateway.render.looks import Sign, line_runs
from cursor_gateway.render.visible import SEQUENCES, visible
from cursor_gateway.stages.diffs import diff_lines, split_lines

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

# --- code, with line numbers, highlighted by Pygments if it knows the language -----------------------


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
    """What would be a picture elsewhere is shown as its source, and says so. The page may draw it."""
    name = _SOURCES.get(known := language.strip().lower())
    drawn = f' data-draws="{known}"' if known == "mermaid" else ""
    return f'<span class="language"{drawn}>{name or exact_line(language)}</span>'


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


# --- changes, as unified diffs with line numbers -----------------------------------------------------


_SHOWN_SIGNS = {"-": "−"}
_TAGS: dict[Sign, tuple[str, str]] = {
    "+": ("<ins>", "</ins>"),
    "-": ("<del>", "</del>"),
    " ": ("<span>", "</span>"),
    "⋮": ('<span class="gap">', "</span>"),
}


class _Run(NamedTuple):
    """Lines that follow each other and share a sign."""

    sign: Sign
    old: int | None
    new: int | None
    lines: list[str]  # HTML


class LineChange(NamedTuple):
    added: int
    removed: int
    html: str

    @property
    def counts(self) -> str:
        added = f'<ins aria-label="{count(self.added, "line")} added">+{self.added}</ins>'
        removed = f'<del aria-label="{count(self.removed, "line")} removed">−{self.removed}</del>'
        return f'<span class="counts">{added if self.added else ""} {removed if self.removed else ""}</span>'


def change(diff: Diff, language: str, *, compares: bool = True) -> LineChange:
    """Without comparing, all old lines come before all new ones."""
    return _change(list(_runs(diff, language, compares)))


def creation(content: str, language: str) -> LineChange:
    """The whole file as added."""
    lines = split_lines(highlighted(content, language))
    return _change([_Run("+", None, 1, lines)] if lines else [], creates=True)


def _runs(diff: Diff, language: str, compares: bool) -> Iterator[_Run]:
    old_text, new_text = visible(diff.old_string), visible(diff.new_string)
    old, new = diff_lines(diff, old_text, new_text)
    old_html, new_html = diff_lines(diff, *(highlighted(text, language) for text in (old_text, new_text)))
    for sign, of_old, of_new in line_runs(old, new, compares=compares):
        first_old, first_new = diff.start_line + of_old.start, diff.start_line + of_new.start
        match sign:
            case "⋮":
                yield _Run(sign, None, None, [count(len(of_old), "unchanged line")])
            case " ":
                yield _Run(sign, first_old, first_new, new_html[of_new.start : of_new.stop])
            case "-":
                yield _Run(sign, first_old, None, old_html[of_old.start : of_old.stop])
            case "+":
                yield _Run(sign, None, first_new, new_html[of_new.start : of_new.stop])


def _change(runs: list[_Run], *, creates: bool = False) -> LineChange:
    added, removed = (sum(len(run.lines) for run in runs if run.sign == sign) for sign in ("+", "-"))
    old_numbers = [] if creates else [_column(_line_numbers(run.old, len(run.lines)) for run in runs)]
    new_numbers = _column(_line_numbers(run.new, len(run.lines)) for run in runs)
    signs = _column(f"{_SHOWN_SIGNS.get(run.sign, run.sign)}\n" * len(run.lines) for run in runs)
    html = (
        '<div class="listing diff" tabindex="0">'
        f'<div class="gutter" aria-hidden="true">{"".join([*old_numbers, new_numbers, signs])}</div>'
        f"<pre>{code_part(''.join(map(_tagged, runs)))}</pre></div>"
    )
    return LineChange(added, removed, html if runs else "")


def _column(pieces: Iterable[str]) -> str:
    """The first line may be empty, and `pre` swallows a line feed that comes first."""
    return f"<pre>\n{''.join(pieces)}</pre>"


def _line_numbers(first: int | None, lines: int) -> str:
    return "\n" * lines if first is None else "".join(f"{number}\n" for number in range(first, first + lines))


def _tagged(run: _Run) -> str:
    before, after = _TAGS[run.sign]
    return before + "".join(f"{line}\n" for line in run.lines) + after


# --- the output of commands, with the text colours and styles that it sets by escape sequences -------


_STYLE = re.compile(r"\x1b\[([0-9;:]*)m")
_TURNS_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline"}
_TURNS_OFF = {22: {"bold", "dim"}, 23: {"italic"}, 24: {"underline"}}
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_BY_HUE = ("red", "yellow", "green", "cyan", "blue", "magenta")  # sixty degrees each
_GREY = 0.2  # saturation: what has less is no colour
_STEPS = (0, 95, 135, 175, 215, 255)  # of the 6×6×6 colours from 16 on


class _AnsiLook(Struct, frozen=True):
    colour: str = ""
    styles: frozenset[str] = frozenset()

    @property
    def classes(self) -> str:
        return " ".join(f"ansi_{name}" for name in sorted({self.colour, *self.styles} - {""}))


def coloured_output(output: str) -> str:
    """Of a line that was overwritten, as progress bars do, only the last state."""
    look = _AnsiLook()
    lines = []
    for line in output.split("\n"):
        shown: list[str] = []
        for place, part in enumerate(_STYLE.split(line.rstrip("\r"))):
            if place % 2:
                look = _changed(look, part)
                continue
            _, returned, text = part.rpartition("\r")
            if returned:
                shown.clear()
            shown.append(_ansi_span(SEQUENCES.sub("", text), look))
        lines.append("".join(shown))
    return "\n".join(lines)


def _ansi_span(text: str, look: _AnsiLook) -> str:
    classes = look.classes if text.strip() else ""
    return f'<span class="{classes}">{exact(text)}</span>' if classes else exact(text)


def _changed(look: _AnsiLook, parameters: str) -> _AnsiLook:
    colour, styles = look.colour, set(look.styles)
    numbers = iter([int(number[-4:] or 0) for number in re.split("[;:]", parameters)])
    for number in numbers:
        if number == 0:
            colour, styles = "", set()
        elif number in _TURNS_ON:
            styles.add(_TURNS_ON[number])
        elif number in _TURNS_OFF:
            styles -= _TURNS_OFF[number]
        elif 30 <= number <= 37 or 90 <= number <= 97:
            colour = _COLOURS[number % 10]
        elif number == 39:
            colour = ""
        elif number in (38, 48):
            found = _extended(numbers)
            colour = found if number == 38 else colour
    return _AnsiLook(colour, frozenset(styles))


def _extended(numbers: Iterator[int]) -> str:
    """After 38 or 48: one of 256 colours, or red, green and blue."""
    match next(numbers, 0):
        case 5:
            return _of_256(next(numbers, 0))
        case 2:
            return _nearest([next(numbers, 0) for _ in range(3)])
        case _:
            return ""


def _of_256(number: int) -> str:
    if number < 16:
        return _COLOURS[number % 8]
    if number >= 232:
        return ""
    place = number - 16
    return _nearest([_STEPS[place // 36 % 6], _STEPS[place // 6 % 6], _STEPS[place % 6]])


def _nearest(rgb: Sequence[int]) -> str:
    """Greys have no name: they are the text's own colour."""
    red, green, blue = (min(value, 255) / 255 for value in rgb)
    hue, _, saturation = rgb_to_hls(red, green, blue)
    return _BY_HUE[round(hue * 6) % 6] if saturation >= _GREY else ""
