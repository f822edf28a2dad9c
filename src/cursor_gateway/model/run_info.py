"""The options of a run, decided before it starts; passed in, because pure modules have no clock and no randomness."""

from collections.abc import Sequence, Set
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from cursor_gateway.model.documents import Mode

Fences: TypeAlias = Literal["split", "inline"]
Include: TypeAlias = Literal["thinking", "raw", "context"]
WhenClientLeaves: TypeAlias = Literal["cancel", "finish"]
WhenRunnerLost: TypeAlias = Literal["end", "resume"]
WhenBusy: TypeAlias = Literal["refuse", "wait"]

Label: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]  # of a runner, such as `gpu`
Labels: TypeAlias = Annotated[Sequence[Label], Meta(max_length=20)]

# Of a client that sends the same request again by itself when a reply is lost: the one that it says this is, or
# `unknown` if it does not say. `only`: any other client; the same request again asks for another answer.
Attempt: TypeAlias = Literal["only", "first", "retry", "unknown"]


class RunInfo(Struct, frozen=True, kw_only=True):
    id: str
    created: str  # ISO 8601, UTC
    mode: Mode = "agent"
    model: str | None = None  # None: the name that the agent reports
    conversation_id: str | None = None  # None: made of the agent's session
    fences: Fences = "split"
    include: Set[Include] = frozenset()
    # The address of the page on which refused calls can be allowed: empty if it is not known, None if nobody can.
    page_url: str | None = None
    known_tokens: int = 0  # estimated size of the agent's session without the prompt; for estimates
