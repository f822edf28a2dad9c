"""A run that another process drives, as a `RunHandle`: read through the hub, stopped by commands.

Answers do not go through this handle: a command sends them to the runner, whose own handle accepts them.
"""

from collections.abc import Awaitable, Callable

from cursor_gateway.cluster.hub import RemoteReaders
from cursor_gateway.errors import GatewayError
from cursor_gateway.model.documents import Envelope
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.recovery import run_info


class RemoteRun(RunHandle):
    source_name = "cluster"

    def __init__(
        self,
        readers: RemoteReaders,
        stop: Callable[[str, str, GatewayError], None],
        cancel: Callable[[str, str], Awaitable[Envelope]],
    ) -> None:
        super().__init__(run_info(readers.log.record), readers.log.record.owner, readers)
        self._stop, self._cancel = stop, cancel

    def stop(self, why: GatewayError) -> None:
        self._stop(self.id, self.owner, why)

    async def cancel(self, why: GatewayError) -> Envelope:
        if self.done is not None:
            return self.done.envelope
        return await self._cancel(self.id, self.owner)
