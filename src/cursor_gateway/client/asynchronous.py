"""The client for event loops: as `sync`, where each wait is an `await`."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from cursor_gateway.client import calls
from cursor_gateway.client.calls import AnswerFields, Health, ModelEntry
from cursor_gateway.client.connection import (
    LOCAL,
    PAUSES,
    SILENCE_SECONDS,
    ChatOptions,
    built,
    checked,
    http_options,
    limits,
    lost,
    request_of,
)
from cursor_gateway.client.following import Following, Prose, Reading
from cursor_gateway.client.steps import Close, Head, Heard, Link, Open, Pause, Read, Step, Telling, Told, TurnBuilder
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse, Envelope
from cursor_gateway.model.history import ConversationDetail, ConversationEntry
from cursor_gateway.model.permissions import PermissionList

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class AsyncClient:
    """A gateway, for asyncio: as `Client`, where each wait is an `await`."""

    def __init__(
        self,
        url: str = LOCAL,
        api_key: str | None = None,
        *,
        timeout: float = SILENCE_SECONDS,
        pauses: Sequence[float] = PAUSES,
        socket: str | None = None,
    ) -> None:
        """`timeout`: seconds of silence after which a connection counts as lost. `pauses`: seconds before each new try.

        `socket`: the path of a Unix socket to connect to, instead of the host and port of `url`.
        Raises `ValueError` for an address or a key that can be none.
        """
        import httpx2

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
        """The answer as it comes; to be used in an `async with`. Whoever leaves it before the end stops the run."""
        return AsyncStream(self._http, Following(self._link, start=request_of(message, options)))

    # --- a run that goes on, or that was ------------------------------------------------------------

    async def response(self, id: str) -> ChatResponse:
        """The whole answer, or what there is of it now: its status is `streaming` then."""
        return await self._asked(calls.response(self._link, id))

    def events(self, id: str, after: int = 0) -> "AsyncStream":
        """The run's events, from the first on or after the one with that number. Leaving it does not stop the run."""
        return AsyncStream(self._http, Following(self._link, id=id, after=after))

    async def answer(self, id: str, **told: Unpack[AnswerFields]) -> str:
        """What the run waits for, or its agent has asked: `tool_results`, `answers`, `plan` or `permissions`.

        Returns the id of the run that goes on with it: the same, whose stream goes on, or the conversation's next.
        """
        return await self._asked(calls.answer(self._link, id, told))

    async def cancel(self, id: str) -> Envelope:
        """How the run ended: now, or before."""
        return await self._asked(calls.cancel(self._link, id))

    # --- the history --------------------------------------------------------------------------------

    async def conversations(
        self, query: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ConversationEntry]:
        """The newest first; those where all words of `query` were said. Fetched page by page, as they are read."""
        steps, line = calls.conversations(self._link, query, limit), _Line(self._http)
        while (page := await line.told(steps)) is not None:
            for entry in page:
                yield entry

    async def conversation(self, id: str) -> ConversationDetail:
        return await self._asked(calls.conversation(self._link, id))

    async def delete_conversation(self, id: str) -> None:
        """With all its runs; one that goes on is stopped."""
        return await self._asked(calls.delete_conversation(self._link, id))

    # --- permissions --------------------------------------------------------------------------------

    async def permissions(self) -> PermissionList:
        """What was allowed, and the operator's rules."""
        return await self._asked(calls.permissions(self._link))

    async def revoke_permission(self, id: str) -> None:
        """From the next run on."""
        return await self._asked(calls.revoke_permission(self._link, id))

    # --- the gateway --------------------------------------------------------------------------------

    async def models(self) -> list[ModelEntry]:
        return await self._asked(calls.models(self._link))

    async def health(self) -> Health:
        return await self._asked(calls.health(self._link))

    async def _asked(self, steps: TurnBuilder[T]) -> T:
        return await _Line(self._http).asked(steps)


class AsyncStream(Reading):
    """A run's events, each once and in order, however often the connection breaks."""

    def __init__(self, http: "httpx2.AsyncClient", following: Following) -> None:
        super().__init__(following)
        self._http, self._line = http, _Line(http)

    async def __aenter__(self) -> "AsyncStream":
        """Raises `CallFailed` when the gateway refuses."""
        try:
            self._take(await self._line.told(self._steps))
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
        """The events that came together, for those who draw after each."""
        while await self._fill():
            yield self._all()

    @property
    def text(self) -> AsyncIterator[str]:
        """What the agent says in words and code, as it comes; a blank line is between documents."""
        prose = Prose()
        return (text async for event in self if (text := prose.push(event)))

    async def result(self) -> ChatResponse:
        """Waits for the end. Raises `CallFailed`, also for a run that failed."""
        while await self._fill():
            self._all()
        return self._following.result()

    async def cancel(self) -> None:
        """Stops the run; its last events can still be read."""
        await _Line(self._http).asked(self._following.cancel())

    async def close(self) -> None:
        """Stops the run if it is this stream's, and not over."""
        self._steps.close()
        try:
            await self._line.asked(self._following.leave())
        finally:
            await self._line.close()

    async def _fill(self) -> bool:
        """Whether there is anything more."""
        while not self._pending:
            batch = await self._line.told(self._steps)
            if batch is None:
                return False
            self._take(batch)
        return True


class _Line:
    """One connection at a time, as the steps want it."""

    def __init__(self, http: "httpx2.AsyncClient") -> None:
        self._http = http
        self._reply: httpx2.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    async def asked(self, steps: TurnBuilder[T]) -> T:
        heard: Heard = None
        while True:
            try:
                step = steps.send(heard)
            except StopIteration as end:
                value: T = end.value
                return value
            heard = await self._do(step)

    async def told(self, steps: Telling[T]) -> list[T] | None:
        """None at the end."""
        heard: Heard = None
        while True:
            try:
                step = steps.send(heard)
            except StopIteration:
                return None
            if isinstance(step, Told):
                return step.items
            heard = await self._do(step)

    async def close(self) -> None:
        if self._reply is not None:
            reply, self._reply = self._reply, None
            await reply.aclose()

    async def _do(self, step: Step) -> Heard:
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
