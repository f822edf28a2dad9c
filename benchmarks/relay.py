"""A prompt in; the agent's own bytes, as they come, out: the least that a server on this stack can do.

Bare ASGI on uvicorn with uvloop and httptools, `Popen` and `add_reader`, each read of the pipe forwarded as one write.
Nothing is parsed, stored, counted, checked or logged. `python -m benchmarks.relay AGENT` prints its address.
"""

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

_PIECE, _PIPE = 256 * 1024, 1024 * 1024  # as the gateway has them
_F_SETPIPE_SZ = 1031


class Conversion(Protocol):
    """What becomes of the agent's bytes."""

    def push(self, piece: bytes, /) -> bytes: ...

    def end(self) -> bytes: ...


class _Unchanged(Conversion):
    def push(self, piece: bytes, /) -> bytes:
        return piece

    def end(self) -> bytes:
        return b""


def relay(agent: str, conversion: Callable[[], Conversion] = _Unchanged) -> ASGIApp:
    """`conversion` is made for each request (`benchmarks.parts`)."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        prompt, converted = _prompt(await _body(receive)), conversion()
        process = subprocess.Popen(
            [agent, prompt], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        gone = asyncio.ensure_future(_kill_when_gone(process, receive))
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        assert process.stdout is not None
        with process.stdout:
            async for piece in _pieces(process.stdout.fileno()):
                if body := converted.push(piece):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        gone.cancel()
        process.wait()
        await send({"type": "http.response.body", "body": converted.end()})

    return app


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _prompt(body: bytes) -> str:
    """Of a chat completion, or the body itself."""
    return json.loads(body)["messages"][-1]["content"] if body.startswith(b"{") else body.decode()


async def _kill_when_gone(process: "subprocess.Popen[bytes]", receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    process.kill()


async def _pieces(pipe: int) -> AsyncIterator[bytes]:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    with suppress(OSError):
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE)
    os.set_blocking(pipe, False)
    loop.add_reader(pipe, ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            try:
                piece = os.read(pipe, _PIECE)
            except BlockingIOError:
                continue
            if not piece:
                return
            yield piece
    finally:
        loop.remove_reader(pipe)


def serve(app: ASGIApp) -> None:
    bound = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)  # noqa: T201 -- whoever started it reads it
    config = uvicorn.Config(app, loop="uvloop", http="httptools", lifespan="off", log_level="warning")
    uvicorn.Server(config).run([bound])


if __name__ == "__main__":
    serve(relay(sys.argv[1]))
