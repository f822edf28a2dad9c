"""Every line of the table in docs/cluster.md can be tried with `make cluster`, and shows what the table says."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SECONDS = 120

pytestmark = pytest.mark.slow  # a tool's; tests/cluster has the same failures


def lines_of_the_table() -> dict[str, tuple[list[str], str]]:
    """What fails: the commands to try, and what is seen."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    table = page.partition("| failure | what clients see | try it |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \| .+? \| (`.+|the same .+) \|$", table, re.MULTILINE)
    split = {name: cell.rpartition(": ") for name, cell in rows if ": " in cell}
    return {name: (re.findall(r"`([^`]+)`", commands), seen) for name, (commands, _, seen) in split.items()}


class Playground:
    def __init__(self, process: "subprocess.Popen[str]", env: Path, tmp_path: Path) -> None:
        self.process, self.env, self._folder = process, env, tmp_path
        self.printed: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line)

    def said(self, text: str) -> bool:
        return any(text in line for line in self.printed)

    def shell(self, command: str) -> str:
        """As in a second terminal."""
        script = f'. "{self.env}"; cursor-gateway() {{ "{sys.executable}" -m cursor_gateway "$@"; }}; {command}'
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder)}
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout + done.stderr

    def begin(self) -> "subprocess.Popen[str]":
        """A long answer, which the agent has begun."""
        script = f'. "{self.env}"; exec "{sys.executable}" -m cursor_gateway chat "implement JWT authentication"'
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "PYTHONUNBUFFERED": "1"}
        asking = subprocess.Popen(
            ["bash", "-c", script],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        until(lambda: '"state":"running"' in self.shell("curl -s $URL/v1/runs"), "the answer has begun")
        return asking

    def pid(self, name: str) -> int:
        folder = self.shell("echo $CLUSTER").strip()
        return int(Path(folder, name, "pid").read_text())


@contextmanager
def playground(tmp_path: Path, *options: str) -> Iterator[Playground]:
    env = tmp_path / "cluster.env"
    command = [sys.executable, "-m", "tools.cluster", "--port", "0", "--source", "replay", "--workspace", str(tmp_path)]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONUNBUFFERED": "1",
        "CURSOR_GATEWAY_BEAT_SECONDS": "0.5",
        "CURSOR_GATEWAY_LEASE_SECONDS": "4",
        "CURSOR_GATEWAY_DRAIN_SECONDS": "1",
        "CURSOR_GATEWAY_REPLAY_SPEED": "2",
    }
    with subprocess.Popen(
        [*command, "--env", str(env), *options], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        found = Playground(process, env, tmp_path)
        try:
            until(lambda: found.said("Press Ctrl-C"), "the cluster has started")
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
    assert not env.exists()


def until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def ready(cluster: Playground) -> bool:
    listed = cluster.shell("cursor-gateway runners").splitlines()
    roles = [line.split("\t")[1] for line in listed if line.count("\t") == 7]
    return roles.count("front") >= 2 and roles.count("runner") >= 2 and '"id"' in cluster.shell(hello("again"))


def hello(key: str) -> str:
    body = """-H 'Content-Type: application/json' -d '{"message": "hello"}'"""
    return f"curl -s $URL/v1/chat -H 'Idempotency-Key: {key}{time.monotonic()}' {body}"


def test_what_is_killed_is_started_again_and_clients_see_what_the_table_says(tmp_path: Path) -> None:
    table = lines_of_the_table()
    goes_on = ["a front is killed", "a front is stopped", "the database restarts or fails over"]
    ends = {"a runner is killed": "runner_lost", "a runner is stopped": "shutting_down"}
    freezes, twice = "a runner freezes and wakes up later", "two identical requests arrive at once"
    assert table.keys() == {*goes_on, *ends, freezes, twice, "the database is lost"}
    with playground(tmp_path) as cluster:
        for name in [*goes_on, *ends]:
            (command, *_), seen = table[name]
            answer = cluster.begin()
            assert not cluster.shell(command), name
            text, _ = answer.communicate(timeout=SECONDS)
            assert answer.returncode == (0 if name in goes_on else 1), f"{name}: {text}"
            if name in ends:
                assert ends[name] in seen
                stored = json.loads(cluster.shell("curl -s $URL/v1/runs"))["runs"][0]
                assert stored["errorCode"] == ends[name]
            else:
                assert "goes on" in seen
            until(lambda: ready(cluster), f"after {name}, everything works again")
        assert cluster.said("front-1 was ended by signal 9; it is started again in 1 s.")
        assert cluster.said("database was started again.")

        (suspend, wake), seen = table[freezes]
        listing = "cursor-gateway runners"
        assert f"`{listing}` does not list it" in seen
        suspended = cluster.pid("runner-1")
        assert not cluster.shell(suspend)
        until(lambda: f"-{suspended}-" not in cluster.shell(listing), "it is not listed any more")
        assert not cluster.shell(wake)
        until(lambda: f"-{suspended}-" in cluster.shell(listing), "it is listed again")

        (command,), seen = table[twice]
        assert seen == "the same `id`"
        both = [json.loads(cluster.shell(command))["id"] for _ in range(2)]
        assert both[0] == both[1]


def test_without_supervision_what_is_killed_stays_dead(tmp_path: Path) -> None:
    table = lines_of_the_table()
    (kill, *_), _ = table["the database restarts or fails over"]
    (option, look), seen = table["the database is lost"]
    with playground(tmp_path, option) as cluster:
        assert not cluster.shell(kill)
        until(lambda: cluster.said("database is gone, and stays dead."), "it says so")
        found = cluster.shell(f"{look} -s -w '%{{http_code}}'")
        assert all(word.strip("`") in found for word in seen.split()), found
