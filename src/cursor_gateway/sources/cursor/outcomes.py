"""Read how a tool call ended from its result, an object with one of several keys."""

import re
from typing import Any

from cursor_gateway.model.actions import Outcome
from cursor_gateway.model.documents import State
from cursor_gateway.wire.payload import Fields

_BESIDE_THE_OUTCOME = {"isBackground", "sandboxPolicy", "terminalsFolder", "pid", "planUri"}

CODES = {
    "failure": "COMMAND_FAILED",
    "fileBusy": "FILE_BUSY",
    "fileNotFound": "FILE_NOT_FOUND",
    "notFile": "NOT_A_FILE",
    "notFound": "NOT_FOUND",
    "permissionDenied": "PERMISSION_DENIED",
    "readPermissionDenied": "PERMISSION_DENIED",
    "rejected": "REJECTED",
    "spawnError": "SPAWN_FAILED",
    "timeout": "TIMEOUT",
    "writePermissionDenied": "PERMISSION_DENIED",
}

_SENTENCES = {
    "FILE_BUSY": "The file is in use.",
    "FILE_NOT_FOUND": "The file does not exist.",
    "NOT_A_FILE": "The path is not a file.",
    "NOT_FOUND": "Nothing was found under that name.",
    "PERMISSION_DENIED": "Permission was denied.",
    "REJECTED": "The call was rejected.",
    "SPAWN_FAILED": "The command could not be started.",
    "TIMEOUT": "The tool ran out of time.",
}

_MISSING_FILE = re.compile(r"\bfile not found|no such file|does not exist|ENOENT", re.IGNORECASE)
_FAILURE = re.compile(r"(?:error|denied|notFound|failure|rejected|timeout|busy)$", re.IGNORECASE)
_ABORTED: dict[str, State] = {
    "SHELL_ABORT_REASON_USER_ABORT": "interrupted", "1": "interrupted",
    "SHELL_ABORT_REASON_TIMEOUT": "timed_out", "2": "timed_out",
}  # fmt: skip
_STATES: dict[str, State] = {"rejected": "rejected", "timeout": "timed_out"}


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
    code = CODES.get(key, "TOOL_ERROR")
    if code == "TOOL_ERROR" and _MISSING_FILE.search(f"{message} {details}"):
        code = "FILE_NOT_FOUND"
    aborted = _ABORTED.get(value.text("abortReason") or str(value.integer("abortReason")))
    if aborted is not None:
        code = "TIMEOUT" if aborted == "timed_out" else "INTERRUPTED"
        message = message or ("The command ran out of time." if aborted == "timed_out" else "The command was stopped.")
    if code == "COMMAND_FAILED" and not message:
        status = value.integer("exitCode")
        message = "The command failed." if status is None else f"The command exited with status {status}."
    return Outcome(
        state=aborted or _STATES.get(key, "failed"),
        code=code,
        message=message or _SENTENCES.get(code) or f"The tool reported {snake(key).replace('_', ' ')}.",
        details=details,
    )


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
