"""Serve an MCP host on standard input and output."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from cursor_gateway.mcp_server import messages
from cursor_gateway.mcp_server.calls import HostCall, OpenForms
from cursor_gateway.mcp_server.methods import McpMethods, progress_token
from cursor_gateway.mcp_server.peers import Peer, initialized_peer, is_modern, requesting_peer
from cursor_gateway.stdio import TOO_LONG, StdioLines, is_cut, unread_id

_STOP_SECONDS = 10.0  # for stopping the runs, when the host has gone


class StdioMcpServer:
    def __init__(self, lines: StdioLines, methods: McpMethods) -> None:
        self._lines, self._methods, self._forms = lines, methods, OpenForms()
        self._peer: Peer | None = None  # of a host that has said `initialize`
        self._requests: dict[messages.RequestId, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Until the host has gone."""
        while (line := await self._lines.receive()) is not None:
            if line.strip():
                self._take(line)

    async def close(self) -> None:
        """Stops the runs whose callers were waiting."""
        for task in self._requests.values():
            task.cancel()
        if self._requests:
            await asyncio.wait(list(self._requests.values()), timeout=_STOP_SECONDS)
        self._lines.close()

    def _take(self, line: bytes) -> None:
        try:
            if is_cut(line):  # which may be JSON without what is missing
                raise messages.RpcError(messages.INVALID_REQUEST, TOO_LONG)
            message = messages.read_message(line)
        except messages.RpcError as error:
            id = unread_id(line) if error.id is None else error.id
            if id is not None:  # else the host could not tell to what it is the reply
                self._start(id, self._write(messages.encode_error(id, error)))
            return
        match message:
            case messages.Request(id=id):
                self._start(id, self._answer(message))
            case messages.Notification(method="notifications/cancelled", params=params):
                # Once: cancelled again, the request that stops the run would be interrupted.
                if (task := self._requests.get(params.get("requestId", ""))) is not None and not task.cancelling():
                    task.cancel()
            case messages.Notification():
                pass
            case messages.HostReply():
                self._forms.fill(message)

    def _start(self, id: messages.RequestId, work: Coroutine[Any, Any, None]) -> None:
        task = self._requests[id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._requests.pop(id, None))

    async def _answer(self, request: messages.Request) -> None:
        try:
            reply = messages.encode_result(request.id, await self._result(request))
        except messages.RpcError as error:
            reply = messages.encode_error(request.id, error)
        await self._write(reply)

    async def _result(self, request: messages.Request) -> dict[str, Any]:
        if is_modern(request.params):
            peer = requesting_peer(request.params)
        elif request.method == "initialize":
            self._peer = initialized_peer(request.params)
            return self._methods.initialized(self._peer)
        elif self._peer is None:
            raise messages.RpcError(
                messages.INVALID_REQUEST, "Send `initialize` first, or the protocol version in `_meta`."
            )
        else:
            peer = self._peer
        if request.method == "subscriptions/listen" and peer.is_modern:
            return await self._methods.listen(request, peer, self._write)
        host = HostCall(peer, progress_token(request), self._send, self._forms)
        return await self._methods.result(request, host)

    async def _send(self, message: bytes, number: int) -> None:
        await self._write(message)

    async def _write(self, message: bytes) -> None:
        self._lines.send(message + b"\n")
        await self._lines.drained()
