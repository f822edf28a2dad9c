"""A turn in; agent events from a cursor-agent process started for it, out."""

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import GatewayError, SessionLost
from cursor_gateway.model.agent_events import AgentEvent, RunFinished, RunStarted, TextDelta
from cursor_gateway.sources.base import LONGEST_LINE, TOOLS_SERVER, Model, Source, SourceState, Turn
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.sources.cli.spares import AgentLaunch, Inputs, Spare, SpareOptions, Spares
from cursor_gateway.sources.cursor.command import (
    INSTALL_ADVICE,
    PLUGIN_FLAG,
    CommandOptions,
    Program,
    check_version,
    command_for,
    environment_for,
    prompt_bytes,
)
from cursor_gateway.sources.cursor.configuration import (
    ALLOWED_TOOLS,
    agent_files,
    check_confinable,
    configuration_errors,
    configuration_of,
    configuration_stamp,
    confine,
    copy_configuration,
    own_rules,
    remove_hooks,
    set_rules,
    use_http1,
    user_configuration,
    without_proxy,
)
from cursor_gateway.sources.cursor.failures import failure_of, line_too_long, output_too_large, reported_failure
from cursor_gateway.sources.cursor.models import ModelCache, parse_models
from cursor_gateway.sources.cursor.program import candidates, find_program, run_to_end
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.leftovers import delete_users_sessions, noted_sessions, sessions_in
from cursor_gateway.sources.private_files import data_of
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.recorder import Recorder, RunRecording
from cursor_gateway.wire.lines import LineSplitter

if TYPE_CHECKING:
    from cursor_gateway.sources.agent_user import AgentUser
    from cursor_gateway.sources.cursor.hooks import HookedTurn, HookOptions
    from cursor_gateway.sources.cursor.user_questions import UserQuestions
    from cursor_gateway.sources.tool_endpoint import ToolEndpoint

_log = logging.getLogger(__name__)

_SILENT_SECONDS = 30.0  # after its prompt: an agent that was started in advance does not work
_CREDENTIALS = ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN", "CURSOR_API_ENDPOINT")


class CliOptions(Struct, frozen=True, kw_only=True):
    program: str = ""
    version: str = ""  # that it must begin with
    user: "AgentUser | None" = None  # None: the gateway's own
    command: CommandOptions = CommandOptions()
    environment: Sequence[str] = ()  # extra variable names to pass on
    allow: Sequence[str] = ()  # rules, besides those of the user's own configuration
    max_output_bytes: int = 256 * 1024 * 1024
    grace_seconds: float = 2.0
    models_seconds: float = 600.0
    hooks: "HookOptions | None" = None  # None: the agent decides by its own rules, and nobody is asked
    spares: SpareOptions = SpareOptions()
    may_prepare: Callable[[str], bool] = lambda workspace: True  # whether an agent may be started there in advance


class _Offered(Struct, frozen=True):
    """The tool with which the agent asks questions, during a turn."""

    questions: "UserQuestions"
    url: str


class CursorCliSource(Source):
    holds_questions = True
    asks_by_default = False
    offers_tools = True
    tools_server = TOOLS_SERVER

    def __init__(
        self,
        options: CliOptions,
        environ: Mapping[str, str],
        ledger: Ledger,
        clock: Callable[[], float],
        recorder: Recorder | None = None,
        tool_servers: "ToolEndpoint | None" = None,
    ) -> None:
        """Without `tool_servers`, the agent has no tool for questions."""
        self._options, self._ledger, self._recorder, self._tool_servers = options, ledger, recorder, tool_servers
        self._environ = dict(environ)  # `os.environ` decodes its values each time
        self._configuration = user_configuration(self._environ)
        given = environ if options.user is None else options.user.environment(environ)
        self._environment = environment_for(given, options.environment, given.get("CURSOR_CONFIG_DIR"))
        self._program: Program | None = None
        self._probing = asyncio.Lock()
        self._stamp: object = None  # of the program's file when it was probed
        self._models = ModelCache(self._list_models, options.models_seconds, clock)
        self._spares = Spares(options.spares, ledger, self._inputs, self._launch)
        self._comparing = threading.Lock()  # a thread continues even if its turn is cancelled

    async def probe(self) -> Program:
        """Probes the agent once, and again when its file has changed, since it updates itself."""
        if self._program is not None and _stamp(self._program.path) == self._stamp:
            return self._program
        async with self._probing:
            if self._program is None or _stamp(self._program.path) != self._stamp:
                launcher = self._options.user.launcher if self._options.user is not None else ()
                program = await find_program(self._options.program, self._environment, launcher)
                check_version(program, self._options.version)
                self._program = program
                self._stamp = _stamp(self._program.path)
            return self._program

    def state(self) -> SourceState:
        detail = "cursor-agent, not probed yet"
        if self._program is not None:
            detail = f"cursor-agent {self._program.version} ({self._program.path})"
        return SourceState(name="cli", detail=detail, missing=self.missing)

    @property
    def missing(self) -> str:
        """Checks only that a program is there; `probe` checks that it is Cursor's."""
        if self._program is None or shutil.which(self._program.path) is not None:
            return ""
        if candidates(self._options.program, self._environment):
            return ""
        return f"cursor-agent is gone; {INSTALL_ADVICE}."

    async def models(self) -> list[Model]:
        return await self._models.get()

    def has_session(self, turn: Turn) -> bool:
        """Checked before the run: for an unknown session the agent silently starts a new one."""
        stores = Path(configuration_of(turn), "chats").glob(f"*/{turn.session_id}/store.db")
        return any(store.stat().st_size for store in stores)

    def account(self) -> Hashable:
        program = _stamp(self._program.path) if self._program is not None else None
        return program, tuple(map(self._environ.get, _CREDENTIALS)), configuration_stamp(self._environ)

    def check_model(self, model: str) -> None:
        self._models.check(model)

    async def forget(self, folder: str) -> bool:
        """The agent's chats are in the folder; transcripts may be in the user's own."""
        await self._spares.forget(folder)
        ids = sessions_in(Path(folder)) | {session.id for session in noted_sessions(Path(folder), "cli")}
        return await asyncio.to_thread(delete_users_sessions, ids, self._environ, self._options.user)

    @property
    def spare_pids(self) -> list[int]:
        """The pids of the agents that wait for a prompt."""
        return self._spares.pids

    @property
    def has_spares(self) -> bool:
        return self._spares.has_some

    def claim_spare(self, turn: Turn) -> str | None:
        return self._spares.claim(turn)

    async def end_spares(self) -> None:
        await self._spares.close()

    async def close(self) -> None:
        await self._spares.close()
        await self._models.close()
        if self._tool_servers is not None:
            await self._tool_servers.close()

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        self._spares.began()
        program = await self.probe()
        asking = await self._offer(turn, program) if turn.person is not None else None
        hooked: HookedTurn | None = None
        try:
            if self._options.hooks is not None and turn.offered is None:
                hooked = await self._hook(turn, program, self._options.hooks, asking)
            process, is_warm = await self._start(turn, program, asking, hooked)
        except BaseException:
            await self._leave(asking, hooked)
            raise
        recording: RunRecording | None = None
        questions = None if asking is None else asking.questions
        callers_server = turn.offered.server if turn.offered is not None else ""
        lines = LineSplitter(keeps_ends=True)
        decoder = CursorDecoder(callers_server, None if questions is None else questions.tool)
        size, unended, stderr_tail, session_id = 0, 0, b"", ""
        events: list[AgentEvent] = []
        if questions is not None:
            questions.notify = process.interrupt
        if hooked is not None:
            hooked.approvals.notify = process.interrupt
        try:
            if self._recorder is not None:
                recording = self._recorder.begin(turn.run_id)
            while not decoder.finished and ((chunk := await process.read()) or process.is_interrupted):
                size += len(chunk)
                if size > self._options.max_output_bytes:
                    raise output_too_large(self._options.max_output_bytes)
                if recording is not None:
                    recording.write(chunk)
                if not chunk:
                    events = []
                elif chunk.find(b"\n") == len(chunk) - 1 and not lines.rest:  # exactly one line: the usual case
                    events = decoder.push_line(chunk)
                else:
                    whole = lines.push(chunk)
                    unended = 0 if whole else unended + len(chunk)
                    if unended > LONGEST_LINE:
                        raise line_too_long(LONGEST_LINE)
                    events = decoder.push(whole)
                process.is_interrupted = False
                if events := _with_questions(events, decoder, questions, hooked):
                    if not session_id and isinstance(begun := events[0], RunStarted):
                        session_id = begun.session_id
                        events[0] = replace(begun, is_warm=is_warm)
                    yield events
                    if not process.merges_reads:  # the first words are never delayed
                        process.merges_reads = TextDelta in map(type, events)
            if not decoder.finished:
                await process.wait(self._options.grace_seconds)  # for the rest of stderr
                events = decoder.push(lines.flush())  # the last line may lack its LF
                if not decoder.finished:
                    stderr_tail = process.stderr_tail.encode()
                    said = "\n".join(filter(None, (process.stderr_tail, decoder.stray_text)))
                    failure = process.system_error or failure_of(said, process.ending)
                    events += decoder.flush(failure.failure())
                yield _with_questions(events, decoder, None, hooked)
            process.is_discarding = True
            await process.wait(self._options.grace_seconds)
        finally:
            try:
                await process.end(self._options.grace_seconds)
                if (use := process.use) is not None:
                    turn.uses.append(use)
            finally:
                await self._leave(asking, hooked)
                if recording is not None:
                    recording.end(stderr_tail)
        if session_id and events and isinstance(events[-1], RunFinished):
            self._spares.ended(turn, session_id, program)

    async def _offer(self, turn: Turn, program: Program) -> _Offered | None:
        """None: the agent could not use the tool."""
        can_use = turn.offered is None and turn.mode not in ("plan", "ask") and PLUGIN_FLAG in program.flags
        if turn.person is None or self._tool_servers is None or not can_use:
            return None
        try:
            await self._tool_servers.open()
        except GatewayError as error:  # the agent can work without it
            _log.warning("the agent cannot ask questions: %s", error)
            return None
        from cursor_gateway.sources.cursor.ask_user import ASK_USER, UserTool  # late: most runs have no use for it
        from cursor_gateway.sources.cursor.user_questions import UserQuestions

        # A hook does not learn which server a tool belongs to, so there it needs a name that nobody can guess.
        name = ASK_USER.name if self._options.hooks is None else f"{ASK_USER.name}_{token_hex(6)}"
        questions = UserQuestions(UserTool(f"user_{token_hex(6)}", name), turn.person)
        return _Offered(questions, self._tool_servers.offer(questions.tool))

    async def _leave(self, asking: _Offered | None, hooked: "HookedTurn | None") -> None:
        """The agent has ended."""
        if asking is not None and self._tool_servers is not None:
            asking.questions.close()
            self._tool_servers.withdraw(asking.url)
        if hooked is not None:
            await hooked.close()

    async def _hook(
        self, turn: Turn, program: Program, options: "HookOptions", asking: _Offered | None
    ) -> "HookedTurn":
        """Raises a `GatewayError`."""
        from cursor_gateway.sources.cursor.hooks import HookedTurn

        rules = [*own_rules(self._configuration), *self._options.allow, *turn.allow]
        hooked = HookedTurn(turn, rules, "" if asking is None else asking.questions.tool.name, options)
        try:
            await hooked.start(program)
        except BaseException:
            await hooked.close()
            raise
        return hooked

    async def _start(
        self, turn: Turn, program: Program, asking: _Offered | None, hooked: "HookedTurn | None"
    ) -> tuple[AgentProcess, bool]:
        """An agent that has the prompt, and whether it was started in advance. One that has refused the turn's session
        has ended: another one with this session would refuse it, too."""
        spare = await self._spares.take(turn)
        if spare is not None and (await self._speaks(spare, turn) or _has_lost_session(spare.process)):
            return spare.process, True
        launch = self._launch(turn, program, asking=asking, hooked=hooked)
        process = await AgentProcess.start(
            launch.arguments,
            folder=launch.folder,
            environment=launch.environment,
            stdin=launch.stdin,
            on_gone=self._ledger.remove,
            cgroup=self._ledger.new_cgroup(),
        )
        try:
            self._ledger.add(process.pid)
            if spare is not None and await process.speaks():  # so it was not the prompt's fault, or the account's
                self._spares.turn_off(program, f"one got a prompt and ended ({spare.process.ending})")
        except BaseException:
            await process.end(self._options.grace_seconds)
            raise
        return process, False

    async def _speaks(self, spare: Spare, turn: Turn) -> bool:
        """Gives it the prompt. False: it has ended without a word, so another agent may get the prompt."""
        clock = asyncio.get_running_loop().time
        asked_at, has_spoken = clock(), False
        try:
            has_spoken = await spare.ask(prompt_bytes(turn)).speaks()
            if not has_spoken:
                await spare.process.wait(self._options.grace_seconds)  # for how it ends
        finally:  # perhaps cancelled
            if not has_spoken:
                if clock() - asked_at > _SILENT_SECONDS:
                    self._spares.turn_off(spare.inputs.program, "one got a prompt and wrote nothing")
                await spare.end(self._options.grace_seconds)
        return has_spoken

    async def _inputs(self, turn: Turn) -> Inputs | None:
        """All that an agent for this turn gets before its prompt. None: it cannot or must not be started without the
        prompt, or has tools or hooks whose address is this turn's own."""
        if turn.offered is not None or turn.person is not None or self._options.hooks is not None:
            return None
        program = await self.probe()
        return await asyncio.to_thread(self._read_inputs, replace(turn, prompt=""), program, self._stamp)

    def _read_inputs(self, turn: Turn, program: Program, stamp: object) -> Inputs | None:
        """Has the agent's configuration written to another folder, always the same one, to compare it."""
        data = str(self._ledger.folder.absolute())
        folder = f"{data}/compared"
        if not self._options.may_prepare(turn.workspace):
            return None
        with self._comparing, configuration_errors():
            try:
                launch = self._launch(turn, program, (folder, data))
                files = agent_files(self._environ, turn.workspace)
                written = {
                    str(path.relative_to(folder)): path.read_bytes()
                    for path in Path(folder).rglob("*")
                    if path.is_file()
                }
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        if launch.stdin is None or files is None:
            return None
        return Inputs(launch, program, stamp, written, files)

    def _launch(
        self,
        turn: Turn,
        program: Program,
        configuration: tuple[str, str] | None = None,
        asking: _Offered | None = None,
        hooked: "HookedTurn | None" = None,
    ) -> AgentLaunch:
        """How an agent for this turn is started. Writes its configuration, to this folder in this data directory."""
        original, options = self._configuration, self._options.command
        folder, data = configuration or (configuration_of(turn), data_of(turn.folder))
        if turn.offered is not None:
            check_confinable(program)
            turn = replace(turn, workspace=confine(turn, turn.offered, original))
            command = command_for(turn, program, options, allowed_tools=ALLOWED_TOOLS)
            environment = without_proxy(self._environment)
        else:
            images = f"{turn.folder}/images"
            has_files = copy_configuration(original, folder, data)
            rules = [*self._options.allow, *turn.allow]
            if hooked is not None:
                rules += hooked.configure(original, folder, data)
            elif has_files:
                remove_hooks(original, folder, data)
            plugin, environment = "", self._environment
            if asking is not None:
                from cursor_gateway.sources.cursor.configuration import write_plugin

                plugin, environment = f"{turn.folder}/plugin", without_proxy(environment)
                rules += write_plugin(plugin, data, asking.questions.tool, asking.url)
            if has_files or rules:
                set_rules(original, folder, data, rules)
            command = command_for(turn, program, options, [images] if os.path.isdir(images) else [], plugin=plugin)
        if options.http1:
            use_http1(folder, data)
        return AgentLaunch(
            command.arguments, turn.workspace, {**environment, "CURSOR_CONFIG_DIR": folder}, command.stdin
        )

    async def _list_models(self) -> list[Model]:
        program = await self.probe()
        ran = await run_to_end([*program.command, "--list-models"], self._environment)
        models = parse_models(ran.stdout)
        if not models:
            raise reported_failure(ran.stderr or ran.stdout)
        return models


def _with_questions(
    events: list[AgentEvent], decoder: CursorDecoder, questions: "UserQuestions | None", hooked: "HookedTurn | None"
) -> list[AgentEvent]:
    """The agent's events, and those of what it has asked for."""
    if hooked is not None:
        events = hooked.passed(events)
    if questions is not None:
        questions.reported(decoder.user_calls)
        events = questions.among(events, is_over=decoder.finished)
    return events


def _has_lost_session(process: AgentProcess) -> bool:
    return isinstance(failure_of(process.stderr_tail), SessionLost)


def _stamp(path: str) -> object:
    """Identifies the file behind the path: an update makes the path point to another one."""
    try:
        file = os.stat(path)
    except OSError:
        return None
    return file.st_dev, file.st_ino, file.st_mtime_ns
