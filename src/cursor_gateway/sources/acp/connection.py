"""The JSON-RPC connection to a running agent, shared by several sessions.

The package's `ClientSideConnection` accepts only extensions whose names start with `_`, and Cursor's are named
`cursor/…`, so its plain `Connection` is used, with messages as plain data.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Protocol

from msgspec import Struct

from cursor_gateway.errors import (
    AgentError,
    AgentFailed,
    AgentMisconfigured,
    AgentTimedOut,
    AgentUnauthenticated,
)
from cursor_gateway.model.agent_events import TokenCounts
from cursor_gateway.sources.acp.messages import error_text
from cursor_gateway.sources.acp.process import LineTransport, StdinWriter
from cursor_gateway.sources.cursor.failures import KEY_REJECTED, NOT_LOGGED_IN, failure_of, known_failure, line_too_long
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.wire.payload import Fields

_UNAUTHENTICATED = -32000
_METHOD_NOT_FOUND = -32601
_INVALID = -32602
_STDERR_SECONDS = 0.5
_PROTOCOL = 1

SKIPPED = "Questions skipped by the user, continue with the information you already have"  # the CLI's words


class Refused(Exception):
    """The agent's answer to a request was an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_unknown_method(self) -> bool:
        return self.code == _METHOD_NOT_FOUND

    @property
    def is_invalid(self) -> bool:
        return self.code == _INVALID

    def error(self, has_key: bool) -> AgentError:
        """The matching gateway error."""
        text = str(self)
        if self.code == _UNAUTHENTICATED:
            return AgentUnauthenticated(NOT_LOGGED_IN, details=text)
        if "Failed to initialize session services" in text and has_key:
            return AgentUnauthenticated(KEY_REJECTED, details=text)
        return known_failure(text) or AgentFailed(f"The agent returned an error: {text}. Try again.", details=text)


class Session(Struct):
    """A session that an agent has loaded, with its current settings."""

    id: str
    mode: str
    model: str
    names: dict[str, str]  # of its models, by id
    spent: TokenCounts | None  # None: unknown, because the session was loaded from disk


class Listener(Protocol):
    """Receives a session's messages: the turn that is running in it."""

    def update(self, update: object) -> None: ...

    def knows(self, call_id: str) -> bool: ...

    async def permission(self, params: Fields) -> dict[str, Any]: ...

    async def extension(self, method: str, params: Fields) -> dict[str, Any]: ...


class AgentConnection:
    """`end` must be awaited."""

    def __init__(self, process: AgentProcess, stdin: StdinWriter, longest: int, grace_seconds: float) -> None:
        from acp.connection import Connection  # late: most of a second, which a gateway without ACP need not pay

        self._process, self._longest, self._grace_seconds = process, longest, grace_seconds
        self._transport = LineTransport(process, stdin, longest)
        self._rpc: Connection = Connection(self._handle, self._transport)
        self._listeners: dict[str, Listener] = {}
        self.sessions: dict[str, Session] = {}  # those that the agent has loaded
        self.is_gone = False
        self.on_gone: Callable[[], None] = lambda: None
        self._transport.on_end = self._mark_gone

    @property
    def pid(self) -> int:
        return self._process.pid

    async def initialize(self, seconds: float) -> None:
        """Raises an `AgentError`."""
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        client = {"name": "cursor-gateway", "version": version("cursor-gateway")}
        params = {"protocolVersion": _PROTOCOL, "clientCapabilities": capabilities, "clientInfo": client}
        try:
            response = await self.request("initialize", params, seconds)
        except Refused as refused:
            raise refused.error(False) from refused
        if Fields(response).integer("protocolVersion") != _PROTOCOL:
            raise AgentMisconfigured("This cursor-agent uses another version of ACP; update it, or use the CLI.")

    async def request(self, method: str, params: dict[str, Any], seconds: float | None) -> Any:
        """Raises `Refused`, `AgentTimedOut`, `AgentCrashed`. `seconds` None: no timeout."""
        from acp.exceptions import RequestError

        try:
            async with asyncio.timeout(seconds):
                return await self._rpc.send_request(method, params)
        except RequestError as error:
            raise Refused(error.code, error_text(str(error), error.data)) from error
        except TimeoutError:
            raise AgentTimedOut(
                f"The agent did not answer `{method}` within {seconds:g} s; try again, or run `cursor-gateway doctor`."
            ) from None
        except ConnectionError:
            raise await self.crashed() from None

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        with suppress(ConnectionError):
            await self._rpc.send_notification(method, params)

    async def is_responsive(self, seconds: float) -> bool:
        """Whether it answers at all, even with an error."""
        try:
            await self.request("session/list", {}, seconds)
        except Refused:
            return True
        except AgentError:
            return False
        return True

    def listen(self, session_id: str, listener: Listener) -> None:
        self._listeners[session_id] = listener

    def forget(self, session_id: str) -> None:
        self._listeners.pop(session_id, None)

    async def crashed(self) -> AgentError:
        """The error that explains why it is gone."""
        if self._transport.is_too_long:
            return line_too_long(self._longest)
        await self._process.wait(_STDERR_SECONDS)
        return failure_of(self._process.stderr_tail, self._process.ending)

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
            self.on_gone()

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        fields = Fields(params)
        listener = self._listener(fields)
        match method:
            case "session/update":
                if listener is not None:
                    listener.update(fields.all.get("update"))
                return None
            case "session/request_permission":
                if listener is None:
                    return {"outcome": {"outcome": "cancelled"}}
                return await listener.permission(fields)
            case _ if method.startswith("cursor/"):
                if listener is None:
                    return unanswered(method)
                return await listener.extension(method, fields)
            case _:
                from acp.exceptions import RequestError

                raise RequestError.method_not_found(method)

    def _listener(self, params: Fields) -> Listener | None:
        """Cursor's own messages name a call but no session (2026.08.11)."""
        if session_id := params.text("sessionId"):
            return self._listeners.get(session_id)
        call_id = params.text("toolCallId")
        knowing = [listener for listener in self._listeners.values() if listener.knows(call_id)]
        if knowing:
            return knowing[0]
        return next(iter(self._listeners.values())) if len(self._listeners) == 1 else None


def unanswered(method: str) -> dict[str, Any]:
    """The answer to a request without a listener."""
    match method:
        case "cursor/ask_question":
            return {"outcome": {"outcome": "skipped", "reason": SKIPPED}}
        case "cursor/create_plan":
            return {"outcome": {"outcome": "cancelled"}}
        case _:
            return {}
