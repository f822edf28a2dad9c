"""Run turns in long-lived agents, over ACP."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from cursor_gateway.errors import AgentCrashed, AgentError, AgentTimedOut, SessionLost, SettingsError, unknown_model
from cursor_gateway.model.agent_events import AgentEvent, PromptEchoed, RunFailed, RunStarted, TokenCounts
from cursor_gateway.sources.acp.connection import AgentConnection, Refused, Session
from cursor_gateway.sources.acp.models import acp_model
from cursor_gateway.sources.acp.pool import Pool, PoolOptions
from cursor_gateway.sources.acp.process import InteractiveProcess
from cursor_gateway.sources.acp.running import Policy, RunningTurn
from cursor_gateway.sources.agent_user import AgentUser
from cursor_gateway.sources.base import LONGEST_LINE, TOOLS_SERVER, Model, SourceState, Turn
from cursor_gateway.sources.cursor.command import CommandOptions, Program, environment_for
from cursor_gateway.sources.cursor.configuration import copy_configuration, user_configuration
from cursor_gateway.sources.cursor.confinement import ALLOWED_TOOLS, check_confinable, confine, without_proxy
from cursor_gateway.sources.cursor.failures import nearest_names
from cursor_gateway.sources.cursor.program import InstalledAgent
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.leftovers import (
    NotedSession,
    delete_sessions,
    note_session,
    noted_sessions,
    user_folders,
)
from cursor_gateway.sources.private_files import data_of
from cursor_gateway.wire.payload import Fields

_MODES = {"agent": "agent", "debug": "agent", "plan": "plan", "ask": "ask"}  # `debug` is a preamble in the prompt
_LARGEST_IMAGE = 20 * 1024 * 1024


class AcpOptions(Struct, frozen=True, kw_only=True):
    user: AgentUser | None = None  # None: the gateway's own
    command: CommandOptions = CommandOptions()
    environment: Sequence[str] = ()  # extra variable names to pass on
    pool: PoolOptions = PoolOptions()
    start_seconds: float = 30.0  # for an agent to start and initialize
    session_seconds: float = 30.0  # to create, load or configure a session
    grace_seconds: float = 2.0
    max_output_bytes: int = 256 * 1024 * 1024  # per turn
    permissions: Literal["deny", "ask"] = "deny"  # for what no rule allows
    allow: Sequence[str] = ()  # rules as in the CLI's configuration


class CursorAcpSource:
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
        self._lost: set[str] = set()  # sessions that the agent no longer has
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
            seat, session = await self._open_turn(turn)
        except SessionLost as error:
            self._lost.add(turn.session_id or "")
            yield [RunFailed(failure=error.failure())]
            return
        try:
            prompt = await asyncio.to_thread(_prompt, turn)  # it reads and encodes images
            running = seat.begin(session, RunningTurn(turn, session, self._policy), prompt)
            label = session.names.get(session.model) or turn.model
            beginning: list[AgentEvent] = [RunStarted(session.id, label), PromptEchoed(turn.prompt)]
            async for batch in running.batches():
                yield [*beginning, *batch]
                beginning = []
        finally:
            # If this is cancelled again, the release continues in the background.
            await asyncio.wait([self._pool.run_in_background(seat.release())])

    async def _open_turn(self, turn: Turn) -> "tuple[_Seat, Session]":
        """An agent that died while idle is only noticed here, so another one is tried."""
        for is_last in (turn.offered is not None, True):
            place = await self._place(turn)
            seat = _Seat(place, self._options.grace_seconds)
            try:
                session = await self._session(place, turn)
                place.hosts(session.id)
                self._note(turn, session.id)
                return seat, session
            except BaseException as error:
                seat.is_stuck = isinstance(error, AgentTimedOut)
                seat.needs_check = isinstance(error, asyncio.CancelledError)
                await asyncio.wait([self._pool.run_in_background(seat.release())])
                if is_last or not isinstance(error, AgentCrashed):
                    raise
        raise AssertionError("the last attempt raises or returns")

    async def forget(self, folder: str) -> bool:
        """First ends the agents that have loaded the sessions: they would write them again."""
        ids = {session.id for session in noted_sessions(Path(folder), "acp")}
        if not ids:
            return True
        await self._pool.forget(ids)
        kept = list(self._folder.iterdir()) if self._folder.is_dir() else []
        return await asyncio.to_thread(delete_sessions, ids, [*kept, *user_folders(self._environ)])

    def _note(self, turn: Turn, session_id: str) -> None:
        """A shared agent keeps its sessions outside the conversation's folder."""
        if turn.offered is None:
            note_session(Path(turn.folder), data_of(turn.folder), NotedSession("acp", session_id, turn.workspace))

    # --- agents -------------------------------------------------------------------------------------

    async def _place(self, turn: Turn) -> "_AnyPlace":
        if turn.offered is None:
            return await self._pool.place(turn.workspace, turn.session_id)
        return await self._confined(turn)

    async def _confined(self, turn: Turn) -> "_AnyPlace":
        """An agent for this run only: the address of the caller's tools differs for each run."""
        assert turn.offered is not None
        program = await self._probe()
        check_confinable(program)
        confinement = confine(turn, turn.offered, user_configuration(self._environ))
        environment = without_proxy(self._environment(confinement.configuration))
        flags = ["--trust", "--approve-mcps", f"--allowed-tools={','.join(ALLOWED_TOOLS)}"]
        return _OwnPlace(await self._open(program, flags, confinement.workspace, environment), confinement.workspace)

    async def _start(self, workspace: str, slot: int) -> AgentConnection:
        program = await self._probe()
        configuration = self._folder / str(slot)
        copy_configuration(user_configuration(self._environ), configuration, self._folder.parent)
        options = self._options.command
        flags = ["--trust"] if options.trust and program.can("--trust") else []
        if options.force:
            flags.append("--force")
        return await self._open(program, flags, workspace, self._environment(str(configuration)))

    async def _open(
        self, program: Program, flags: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> AgentConnection:
        await asyncio.to_thread(_load)
        headers = [word for name, value in self._options.command.headers.items() for word in ("-H", f"{name}: {value}")]
        process, stdin = await InteractiveProcess.open(
            [*program.command, *flags, *headers, "acp"],
            folder=folder,
            environment=environment,
            on_gone=self._ledger.remove,
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

    async def _session(self, place: "_AnyPlace", turn: Turn) -> Session:
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
        model = acp_model(wanted, session.models)
        if model is None and session.models and "[" not in wanted:
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


class _AnyPlace(Protocol):
    connection: AgentConnection
    workspace: str  # of its turn

    async def release(self, is_stuck: bool, needs_check: bool) -> None: ...

    def hosts(self, session_id: str) -> None: ...


class _OwnPlace:
    """A place in an agent that serves one run only."""

    def __init__(self, connection: AgentConnection, workspace: str) -> None:
        self.connection, self.workspace = connection, workspace

    async def release(self, is_stuck: bool, needs_check: bool) -> None:
        await self.connection.end()

    def hosts(self, session_id: str) -> None:
        pass  # the session is in the conversation's own folder


class _Seat:
    """One turn in its place, released properly whatever happens."""

    def __init__(self, place: _AnyPlace, grace_seconds: float) -> None:
        self._place, self._grace_seconds = place, grace_seconds
        self.is_stuck = False  # the agent does not answer
        self.needs_check = False  # cancelled before it was known whether the agent answers
        self._session: Session | None = None
        self._running: RunningTurn | None = None
        self._prompt: asyncio.Task[Any] | None = None

    def begin(self, session: Session, running: RunningTurn, prompt: list[dict[str, Any]]) -> RunningTurn:
        self._place.connection.listen(session.id, running)
        self._session, self._running = session, running
        self._send(session, running, prompt)
        return running

    def _send(self, session: Session, running: RunningTurn, prompt: list[dict[str, Any]]) -> None:
        params = {"sessionId": session.id, "prompt": prompt}
        request = self._place.connection.request("session/prompt", params, None)
        self._prompt = asyncio.get_running_loop().create_task(request, name=f"acp prompt {session.id}")
        self._prompt.add_done_callback(lambda sent: self._answered(session, running, sent))

    def _answered(self, session: Session, running: RunningTurn, sent: "asyncio.Task[Any]") -> None:
        is_well = not sent.cancelled() and sent.exception() is None
        is_complete = is_well and Fields(sent.result()).text("stopReason") == "end_turn"
        if is_complete and (text := running.take_denials()):
            self._send(session, running, [{"type": "text", "text": text}])
        else:
            running.ended(sent)

    async def release(self) -> None:
        if self._session is not None and self._prompt is not None and self._running is not None:
            self._running.close()
            if not self._prompt.done():
                await self._cancel(self._session, self._prompt)
            self._place.connection.forget(self._session.id)
        await self._place.release(self.is_stuck, self.needs_check)

    async def _cancel(self, session: Session, prompt: "asyncio.Task[Any]") -> None:
        connection = self._place.connection
        await connection.notify("session/cancel", {"sessionId": session.id})
        await asyncio.wait([prompt], timeout=self._grace_seconds)
        if not prompt.done():
            self.is_stuck = True
            connection.sessions.pop(session.id, None)
            prompt.cancel()
            await asyncio.wait([prompt])


def _session_of(id: str, made: Fields, spent: TokenCounts | None) -> Session:
    models = made.object("models")
    names = {model.text("modelId"): model.text("name") for model in models.objects("availableModels")}
    mode = made.object("modes").text("currentModeId") or "agent"
    return Session(id, mode, models.text("currentModelId"), list(names), names, spent)


def _no_such_model(wanted: str, session: Session) -> AgentError:
    known = {id.partition("[")[0]: (name,) for id, name in session.names.items()}
    return unknown_model(wanted, nearest_names(wanted, known))


def _prompt(turn: Turn) -> list[dict[str, Any]]:
    """The text, and the images it mentions: ACP can send them inline."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.prompt}]
    folder = Path(turn.folder) / "images"
    for image in sorted(folder.iterdir()) if folder.is_dir() else []:
        kind = guess_type(image.name)[0] or ""
        if kind.startswith("image/") and str(image) in turn.prompt and image.stat().st_size <= _LARGEST_IMAGE:
            data = base64.b64encode(image.read_bytes()).decode()
            blocks.append({"type": "image", "mimeType": kind, "data": data})
    return blocks


def _load() -> None:
    import acp.connection  # noqa: F401 -- takes most of a second, so it runs in a thread
