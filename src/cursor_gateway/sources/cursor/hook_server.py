"""Answer the questions of the agent's hook, on a private socket: which calls are allowed."""

import asyncio
import os
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from cursor_gateway.sources.cursor.approvals import ALLOWED, OVER, Answer, Approvals, denied
from cursor_gateway.sources.cursor.hook_rules import AskedCall, common_refusal
from cursor_gateway.wire.payload import Fields

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

    async def answer(self, call: AskedCall) -> Answer:
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

    async def _answer_while_connected(self, call: AskedCall, reader: asyncio.StreamReader) -> Answer | None:
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
