"""Rendering jobs that may take more than linear time.

Pygments and Markdown parsers take quadratic time for some texts. So what they do is asked for as a job: `perform` does
it here and now, a server has it done in another process that is killed when it takes too long (then there is no
result, and the document is shown as plain text). Everything else in this package is linear.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from cursor_gateway.model.documents import CodeBlockDocument, CodeReferenceDocument, Document
from cursor_gateway.render.html import markdown
from cursor_gateway.render.html.documents import article, code_part
from cursor_gateway.render.html.markdown import Rendered as Rendered


class Article(Struct, frozen=True, tag="article"):
    """A whole document. `todos` is HTML."""

    document: Document
    todos: str = ""
    answerable: bool = True


class CodePart(Struct, frozen=True, tag="code"):
    """The highlighted code of a document."""

    document: CodeBlockDocument | CodeReferenceDocument


class Lines(Struct, frozen=True, tag="lines"):
    """Texts of one line, such as to-dos."""

    texts: list[str]


class Blocks(Struct, frozen=True, tag="blocks"):
    """A Markdown text."""

    text: str


class OpenText(Struct, frozen=True, tag="open"):
    """A Markdown text that may continue: the HTML of its finished blocks, and of the rest."""

    text: str


Job: TypeAlias = Article | CodePart | Lines | Blocks | OpenText


Do: TypeAlias = Callable[[Job], Rendered | None]
"""None: it took too long."""


def perform(job: Job) -> Rendered:
    match job:
        case Article(document=document, todos=todos, answerable=answerable):
            return Rendered([article(document, todos, answerable=answerable)])
        case CodePart(document=code):
            return Rendered([code_part(code)])
        case Lines(texts=texts):
            return Rendered([markdown.render_line(text) for text in texts])
        case Blocks(text=text):
            return markdown.render_blocks(text)
        case OpenText(text=text):
            return markdown.render_open(text)


def render_article(document: Document, todos: str, do: Do, *, answerable: bool = True) -> str:
    """As plain text if it would take too long."""
    done = do(Article(document, todos, answerable))
    if done is not None:
        return done.html[0]
    return article(document, todos, answerable=answerable, as_plain=True)
