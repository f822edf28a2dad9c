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
        self.set(trust="all")

    def set(self, **knobs: object) -> None:
        self.program = install(self.home / "bin", knobs=knobs)

    def run(self, *words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        configuration = {"PATH": os.environ["PATH"], "CURSOR_CONFIG_DIR": str(self.home / "configuration")}
        return subprocess.run(
            [self.program, *words],
            input=stdin.encode("utf-8", "surrogatepass").decode(),
            encoding="utf-8",
            errors="surrogateescape",
            capture_output=True,
            cwd=self.workspace,
            env={**configuration, **environment},
            timeout=TIMEOUT,
            check=False,
        )

    def records(self, prompt: str, *words: str) -> list[dict[str, Any]]:
        ran = self.run(*STREAM, *words, stdin=prompt)
        assert ran.returncode == 0, ran.stderr
        return parsed(ran.stdout)


def parsed(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.split("\n") if line]


def kinds(records: list[dict[str, Any]]) -> list[str]:
    return [f"{record['type']}/{record['subtype']}" if "subtype" in record else record["type"] for record in records]


def text_of(record: dict[str, Any]) -> str:
    text = record["message"]["content"][0]["text"]
    assert isinstance(text, str)
    return text
