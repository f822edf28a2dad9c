"""Turn rows of an engine into records. Columns are named like the fields; flags may be numbers."""

from typing import Any

import msgspec
from msgspec import UNSET

from cursor_gateway.model.documents import Usage
from cursor_gateway.store.base import ConversationRecord, RunRecord


def run_of(row: dict[str, Any]) -> RunRecord:
    figures = {name: row.pop(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    cached, estimated = row.pop("cached_tokens"), row.pop("estimated")
    usage = None
    if figures["total_tokens"] is not None:
        usage = Usage(
            **figures,
            cached_tokens=UNSET if cached is None else cached,
            estimated=UNSET if estimated is None else bool(estimated),
        )
    include = msgspec.json.decode(row.pop("include"))
    return msgspec.convert({**row, "include": include, "usage": usage}, RunRecord)


def conversation_of(row: dict[str, Any]) -> ConversationRecord:
    flags = {
        "is_running": bool(row["is_running"]),
        "is_pinned": bool(row["pinned"]),
        "needs_decision": bool(row["needs_decision"]),
    }
    return msgspec.convert({**row, **flags}, ConversationRecord)
