"""JSON-RPC 2.0 over a line transport, with requests in both directions."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from cursor_gateway.sources.acp.messages import Message
from cursor_gateway.sources.acp.transport import LineTransport

METHOD_NOT_FOUND = -32601
_INTERNAL_ERROR = -32603

OnRequest = Callable[[str, Any], Coroutine[Any, Any, Any]]
OnNotification = Callable[[str, Any], None]


class RpcError(Exception):
    """An answer that is an error, in either direction."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Rpc:
    """Messages are handled in the order of their arrival. `close` must be awaited."""

    def __init__(self, transport: LineTransport, on_request: OnRequest, on_notification: OnNotification) -> None:
        self._transport, self._on_request, self._on_notification = transport, on_request, on_notification
        self._ids = count()
        self._open: dict[object, asyncio.Future[Any]] = {}  # our requests
        self._answering: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read(), name="acp reader")

    async def request(self, method: str, params: Any) -> Any:
        """Raises `RpcError`, and `ConnectionError` if the other side is gone."""
        if self._is_over:
            raise ConnectionError
        id, answer = next(self._ids), self._loop.create_future()
        self._open[id] = answer
        try:
            self._send({"id": id, "method": method, "params": params})
            return await answer
        finally:
            self._open.pop(id, None)

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    async def close(self) -> None:
        self._reading.cancel()
        for task in self._answering:
            task.cancel()
        await asyncio.wait([self._reading, *self._answering])
        self._transport.close()

    async def _read(self) -> None:
        try:
            while (message := await self._transport.receive()) is not None:
                match message:
                    case {"method": method, "id": int() | str() as id}:
                        task = self._loop.create_task(self._answer(id, method, message.get("params")))
                        self._answering.add(task)
                        task.add_done_callback(self._answering.discard)
                        await asyncio.sleep(0)  # it begins before the next message is handled
                    case {"method": method}:
                        self._notified(method, message.get("params"))
                    case _:
                        self._answered(message)
        finally:
            self._is_over = True
            for answer in self._open.values():
                if not answer.done():
                    answer.set_exception(ConnectionError())

    async def _answer(self, id: int | str, method: str, params: Any) -> None:
        try:
            self._send({"id": id, "result": await self._on_request(method, params)})
        except RpcError as error:
            self._send({"id": id, "error": {"code": error.code, "message": str(error)}})
        except Exception as error:  # noqa: BLE001 -- the agent waits for an answer
            self._send({"id": id, "error": {"code": _INTERNAL_ERROR, "message": "Internal error"}})
            self._report(method, error)

    def _notified(self, method: str, params: Any) -> None:
        try:
            self._on_notification(method, params)
        except Exception as error:  # noqa: BLE001 -- one message must not end the connection
            self._report(method, error)

    def _answered(self, message: Message) -> None:
        answer = self._open.get(message["id"])
        if answer is None or answer.done():
            return
        match message:
            case {"error": {"code": int(code), "message": str(text), **more}}:
                answer.set_exception(RpcError(code, text, more.get("data")))
            case {"error": error}:
                answer.set_exception(RpcError(_INTERNAL_ERROR, "Internal error", error))
            case _:
                answer.set_result(message["result"])

    def _send(self, message: Message) -> None:
        self._transport.send({"jsonrpc": "2.0", **message})

    def _report(self, method: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"cannot handle {method}", "exception": error})
