"""How many modules one streamed completion passes through: the list in ARCHITECTURE.md, counted."""

import asyncio
import re
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import cursor_gateway
from cursor_gateway.cli.assembly.composition import compose
from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.http1.server import HttpServer, Timeouts
from cursor_gateway.server.app import build_app
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.settings import Settings
from tests.agent.install import install
from tools.structure import limits

_ROOT = str(Path(cursor_gateway.__file__).parent) + "/"
_BODY = b'{"model":"auto","stream":true,"messages":[{"role":"user","content":"standin: text"}]}'
_REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


_STEPS = re.compile(r"## A streamed completion, step by step\n(.*?)\n## ", re.DOTALL)


class Entered:
    """The modules of the package whose functions are called."""

    def __init__(self) -> None:
        self.modules: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_ROOT) and frame.f_code.co_name != "<module>":
            self.modules.add(frame.f_code.co_filename.removeprefix(_ROOT))


async def traced_completion(folder: Path, entered: Entered) -> bytes:
    """A whole gateway in this process: sockets, the store, and the stand-in agent."""
    install(folder / "bin")
    (folder / "work").mkdir()
    settings, metrics = Settings(data_dir=str(folder / "data"), workspace=str(folder / "work")), Metrics()
    gateway = await compose(settings, [metrics], {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder)})
    try:
        app = build_app(gateway.service, settings, metrics, dialects_of(settings))
        server = HttpServer(
            app, refusal=app.refusal, fault=lambda error, path: None, timeouts=Timeouts(head=60), max_connections=9
        )
        bound = socket.create_server(("127.0.0.1", 0))
        await server.listen(bound)
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        sys.setprofile(entered)
        try:
            writer.write(_REQUEST)
            return await reader.read()
        finally:
            sys.setprofile(None)
            writer.close()
            server.abort()
    finally:
        await gateway.close()


def test_a_streamed_completion_passes_the_modules_that_the_walk_names(tmp_path: Path) -> None:
    entered = Entered()
    assert b"data: [DONE]" in asyncio.run(traced_completion(tmp_path, entered))
    steps = _STEPS.search((Path(__file__).parents[2] / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert steps is not None
    named = set(re.findall(r"`((?!tests/)[\w/]+\.py)`", steps[1]))
    assert named <= entered.modules
    assert len(named) <= 30
    assert len(entered.modules) <= limits()["walk_modules"]  # with all helpers; fewer is better
