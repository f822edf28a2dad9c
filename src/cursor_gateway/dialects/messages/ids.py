"""The ids of messages and server tool calls, made from the run's id, and back."""

from cursor_gateway.dialects.base import AnswerId

_PREFIX = "msg_"
_RUN_PREFIX = "chat_"


def message_id(run_id: str, after: int = 0) -> str:
    """Each reply of a run that pauses has its own id: `after` is the number of the last event before it."""
    reply = f"-{after}" if after else ""
    return f"{_PREFIX}{run_id.removeprefix(_RUN_PREFIX)}{reply}"


def answer_id(id: str) -> AnswerId | None:
    """None: it is no message's."""
    run, separator, after = id.removeprefix(_PREFIX).partition("-")
    if not id.startswith(_PREFIX) or not run or (separator and not (after.isascii() and after.isdecimal())):
        return None
    return AnswerId(_RUN_PREFIX + run, int(after[:18] or "0"))


def server_tool_id(run_id: str, number: int) -> str:
    return f"srvtoolu_{run_id.removeprefix(_RUN_PREFIX)}_{number}"
