"""Cursor's backend, played on this machine for the unmodified runtime of the installed wheel.

    with Backend() as backend:
        environment = backend.environment       # for a bridge, or a gateway that starts one
        …
        backend.requests                        # what runs have sent

A prompt says what the model does, in the language of the stand-in: see `tests.agent.program`, and `stream.py` for the
steps that only the backend has. Without a program, the prompt is said back.
"""

import asyncio
import base64
import json
import threading
import time
from collections import Counter
from functools import cache
from types import TracebackType
from typing import Any, Self

from tests.agent.failures import Failure as ProgramError
from tests.backend.http import Exchange, first_frame, serve_connection
from tests.backend.protobuf import Codec
from tests.backend.schemas import Schemas, bundle
from tests.backend.stream import Attempts, Broken, Failed, Stream, failure
from tests.backend.tools import Json

KEY = "key_of_the_tests"
MODELS = ("auto", "composer-2", "gpt-5.5")
_STREAMS = "/agent.v1.AgentService/RunSSE"
_APPENDS = "/aiserver.v1.BidiService/BidiAppend"


@cache
def codec() -> Codec:
    found = bundle()
    assert found is not None, "cursor-sdk is not installed"
    return Codec(Schemas(found.read_text("utf-8")))


class Backend:
    """Its attributes may be changed at any time."""

    def __init__(self) -> None:
        self.keys = {KEY}  # that are valid
        self.models = list(MODELS)
        self.down = False  # connections are refused, as it seems to the runtime
        self.requests: list[Json] = []  # each `AgentRunRequest`
        self.headers: list[dict[str, str]] = []  # of each stream
        self.contexts: list[Json] = []  # what the runtime said about its machine
        self.calls: Counter[str] = Counter()  # by path
        self.url = ""
        self._codec = codec()
        self._streams: dict[str, Stream] = {}
        self._runs: dict[str, Attempts] = {}
        self._open: set[Exchange] = set()  # streams
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"CURSOR_BACKEND_URL": self.url, "CURSOR_WEBSITE_URL": self.url, "CURSOR_API_KEY": KEY}

    def forget(self) -> None:
        """What was sent so far, and what was changed about it."""
        for kept in (self.requests, self.headers, self.contexts, self.calls):
            kept.clear()
        self.keys, self.models, self.down = {KEY}, list(MODELS), False

    def cut(self) -> None:
        """All streams that are open, whatever the runtime is doing for them."""
        for exchange in tuple(self._open):
            self._loop.call_soon_threadsafe(exchange.break_off)

    def attempts(self, run: str) -> int:
        """How often the runtime has tried a run."""
        return self._runs[run].number

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the mock did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(serve_connection(self._handle, reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 24)
        host, port = server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle(self, exchange: Exchange) -> None:
        path = exchange.request.path.partition("?")[0]
        self.calls[path] += 1
        if self.down:
            exchange.break_off()
            return
        match path:
            case "/auth/exchange_user_api_key":
                self._exchange_key(exchange)
            case "/v1/models":
                if self._accepts(exchange):
                    exchange.answer_json(200, {"items": [{"id": id, "displayName": id} for id in self.models]})
            case "/v1/me":
                if self._accepts(exchange):
                    exchange.answer_json(200, {"apiKeyName": "tests", "userEmail": "user@example.com"})
            case _ if path == _APPENDS:
                self._append(exchange)
            case _ if path == _STREAMS:
                await self._stream(exchange)
            case _:  # settings of the team, telemetry: empty answers are enough
                exchange.answer(200, b"", exchange.request.headers.get("content-type", "application/proto"))

    # --- accounts -----------------------------------------------------------------------------------------

    def _accepts(self, exchange: Exchange) -> bool:
        if exchange.request.headers.get("authorization", "").removeprefix("Bearer ") in self.keys:
            return True
        exchange.answer_json(401, {"error": {"code": "unauthorized", "message": "Invalid API key"}})
        return False

    def _exchange_key(self, exchange: Exchange) -> None:
        if self._accepts(exchange):
            claims = base64.urlsafe_b64encode(json.dumps({"exp": int(time.time()) + 3600}).encode()).decode()
            exchange.answer_json(200, {"accessToken": f"e30.{claims.rstrip('=')}.x", "refreshToken": "none"})

    # --- runs ---------------------------------------------------------------------------------------------

    def _of(self, id: str) -> Stream:
        """Its messages may arrive before the stream itself."""
        if id not in self._streams:
            self._streams[id] = Stream(self._codec)
        return self._streams[id]

    def _append(self, exchange: Exchange) -> None:
        request = self._codec.decode("BidiAppendRequest", exchange.request.body)
        data = request.get("data_binary") or bytes.fromhex(request.get("data", ""))
        message = self._codec.decode("AgentClientMessage", data)
        self._of(request["request_id"]["request_id"]).append(request.get("append_seqno", 0), message)
        exchange.answer(200, b"", "application/proto")

    async def _stream(self, exchange: Exchange) -> None:
        id = self._codec.decode("BidiRequestId", first_frame(exchange.request.body))["request_id"]
        stream = self._of(id)
        exchange.begin()
        self._open.add(exchange)
        playing = self._loop.create_task(self._play(exchange, stream))
        leaving = self._loop.create_task(exchange.left())
        try:
            await asyncio.wait([playing, leaving], return_when=asyncio.FIRST_COMPLETED)
            has_left = not playing.done()
        finally:
            playing.cancel()
            leaving.cancel()
            await asyncio.wait([playing, leaving])
            self._open.discard(exchange)
            del self._streams[id]
        if has_left:
            exchange.break_off()
        elif not playing.cancelled() and (error := playing.exception()) is not None:
            raise error

    async def _play(self, exchange: Exchange, stream: Stream) -> None:
        error: dict[str, Any] | None = None
        self.headers.append(dict(exchange.request.headers))
        self.requests.append(await stream.request)
        try:
            await stream.play(exchange, self._runs)
        except Failed as failed:
            error = failed.error
        except (
            AssertionError,
            LookupError,
            TypeError,
            ValueError,
            ProgramError,
        ) as wrong:  # in the program, or the mock
            message = f"The mock failed: {wrong!r}"
            error = failure(self._codec, {"fail": "internal", "title": message, "retryable": False})
        except Broken:
            exchange.break_off()
            return
        finally:
            if stream.context is not None:
                self.contexts.append(stream.context)
        await exchange.end(error)
