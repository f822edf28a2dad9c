"""The hook's program asks the gateway over its socket, and is answered, or fails."""

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.model.agent_events import OtherTool, Plan, Question, ToolStarted
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.sources.cursor import hook_program, hooks
from cursor_gateway.sources.cursor.approvals import ALLOWED, Approvals
from cursor_gateway.sources.cursor.hooks import HookServer, asked_call
from cursor_gateway.sources.cursor.permissions import AskedCall, Policy


def asked(server: HookServer, told: bytes) -> "subprocess.CompletedProcess[bytes]":
    words = [sys.executable, "-I", "-S", hook_program.__file__, server.socket]
    return subprocess.run(words, input=told, capture_output=True, check=False)


def turn(workspace: str = "/w", **fields: Any) -> Approvals:
    return Approvals(Policy(**{"force": False, "data": "/data", **fields}), workspace, None)


async def test_the_program_asks_and_is_answered() -> None:
    server = HookServer()
    await server.start()
    await server.start()
    folder = os.path.dirname(server.socket)
    assert os.stat(folder).st_mode & 0o077 == 0
    server.add("s1", turn())
    told: dict[str, Any] = {"conversation_id": "s1", "tool_name": "Shell", "tool_input": {"command": "ls"}}
    denied = await asyncio.to_thread(asked, server, json.dumps(told).encode())
    reply = json.loads(denied.stdout)
    assert (denied.returncode, reply["permission"]) == (0, "deny")
    assert "no rule allows" in reply["user_message"]
    allowed = await asyncio.to_thread(asked, server, json.dumps({**told, "tool_name": "Read"}).encode())
    assert json.loads(allowed.stdout) == {"permission": "allow"}
    server.remove("s1")
    unknown = await asyncio.to_thread(asked, server, json.dumps({**told, "tool_name": "Read"}).encode())
    assert json.loads(unknown.stdout)["permission"] == "deny"
    broken = await asyncio.to_thread(asked, server, b"nonsense")
    assert (broken.returncode != 0, broken.stdout) == (True, b"")
    hooks._MOST_BYTES, most = 10, hooks._MOST_BYTES
    large = await asyncio.to_thread(asked, server, b" " * 1000)
    hooks._MOST_BYTES = most
    assert (large.returncode != 0, large.stdout) == (True, b"")
    await server.close()
    await server.close()
    assert not os.path.exists(folder)


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    server = HookServer()
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)  # it listens
    folder = os.path.dirname(server.socket)
    starting.cancel()
    await asyncio.wait([starting])
    await server.close()
    assert not os.path.exists(folder)
    gc.collect()  # a socket that is still open would be reported


async def test_a_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (long := tmp_path / ("x" * 120)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    server = HookServer()
    for _ in range(2):
        with pytest.raises(OSError, match="too long"):
            await server.start()
    await server.close()
    assert list(long.iterdir()) == []


TASK = ToolStarted("task 1", OtherTool(tool="task", arguments={}), payload={"type": "task", "args": {}})


async def test_a_sub_agent_belongs_to_the_only_run_of_its_workspace() -> None:
    """Which of several runs it belongs to, nothing tells for certain: then it needs what all of them allow."""
    server, careful, forced, other = HookServer(), turn(), turn(force=True), turn("/other", force=True)
    for session, one in (("careful", careful), ("forced", forced), ("other", other)):
        server.add(session, one)

    async def is_allowed(conversation: str, workspace: str = "/w", tool: str = "Shell") -> bool:
        asked = AskedCall(conversation, tool, {"command": "touch a"}, "", workspace)
        return (await server.answer(asked)).permission == "allow"

    assert await is_allowed("sub 1", "/other")
    assert not await is_allowed("sub 0", "/elsewhere")
    forced.passed([TASK])  # the other run may have started one as well, and report it later
    assert not await is_allowed("sub 2")
    assert not await is_allowed("")  # of which not even the id is told
    assert await is_allowed("sub 2", tool="Read")
    server.remove("careful")
    assert await is_allowed("sub 3")
    server.add("careful", turn())
    assert await is_allowed("sub 3")  # as before
    assert not await is_allowed("sub 4")
    server.remove("forced")
    assert not await is_allowed("sub 3")
    server.remove("careful")
    assert not await is_allowed("sub 5")  # another workspace's run is not asked
    server.remove("other")
    assert not await is_allowed("sub 1")


async def test_a_sub_agent_that_asks_first_when_its_run_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not judged by the next run of its workspace alone."""
    server, careful = HookServer(), turn()

    async def is_allowed(conversation: str) -> bool:
        return (await server.answer(AskedCall(conversation, "Shell", {"command": "touch a"}, "", "/w"))) == ALLOWED

    server.add("careful", careful)
    careful.passed([TASK])
    server.add("forced", turn(force=True))
    server.remove("careful")
    assert not await is_allowed("late")
    later = time.monotonic() + hooks._LATE_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert await is_allowed("of the next run")


async def test_a_sub_agent_that_asks_before_the_session_is_known_stays_with_its_run() -> None:
    server, forced = HookServer(), turn(force=True)
    server.add("", forced)
    call = AskedCall("sub", "Shell", {"command": "touch a"}, "", "/w")
    assert await server.answer(call) == ALLOWED
    server.rename("", "s1")
    assert await server.answer(call) == ALLOWED
    server.remove("s1")
    assert await server.answer(call) != ALLOWED


@pytest.fixture
def short_path() -> Iterator[Path]:
    """The path of a socket must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_folders_of_gateways_that_were_killed_are_removed(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    (listens := short_path / "cursor-gateway-hooks-listens").mkdir()
    (left := short_path / "cursor-gateway-hooks-left").mkdir()
    (starts := short_path / "cursor-gateway-hooks-starts").mkdir()
    (never := short_path / "cursor-gateway-hooks-never").mkdir()
    (others := short_path / "cursor-gateway-other").mkdir()
    os.utime(never, (1, 1))

    async def live() -> None:
        server = HookServer()
        await server.start()
        remaining = {listens, starts, others, Path(server.socket).parent}
        assert set(short_path.iterdir()) == remaining
        await server.close()
        assert set(short_path.iterdir()) == {listens, starts, others}

    with socket.socket(socket.AF_UNIX) as alive, socket.socket(socket.AF_UNIX) as dead:
        alive.bind(str(listens / "socket"))
        alive.listen(1)
        dead.bind(str(left / "socket"))
        dead.close()
        asyncio.run(live())


def test_a_folder_whose_gateway_has_no_time_to_answer_stays(short_path: Path) -> None:
    (busy := short_path / "cursor-gateway-hooks-busy").mkdir()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(busy / "socket"))
        server.listen(0)
        first.connect(str(busy / "socket"))
        hooks.remove_left_folders(short_path / "own")
        assert busy.exists()


async def test_what_a_run_still_asks_after_its_end_is_not_another_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    server, careful = HookServer(), turn()

    async def is_allowed(conversation: str) -> bool:
        return (await server.answer(AskedCall(conversation, "Shell", {"command": "touch a"}, "", "/w"))) == ALLOWED

    server.add("careful", careful)
    careful.passed([TASK])
    assert not await is_allowed("sub")
    server.add("forced", turn(force=True))
    server.remove("careful")
    assert [await is_allowed(session) for session in ("careful", "sub", "forced")] == [False, False, True]
    server.add("careful", turn(force=True))  # its next turn
    assert await is_allowed("careful")
    monkeypatch.setattr(hooks, "_MOST_OVER", 1)
    for session in ("careful", "none"):
        server.remove(session)
    assert list(server._over) == ["none"]


async def test_a_program_that_is_killed_is_not_answered() -> None:
    server, person = HookServer(), Silent()
    await server.start()
    server.add("s1", Approvals(Policy(force=False, data="/data"), "/w", person))
    told = json.dumps({"conversation_id": "s1", "tool_name": "New"}).encode()
    words = [sys.executable, "-I", "-S", hook_program.__file__, server.socket]
    process = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(told)
    process.stdin.close()
    await person.asked.wait()
    process.kill()
    await person.left.wait()
    assert (await process.communicate())[0] == b""
    await server.close()


class Silent:
    """Never decides."""

    def __init__(self) -> None:
        self.asked, self.left = asyncio.Event(), asyncio.Event()

    async def permit(self, call_id: str, question: Question) -> Permission | None:
        self.asked.set()
        try:
            await asyncio.get_running_loop().create_future()
            return None
        finally:
            self.left.set()

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        raise AssertionError

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        raise AssertionError


def test_a_path_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    told = {"tool_input": {"file_path": "link/hosts"}, "workspace_roots": [str(tmp_path)]}
    assert asked_call(told).place == os.path.realpath("/etc/hosts")
    assert asked_call({"tool_input": {"file_path": "/a/../b"}}).place == "/b"
    assert asked_call([]).place == ""
