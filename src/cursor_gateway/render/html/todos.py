"""Render a plan's to-dos as HTML, in their current state."""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import UNSET

from cursor_gateway.model.documents import Document, PlanDocument, TodoStatus, TodoUpdateDocument
from cursor_gateway.render.html.pieces import prose_line, span, unseen
from cursor_gateway.render.html.work import Do, Lines
from cursor_gateway.render.todos import Todo, Todos, changed, planned, progress, updated, waits_for

TodoDocument: TypeAlias = PlanDocument | TodoUpdateDocument

_MARKS: dict[TodoStatus, str] = {"pending": "☐", "in_progress": "◐", "completed": "☑", "cancelled": "☒"}


class TodoLists:
    """The newest plan's list, and what each change says. Documents are pushed in their order."""

    def __init__(self, do: Do) -> None:
        self._do = do
        self._html: dict[str, str] = {}  # of contents
        self._plan: str | None = None
        self._todos: Todos = {}

    def push(self, document: TodoDocument, /) -> str:
        """The document's own list."""
        self._render(todo.content if isinstance(todo.content, str) else todo.id for todo in document.metadata.todos)
        if isinstance(document, PlanDocument):
            self._plan = document.id
            self._todos = planned(document.metadata)
            return self._list(self._todos)
        before = self._todos
        if document.metadata.state in (UNSET, "completed"):  # a change that failed changed nothing
            self._todos = updated(before, document.metadata)
        return self._list(changed(before, document.metadata))

    def push_all(self, documents: Iterable[Document]) -> dict[str, str]:
        """By the document's id: a plan's list at its end, a change's as it was."""
        found: dict[str, str] = {}
        for document in documents:
            if isinstance(document, PlanDocument):
                found |= self.plan()
            if isinstance(document, TodoDocument):
                found[document.id] = self.push(document)
        return found | self.plan()

    def plan(self) -> dict[str, str]:
        """The newest plan's list now, by the plan's id."""
        return {} if self._plan is None else {self._plan: self._list(self._todos)}

    def _render(self, contents: Iterable[str]) -> None:
        """All at once, each only the first time; as plain text if it takes too long."""
        new = [content for content in dict.fromkeys(contents) if content not in self._html]
        done = self._do(Lines(new)) if new else None
        self._html |= zip(new, done.html if done is not None else map(prose_line, new), strict=True)

    def _list(self, shown: Todos) -> str:
        numbers = {id: number for number, id in enumerate(self._todos, 1)}
        items = "".join(
            _item(todo, self._html[todo.content], numbers.get(id), waits_for(todo, self._todos))
            for id, todo in shown.items()
        )
        done = f'<p class="progress">{progress(self._todos)}</p>' if self._todos else ""
        listed = f"<ol>{items}</ol>" if items else ""
        return f'<div class="todos" data-part="todos">{done}{listed}</div>'


def _item(todo: Todo, html: str, number: int | None, needed: str) -> str:
    """The number is the one in the plan, also where only some are listed."""
    value = f' value="{number}"' if number else ""
    mark = f'<span class="mark" aria-hidden="true">{_MARKS[todo.status]}</span>'
    status = unseen(f"{todo.status.replace('_', ' ')}: ")
    after = span(f"after {needed}", "after") if needed else ""
    return f'<li{value} data-status="{todo.status}">{mark}{status}<span>{html}</span>{after}</li>'


def todo_lists(documents: Iterable[Document], do: Do) -> dict[str, str]:
    return TodoLists(do).push_all(documents)
