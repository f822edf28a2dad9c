"""Read request bodies and hold replies within the limits of size, time and memory; the order in which requests begin;
the name of the client."""

import asyncio
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.errors import InvalidRequest, RequestTooLarge, RequestTooSlow, TooManyRequests
from cursor_gateway.fair_threads import KeyedLocks
from cursor_gateway.http1.server import EXCHANGE, Exchange
from cursor_gateway.settings import Settings

T = TypeVar("T")
Handler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]  # of one method of a path

_SECONDS_FOR_START = 0.008  # of a turn of the event loop
_LARGE = 256 * 1024  # bytes: larger bodies are parsed in a thread, so that other clients do not wait


async def read_body(request: Request, settings: Settings) -> bytes:
    """Raises `RequestTooLarge`, `RequestTooSlow`, `ClientDisconnect`."""
    max_bytes, seconds = settings.max_body_bytes, settings.body_seconds
    exchange: Exchange | None = request.scope.get(EXCHANGE)
    if exchange is not None and (body := exchange.take_body()) is not None:  # which it nearly always has
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        return body
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise InvalidRequest("`Content-Length` must be a number.")
    if len(length) > 18 or int(length) > max_bytes:
        raise _too_large(max_bytes)
    pieces: list[bytes] = []
    size, is_whole = 0, False
    try:
        async with asyncio.timeout(seconds):
            while not is_whole:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                piece = message.get("body", b"")
                size += len(piece)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                pieces.append(piece)
                is_whole = not message.get("more_body", False)
    except TimeoutError:
        raise RequestTooSlow(f"The body did not arrive within {seconds:g} s; send it again.") from None
    return b"".join(pieces)


def _too_large(max_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(f"The body is larger than {max_bytes} bytes; send less, or raise `max_body_bytes`.")


async def parse_body(
    body: bytes, read: Callable[[bytes], T], turn: Callable[[], AbstractAsyncContextManager[None]]
) -> T:
    """`turn`: of the owner, whose large bodies are parsed one after the other."""
    if len(body) <= _LARGE:
        return read(body)
    async with turn():
        return await asyncio.to_thread(read, body)


async def while_connected(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """Cancelled when the client disconnects. The body of the request has been read. Raises `ClientDisconnect`."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    loop = asyncio.get_running_loop()
    working, watch = loop.create_task(answer), loop.create_task(disconnected())
    try:
        await asyncio.wait((working, watch), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watch.cancel()


def texts_of(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """By their names, which are in lower case; the first of those with the same name."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(headers)}


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    key = headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= 255 and key.isprintable()):
        raise InvalidRequest("`Idempotency-Key` must be 1 to 255 printable characters.", param="Idempotency-Key")
    return key


def json_response(value: Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


# --- beginning --------------------------------------------------------------------------------------


class Starts:
    """Requests that arrive together begin one after the other, each in a turn of the event loop of its own.

    A request takes a few steps, each in a turn of the event loop. If hundreds of requests took theirs together, each of
    these turns would be as long as hundreds of steps, and the events of streams that run already would wait for it. So
    a turn has one first step, one second step, and so on; in between, events are read and sent. Where events alone make
    the turns long, a turn has several, or nobody could begin any more.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._since: float | None = None  # the beginning of the turn that has had its start

    async def turn(self) -> None:
        """Returns at once if this turn of the event loop has had no start; else, after those who came before."""
        loop = asyncio.get_running_loop()
        if self._since is None:
            self._since = self._clock()
            loop.call_soon(self._next)
        else:
            future = loop.create_future()
            self._waiting.append(future)
            await future

    def _next(self) -> None:
        assert self._since is not None
        now = self._clock()
        count = 1 + int((now - self._since) / _SECONDS_FOR_START)
        self._since = None
        while self._waiting and count:
            future = self._waiting.popleft()
            if not future.done():  # else its request was cancelled: the gateway stops
                future.set_result(None)
                count -= 1
                self._since = now
        if self._since is not None:
            asyncio.get_running_loop().call_soon(self._next)


# --- the program that sent a request ----------------------------------------------------------------


# By the beginnings of what programs call themselves, in lower case.
_NAMES = {
    "claude-cli": "Claude Code",
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "OpenCode",
    "kilo": "Kilo Code",
    "qwen": "Qwen Code",
    "gemini": "Gemini CLI",
    "zed": "Zed",
    "continue": "Continue",
    "cline": "Cline",
    "roo": "Roo Code",
    "goose": "Goose",
    "aider": "Aider",
    "litellm": "LiteLLM",
    "openwebui": "Open WebUI",
    "openai": "an OpenAI client",
    "anthropic": "an Anthropic client",
}
_BROWSER = "mozilla"  # a person at the page
OF_PEOPLE = ("", "cursor-gateway")  # the page, and the gateway's own commands
_PRODUCT = re.compile(r"[\w.@+-]{1,40}")


def client_name(headers: Mapping[str, str]) -> str:
    """Empty for a browser, and for who does not say."""
    called = headers.get("originator") or headers.get("user-agent") or ""
    product = _PRODUCT.match(called.strip())
    if product is None or product[0].lower().startswith(_BROWSER):
        return ""
    lower = product[0].lower()
    return next((name for start, name in _NAMES.items() if lower.startswith(start)), product[0])


# --- replies ----------------------------------------------------------------------------------------


R = TypeVar("R")

SMALL = 16 * 1024  # bytes: pieces that are not counted; a connection buffers as much in any case
_MOST_BYTES = 64 * 1024 * 1024
_MOST_STREAMS = 10_000


class _Piece(Struct):
    data: bytes
    replies: int = 0


class UnreadReplies:
    def __init__(self, most_bytes: int = _MOST_BYTES, most_streams: int = _MOST_STREAMS) -> None:
        """For each owner."""
        self._turns = KeyedLocks()
        self._building: dict[tuple[str, Hashable], asyncio.Task[Any]] = {}
        self._most_bytes, self._most_streams = most_bytes, most_streams
        self._pieces: dict[tuple[str, bytes], _Piece] = {}
        self._bytes: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    async def build(self, owner: str, what: Hashable, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """In turn. Whoever asks for the same meanwhile gets the same result."""
        key = owner, what
        task = self._building.get(key)
        if task is None:
            task = self._building[key] = asyncio.create_task(self._build(owner, work))
            task.add_done_callback(lambda _: self._building.pop(key))
        result: R = await asyncio.shield(task)
        return result

    async def _build(self, owner: str, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        async with self._turns.holding(owner):
            return await work()

    def turn(self, owner: str) -> AbstractAsyncContextManager[None]:
        return self._turns.holding(owner)

    def check(self, owner: str) -> None:
        """Raises what `opened` would raise: before a run starts for it, or each retry would start another one."""
        if (streams := self._streams.get(owner, 0)) >= self._most_streams:
            raise TooManyRequests(
                f"This API key has {streams:,} open streams, which is the limit; close some, then retry."
            )
        if self._bytes.get(owner, 0) > self._most_bytes:
            raise self._too_much(owner)

    def opened(self, owner: str) -> None:
        """A stream, until `closed`. Raises `TooManyRequests`."""
        self.check(owner)
        self._streams[owner] = self._streams.get(owner, 0) + 1

    def closed(self, owner: str) -> None:
        _subtract(self._streams, owner, 1)

    @contextmanager
    def holding(self, owner: str, data: bytes) -> Iterator[bytes]:
        """While a piece of a reply is sent; gives the copy to send. Raises `TooManyRequests`."""
        if len(data) <= SMALL:
            yield data
            return
        key = owner, data
        piece = self._pieces.get(key)
        if piece is None:
            if self._bytes[owner] and self._bytes[owner] + len(data) > self._most_bytes:
                raise self._too_much(owner)
            piece = self._pieces[key] = _Piece(data)
            self._bytes[owner] += len(data)
        del data, key
        piece.replies += 1
        try:
            yield piece.data
        finally:
            piece.replies -= 1
            if not piece.replies:
                del self._pieces[owner, piece.data]
                _subtract(self._bytes, owner, len(piece.data))

    def _too_much(self, owner: str) -> TooManyRequests:
        unread = self._bytes[owner] / 1e6
        return TooManyRequests(
            f"{unread:.0f} MB of replies to this API key have not been read by its clients; read or close them, then "
            "retry."
        )


def _subtract(counts: Counter[str], owner: str, number: int) -> None:
    counts[owner] -= number
    if not counts[owner]:
        del counts[owner]
