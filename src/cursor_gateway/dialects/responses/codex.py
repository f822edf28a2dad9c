"""What Codex says about itself in its headers and its `client_metadata`."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cursor_gateway.wire.payload import Fields

_TURN = "x-codex-turn-metadata"
_PARENT = "x-codex-parent-thread-id"


class Codex(Struct, frozen=True):
    session: str = ""  # of the thread, or of one of its subagents
    turn: str = ""  # the id of what the user has asked for; all attempts have the same
    workspace: str | None = None
    is_compaction: bool = False  # it asks for a summary of the conversation


def is_codex(headers: Mapping[str, str]) -> bool:
    """Its programs have different originators, such as `codex-tui`, `codex_exec` and `codex_vscode`, which users can
    change; each of them describes its turns."""
    return headers.get("originator", "").lower().startswith("codex") or _TURN in headers


def read_codex(headers: Mapping[str, str], metadata: Mapping[str, Any], cache_key: str | None) -> Codex | None:
    """None: it is another client."""
    if not is_codex(headers):
        return None
    turn = Fields({**_object(metadata.get(_TURN)), **_object(headers.get(_TURN))})
    thread = headers.get("session-id") or headers.get("thread-id") or cache_key or ""
    subagent = (turn.text("agent_name"), headers.get(_PARENT) or Fields(metadata).text(_PARENT))
    return Codex(
        session="/".join(filter(None, (thread, *subagent))),
        turn=turn.text("turn_id"),
        workspace=next(iter(turn.object("workspaces").all), None),
        is_compaction=turn.text("request_kind") == "compaction",
    )


def _object(value: Any) -> dict[str, Any]:
    """JSON in a string, or the object itself."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}
    return value if isinstance(value, dict) else {}
