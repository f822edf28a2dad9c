"""The client for asyncio. It works like `sync`, except that blocking calls are awaited."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from cursor_gateway.client import calls
from cursor_gateway.client.calls import AnswerFields, Health, ModelEntry
from cursor_gateway.client.connection import (
    PAUSES,
    SILENCE_SECONDS,
    ChatOptions,
    address,
    built,
    checked,
    http_options,
    limits,
    lost,
    request_of,
)
from cursor_gateway.client.following import Following, Prose, Reading
from cursor_gateway.client.steps import Call, Close, Head, Link, Open, Pause, Read, Result, Step, next_batch
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse, Envelope
from cursor_gateway.model.history import ConversationDetail, ConversationEntry
from cursor_gateway.model.permissions import PermissionList

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class AsyncClient:
    """A client of a gateway for asyncio. It works like `Client`, except that blocking calls are awaited."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = SILENCE_SECONDS,
        pauses: Sequence[float] = PAUSES,
        socket: str | None = None,
    ) -> None:
        """Without `url` and `api_key`: those of the environment (CURSOR_GATEWAY_URL, CURSOR_GATEWAY_API_KEY), or a
        gateway on this machine, on the usual port.

        `timeout`: seconds without data after which a connection counts as lost. `pauses`: seconds before each retry.

        `socket`: the path of a Unix socket to connect to, instead of the host and port of `url`.
        Raises `ValueError` for an invalid URL or key.
        """
        import httpx2

        url, api_key = address(url, api_key)
        self._link = Link(checked(url), tuple(pauses))
        transport = None if socket is None else httpx2.AsyncHTTPTransport(uds=socket, verify=False, limits=limits())
        self._http = httpx2.AsyncClient(**http_options(self._link.url, api_key, timeout), transport=transport)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # --- asking -------------------------------------------------------------------------------------

    async def chat(self, message: str, **options: Unpack[ChatOptions]) -> ChatResponse:
        """Waits for the whole answer. Raises `CallFailed`, also for a run that failed."""
        async with self.stream(message, **options) as stream:
            return await stream.result()

    def stream(self, message: str, **options: Unpack[ChatOptions]) -> "AsyncStream":
        """Streams the answer; use it in an `async with`. Leaving it before the end stops the run."""
        return AsyncStream(self._http, Following(self._link, start=request_of(message, options)))

    async def start(self, message: str, **options: Unpack[ChatOptions]) -> str:
        """Starts a run that nobody has to wait for, and returns its id. Read it with `events` or `response`."""
        return (await self._call(calls.start(self._link, request_of(message, options)))).id

    # --- an earlier run, or one that continues ------------------------------------------------------------

    async def response(self, id: str) -> ChatResponse:
        """The whole answer, or a snapshot with the status `streaming`."""
        return await self._call(calls.response(self._link, id))

    def events(self, id: str, after: int = 0) -> "AsyncStream":
        """The run's events, from the first, or after the event `after`. Leaving it does not stop the run."""
        return AsyncStream(self._http, Following(self._link, id=id, after=after))

    async def answer(self, id: str, **fields: Unpack[AnswerFields]) -> str:
        """Answers a run: send one of `tool_results`, `answers`, `plan` (and perhaps `text`) and `permissions`.

        Returns the id of the run that continues: the same one, or the next in the conversation.
        """
        return await self._call(calls.answer(self._link, id, fields))

    async def cancel(self, id: str) -> Envelope:
        """Stops the run, and returns how it ended."""
        return await self._call(calls.cancel(self._link, id))

    # --- the history --------------------------------------------------------------------------------

    async def conversations(
        self, query: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ConversationEntry]:
        """Newest first; with `query`, those that contain all its words. Fetched page by page."""
        steps, connection = calls.conversations(self._link, query, limit), _Connection(self._http)
        while (page := await connection.run(next_batch(steps))) is not None:
            for entry in page:
                yield entry

    async def conversation(self, id: str) -> ConversationDetail:
        return await self._call(calls.conversation(self._link, id))

    async def delete_conversation(self, id: str) -> None:
        """With all its runs. An active run is stopped."""
        return await self._call(calls.delete_conversation(self._link, id))

    # --- permissions --------------------------------------------------------------------------------

    async def permissions(self) -> PermissionList:
        """The caller's decisions and the operator's rules."""
        return await self._call(calls.permissions(self._link))

    async def revoke_permission(self, id: str) -> None:
        """Applies from the next run on."""
        return await self._call(calls.revoke_permission(self._link, id))

    # --- the gateway --------------------------------------------------------------------------------

    async def models(self) -> list[ModelEntry]:
        return await self._call(calls.models(self._link))

    async def health(self) -> Health:
        return await self._call(calls.health(self._link))

    async def _call(self, steps: Call[T]) -> T:
        return await _Connection(self._http).run(steps)


class AsyncStream(Reading):
    """A run's events, each once and in order, however often the connection breaks."""

    def __init__(self, http: "httpx2.AsyncClient", following: Following) -> None:
        super().__init__(following)
        self._http, self._connection = http, _Connection(http)

    async def __aenter__(self) -> "AsyncStream":
        """Raises `CallFailed` if the gateway rejects the request."""
        try:
            self._take(await self._connection.run(next_batch(self._steps)))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> "AsyncStream":
        return self

    async def __anext__(self) -> DocumentEvent:
        if not await self._fill():
            raise StopAsyncIteration
        return self._next()

    async def batches(self) -> AsyncIterator[list[DocumentEvent]]:
        """The events in batches, as they arrive."""
        while await self._fill():
            yield self._all()

    @property
    def text(self) -> AsyncIterator[str]:
        """The agent's text and code as it arrives, with an empty line between documents."""
        prose = Prose()
        return (text async for event in self if (text := prose.push(event)))

    async def result(self) -> ChatResponse:
        """Waits for the end. Raises `CallFailed`, also for a run that failed."""
        while await self._fill():
            self._all()
        return self._following.result()

    async def cancel(self) -> None:
        """Stops the run; its last events can still be read."""
        await _Connection(self._http).run(self._following.cancel())

    async def close(self) -> None:
        """Stops the run, if this stream started it and it is not over."""
        self._steps.close()
        try:
            await self._connection.run(self._following.leave())
        finally:
            await self._connection.close()

    async def _fill(self) -> bool:
        """Whether there are more events."""
        while not self._pending:
            batch = await self._connection.run(next_batch(self._steps))
            if batch is None:
                return False
            self._take(batch)
        return True


class _Connection:
    """Performs steps, with one open reply at a time."""

    def __init__(self, http: "httpx2.AsyncClient") -> None:
        self._http = http
        self._reply: httpx2.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    async def run(self, steps: Call[T]) -> T:
        result: Result = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                value: T = end.value
                return value
            result = await self._do(step)

    async def close(self) -> None:
        if self._reply is not None:
            reply, self._reply = self._reply, None
            await reply.aclose()

    async def _do(self, step: Step) -> Result:
        import asyncio  # as httpx2 is: only where it is used

        import httpx2

        try:
            match step:
                case Open(request=request):
                    await self.close()
                    self._reply = reply = await self._http.send(built(self._http, request), stream=True)
                    self._pieces = reply.aiter_bytes()
                    return Head(reply.status_code, dict(reply.headers))
                case Read():
                    assert self._pieces is not None
                    return await anext(self._pieces, b"")
                case Close():
                    await self.close()
                case Pause(seconds=seconds):
                    await asyncio.sleep(seconds)
        except httpx2.HTTPError as error:
            return lost(error)
        return None
