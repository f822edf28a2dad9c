"""Run turns in long-lived agents, over ACP."""

import asyncio
import base64
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from mimetypes import guess_type
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.model.agent_events import AgentEvent, PromptEchoed, RunFailed, RunStarted, TokenCounts
from cursor_gateway.sources import leftovers
from cursor_gateway.sources.acp.connection import AgentConnection, PreparedSession, Session, no_acp, refusal_of
from cursor_gateway.sources.acp.models import Choice, candidates, nearest_variants, settings_for
from cursor_gateway.sources.acp.pool import Pool, PoolOptions, PoolPlace
from cursor_gateway.sources.acp.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from cursor_gateway.sources.acp.running import AcpPolicy, RunningTurn
from cursor_gateway.sources.base import LONGEST_LINE, TOOLS_SERVER, Model, Source, SourceState, Turn
from cursor_gateway.sources.cursor.ask_user import UserTool
from cursor_gateway.sources.cursor.command import CommandOptions, Program, environment_for, operator_flags
from cursor_gateway.sources.cursor.configuration import (
    ALLOWED_TOOLS,
    agent_files,
    check_confinable,
    configuration_of,
    confine,
    copy_configuration,
    use_http1,
    user_configuration,
    without_proxy,
)
from cursor_gateway.sources.cursor.program import InstalledAgent
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.private_files import data_of, read_private
from cursor_gateway.sources.process import start_with_stdin
from cursor_gateway.sources.processes import end_commands
from cursor_gateway.wire.payload import Fields

if TYPE_CHECKING:
    from cursor_gateway.sources.agent_user import AgentUser
    from cursor_gateway.sources.tool_endpoint import ToolEndpoint

_log = logging.getLogger(__name__)

_MODES = {"agent": "agent", "debug": "agent", "plan": "plan", "ask": "ask"}  # `debug` is a preamble in the prompt
_LARGEST_IMAGE = 20 * 1024 * 1024
_MOST_LOST = 1000  # a conversation whose session is lost gets a new one, so a few would do


class AcpOptions(Struct, frozen=True, kw_only=True):
    user: "AgentUser | None" = None  # None: the gateway's own
    command: CommandOptions = CommandOptions()
    environment: Sequence[str] = ()  # extra variable names to pass on
    pool: PoolOptions = PoolOptions()
    start_seconds: float = 30.0  # for an agent to start and initialize
    retry_seconds: float = 60.0  # after which an agent that did not understand ACP is started again
    session_seconds: float = 30.0  # to create, load or configure a session
    spare_seconds: float = 0.0  # how long a session that was opened in advance may be used; 0: none is
    grace_seconds: float = 2.0
    max_output_bytes: int = 256 * 1024 * 1024  # per turn
    permissions: Literal["deny", "ask"] = "deny"  # for what no rule allows
    allow: Sequence[str] = ()  # rules as in the CLI's configuration
    may_prepare: Callable[[str], bool] = lambda workspace: True  # whether a session may be opened there in advance


class CursorAcpSource(Source):
    holds_questions = True
    offers_tools = True
    tools_server = TOOLS_SERVER

    def __init__(
        self,
        options: AcpOptions,
        agent: InstalledAgent,
        folder: Path,
        environ: Mapping[str, str],
        ledger: Ledger,
        tool_servers: "ToolEndpoint | None" = None,
    ) -> None:
        """`agent` finds the program and lists its models; `folder` is for the agents' configurations.

        Without `tool_servers`, the agent has no tool for questions.
        """
        self._options, self._agent, self._folder, self._environ, self._ledger = options, agent, folder, environ, ledger
        self._tool_servers = tool_servers
        self._program: Program | None = None
        self._failed: tuple[Program, float, str] | None = None  # the last one without ACP, when, and what it said
        self._pool = Pool(self._start, options.pool)
        self._preparing: set[asyncio.Task[None]] = set()  # sessions
        self._lost: deque[str] = deque(maxlen=_MOST_LOST)  # sessions that the agent no longer has
        self._policy = AcpPolicy(
            allow=options.allow,
            ask=options.permissions == "ask",
            has_key=bool(environ.get("CURSOR_API_KEY")),
            max_output_bytes=options.max_output_bytes,
        )

    def state(self) -> SourceState:
        detail = "cursor-agent acp, not probed yet"
        if self._program is not None:
            count = len(self._pool.pids)
            detail = f"cursor-agent {self._program.version} acp ({self._program.path}), {count} running"
        return SourceState(name="acp", detail=detail, missing=self._agent.missing)

    async def models(self) -> list[Model]:
        """The CLI's models: both sources use the same names, which are translated for each turn."""
        return await self._agent.models()

    def has_session(self, turn: Turn) -> bool:
        """Only loading the session shows for certain; the run then fails with `SessionLost`."""
        return turn.session_id not in self._lost

    def account(self) -> Hashable:
        return self._agent.account()

    def check_model(self, model: str) -> None:
        self._agent.check_model(model)

    @property
    def pids(self) -> list[int]:
        """The pids of the pool's agents."""
        return self._pool.pids

    def warm_up(self, workspace: str) -> None:
        """Starts an agent in advance. If that fails, the next request reports it."""
        self._pool.warm_up(workspace)

    async def close(self) -> None:
        """Does not close the CLI's source, which has its own owner."""
        await self._pool.close()
        if self._preparing:
            await asyncio.wait(self._preparing)
        if self._tool_servers is not None:
            await self._tool_servers.close()

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        """Errors before the first event are raised, so that another source may take the turn."""
        try:
            place, session, is_warm = await self._open_turn(turn)
        except errors.SessionLost as error:
            self._lost.append(turn.session_id or "")
            yield [RunFailed(failure=error.failure())]
            return
        running = RunningTurn(turn, session, self._policy)
        try:
            running.send(place.connection, await asyncio.to_thread(_prompt, turn))  # it reads and encodes images
            label = session.models.label or turn.model
            beginning: list[AgentEvent] = [RunStarted(session.id, label, is_warm=is_warm), PromptEchoed(turn.prompt)]
            async for batch in running.batches():
                if beginning:
                    self._prepare_session(place.connection, turn)
                yield [*beginning, *batch]
                beginning = []
        finally:
            # If this is cancelled again, the release continues in the background.
            await asyncio.wait([self._pool.run_in_background(self._leave(place, running, session))])

    async def _leave(self, place: PoolPlace, running: RunningTurn, session: Session) -> None:
        connection, seconds = place.connection, self._options.grace_seconds
        is_stuck = await running.stop(connection, seconds)
        try:
            if not is_stuck:
                await end_commands(connection.pid, session.id, is_alone=lambda: connection.is_idle, seconds=seconds)
        finally:
            await place.release(is_stuck)

    async def _open_turn(self, turn: Turn) -> tuple[PoolPlace, Session, bool]:
        """And whether both were ready. An agent that died while idle is only noticed here, so another one is tried."""
        for is_last in (turn.offered is not None, True):
            pids = self._pool.pids
            place = await self._place(turn)
            try:
                session, is_warm = await self._session(place, turn)
                if turn.offered is None:  # a shared agent keeps its sessions outside the conversation's folder
                    self._pool.remember(session.id, place.slot)
                    noted = leftovers.NotedSession("acp", session.id, turn.workspace)
                    leftovers.note_session(Path(turn.folder), data_of(turn.folder), noted)
                return place, session, is_warm and place.connection.pid in pids
            except BaseException as error:
                is_stuck = (
                    None if isinstance(error, asyncio.CancelledError) else isinstance(error, errors.AgentTimedOut)
                )
                await asyncio.wait([self._pool.run_in_background(place.release(is_stuck))])
                if is_last or not isinstance(error, errors.AgentCrashed):
                    raise
        raise AssertionError("the last attempt raises or returns")

    async def forget(self, folder: str) -> bool:
        """First ends the agents that have loaded the sessions: they would write them again."""
        ids = {session.id for session in leftovers.noted_sessions(Path(folder), "acp")}
        if not ids:
            return True
        await self._pool.forget(ids)
        is_done = await asyncio.to_thread(leftovers.delete_sessions, ids, self._folder.glob("*"))
        return (
            await asyncio.to_thread(leftovers.delete_users_sessions, ids, self._environ, self._options.user) and is_done
        )

    # --- agents -------------------------------------------------------------------------------------

    async def _place(self, turn: Turn) -> PoolPlace:
        """With the caller's tools, an agent for this run only: their address differs for each run."""
        if turn.offered is None:
            return await self._pool.place(turn.workspace, turn.model, turn.session_id, turn.is_waiting, _purpose(turn))
        program = await self._probe()
        check_confinable(program)
        workspace = confine(turn, turn.offered, user_configuration(self._environ))
        if self._options.command.http1:
            use_http1(configuration_of(turn), data_of(turn.folder))
        environment = without_proxy(self._environment(configuration_of(turn)))
        connection = await self._open(program, ALLOWED_TOOLS, workspace, environment)
        return PoolPlace(connection, workspace, lambda is_stuck: connection.end())

    async def _start(self, workspace: str, slot: int) -> AgentConnection:
        program = await self._probe()
        configuration = self._folder / str(slot)
        copy_configuration(user_configuration(self._environ), configuration, self._folder.parent)
        if self._options.command.http1:
            use_http1(configuration, self._folder.parent)
        return await self._open(program, (), workspace, without_proxy(self._environment(str(configuration))))

    async def _open(
        self, program: Program, allowed_tools: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> AgentConnection:
        if (known := no_acp(program) or self._recent_failure(program)) is not None:
            raise known
        flags = operator_flags(program, self._options.command, allowed_tools)
        process, stdin = await start_with_stdin(
            [*program.command, *flags, "acp"],
            folder=folder,
            environment=environment,
            on_gone=self._ledger.remove,
            cgroup=self._ledger.new_cgroup(),
        )
        longest = min(LONGEST_LINE, self._options.max_output_bytes)
        connection = AgentConnection(process, stdin, longest, self._options.grace_seconds)
        connection.closing.append(partial(self._delete_unused, connection))
        try:
            self._ledger.add(process.pid)
            await connection.initialize(self._options.start_seconds)
        except BaseException as error:
            if isinstance(error, errors.AgentMisconfigured):
                self._failed = program, asyncio.get_running_loop().time(), str(error)
            await asyncio.wait([self._pool.run_in_background(connection.end())])
            raise
        return connection

    def _recent_failure(self, program: Program) -> errors.AgentError | None:
        """An agent that does not understand ACP will not a moment later; another source can answer at once."""
        if self._failed is None:
            return None
        failed, at, message = self._failed
        is_recent = asyncio.get_running_loop().time() - at < self._options.retry_seconds
        return errors.AgentMisconfigured(message) if is_recent and failed == program else None

    async def _probe(self) -> Program:
        self._program = await self._agent.probe()
        return self._program

    def _environment(self, config_dir: str) -> dict[str, str]:
        user = self._options.user
        environ = self._environ if user is None else user.environment(self._environ)
        return environment_for(environ, self._options.environment, config_dir)

    # --- sessions -----------------------------------------------------------------------------------

    async def _session(self, place: PoolPlace, turn: Turn) -> tuple[Session, bool]:
        """And whether it was open before.

        Raises an `AgentError`; `SessionLost` if the agent no longer has the session.
        """
        connection = place.connection
        try:
            session = connection.sessions.get(turn.session_id or "")
            is_open = session is not None or self._is_prepared(connection, turn)
            if session is None:
                session = await self._take_prepared(connection, turn)
            if session is None:
                session, is_open = await self._open_session(connection, turn, place.workspace), False
            connection.sessions[session.id] = session
            await self._configure(connection, session, turn)
        except RpcError as refused:
            raise refusal_of(refused, has_key=self._policy.has_key) from refused
        return session, is_open

    async def _configure(self, connection: AgentConnection, session: Session, turn: Turn) -> None:
        await self._set_mode(connection, session, _MODES[turn.mode])
        await self._set_model(connection, session, turn.model)

    def _prepare_session(self, connection: AgentConnection, turn: Turn) -> None:
        """Opens a session for the next conversation of this kind, if there is none. Returns at once."""
        if not self._options.spare_seconds or turn.offered is not None:
            return
        loop, prepared = asyncio.get_running_loop(), connection.prepared.get(_purpose(turn))
        if prepared is None or prepared.until <= loop.time():
            task = loop.create_task(self._open_prepared(connection, turn), name="acp prepared session")
            self._preparing.add(task)
            task.add_done_callback(self._preparing.discard)

    async def _open_prepared(self, connection: AgentConnection, turn: Turn) -> None:
        files = await asyncio.to_thread(agent_files, self._environ, turn.workspace)
        may_prepare = await asyncio.to_thread(self._options.may_prepare, turn.workspace)
        if files is None or not may_prepare or connection.is_gone:
            return

        async def open_session() -> Session:
            session = await self._open_session(connection, replace(turn, session_id=None), turn.workspace)
            connection.unused.add(session.id)
            await self._configure(connection, session, turn)
            return session

        loop = asyncio.get_running_loop()
        opening = loop.create_task(open_session(), name="acp session/new")
        until = loop.time() + self._options.spare_seconds
        connection.prepared[_purpose(turn)] = PreparedSession(opening, files, until)
        await asyncio.wait([opening])
        has_failed = opening.cancelled() or opening.exception() is not None
        left = connection.prepared.get(_purpose(turn))
        if has_failed and left is not None and left.opening is opening:  # the next conversation opens its own
            del connection.prepared[_purpose(turn)]

    async def _take_prepared(self, connection: AgentConnection, turn: Turn) -> Session | None:
        """The session that was opened in advance, if nothing has changed that its agent may have read."""
        prepared = None if turn.session_id is not None else connection.prepared.pop(_purpose(turn), None)
        if prepared is None or prepared.until <= asyncio.get_running_loop().time():
            return None
        if await asyncio.to_thread(agent_files, self._environ, turn.workspace) != prepared.files:
            return None
        await asyncio.wait([prepared.opening])
        if prepared.opening.cancelled() or prepared.opening.exception() is not None:
            return None
        session = prepared.opening.result()
        connection.unused.discard(session.id)
        return session

    def _is_prepared(self, connection: AgentConnection, turn: Turn) -> bool:
        prepared = connection.prepared.get(_purpose(turn))
        return turn.session_id is None and prepared is not None and prepared.opening.done()

    def _delete_unused(self, connection: AgentConnection) -> None:
        """After the agent has ended."""
        if ids := frozenset(connection.unused):
            self._pool.run_in_background(asyncio.to_thread(leftovers.delete_sessions, ids, [*self._folder.glob("*")]))

    async def _open_session(self, connection: AgentConnection, turn: Turn, workspace: str) -> Session:
        user_tool, servers = await self._servers(connection, turn)
        params: dict[str, Any] = {"cwd": workspace, "mcpServers": servers}
        if turn.session_id is None:
            made = Fields(await connection.request("session/new", params, self._options.session_seconds))
            return _session_of(made.text("sessionId"), made, TokenCounts(prompt=0, completion=0), user_tool)
        try:  # the agent replays the history, which has no listener
            params["sessionId"] = turn.session_id
            loaded = await connection.request("session/load", params, self._options.session_seconds)
        except RpcError as refused:
            if refused.code == INVALID_PARAMS or "not found" in str(refused):
                raise errors.SessionLost(
                    "The agent no longer has this session; start a new conversation.", details=str(refused)
                ) from refused
            raise
        return _session_of(turn.session_id, Fields(loaded), None, user_tool)

    async def _servers(self, connection: AgentConnection, turn: Turn) -> tuple[UserTool | None, list[dict[str, Any]]]:
        """The MCP servers of a session: with the caller's tools, or with the tool that asks the user."""
        if turn.offered is not None:
            return None, [_server(turn.offered.server, turn.offered.url)] if turn.offered.url else []
        if turn.person is None or self._tool_servers is None:
            return None, []
        try:
            await self._tool_servers.open()
        except errors.GatewayError as error:  # the agent can work without it
            _log.warning("the agent cannot ask questions: %s", error)
            return None, []
        tool = UserTool(f"user_{token_hex(6)}")
        url = self._tool_servers.offer(tool)
        connection.closing.append(partial(self._tool_servers.withdraw, url))
        return tool, [_server(tool.server, url)]

    async def _set_mode(self, connection: AgentConnection, session: Session, mode: str) -> None:
        if session.mode != mode:
            params = {"sessionId": session.id, "modeId": mode}
            await connection.request("session/set_mode", params, self._options.session_seconds)
            session.mode = mode

    async def _set_model(self, connection: AgentConnection, session: Session, wanted: str) -> None:
        """Raises `ModelUnavailable` if this very variant cannot be had."""
        models = session.models
        known = models.names or {"default" if wanted == "auto" else wanted: ""}
        for id, rest in candidates(wanted, known):
            if "[" in id and settings_for(id, rest, {}) is None:
                continue
            try:
                if models.model != id:
                    await self._choose(connection, session, "model", id)
                    models.model = id
                settings = settings_for(id, rest, models.options)
                for option, value in (settings or {}).items():
                    if option in models.options and models.options[option].current != value:
                        await self._choose(connection, session, option, value)
            except RpcError as refused:
                if refused.code != INVALID_PARAMS:
                    raise
                settings = None
            if settings is not None:
                return
        raise errors.unknown_model(wanted, nearest_variants(wanted, models))

    async def _choose(self, connection: AgentConnection, session: Session, option: str, value: str) -> None:
        seconds, id = self._options.session_seconds, session.id
        try:
            params = {"sessionId": id, "configId": option, "value": value}
            answer = await connection.request("session/set_config_option", params, seconds)
            session.models.learn(Fields(answer))
        except RpcError as refused:
            if refused.code != METHOD_NOT_FOUND or option != "model":
                raise
            await connection.request("session/set_model", {"sessionId": id, "modelId": value}, seconds)


def _purpose(turn: Turn) -> Hashable:
    """Of a prepared session. The agent has the workspace, the model and the environment."""
    return turn.owner, _MODES[turn.mode], turn.person is not None, turn.workspace, turn.model


def _server(name: str, url: str) -> dict[str, Any]:
    return {"type": "http", "name": name, "url": url, "headers": []}


def _session_of(id: str, made: Fields, spent: TokenCounts | None, user_tool: UserTool | None) -> Session:
    models = Choice()
    models.learn(made)
    return Session(id, made.object("modes").text("currentModeId") or "agent", models, spent, user_tool)


def _prompt(turn: Turn) -> list[dict[str, Any]]:
    """The text, and the images it mentions: ACP can send them inline."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.prompt}]
    folder = Path(turn.folder) / "images"
    for image in sorted(folder.iterdir()) if folder.is_dir() else []:
        kind = guess_type(image.name)[0] or ""
        if kind.startswith("image/") and str(image) in turn.prompt:
            with suppress(OSError):  # a link, or too large
                data = base64.b64encode(read_private(data_of(turn.folder), image, _LARGEST_IMAGE)).decode()
                blocks.append({"type": "image", "mimeType": kind, "data": data})
    return blocks
