"""A request of an MCP host in; its result out, whatever the transport and the version of the protocol."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.client.failures import CallFailed
from cursor_gateway.errors import GatewayError
from cursor_gateway.mcp_server import calls, tools
from cursor_gateway.mcp_server.calls import HostCall
from cursor_gateway.mcp_server.elicitation import METHOD, forms, read_form
from cursor_gateway.mcp_server.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Request,
    RequestId,
    RpcError,
    encode_notification,
)
from cursor_gateway.mcp_server.peers import TASKS, VERSIONS, Peer, need_tasks
from cursor_gateway.mcp_server.results import failed_result, tool_result
from cursor_gateway.mcp_server.tasks import created_task, detailed_task
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.model.documents import ChatResponse

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[calls.ConnectedGateway]]
Failures: TypeAlias = tuple[type[Exception], ...]

_SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_LISTED_MS = 3_600_000  # for which hosts may keep the list of tools: it only changes with the gateway's version
_UNKNOWN_TASK = 404
_MOST_TASKS = 100  # of one subscription: each is looked up, and read as long as it lasts

_INSTRUCTIONS = (
    "These tools delegate work to Cursor's coding agent, which works in the user's project. Use `ask` for questions "
    "and `run` for changes. When a result says that the agent needs an answer or a permission, ask the user, and send "
    "it with `answer`."
)


class CallParameters(Struct, frozen=True, rename="camel"):
    """Of `tools/call`."""

    name: str
    arguments: dict[str, Any] | None = None
    request_state: str | None = None  # of a call that was returned with forms: the run
    input_responses: dict[str, Any] | None = None


class _TaskParameters(Struct, frozen=True, rename="camel"):
    task_id: str
    input_responses: dict[str, Any] = {}


class _Listening(Struct, frozen=True, rename="camel"):
    task_ids: list[str] = []


class _ListenParameters(Struct, frozen=True):
    notifications: _Listening = _Listening()


class _Meta(Struct, frozen=True, rename="camel"):
    progress_token: RequestId | None = None


def progress_token(request: Request) -> RequestId | None:
    try:
        return msgspec.convert(request.params.get("_meta") or {}, _Meta).progress_token
    except msgspec.ValidationError:
        return None


class ToolCall(Struct, frozen=True):
    """A call whose arguments are valid."""

    arguments: tools.ToolArguments
    continues: str = ""  # if it was called before: the run that performs it, and what was asked
    filled: dict[str, Any] = {}

    def becomes_task(self, peer: Peer) -> bool:
        """For a host that has them; but where the agent may ask, the host must show forms, or nobody could answer."""
        match self.arguments:
            case tools.RunArguments(background=background):
                return peer.has_tasks and peer.can_elicit and not background and not self.continues
            case tools.AskArguments():
                return peer.has_tasks and not self.continues
            case _:
                return False

    def lasts(self, peer: Peer) -> bool:
        """Whether its result comes later than at once."""
        match self.arguments:
            case tools.StatusArguments(wait_seconds=seconds):
                return seconds > 0
            case arguments:
                return _waits(arguments) and not self.becomes_task(peer)


def read_call(request: Request) -> ToolCall | str:
    """Or what is wrong with it, for the host's model. Raises `RpcError`."""
    wanted = _read(request, CallParameters)
    tool = tools.TOOLS.get(wanted.name)
    if tool is None:
        return f"There is no tool `{wanted.name}`; use one of: {', '.join(tools.TOOLS)}."
    try:
        arguments = tools.read_arguments(tool, wanted.arguments or {})
    except msgspec.ValidationError as error:
        return f"The arguments of `{tool.name}` are not valid: {error}."
    return ToolCall(arguments, wanted.request_state or "", wanted.input_responses or {})


class McpMethods:
    def __init__(self, connect: Connect, failures: Failures = (), ttl_ms: int | None = None) -> None:
        """`connect` gives the gateway for one call; it may raise `GatewayError` and `failures`, with a message for the
        user. `ttl_ms`: for which runs are kept at least; None: without end."""
        self._connect, self._ttl_ms = connect, ttl_ms
        self._failures: Failures = (CallFailed, GatewayError, *failures)

    def initialized(self, peer: Peer) -> dict[str, Any]:
        return {
            "protocolVersion": peer.version,
            "capabilities": {"tools": {}},
            "serverInfo": _server(),
            "instructions": _INSTRUCTIONS,
        }

    async def result(self, request: Request, host: HostCall) -> dict[str, Any]:
        """Raises `RpcError`."""
        result = await self._result(request, host)
        if not host.peer.is_modern:
            return result
        return {"resultType": "complete", **result, "_meta": {_SERVER_KEY: _server()}}

    async def _result(self, request: Request, host: HostCall) -> dict[str, Any]:
        peer = host.peer
        match request.method:
            case "server/discover" if peer.is_modern:
                return {
                    "supportedVersions": list(VERSIONS),
                    "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
                    "instructions": _INSTRUCTIONS,
                    **_cacheable(),
                }
            case "ping" if not peer.is_modern:
                return {}
            case "tools/list":
                return {"tools": tools.listed_tools(), **(_cacheable() if peer.is_modern else {})}
            case "tools/call":
                return await self._call(request, host)
            case "tasks/get" if peer.is_modern:
                return await self._with_task(request, peer, self._get)
            case "tasks/update" if peer.is_modern:
                return await self._with_task(request, peer, self._update)
            case "tasks/cancel" if peer.is_modern:
                return await self._with_task(request, peer, self._cancel)
            case unknown:
                raise RpcError(METHOD_NOT_FOUND, f"There is no method `{unknown[:100]}` here.", status=404)

    # --- tools --------------------------------------------------------------------------------------

    async def _call(self, request: Request, host: HostCall) -> dict[str, Any]:
        call = read_call(request)
        if isinstance(call, str):
            return failed_result(call)
        return await self._performed(
            lambda gateway: self._perform(gateway, call, host),
            host,
            lambda response: self._shown(response, call.arguments, host.peer),
        )

    async def _perform(
        self, gateway: calls.ConnectedGateway, call: ToolCall, host: HostCall
    ) -> ChatResponse | dict[str, Any]:
        match call.arguments:
            case _ if call.continues:
                filled = {id: read_form(form) for id, form in call.filled.items()}
                run_id = await self._continued(gateway, call.continues)
                response = await calls.continue_call(gateway, run_id, filled, host)
                is_dismissed = bool(filled.keys() & forms(response, host.peer).keys())  # then the model gets it
                return tool_result(response) if is_dismissed else response
            case tools.AskArguments() as message if call.becomes_task(host.peer):
                return created_task(await calls.start_task(gateway, message), self._ttl_ms, _now())
            case arguments:
                return await calls.perform(gateway, arguments, host)

    async def _continued(self, gateway: calls.ConnectedGateway, state: str) -> str:
        """The run of a `requestState`. It says nothing that its caller could not send by itself, so it is not signed.
        Raises `RpcError` for one that cannot be ours."""
        run_id, *asked = state.split("/")
        known: set[str] = set()
        with suppress(*self._failures):
            known = {document.id for document in (await gateway.client.response(run_id)).documents}
        if not asked or not known.issuperset(asked):
            raise RpcError(INVALID_PARAMS, "There is no call with this `requestState`; make a new one.")
        return run_id

    async def resumed(self, run_id: str, after: int, host: HostCall) -> dict[str, Any]:
        """The result of a call whose stream broke after this event."""
        return await self._performed(
            lambda gateway: calls.follow_run(gateway, run_id, after, host),
            host,
            tool_result,
        )

    async def _performed(
        self,
        work: Callable[[calls.ConnectedGateway], Awaitable[ChatResponse | dict[str, Any]]],
        host: HostCall,
        shown: Callable[[ChatResponse], dict[str, Any]],
    ) -> dict[str, Any]:
        reporting = asyncio.create_task(host.keep_reporting())
        try:
            async with self._connect() as gateway:
                try:
                    response = await work(gateway)
                except CallFailed as error:
                    if error.response is None:
                        raise
                    return tool_result(error.response, message=error.message)
            return response if isinstance(response, dict) else shown(response)
        except self._failures as error:
            return failed_result(str(error))
        finally:
            reporting.cancel()

    def _shown(self, response: ChatResponse, arguments: tools.ToolArguments, peer: Peer) -> dict[str, Any]:
        asks = peer.is_modern and peer.can_elicit and _waits(arguments)
        if asks and (wanted := forms(response, peer)):
            requests = {id: {"method": METHOD, "params": form} for id, form in wanted.items()}
            state = "/".join((response.id, *wanted))  # of this round
            return {"resultType": "input_required", "inputRequests": requests, "requestState": state}
        return tool_result(response)

    # --- tasks --------------------------------------------------------------------------------------

    async def _with_task(
        self,
        request: Request,
        peer: Peer,
        work: Callable[[calls.ConnectedGateway, _TaskParameters, Peer], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        need_tasks(peer)
        wanted = _read(request, _TaskParameters)
        try:
            async with self._connect() as gateway:
                return await work(gateway, wanted, peer)
        except self._failures as error:
            raise _task_error(error) from error

    async def _get(self, gateway: calls.ConnectedGateway, wanted: _TaskParameters, peer: Peer) -> dict[str, Any]:
        return detailed_task(await gateway.client.response(wanted.task_id), peer, self._ttl_ms, _now())

    async def _update(self, gateway: calls.ConnectedGateway, wanted: _TaskParameters, peer: Peer) -> dict[str, Any]:
        """Hosts show a form once, so who dismisses it has refused."""
        filled = {id: read_form(form) for id, form in wanted.input_responses.items()}
        await calls.answer_run(gateway, wanted.task_id, filled, is_final=True)
        return {}

    async def _cancel(self, gateway: calls.ConnectedGateway, wanted: _TaskParameters, peer: Peer) -> dict[str, Any]:
        """One that is over stays as it is."""
        if (await gateway.client.response(wanted.task_id)).status == "streaming":
            await gateway.client.cancel(wanted.task_id)
        return {}

    # --- notifications of tasks ----------------------------------------------------------------------

    async def listen(self, request: Request, peer: Peer, send: Callable[[bytes], Awaitable[None]]) -> dict[str, Any]:
        """`subscriptions/listen`: until the tasks are over, or without end if there are none. Raises `RpcError`."""
        ids = _read(request, _ListenParameters).notifications.task_ids
        if ids:
            need_tasks(peer)
        if len(ids) > _MOST_TASKS:
            raise RpcError(INVALID_PARAMS, f"A subscription may name {_MOST_TASKS} tasks; use several.")
        meta = {_SUBSCRIPTION_KEY: request.id}
        async with self._connect() as gateway:
            known = [id for id in dict.fromkeys(ids) if await self._is_known(gateway, id)]
            accepted = {"notifications": {"taskIds": known} if known else {}, "_meta": meta}
            await send(encode_notification("notifications/subscriptions/acknowledged", accepted))

            async def tell(id: str) -> str:
                task = detailed_task(await gateway.client.response(id), peer, self._ttl_ms, _now())
                await send(encode_notification("notifications/tasks", {**task, "_meta": meta}))
                return str(task["status"])

            async with asyncio.TaskGroup() as watching:
                for id in known:
                    watching.create_task(self._watch(gateway, id, tell))
                if not known:
                    await asyncio.Event().wait()
        return self.listened(request)

    def listened(self, request: Request) -> dict[str, Any]:
        """The result of `subscriptions/listen`, when it ends."""
        return {"resultType": "complete", "_meta": {_SUBSCRIPTION_KEY: request.id}}

    async def _is_known(self, gateway: calls.ConnectedGateway, id: str) -> bool:
        try:
            await gateway.client.response(id)
        except self._failures:
            return False
        return True

    async def _watch(self, gateway: calls.ConnectedGateway, id: str, tell: Callable[[str], Awaitable[str]]) -> None:
        """Tells how the task is now, and whenever it begins to wait, continues, or ends."""
        told = await tell(id)
        if told not in ("working", "input_required"):
            return
        async with gateway.client.events(id) as stream:
            async for event in stream:
                if isinstance(event, Done | Paused) or told == "input_required":
                    told = await tell(id)
                    if told not in ("working", "input_required"):
                        return


def _waits(arguments: tools.ToolArguments) -> bool:
    """Whether the call lasts until the agent is done, or needs an answer."""
    match arguments:
        case tools.RunArguments(background=background) | tools.AnswerArguments(background=background):
            return not background
        case tools.AskArguments():
            return True
        case tools.StatusArguments() | tools.CancelArguments():
            return False


def _read(request: Request, type: type[Any]) -> Any:
    try:
        return msgspec.convert(request.params, type)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"The parameters of `{request.method}` are not valid: {error}.") from None


def _task_error(error: Exception) -> RpcError:
    status = error.status if isinstance(error, CallFailed | GatewayError) else 0
    if status == _UNKNOWN_TASK:
        return RpcError(INVALID_PARAMS, f"There is no such task: {error}", status=200)
    code = INVALID_PARAMS if 400 <= status < 500 else INTERNAL_ERROR
    return RpcError(code, str(error), status=200)


def _cacheable() -> dict[str, Any]:
    return {"ttlMs": _LISTED_MS, "cacheScope": "public"}


def _server() -> dict[str, str]:
    return {"name": "cursor-gateway", "title": "Cursor's agent", "version": version("cursor-gateway")}


def _now() -> datetime:
    return datetime.now(UTC)
