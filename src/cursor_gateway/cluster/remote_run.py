"""A run that another process drives, as a `RunHandle`: read through the hub, stopped by commands.

Answers do not go through this handle: a command sends them to the runner, whose own handle accepts them.
"""

from collections.abc import Awaitable, Callable

from cursor_gateway.cluster.hub import RemoteReaders
from cursor_gateway.errors import GatewayError
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.model.documents import Envelope
from cursor_gateway.runs.readers import Reader
from cursor_gateway.runs.stored_run import StoredRun
from cursor_gateway.store.base import Store


class RemoteRun(StoredRun):
    def __init__(
        self,
        store: Store,
        readers: RemoteReaders,
        stop: Callable[[str, str, GatewayError], None],
        cancel: Callable[[str, str], Awaitable[Envelope]],
    ) -> None:
        super().__init__(store, readers.log.record)
        self.readers = readers
        self.source_name = "cluster"
        self._remote, self._stop, self._cancel = readers.log, stop, cancel

    @property
    def count(self) -> int:
        return self._remote.count

    @property
    def done(self) -> Done | None:
        return self._remote.done

    @property
    def is_ending(self) -> bool:
        return self.done is not None

    def reader(self, after: int = 0) -> Reader:
        return self.readers.reader(after)

    async def pause(self, number: int) -> Paused | None:
        match await self._remote.after(number - 1) if number else []:
            case [Paused() as paused, *_]:
                return paused
            case _:
                return None

    async def ended(self) -> Done | None:
        return self.done

    def stop(self, why: GatewayError) -> None:
        self._stop(self.id, self.owner, why)

    async def cancel(self, why: GatewayError) -> Envelope:
        if self.done is not None:
            return self.done.envelope
        return await self._cancel(self.id, self.owner)
