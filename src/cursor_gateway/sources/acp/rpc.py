"""JSON-RPC 2.0, one message in a line, with requests in both directions.

Lines of an agent that are no messages are skipped: it may print anything, and that must not end a connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Protocol

import msgspec

from cursor_gateway.sources.cursor.records import REFUSED, read_object
from cursor_gateway.sources.process import AgentProcess, StdinWriter
from cursor_gateway.wire.large_json import LARGE, bounded
from cursor_gateway.wire.lines import LineSplitter
from cursor_gateway.wire.payload import MAX_DEPTH, Fields, too_deep
from cursor_gateway.wire.surrogates import repair_json

Message = dict[str, Any]
Id = int | float | str | None  # null is an id in ACP, and a request with it waits for its answer

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def message_of(line: bytes) -> Message | None:
    message = _read(line)
    match message:
        case {"method": str(), **rest} if isinstance(rest.get("id"), Id):
            return message
        case {"method": _}:
            return None
        case {"id": int() | float() | str()}:  # an answer, even if it has neither a result nor an error
            return message
        case _:
            return None


def line_of(message: Message) -> bytes:
    """Replaces lone surrogates, which a prompt may contain and UTF-8 cannot encode."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(repair_json(message)) + b"\n"


def error_text(message: str, data: object) -> str:
    """`data` is `{message}`, `{details}` or a list of issues (2026.08.11); some libraries send a text alone."""
    if isinstance(data, str):
        data = {"message": data}
    issues = [Fields(issue) for issue in data] if isinstance(data, list) else [Fields(data)]
    texts = [issue.text("message", "details") for issue in issues]
    return ": ".join([message, *(text for text in texts if text)])


def _read(line: bytes) -> Message | None:
    if len(line) >= LARGE:
        line = bounded(line)
    try:
        message = _decode(line)
    except REFUSED:
        return _read_again(line)
    # Newer Pythons decode thousands of levels. Few lines have enough brackets to need a look.
    return None if line.count(b"[") + line.count(b"{") > MAX_DEPTH and too_deep(message) else message


def _read_again(line: bytes) -> Message | None:
    """A lone surrogate in a chunk is kept: the next message may complete it."""
    message = read_object(line)
    if message is None:
        return None
    update = Fields(message.get("params")).object("update").text("sessionUpdate")
    return message if update.endswith("_chunk") else dict(repair_json(message))


# --- Lines -----------------------------------------------------------------------------------------


class Transport(Protocol):
    def send(self, message: Message) -> None: ...

    async def receive(self) -> Message | None:
        """None: the other side is gone."""
        ...

    def close(self) -> None: ...


class LineTransport:
    """To and from an agent with an open standard input. Lines may be long; those that are not messages are skipped."""

    def __init__(self, process: AgentProcess, stdin: StdinWriter, longest: int) -> None:
        self._process, self._stdin, self._longest = process, stdin, longest
        self._lines = LineSplitter()
        self._unended = 0  # bytes of an incomplete line
        self._ready: deque[Message] = deque()
        self.is_too_long = False  # a line exceeded the limit
        self.on_end: Callable[[], None] = lambda: None

    def send(self, message: Message) -> None:
        self._stdin.write(line_of(message))

    async def receive(self) -> Message | None:
        while not self._ready:
            piece = b"" if self.is_too_long else await self._process.read()
            if not piece:
                self.on_end()  # also if the process still runs: the callback ends it
                return None
            lines = self._lines.push(piece)
            self._unended = 0 if lines else self._unended + len(piece)
            self.is_too_long = self._unended > self._longest
            self._ready += filter(None, map(message_of, lines))
        return self._ready.popleft()

    def close(self) -> None:
        self._stdin.close()


# --- Requests --------------------------------------------------------------------------------------

METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602
CANCEL = "$/cancel_request"
_INTERNAL_ERROR, _CANCELLED = -32603, -32800

OnRequest = Callable[[str, Any], Coroutine[Any, Any, Any]]
OnNotification = Callable[[str, Any], None]


class RpcError(Exception):
    """An answer that is an error, in either direction."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Rpc:
    """Messages are handled in the order of their arrival. `close` must be awaited."""

    def __init__(
        self, transport: Transport, on_request: OnRequest, on_notification: OnNotification, *, withdraws: bool = False
    ) -> None:
        """`withdraws`: each side tells the other when it need not answer a request any more."""
        self._transport, self._on_request, self._on_notification = transport, on_request, on_notification
        self._withdraws = withdraws
        self._ids = count()
        self._open: dict[object, asyncio.Future[Any]] = {}  # our requests
        self._answering: dict[asyncio.Task[None], Id] = {}  # the ids of the other side's requests
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
        except asyncio.CancelledError:
            if self._withdraws and not self._is_over:
                self.notify(CANCEL, {"requestId": id})
            raise
        finally:
            self._open.pop(id, None)

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    async def ended(self) -> None:
        """Waits until the other side is gone."""
        await asyncio.wait([self._reading])

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
                    case {"method": method, "id": id}:
                        task = self._loop.create_task(self._answer(id, method, message.get("params")))
                        self._answering[task] = id
                        task.add_done_callback(self._answering.pop)
                        await asyncio.sleep(0)  # it begins before the next message is handled
                    case {"method": method, "params": {"requestId": id}} if method == CANCEL and self._withdraws:
                        for task in [task for task, asked in self._answering.items() if asked == id]:
                            task.cancel()
                    case {"method": method}:
                        self._notified(method, message.get("params"))
                    case _:
                        self._answered(message)
        finally:
            self._is_over = True
            for answer in self._open.values():
                if not answer.done():
                    answer.set_exception(ConnectionError())

    async def _answer(self, id: Id, method: str, params: Any) -> None:
        try:
            self._send({"id": id, "result": await self._on_request(method, params)})
        except asyncio.CancelledError:
            if self._withdraws:
                self._send({"id": id, "error": {"code": _CANCELLED, "message": "Request cancelled"}})
            raise
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
                answer.set_exception(RpcError(code, error_text(text, more.get("data"))))
            case {"error": error} if error is not None or "result" not in message:
                answer.set_exception(RpcError(_INTERNAL_ERROR, error_text("Internal error", error)))
            case {"result": result}:
                answer.set_result(result)
            case _:
                answer.set_exception(RpcError(_INTERNAL_ERROR, "An answer without a result"))

    def _send(self, message: Message) -> None:
        self._transport.send({"jsonrpc": "2.0", **message})

    def _report(self, method: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"cannot handle {method}", "exception": error})
