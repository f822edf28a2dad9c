"""Serve the requests of an editor on standard input and output: sessions, prompts, modes and models."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from importlib.metadata import version
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.acp_server import shapes
from cursor_gateway.acp_server.prompts import UnusablePrompt, read_prompt
from cursor_gateway.acp_server.session_ids import SessionIds
from cursor_gateway.acp_server.turns import EditorSession, PromptTurn, replay
from cursor_gateway.client.asynchronous import AsyncClient
from cursor_gateway.client.failures import CallFailed
from cursor_gateway.errors import GatewayError, NotFound, RunCancelled
from cursor_gateway.model.documents import MODES, Mode
from cursor_gateway.model.history import ConversationDetail
from cursor_gateway.sources.acp.rpc import METHOD_NOT_FOUND, Message, Rpc, RpcError, line_of, message_of
from cursor_gateway.stdio import TOO_LONG, StdioLines, is_cut, unread_id

_PARSE_ERROR = -32700

_UNREADABLE = "This line is no JSON-RPC message; send one message in each line."


class StdioTransport:
    def __init__(self, lines: StdioLines) -> None:
        self._lines = lines
        self.drained, self.close = lines.drained, lines.close

    def send(self, message: Message) -> None:
        self._lines.send(line_of(message))

    async def receive(self) -> Message | None:
        while (line := await self._lines.receive()) is not None:
            if not is_cut(line) and (message := message_of(line)) is not None:
                return message
            if line.strip():
                error = {"code": _PARSE_ERROR, "message": TOO_LONG if is_cut(line) else _UNREADABLE}
                self.send({"jsonrpc": "2.0", "id": unread_id(line), "error": error})
        return None


Connected: TypeAlias = tuple[AsyncClient, str | None]  # and the folder to name in requests; None: the gateway's default
ConnectFolder: TypeAlias = Callable[[str], AbstractAsyncContextManager[Connected]]
Log: TypeAlias = Callable[[str], None]
_Params = TypeVar("_Params")

PROTOCOL = 1
_INVALID_REQUEST, _INVALID, _INTERNAL, _NOT_FOUND = -32600, -32602, -32603, -32002
_PAGE = 50  # sessions

_MODES: dict[Mode, tuple[str, str]] = {
    "agent": ("Agent", "Makes changes and runs commands."),
    "plan": ("Plan", "Makes a plan, and changes nothing."),
    "ask": ("Ask", "Answers questions, and changes nothing."),
    "debug": ("Debug", "Looks for the cause first."),
}


class AcpServer:
    """`serve` and then `close` must be awaited."""

    def __init__(
        self,
        transport: StdioTransport,
        connect: ConnectFolder,
        ids: SessionIds,
        *,
        folder: str,
        default_mode: Mode,
        log: Log,
        failures: tuple[type[Exception], ...] = (),
    ) -> None:
        """`connect` gives the gateway for a folder; it may raise `GatewayError` and `failures`, with a message for the
        user. `folder` is for what concerns none."""
        self._connect, self._ids, self._folder, self._default_mode = connect, ids, folder, default_mode
        self.log = log
        self._failures: tuple[type[Exception], ...] = (CallFailed, GatewayError, *failures)
        self._transport = transport
        self._rpc = Rpc(transport, self._requested, self._notified, withdraws=True)
        self._sessions: dict[str, EditorSession] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self.capabilities = shapes.ClientCapabilities()
        self._methods: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close_session,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config,
        }

    async def serve(self) -> None:
        """Until the editor is gone."""
        await self._rpc.ended()

    async def close(self) -> None:
        """Stops the runs of the editor's prompts."""
        turns = [session.turn for session in self._sessions.values() if session.turn is not None]
        await asyncio.gather(*(turn.leave() for turn in turns))
        if self._watching:
            await asyncio.wait(self._watching)
        await self._rpc.close()

    # --- messages -------------------------------------------------------------------------------------

    async def _requested(self, method: str, params: Any) -> Any:
        handle = self._methods.get(method)
        if method == "session/cancel":  # a notification that has an id
            self._notified(method, params)
            return {}
        if handle is None:
            raise RpcError(METHOD_NOT_FOUND, f"This agent has no method {method!r}.")
        try:
            return await handle(params if params is not None else {})
        except msgspec.ValidationError as error:
            raise RpcError(_INVALID, f"The parameters of {method} are not valid: {error}.") from None
        except self._failures as error:
            raise RpcError(_INTERNAL, str(error)) from None

    def _notified(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            with suppress(msgspec.ValidationError):
                session = self._sessions.get(_read(params, shapes.SessionParams).session_id)
                if session is not None and session.turn is not None:
                    session.turn.cancel()

    async def update(self, session_id: str, update: shapes.SessionUpdate) -> None:
        """Waits while the editor does not read."""
        self._rpc.notify("session/update", {"sessionId": session_id, "update": update})
        await self._transport.drained()

    async def request(self, method: str, params: Struct) -> Any:
        """Raises `RpcError`, and `ConnectionError` if the editor is gone."""
        return await self._rpc.request(method, params)

    # --- sessions -------------------------------------------------------------------------------------

    async def _initialize(self, params: Any) -> dict[str, Any]:
        self.capabilities = _read(params, shapes.InitializeParams).client_capabilities
        return {
            "protocolVersion": PROTOCOL,
            "agentInfo": {
                "name": "cursor-gateway",
                "title": "Cursor (cursor-gateway)",
                "version": version("cursor-gateway"),
            },
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "embeddedContext": True, "audio": False},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            },
            "authMethods": [],
        }

    async def _authenticate(self, params: Any) -> dict[str, Any]:
        """Some editors log in at any agent of Cursor's (`cursor_login`). The gateway has its own login."""
        return {}

    async def _new(self, params: Any) -> shapes.NewSession:
        wanted = _read(params, shapes.NewSessionParams)
        session = EditorSession(self._ids.new(), _folder(wanted.cwd))
        async with self._connect(session.folder) as (client, _):
            await self._learn_models(session, client)
        self._sessions[session.id] = session
        self._note(session)
        await self._explain_servers(session, wanted)
        state = self._state(session)
        return shapes.NewSession(session_id=session.id, modes=state.modes, config_options=state.config_options)

    async def _load(self, params: Any) -> shapes.SessionState:
        return await self._open(_read(params, shapes.OpenSessionParams), replays=True)

    async def _resume(self, params: Any) -> shapes.SessionState:
        return await self._open(_read(params, shapes.OpenSessionParams), replays=False)

    async def _open(self, wanted: shapes.OpenSessionParams, *, replays: bool) -> shapes.SessionState:
        known = self._sessions.get(wanted.session_id)
        if known is not None and known.turn is not None:
            raise RpcError(_INVALID_REQUEST, "This session is busy; cancel its prompt first, or wait for its end.")
        conversation_id = self._ids.conversation(wanted.session_id)
        if conversation_id is None:
            raise _unknown(wanted)
        session = EditorSession(wanted.session_id, _folder(wanted.cwd), conversation_id)
        session.turn = PromptTurn(self, session)  # neither a prompt nor a second load may come between
        self._sessions[session.id] = session
        active = ""
        try:
            async with self._connect(session.folder) as (client, folder):
                if conversation_id:
                    detail = await self._detail(wanted, session, client, folder)
                    runs = (run.id for run in detail.runs if run.state == "running")
                    active = await replay(self, session, client, detail) if replays else next(runs, "")
                await self._explain_servers(session, wanted)
                await self._learn_models(session, client)
        except BaseException:
            self._sessions.pop(session.id, None)
            if known is not None:
                self._sessions[session.id] = known
            raise
        session.turn = None
        if active and session.id in self._sessions:
            self._watch(session, active)
        return self._state(session)

    async def _detail(
        self, wanted: shapes.OpenSessionParams, session: EditorSession, client: AsyncClient, folder: str | None
    ) -> ConversationDetail:
        try:
            detail = await client.conversation(session.conversation_id)
        except CallFailed as error:
            raise _unknown(wanted) if error.code == NotFound.code else error from None
        if folder is not None and os.path.realpath(folder) != os.path.realpath(detail.workspace):
            raise RpcError(_INVALID, f"This session works in {detail.workspace}; open that folder to continue it.")
        session.workspace, session.title, session.mode = detail.workspace, detail.title, detail.mode
        session.model = detail.model or None
        return detail

    def _watch(self, session: EditorSession, run_id: str) -> None:
        """A run that another client started, or that this session's editor left."""
        session.turn = turn = PromptTurn(self, session)

        async def work() -> None:
            async with self._connect(session.folder) as (client, _):
                await turn.watch(client, run_id)

        async def watch() -> None:
            try:
                await turn.perform(work())
            except self._failures as error:
                self.log(str(error))
            finally:
                session.turn = None

        task = asyncio.ensure_future(watch())
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _list(self, params: Any) -> shapes.SessionList:
        wanted = _read(params, shapes.ListParams)
        if wanted.cursor and not (wanted.cursor.isascii() and wanted.cursor.isdecimal()):
            raise RpcError(_INVALID, f"There is no page {wanted.cursor[:100]!r}; list the sessions again.")
        skipped = int((wanted.cursor or "0")[:9])
        sessions: list[shapes.SessionEntry] = []
        names, number = self._ids.by_conversation(), 0
        here = wanted.cwd if wanted.cwd and os.path.isdir(wanted.cwd) else self._folder
        async with self._connect(here) as (client, _):
            async for entry in client.conversations():
                if wanted.cwd is not None and os.path.realpath(wanted.cwd) != entry.workspace:
                    continue
                number += 1
                if number <= skipped:
                    continue
                if len(sessions) == _PAGE:
                    return shapes.SessionList(sessions=sessions, next_cursor=str(skipped + _PAGE))
                sessions.append(
                    shapes.SessionEntry(
                        session_id=names.get(entry.id, entry.id),
                        cwd=entry.workspace,
                        title=entry.title,
                        updated_at=entry.updated,
                    )
                )
        return shapes.SessionList(sessions=sessions)

    async def _close_session(self, params: Any) -> dict[str, Any]:
        session = self._session(_read(params, shapes.SessionParams).session_id)
        if session.turn is not None:
            await session.turn.leave()
        self._sessions.pop(session.id, None)
        return {}

    async def _delete(self, params: Any) -> dict[str, Any]:
        id = _read(params, shapes.SessionParams).session_id
        known, conversation_id = self._sessions.pop(id, None), self._ids.conversation(id)
        if known is not None and known.turn is not None:
            await known.turn.leave()
        if conversation_id:
            async with self._connect(known.folder if known is not None else self._folder) as (client, _):
                try:
                    await client.delete_conversation(conversation_id)
                except CallFailed as error:
                    if error.code != NotFound.code:  # as the protocol wants it: it may be deleted already
                        raise
        return {}

    def _note(self, session: EditorSession) -> None:
        with suppress(OSError):  # the session cannot be loaded later, but goes on
            self._ids.note(session.id, session.conversation_id)

    def _session(self, id: str) -> EditorSession:
        session = self._sessions.get(id)
        if session is None:
            raise RpcError(_NOT_FOUND, f"The session {id[:100]!r} is not open; load it first, or start a new one.")
        return session

    async def _explain_servers(self, session: EditorSession, wanted: shapes.NewSessionParams) -> None:
        """The client's MCP servers are not used: a gateway may run on another machine, for other people, too."""
        if not wanted.mcp_servers:
            return
        names = ", ".join(server.name or "one" for server in wanted.mcp_servers)
        title = f"The agent does not use the editor's MCP servers ({names})."
        description = "Configure them in .cursor/mcp.json of the project, or in ~/.cursor/mcp.json."
        self.log(f"{title} {description}")
        if self.capabilities.has_notices:
            await self.update(session.id, shapes.NoticeUpdate(severity="warning", title=title, description=description))

    # --- prompts --------------------------------------------------------------------------------------

    async def _prompt(self, params: Any) -> shapes.PromptResult:
        wanted = _read(params, shapes.PromptParams)
        session = self._session(wanted.session_id)
        if session.turn is not None:
            raise RpcError(_INVALID_REQUEST, "The agent is still working in this session; cancel that first, or wait.")
        try:
            prompt = read_prompt(wanted.prompt, session.folder)
        except UnusablePrompt as error:
            raise RpcError(_INVALID, str(error)) from None
        session.turn = turn = PromptTurn(self, session)

        def begun(conversation_id: str) -> None:
            if session.conversation_id != conversation_id:
                session.conversation_id = conversation_id
                self._note(session)

        async def work() -> None:
            async with self._connect(session.folder) as (client, folder):
                try:
                    await turn.send(client, prompt, folder, begun)
                except CallFailed as error:
                    if error.code != RunCancelled.code:  # as by somebody at the page
                        raise
                    turn.is_cancelled = True
                await self._learn_title(session, client)

        try:
            await turn.perform(work())
        finally:
            session.turn = None
        return shapes.PromptResult(
            stop_reason="cancelled" if turn.is_cancelled else "end_turn", usage=turn.usage or UNSET
        )

    async def _learn_title(self, session: EditorSession, client: AsyncClient) -> None:
        with suppress(CallFailed):  # costs the title
            async for entry in client.conversations(limit=1):  # the one that was used last
                if entry.id == session.conversation_id:
                    session.workspace = entry.workspace
                    if session.title != entry.title:
                        session.title = entry.title
                        await self.update(
                            session.id, shapes.SessionInfoUpdate(title=entry.title, updated_at=entry.updated)
                        )

    # --- modes and models -----------------------------------------------------------------------------

    async def _learn_models(self, session: EditorSession, client: AsyncClient) -> None:
        try:
            session.models = await client.models()
        except CallFailed as error:  # the first prompt says it, too
            self.log(f"The models are not known: {error}")
            return
        if all(model.id != session.model for model in session.models):  # it is gone, or a name of another client's
            session.model = None

    async def _set_mode(self, params: Any) -> dict[str, Any]:
        wanted = _read(params, shapes.SetModeParams)
        session = self._session(wanted.session_id)
        self._choose_mode(session, wanted.mode_id)
        await self.update(session.id, shapes.ConfigUpdate(config_options=self._state(session).config_options))
        return {}

    async def _set_config(self, params: Any) -> shapes.ConfigResult:
        wanted = _read(params, shapes.SetConfigParams)
        session = self._session(wanted.session_id)
        match wanted.config_id:
            case "mode":
                self._choose_mode(session, wanted.value)
                await self.update(session.id, shapes.ModeUpdate(current_mode_id=wanted.value))
            case "model":
                if session.models and all(model.id != wanted.value for model in session.models):
                    raise RpcError(_INVALID, f"There is no model {wanted.value[:100]!r}; see `cursor-gateway models`.")
                session.model = wanted.value
            case unknown:
                raise RpcError(_INVALID, f"There is no option {unknown[:100]!r}; use `mode` or `model`.")
        return shapes.ConfigResult(config_options=self._state(session).config_options)

    def _choose_mode(self, session: EditorSession, wanted: str) -> None:
        mode = next((mode for mode in MODES if mode == wanted), None)
        if mode is None:
            raise RpcError(_INVALID, f"There is no mode {wanted[:100]!r}; use one of {', '.join(MODES)}.")
        session.mode = mode

    def _state(self, session: EditorSession) -> shapes.SessionState:
        mode = session.mode or self._default_mode
        modes = [shapes.ModeEntry(id=id, name=name, description=about) for id, (name, about) in _MODES.items()]
        options = [
            shapes.ConfigOption(
                id="mode",
                name="Mode",
                category="mode",
                current_value=mode,
                options=[shapes.ConfigValue(value=one.id, name=one.name, description=one.description) for one in modes],
            )
        ]
        if session.models:
            default = next((one.id for one in session.models if one.default), session.models[0].id)
            options.append(
                shapes.ConfigOption(
                    id="model",
                    name="Model",
                    category="model",
                    current_value=session.model or default,
                    options=[shapes.ConfigValue(value=one.id, name=one.name or one.id) for one in session.models],
                )
            )
        return shapes.SessionState(
            modes=shapes.ModeState(current_mode_id=mode, available_modes=modes), config_options=options
        )


def _read(params: Any, shape: type[_Params]) -> _Params:
    """Raises `msgspec.ValidationError`."""
    return msgspec.convert(params, shape)


def _unknown(wanted: shapes.OpenSessionParams) -> RpcError:
    return RpcError(_NOT_FOUND, f"Unknown session {wanted.session_id[:100]!r}; start a new one.")


def _folder(path: str) -> str:
    if not os.path.isabs(path):
        raise RpcError(_INVALID, f"`cwd` must be an absolute path, not {path[:100]!r}.")
    if not os.path.isdir(path):
        raise RpcError(_INVALID, f"The folder {path!r} does not exist; open one that does.")
    return path
