"""Markdown of the agent in, HTML out, whole or as it grows; none of it is HTML that the agent wrote.

A top-level block is rendered for itself, so a growing text is rendered again only from its last block on.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.utils import unescapeAll
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from cursor_gateway.render.html.code import named_figure
from cursor_gateway.render.html.pieces import exact, plain, prose
from cursor_gateway.render.visible import visible, visible_line

_DEEPEST = 16  # beyond that a block is best read as it was written
_PARSED = 100_000  # characters of one paragraph; more is no prose
_HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5"}  # the page has its own above them
_FOLLOWED = re.compile(r"https?://[^/\s]|mailto:", re.IGNORECASE)


def render(text: str) -> str:
    return "".join(_blocks(visible(text), {}))


def render_line(text: str) -> str:
    """Of a text that is one line, such as a to-do: emphasis, code and links, but no blocks."""
    html: str = _parser().renderInline(visible_line(text), {})
    return html


# --- a text that grows ------------------------------------------------------------------------------


class OpenMarkdown(NamedTuple):
    finished: str  # HTML that nothing will change any more
    open: str
    rest: str  # the text whose HTML is `open`
    goes_on: bool  # what follows belongs to its last line, as far as one can tell
    refers: bool  # there are link reference definitions, so only rendering the whole is right


def render_blocks(text: str) -> tuple[str, bool]:
    """And whether there are link reference definitions."""
    env: EnvType = {}
    html = "".join(_blocks(text, env))
    return html, bool(env.get("references"))


def render_open(written: str) -> OpenMarkdown:
    end_of_lines = written.rfind("\n") + 1
    lines, last_line = visible(written[:end_of_lines]), written[end_of_lines:]
    end = _end_of_finished_blocks(lines)
    finished, finished_refers = render_blocks(lines[:end])
    open, open_refers = render_blocks(lines[end:] + visible(last_line))
    goes_on = bool(last_line) or _in_a_fence(lines, open)
    return OpenMarkdown(finished, open, lines[end:] + last_line, goes_on, finished_refers or open_refers)


def _end_of_finished_blocks(lines: str) -> int:
    """Where the last block begins. Only whole lines count: "2" may yet become the "2." that goes on with a list, and
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
    return parser


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
    for token in state.tokens:
        token.tag = _HEADINGS.get(token.tag, "h6") if re.fullmatch("h[1-6]", token.tag) else token.tag
        if align := re.fullmatch("text-align:(left|right|center)", str(token.attrs.pop("style", ""))):
            token.attrs["class"] = align[1]  # a policy that forbids inline styles would drop it
        if token.children:
            token.children = list(_harmless(token.children))


def _harmless(tokens: list[Token]) -> Iterator[Token]:
    """Links only to where a browser may go; other addresses, and those of images, are shown as text."""
    inside = False  # a link that is followed
    address = ""  # of a link that is not
    for token in tokens:
        match token.type:
            case "link_open":
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
                    yield from [_text(">")] if token.info == "auto" else _told(address)
                inside = False
            case "image":
                address_of_image = str(token.attrs.get("src", ""))
                name = _text(_words(token.children or []) or "image")
                if inside:
                    yield name
                elif _FOLLOWED.match(address_of_image):
                    yield from [_link(address_of_image, token.attrs.get("title")), name, Token("link_close", "a", -1)]
                else:
                    yield from [name, *_told(address_of_image)]
            case _:
                yield token


def _link(address: str, title: Any) -> Token:
    attrs: dict[str, str | int | float] = {"href": address, "rel": "noopener noreferrer nofollow", "target": "_blank"}
    if title:
        attrs["title"] = visible(str(title))
    return Token("link_open", "a", 1, attrs=attrs)


def _told(address: str) -> list[Token]:
    return [_text(" ("), Token("code_inline", "code", 0, content=address), _text(")")] if address else []


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _words(tokens: list[Token]) -> str:
    return "".join(token.content if token.type != "image" else _words(token.children or []) for token in tokens)
