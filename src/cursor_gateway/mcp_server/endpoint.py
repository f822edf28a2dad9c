"""`/mcp`: MCP hosts over HTTP (Streamable HTTP), of 2026-07-28 and of earlier versions.

Since 2026-07-28, each request is complete in itself, and closing its stream cancels it. Before, a host has a session;
its runs continue when a stream breaks, and it reads the rest with GET and `Last-Event-ID`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from secrets import token_hex

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.dialects.base import SSE, Dialect
from cursor_gateway.errors import GatewayError
from cursor_gateway.mcp_server import messages, peers
from cursor_gateway.mcp_server.calls import ConnectedGateway, HostCall, OpenForms, answer_run
from cursor_gateway.mcp_server.elicitation import read_form
from cursor_gateway.mcp_server.methods import McpMethods, ToolCall, progress_token, read_call
from cursor_gateway.mcp_server.peers import SESSION, VERSION, accepts_both, check_headers
from cursor_gateway.mcp_server.service_gateway import McpHost, ServiceGateway
from cursor_gateway.mcp_server.sse_reply import SseReply
from cursor_gateway.mcp_server.tasks import ttl_of
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import parse_body, read_body
from cursor_gateway.server.streaming import Reading
from cursor_gateway.settings import Settings

_WATCH_SECONDS = 1.0
_RETRY_MS = 1000  # after which a host resumes a stream that broke


class McpEndpoint:
    def __init__(self, service: RunService, settings: Settings, documents: Dialect, reading: Reading) -> None:
        """`documents`: the dialect that reads messages and answers."""
        self._service, self._settings, self._documents, self._reading = service, settings, documents, reading
        self._forms, self._ended = OpenForms(), peers.EndedSessions()
        self._calls: dict[tuple[str, str, messages.RequestId], StreamedCall] = {}  # by owner, session and request

    async def message(self, request: HttpRequest) -> ASGIApp:
        """One message of a host."""
        body = await read_body(request, self._settings)
        turn = partial(self._reading.unread.turn, request.state.owner)
        message: messages.Message | None = None
        try:
            message = await parse_body(body, messages.read_message, turn)
            if not accepts_both(request.headers):
                wanted = "Send `Accept: application/json, text/event-stream`."
                raise messages.RpcError(messages.INVALID_REQUEST, wanted, status=406)
            match message:
                case messages.Request():
                    return await self._answer(message, request)
                case messages.Notification():
                    await self._note(message, request)
                case messages.HostReply():
                    await self._take_form(message, self._session(request))
        except messages.RpcError as error:
            return _refused(error, message.id if isinstance(message, messages.Request) else error.id)
        return Response(status_code=202)

    async def stream(self, request: HttpRequest) -> ASGIApp:
        """What is left of a stream that broke; or one on which nothing comes, as there is nothing to tell."""
        try:
            host = self._session(request)
        except messages.RpcError as error:
            return _refused(error)
        if request.method == "HEAD":
            return Response(media_type=SSE.media_type)
        self._reading.unread.check(host.owner)
        place = peers.read_place(request.headers.get("last-event-id", ""))
        if place is None:
            return SseReply(self._reading, host.owner, self._until_stopping)
        return SseReply(self._reading, host.owner, partial(self._resume, host, place))

    async def end(self, request: HttpRequest) -> ASGIApp:
        """The host has left: what its calls wait for is stopped."""
        try:
            host = self._session(request)
        except messages.RpcError as error:
            return _refused(error)
        self._ended.add(host.owner, host.session)
        for owner, session, id in list(self._calls):
            if (owner, session) == (host.owner, host.session):
                await self._stop(host, id)
        return Response(status_code=204)

    # --- hosts --------------------------------------------------------------------------------------

    def _modern(self, message: messages.Request, request: HttpRequest) -> McpHost:
        """Raises `RpcError`."""
        if peers.is_modern(message.params):  # else what is missing is the better error
            check_headers(message, request.headers)
        peer = peers.requesting_peer(message.params)
        return McpHost(request.state.owner, request.state.request_id, peer, trace=request.scope.get("trace"))

    def _session(self, request: HttpRequest) -> McpHost:
        """Raises `RpcError`."""
        said = request.headers.get(VERSION)
        if said is not None and said not in peers.LEGACY:
            data = {"supported": list(peers.VERSIONS), "requested": said}
            raise messages.RpcError(
                messages.UNSUPPORTED_VERSION, f"The protocol version {said[:100]!r} has no sessions here.", data
            )
        id = request.headers.get(SESSION)
        if id is None:
            wanted = f"Send `initialize` first, then its {SESSION}; or the protocol version {peers.MODERN} in `_meta`."
            raise messages.RpcError(messages.INVALID_REQUEST, wanted)
        peer = None if self._ended.has(request.state.owner, id) else peers.read_session(id)
        if peer is None:
            raise messages.RpcError(
                messages.INVALID_REQUEST, "This session has ended; send `initialize` again.", status=404
            )
        return McpHost(request.state.owner, request.state.request_id, peer, id, request.scope.get("trace"))

    def _gateway(self, host: McpHost, id: messages.RequestId) -> ServiceGateway:
        """For one request."""
        return ServiceGateway(self._service, self._documents, host, id)

    def _methods(self, gateway: ServiceGateway | None = None) -> McpMethods:
        @asynccontextmanager
        async def connect() -> AsyncIterator[ConnectedGateway]:
            assert gateway is not None
            yield _connected(gateway)

        return McpMethods(connect, (), ttl_of(self._settings.history_days))

    # --- requests -----------------------------------------------------------------------------------

    async def _answer(self, message: messages.Request, request: HttpRequest) -> ASGIApp:
        """Raises `RpcError`."""
        said = request.headers.get(VERSION)
        if peers.is_modern(message.params) or (said is not None and said not in peers.LEGACY):
            host = self._modern(message, request)
        elif message.method == "initialize":
            peer = peers.initialized_peer(message.params)
            answer = messages.encode_result(message.id, self._methods().initialized(peer))
            return Response(
                answer, headers={SESSION: peers.new_session(peer, token_hex(16))}, media_type="application/json"
            )
        else:
            host = self._session(request)
        if message.method == "subscriptions/listen" and host.peer.is_modern:
            self._reading.unread.check(host.owner)
            return SseReply(self._reading, host.owner, partial(self._listen, host, message))
        call = read_call(message) if message.method == "tools/call" else ""
        if isinstance(call, ToolCall) and call.lasts(host.peer):
            self._reading.unread.check(host.owner)
            return SseReply(self._reading, host.owner, partial(self._perform, host, message))
        gateway = self._gateway(host, message.id)
        result = await self._methods(gateway).result(message, HostCall(host.peer, None, _unheard, self._forms))
        noting = BackgroundTask(gateway.delivered)
        return Response(messages.encode_result(message.id, result), media_type="application/json", background=noting)

    async def _perform(self, host: McpHost, message: messages.Request, reply: SseReply) -> bytes:
        gateway = self._gateway(host, message.id)
        place = peers.Place(message.id, "", 0, progress_token(message))
        with self._active(host, message.id, StreamedCall(host.peer, place, reply, self._forms)) as streamed:
            try:
                result = await self._methods(gateway).result(message, streamed)
            except messages.RpcError as error:
                return messages.encode_error(message.id, error)
        reply.delivered = gateway.delivered
        return messages.encode_result(message.id, result)

    async def _resume(self, host: McpHost, place: peers.Place, reply: SseReply) -> bytes:
        gateway = self._gateway(host, place.request_id)
        with self._active(host, place.request_id, StreamedCall(host.peer, place, reply, self._forms)) as streamed:
            result = await self._methods(gateway).resumed(place.run_id, place.after, streamed)
        return messages.encode_result(place.request_id, result)

    async def _listen(self, host: McpHost, message: messages.Request, reply: SseReply) -> bytes:
        methods = self._methods(self._gateway(host, message.id))
        listening = asyncio.ensure_future(methods.listen(message, host.peer, reply.event))
        stopping = asyncio.ensure_future(self._until_stopping(reply))
        try:
            await asyncio.wait((listening, stopping), return_when=asyncio.FIRST_COMPLETED)
            return messages.encode_result(
                message.id, listening.result() if listening.done() else methods.listened(message)
            )
        except messages.RpcError as error:
            return messages.encode_error(message.id, error)
        finally:
            listening.cancel()
            stopping.cancel()
            await asyncio.wait((listening, stopping))

    async def _until_stopping(self, reply: SseReply) -> bytes:
        """Ends a stream on which nothing comes: this process waits for the end of all replies before it stops."""
        while not self._service.not_ready():
            await asyncio.sleep(_WATCH_SECONDS)
        return b""

    # --- calls that last ----------------------------------------------------------------------------

    @contextmanager
    def _active(self, host: McpHost, id: messages.RequestId, call: "StreamedCall") -> Iterator["StreamedCall"]:
        key = host.owner, host.session, id
        if host.session:  # only then can another request name it
            self._calls[key] = call
        try:
            yield call
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]

    async def _note(self, message: messages.Notification, request: HttpRequest) -> None:
        """Raises `RpcError`."""
        if peers.is_modern(message.params) or request.headers.get(VERSION) == peers.MODERN:
            return  # closing the stream cancels a request
        host = self._session(request)
        match message:
            case messages.Notification("notifications/cancelled", {"requestId": int() | str() as id}):
                await self._stop(host, id)
            case _:
                pass

    async def _stop(self, host: McpHost, id: messages.RequestId) -> None:
        """What performs this request, here or at another process."""
        call = self._calls.get((host.owner, host.session, id))
        run_id = "" if call is None else call.run_id
        if call is not None:
            call.end()  # first: a request that was cancelled gets no reply
        with suppress(GatewayError):
            if call is None and (key := host.key(id)) is not None:
                found = await self._service.store.find_run_by_idempotency(host.owner, key)
                run_id = "" if found is None else found.run_id
            if run_id:
                await self._service.cancel(run_id, host.owner)

    async def _take_form(self, message: messages.HostReply, host: McpHost) -> None:
        """The reply to a request of ours. The run gets it from here: the stream of its call may be elsewhere, or break.
        Without a decision, the call returns; where there is none, it counts as a refusal."""
        run_id, _, document_id = str(message.id).partition("/")
        form, is_shown = read_form(message.result), self._forms.is_open(message.id)
        with suppress(GatewayError):
            await self._service.find(run_id, host.owner)  # its forms are for nobody else
            gateway = _connected(self._gateway(host, message.id))
            await answer_run(gateway, run_id, {document_id: form}, is_final=not is_shown)
            self._forms.fill(message)


class StreamedCall(HostCall):
    """With ids, after which a stream that breaks can be continued."""

    def __init__(self, peer: peers.Peer, place: peers.Place, reply: SseReply, forms: OpenForms) -> None:
        super().__init__(peer, place.progress_token, self._event, forms)
        self.run_id, self.last_number, self._place, self._reply = place.run_id, place.after, place, reply

    async def begun(self, run_id: str) -> None:
        is_new = run_id != self.run_id
        await super().begun(run_id)
        if is_new and self.peer.takes_priming and not self.peer.is_modern:
            await self._reply.event(b"", self._id(0), retry_ms=_RETRY_MS)

    def end(self) -> None:
        self._reply.cancel()

    async def _event(self, message: bytes, number: int) -> None:
        await self._reply.event(message, self._id(number) if number and not self.peer.is_modern else "")

    def _id(self, number: int) -> str:
        return peers.encode_place(msgspec.structs.replace(self._place, run_id=self.run_id, after=number))


def _connected(gateway: ServiceGateway) -> ConnectedGateway:
    """A run stops with its readers, or not at all: see `ServiceGateway.stream`."""
    return ConnectedGateway(gateway, stops_cancelled=False)


def _refused(error: messages.RpcError, id: messages.RequestId | None = None) -> Response:
    return Response(messages.encode_error(id, error), error.status, media_type="application/json")


async def _unheard(message: bytes, number: int) -> None:
    """A reply without a stream has no room for notifications."""
