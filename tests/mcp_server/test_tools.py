"""The tools' schemas, and their arguments."""

from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from cursor_gateway.dialects.documents.request import PermissionAnswer
from cursor_gateway.mcp_server.results import structured
from cursor_gateway.mcp_server.tools import (
    TOOLS,
    AnswerArguments,
    AskArguments,
    RunArguments,
    input_schema,
    listed_tools,
    output_schema,
    read_arguments,
)
from tests.mcp_server.responses import command, response


@pytest.mark.parametrize("name", TOOLS)
def test_arguments_are_an_object_with_descriptions(name: str) -> None:
    schema = input_schema(TOOLS[name])
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert all(field["description"] for field in schema["properties"].values())


def test_a_response_fits_the_output_schema() -> None:
    schema = output_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    validator = Draft202012Validator(schema)
    made = structured(response(command("ls"), status="streaming").whole)
    assert {"summary", "nextStep"} < schema["properties"].keys() & made.keys()
    validator.validate(made)
    assert not validator.is_valid({**made, "status": "happy"})
    del made["documents"][0]["metadata"]["command"]
    assert not validator.is_valid(made)


def test_the_output_schema_has_no_prose_but_all_properties() -> None:
    definitions = output_schema()["$defs"]
    assert "StreamEvent" not in definitions
    assert "title" in definitions["PlanMetadata"]["properties"]
    assert "description" not in definitions["PlanMetadata"]


def test_arguments_are_read() -> None:
    assert read_arguments(TOOLS["ask"], {"prompt": "x", "conversationId": "c"}) == AskArguments(
        prompt="x", conversation_id="c"
    )
    assert read_arguments(TOOLS["run"], {"prompt": "x"}) == RunArguments(prompt="x")
    permission = {"documentId": "doc_001", "decision": "once"}
    assert read_arguments(TOOLS["answer"], {"runId": "r", "permissions": [permission]}) == AnswerArguments(
        run_id="r", permissions=[PermissionAnswer(document_id="doc_001", decision="once")]
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("ask", {"prompt": ""}), ("ask", {"prompt": "x", "mode": "agent"}), ("status", {"runId": "r", "waitSeconds": -1})],
)
def test_other_arguments_are_refused(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_arguments(TOOLS[name], arguments)


def test_the_tools_are_listed_in_their_order() -> None:
    listed = listed_tools()
    assert [tool["name"] for tool in listed] == list(TOOLS)
    assert listed[0]["annotations"] == {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": True}
    assert listed[1]["inputSchema"]["required"] == ["prompt"]
