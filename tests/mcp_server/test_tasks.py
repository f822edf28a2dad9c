"""A run as a task."""

from datetime import UTC, datetime

import pytest

from cursor_gateway.mcp_server.peers import Peer
from cursor_gateway.mcp_server.tasks import created_task, detailed_task, ttl_of
from cursor_gateway.model.documents import ClarificationMetadata, ErrorMetadata, TextMetadata, make_document
from tests.mcp_server.responses import response, waiting

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
HOST = Peer("2026-07-28", True, True)
TEXT = make_document("doc_001", 1, "Looking.\nMore.", TextMetadata())


def test_a_task_begins_to_work() -> None:
    assert created_task(response(TEXT, status="streaming").whole, 5000, NOW) == {
        "resultType": "task",
        "taskId": "chat_1",
        "status": "working",
        "statusMessage": "Looking.",
        "createdAt": "2026-11-17T10:00:00.000Z",
        "lastUpdatedAt": "2026-11-18T12:00:00.000Z",
        "ttlMs": 5000,
        "pollIntervalMs": 1000,
    }


def test_a_task_has_the_result_of_its_run() -> None:
    task = detailed_task(response(TEXT).whole, HOST, None, NOW)
    assert (task["status"], task["result"]["isError"]) == ("completed", False)
    assert task["lastUpdatedAt"] == "2026-11-17T10:00:00.001Z"
    assert task["ttlMs"] is None


@pytest.mark.parametrize(("code", "status"), [("CANCELLED", "cancelled"), ("AGENT_CRASHED", "completed")])
def test_an_error_of_the_agent_is_a_result_and_a_cancelled_run_a_cancelled_task(code: str, status: str) -> None:
    error = make_document("doc_002", 2, "It failed.", ErrorMetadata(error_code=code, source="agent", details=""))
    task = detailed_task(response(TEXT, error, status="error").whole, HOST, None, NOW)
    assert task["status"] == status
    assert ("result" in task) == (status == "completed")
    if "result" in task:
        assert task["result"]["isError"]
        assert task["result"]["content"][0]["text"] == "It failed."


def test_a_task_shows_forms_to_a_host_that_has_them() -> None:
    asked = waiting(make_document("doc_002", 2, "Which?", ClarificationMetadata(questions=[], state="waiting")))
    task = detailed_task(asked, HOST, None, NOW)
    assert (task["status"], task["statusMessage"]) == ("input_required", "Waiting for an answer")
    assert task["inputRequests"]["doc_002"]["method"] == "elicitation/create"
    assert detailed_task(asked, Peer("2026-07-28", False, True), None, NOW)["status"] == "working"
    assert detailed_task(response(status="streaming").whole, HOST, None, NOW)["status"] == "working"


def test_a_task_lives_as_long_as_the_history() -> None:
    assert ttl_of(0) is None
    assert ttl_of(0.5) == 43_200_000
