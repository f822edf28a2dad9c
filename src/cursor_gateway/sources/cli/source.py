"""A turn in; agent events from a cursor-agent process started for it, out."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.model.agent_events import AgentEvent, TextDelta
from cursor_gateway.sources.base import LONGEST_LINE, TOOLS_SERVER, Model, Source, SourceState, Turn
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.sources.cursor.command import INSTALL_ADVICE, CommandOptions, Program, command_for, environment_for
from cursor_gateway.sources.cursor.configuration import (
    configuration_stamp,
    copy_configuration,
    set_rules,
    user_configuration,
)
from cursor_gateway.sources.cursor.confinement import (
    ALLOWED_TOOLS,
    check_confinable,
    configuration_of,
    confine,
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

_CREDENTIALS = ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN", "CURSOR_API_ENDPOINT")


class CliOptions(Struct, frozen=True, kw_only=True):
    program: str = ""
    user: "AgentUser | None" = None  # None: the gateway's own
    command: CommandOptions = CommandOptions()
    environment: Sequence[str] = ()  # extra variable names to pass on
    allow: Sequence[str] = ()  # rules, besides those of the user's own configuration
    max_output_bytes: int = 256 * 1024 * 1024
    grace_seconds: float = 2.0
    models_seconds: float = 600.0


class CursorCliSource(Source):
    holds_questions = False
    offers_tools = True
    tools_server = TOOLS_SERVER

    def __init__(
        self,
        options: CliOptions,
        environ: Mapping[str, str],
        ledger: Ledger,
        clock: Callable[[], float],
        recorder: Recorder | None = None,
    ) -> None:
        self._options, self._ledger, self._recorder = options, ledger, recorder
        self._environ = dict(environ)  # `os.environ` decodes its values each time
        given = environ if options.user is None else options.user.environment(environ)
        self._environment = environment_for(given, options.environment, given.get("CURSOR_CONFIG_DIR"))
        self._program: Program | None = None
        self._probing = asyncio.Lock()
        self._stamp: object = None  # of the program's file when it was probed
        self._models = ModelCache(self._list_models, options.models_seconds, clock)

    async def probe(self) -> Program:
        """Probes the agent once, and again when its file has changed, since it updates itself."""
        if self._program is not None and _stamp(self._program.path) == self._stamp:
            return self._program
        async with self._probing:
            if self._program is None or _stamp(self._program.path) != self._stamp:
                launcher = self._options.user.launcher if self._options.user is not None else ()
                self._program = await find_program(self._options.program, self._environment, launcher)
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
        ids = sessions_in(Path(folder)) | {session.id for session in noted_sessions(Path(folder), "cli")}
        return await asyncio.to_thread(delete_users_sessions, ids, self._environ, self._options.user)

    async def close(self) -> None:
        await self._models.close()

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        process = await self._start(turn, await self.probe())
        recording: RunRecording | None = None
        lines, decoder = LineSplitter(), CursorDecoder(turn.offered.server if turn.offered is not None else "")
        size, unended, stderr_tail = 0, 0, b""
        try:
            self._ledger.add(process.pid)
            if self._recorder is not None:
                recording = self._recorder.begin(turn.run_id)
            while not decoder.finished and (chunk := await process.read()):
                size += len(chunk)
                if size > self._options.max_output_bytes:
                    raise output_too_large(self._options.max_output_bytes)
                if recording is not None:
                    recording.write(chunk)
                if chunk.find(b"\n") == len(chunk) - 1 and not lines.rest:  # exactly one line: the usual case
                    events = decoder.push_line(chunk)
                else:
                    whole = lines.push(chunk)
                    unended = 0 if whole else unended + len(chunk)
                    if unended > LONGEST_LINE:
                        raise line_too_long(LONGEST_LINE)
                    events = decoder.push(whole)
                if events:
                    yield events
                    if not process.merges_reads:  # the first words are never delayed
                        process.merges_reads = TextDelta in map(type, events)
            if not decoder.finished:
                await process.wait(self._options.grace_seconds)  # for the rest of stderr
                events = decoder.push(lines.flush())  # the last line may lack its LF
                if not decoder.finished:
                    stderr_tail = process.stderr_tail.encode()
                    said = "\n".join(filter(None, (process.stderr_tail, decoder.stray_text)))
                    events += decoder.flush(failure_of(said, process.ending).failure())
                yield events
            process.is_discarding = True
            await process.wait(self._options.grace_seconds)
        finally:
            try:
                await process.end(self._options.grace_seconds)
            finally:
                if recording is not None:
                    recording.end(stderr_tail)

    async def _start(self, turn: Turn, program: Program) -> AgentProcess:
        original, options = user_configuration(self._environ), self._options.command
        configuration = configuration_of(turn)
        if turn.offered is not None:
            check_confinable(program)
            turn = replace(turn, workspace=confine(turn, turn.offered, original))
            command = command_for(turn, program, options, allowed_tools=ALLOWED_TOOLS)
            environment = without_proxy(self._environment)
        else:
            images, data = f"{turn.folder}/images", data_of(turn.folder)
            copy_configuration(original, configuration, data)
            set_rules(original, configuration, data, [*self._options.allow, *turn.allow])
            command = command_for(turn, program, options, [images] if os.path.isdir(images) else [])
            environment = self._environment
        return await AgentProcess.start(
            command.arguments,
            folder=turn.workspace,
            environment={**environment, "CURSOR_CONFIG_DIR": configuration},
            stdin=command.stdin,
            on_gone=self._ledger.remove,
        )

    async def _list_models(self) -> list[Model]:
        program = await self.probe()
        ran = await run_to_end([*program.command, "--list-models"], self._environment)
        models = parse_models(ran.stdout)
        if not models:
            raise reported_failure(ran.stderr or ran.stdout)
        return models


def _stamp(path: str) -> object:
    """Identifies the file behind the path: an update makes the path point to another one."""
    try:
        file = os.stat(path)
    except OSError:
        return None
    return file.st_dev, file.st_ino, file.st_mtime_ns
