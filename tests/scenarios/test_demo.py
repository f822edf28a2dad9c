"""The built-in recording shows everything, says what its result says, and its code is real code."""

import json
import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from cursor_gateway import (
    ChatResponse,
    CodeReferenceDocument,
    FileEditDocument,
    RunInfo,
    ToolCallDocument,
    read_events,
    read_response,
)
from cursor_gateway.core.document_events import source_text
from cursor_gateway.demo import recording

RUN = RunInfo(id="chat_demo", created="2026-10-04T09:00:00Z", include=frozenset({"thinking"}))
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


def test_deltas_are_a_few_words_long() -> None:
    deltas = [
        record["message"]["content"][0]["text"]
        for record in RECORDS
        if record["type"] == "assistant" and "timestamp_ms" in record and "model_call_id" not in record
    ]
    assert len(deltas) > 60
    assert sum(len(re.findall(r"\S+", delta)) > 4 for delta in deltas) <= 1  # the repetition before a query


def _file(path: str) -> str:
    """A file as it was before the run, as the agent read it."""
    for document in read_response([recording()], RUN).documents:
        if isinstance(document, ToolCallDocument) and document.metadata.arguments == {"target_file": path}:
            return str(document.metadata.result.data)
    raise AssertionError(f"the agent did not read {path}")


def _plain(response: ChatResponse) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(response)
    return plain
