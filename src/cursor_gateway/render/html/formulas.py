"""Render formulas, written in LaTeX, as MathML, which browsers draw without scripts. None: it cannot be converted."""

import re
from collections.abc import Iterator
from html import unescape
from typing import TYPE_CHECKING

from cursor_gateway.render.html.code import COPY, code_part
from cursor_gateway.render.html.pieces import exact, exact_line
from cursor_gateway.render.visible import visible

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_LONGEST = 4_000  # characters
_DEEPEST = 60  # elements within one another
_TAGS = frozenset({
    "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "mstyle", "mpadded", "mphantom",
    "menclose", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "none",
    "mtable", "mtr", "mtd",
})  # fmt: skip
_ATTRIBUTES = frozenset({
    "accent", "accentunder", "columnalign", "columnlines", "columnspacing", "depth", "displaystyle", "fence", "form",
    "height", "largeop", "linethickness", "lspace", "mathvariant", "maxsize", "minsize", "movablelimits", "notation",
    "rowlines", "rowspacing", "rspace", "scriptlevel", "separator", "stretchy", "symmetric", "voffset", "width",
})  # fmt: skip
_ALIGNED = re.compile(r"(\\(?:begin|end))\{(?:aligned|split|gathered|alignedat)\}")
_VALUE = re.compile(r"[\w .%+-]{1,40}", re.ASCII)


def formula(source: str) -> str | None:
    """In a line of text."""
    return _math(source, "inline")


def formula_figure(source: str) -> str | None:
    """In a block of its own, with its source."""
    math = _math(source, "block")
    if math is None:
        return None
    shown = f"<pre>{code_part(exact(source))}</pre>"
    return f'<figure class="formula">{math}<details><summary>Source</summary>{COPY}{shown}</details></figure>'


def _math(source: str, display: str) -> str | None:
    from latex2mathml.converter import convert_to_element

    source = visible(source).strip()
    if not source or len(source) > _LONGEST:
        return None
    try:
        element = convert_to_element(_ALIGNED.sub(r"\1{align*}", source), display=display)
        content = "".join(part for child in element for part in _parts(child, 1))
    except Exception:  # noqa: BLE001 -- it raises errors of many kinds for what is not LaTeX
        return None
    return f'<math display="{display}" aria-label="{exact_line(source)}">{content}</math>'


def _parts(element: "Element", depth: int) -> Iterator[str]:
    """Only what is known: any other element makes the formula unusable, any other attribute is left out."""
    if element.tag not in _TAGS or depth > _DEEPEST:
        raise ValueError(element.tag)
    given = element.attrib.items()
    known = (f' {name}="{value}"' for name, value in given if name in _ATTRIBUTES and _VALUE.fullmatch(value))
    yield f"<{element.tag}{''.join(known)}>"
    text = unescape(element.text or "")
    if text == "&":
        raise ValueError("an alignment that it does not know")
    yield exact(text)
    for child in element:
        yield from _parts(child, depth + 1)
    yield f"</{element.tag}>"
