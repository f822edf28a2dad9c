"""The stand-in as a process of a test's own: installed, configured, run and read."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.agent.install import install

TIMEOUT = 60  # for a red build only
STREAM = ("-p", "--output-format", "stream-json")
PARTIAL = (*STREAM, "--stream-partial-output")


class Standin:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.workspace = home / "workspace"
        self.workspace.mkdir()
        self.configuration = home / "configuration"
        self.environment = {"PATH": os.environ["PATH"], "CURSOR_CONFIG_DIR": str(self.configuration)}
        self.started: list[subprocess.Popen[bytes]] = []
        self.set(trust="all")

    def set(self, **knobs: object) -> None:
        self.program = install(self.home / "bin", knobs=knobs)

    def run(self, *words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words],
            input=stdin.encode("utf-8", "surrogatepass").decode(),
            encoding="utf-8",
            errors="surrogateescape",
            capture_output=True,
            cwd=self.workspace,
            env={**self.environment, **environment},
            timeout=TIMEOUT,
            check=False,
        )

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [self.program, *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.workspace,
            env=self.environment,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def records(self, prompt: str, *words: str) -> list[dict[str, Any]]:
        ran = self.run(*STREAM, *words, stdin=prompt)
        assert ran.returncode == 0, ran.stderr
        return parsed(ran.stdout)

    def answer(self, prompt: str, *words: str) -> str:
        result = self.records(prompt, *words)[-1]["result"]
        assert isinstance(result, str)
        return result

    def log(self) -> list[dict[str, Any]]:
        return parsed((self.home / "log").read_text())

    def configured(self) -> dict[str, Any]:
        data = json.loads((self.configuration / "cli-config.json").read_text())
        assert isinstance(data, dict)
        return data

    def configure(self, **data: object) -> None:
        self.configuration.mkdir(exist_ok=True)
        (self.configuration / "cli-config.json").write_text(json.dumps(data))


def parsed(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.split("\n") if line]


def kinds(records: list[dict[str, Any]]) -> list[str]:
    return [f"{record['type']}/{record['subtype']}" if "subtype" in record else record["type"] for record in records]


def text_of(record: dict[str, Any]) -> str:
    text = record["message"]["content"][0]["text"]
    assert isinstance(text, str)
    return text


def read_until(process: subprocess.Popen[bytes], expected: bytes) -> bytes:
    assert process.stdout is not None
    seen = b""
    while expected not in seen:
        piece = os.read(process.stdout.fileno(), 65536)
        assert piece, f"the output ended without {expected!r}: {seen!r}"
        seen += piece
    return seen
