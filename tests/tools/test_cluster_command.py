"""`make cluster`: one command starts everything, its address answers, and Ctrl-C leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from chaos.place import processes_of, wait_until
from tests.cli.processes import TIMEOUT
from tests.server.conftest import NO_TLS


@pytest.mark.slow  # a tool's; tests/cluster has the same processes
def test_a_cluster_answers_until_it_is_interrupted_and_then_nothing_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.cluster", "--port", "0", "--source", "replay", "--workspace", str(tmp_path)]
    command += ["--fronts", "2", "--runners", "1"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        printed = ""
        while "Press Ctrl-C" not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        names = re.findall(r"^  (\S+) +http://127\.0\.0\.1:\d+", printed, re.MULTILINE)
        assert names == ["balancer", "front-1", "front-2", "runner-1"]
        (address,) = re.findall(r"Send requests to (\S+);", printed)
        with httpx2.Client(base_url=address, timeout=TIMEOUT, verify=NO_TLS) as client:
            for _ in range(2):  # each front once
                answer = client.post("/v1/chat", json={"message": "hello"})
                assert answer.status_code == 200, answer.text
                assert answer.json()["documents"]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 0
        assert process.stdout.read().endswith("Everything has stopped.\n")
    wait_until(lambda: not processes_of(tmp_path), what="all processes have ended")
    for folder in re.findall(r"(?:log: |host=)(\S+)", printed):
        assert not Path(folder).exists()
