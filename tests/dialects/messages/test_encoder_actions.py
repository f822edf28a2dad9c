"""What the agent did, as a line of text or as blocks of a server tool."""

from typing import Any

import msgspec
import pytest

from cursor_gateway.dialects.deltas import MARK
from cursor_gateway.dialects.messages.encoder import blocks_of, closing_text, search_of, text_of
from cursor_gateway.model import documents
from tests import anthropic_shapes as shapes


def document(metadata: documents.Metadata, content: str | None = None) -> documents.Document:
    return documents.make_document("doc_001", 1, content, metadata)


def command(**changed: Any) -> documents.Document:
    metadata = documents.TerminalCommandMetadata(
        command="npm test", exit_code=1, output="No.", duration_ms=5, permissions=[]
    )
    return document(msgspec.structs.replace(metadata, **changed))


def edit(content: str | None = None, **fields: Any) -> documents.Document:
    return document(
        documents.FileEditMetadata(**{"file_path": "a.py", "operation": "edit", "language": "python", **fields}),
        content,
    )


def search(data: Any, **fields: Any) -> documents.Document:
    status = fields.pop("status", "success")
    return document(
        documents.ToolCallMetadata(
            tool_name=fields.pop("tool_name", "web_search"),
            tool_call_id="t",
            arguments={"search_term": "node lts"},
            result=documents.ToolCallResult(status=status, data=data),
            duration_ms=1,
            **fields,
        )
    )


QUESTION = documents.ClarificationQuestion(
    id="q",
    text="Which one?",
    options=[documents.ClarificationOption(id="a", label="A"), documents.ClarificationOption(id="b", label="B")],
)
PLAN = document(documents.PlanMetadata(title="Do it", overview="", todos=[]), "1. Do it.")
DIFF = documents.Diff(old_string="a\nb", new_string="c", start_line=3, end_line=4)


def shown(found: Any) -> tuple[Any, Any]:
    """Valid by the documentation, as plain JSON."""
    use, result = (msgspec.json.decode(msgspec.json.encode(block), type=shapes.Block) for block in found)
    assert isinstance(use, shapes.ServerToolUse)
    assert use.id == result.tool_use_id == "srvtoolu_1"
    return use, msgspec.to_builtins(result)["content"]


# --- lines ------------------------------------------------------------------------------------------


def test_a_line_says_what_was_done_and_whose_it_is() -> None:
    assert text_of(command()) == f"{MARK}Ran `npm test` (exit status 1)\n"
    assert text_of(PLAN) == f"{MARK}Planned Do it (0 to-dos)\n\n1. Do it.\n"


def test_there_is_no_line_for_words_and_for_the_callers_own_tools() -> None:
    assert text_of(document(documents.TextMetadata(), "Hello")) is None
    assert text_of(search([], ran_by="caller")) is None


def test_plans_must_be_seen() -> None:
    assert closing_text(PLAN) == "1. Do it."
    assert closing_text(command()) is None


# --- blocks -----------------------------------------------------------------------------------------


def test_a_command_is_bash_code_execution() -> None:
    use, content = shown(blocks_of(command(), "srvtoolu_1"))
    assert (use.name, use.input) == ("bash_code_execution", {"command": "npm test"})
    assert content == {
        "type": "bash_code_execution_result",
        "stdout": "No.",
        "stderr": "",
        "return_code": 1,
        "content": [],
    }


@pytest.mark.parametrize(
    ("state", "code"), [("timed_out", "execution_time_exceeded"), ("rejected", "unavailable"), ("completed", None)]
)
def test_a_command_that_did_not_run_is_an_error(state: documents.State, code: str | None) -> None:
    _, content = shown(blocks_of(command(state=state), "srvtoolu_1"))
    assert content.get("error_code") == code


def test_an_edit_is_a_replacement() -> None:
    use, content = shown(blocks_of(edit(diff=DIFF), "srvtoolu_1"))
    assert use.name == "text_editor_code_execution"
    assert use.input == {"command": "str_replace", "path": "a.py", "old_str": "a\nb", "new_str": "c"}
    assert content == {
        "type": "text_editor_code_execution_str_replace_result",
        "lines": ["-a", "-b", "+c"],
        "old_start": 3,
        "old_lines": 2,
        "new_start": 3,
        "new_lines": 1,
    }


def test_a_new_file_is_created() -> None:
    use, content = shown(blocks_of(edit("x = 1\n", operation="create"), "srvtoolu_1"))
    assert use.input == {"command": "create", "path": "a.py", "file_text": "x = 1\n"}
    assert content == {"type": "text_editor_code_execution_create_result", "is_file_update": False}


def test_an_edit_that_failed_is_an_error_that_says_why() -> None:
    _, content = shown(blocks_of(edit(diff=DIFF, state="failed", reason="No such file."), "srvtoolu_1"))
    assert (content["error_code"], content["error_message"]) == ("unavailable", "No such file.")
    _, content = shown(blocks_of(edit(diff=DIFF, state="completed"), "srvtoolu_1"))
    assert "error_code" not in content


@pytest.mark.parametrize("other", [edit(operation="delete"), edit(), PLAN, search([], tool_name="read_file")])
def test_what_no_server_tool_does_has_no_blocks(other: documents.Document) -> None:
    assert blocks_of(other, "srvtoolu_1") is None


def test_a_web_search_has_its_hits() -> None:
    found = search([{"title": "Node", "url": "https://nodejs.org", "chunk": "LTS"}])
    for use, content in (shown(blocks_of(found, "srvtoolu_1")), shown(search_of(found, "srvtoolu_1"))):
        assert (use.name, use.input) == ("web_search", {"query": "node lts"})
        assert content == [
            {
                "type": "web_search_result",
                "url": "https://nodejs.org",
                "title": "Node",
                "encrypted_content": "",
                "page_age": None,
            }
        ]


@pytest.mark.parametrize("failed", [search({"error": "offline"}, status="error"), search("no list")])
def test_a_web_search_without_hits_is_an_error(failed: documents.Document) -> None:
    _, content = shown(search_of(failed, "srvtoolu_1"))
    assert content == {"type": "web_search_tool_result_error", "error_code": "unavailable"}


def test_a_callers_web_search_is_not_the_agents() -> None:
    assert search_of(search([], ran_by="caller"), "srvtoolu_1") is None
