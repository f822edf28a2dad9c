"""A conversation as rows, to be copied from one engine to another.

Both engines have columns of the same names, listed here in one order. The keys of rows are not copied, except those of
runs: lists and search results are ordered by them, and the copies must have the same order.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

CONVERSATION_COLUMNS = (
    "id",
    "owner",
    "title",
    "workspace",
    "mode",
    "model",
    "created_ms",
    "updated_ms",
    "session_id",
    "fingerprint",
    "pinned",
    "client",
)
RUN_COLUMNS = (
    "id",
    "instance",
    "epoch",
    "state",
    "model",
    "mode",
    "created",
    "fences",
    "include",
    "started_ms",
    "first_event_ms",
    "ended_ms",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_tokens",
    "estimated",
    "failure_code",
    "tool_uses",
    "needs_decision",
)
MESSAGE_COLUMNS = ("number", "role", "text", "run", "created_ms", "images")
REPLY_COLUMNS = ("owner", "key", "body_hash", "created_ms", "after")
REQUEST_COLUMNS = ("after", "data")

Row: TypeAlias = Sequence[Any]
ArchivedBatch: TypeAlias = tuple[
    int, int, bytes
]  # the number of its first event, their count, and `batches.encode`d events


class ArchivedRun(Struct, frozen=True):
    key: int
    row: Row
    text: str  # the text that a search finds it by
    replies: Sequence[Row]
    requests: Sequence[Row]
    batches: Callable[[], Iterator[ArchivedBatch]]  # may be many megabytes


class ArchivedConversation(Struct, frozen=True):
    row: Row
    messages: Sequence[Row]
    runs: Sequence[ArchivedRun]

    @property
    def is_running(self) -> bool:
        state = RUN_COLUMNS.index("state")
        return any(run.row[state] == "running" for run in self.runs)
