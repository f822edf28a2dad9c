"""A log that nobody reads: the gateway goes on, and tells how many lines were lost."""

import os
import re
from pathlib import Path

import pytest

from tests.gateways import running_gateway
from tests.server.conftest import ask, http_client


@pytest.mark.slow  # test_logs.py proves it without a gateway
def test_a_log_that_nobody_reads_holds_nobody_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    before = ("/bin/sh", "-c", f'exec "$@" 2>{pipe}', "sh")
    flags = ("--source", "replay", "--log-level", "debug")
    settings = {"replay_speed": "0"}
    try:
        with (
            running_gateway(tmp_path / "home", *flags, settings=settings, before=before) as gateway,
            http_client(gateway) as http,
        ):
            lost = 0
            for _ in range(2000):  # a pipe takes 64 kB, here a hundred runs
                assert ask(http, "documents", "hello").status_code == 200
                if lost := int(float(re.findall(r"log_lines_lost_total ([\d.]+)", http.get("/metrics").text)[0])):
                    break
            assert lost
            assert http.get("/health").status_code == 200
    finally:
        os.close(reading)
