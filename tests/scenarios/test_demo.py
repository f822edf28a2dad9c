"""The built-in recordings show everything, say what their results say, and their code is real code."""

import importlib.resources
import json
import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from cursor_gateway import (
    ChatResponse,
    ClarificationDocument,
    CodeBlockDocument,
    CodeReferenceDocument,
    FileEditDocument,
    PlanDocument,
    RunInfo,
    TerminalCommandDocument,
    TextDocument,
    ThinkingDocument,
    ToolCallDocument,
    demo,
    read_events,
    read_response,
)
from cursor_gateway.demo import recording, recordings
from cursor_gateway.model.document_events import source_text

RUN = RunInfo(id="chat_demo", created="2026-10-04T09:00:00Z", include=frozenset({"thinking"}))
ALL = recordings()
every_recording = pytest.mark.parametrize("name", ALL)
RECORDS: list[dict[str, Any]] = [json.loads(line) for line in recording().splitlines()]


@pytest.fixture(scope="module")
def response() -> ChatResponse:
    return read_response([recording()], RUN)


@pytest.fixture(scope="module")
def edits(response: ChatResponse) -> list[FileEditDocument]:
    return [document for document in response.documents if isinstance(document, FileEditDocument)]


def test_all_ten_types_of_the_specification_are_there(response: ChatResponse) -> None:
    types = {document["type"] for document in _plain(response)["documents"]}
    assert types == {
        "text", "code_reference", "code_block", "file_edit", "tool_call", "terminal_command",
        "plan", "clarification", "error", "todo_update", "thinking",
    }  # fmt: skip


def test_a_run_that_completed_and_cost_something(response: ChatResponse) -> None:
    assert response.status == "completed"
    assert response.usage.prompt_tokens > response.usage.completion_tokens > 0
    assert not response.metadata.unrecognized


def test_the_text_is_the_result() -> None:
    assert "".join(map(source_text, read_events([recording()], RUN))) == RECORDS[-1]["result"]


def test_time_only_goes_forward() -> None:
    times = [record["timestamp_ms"] for record in RECORDS if "timestamp_ms" in record]
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert 20_000 < times[-1] - times[0] < 120_000


def test_created_python_files_compile(edits: list[FileEditDocument]) -> None:
    created = [document for document in edits if document.metadata.operation == "create"]
    assert [document.metadata.file_path for document in created] == ["bookshelf/auth.py", "tests/test_auth.py"]
    for document in created:
        compile(document.content or "", document.metadata.file_path, "exec")


def test_edits_turn_the_old_file_into_one_that_compiles(edits: list[FileEditDocument]) -> None:
    app = next(document for document in edits if document.metadata.file_path == "bookshelf/app.py")
    diff = app.metadata.diff
    assert diff
    lines = _file("bookshelf/app.py").split("\n")
    assert "\n".join(lines[diff.start_line - 1 : diff.end_line]) == diff.old_string
    lines[diff.start_line - 1 : diff.end_line] = diff.new_string.split("\n")
    compile("\n".join(lines), app.metadata.file_path, "exec")


def test_the_reference_quotes_the_file(response: ChatResponse) -> None:
    reference = next(document for document in response.documents if isinstance(document, CodeReferenceDocument))
    lines = _file(reference.metadata.file_path).split("\n")
    assert "\n".join(lines[reference.metadata.start_line - 1 : reference.metadata.end_line]) == reference.content


def test_the_plan_is_ticked_off(response: ChatResponse) -> None:
    documents = {document["type"]: document["metadata"] for document in _plain(response)["documents"]}
    planned = documents["plan"]["todos"]
    assert any(todo["dependencies"] for todo in planned)
    assert {todo["id"]: "completed" for todo in planned} == {
        todo["id"]: todo["status"] for todo in documents["todo_update"]["todos"]
    }


def test_the_tests_fail_before_they_pass(response: ChatResponse) -> None:
    commands = [document["metadata"] for document in _plain(response)["documents"] if "command" in document["metadata"]]
    assert [command["exitCode"] for command in commands if "pytest" in command["command"]] == [2, 0]


# --- each of them ---------------------------------------------------------------------------------------


def test_all_recordings_are_offered_and_the_first_greets() -> None:
    files = {file.name for file in importlib.resources.files(demo).iterdir()}
    assert {f"{name}.ndjson" for name in ALL} == {file for file in files if file.endswith(".ndjson")}
    assert next(iter(ALL)) == "hello"
    assert ALL["jwt_authentication"] == recording()


@every_recording
def test_every_recording_is_a_run_that_completed(name: str) -> None:
    response = read_response([ALL[name]], RUN)
    assert response.status == "completed"
    assert not response.metadata.unrecognized
    assert not response.metadata.result_differs
    assert response.metadata.duration_ms > 0
    assert response.usage.prompt_tokens > response.usage.completion_tokens > 0
    assert not response.usage.estimated


@every_recording
def test_every_recording_says_what_its_result_says(name: str) -> None:
    assert "".join(map(source_text, read_events([ALL[name]], RUN))) == _records(name)[-1]["result"]


@every_recording
def test_every_recording_has_the_shape_of_the_real_thing(name: str) -> None:
    records = _records(name)
    assert [(record["type"], record.get("subtype")) for record in records[:2]] == [("system", "init"), ("user", None)]
    assert [record["type"] for record in records].count("result") == 1
    assert len({record["session_id"] for record in records}) == 1
    assert ALL[name].endswith(b"}\n")
    deltas = [
        record["message"]["content"][0]["text"]
        for record in records
        if record["type"] == "assistant" and "timestamp_ms" in record and "model_call_id" not in record
    ]
    assert len(deltas) > 20
    assert sum(len(re.findall(r"\S+", delta)) > 4 for delta in deltas) <= 1  # the repetition before a query


@every_recording
def test_every_recording_is_paced_like_a_run(name: str) -> None:
    times = [record["timestamp_ms"] for record in _records(name) if "timestamp_ms" in record]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert min(pauses) >= 0
    assert max(pauses) < 10_000
    assert 3000 < sum(pauses) < 60_000


@every_recording
def test_every_reference_quotes_the_file_that_was_read(name: str) -> None:
    documents = read_response([ALL[name]], RUN).documents
    for reference in documents:
        if isinstance(reference, CodeReferenceDocument):
            lines = _file(reference.metadata.file_path, name).split("\n")
            quoted = lines[reference.metadata.start_line - 1 : reference.metadata.end_line]
            assert "\n".join(quoted) == reference.content


def test_hello_says_what_this_is_and_what_to_do() -> None:
    (document,) = read_response([ALL["hello"]], RUN).documents
    assert isinstance(document, TextDocument)
    for words in ("built-in demo", "no agent runs", "install", "cursor-agent login"):
        assert words in document.content
    for name in ALL.keys() - {"hello", "this_repo", *demo.FOLLOW_UPS}:
        assert f"*{_prompt(name)}*" in document.content


def test_explain_thinks_quotes_and_shows_code_that_compiles() -> None:
    documents = read_response([ALL["explain"]], RUN).documents
    assert {type(document) for document in documents} == {
        ThinkingDocument, TextDocument, ToolCallDocument, CodeReferenceDocument, CodeBlockDocument,
    }  # fmt: skip
    (example,) = (document for document in documents if isinstance(document, CodeBlockDocument))
    compile(example.content, "example.py", "exec")


def test_failing_tests_are_mended_by_the_edit() -> None:
    documents = read_response([ALL["failing_tests"]], RUN).documents
    commands = [document.metadata for document in documents if isinstance(document, TerminalCommandDocument)]
    assert [command.exit_code for command in commands] == [1, 0]
    assert len({command.command for command in commands}) == 1
    (edit,) = (document for document in documents if isinstance(document, FileEditDocument))
    diff = edit.metadata.diff
    assert diff
    lines = _file("measures.py", "failing_tests").split("\n")
    values: dict[str, Any] = {}
    exec("\n".join(lines), values)
    assert values["median"]([4, 1, 3, 2]) == 3
    assert "\n".join(lines[diff.start_line - 1 : diff.end_line]) == diff.old_string
    lines[diff.start_line - 1 : diff.end_line] = diff.new_string.split("\n")
    exec("\n".join(lines), values)
    assert (values["median"]([4, 1, 3, 2]), values["median"]([5, 1, 3])) == (2.5, 3)


def test_the_plan_has_todos_that_depend_on_each_other_and_changes_nothing() -> None:
    documents = read_response([ALL["plan"]], RUN).documents
    (plan,) = (document for document in documents if isinstance(document, PlanDocument))
    ids = [todo.id for todo in plan.metadata.todos]
    assert len(ids) == len(set(ids)) > 2
    for number, todo in enumerate(plan.metadata.todos):
        assert set(todo.dependencies) <= set(ids[:number])
    assert any(todo.dependencies for todo in plan.metadata.todos)
    assert plan.content.startswith(f"# {plan.metadata.title}\n")
    assert not any(isinstance(document, FileEditDocument | TerminalCommandDocument) for document in documents)


def test_the_question_offers_options() -> None:
    documents = read_response([ALL["question"]], RUN).documents
    (asked,) = (document for document in documents if isinstance(document, ClarificationDocument))
    assert [question.allow_multiple for question in asked.metadata.questions] == [UNSET, True]
    assert all(len(question.options) > 1 for question in asked.metadata.questions)
    assert isinstance(documents[-1], TextDocument)


def _records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ALL[name].splitlines()]


def _prompt(name: str) -> str:
    text: str = _records(name)[1]["message"]["content"][0]["text"]
    return text


def _file(path: str, name: str = "jwt_authentication") -> str:
    """A file as it was before the run, as the agent read it."""
    for document in read_response([ALL[name]], RUN).documents:
        if isinstance(document, ToolCallDocument) and document.metadata.arguments == {"target_file": path}:
            return str(document.metadata.result.data)
    raise AssertionError(f"the agent did not read {path}")


def _plain(response: ChatResponse) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(response)
    return plain
