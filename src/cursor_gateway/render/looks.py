"""What all views have in common: words for figures and answers, the state of to-dos, changed lines."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

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
    cost = f", {money(usage.cost)}" if isinstance(usage.cost, float) else ""
    return f"{usage.prompt_tokens:,} {unit}in{cached}, {usage.completion_tokens:,} out{estimated}{cost}"


def money(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 1 or not usd else f"${usd:.4f}"


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

Sign: TypeAlias = Literal["+", "-", " ", "⋮"]  # added, removed, the same, the same and not shown


class LineRun(NamedTuple):
    """Lines that follow each other and share a sign, by their numbers in the old and the new text, from 0."""

    sign: Sign
    old: range
    new: range


def line_runs(old: list[str], new: list[str], *, compares: bool = True) -> Iterator[LineRun]:
    """Changes with their context. Without comparing, all old lines come before all new ones."""
    is_compared = compares and len(old) + len(new) <= _COMPARED
    if is_compared:
        groups = grouped(hunks_between(old, new), CONTEXT)
    else:
        groups = [[Hunk(0, len(old), 0, len(new))]] if old or new else []
    old_at = new_at = 0

    def same(sign: Sign, until: int) -> Iterator[LineRun]:
        nonlocal old_at, new_at
        if (count := until - old_at) > 0:
            yield LineRun(sign, range(old_at, until), range(new_at, new_at + count))
            old_at, new_at = until, new_at + count

    for group in groups:
        yield from same("⋮", group[0].old_start - CONTEXT)
        for hunk in group:
            yield from same(" ", hunk.old_start)
            if hunk.removed:
                yield LineRun("-", range(hunk.old_start, hunk.old_end), range(new_at, new_at))
            if hunk.added:
                yield LineRun("+", range(hunk.old_end, hunk.old_end), range(hunk.new_start, hunk.new_end))
            old_at, new_at = hunk.old_end, hunk.new_end
        yield from same(" ", min(old_at + CONTEXT, len(old)))
    if groups:
        yield from same("⋮", len(old))
