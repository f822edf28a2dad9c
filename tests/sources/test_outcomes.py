"""How a tool call ended, as its result says."""

from typing import Any

import pytest

from cursor_gateway.model.agent_events import Outcome
from cursor_gateway.sources.cursor.outcomes import read_outcome, snake, timed

ENDINGS: dict[str, tuple[dict[str, Any], Outcome]] = {
    "a success": ({"pid": 1, "success": {"a": 1}}, Outcome()),
    "a success of its own name": ({"readSuccess": {"a": 1}}, Outcome()),
    "a code without words": (
        {"fileBusy": {"path": "a.py"}},
        Outcome(state="failed", code="FILE_BUSY", message="The file is in use.", details="a.py"),
    ),
    "words": ({"error": "no"}, Outcome(state="failed", code="TOOL_ERROR", message="no")),
    "words that name a missing file": (
        {"error": {"error": "ENOENT: no such file"}},
        Outcome(state="failed", code="FILE_NOT_FOUND", message="ENOENT: no such file"),
    ),
    "a failure that is not known": (
        {"lockDenied": {}},
        Outcome(state="failed", code="TOOL_ERROR", message="The tool reported lock denied."),
    ),
    "an exit status": (
        {"failure": {"exitCode": 3}},
        Outcome(state="failed", code="COMMAND_FAILED", message="The command exited with status 3."),
    ),
    "a signal": (
        {"failure": {"exitCode": 137, "signal": "SIGKILL"}},
        Outcome(state="failed", code="COMMAND_FAILED", message="The command was ended by SIGKILL."),
    ),
    "a status that is none": (
        {"failure": {"exitCode": -1}},
        Outcome(state="failed", code="COMMAND_FAILED", message="The command did not finish."),
    ),
    "no exit status": (
        {"failure": {}},
        Outcome(state="failed", code="COMMAND_FAILED", message="The command failed."),
    ),
    "a timeout by its number": (
        {"failure": {"abortReason": 2}},
        Outcome(state="timed_out", code="TIMEOUT", message="The command ran out of time."),
    ),
    "a user who stops it": (
        {"failure": {"abortReason": "SHELL_ABORT_REASON_USER_ABORT"}},
        Outcome(state="interrupted", code="INTERRUPTED", message="The command was stopped."),
    ),
    "a rejection": (
        {"rejected": {"reason": "No."}},
        Outcome(state="rejected", code="REJECTED", message="No."),
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_the_key_of_a_result_says_how_the_call_ended(name: str) -> None:
    result, expected = ENDINGS[name]
    outcome, value = read_outcome(result)
    assert outcome == expected
    assert value in result.values()


def test_any_other_result_is_a_success_and_kept_whole() -> None:
    assert read_outcome("done") == (Outcome(), "done")
    assert read_outcome({"a": 1, "pid": 2}) == (Outcome(), {"a": 1})
    assert read_outcome({"pid": 2}) == (Outcome(), None)


def test_names_in_snake_case() -> None:
    assert snake("readPermissionDenied") == "read_permission_denied"


def test_a_duration_is_the_tools_own_or_that_of_the_first_whole_clock() -> None:
    assert timed(Outcome(duration_ms=7), (0, 5)) == Outcome(duration_ms=7)
    assert timed(Outcome(), (None, 5), (10, 15.9), (0, 1)) == Outcome(duration_ms=5)
    assert timed(Outcome(), (5, 3)) == Outcome(duration_ms=0)
    assert timed(Outcome(), (None, 5), (5, None)) == Outcome()
