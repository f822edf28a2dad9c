"""Perform a tool call: call the gateway, and return the response.

A run that was started here and is no longer wanted (the host cancelled its request, or ended) is stopped.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack

from msgspec import Struct

from cursor_gateway.client.failures import CallFailed
from cursor_gateway.mcp_server import tools
from cursor_gateway.mcp_server.elicitation import METHOD, FilledForm, answer_to, forms, has_questions, read_form
from cursor_gateway.mcp_server.messages import HostReply, RequestId, encode_notification, encode_request
from cursor_gateway.mcp_server.peers import Peer
from cursor_gateway.mcp_server.results import progress_line
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.model.documents import ChatResponse, Envelope
from cursor_gateway.model.requests import INTERACTIVE

if TYPE_CHECKING:
    from cursor_gateway.client.calls import AnswerFields
    from cursor_gateway.client.connection import ChatOptions

_LOOKS, _LOOK_SECONDS = 200, 0.05  # for an agent that takes its time with an answer
_FORM_SECONDS = 1.0  # between two looks at whether a form is still needed


class RunStream(Protocol):
    """The events of a run."""

    last_event: int  # the number of the last one that was read

    @property
    def id(self) -> str: ...

    def __aiter__(self) -> AsyncIterator[DocumentEvent]: ...

    async def result(self) -> ChatResponse:
        """Waits for the end. Raises `CallFailed` for a run that failed."""
        ...

    def let_finish(self) -> None:
        """The run continues when the stream is closed."""
        ...


class AgentGateway(Protocol):
    """A gateway, elsewhere (`AsyncClient`) or in this process (`ServiceGateway`), for one caller. Its methods raise
    `CallFailed` or `GatewayError`."""

    def stream(self, message: str, **options: Unpack["ChatOptions"]) -> AbstractAsyncContextManager[RunStream]:
        """Starts a run. Leaving it before the end stops the run."""
        ...

    def events(self, id: str, after: int = 0) -> AbstractAsyncContextManager[RunStream]: ...

    async def start(self, message: str, **options: Unpack["ChatOptions"]) -> str:
        """Starts a run that outlives its caller, and returns its id when the run is stored."""
        ...

    def response(self, id: str, /) -> Coroutine[Any, Any, ChatResponse]: ...

    def answer(self, id: str, /, **fields: Unpack["AnswerFields"]) -> Coroutine[Any, Any, str]:
        """Returns the id of the run that continues."""
        ...

    def cancel(self, id: str, /) -> Coroutine[Any, Any, Envelope]: ...


class ConnectedGateway(Struct, frozen=True):
    client: AgentGateway
    folder: str | None = None  # to work in by default; None: the gateway's own default
    stops_cancelled: bool = True  # when a call is cancelled, its run is not wanted any more


# --- the host ----------------------------------------------------------------------------------------


# A message, and the number of the run's event that it is about; 0 if it is about none.
Send: TypeAlias = Callable[[bytes, int], Awaitable[None]]

_PROGRESS_SECONDS = 10.0  # while the agent says nothing: hosts give up on a silent tool
_SMALLEST_STEP = 0.001


class OpenForms:
    """Those that were shown to a host's user, by the ids of their requests."""

    def __init__(self) -> None:
        self._open: dict[RequestId, asyncio.Future[FilledForm]] = {}

    async def show(self, id: str, form: dict[str, Any], send: Send) -> FilledForm:
        filled: asyncio.Future[FilledForm] = asyncio.get_running_loop().create_future()
        self._open[id] = filled
        try:
            await send(encode_request(id, METHOD, form), 0)
            return await filled
        finally:
            if self._open.get(id) is filled:  # else it is shown again, on a stream that was resumed
                del self._open[id]

    def is_open(self, id: RequestId) -> bool:
        """Whether a call waits for it here."""
        return id in self._open

    def fill(self, reply: HostReply) -> None:
        if (filled := self._open.get(reply.id)) is not None and not filled.done():
            filled.set_result(read_form(reply.result))


def form_id(run_id: str, document_id: str) -> str:
    """The id of the request that shows it. It names the document, so another process can take the reply."""
    return f"{run_id}/{document_id}"


class HostCall:
    """A host's call while it is performed: progress and forms go out as messages, filled forms come in."""

    def __init__(self, peer: Peer, progress_token: RequestId | None, send: Send, forms: OpenForms) -> None:
        """Without a token, the host wants no progress."""
        self.peer, self.run_id, self.last_number = peer, "", 0
        self._token, self._send, self._forms = progress_token, send, forms
        self._value, self._start = 0.0, time.monotonic()
        self._last = self._start

    async def begun(self, run_id: str) -> None:
        """The call is performed by this run."""
        if self.run_id not in ("", run_id):  # the conversation's next run has its own numbers
            self.last_number = 0
        self.run_id = run_id

    async def report(self, line: str, number: int) -> None:
        """What the agent does: the event of this number. Each is reported once, and the numbers grow: hosts may show
        them, and a stream that is resumed continues with larger ones."""
        if number and number <= self.last_number:
            return
        self.last_number = number or self.last_number
        if self._token is None:
            return
        self._value, self._last = max(float(number), self._value + _SMALLEST_STEP), time.monotonic()
        value = int(self._value) if self._value.is_integer() else round(self._value, 3)
        progress = {"progressToken": self._token, "progress": value, "message": line}
        await self._send(encode_notification("notifications/progress", progress), number)

    async def ask_user(self, run_id: str, document_id: str, form: dict[str, Any]) -> FilledForm:
        return await self._forms.show(form_id(run_id, document_id), form, self._send)

    async def keep_reporting(self) -> None:
        """While there is nothing else to report."""
        while True:
            silent = time.monotonic() - self._last
            if silent >= _PROGRESS_SECONDS:
                self._last = time.monotonic()
                await self.report(f"Working for {self._last - self._start:.0f} s", 0)
                continue
            await asyncio.sleep(_PROGRESS_SECONDS - silent)


# --- calls -------------------------------------------------------------------------------------------


async def perform(gateway: ConnectedGateway, arguments: tools.ToolArguments, host: HostCall) -> ChatResponse:
    """Raises `CallFailed`."""
    client = gateway.client
    match arguments:
        case tools.AskArguments() | tools.RunArguments():
            return await _with_user(gateway, await _send(gateway, arguments, host), host)
        case tools.StatusArguments(run_id=id, wait_seconds=seconds):
            return await _status(client, id, seconds, host)
        case tools.AnswerArguments(run_id=id, background=True):
            return await client.response(await client.answer(id, **_fields(arguments)))
        case tools.AnswerArguments():
            return await _with_user(gateway, await _answer(gateway, arguments, host), host)
        case tools.CancelArguments(run_id=id):
            await client.cancel(id)
            return await client.response(id)


async def start_task(gateway: ConnectedGateway, message: tools.AskArguments | tools.RunArguments) -> ChatResponse:
    """Starts a run that outlives its call. Raises `CallFailed`."""
    options = _options(gateway, message)
    return await gateway.client.response(await gateway.client.start(message.prompt, **options))


async def answer_run(
    gateway: ConnectedGateway, run_id: str, filled: Mapping[str, FilledForm], *, is_final: bool = False
) -> ChatResponse | None:
    """Sends what the user has decided about the run's documents; None if there was nothing to send. `is_final`: who
    does not decide is not asked again, so that it is a refusal."""
    answered: ChatResponse | None = None
    response = await _steady_response(gateway.client, run_id)
    for document_id, form in filled.items():
        if (answer := answer_to(response, document_id, form, is_final=is_final)) is not None:
            await gateway.client.answer(run_id, **_fields(answer))
            answered = response
            await _response_after(gateway.client, run_id, _open_calls(response))
            response = await _steady_response(gateway.client, run_id)
    return answered


async def continue_call(
    gateway: ConnectedGateway, run_id: str, filled: Mapping[str, FilledForm], host: HostCall
) -> ChatResponse:
    """The call that this run performs, after the user was asked. Raises `CallFailed`."""
    answered = await answer_run(gateway, run_id, filled)
    if answered is None:
        return await gateway.client.response(run_id)
    return await follow_run(gateway, run_id, 0, host, _open_calls(answered))


async def follow_run(
    gateway: ConnectedGateway, run_id: str, after: int, host: HostCall, answered: Set[str] = frozenset()
) -> ChatResponse:
    """Until the run is over, or waits. Raises `CallFailed`."""
    async with _stopped_if_cancelled(gateway, run_id), gateway.client.events(run_id, after) as stream:
        await host.begun(run_id)
        response = await _follow(gateway.client, stream, host, answered)
    return await _with_user(gateway, response, host)


async def _send(
    gateway: ConnectedGateway, message: tools.AskArguments | tools.RunArguments, host: HostCall
) -> ChatResponse:
    if isinstance(message, tools.RunArguments) and message.background:
        return await start_task(gateway, message)
    options = _options(gateway, message)
    options["when_client_leaves"] = "cancel"  # a host may kill this process soon after it has closed its input
    async with gateway.client.stream(message.prompt, **options) as stream:
        await host.begun(stream.id)
        return await _follow(gateway.client, stream, host)


def _options(gateway: ConnectedGateway, message: tools.AskArguments | tools.RunArguments) -> "ChatOptions":
    # A conversation has its own folder.
    folder = message.workspace or (None if message.conversation_id else gateway.folder)
    options: ChatOptions = {
        "conversation_id": message.conversation_id,
        "model": message.model,
        "workspace": folder,
        "mode": "ask",
    }
    if isinstance(message, tools.RunArguments):
        options = {**options, "mode": message.mode, "may_ask": True, "source": INTERACTIVE}
    return options


async def _answer(gateway: ConnectedGateway, answer: tools.AnswerArguments, host: HostCall) -> ChatResponse:
    client = gateway.client
    async with _stopped_if_cancelled(gateway, answer.run_id):
        answered: Set[str] = frozenset()
        with suppress(CallFailed):  # `answer` says what is wrong
            answered = _open_calls(await client.response(answer.run_id))
        continued = await client.answer(answer.run_id, **_fields(answer))
    async with _stopped_if_cancelled(gateway, continued), client.events(continued) as stream:
        await host.begun(continued)
        return await _follow(client, stream, host, answered)


async def _with_user(gateway: ConnectedGateway, response: ChatResponse, host: HostCall) -> ChatResponse:
    """As long as the run waits, and the host shows its user what for. A host of today's protocol gets it as a result,
    and calls again."""
    if not host.peer.can_elicit or host.peer.is_modern:
        return response
    while wanted := forms(response, host.peer):
        document_id, form = next(iter(wanted.items()))
        is_undecided, response = await _shown(gateway, response, document_id, form, host)
        if is_undecided:
            break
    return response


async def _shown(
    gateway: ConnectedGateway, response: ChatResponse, document_id: str, form: dict[str, Any], host: HostCall
) -> tuple[bool, ChatResponse]:
    """Whether the user has not decided, and how the run went on. The run is read meanwhile, or it would stop when
    somebody else answers it."""
    client, id = gateway.client, response.id
    after = max(0, host.last_number - 1)  # from the pause on: there may be more to answer
    async with _stopped_if_cancelled(gateway, id), client.events(id, after) as stream:
        asking = asyncio.ensure_future(host.ask_user(id, document_id, form))
        elsewhere = asyncio.ensure_future(_decided(client, id, document_id, host.peer))
        try:
            ends: list[asyncio.Future[Any]] = [asking, elsewhere]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()
            elsewhere.cancel()
        answered: Set[str] = frozenset()
        if asking.done() and not asking.cancelled():
            answer = answer_to(response, document_id, asking.result())
            if answer is None:
                stream.let_finish()
                return True, response
            answered = _open_calls(response)
            await client.answer(id, **_fields(answer))
        return False, await _follow(client, stream, host, answered)


async def _decided(client: AgentGateway, id: str, document_id: str, peer: Peer) -> None:
    """Until somebody has decided: on the page, or through another process."""
    while document_id in forms(await client.response(id), peer):
        await asyncio.sleep(_FORM_SECONDS)


@asynccontextmanager
async def _stopped_if_cancelled(gateway: ConnectedGateway, id: str) -> AsyncIterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        if gateway.stops_cancelled:
            with suppress(CallFailed):
                await gateway.client.cancel(id)
        raise


async def _status(client: AgentGateway, id: str, seconds: int, host: HostCall) -> ChatResponse:
    if seconds:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), client.events(id) as stream:
                await _until_pause(client, stream, host)
    return await client.response(id)


async def _follow(
    client: AgentGateway, stream: RunStream, host: HostCall, answered: Set[str] = frozenset()
) -> ChatResponse:
    """Until the run is over, or waits for another answer than to these calls."""
    paused = await _until_pause(client, stream, host, answered)
    if paused is None:
        return await stream.result()
    stream.let_finish()
    return paused


async def _until_pause(
    client: AgentGateway, stream: RunStream, host: HostCall, answered: Set[str] = frozenset()
) -> ChatResponse | None:
    """None at the end of the run."""
    async for event in stream:
        if line := progress_line(event):
            await host.report(line, stream.last_event)
        if isinstance(event, Done):
            return None
        if isinstance(event, Paused):
            response = await _response_after(client, stream.id, answered)
            if response.metadata.waiting_for:  # else it is an earlier pause, or it was answered
                return response
    return None


async def _response_after(client: AgentGateway, id: str, answered: Set[str]) -> ChatResponse:
    """Until the agent has taken the answer, the run still seems to wait for it."""
    for _ in range(_LOOKS):
        response = await client.response(id)
        if not answered or _open_calls(response) != answered:
            return response
        await asyncio.sleep(_LOOK_SECONDS)
    return await client.response(id)


async def _steady_response(client: AgentGateway, id: str) -> ChatResponse:
    """Of several questions, one is answered first. The run then goes on for a moment, and waits again for the rest."""
    for _ in range(_LOOKS):
        response = await client.response(id)
        if response.metadata.waiting_for or not has_questions(response):
            return response
        await asyncio.sleep(_LOOK_SECONDS)
    return await client.response(id)


def _open_calls(response: ChatResponse) -> Set[str]:
    return frozenset(call.tool_call_id for call in response.metadata.waiting_for or ())


def _fields(answer: tools.AnswerArguments) -> "AnswerFields":
    return {
        "answers": answer.answers,
        "plan": answer.plan,
        "text": answer.text,
        "permissions": answer.permissions,
    }
