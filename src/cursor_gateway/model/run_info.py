"""What is decided about a run before it starts: handed in, because the core has no clock and no dice."""

from collections.abc import Set
from typing import Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.model.documents import Mode

Fences: TypeAlias = Literal["split", "inline"]
Include: TypeAlias = Literal["thinking", "raw"]
WhenClientLeaves: TypeAlias = Literal["cancel", "finish"]
WhenBusy: TypeAlias = Literal["refuse", "wait"]


class RunInfo(Struct, frozen=True, kw_only=True):
    id: str
    created: str  # ISO 8601, UTC
    mode: Mode = "agent"
    model: str | None = None  # None: the name that the agent reports
    conversation_id: str | None = None  # None: made of the agent's session
    fences: Fences = "split"
    include: Set[Include] = frozenset()
    known_tokens: int = 0  # about how much the agent's session holds beside the prompt; for estimates
