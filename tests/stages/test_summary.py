"""One line about what each tool did."""

from typing import Any

import pytest

from cursor_gateway.model import documents
from cursor_gateway.stages.summary import main_argument, one_line


def command(text: str, exit_code: int = 0, **fields: Any) -> documents.Metadata:
    return documents.TerminalCommandMetadata(
        command=text, exit_code=exit_code, output="", duration_ms=1, permissions=[], **fields
    )


def tool(name: str, arguments: dict[str, Any], **fields: Any) -> documents.Metadata:
    result = documents.ToolCallResult(status="success", data=None)
    return documents.ToolCallMetadata(
        tool_name=name, tool_call_id="c", arguments=arguments, result=result, duration_ms=1, **fields
    )


def edit(operation: Any, **fields: Any) -> documents.Metadata:
    return documents.FileEditMetadata(file_path="a.py", operation=operation, language="python", **fields)


def plan(title: str, todos: int) -> documents.Metadata:
    todo = documents.PlanTodo(id="1", content="x", status="pending", dependencies=[])
    return documents.PlanMetadata(title=title, overview="", todos=[todo] * todos)


def questions(*texts: str) -> documents.Metadata:
    return documents.ClarificationMetadata(
        questions=[documents.ClarificationQuestion(id="q", text=text, options=[]) for text in texts]
    )


def todos(*states: Any) -> documents.Metadata:
    return documents.TodoUpdateMetadata(todos=[documents.TodoChange(id="1", status=state) for state in states])


LINES: list[tuple[documents.Metadata, str | None, str | None]] = [
    (command("make test"), None, "Ran `make test` (exit status 0)"),
    (command("make\n  test", 2), None, "Ran `make test` (exit status 2)"),
    (command("ls", state="rejected", reason="no"), None, "Did not run `ls` (rejected: no)"),
    (command("ls", state="timed_out", reason=""), None, "Ran `ls` (timed out)"),
    (edit("create"), "a\nb\n", "Created a.py, 2 lines"),
    (edit("create"), "a", "Created a.py, 1 line"),
    (edit("create"), None, "Created a.py, 0 lines"),
    (edit("edit"), "b", "Edited a.py"),
    (
        edit("edit", state="failed", reason="The file\nis in use."),
        "b",
        "Tried to edit a.py (failed: The file is in use.)",
    ),
    (edit("delete"), None, "Deleted a.py"),
    (edit("delete", state="rejected", reason="no"), None, "Did not delete a.py (rejected: no)"),
    (edit("rename", old_path="b.py"), None, "Renamed b.py to a.py"),
    (edit("rename"), None, "Renamed a file to a.py"),
    (tool("read_file", {"limit": 5, "target_file": "a.py"}), None, "Used read_file: a.py"),
    (tool("new_tool", {"n": 5, "anything": "at all"}), None, "Used new_tool: at all"),
    (tool("new_tool", {"n": 5, "query": ""}), None, "Used new_tool"),
    (
        tool("new_tool", {}, state="interrupted", reason="The run ended."),
        None,
        "Used new_tool (interrupted: The run ended.)",
    ),
    (plan("JWT", 2), "# P", "Planned JWT (2 to-dos)"),
    (plan("", 1), "# P", "Planned the work (1 to-do)"),
    (questions("Which?", "Why?"), None, "Asked Which? / Why?"),
    (todos("completed", "in_progress", "completed"), None, "Updated the to-dos (2 completed, 1 in progress)"),
    (todos(), None, "Updated the to-dos"),
    (documents.TextMetadata(), "Hi", None),
    (documents.CodeBlockMetadata(language="py", purpose="example"), "x", None),
    (documents.CodeReferenceMetadata(file_path="a", start_line=1, end_line=2, language="text"), "x", None),
    (documents.ErrorMetadata(error_code="E", source="s", details=""), "It broke.", None),
    (documents.ThinkingMetadata(), "hm", None),
]


@pytest.mark.parametrize(("metadata", "content", "line"), LINES)
def test_a_tools_document_is_one_line_and_other_documents_are_none(
    metadata: documents.Metadata, content: str | None, line: str | None
) -> None:
    assert one_line(documents.make_document("doc_001", 1, content, metadata)) == line


def test_a_long_line_is_cut_and_says_so() -> None:
    line = one_line(documents.make_document("doc_001", 1, None, command("x" * 500)))
    assert line == f"Ran `{'x' * 194}… (exit status 0)"


def test_a_command_that_just_fits_is_whole() -> None:
    line = one_line(documents.make_document("doc_001", 1, None, command("x" * 194)))
    assert line == f"Ran `{'x' * 194}` (exit status 0)"


def test_a_long_reason_is_cut() -> None:
    line = one_line(documents.make_document("doc_001", 1, None, command("ls", state="failed", reason="x" * 500)))
    assert line == f"Ran `ls` (failed: {'x' * 192})"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"explanation": "because", "target_file": "a.py"}, "a.py"),
        ({"path": "src", "pattern": "x"}, "x"),
        ({"n": 1, "first": "", "second": "b", "third": "c"}, "b"),
        ({"n": 1, "list": ["x"]}, ""),
        ({}, ""),
    ],
)
def test_a_call_is_about_the_argument_that_tells_most(arguments: dict[str, Any], expected: str) -> None:
    assert main_argument(arguments) == expected
