"""A plan's to-dos and later changes of them in, the list as it stands now out."""

from typing import NamedTuple

from msgspec import UNSET
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from cursor_gateway.model.documents import PlanMetadata, TodoStatus, TodoUpdateMetadata
from cursor_gateway.render.listing import Listing, Row
from cursor_gateway.render.visible import visible_line

_MARKS: dict[TodoStatus, tuple[str, str, str]] = {  # the mark, its style, the text's style
    "pending": ("☐", "", ""),
    "in_progress": ("◐", "yellow", "bold"),
    "completed": ("☑", "green", "dim"),
    "cancelled": ("☒", "dim", "dim strike"),
}


class _Todo(NamedTuple):
    content: str
    status: TodoStatus
    dependencies: tuple[str, ...] = ()


class Checklist:
    """Keeps only the state of the newest plan; what it draws is a picture of now."""

    def __init__(self) -> None:
        self._title = ""
        self._todos: dict[str, _Todo] = {}

    def begin(self, plan: PlanMetadata) -> None:
        self._title = plan.title
        self._todos = {todo.id: _Todo(todo.content, todo.status, tuple(todo.dependencies)) for todo in plan.todos}

    def update(self, change: TodoUpdateMetadata) -> None:
        before = self._todos
        if change.merge is False:
            self._todos = {}
        for todo in change.todos:
            known = before.get(todo.id, _Todo(todo.id, todo.status))
            content = known.content if todo.content is UNSET else todo.content
            self._todos[todo.id] = _Todo(content, todo.status, known.dependencies)

    @property
    def heading(self) -> str:
        done = sum(todo.status == "completed" for todo in self._todos.values())
        title = f" · {self._title}" if self._title else ""
        return f"To-dos{title} · {done} of {len(self._todos)} done"

    def picture(self) -> "ChecklistPicture":
        return ChecklistPicture(dict(self._todos))


class ChecklistPicture:
    def __init__(self, todos: dict[str, _Todo]) -> None:
        self._todos = todos

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers = {id: number for number, id in enumerate(self._todos, 1)}
        digits = len(str(len(numbers)))
        rows = []
        for id, todo in self._todos.items():
            mark, mark_style, style = _MARKS[todo.status]
            waits_for = [
                str(numbers[needed])
                for needed in todo.dependencies
                if needed in numbers and self._todos[needed].status in ("pending", "in_progress")
            ]
            after = f"  after {', '.join(waits_for)}" if waits_for and todo.status == "pending" else ""
            gutter = Text.assemble("  ", (mark, mark_style), (f" {numbers[id]:>{digits}}. ", "dim"))
            rows.append(Row(gutter, Text.assemble((visible_line(todo.content), style), (after, "dim"))))
        yield Listing(rows)
