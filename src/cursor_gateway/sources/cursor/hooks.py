"""The agent's hook, which asks the gateway before each call: its file, the socket that answers, a turn of the CLI."""

import asyncio
import os
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cursor_gateway.errors import AgentMisconfigured
from cursor_gateway.model.agent_events import AgentEvent, RunStarted
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cursor import hook_program
from cursor_gateway.sources.cursor.approvals import ALLOWED, OVER, Approvals, HookAnswer, denied
from cursor_gateway.sources.cursor.command import Program
from cursor_gateway.sources.cursor.configuration import HOOKS, configuration_errors
from cursor_gateway.sources.cursor.permissions import AskedCall, Policy, common_refusal
from cursor_gateway.sources.private_files import data_of, private_folder, write_private
from cursor_gateway.wire.payload import Fields

_WAIT_SECONDS = 86_400  # for an answer: without a limit the agent waits for a minute, and then makes the call


def hooks_file(socket: str, others: Mapping[str, Any] | None = None) -> bytes:
    """The gateway's hook, which asks at this socket, and those of another `hooks.json`."""
    program = os.path.abspath(hook_program.__file__)
    command = shlex.join([sys.executable, "-I", "-S", program, socket])
    hook = {"command": command, "timeout": _WAIT_SECONDS, "failClosed": True}
    hooks = Fields((others or {}).get("hooks")).all
    before = hooks.get("preToolUse")
    return msgspec.json.encode(
        {
            "version": 1,
            "hooks": {**hooks, "preToolUse": [hook, *(before if isinstance(before, list) else [])]},
        }
    )


def read_hooks(path: Path) -> dict[str, Any]:
    """Another `hooks.json`; empty if there is none, or none that can be read."""
    try:
        return Fields(msgspec.json.decode(path.read_bytes())).all
    except (OSError, msgspec.DecodeError):
        return {}


# --- The socket ------------------------------------------------------------------------------------

_FOLDER = "cursor-gateway-hooks-"  # the beginning of its name
_NEW_SECONDS = 60.0  # in which a folder may not have its socket yet
_CLOSING_SECONDS = 1.0
_LATE_SECONDS = 5.0  # in which a sub-agent may still ask for the first time, although its run is over
_MOST_OVER = 10_000
_MOST_BYTES = 64 * 1024 * 1024  # a call may write a large file


class HookServer:
    """`start` before use; `close` must be awaited."""

    def __init__(self) -> None:
        self._turns: dict[str, Approvals] = {}  # that are active, by session
        self._parents: dict[str, str] = {}  # sessions of sub-agents: the session that they belong to
        self._over: dict[str, None] = {}  # sessions whose turns are over, and those of their sub-agents; latest last
        self._late: list[tuple[float, Approvals]] = []  # turns with sub-agents that are over, and until when they count
        self._folder: Path | None = None
        self._server: asyncio.Server | None = None

    @property
    def socket(self) -> str:
        assert self._folder is not None
        return str(self._folder / "socket")

    async def start(self) -> None:
        """In a temporary folder: the path of a socket must be short."""
        if self._server is None:
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix=_FOLDER))  # only for this user
            # Without `start_serving` it waits for nothing, so a cancelled start cannot lose the server.
            self._server = await asyncio.start_unix_server(self._connected, self.socket, start_serving=False)
            await self._server.start_serving()
            await asyncio.to_thread(remove_left_folders, self._folder)

    def add(self, session: str, turn: Approvals) -> None:
        self._turns[session] = turn
        self._over.pop(session, None)

    def rename(self, session: str, now: str) -> None:
        """The agent has reported its session, or reports it again."""
        if (turn := self._turns.pop(session, None)) is not None:
            self._turns[now] = turn
            self._parents = {child: now if known == session else known for child, known in self._parents.items()}

    def remove(self, session: str) -> None:
        """Denies what its agent still asks."""
        if (turn := self._turns.pop(session, None)) is not None:
            turn.close()
            if turn.had_tasks:
                self._late.append((time.monotonic() + _LATE_SECONDS, turn))
        for over in [session, *(child for child, parent in self._parents.items() if parent == session)]:
            self._parents.pop(over, None)
            self._over[over] = None
        while len(self._over) > _MOST_OVER:
            del self._over[next(iter(self._over))]

    async def answer(self, call: AskedCall) -> HookAnswer:
        """The agent waits for it, perhaps for a person. Cancelled if it no longer waits."""
        if (own := self._turns.get(call.conversation)) is not None:
            return await own.answer(call, is_own=True)
        if call.conversation in self._over:  # not another run's, even if there is only one
            return denied(OVER)
        if (parent := self._parents.get(call.conversation)) is not None:
            return await self._turns[parent].answer(call, is_own=False)
        found, late = self._possible_parents(call)
        if len(found) != 1 or late:
            judges = [*found.values(), *late] if found else []
            refused = common_refusal(call, [turn.policy for turn in judges])
            return ALLOWED if refused is None else denied(refused.reason)
        ((parent, turn),) = found.items()
        if call.conversation:
            self._parents[call.conversation] = parent
        return await turn.answer(call, is_own=False)

    def _possible_parents(self, call: AskedCall) -> tuple[dict[str, Approvals], list[Approvals]]:
        """The runs to which a sub-agent may belong, of which the hook tells only the id, and those that are over.

        These are all of its workspace: a run may have started it, and not have reported that yet.
        """
        self._late = [(until, turn) for until, turn in self._late if until > time.monotonic()]
        found = {id: turn for id, turn in self._turns.items() if call.workspace in ("", turn.workspace)}
        return found, [turn for _, turn in self._late if call.workspace in ("", turn.workspace)]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = int.from_bytes(await reader.readexactly(8), "big")
            if size > _MOST_BYTES:
                return  # without an answer, the call is not made
            call = asked_call(msgspec.json.decode(await reader.readexactly(size)))
            if (answer := await self._answer_while_connected(call, reader)) is not None:
                writer.write(msgspec.json.encode(answer))
                await writer.drain()
        except (OSError, EOFError, msgspec.DecodeError):
            pass  # the same
        finally:
            writer.close()

    async def _answer_while_connected(self, call: AskedCall, reader: asyncio.StreamReader) -> HookAnswer | None:
        """None: the hook's program was killed, and with it perhaps the agent."""
        loop = asyncio.get_running_loop()
        answering, leaving = loop.create_task(self.answer(call)), loop.create_task(reader.read(1))
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            return answering.result() if answering.done() else None
        finally:
            answering.cancel()
            leaving.cancel()

    async def close(self) -> None:
        """After the agent has ended, so nobody is waiting for an answer."""
        server, folder, self._server, self._folder = self._server, self._folder, None, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if server is not None:
            server.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await server.wait_closed()


def asked_call(told: object) -> AskedCall:
    """What the hook passes on. A relative path is relative to the workspace."""
    fields = Fields(told)
    args = fields.object("tool_input")
    path, roots = args.text("file_path", "path"), fields.texts("workspace_roots")
    place = os.path.realpath(os.path.join(roots[0] if roots else "/", path)) if path else ""
    workspace = os.path.realpath(roots[0]) if roots else ""
    return AskedCall(fields.text("conversation_id"), fields.text("tool_name"), args.all, place, workspace)


def remove_left_folders(own: Path) -> None:
    """Removes the folders beside it of gateways that were killed: nobody listens at their sockets."""
    for folder in own.parent.glob(f"{_FOLDER}*"):
        with suppress(OSError):
            facts = folder.lstat()
            if folder != own and facts.st_uid == os.geteuid() and _is_left(folder, time.time() - facts.st_mtime):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path, age: float) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            probe.connect(str(folder / "socket"))
    except ConnectionRefusedError:
        return True
    except FileNotFoundError:
        return age > _NEW_SECONDS
    except OSError:  # it has no time to answer
        return False
    return False


# --- A turn of the CLI: a socket, the agent's configuration, and its events ------------------------
# The agent's own rules allow every command and every tool of MCP servers, so that only the hook decides. That is safe
# with a build that waits for its hooks and obeys them, and with no other.

_RULES = ("Shell(*)", "Mcp(*:*)")  # what the hook decides about
_UNKNOWN = ""  # a session whose id the agent has not reported yet


class HookOptions(Struct, frozen=True, kw_only=True):
    is_verified: Callable[[str], bool]  # whether this version of the agent was seen to obey hooks
    permissions: Literal["deny", "ask"] = "ask"  # for what no rule allows


def unverified(program: Program, options: HookOptions) -> str:
    """Why this version must not be used, because it might make calls without waiting for the hook; empty if it may."""
    if options.is_verified(program.version):
        return ""
    return (
        f'`approvals = "hooks"` cannot be used: it is not known whether cursor-agent {program.version} waits for its '
        "hooks; if it does not, every command would run. Run `cursor-gateway verify --source cli`, or set "
        '`approvals` to "agent".'
    )


class HookedTurn:
    """`start` before the agent; `close` must be awaited, after the agent has ended."""

    def __init__(self, turn: Turn, rules: Sequence[str], user_tool: str, options: HookOptions) -> None:
        """`user_tool` is the name of the tool with which the agent asks its user; empty if it has none."""
        policy = Policy(
            force=False,
            mode=turn.mode,
            rules=rules,
            user_tool=user_tool,
            data=os.path.realpath(data_of(turn.folder)),
        )
        person = turn.approver if options.permissions == "ask" else None
        self.approvals = Approvals(policy, os.path.realpath(turn.workspace), person)
        self._options, self._server = options, HookServer()

    async def start(self, program: Program) -> None:
        """Raises a `GatewayError`."""
        if why := unverified(program, self._options):
            raise AgentMisconfigured(why)
        with configuration_errors():
            await self._server.start()
        self._server.add(_UNKNOWN, self.approvals)

    def configure(self, original: Path, configuration: str, data: str) -> list[str]:
        """Adds the hook to the agent's configuration, before those of the user. Returns the rules that the agent needs.

        Raises a `GatewayError`.
        """
        content = hooks_file(self._server.socket, read_hooks(original / HOOKS))
        with configuration_errors(), private_folder(data, configuration) as folder:
            write_private(folder, HOOKS, content)
        return list(_RULES)

    def passed(self, events: Sequence[AgentEvent]) -> list[AgentEvent]:
        """The agent's events, after those of its questions."""
        for event in events:
            if isinstance(event, RunStarted):
                self._server.rename(_UNKNOWN, event.session_id)
        return self.approvals.passed(events)

    async def close(self) -> None:
        self.approvals.close()
        await self._server.close()
