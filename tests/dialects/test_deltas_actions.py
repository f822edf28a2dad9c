"""Documents as the tool calls that they stand for."""

import pytest

from cursor_gateway.dialects.deltas import ToolAction, action_of
from cursor_gateway.model import documents
from cursor_gateway.stages.diffs import line_diff


def action(metadata: documents.Metadata, content: str | None = None) -> ToolAction | None:
    return action_of(documents.make_document("doc_001", 1, content, metadata))


def command(exit_code: int = 0, **trace: str) -> documents.TerminalCommandMetadata:
    return documents.TerminalCommandMetadata(
        command="ls",
        exit_code=exit_code,
        output="a\n",
        duration_ms=1,
        permissions=[],
        **trace,  # type: ignore[arg-type] # each of its right type
    )


def tool(result: documents.ToolCallResult, **more: str) -> documents.ToolCallMetadata:
    return documents.ToolCallMetadata(
        tool_name="grep",
        tool_call_id="c",
        arguments={"query": "x"},
        result=result,
        duration_ms=1,
        **more,  # type: ignore[arg-type] # each of its right type
    )


def edit(operation: str, diff: documents.Diff | None = None, old_path: str = "") -> documents.FileEditMetadata:
    more: dict[str, object] = {}
    if diff is not None:
        more["diff"] = diff
    if old_path:
        more["old_path"] = old_path
    return documents.FileEditMetadata(file_path="a.py", operation=operation, language="python", **more)  # type: ignore[arg-type] # each of its right type


def test_a_command_has_its_output_and_how_it_failed() -> None:
    assert action(command()) == ToolAction("run_terminal_cmd", {"command": "ls"}, "a\n")
    assert action(command(2)) == ToolAction("run_terminal_cmd", {"command": "ls"}, "a\n", "Exit status 2")
    assert action(command(-1, state="rejected", reason="Not allowed.")) == ToolAction(
        "run_terminal_cmd", {"command": "ls"}, "a\n", "Not allowed."
    )
    stopped = action(command(-1, state="timed_out"))
    assert stopped is not None
    assert stopped.error == "Timed out"


def test_the_result_of_a_tool_is_text_or_json() -> None:
    assert action(tool(documents.ToolCallResult(status="success", data="found"))) == ToolAction(
        "grep", {"query": "x"}, "found"
    )
    assert action(tool(documents.ToolCallResult(status="success", data=None))) == ToolAction("grep", {"query": "x"}, "")
    assert action(tool(documents.ToolCallResult(status="success", data=["a", 1]))) == ToolAction(
        "grep", {"query": "x"}, '["a",1]'
    )
    assert action(tool(documents.ToolCallResult(status="error", data="no"))) == ToolAction(
        "grep", {"query": "x"}, "no", "The tool failed."
    )


def test_what_the_caller_ran_and_what_is_no_tool_is_no_action() -> None:
    assert action(tool(documents.ToolCallResult(status="success", data=None), ran_by="caller")) is None
    assert action(documents.TextMetadata(), "Hello") is None


def test_an_edit_has_its_diff() -> None:
    change = documents.Diff(old_string="a\nb", new_string="c", start_line=3, end_line=4)
    assert action(edit("edit", change)) == ToolAction(
        "edit_file",
        {"target_file": "a.py", "old_string": "a\nb", "new_string": "c"},
        "--- a.py\n+++ a.py\n@@ -3,2 +3,1 @@\n-a\n-b\n+c\n",
    )
    added = action(edit("edit", documents.Diff(old_string="", new_string="c", start_line=1, end_line=1)))
    assert added is not None
    assert "@@ -0,0 +1,1 @@" in added.output


def test_a_diff_has_blank_lines_and_whole_lines() -> None:
    before, after = "a\nb\x0cc\r\n", "a\n\nb\x0cc\n"
    made = action(edit("edit", line_diff(before, after)))
    assert made is not None
    assert made.output == "--- a.py\n+++ a.py\n@@ -2,1 +2,2 @@\n-b\x0cc\r\n+\n+b\x0cc\n"
    added = action(edit("edit", line_diff("a\nb\n", "a\n\nb\n")))
    assert added is not None
    assert added.output.endswith("@@ -1,1 +1,2 @@\n-a\n+a\n+\n")


@pytest.mark.parametrize(
    ("metadata", "content", "expected"),
    [
        (
            edit("create"),
            "x\n",
            ToolAction(
                "write_file",
                {"target_file": "a.py", "contents": "x\n"},
                "--- /dev/null\n+++ a.py\n@@ -0,0 +1,1 @@\n+x\n",
            ),
        ),
        (edit("create"), None, ToolAction("write_file", {"target_file": "a.py"}, "")),
        (edit("delete"), None, ToolAction("delete_file", {"target_file": "a.py"}, "")),
        (
            edit("rename", old_path="b.py"),
            None,
            ToolAction(
                "rename_file", {"target_file": "a.py", "old_path": "b.py"}, "rename from b.py\nrename to a.py\n"
            ),
        ),
        (edit("rename"), None, ToolAction("rename_file", {"target_file": "a.py"}, "rename from \nrename to a.py\n")),
    ],
)
def test_other_changes_of_files(metadata: documents.Metadata, content: str | None, expected: ToolAction) -> None:
    assert action(metadata, content) == expected


def test_plans_questions_and_todos() -> None:
    plan = action(documents.PlanMetadata(title="All", overview="", todos=[]), "# Do it")
    assert plan == ToolAction("create_plan", {"name": "All", "plan": "# Do it"}, "# Do it")
    question = documents.ClarificationQuestion(id="q", text="Which?", options=[])
    answer = documents.ClarificationAnswer(question_id="q", selected_option_ids=["o"])
    asked = action(documents.ClarificationMetadata(questions=[question], answers=[answer]))
    assert asked == ToolAction(
        "ask_question", {"questions": [question]}, '[{"questionId":"q","selectedOptionIds":["o"]}]'
    )
    assert action(documents.ClarificationMetadata(questions=[question])) == ToolAction(
        "ask_question", {"questions": [question]}, ""
    )
    todo = documents.TodoChange(id="1", status="completed")
    assert action(documents.TodoUpdateMetadata(todos=[todo])) == ToolAction("todo_write", {"todos": [todo]}, "")
