"""A real client is asked one question, and the agent fails: how many agents and requests, and when the person knows."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Literal, TypeAlias

from msgspec import Struct

from tests.clients.faulty_proxy import FaultyProxy, faulty_proxy
from tests.clients.programs import TIMEOUT, Drivers, Project, launched_client
from tests.clients.test_launch import SHELLS, Shell
from tests.failure_table import Met
from tests.gateways import RunningGateway
from tests.server.conftest import invocations, standin, unique

Path: TypeAlias = Literal["/v1/chat/completions", "/v1/responses", "/v1/messages"]

_ENOUGH = 4  # requests of a client that goes on and on
_LOOK_SECONDS = 0.05
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[│┃]")
_AIDER = ["--yes-always", "--no-git", "--no-check-update", "--no-show-release-notes", "--analytics-disable"]


class Program(Struct, frozen=True):
    """A program that a person uses in a terminal."""

    title: str
    shell: Shell
    path: Path = "/v1/chat/completions"

    def ask(
        self, gateway: RunningGateway, drivers: Drivers, project: Project, prompt: str, words: str
    ) -> tuple[Met, str]:
        """And all that it said."""
        shell, mark = self.shell, unique()
        with faulty_proxy(gateway.url, self.path) as proxy:
            client, text = launched_client(project, shell.name, proxy.url), f"{mark}\n{standin(prompt)}"
            for path, content in shell.files.items():
                (project.home / path).parent.mkdir(parents=True, exist_ok=True)
                (project.home / path).write_text(content, encoding="utf-8")
            process = subprocess.Popen(
                [*client.command, *shell.arguments, *(() if shell.by_stdin else (text,))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=project.folder,
                env={**project.environment(), **client.environment, **shell.environment},
                start_new_session=True,
            )
            screen = _Screen(process, text.encode() if shell.by_stdin else b"")
            try:
                until = time.monotonic() + TIMEOUT
                while process.poll() is None and len(_questions(proxy)) < _ENOUGH and time.monotonic() < until:
                    time.sleep(_LOOK_SECONDS)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return _met(gateway, proxy, mark, screen.seen(words), only_works=shell.name != "aider"), screen.text


class Sdk(Struct, frozen=True):
    """A program of a few lines that uses an SDK."""

    title: str
    driver: str
    way: str
    path: Path

    def ask(
        self, gateway: RunningGateway, drivers: Drivers, project: Project, prompt: str, words: str
    ) -> tuple[Met, str]:
        """And all that it said."""
        mark = unique()
        with faulty_proxy(gateway.url, self.path) as proxy:
            reply = drivers.ask(self.driver, self.way, proxy.url, project, f"{mark}\n{standin(prompt)}")
            said = reply.get("error", "")
            seen = time.monotonic() if words in said else None
            return _met(gateway, proxy, mark, seen, only_works=True), said


class _Screen:
    """What a process has written so far, and when."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes) -> None:
        self._process, self._stdin = process, stdin
        self._pieces: list[tuple[float, bytes]] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(self._stdin)
            self._process.stdin.close()
        with self._process.stdout as stdout:
            while piece := os.read(stdout.fileno(), 65536):
                self._pieces.append((time.monotonic(), piece))

    @property
    def text(self) -> str:
        return _plain(b"".join(piece for _, piece in self._pieces))

    def seen(self, words: str) -> float | None:
        """When they were complete. The process has ended."""
        self._reader.join(TIMEOUT)
        for number, (when, _) in enumerate(self._pieces, 1):
            if _plain(words.encode()) in _plain(b"".join(piece for _, piece in self._pieces[:number])):
                return when
        return None


def _plain(data: bytes) -> str:
    """Without colours, and in one line: a program breaks lines where it likes."""
    return " ".join(_STYLE.sub("", data.decode(errors="replace")).replace("\\n", " ").split())


def _questions(proxy: FaultyProxy) -> list[float]:
    """When they came. A client that has tools sends them with the question, but not when it asks for a title."""
    requests = [(when, "tools" in json.loads(body)) for when, body in list(proxy.bodies)]
    has_tools = any(with_tools for _, with_tools in requests)
    return [when for when, with_tools in requests if with_tools == has_tools]


def _met(gateway: RunningGateway, proxy: FaultyProxy, mark: str, seen: float | None, *, only_works: bool) -> Met:
    came = _questions(proxy)
    agents = [agent for agent in invocations(gateway, mark) if not (only_works and "--mode" in agent["argv"])]
    return Met(
        agents=len(agents),
        requests=len(came),
        requests_before=len([when for when in came if seen is None or when <= seen]),
        seconds=None if seen is None or not came else round(seen - came[0], 1),
    )


def _programs() -> list[Program]:
    titles = {
        "claude": "Claude Code",
        "codex": "Codex",
        "opencode": "OpenCode",
        "kilo": "Kilo",
        "pi": "pi",
        "cn": "Continue",
        "cline": "Cline",
        "qwen": "Qwen Code",
    }
    paths: dict[str, Path] = {"claude": "/v1/messages", "codex": "/v1/responses"}
    chat: Path = "/v1/chat/completions"
    shells = [Program(titles[shell.name], shell, paths.get(shell.name, chat)) for shell in SHELLS]
    aider = Program("aider", Shell("aider", [*_AIDER, "--no-pretty", "--message"], "", {}))
    return [*shells, aider, Program("llm", Shell("llm", [], "", {}))]


def _sdks() -> Sequence[Sdk]:
    ways: list[tuple[str, str, Path]] = [
        ("openai", "chat", "/v1/chat/completions"),
        ("openai", "responses", "/v1/responses"),
        ("anthropic", "messages", "/v1/messages"),
    ]
    languages = {"sdks": "Python", "sdks.mjs": "JavaScript"}
    return [
        Sdk(f"{package} in {language}, {way}", driver, way, path)
        for driver, language in languages.items()
        for package, way, path in ways
    ]


CLIENTS: list[Program | Sdk] = [*_programs(), *_sdks()]
