"""Read request bodies within the limits of size and time, and encode JSON replies."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cursor_gateway.errors import InvalidRequest, RequestTooLarge, RequestTooSlow
from cursor_gateway.settings import Settings

T = TypeVar("T")

_LARGE = 256 * 1024  # bytes: larger bodies are parsed in a thread, so that other clients do not wait


async def read_body(request: Request, settings: Settings) -> bytes:
    """Raises `RequestTooLarge`, `RequestTooSlow`, `ClientDisconnect`."""
    max_bytes, seconds = settings.max_body_bytes, settings.body_seconds
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


async def parse_body(body: bytes, read: Callable[[bytes], T], turn: AbstractAsyncContextManager[None]) -> T:
    """`turn`: of the owner, whose large bodies are parsed one after the other."""
    if len(body) <= _LARGE:
        return read(body)
    async with turn:
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


def idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= 255 and key.isprintable()):
        raise InvalidRequest("`Idempotency-Key` must be 1 to 255 printable characters.", param="Idempotency-Key")
    return key


def json_response(value: Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
