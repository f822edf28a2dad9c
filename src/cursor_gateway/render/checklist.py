"""Show a plan's to-dos in a terminal, in their current state."""

from rich.text import Text

from cursor_gateway.model.documents import PlanMetadata, TodoStatus, TodoUpdateMetadata
from cursor_gateway.render.listing import Listing, ListingRow
from cursor_gateway.render.todos import Todos, planned, progress, updated, waits_for
from cursor_gateway.render.visible import visible_line

_MARKS: dict[TodoStatus, tuple[str, str, str]] = {  # the mark, its style, the text's style
    "pending": ("☐", "", ""),
    "in_progress": ("◐", "yellow", "bold"),
    "completed": ("☑", "green", "dim"),
    "cancelled": ("☒", "dim", "dim strike"),
}


class Checklist:
    """Keeps only the state of the newest plan, and draws that."""

    def __init__(self) -> None:
        self._title = ""
        self._todos: Todos = {}

    def begin(self, plan: PlanMetadata) -> None:
        self._title, self._todos = plan.title, planned(plan)

    def update(self, change: TodoUpdateMetadata) -> None:
        self._todos = updated(self._todos, change)

    @property
    def heading(self) -> str:
        title = f" · {self._title}" if self._title else ""
        return f"To-dos{title} · {progress(self._todos)}"

    def picture(self) -> Listing:
        digits = len(str(len(self._todos)))
        rows = []
        for number, todo in enumerate(self._todos.values(), 1):
            mark, mark_style, style = _MARKS[todo.status]
            needed = waits_for(todo, self._todos)
            after = f"  after {needed}" if needed else ""
            gutter = Text.assemble("  ", (mark, mark_style), (f" {number:>{digits}}. ", "dim"))
            rows.append(ListingRow(gutter, Text.assemble((visible_line(todo.content), style), (after, "dim"))))
        return Listing(rows)
