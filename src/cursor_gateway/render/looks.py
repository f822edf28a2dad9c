"""What all views have in common: words for figures and answers, the state of to-dos, changed lines."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from msgspec import UNSET, UnsetType

from cursor_gateway.model.documents import (
    ClarificationMetadata,
    ClarificationQuestion,
    Operation,
    PlanMetadata,
    TodoStatus,
    TodoUpdateMetadata,
    Usage,
)
from cursor_gateway.stages.hunks import CONTEXT, Hunk, grouped, hunks_between

# --- words: unknown figures are empty ----------------------------------------------------------------


OPERATIONS: dict[Operation, str] = {"create": "Created", "edit": "Edited", "delete": "Deleted", "rename": "Renamed"}


def duration(milliseconds: int) -> str:
    if milliseconds <= 0:
        return ""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes} min {seconds:02d} s"


def thinking(duration_ms: int | UnsetType) -> str:
    """What a block of thinking is called."""
    if not duration_ms:
        return "Thinking"
    return f"Thought for {duration(duration_ms) if duration_ms < 10_000 else _whole_seconds(duration_ms)}"


def _whole_seconds(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"{seconds} s" if seconds < 60 else duration(milliseconds)


def tokens(usage: Usage, unit: str = "") -> str:
    """`unit` follows the first figure."""
    if not usage.total_tokens:
        return ""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    estimated = ", estimated" if usage.estimated is True else ""
    return f"{usage.prompt_tokens:,} {unit}in{cached}, {usage.completion_tokens:,} out{estimated}"


def line_range(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first}-{last}"


def answer_to(question: ClarificationQuestion, metadata: ClarificationMetadata) -> tuple[set[str], str]:
    """The ids of the chosen options, and the text; both empty if there is no answer."""
    given = [answer for answer in metadata.answers or [] if answer.question_id == question.id]
    chosen = {id for answer in given for id in answer.selected_option_ids}
    return chosen, " ".join(answer.text for answer in given if answer.text)


# --- to-dos ------------------------------------------------------------------------------------------


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


# --- lines -------------------------------------------------------------------------------------------


_COMPARED = 200_000  # lines; beyond that comparing them takes too long

Opcode: TypeAlias = tuple[str, int, int, int, int]  # as in difflib


def split_lines(text: str) -> list[str]:
    """A line feed ends a line; it does not begin another."""
    return text.removesuffix("\n").split("\n") if text else []


def changes(old: list[str], new: list[str], *, compares: bool = True) -> list[list[Opcode]]:
    """In groups, each with its context. Without comparing, all old lines come before all new ones."""
    if not compares or len(old) + len(new) > _COMPARED:
        return [[("replace", 0, len(old), 0, len(new))]]
    return [_opcodes(group, len(old)) for group in grouped(hunks_between(old, new), CONTEXT)]


def _opcodes(group: list[Hunk], length: int) -> list[Opcode]:
    """With the equal lines around and between the hunks."""
    codes: list[Opcode] = []
    old_at = max(group[0].old_start - CONTEXT, 0)
    new_at = 0
    for hunk in group:
        if hunk.old_start > old_at:
            codes.append(("equal", old_at, hunk.old_start, hunk.new_start - (hunk.old_start - old_at), hunk.new_start))
        tag = "replace" if hunk.added and hunk.removed else "insert" if hunk.added else "delete"
        codes.append((tag, hunk.old_start, hunk.old_end, hunk.new_start, hunk.new_end))
        old_at, new_at = hunk.old_end, hunk.new_end
    if (end := min(old_at + CONTEXT, length)) > old_at:
        codes.append(("equal", old_at, end, new_at, new_at + end - old_at))
    return codes
