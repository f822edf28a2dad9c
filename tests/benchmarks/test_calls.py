"""How many calls a run of 100 lines takes: a figure that no other program on the machine can change."""

import asyncio
import shutil
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvloop

from benchmarks.sessions import named_session
from cursor_gateway.cli.assembly.composition import compose
from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.http1.server import HttpServer, Timeouts
from cursor_gateway.server.app import build_app
from cursor_gateway.server.logs import RunLog
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.settings import Settings
from cursor_gateway.sources import processes
from tests import run_law

RUNS = 30  # at most: it ends with the first that takes few enough
CLIENT = "asyncio/streams.py"

CHAT = b'{"model":"auto","stream":true,"messages":[{"role":"user","content":"replay 100 blocks"}]}'
RESPONSES = b'{"model":"auto","stream":true,"input":"replay 100 blocks"}'


def request(path: bytes, body: bytes) -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)
    )


class Calls:
    def __init__(self) -> None:
        self.python = self.c = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not frame.f_code.co_filename.endswith(CLIENT):
            self.python += event == "call"
            self.c += event == "c_call"


async def counted(
    programs: Path, folder: Path, request: bytes, end: bytes, most_python: int, most_c: int
) -> list[Calls]:
    """The calls of some runs, from the connection to a moment after the end of the reply."""
    (folder / "work").mkdir()
    (folder / "100.ndjson").write_bytes(named_session("100").data)
    agent = shutil.copy(programs / "cursor-agent", folder)
    settings = Settings(
        data_dir=str(folder / "data"),
        runtime_dir=str(folder / "runtime"),  # alone on this machine
        workspace=str(folder / "work"),
        agent_program=str(agent),
        source="cli",
        agent_cgroups=False,  # what they take depends on the kernel and the C library
    )
    metrics = Metrics()
    gateway = await compose(settings, [metrics, RunLog()], {"PATH": "/usr/bin:/bin", "HOME": str(folder)})
    found = []
    try:
        app = build_app(gateway.service, settings, metrics, dialects_of(settings))
        server = HttpServer(
            app, refusal=app.refusal, fault=lambda error, path: None, timeouts=Timeouts(head=60), max_connections=9
        )
        bound = socket.create_server(("127.0.0.1", 0))
        await server.listen(bound)
        for _ in range(RUNS):
            calls = Calls()
            sys.setprofile(calls)
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            writer.write(request)
            reply = await reader.read()
            writer.close()
            while gateway.service.runs.running:
                await asyncio.sleep(0.01)
            sys.setprofile(None)
            assert end in reply
            found.append(calls)
            if calls.python <= most_python and calls.c <= most_c:
                break
        server.abort()
    finally:
        sys.setprofile(None)
        await gateway.close()
    return found


@pytest.mark.parametrize(
    ("path", "body", "end", "most_python", "most_c"),  # fewer is better: docs/performance.md has the story
    [
        (b"/v1/chat/completions", CHAT, b"data: [DONE]", 1435, 1625),
        (b"/v1/responses", RESPONSES, b"event: response.completed", 1815, 1935),
    ],
)
def test_a_short_run_takes_few_calls(
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: bytes,
    body: bytes,
    end: bytes,
    most_python: int,
    most_c: int,
) -> None:
    """The least of some runs: the first one loads modules, and a slow machine reads the output in more pieces, which is
    what the limits allow for: alone, a run takes about 2 % fewer calls."""
    monkeypatch.setattr(processes, "adopted", list)  # `serve` adopts orphans, so it knows that there are none
    with run_law.suspended():
        found = uvloop.run(counted(programs, tmp_path, request(path, body), end, most_python, most_c))
    assert min(calls.python for calls in found) <= most_python
    assert min(calls.c for calls in found) <= most_c
