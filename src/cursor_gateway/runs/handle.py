"""The interface of a run for everything except its driver: driven here, stored, or driven by another gateway."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from cursor_gateway.errors import GatewayError
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.model.documents import ClarificationAnswer, Envelope
from cursor_gateway.model.messages import Message
from cursor_gateway.model.permissions import Permission
from cursor_gateway.model.run_info import RunInfo, WhenClientLeaves
from cursor_gateway.runs.readers import Reader, Readers


class RunHandle(Protocol):
    info: RunInfo
    owner: str
    readers: Readers

    @property
    def id(self) -> str: ...

    @property
    def prompt(self) -> str:
        """What the agent was sent; empty where it is not known any more. For estimates."""
        ...

    @property
    def session_id(self) -> str | None:
        """The agent's own, as far as it is known here."""
        ...

    @property
    def source(self) -> str | None:
        """The source that its request named."""
        ...

    @property
    def source_name(self) -> str:
        """What answers: a source, or the history."""
        ...

    @property
    def fallback(self) -> str | None:
        """The source that answers in place of one that failed."""
        ...

    # --- reading ------------------------------------------------------------------------------------

    @property
    def done(self) -> Done | None: ...

    @property
    def count(self) -> int:
        """How many events there are to read."""
        ...

    @property
    def added(self) -> int:
        """How many events have a number. Those after `count` are being stored, and may be visible elsewhere already."""
        ...

    @property
    def is_ending(self) -> bool:
        """It is done or stopped; only its agent may still be running."""
        ...

    async def entered(self) -> None:
        """Waits until the run is stored, if possible. Its id must not be sent to anyone before that."""
        ...

    def reader(self, after: int = 0) -> Reader: ...

    async def pause(self, number: int) -> Paused | None:
        """The pause of that number. None: it is no pause."""
        ...

    async def ended(self) -> Done | None:
        """Waits for the end of a run that is about to. None: another gateway drives it."""
        ...

    # --- stopping and answering ---------------------------------------------------------------------

    def stop(self, why: GatewayError) -> None: ...

    async def cancel(self, why: GatewayError) -> Envelope:
        """How it ended: now, or before."""
        ...

    def knows_calls(self, results: Mapping[str, ToolResult]) -> bool | None:
        """Whether it has asked for one of these. None: it takes no results any more."""
        ...

    def answer_calls(
        self, results: Mapping[str, ToolResult], also: Sequence[Message] = (), offer: Offer | None = None
    ) -> int:
        """Continues with results of its calls. Returns the number of the pause that they end, now or when they first
        arrived.
        """
        ...

    def answer_questions(self, answers: Sequence[ClarificationAnswer]) -> int | None:
        """The number of the pause that this ends. None: it waits for no answers.

        Raises `InvalidRequest` for answers that do not fit its questions.
        """
        ...

    def holds_permission(self, question_id: str) -> bool:
        """Whether it waits for a decision about this question."""
        ...

    def answer_permissions(self, decided: Mapping[str, Permission]) -> int:
        """By questions that it holds: the number of the pause that this ends."""
        ...

    def decide_plan(self, is_accepted: bool, text: str) -> int | None:
        """The number of the pause that this ends. None: it waits for no decision."""
        ...

    @property
    def awaited(self) -> str:
        """What to send to a run that waits; empty where it does not."""
        ...

    def set_when_client_leaves(self, when: WhenClientLeaves | None) -> None:
        """As requested by the request that continues it; None changes nothing."""
        ...
