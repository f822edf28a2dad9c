"""Run turns in long-lived agents, over ACP."""

import asyncio
import base64
from collections import deque
from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from cursor_gateway.errors import AgentCrashed, AgentError, AgentTimedOut, SessionLost, SettingsError, unknown_model
from cursor_gateway.model.agent_events import AgentEvent, PromptEchoed, RunFailed, RunStarted, TokenCounts
from cursor_gateway.sources.acp.connection import AgentConnection, Refused, Session
from cursor_gateway.sources.acp.models import acp_model
from cursor_gateway.sources.acp.pool import Place, Pool, PoolOptions
from cursor_gateway.sources.acp.process import start_with_stdin
from cursor_gateway.sources.acp.running import Policy, RunningTurn
from cursor_gateway.sources.base import LONGEST_LINE, TOOLS_SERVER, Model, Source, SourceState, Turn
from cursor_gateway.sources.cursor.command import CommandOptions, Program, environment_for, operator_flags
from cursor_gateway.sources.cursor.configuration import copy_configuration, user_configuration
from cursor_gateway.sources.cursor.confinement import (
    ALLOWED_TOOLS,
    check_confinable,
    configuration_of,
    confine,
    without_proxy,
)
from cursor_gateway.sources.cursor.failures import nearest_names
from cursor_gateway.sources.cursor.program import InstalledAgent
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.leftovers import (
    NotedSession,
    delete_sessions,
    delete_users_sessions,
    note_session,
    noted_sessions,
)
from cursor_gateway.sources.private_files import data_of, read_private
from cursor_gateway.wire.payload import Fields

if TYPE_CHECKING:
    from cursor_gateway.sources.agent_user import AgentUser

_MODES = {"agent": "agent", "debug": "agent", "plan": "plan", "ask": "ask"}  # `debug` is a preamble in the prompt
_LARGEST_IMAGE = 20 * 1024 * 1024
_MOST_LOST = 1000  # a conversation whose session is lost gets a new one, so a few would do


class AcpOptions(Struct, frozen=True, kw_only=True):
    user: "AgentUser | None" = None  # None: the gateway's own
    command: CommandOptions = CommandOptions()
    environment: Sequence[str] = ()  # extra variable names to pass on
    pool: PoolOptions = PoolOptions()
    start_seconds: float = 30.0  # for an agent to start and initialize
    session_seconds: float = 30.0  # to create, load or configure a session
    grace_seconds: float = 2.0
    max_output_bytes: int = 256 * 1024 * 1024  # per turn
    permissions: Literal["deny", "ask"] = "deny"  # for what no rule allows
    allow: Sequence[str] = ()  # rules as in the CLI's configuration


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
    ) -> None:
        """`agent` finds the program and lists its models; `folder` is for the agents' configurations.

        Raises `SettingsError` if the package is not installed.
        """
        if find_spec("acp") is None:
            raise SettingsError(
                "`source = acp` needs the package agent-client-protocol; run `pip install cursor-gateway[acp]`.",
                param="source",
            )
        self._options, self._agent, self._folder, self._environ, self._ledger = options, agent, folder, environ, ledger
        self._program: Program | None = None
        self._pool = Pool(self._start, options.pool)
        self._lost: deque[str] = deque(maxlen=_MOST_LOST)  # sessions that the agent no longer has
        self._policy = Policy(
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

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        """Errors before the first event are raised, so that another source may take the turn."""
        try:
            place, session = await self._open_turn(turn)
        except SessionLost as error:
            self._lost.append(turn.session_id or "")
            yield [RunFailed(failure=error.failure())]
            return
        running = RunningTurn(turn, session, self._policy)
        try:
            running.send(place.connection, await asyncio.to_thread(_prompt, turn))  # it reads and encodes images
            label = session.names.get(session.model) or turn.model
            beginning: list[AgentEvent] = [RunStarted(session.id, label), PromptEchoed(turn.prompt)]
            async for batch in running.batches():
                yield [*beginning, *batch]
                beginning = []
        finally:
            # If this is cancelled again, the release continues in the background.
            await asyncio.wait([self._pool.run_in_background(self._leave(place, running))])

    async def _leave(self, place: Place, running: RunningTurn) -> None:
        await place.release(await running.stop(place.connection, self._options.grace_seconds))

    async def _open_turn(self, turn: Turn) -> tuple[Place, Session]:
        """An agent that died while idle is only noticed here, so another one is tried."""
        for is_last in (turn.offered is not None, True):
            place = await self._place(turn)
            try:
                session = await self._session(place, turn)
                if turn.offered is None:  # a shared agent keeps its sessions outside the conversation's folder
                    self._pool.remember(session.id, place.slot)
                    noted = NotedSession("acp", session.id, turn.workspace)
                    note_session(Path(turn.folder), data_of(turn.folder), noted)
                return place, session
            except BaseException as error:
                is_stuck = None if isinstance(error, asyncio.CancelledError) else isinstance(error, AgentTimedOut)
                await asyncio.wait([self._pool.run_in_background(place.release(is_stuck))])
                if is_last or not isinstance(error, AgentCrashed):
                    raise
        raise AssertionError("the last attempt raises or returns")

    async def forget(self, folder: str) -> bool:
        """First ends the agents that have loaded the sessions: they would write them again."""
        ids = {session.id for session in noted_sessions(Path(folder), "acp")}
        if not ids:
            return True
        await self._pool.forget(ids)
        is_done = await asyncio.to_thread(delete_sessions, ids, self._folder.glob("*"))
        return await asyncio.to_thread(delete_users_sessions, ids, self._environ, self._options.user) and is_done

    # --- agents -------------------------------------------------------------------------------------

    async def _place(self, turn: Turn) -> Place:
        """With the caller's tools, an agent for this run only: their address differs for each run."""
        if turn.offered is None:
            return await self._pool.place(turn.workspace, turn.session_id)
        program = await self._probe()
        check_confinable(program)
        workspace = confine(turn, turn.offered, user_configuration(self._environ))
        environment = without_proxy(self._environment(configuration_of(turn)))
        connection = await self._open(program, ALLOWED_TOOLS, workspace, environment)
        return Place(connection, workspace, lambda is_stuck: connection.end())

    async def _start(self, workspace: str, slot: int) -> AgentConnection:
        program = await self._probe()
        configuration = self._folder / str(slot)
        copy_configuration(user_configuration(self._environ), configuration, self._folder.parent)
        return await self._open(program, (), workspace, self._environment(str(configuration)))

    async def _open(
        self, program: Program, allowed_tools: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> AgentConnection:
        await asyncio.to_thread(_load)
        flags = operator_flags(program, self._options.command, allowed_tools)
        process, stdin = await start_with_stdin(
            [*program.command, *flags, "acp"], folder=folder, environment=environment, on_gone=self._ledger.remove
        )
        longest = min(LONGEST_LINE, self._options.max_output_bytes)
        connection = AgentConnection(process, stdin, longest, self._options.grace_seconds)
        try:
            self._ledger.add(process.pid)
            await connection.initialize(self._options.start_seconds)
        except BaseException:
            await asyncio.wait([self._pool.run_in_background(connection.end())])
            raise
        return connection

    async def _probe(self) -> Program:
        self._program = await self._agent.probe()
        return self._program

    def _environment(self, config_dir: str) -> dict[str, str]:
        user = self._options.user
        environ = self._environ if user is None else user.environment(self._environ)
        return environment_for(environ, self._options.environment, config_dir)

    # --- sessions -----------------------------------------------------------------------------------

    async def _session(self, place: Place, turn: Turn) -> Session:
        """Raises an `AgentError`; `SessionLost` if the agent no longer has the session."""
        connection = place.connection
        try:
            session = connection.sessions.get(turn.session_id or "")
            if session is None:
                session = await self._open_session(connection, turn, place.workspace)
                connection.sessions[session.id] = session
            await self._set_mode(connection, session, _MODES[turn.mode])
            await self._set_model(connection, session, turn.model)
        except Refused as refused:
            raise refused.error(self._policy.has_key) from refused
        return session

    async def _open_session(self, connection: AgentConnection, turn: Turn, workspace: str) -> Session:
        servers: list[dict[str, Any]] = []
        if turn.offered is not None and turn.offered.url:
            servers = [{"type": "http", "name": turn.offered.server, "url": turn.offered.url, "headers": []}]
        params: dict[str, Any] = {"cwd": workspace, "mcpServers": servers}
        if turn.session_id is None:
            made = Fields(await connection.request("session/new", params, self._options.session_seconds))
            return _session_of(made.text("sessionId"), made, TokenCounts(prompt=0, completion=0))
        try:  # the agent replays the history, which has no listener
            params["sessionId"] = turn.session_id
            loaded = await connection.request("session/load", params, self._options.session_seconds)
        except Refused as refused:
            if refused.is_invalid or "not found" in str(refused):
                raise SessionLost(
                    "The agent no longer has this session; start a new conversation.", details=str(refused)
                ) from refused
            raise
        return _session_of(turn.session_id, Fields(loaded), None)

    async def _set_mode(self, connection: AgentConnection, session: Session, mode: str) -> None:
        if session.mode != mode:
            params = {"sessionId": session.id, "modeId": mode}
            await connection.request("session/set_mode", params, self._options.session_seconds)
            session.mode = mode

    async def _set_model(self, connection: AgentConnection, session: Session, wanted: str) -> None:
        model = acp_model(wanted, list(session.names))
        if model is None and session.names and "[" not in wanted:
            raise _no_such_model(wanted, session)
        model = model or ("default" if wanted == "auto" else wanted)
        if session.model == model:
            return
        seconds, id = self._options.session_seconds, session.id
        try:
            try:
                option = {"sessionId": id, "configId": "model", "value": model}
                await connection.request("session/set_config_option", option, seconds)
            except Refused as refused:
                if not refused.is_unknown_method:
                    raise
                await connection.request("session/set_model", {"sessionId": id, "modelId": model}, seconds)
        except Refused as refused:
            if refused.is_invalid:
                raise _no_such_model(wanted, session) from refused
            raise
        session.model = model


def _session_of(id: str, made: Fields, spent: TokenCounts | None) -> Session:
    models = made.object("models")
    names = {model.text("modelId"): model.text("name") for model in models.objects("availableModels")}
    mode = made.object("modes").text("currentModeId") or "agent"
    return Session(id, mode, models.text("currentModelId"), names, spent)


def _no_such_model(wanted: str, session: Session) -> AgentError:
    known = {id.partition("[")[0]: (name,) for id, name in session.names.items()}
    return unknown_model(wanted, nearest_names(wanted, known))


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


def _load() -> None:
    import acp.connection  # noqa: F401 -- takes most of a second, so it runs in a thread
