"""The ids of messages and server tool calls, made from the run's id, and back."""

_PREFIX = "msg_"
_RUN_PREFIX = "chat_"
_SEPARATOR = "-"


def message_id(run_id: str, after: int = 0) -> str:
    """Each reply of a run that pauses has its own id: `after` is the number of the last event before it."""
    reply = f"{_SEPARATOR}{after}" if after else ""
    return f"{_PREFIX}{run_id.removeprefix(_RUN_PREFIX)}{reply}"


def run_of_message(id: str) -> tuple[str, int] | None:
    """The run of a message's id, and `after`; None if it is no message's id."""
    run, separator, after = id.removeprefix(_PREFIX).partition(_SEPARATOR)
    if not id.startswith(_PREFIX) or not run or (separator and not (after.isascii() and after.isdecimal())):
        return None
    return _RUN_PREFIX + run, int(after[:18] or "0")


def server_tool_id(run_id: str, number: int) -> str:
    return f"srvtoolu_{run_id.removeprefix(_RUN_PREFIX)}_{number}"
