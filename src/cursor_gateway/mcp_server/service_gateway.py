"""A gateway within this process, for one request of one caller: the calls of the client, performed by the service."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
from msgspec import Struct

from cursor_gateway.client.calls import chat_request
from cursor_gateway.client.failures import run_failure
from cursor_gateway.dialects.base import ContinueRun, Dialect, StartRun
from cursor_gateway.dialects.documents.request import AnswerRequest
from cursor_gateway.mcp_server.calls import RunStream
from cursor_gateway.mcp_server.messages import RequestId
from cursor_gateway.mcp_server.peers import Peer
from cursor_gateway.mcp_server.sse_reply import Moved
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse, Envelope
from cursor_gateway.model.requests import AgentRequest, Attempt, TraceContext, WhenClientLeaves
from cursor_gateway.runs.handle import Reader, RunHandle, answered_response_of, no_run, response_of
from cursor_gateway.runs.run_service import Asker, Continued, RunRequest, RunService
from cursor_gateway.server.bodies import client_name

if TYPE_CHECKING:
    from cursor_gateway.client.calls import AnswerFields
    from cursor_gateway.client.connection import ChatOptions

_FIELDS = AgentRequest.__struct_fields__


class McpHost(Struct, frozen=True):
    """Who sent a request."""

    owner: str
    request_id: str
    peer: Peer
    session: str = ""  # before 2026-07-28
    trace: TraceContext | None = None

    @property
    def is_resumable(self) -> bool:
        """Its connection may break: it comes back for the rest."""
        return bool(self.session)

    def key(self, id: RequestId) -> str | None:
        """The same request again, of the same session, is the same run again."""
        if not self.session:
            return None
        return f"mcp {hashlib.sha256(msgspec.json.encode([self.session, id])).hexdigest()}"


class ServiceGateway:
    """See `calls.AgentGateway`."""

    def __init__(self, service: RunService, documents: Dialect, host: McpHost, request: RequestId) -> None:
        """`documents`: the dialect that reads messages and answers."""
        self._service, self._host, self._request = service, host, request
        self._read = {route.name: route.read for route in documents.routes}
        self._key = ""  # of the request that has started a run, if it may be repeated

    async def delivered(self) -> None:
        """The caller was sent the whole reply."""
        if self._key:
            self._service.delivered(self._host.owner, self._key)

    def stream(self, message: str, **options: Unpack["ChatOptions"]) -> "ServiceStream":
        when: WhenClientLeaves = "finish" if self._host.is_resumable else "cancel"

        async def open() -> Continued:
            return await self._take(message, {**options, "when_client_leaves": when})

        return ServiceStream(open, self._host)

    def events(self, id: str, after: int = 0) -> "ServiceStream":
        async def open() -> Continued:
            return Continued(await self._service.find(id, self._host.owner), after)

        return ServiceStream(open, self._host)

    async def start(self, message: str, **options: Unpack["ChatOptions"]) -> str:
        """It may wait in the queue."""
        return (await self._take(message, {**options, "when_client_leaves": "finish"}, queues=True)).run.id

    async def response(self, id: str, /) -> ChatResponse:
        run = await self._service.find(id, self._host.owner)
        return await answered_response_of(self._service.store, run)

    async def answer(self, id: str, /, **fields: Unpack["AnswerFields"]) -> str:
        given: dict[str, Any] = {name: value for name, value in fields.items() if value}
        asked = self._read["go_on"](msgspec.json.encode(AnswerRequest(**given)), {})
        assert isinstance(asked, ContinueRun)
        asker = Asker(
            owner=self._host.owner,
            request_id=self._host.request_id,
            when_client_leaves="finish" if self._host.is_resumable else None,
            trace=self._host.trace,
        )
        continued = await self._service.answer(id, asker, asked.given)
        await continued.run.entered()
        return continued.run.id

    async def cancel(self, id: str, /) -> Envelope:
        return await self._service.cancel(id, self._host.owner)

    async def _take(self, message: str, options: Mapping[str, Any], *, queues: bool = False) -> Continued:
        body = chat_request(message, "mcp", (), options).body  # type: ignore[arg-type]  # a TypedDict with one more
        asked = self._read["chat"](body, {})
        assert isinstance(asked, StartRun)
        fields = {name: getattr(asked, name) for name in _FIELDS}
        # Without a session, only its content tells that a request is sent again because its reply was lost.
        attempt: Attempt = "only" if self._host.session else "unknown"
        request = RunRequest(
            **{**fields, "attempt": attempt},
            owner=self._host.owner,
            request_id=self._host.request_id,
            client=client_name({"user-agent": self._host.peer.name}),
            idempotency_key=self._host.key(self._request),
            queues=queues,
            body=body,
            trace=self._host.trace,
        )
        continued = await self._service.take(request)
        await continued.run.entered()
        if request.may_be_asked_again:
            self._key = continued.key
        return continued


class ServiceStream:
    """See `calls.RunStream`."""

    def __init__(self, open: Callable[[], Awaitable[Continued]], host: McpHost) -> None:
        self._open, self._host = open, host
        self.last_event = 0

    async def __aenter__(self) -> RunStream:
        continued = await self._open()
        self._run: RunHandle = continued.run
        self._reader: Reader = continued.run.reader(continued.after)
        self._reader.may_move = self._host.is_resumable
        self._reader.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reader.__exit__()

    @property
    def id(self) -> str:
        return self._run.id

    async def __aiter__(self) -> AsyncIterator[DocumentEvent]:
        """Raises `NotFound` if the run is deleted meanwhile, and `Moved`."""
        async for events in self._reader:
            for number, event in enumerate(events, self._reader.place - len(events) + 1):
                self.last_event = number
                yield event
        if self._reader.has_moved:
            raise Moved
        if self._reader.is_lost:
            raise no_run(self.id)

    async def result(self) -> ChatResponse:
        async for _ in self:
            pass
        response = await response_of(self._run)
        done = self._run.done
        if done is not None and done.failure is not None:
            raise run_failure(done.failure, response, self._host.request_id)
        return response

    def let_finish(self) -> None:
        """A run that waits is not stopped when its readers leave."""
