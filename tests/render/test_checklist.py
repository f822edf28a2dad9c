"""A plan's to-dos, ticked off by what comes later."""

from io import StringIO

from cursor_gateway.model.documents import PlanMetadata, PlanTodo, TodoChange, TodoStatus, TodoUpdateMetadata
from cursor_gateway.render.cards import Checklist
from cursor_gateway.render.terminal import make_console


def planned(*statuses: TodoStatus) -> Checklist:
    checklist = Checklist()
    todos = [
        PlanTodo(id=f"t{n}", content=f"Step {n}", status=status, dependencies=[f"t{n - 1}"])
        for n, status in enumerate(statuses, 1)
    ]
    checklist.begin(PlanMetadata(title="Work", overview="", todos=todos))
    return checklist


def drawn(checklist: Checklist) -> str:
    out = StringIO()
    make_console(out, plain=True).print(checklist.picture(), soft_wrap=True)
    return out.getvalue()


def test_each_state_has_its_mark() -> None:
    shown = drawn(planned("pending", "in_progress", "completed", "cancelled"))
    assert shown == "  ☐ 1. Step 1\n  ◐ 2. Step 2\n  ☑ 3. Step 3\n  ☒ 4. Step 4\n"


def test_a_todo_says_what_it_waits_for_until_that_is_done() -> None:
    checklist = planned("pending", "pending")
    assert "Step 2  after 1" in drawn(checklist)
    checklist.update(TodoUpdateMetadata(todos=[TodoChange(id="t1", status="completed")]))
    assert "after" not in drawn(checklist)
    assert checklist.heading == "To-dos · Work · 1 of 2 done"


def test_a_todo_that_the_plan_does_not_have_is_added() -> None:
    checklist = planned("pending")
    checklist.update(
        TodoUpdateMetadata(
            todos=[TodoChange(id="new", status="pending", content="More"), TodoChange(id="bare", status="completed")]
        )
    )
    assert drawn(checklist) == "  ☐ 1. Step 1\n  ☐ 2. More\n  ☑ 3. bare\n"


def test_an_update_that_replaces_the_list_keeps_what_it_knew_of_the_rest() -> None:
    checklist = planned("pending", "pending")
    checklist.update(TodoUpdateMetadata(todos=[TodoChange(id="t2", status="completed")], merge=False))
    assert drawn(checklist) == "  ☑ 1. Step 2\n"


def test_without_a_plan_there_is_still_a_list() -> None:
    checklist = Checklist()
    checklist.update(TodoUpdateMetadata(todos=[TodoChange(id="a", status="pending", content="A")]))
    assert checklist.heading == "To-dos · 0 of 1 done"


def test_a_picture_does_not_change_when_the_list_goes_on() -> None:
    checklist = planned("pending")
    picture = checklist.picture()
    checklist.update(TodoUpdateMetadata(todos=[TodoChange(id="t1", status="completed")]))
    out = StringIO()
    make_console(out, plain=True).print(picture)
    assert "☐ 1. Step 1" in out.getvalue()
