"""Agents that were started in advance, with everything but a prompt: the inputs of a turn in; one that fits it, out.

Cursor's agent takes one to three seconds to start. So after a turn, an agent is started for the one that is likely to
come next: the next turn of the conversation, or the first of another one. It waits for its prompt on its standard
input. It is used only for a turn with exactly its inputs, and only while it runs and has written nothing. Otherwise it
is ended, and the turn starts an agent of its own.

A spare agent for a new conversation has a folder, which becomes the conversation's if the agent is used.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from os.path import basename, dirname
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import GatewayError
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cursor.command import Program
from cursor_gateway.sources.cursor.configuration import AgentFiles
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.private_files import data_of, private_folder, remove_entry
from cursor_gateway.sources.process import AgentProcess, StdinWriter, start_with_stdin

_log = logging.getLogger(__name__)

_OLDEST_SECONDS = 1800.0  # of an agent that is used: its login may have expired
_MOST_ENDED = 64
_LOOK_SECONDS = 0.005
_MOST_FAILURES = 3  # in a row, of agents that were given no prompt


class SpareOptions(Struct, frozen=True, kw_only=True):
    most: int = 0
    seconds: float = 300.0  # after the last turn
    quiet_seconds: float = 0.25  # without a turn that begins or ends, before one is started: a busy gateway starts none
    grace_seconds: float = 2.0


class AgentLaunch(Struct, frozen=True):
    """How an agent is started."""

    arguments: list[str]
    folder: str
    environment: Mapping[str, str]
    stdin: bytes | None


class Inputs(Struct, frozen=True):
    """All that an agent is given before its prompt. Those with equal inputs cannot be told apart."""

    launch: AgentLaunch
    program: Program
    stamp: object  # of the program's file
    written: Mapping[str, bytes]  # the files of its configuration that the gateway writes
    files: AgentFiles  # that it reads by itself


class Spare:
    def __init__(self, turn: Turn, inputs: Inputs, process: AgentProcess, stdin: StdinWriter, now: float) -> None:
        self.turn, self.inputs, self.process, self._stdin = turn, inputs, process, stdin
        self.made_at = self.wanted_at = now
        self.is_claimed = False  # its folder is that of a conversation

    def ask(self, prompt: bytes) -> AgentProcess:
        self.process.waits(still=False)
        self._stdin.end(prompt)
        return self.process

    async def end(self, grace_seconds: float) -> None:
        try:
            await self.process.end(grace_seconds)
        finally:
            self._stdin.close()  # last: it must not take the end of its input for a prompt


Describe = Callable[[Turn], Coroutine[Any, Any, Inputs | None]]
"""The inputs for a turn. None: no agent can be started in advance for it."""


Start = Callable[[Turn, Program], AgentLaunch]
"""Writes the files of an agent, and says how it is started."""


class Spares:
    """Its methods never fail: whatever goes wrong, turns start agents of their own."""

    def __init__(self, options: SpareOptions, ledger: Ledger, describe: Describe, start: Start) -> None:
        self._options, self._ledger, self._describe, self._start = options, ledger, describe, start
        self._ended: dict[str, tuple[Turn, str]] = {}  # turns that ended since the last look, and sessions, by folder
        self._changed_at = 0.0  # when a turn began or ended
        self._wanted: list[Turn] = []  # the likeliest first
        self._spares: dict[str, Spare] = {}  # by folder
        self._was_new: dict[tuple[str, str], bool] = {}  # the last turn of an owner in a workspace began a conversation
        self._timer: asyncio.TimerHandle | None = None
        self._filling: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._starting = ""  # the folder of the one that is being started
        self._failures = 0  # in a row
        self._off: Program | None = None  # for which none are started
        self._is_closed = False

    @property
    def has_some(self) -> bool:
        return bool(self._spares)

    @property
    def pids(self) -> list[int]:
        return [spare.process.pid for spare in self._spares.values()]

    def claim(self, turn: Turn) -> str | None:
        """The folder of an agent that waits for a turn like this one, which must begin a conversation in it."""
        for folder, spare in self._spares.items():
            if not spare.is_claimed and spare.turn.session_id is None and _purpose(spare.turn) == _purpose(turn):
                spare.is_claimed = True
                return folder
        return None

    async def take(self, turn: Turn) -> Spare | None:
        """The agent that waits for this turn. Afterwards no other one waits in the turn's folder."""
        await self._settled(turn.folder)
        spare = self._spares.pop(turn.folder, None)
        if spare is None:
            return None
        try:
            is_same = self._is_young(spare) and await self._describe(turn) == spare.inputs
        except BaseException:
            self._end_soon(spare)
            raise
        if is_same and spare.process.is_silent:
            self._failures = 0
            return spare
        ending = self._end_soon(spare)
        if is_same:
            self._failed(spare, "it writes something before it gets its prompt")
        await asyncio.wait([ending])
        return None

    def began(self) -> None:
        """A turn has begun, so the machine has something else to do."""
        if self._timer is not None:
            self._changed_at = monotonic()

    def ended(self, turn: Turn, session_id: str, program: Program) -> None:
        """A turn has ended well; starts an agent for the next one, soon. With many turns, little is done for each."""
        if self._is_closed or not self._options.most or program == self._off:
            return
        if turn.offered is not None or turn.person is not None:  # their tools have addresses of their own
            return
        self._ended[turn.folder] = turn, session_id
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._changed_at = monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._options.quiet_seconds, self._look)

    def turn_off(self, program: Program, reason: str) -> None:
        """For this version of the agent."""
        if self._off != program:
            self._off = program
            _log.warning("cursor-agent %s is not started in advance any more: %s", program.version, reason)
        self._drop_all()

    async def forget(self, folder: str) -> None:
        """Ends the agent in this folder, which is about to be deleted."""
        await self._settled(folder)
        if (spare := self._spares.pop(folder, None)) is not None:
            spare.is_claimed = True  # whoever deletes the folder deletes all of it
            await asyncio.wait([self._end_soon(spare)])

    async def close(self) -> None:
        self._is_closed = True
        if self._filling is not None:
            await asyncio.wait([self._filling])
        self._drop_all()
        while self._ending:
            await asyncio.wait(self._ending)

    # --- starting -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Starts agents, if it has been quiet for long enough."""
        self._timer, loop = None, asyncio.get_running_loop()
        left = self._changed_at + self._options.quiet_seconds - monotonic()
        if left > 0 or (self._filling is not None and not self._filling.done()):
            self._timer = loop.call_later(max(left, _LOOK_SECONDS), self._look)
            return
        for turn, session_id in self._ended.values():
            self._want(turn, session_id)
        self._ended.clear()
        self._filling = loop.create_task(self._fill(), name="spare agents")

    def _want(self, turn: Turn, session_id: str) -> None:
        """After this turn, its conversation may go on, or another one may begin."""
        whose, is_new = (turn.owner, turn.workspace), turn.session_id is None
        more = replace(turn, run_id="", prompt="", session_id=session_id)
        other = replace(more, folder=turn.next_folder, session_id=None, next_folder="")
        likely = [other, more] if is_new and self._was_new.get(whose, False) else [more, other]
        self._was_new[whose] = is_new
        wanted = [one for one in likely if one.folder]
        kept = [one for one in self._wanted if not any(_is_alike(one, new) for new in wanted)]
        self._wanted = [*wanted, *kept][: self._options.most]

    async def _fill(self) -> None:
        """Starts those that are wanted, and ends the others."""
        wanted, kept = list(self._wanted), {self._folder_of(one) for one in self._wanted}
        for folder in self._spares.keys() - kept:
            if not self._spares[folder].is_claimed:
                self._end_soon(self._spares.pop(folder))
        for turn in wanted:
            if (spare := self._spares.get(self._folder_of(turn))) is not None:
                spare.wanted_at = self._now()
            elif not self._is_closed and any(one is turn for one in self._wanted):  # no turn has begun there meanwhile
                self._starting = turn.folder
                try:
                    await self._start_spare(turn)
                except (GatewayError, OSError) as error:
                    _log.info("no agent was started in advance: %s", error)
                finally:
                    self._starting = ""

    def _folder_of(self, wanted: Turn) -> str:
        """That of an agent which waits for such a turn already."""
        alike = (one for one in self._spares.values() if _is_alike(one.turn, wanted) and not one.is_claimed)
        return next((one.turn.folder for one in alike if self._is_young(one)), wanted.folder)

    async def _start_spare(self, turn: Turn) -> None:
        inputs = await self._describe(turn)
        if inputs is None or self._is_closed:
            return
        launch = self._start(turn, inputs.program)
        process, stdin = await start_with_stdin(
            launch.arguments,
            folder=launch.folder,
            environment=launch.environment,
            on_gone=self._gone,
            cgroup=self._ledger.new_cgroup(),
        )
        spare = self._spares[turn.folder] = Spare(turn, inputs, process, stdin, self._now())
        process.waits(still=True)
        self._ledger.add(process.pid)
        self._expire_later(spare)

    # --- ending -------------------------------------------------------------------------------------

    def _expire_later(self, spare: Spare) -> None:
        seconds = spare.wanted_at + self._options.seconds - self._now()
        asyncio.get_running_loop().call_later(max(0.0, seconds), self._expire, spare)

    def _expire(self, spare: Spare) -> None:
        if self._spares.get(spare.turn.folder) is not spare:
            return
        if spare.wanted_at + self._options.seconds > self._now():
            self._expire_later(spare)
        else:
            self._end_soon(self._spares.pop(spare.turn.folder))

    def _gone(self, pid: int) -> None:
        """The process has ended; perhaps long after it was used."""
        self._ledger.remove(pid)
        for folder, spare in self._spares.items():
            if spare.process.pid == pid:
                self._end_soon(self._spares.pop(folder))
                self._failed(spare, "it does not wait for its prompt")
                return

    def _failed(self, spare: Spare, why: str) -> None:
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self.turn_off(spare.inputs.program, f"{why} ({spare.process.stderr_tail[-200:].strip()})")

    def _drop_all(self) -> None:
        self._wanted.clear()
        self._ended.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._spares:
            self._end_soon(self._spares.popitem()[1])

    def _end_soon(self, spare: Spare) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._end(spare), name="end of a spare agent")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _end(self, spare: Spare) -> None:
        await spare.end(self._options.grace_seconds)
        if spare.turn.session_id is None and not spare.is_claimed:
            await asyncio.to_thread(_remove, spare.turn.folder)

    async def _settled(self, folder: str) -> None:
        """None is started in this folder from now on."""
        self._ended.pop(folder, None)
        if self._wanted:
            self._wanted = [one for one in self._wanted if one.folder != folder]
        if self._filling is not None and self._starting == folder:
            await asyncio.wait([self._filling])  # it takes milliseconds

    def _is_young(self, spare: Spare) -> bool:
        return self._now() - spare.made_at < _OLDEST_SECONDS

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _purpose(turn: Turn) -> Sequence[object]:
    """What two turns that begin conversations must have in common. `Inputs` are compared in any case."""
    return turn.owner, turn.workspace, turn.model, turn.mode, list(turn.allow)


def _is_alike(one: Turn, other: Turn) -> bool:
    if one.session_id is None and other.session_id is None:
        return _purpose(one) == _purpose(other)
    return one.folder == other.folder


def _remove(folder: str) -> None:
    with suppress(OSError), private_folder(data_of(folder), dirname(folder)) as parent:
        remove_entry(parent, basename(folder))
