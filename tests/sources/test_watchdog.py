"""A watchdog ends the agents of a gateway that was killed, and none of one that closes."""

import subprocess
import sys
from pathlib import Path

from cursor_gateway.sources.ledger import main
from cursor_gateway.sources.process_groups import start_of
from cursor_gateway.sources.watchdog import Watchdog

_GATEWAY = """
import asyncio, os, signal, sys
from pathlib import Path
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.process import AgentProcess

async def live():
    ledger = Ledger(Path(sys.argv[1]))
    ledger.open()
    ledger.watch()
    agent = await AgentProcess.start(
        ["/bin/sh", "-c", "(setsid sh -c 'echo $$; exec sleep 600' &); sleep 600"],
        folder="/", environment={"PATH": "/usr/bin:/bin"}, stdin=None)
    ledger.add(agent.pid)
    print(agent.pid, (await agent.read()).decode().strip(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(live())
"""


def killed(folder: Path) -> list[int]:
    ran = subprocess.run([sys.executable, "-c", _GATEWAY, str(folder)], stdout=subprocess.PIPE, check=False)
    return [int(pid) for pid in ran.stdout.split()]


def test_the_agents_of_a_gateway_that_was_killed_are_ended(tmp_path: Path) -> None:
    pids = killed(tmp_path / "instances")
    assert len(pids) == 2
    while any(start_of(pid) is not None for pid in pids):
        pass
    (folder,) = (tmp_path / "instances").iterdir()  # which tells the next gateway whose runs to end
    main(folder)


def test_a_gateway_that_closes_ends_its_watchdog(tmp_path: Path) -> None:
    watchdog = Watchdog(["touch", str(tmp_path / "ran")])
    pid = watchdog._shell.pid
    assert start_of(pid) is not None
    watchdog.close()
    assert start_of(pid) is None
    assert not (tmp_path / "ran").exists()
