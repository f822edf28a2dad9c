"""An agent in; the servers that are compared, each a process of its own, and how they are asked, out."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks import replies
from benchmarks.failing import BenchmarkFailed
from benchmarks.processes import listens
from cursor_gateway.keys import hash_key, new_key

_ROOT = Path(__file__).parent.parent
_SECONDS = 60.0  # to start or to stop: a mistake, not a figure
_PORT = re.compile(rb"http://127\.0\.0\.1:(\d+)\b.*\n")


class Dialect(Struct, frozen=True):
    """How a server is asked, and what its replies look like."""

    path: str
    body: Callable[[str], bytes]  # of a prompt
    first: str  # what the first content begins with
    end: str  # what stands near the end of every whole reply
    answer: Callable[[bytes], str | replies.Documents]


class Server(Struct, frozen=True):
    process: "subprocess.Popen[bytes]"
    port: int
    key: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def request(self, path: str, body: bytes | None = None) -> bytes:
        """The whole of it, as it is sent."""
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        lines += ["Accept: text/event-stream", "Connection: close"]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


class Contender(Struct, frozen=True):
    server: Server
    dialect: Dialect

    def request(self, prompt: str) -> bytes:
        return self.server.request(self.dialect.path, self.dialect.body(prompt))


def _completion(prompt: str) -> bytes:
    return msgspec.json.encode({"model": "auto", "stream": True, "messages": [{"role": "user", "content": prompt}]})


def _chat(prompt: str) -> bytes:
    return msgspec.json.encode({"message": prompt, "stream": True})


def _response(prompt: str) -> bytes:
    return msgspec.json.encode({"model": "auto", "stream": True, "input": prompt})


def _message(prompt: str) -> bytes:
    messages = [{"role": "user", "content": prompt}]
    return msgspec.json.encode({"model": "auto", "stream": True, "max_tokens": 128_000, "messages": messages})


OPENAI = Dialect("/v1/chat/completions", _completion, '"delta":{"content":"', "[DONE]", replies.text_of_chunks)
DOCUMENTS = Dialect("/v1/chat", _chat, "event: content_delta", "event: done", replies.documents_of)
RESPONSES = Dialect(
    "/v1/responses", _response, "event: response.output_text.delta", '"total_tokens":', replies.text_of_response
)
MESSAGES = Dialect("/v1/messages", _message, '"type":"text_delta"', "message_stop", replies.text_of_message)
PLAIN = Dialect("/v1/chat/completions", _completion, '"delta": {"content": "', "[DONE]", replies.text_of_chunks)
RELAY = Dialect("/", str.encode, '"type":"assistant"', '"cacheWriteTokens"', replies.text_of_lines)


@contextmanager
def module_server(name: str, agent: Path, home: Path) -> Iterator[Server]:
    """`relay` or `plain`."""
    with started([sys.executable, "-m", f"benchmarks.{name}", str(agent)], os.environ, home) as server:
        yield server


@contextmanager
def gateway(
    agent: Path,
    home: Path,
    *,
    data: Path | None = None,
    settings: Mapping[str, str | None] | None = None,
    checkout: Path | None = None,
) -> Iterator[Server]:
    """With everything on: a key, the history, metrics, and its log in a file. `checkout` is another version."""
    environment = gateway_environment(agent, home, data, settings, key := new_key())
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout.resolve() / "src")
    with started(serve_command(), environment, home) as server:
        yield msgspec.structs.replace(server, key=key)


def serve_command() -> list[str]:
    return [sys.executable, "-m", "cursor_gateway", "serve", "--port", "0"]


def gateway_environment(
    agent: Path, home: Path, data: Path | None, settings: Mapping[str, str | None] | None, key: str
) -> dict[str, str]:
    """A setting that is None is left out: an older version may not have it."""
    work = home / "work"
    work.mkdir(parents=True, exist_ok=True)
    given = {
        "agent_program": str(agent),
        "source": "cli",
        "api_keys": f"bench={hash_key(key)}",
        "data_dir": str(data or home / "data"),
        "workspace": str(work),
        "max_runs": "64",
        "spare_agents": "0",  # `warm` measures what they save; here, agents are counted
        "log_format": "json",
        **(settings or {}),
    }
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONUNBUFFERED": "1",
        **{f"CURSOR_GATEWAY_{name.upper()}": value for name, value in given.items() if value is not None},
    }


@contextmanager
def started(command: list[str], environment: Mapping[str, str], home: Path) -> Iterator[Server]:
    home.mkdir(parents=True, exist_ok=True)
    log = home / "log"
    with (
        log.open("wb") as result,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=result,
            env=environment,
            cwd=_ROOT,
        ) as process,
    ):
        try:
            port = read_port(process, log)
            if not listens(process.pid, port):
                raise BenchmarkFailed(f"Port {port} is not answered by the server that was started for it.")
            yield Server(process, port)
            if process.poll() is not None:
                raise BenchmarkFailed(f"{' '.join(command[1:4])} ended while it was measured:\n{_end_of(log)}")
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def read_port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """What a server prints when it listens."""
    assert process.stdout is not None
    seen = b""
    while (found := _PORT.search(seen)) is None:
        ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
        piece = os.read(process.stdout.fileno(), 65536) if ready else b""
        if not piece:
            raise BenchmarkFailed(f"A server did not start:\n{seen.decode()}\n{_end_of(log)}")
        seen += piece
    return int(found[1])


def _end_of(log: Path) -> str:
    return log.read_bytes()[-2000:].decode("utf-8", "replace")
