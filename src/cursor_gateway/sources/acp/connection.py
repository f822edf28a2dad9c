"""The connection to a running agent, shared by several sessions."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cursor_gateway.errors import (
    AgentCrashed,
    AgentError,
    AgentFailed,
    AgentMisconfigured,
    AgentTimedOut,
    AgentUnauthenticated,
)
from cursor_gateway.model.agent_events import TokenCounts
from cursor_gateway.sources.acp.models import Choice
from cursor_gateway.sources.acp.rpc import METHOD_NOT_FOUND, LineTransport, Rpc, RpcError
from cursor_gateway.sources.base import LONGEST_LINE
from cursor_gateway.sources.cursor.ask_user import SKIPPED, UserTool
from cursor_gateway.sources.cursor.command import Program
from cursor_gateway.sources.cursor.configuration import AgentFiles
from cursor_gateway.sources.cursor.failures import KEY_REJECTED, NOT_LOGGED_IN, failure_of, known_failure, line_too_long
from cursor_gateway.sources.process import AgentProcess, StdinWriter, start_with_stdin
from cursor_gateway.wire.payload import Fields

if TYPE_CHECKING:
    from cursor_gateway.sources.acp.running import RunningTurn

_UNAUTHENTICATED = -32000
_STDERR_SECONDS = 0.5
_PROTOCOL = 1
_FIRST = "2026.06"  # version of the agent
_CAPABILITIES = {
    "fs": {"readTextFile": False, "writeTextFile": False},
    "terminal": False,
    # Without the first, the agent offers one variant of each model, which may be the dearest. Without the second, it
    # does not wait for its sub-agents, whose requests for permission then come after the end of the turn.
    "_meta": {"parameterizedModelPicker": True, "subagents": {}},
}

_NOT_DECIDED = {"outcome": {"outcome": "cancelled"}}
_SKIPPED = {"outcome": {"outcome": "skipped", "reason": SKIPPED}}


def refusal_of(error: RpcError, *, has_key: bool) -> AgentError:
    """The gateway's error for the agent's answer to a request."""
    text = str(error)
    if error.code == _UNAUTHENTICATED:
        return AgentUnauthenticated(NOT_LOGGED_IN, details=text)
    if "Failed to initialize session services" in text and has_key:
        return AgentUnauthenticated(KEY_REJECTED, details=text)
    return known_failure(text) or AgentFailed(f"The agent returned an error: {text}. Try again.", details=text)


class Session(Struct):
    """A session that an agent has loaded, with its current settings."""

    id: str
    mode: str
    models: Choice
    spent: TokenCounts | None  # None: unknown, because the session was loaded from disk
    user_tool: UserTool | None = None  # with which its agent asks the user
    last_calls: frozenset[str] = frozenset()  # of its last turn


class PreparedSession(Struct, frozen=True):
    """A session that was opened in advance, or is being opened."""

    opening: "asyncio.Task[Session]"
    files: AgentFiles  # as they were before
    until: float  # by the loop's clock; then it is too old


def no_acp(program: Program) -> AgentError | None:
    """An agent that is too old would take the command's name for a prompt."""
    if program.version[:1].isdigit() and program.version < _FIRST:
        return AgentMisconfigured(f"cursor-agent {program.version} has no ACP; update it with `cursor-agent update`.")
    return None


async def greet(program: Program, environment: Mapping[str, str], seconds: float) -> None:
    """Starts an agent, to see whether it understands ACP, and ends it. Raises an `AgentError`."""
    if (error := no_acp(program)) is not None:
        raise error
    process, stdin = await start_with_stdin(
        [*program.command, "acp"], folder="/", environment=environment, on_gone=lambda pid: None
    )
    connection = AgentConnection(process, stdin, LONGEST_LINE, 0.2)
    try:
        await connection.initialize(seconds)
    finally:
        await connection.end()


class AgentConnection:
    """`end` must be awaited."""

    def __init__(self, process: AgentProcess, stdin: StdinWriter, longest: int, grace_seconds: float) -> None:
        self._process, self._longest, self._grace_seconds = process, longest, grace_seconds
        self._transport = LineTransport(process, stdin, longest)
        self._rpc = Rpc(self._transport, self._requested, self._notified)
        self._listeners: dict[str, RunningTurn] = {}  # by their sessions, and those of their sub-agents
        self.sessions: dict[str, Session] = {}  # those that the agent has loaded
        self.prepared: dict[Hashable, PreparedSession] = {}  # sessions of no conversation yet, by what they are for
        self.unused: set[str] = set()  # sessions that were prepared, and that no conversation has
        self.is_gone = False
        self.on_gone: Callable[[], None] = lambda: None
        self.closing: list[Callable[[], None]] = []  # called when it is gone
        self._transport.on_end = self._mark_gone

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        """No turn is running in it."""
        return not self._listeners

    async def initialize(self, seconds: float) -> None:
        """Raises an `AgentError`."""
        client = {"name": "cursor-gateway", "version": version("cursor-gateway")}
        params = {"protocolVersion": _PROTOCOL, "clientCapabilities": _CAPABILITIES, "clientInfo": client}
        try:
            response = await self.request("initialize", params, seconds)
        except RpcError as refused:
            raise refusal_of(refused, has_key=False) from refused
        except AgentCrashed as crashed:
            if "unknown command" in crashed.details:
                raise AgentMisconfigured(
                    "This cursor-agent has no ACP; update it with `cursor-agent update`.", details=crashed.details
                ) from None
            raise
        if Fields(response).integer("protocolVersion") != _PROTOCOL:
            raise AgentMisconfigured("This cursor-agent uses another version of ACP; update it, or use the CLI.")

    async def request(self, method: str, params: dict[str, Any], seconds: float | None) -> Any:
        """Raises `RpcError`, `AgentTimedOut`, `AgentCrashed`. `seconds` None: no timeout."""
        try:
            async with asyncio.timeout(seconds):
                return await self._rpc.request(method, params)
        except TimeoutError:
            raise AgentTimedOut(
                f"The agent did not answer `{method}` within {seconds:g} s; try again, or run `cursor-gateway doctor`."
            ) from None
        except ConnectionError:
            raise await self.crashed() from None

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._rpc.notify(method, params)

    async def is_responsive(self, seconds: float) -> bool:
        """Whether it answers at all, even with an error."""
        try:
            await self.request("session/list", {}, seconds)
        except RpcError:
            return True
        except AgentError:
            return False
        return True

    def listen(self, session_id: str, listener: "RunningTurn") -> None:
        self._listeners[session_id] = listener

    def forget(self, listener: "RunningTurn") -> None:
        self._listeners = {id: other for id, other in self._listeners.items() if other is not listener}

    async def crashed(self) -> AgentError:
        """The error that explains why it is gone."""
        if self._transport.is_too_long:
            return line_too_long(self._longest)
        await self._process.wait(_STDERR_SECONDS)
        return self._process.system_error or failure_of(self._process.stderr_tail, self._process.ending)

    async def end(self) -> None:
        """Ends the process and closes the connection."""
        try:
            await self._process.end(self._grace_seconds)
        finally:
            self._mark_gone()
            await self._rpc.close()

    def _mark_gone(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            for close in self.closing:
                close()
            self.on_gone()

    def _notified(self, method: str, params: Any) -> None:
        fields, update = Fields(params), Fields(params).object("update")
        session = self.sessions.get(fields.text("sessionId"))
        if session is not None and update.text("sessionUpdate") == "current_mode_update":
            session.mode = update.text("currentModeId")  # an agent may change it by itself, also between turns
        if (listener := self._listener(fields)) is None:
            return
        if method == "session/update":
            listener.update(fields.all.get("update"), fields.text("sessionId"))
        elif method.startswith("cursor/"):
            listener.extension(method, fields)

    async def _requested(self, method: str, params: Any) -> Any:
        fields = Fields(params)
        listener = self._listener(fields)
        match method:
            case "session/request_permission":
                return _NOT_DECIDED if listener is None else await listener.permission(fields)
            case "cursor/ask_question":
                return _SKIPPED if listener is None else await listener.question(fields)
            case "cursor/create_plan":
                return _NOT_DECIDED if listener is None else await listener.plan(fields)
            case _ if method == "session/update" or method.startswith("cursor/"):  # a notification that has an id
                self._notified(method, params)
                return {}
            case _:
                raise RpcError(METHOD_NOT_FOUND, "Method not found")

    def _listener(self, params: Fields) -> "RunningTurn | None":
        """Cursor's own messages name a call but no session."""
        if session_id := params.text("sessionId"):
            return self._listeners.get(session_id)
        call_id, listeners = params.text("toolCallId"), dict.fromkeys(self._listeners.values())
        knowing = [listener for listener in listeners if listener.knows(call_id)]
        return knowing[0] if knowing else next(iter(listeners)) if len(listeners) == 1 else None
