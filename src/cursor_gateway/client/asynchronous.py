"""The client for asyncio. It works like `sync`, except that blocking calls are awaited."""

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from cursor_gateway.client import calls
from cursor_gateway.client.connection import BaseClient, ChatOptions, built, describe, lost, request_of
from cursor_gateway.client.following import BaseStream, Following, PrintableText
from cursor_gateway.client.steps import BatchCall, Call, Close, Head, Link, Open, Pause, Read, Result, Step, next_batch
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.history import ConversationEntry

if TYPE_CHECKING:
    import httpx2

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    call: Callable[Concatenate[Link, P], Call[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    """A method that makes this call."""

    @wraps(call)
    async def method(client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._call(call(client._link, *args, **kwargs))

    describe(method, call)
    return method


class AsyncClient(BaseClient["httpx2.AsyncClient"]):
    """A client of a gateway for asyncio. It works like `Client`, except that blocking calls are awaited."""

    def _open(self, options: dict[str, Any], socket: str | None) -> "httpx2.AsyncClient":
        import httpx2

        limits = options["limits"]
        transport = None if socket is None else httpx2.AsyncHTTPTransport(uds=socket, verify=False, limits=limits)
        return httpx2.AsyncClient(**options, transport=transport)

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

    def events(self, id: str, after: int = 0) -> "AsyncStream":
        """The run's events, from the first, or after the event `after`. Leaving it does not stop the run."""
        return AsyncStream(self._http, Following(self._link, id=id, after=after))

    def conversations(self, query: str | None = None, limit: int | None = None) -> AsyncIterator[ConversationEntry]:
        """Newest first; with `query`, those that contain all its words. Fetched page by page."""
        return self._entries(calls.conversations(self._link, query, limit))

    def links(self) -> AsyncIterator[ConversationEntry]:
        """The conversations that have a read-only link. Fetched page by page."""
        return self._entries(calls.links(self._link))

    async def _entries(self, steps: BatchCall[ConversationEntry]) -> AsyncIterator[ConversationEntry]:
        connection = _Connection(self._http)
        while (page := await connection.run(next_batch(steps))) is not None:
            for entry in page:
                yield entry

    # --- the other calls of a gateway ---------------------------------------------------------------

    response = _awaited(calls.response)
    answer = _awaited(calls.answer)
    cancel = _awaited(calls.cancel)
    conversation = _awaited(calls.conversation)
    delete_conversation = _awaited(calls.delete_conversation)
    create_link = _awaited(calls.create_link)
    revoke_link = _awaited(calls.revoke_link)
    changes = _awaited(calls.changes)
    patch = _awaited(calls.patch)
    trace = _awaited(calls.trace)
    revert = _awaited(calls.revert)
    keep = _awaited(calls.keep)
    commit = _awaited(calls.commit)
    files = _awaited(calls.files)
    permissions = _awaited(calls.permissions)
    revoke_permission = _awaited(calls.revoke_permission)
    new_login = _awaited(calls.new_login)
    devices = _awaited(calls.devices)
    forget_device = _awaited(calls.forget_device)
    models = _awaited(calls.models)
    health = _awaited(calls.health)

    async def _call(self, steps: Call[T]) -> T:
        return await _Connection(self._http).run(steps)


class AsyncStream(BaseStream):
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
        if not self._pending and not await self._connection.run(self._fill()):
            raise StopAsyncIteration
        return self._next()

    async def batches(self) -> AsyncIterator[list[DocumentEvent]]:
        """The events in batches, as they arrive."""
        while await self._connection.run(self._fill()):
            yield self._all()

    @property
    def text(self) -> AsyncIterator[str]:
        """The agent's text and code as it arrives, with an empty line between documents."""
        prose = PrintableText()
        return (text async for event in self if (text := prose.push(event)))

    async def result(self) -> ChatResponse:
        """Waits for the end. Raises `CallFailed`, also for a run that failed."""
        return await self._connection.run(self._finish())

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
