"""Apply changes to the to-dos of a plan."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from msgspec import UNSET

from cursor_gateway.model.documents import PlanMetadata, TodoStatus, TodoUpdateMetadata


class Todo(NamedTuple):
    content: str
    status: TodoStatus
    dependencies: tuple[str, ...] = ()


Todos: TypeAlias = dict[str, Todo]  # by their ids, in order


def planned(plan: PlanMetadata) -> Todos:
    return {todo.id: Todo(todo.content, todo.status, tuple(todo.dependencies)) for todo in plan.todos}


def changed(before: Mapping[str, Todo], change: TodoUpdateMetadata) -> Todos:
    """Those that the change names."""
    found: Todos = {}
    for todo in change.todos:
        known = before.get(todo.id, Todo(todo.id, todo.status))
        content = known.content if todo.content is UNSET else todo.content
        found[todo.id] = Todo(content, todo.status, known.dependencies)
    return found


def updated(before: Mapping[str, Todo], change: TodoUpdateMetadata) -> Todos:
    return {**({} if change.merge is False else before), **changed(before, change)}


def progress(todos: Mapping[str, Todo]) -> str:
    return f"{sum(todo.status == 'completed' for todo in todos.values())} of {len(todos)} done"


def waits_for(todo: Todo, todos: Mapping[str, Todo]) -> str:
    """The numbers of the to-dos that must be done before; empty if it does not wait."""
    if todo.status != "pending":
        return ""
    numbers = {id: number for number, id in enumerate(todos, 1)}
    unfinished = (
        needed for needed in todo.dependencies if needed in todos and todos[needed].status in ("pending", "in_progress")
    )
    return ", ".join(str(numbers[needed]) for needed in unfinished)
