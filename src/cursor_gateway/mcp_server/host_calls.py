"""A host's call while it is performed: progress and forms go out as messages, filled forms come in."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from cursor_gateway.mcp_server.elicitation import METHOD, FilledForm, read_form
from cursor_gateway.mcp_server.messages import HostReply, RequestId, encode_notification, encode_request
from cursor_gateway.mcp_server.peers import Peer

# A message, and the number of the run's event that it is about; 0 if it is about none.
Send: TypeAlias = Callable[[bytes, int], Awaitable[None]]

_PROGRESS_SECONDS = 10.0  # while the agent says nothing: hosts give up on a silent tool
_SMALLEST_STEP = 0.001


class OpenForms:
    """Those that were shown to a host's user, by the ids of their requests."""

    def __init__(self) -> None:
        self._open: dict[RequestId, asyncio.Future[FilledForm]] = {}

    async def show(self, id: str, form: dict[str, Any], send: Send) -> FilledForm:
        filled: asyncio.Future[FilledForm] = asyncio.get_running_loop().create_future()
        self._open[id] = filled
        try:
            await send(encode_request(id, METHOD, form), 0)
            return await filled
        finally:
            if self._open.get(id) is filled:  # else it is shown again, on a stream that was resumed
                del self._open[id]

    def is_open(self, id: RequestId) -> bool:
        """Whether a call waits for it here."""
        return id in self._open

    def fill(self, reply: HostReply) -> None:
        if (filled := self._open.get(reply.id)) is not None and not filled.done():
            filled.set_result(read_form(reply.result))


def form_id(run_id: str, document_id: str) -> str:
    """The id of the request that shows it. It names the document, so another process can take the reply."""
    return f"{run_id}/{document_id}"


class HostCall:
    """Performs nothing by itself: see `calls.HostLink`."""

    def __init__(self, peer: Peer, progress_token: RequestId | None, send: Send, forms: OpenForms) -> None:
        """Without a token, the host wants no progress."""
        self.peer, self.run_id, self.last_number = peer, "", 0
        self._token, self._send, self._forms = progress_token, send, forms
        self._value, self._start = 0.0, time.monotonic()
        self._last = self._start

    async def begun(self, run_id: str) -> None:
        if self.run_id not in ("", run_id):  # the conversation's next run has its own numbers
            self.last_number = 0
        self.run_id = run_id

    async def report(self, line: str, number: int) -> None:
        """With a number that grows: hosts may show it, and a stream that is resumed continues with larger ones."""
        if number and number <= self.last_number:
            return
        self.last_number = number or self.last_number
        if self._token is None:
            return
        self._value, self._last = max(float(number), self._value + _SMALLEST_STEP), time.monotonic()
        value = int(self._value) if self._value.is_integer() else round(self._value, 3)
        progress = {"progressToken": self._token, "progress": value, "message": line}
        await self._send(encode_notification("notifications/progress", progress), number)

    async def ask_user(self, run_id: str, document_id: str, form: dict[str, Any]) -> FilledForm:
        return await self._forms.show(form_id(run_id, document_id), form, self._send)

    async def keep_reporting(self) -> None:
        """While there is nothing else to report."""
        while True:
            silent = time.monotonic() - self._last
            if silent >= _PROGRESS_SECONDS:
                self._last = time.monotonic()
                await self.report(f"Working for {self._last - self._start:.0f} s", 0)
                continue
            await asyncio.sleep(_PROGRESS_SECONDS - silent)
