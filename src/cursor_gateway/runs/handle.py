"""The interface of a run for everything except its driver: driven here, stored, or driven by another gateway."""

from cursor_gateway.errors import GatewayError
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.model.documents import Envelope
from cursor_gateway.model.run_info import RunInfo
from cursor_gateway.runs.readers import Reader, Readers


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
