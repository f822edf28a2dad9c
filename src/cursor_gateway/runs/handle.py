"""The interface of a run for everything except its driver: driven here, stored, or driven by another gateway."""

from collections.abc import AsyncGenerator
from typing import Protocol

from cursor_gateway.errors import GatewayError, HistoryDamaged, NotFound
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.model.documents import Envelope
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.runs.readers import Reader, Readers
from cursor_gateway.stages.run_state import RunState

_INCONSISTENT = "This answer is damaged: parts of it are missing. Delete it, or restore the history from a backup."


class Fold(Protocol):
    def push(self, event: DocumentEvent, /) -> None: ...


class RunHandle:
    """Its subclasses define what raises `NotImplementedError`. No abstract class: `isinstance` would take longer."""

    def __init__(self, info: RunInfo, owner: str, readers: Readers) -> None:
        self.info, self.owner, self.readers = info, owner, readers

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def prompt(self) -> str:
        """What the agent was sent; empty where it is not known any more. For estimates."""
        return ""

    @property
    def source(self) -> str | None:
        """The source that was requested; None where it is not known any more."""
        return None

    @property
    def source_name(self) -> str:
        """What answers: a source, the history, or the cluster."""
        raise NotImplementedError

    @property
    def fallback(self) -> str | None:
        """The source that answers in place of one that failed."""
        return None

    # --- reading ------------------------------------------------------------------------------------

    @property
    def done(self) -> Done | None:
        return self.readers.log.done

    @property
    def count(self) -> int:
        """How many events there are to read."""
        return self.readers.log.count

    @property
    def added(self) -> int:
        """How many events have a number. Those after `count` are being stored, and may be visible elsewhere already."""
        return self.count

    @property
    def is_ending(self) -> bool:
        """It is done or stopped; only its agent may still be running."""
        return self.done is not None

    async def entered(self) -> None:
        """Waits until the run is stored, if possible. Its id must not be sent to anyone before that."""
        return  # it is

    def reader(self, after: int = 0) -> Reader:
        return self.readers.reader(after)

    async def events(self, after: int = 0) -> AsyncGenerator[list[DocumentEvent], None]:
        """What there is now, after that event. Raises `NotFound` if the run is deleted meanwhile."""
        reader, until = self.reader(after), self.count
        while reader.place < until:
            yield await reader.next()
            if reader.has_left:
                raise no_run(self.id)

    async def state(self) -> RunState:
        """What its events come to now, as `fold` finds them."""
        state = RunState()
        await self.fold(state)
        return state

    async def fold(self, state: RunState, *others: Fold) -> None:
        """Pushes all events that there are now. Raises `HistoryDamaged` if some are missing."""
        async for events in self.events():
            try:
                state.push_all(events)
                for fold in others:
                    for event in events:
                        fold.push(event)
            except LookupError as error:  # an event of a document that has no beginning
                raise HistoryDamaged(_INCONSISTENT) from error

    async def pause(self, number: int) -> Paused | None:
        """The pause of that number. None: it is no pause."""
        match await self.readers.log.after(number - 1) if number else []:
            case [Paused() as paused, *_]:
                return paused
            case _:
                return None

    # --- stopping -----------------------------------------------------------------------------------

    def stop(self, why: GatewayError) -> None:
        raise NotImplementedError

    async def cancel(self, why: GatewayError) -> Envelope:
        """How it ended: now, or before."""
        raise NotImplementedError


def no_run(id: str) -> NotFound:
    return NotFound(f"Unknown run {id[:100]!r}; see GET /v1/conversations.", param="id")
