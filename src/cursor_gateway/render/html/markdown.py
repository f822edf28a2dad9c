"""Render the agent's Markdown as HTML, whole or as it grows. HTML in it is shown as text.

A top-level block is rendered for itself, so a growing text is rendered again only from its last block on.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import unescape
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import unescapeAll
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdurl import decode
from msgspec import Struct

from cursor_gateway.render.html.code import COPY, code_part, named_figure
from cursor_gateway.render.html.pieces import exact, exact_line, plain, prose
from cursor_gateway.render.visible import visible, visible_line

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# --- formulas, written in LaTeX, as MathML, which browsers draw without scripts ----------------------


_LONGEST = 4_000  # characters
_DEEPEST_FORMULA = 60  # elements within one another
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
    return _mathml(source, "inline")


def formula_figure(source: str) -> str | None:
    """In a block of its own, with its source."""
    math = _mathml(source, "block")
    if math is None:
        return None
    shown = f"<pre>{code_part(exact(source))}</pre>"
    return f'<figure class="formula">{math}<details><summary>Source</summary>{COPY}{shown}</details></figure>'


def _mathml(source: str, display: str) -> str | None:
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
    if element.tag not in _TAGS or depth > _DEEPEST_FORMULA:
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


# --- Markdown ----------------------------------------------------------------------------------------


_DEEPEST = 16  # beyond that a block is best read as it was written
_PARSED = 100_000  # characters of one paragraph; more is not prose
_HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5"}  # the page has its own above them
_FORMULA = 200  # lines, at most
_FORMULA_IN_LINE = 1000  # characters
_CLOSES = {"$": "$", "$$": "$$", "\\(": "\\)", "\\[": "\\]"}
_MATHS = re.compile(r"[\\^_={}]")  # what an escaped bracket seldom has inside
_PRICE = re.compile(r"\d[\d.,]*\s")
_WIDEST_ITEM = 9  # columns: the indentation of content in three lists
_ITEM = ["list_item_open", "paragraph_open"]
_TASK = re.compile(r"\[([ xX])\] ")
_FOOTNOTE = re.compile(r"\[\^([\w-]{1,40})\](?::(?= ))?")
_FOLLOWED = re.compile(r"https?://[^/\s]|mailto:", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<![\w/.@-])https?://[^\s<>\"`]+", re.IGNORECASE)
_IMAGE_FILE = re.compile(r"(?![a-z][a-z0-9+.-]*:|//)[^?#]+\.(?:png|jpe?g|gif|webp)", re.IGNORECASE)
_AFTER_ADDRESS = "?!.,:;*_~'\""  # as in GitHub's Markdown: at its end, they belong to the sentence
_DIRECTED = frozenset({"paragraph_open", "heading_open", "bullet_list_open", "ordered_list_open", "th_open", "td_open"})


def render(text: str) -> str:
    return "".join(_blocks(visible(text), {}))


def continued(text: str) -> str:
    """A text that follows code in a list item is indented like the item. It becomes an item again, whose marker the
    page hides; what is not indented stays outside of it."""
    indent = indent_of(text)
    if indent > _WIDEST_ITEM:
        return text
    outer = "- " * (list_depth(indent) - 1)
    return f"{outer}-{' ' * (indent - len(outer) - 1)}{text[indent:]}"


def indent_of(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def list_depth(indent: int) -> int:
    """Of the list item whose content is indented like this. An item's marker takes two to four columns."""
    return 1 + (indent >= 5) + (indent >= 8)


def render_line(text: str) -> str:
    """Of a text that is one line, such as a to-do: emphasis, code and links, but no blocks."""
    html: str = _parser().renderInline(visible_line(text), {})
    return html


# --- a text that grows ------------------------------------------------------------------------------


class Rendered(Struct, frozen=True):
    html: list[str]
    rest: str = ""  # of an open text: what is not finished
    continues: bool = False  # of an open text: what follows belongs to its last line, as far as one can tell
    has_references: bool = False  # link reference definitions, or perhaps formulas: only the whole is rendered right


def render_blocks(text: str) -> Rendered:
    env: EnvType = {}
    html = "".join(_blocks(text, env))
    return Rendered([html], has_references=bool(env.get("references")) or "$$" in text or "\\[" in text)


def render_open(written: str) -> Rendered:
    """Of a text that may continue: the HTML of its finished blocks, which nothing will change any more, and of the
    rest."""
    end_of_lines = written.rfind("\n") + 1
    lines, last_line = visible(written[:end_of_lines]), written[end_of_lines:]
    end = _end_of_finished_blocks(lines)
    finished, open = render_blocks(lines[:end]), render_blocks(lines[end:] + visible(last_line))
    continues = bool(last_line) or _in_a_fence(lines, open.html[0])
    has_references = finished.has_references or open.has_references
    return Rendered(finished.html + open.html, lines[end:] + last_line, continues, has_references)


def _end_of_finished_blocks(lines: str) -> int:
    """Where the last block begins. Only whole lines count: "2" may yet become the "2." that continues a list, and
    "--" the end of a row that makes a table of the line above it."""
    tokens = _parser_of_blocks().parse(lines)
    starts = [token.map[0] for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
    end = 0
    for _ in range(starts[-1] if len(starts) > 1 else 0):
        end = lines.index("\n", end) + 1
    return end


def _in_a_fence(lines: str, html: str) -> bool:
    last_line = lines[lines.rfind("\n", 0, -1) + 1 :]
    return html.endswith("</figure>\n") and not last_line.lstrip().startswith(("```", "~~~"))


# --- blocks -----------------------------------------------------------------------------------------


def _blocks(text: str, env: EnvType) -> Iterator[str]:
    """The HTML of each top-level block."""
    parser = _parser()
    tokens = parser.parse(text, env)
    lines: list[str] = []
    first = 0
    for number, token in enumerate(tokens):
        if token.level or token.nesting == 1:
            continue
        block = tokens[first : number + 1]
        first = number + 1
        if max(token.level for token in block) > _DEEPEST:
            lines = lines or text.split("\n")
            start, end = block[0].map or (0, 0)
            yield plain("\n".join(lines[start:end]))
        else:
            yield parser.renderer.render(block, parser.options, env)


class _Parser(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - the name is not ours
        """Every link is understood as one; whether it is followed is decided in `_harmless`."""
        return True


class _Renderer(RendererHTML):
    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return prose(tokens[idx].content)  # an entity may have become any character

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<code>{exact(tokens[idx].content)}</code>"

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        language, *_ = [*unescapeAll(tokens[idx].info).split(), ""]
        return named_figure(tokens[idx].content, language) + "\n"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return self.fence(tokens, idx, options, env)

    def math(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        source = tokens[idx].content
        return (formula_figure(source) or named_figure(source, "math")) + "\n"

    def formula(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return formula(tokens[idx].content) or f"<code>{exact(tokens[idx].info)}</code>"

    def task(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        mark, name = ("☑", "Done") if tokens[idx].info else ("☐", "To do")
        return f'<span class="task" role="img" aria-label="{name}">{mark}</span>'

    def footnote(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<sup>{prose(tokens[idx].content)}</sup>"

    def picture(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A page can show the file in the place of its name."""
        path = exact_line(tokens[idx].info)
        name = prose(tokens[idx].content)
        return f'<span class="picture" data-image="{path}">{name} (<code>{path}</code>)</span>'

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="table" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"


@cache
def _parser() -> _Parser:
    parser = _commonmark()
    parser.core.ruler.at("inline", _parse_inline)
    parser.core.ruler.push("harmless", _make_harmless)
    return parser


@cache
def _parser_of_blocks() -> _Parser:
    parser = _commonmark()
    parser.disable("inline")
    return parser


def _commonmark() -> _Parser:
    parser = _Parser("commonmark", {"html": False, "maxNesting": 20, "xhtmlOut": False}, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    parser.block.ruler.at("reference", _reference)
    parser.block.ruler.before("fence", "math", _math, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("escape", "formula", _formula)
    return parser


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A footnote is not a reference: its text would vanish."""
    is_footnote = state.src.startswith("[^", state.bMarks[start] + state.tShift[start])
    return not is_footnote and reference(state, start, end, silent)


def _math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Lines between `$$`, or from `\\[` to `\\]`."""
    closing = _CLOSES.get(_line(state, start)[:2], "\\)")
    if closing == "\\)" or state.is_code_block(start):
        return False
    if closing in _line(state, start)[2:].rstrip()[:-2]:  # a line of text that begins with a formula
        return False
    for last in range(start, min(end, start + _FORMULA)):
        text = _line(state, last).rstrip()
        if text.endswith(closing) and (last > start or len(text) >= 4):
            break
        if not text:
            return False
    else:
        return False
    if not silent:
        token = state.push("math", "math", 0)
        lines = "\n".join(_line(state, line).rstrip() for line in range(start, last + 1))
        token.content, token.map = lines[2:-2].strip("\n") + "\n", [start, last + 1]
        state.line = last + 1
    return True


def _formula(state: StateInline, silent: bool) -> bool:
    """In a line: `$x$`, `$$x$$`, `\\(x\\)`, `\\[x\\]`. Prices, variables of shells and escaped brackets are none."""
    text, start = state.src, state.pos
    opening = text[start : start + 2] if text[start : start + 2] in _CLOSES else text[start]
    closing = _CLOSES.get(opening)
    if closing is None:
        return False
    begin = start + len(opening)
    end = text.find(closing, begin, begin + _FORMULA_IN_LINE)
    inside = text[begin:end]
    if end < 0 or not inside.strip() or (opening == "\\[" and not _MATHS.search(inside)):
        return False
    if opening[0] == "$" and "\n" in inside:
        return False
    if opening == "$":
        before, after = text[start - 1 : start] if start else "", text[end + 1 : end + 2]
        if inside != inside.strip() or before.isalnum() or after.isalnum() or _PRICE.match(inside):
            return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.info = inside, text[start : end + len(closing)]
    state.pos = end + len(closing)
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _parse_inline(state: StateCore) -> None:
    for token in state.tokens:
        if token.type != "inline":
            continue
        children: list[Token] = []
        if len(token.content) <= _PARSED:
            state.md.inline.parse(token.content, state.md, state.env, children)
        if not children or max(child.level for child in children) > _DEEPEST:
            children = [_text(token.content)]
        token.children = children


def _make_harmless(state: StateCore) -> None:
    for number, token in enumerate(state.tokens):
        if token.children and [one.type for one in state.tokens[max(number - 2, 0) : number]] == _ITEM:
            token.children = _with_task(token.children)
        token.tag = _HEADINGS.get(token.tag, "h6") if re.fullmatch("h[1-6]", token.tag) else token.tag
        if align := re.fullmatch("text-align:(left|right|center)", str(token.attrs.pop("style", ""))):
            token.attrs["class"] = align[1]  # a policy that forbids inline styles would drop it
        if token.type in _DIRECTED and not token.hidden:
            token.attrs["dir"] = "auto"  # left to right or right to left, by its first letter
        if token.children:
            token.children = list(_harmless(token.children))


def _with_task(tokens: list[Token]) -> list[Token]:
    first, *rest = tokens
    if first.type != "text" or not (found := _TASK.match(first.content)):
        return tokens
    return [Token("task", "", 0, info=found[1].strip()), _text(first.content[found.end() :]), *rest]


def _with_footnotes(text: str) -> Iterator[Token]:
    """References and the beginnings of notes as small numbers."""
    for place, part in enumerate(_FOOTNOTE.split(text)):
        if place % 2:
            yield Token("footnote", "sup", 0, content=part)
        elif part:
            yield _text(part)


def _with_links(text: str) -> Iterator[Token]:
    """Addresses that were written without Markdown become links."""
    end = 0
    for found in _ADDRESS.finditer(text):
        address = found[0].rstrip(_AFTER_ADDRESS)
        while address.endswith(")") and address.count(")") > address.count("("):
            address = address[:-1].rstrip(_AFTER_ADDRESS)
        if not _FOLLOWED.match(address):
            continue
        yield from _with_footnotes(text[end : found.start()])
        yield from [_link(address, None), _text(address), Token("link_close", "a", -1)]
        end = found.start() + len(address)
    yield from _with_footnotes(text[end:])


def _harmless(tokens: list[Token]) -> Iterator[Token]:
    """Links only to where a browser may go; other addresses, and those of images, are shown as text."""
    inside = False  # a link that is followed
    is_linked = False  # within any link
    address = ""  # of a link that is not
    for token in tokens:
        match token.type:
            case "link_open":
                is_linked = True
                address = str(token.attrs.get("href", ""))
                inside = bool(_FOLLOWED.match(address))
                if inside:
                    yield _link(address, token.attrs.get("title"))
                elif token.info == "auto":
                    yield _text("<")
            case "link_close":
                if inside:
                    yield token
                else:
                    yield from [_text(">")] if token.info == "auto" else _in_brackets(address)
                inside = is_linked = False
            case "image":
                address_of_image = str(token.attrs.get("src", ""))
                name = _text(_words(token.children or []) or "image")
                if inside:
                    yield name
                elif _FOLLOWED.match(address_of_image):
                    yield from [_link(address_of_image, token.attrs.get("title")), name, Token("link_close", "a", -1)]
                elif _IMAGE_FILE.fullmatch(path := decode(address_of_image.removeprefix("file://"))):
                    yield Token("picture", "span", 0, content=name.content, info=path)
                else:
                    yield from [name, *_in_brackets(address_of_image)]
            case "text" if not is_linked and "://" in token.content:
                yield from _with_links(token.content)
            case "text" if "[^" in token.content:
                yield from _with_footnotes(token.content)
            case _:
                yield token


def _link(address: str, title: Any) -> Token:
    attrs: dict[str, str | int | float] = {"href": address, "rel": "noopener noreferrer nofollow", "target": "_blank"}
    if title:
        attrs["title"] = visible(str(title))
    return Token("link_open", "a", 1, attrs=attrs)


def _in_brackets(address: str) -> list[Token]:
    return [_text(" ("), Token("code_inline", "code", 0, content=address), _text(")")] if address else []


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _words(tokens: list[Token]) -> str:
    return "".join(token.content if token.type != "image" else _words(token.children or []) for token in tokens)
