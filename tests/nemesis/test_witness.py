"""Agents that say when they lived: real processes, one of them killed, two of them in one folder."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from nemesis.agent import install
from nemesis.history import History
from nemesis.laws import violations
from nemesis.witness import agents

pytestmark = pytest.mark.slow  # tests of a tool


def _start(program: Path, folder: Path, prompt: str) -> "subprocess.Popen[bytes]":
    folder.mkdir(exist_ok=True)
    words = ["-p", "--output-format", "stream-json", "--trust", "--workspace", str(folder), prompt]
    return subprocess.Popen(
        [program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder, env={"HOME": str(folder)}
    )


def test_lives_are_listed_with_their_questions_and_a_second_agent_in_a_folder_is_found(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    program = install(tmp_path / "bin", witness)
    assert subprocess.run([program, "--version"], capture_output=True, check=True).stdout
    one, other = tmp_path / "one", tmp_path / "other"
    with (
        _start(program, one, "question-1 standin: hang-after-init") as first,
        _start(program, other, "question-1, then question-2 standin: text") as second,
    ):
        assert second.wait(60) == 0
        assert first.stdout is not None
        assert first.stdout.readline()
        with _start(program, one, "question-3 standin: text") as third:
            assert third.wait(60) == 0
        first.send_signal(signal.SIGKILL)
        first.wait(60)
    with _start(program, one, "question-4 standin: text") as fourth:
        assert fourth.wait(60) == 0
    found = {agent.question: agent for agent in agents(witness)}
    assert set(found) == {"question-1", "question-2", "question-3", "question-4"}
    assert [found[f"question-{n}"].alone for n in (1, 2, 3, 4)] == [True, True, False, True]
    assert found["question-1"].end is None
    assert found["question-4"].begin < (found["question-4"].end or 0) < time.monotonic()
    laws = {found.law for found in violations(History(agents=tuple(agents(witness))))}
    assert "one agent per folder" in laws
