import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.driving import Standin


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[Standin]:
    made = Standin(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
