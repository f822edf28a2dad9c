"""Render documents as articles, one after the other."""

from collections.abc import Iterable, Iterator

from cursor_gateway.model.documents import Document
from cursor_gateway.render.html.todos import todo_lists
from cursor_gateway.render.html.work import Do, perform, render_article


def render_document(document: Document, do: Do = perform) -> str:
    """A single document: later changes to a plan are not in it."""
    return render_article(document, todo_lists([document], do).get(document.id, ""), do)


def render_answer(documents: Iterable[Document], do: Do = perform) -> str:
    """All documents, the plan ticked off as far as the answer came."""
    return "".join(articles(list(documents), do))


def articles(documents: list[Document], do: Do, *, answerable: bool = True) -> Iterator[str]:
    lists = todo_lists(documents, do)
    for document in documents:
        yield render_article(document, lists.get(document.id, ""), do, answerable=answerable)
