"""Read how a tool call ended from its result, an object with one of several keys."""

import re
from typing import Any, NamedTuple

from msgspec.structs import replace

from cursor_gateway.model.agent_events import Outcome
from cursor_gateway.model.documents import State
from cursor_gateway.wire.payload import Fields, clamped

_BESIDE_THE_OUTCOME = {"isBackground", "sandboxPolicy", "terminalsFolder", "pid", "planUri"}


class Ending(NamedTuple):
    code: str
    message: str = ""  # if the agent has none
    state: State = "failed"


_NO_FILE = Ending("FILE_NOT_FOUND", "The file does not exist.")
_DENIED = Ending("PERMISSION_DENIED", "Permission was denied.")
_INTERRUPTED = Ending("INTERRUPTED", "The command was stopped.", "interrupted")
_OUT_OF_TIME = Ending("TIMEOUT", "The command ran out of time.", "timed_out")
_ENDINGS = {
    "failure": Ending("COMMAND_FAILED"),
    "fileBusy": Ending("FILE_BUSY", "The file is in use."),
    "fileNotFound": _NO_FILE,
    "notFile": Ending("NOT_A_FILE", "The path is not a file."),
    "notFound": Ending("NOT_FOUND", "Nothing was found under that name."),
    "permissionDenied": _DENIED,
    "readPermissionDenied": _DENIED,
    "rejected": Ending("REJECTED", "The call was rejected.", "rejected"),
    "spawnError": Ending("SPAWN_FAILED", "The command could not be started."),
    "timeout": Ending("TIMEOUT", "The tool ran out of time.", "timed_out"),
    "writePermissionDenied": _DENIED,
}
CODES = {key: ending.code for key, ending in _ENDINGS.items()}
_ABORTED = {
    "SHELL_ABORT_REASON_USER_ABORT": _INTERRUPTED, "1": _INTERRUPTED,
    "SHELL_ABORT_REASON_TIMEOUT": _OUT_OF_TIME, "2": _OUT_OF_TIME,
}  # fmt: skip

_MISSING_FILE = re.compile(r"\bfile not found|no such file|does not exist|ENOENT", re.IGNORECASE)
_FAILURE = re.compile(r"(?:error|denied|notFound|failure|rejected|timeout|busy)$", re.IGNORECASE)


def read_outcome(result: object) -> tuple[Outcome, Any]:
    """And the value under the key of the outcome. A result of unknown shape counts as a success and is kept whole."""
    if not isinstance(result, dict):
        return Outcome(), result
    fields = {key: value for key, value in result.items() if key not in _BESIDE_THE_OUTCOME}
    for key, value in fields.items():
        if key == "success" or key == "async" or key.endswith("Success"):
            return Outcome(), value
    for key, value in fields.items():
        if key in CODES or _FAILURE.search(key):
            return _failure(key, Fields({"error": value} if isinstance(value, str) else value)), value
    return Outcome(), fields or None


def _failure(key: str, value: Fields) -> Outcome:
    message = value.text("error", "errorMessage", "clientVisibleError", "reason", "message").strip()
    details = value.text("modelVisibleError", "details", "path", "command", "url", "uri")
    ending = _ENDINGS.get(key)
    if ending is None:
        is_missing = _MISSING_FILE.search(f"{message} {details}")
        ending = _NO_FILE if is_missing else Ending("TOOL_ERROR", f"The tool reported {snake(key).replace('_', ' ')}.")
    ending = _ABORTED.get(value.text("abortReason") or str(value.integer("abortReason")), ending)
    if ending.code == "COMMAND_FAILED" and not message:
        message = _how_it_failed(value.integer("exitCode"), value.text("signal"))
    return Outcome(state=ending.state, code=ending.code, message=message or ending.message, details=details)


def _how_it_failed(status: int | None, signal: str) -> str:
    if signal:
        return f"The command was ended by {signal}."
    if status is None:
        return "The command failed."
    return f"The command exited with status {status}." if status >= 0 else "The command did not finish."


def timed(outcome: Outcome, *clocks: tuple[float | None, float | None]) -> Outcome:
    """Prefers the tool's own measurement, then the first clock that has both times, in milliseconds."""
    if outcome.duration_ms is not None:
        return outcome
    for clock in clocks:
        if (took := elapsed(*clock)) is not None:
            return replace(outcome, duration_ms=took)
    return outcome


def elapsed(since_ms: float | None, until_ms: float | None) -> int | None:
    """None if one of the times is unknown."""
    return None if since_ms is None or until_ms is None else max(0, clamped(until_ms) - clamped(since_ms))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
