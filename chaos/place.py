"""A fresh folder in; a real gateway with an agent in it, and what can be seen of both from outside, out."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx2
from msgspec import Struct

from tests.gateways import RunningGateway, running_gateway

T = TypeVar("T")

TIMEOUT = 30.0  # seconds, for what should take a moment on any machine


class Place(Struct, frozen=True):
    folder: Path  # fresh for each fault
    is_short: bool  # CI's short form: smaller counts, same meaning

    def size(self, full: int, short: int) -> int:
        return short if self.is_short else full

    @contextmanager
    def gateway(
        self,
        *flags: str,
        settings: Mapping[str, str] | None = None,
        knobs: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[RunningGateway]:
        """With the stand-in as its agent. Its home is a folder of the place's; a second one gets another. It starts no
        agents in advance: faults wait until none is left."""
        home = self.folder / f"home-{len(list(self.folder.glob('home-*'))) + 1}"
        try:
            with running_gateway(
                home, *flags, settings={"spare_agents": "0", **(settings or {})}, knobs=knobs, environment=environment
            ) as running:
                yield running
        except Exception as error:
            log = home / "gateway.log"
            error.add_note(
                f"The gateway's log ends with:\n{log.read_text('utf-8', 'replace')[-2000:] if log.exists() else ''}"
            )
            raise


# --- waiting ------------------------------------------------------------------------------------------


def wait_until(condition: Callable[[], T], seconds: float = TIMEOUT, what: str = "") -> T:
    """The first value that is true. Raises an AssertionError when the time is over."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or condition}"
        time.sleep(0.01)
    return value


# --- a process from outside ---------------------------------------------------------------------------


def fds(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def fds_but_database(pid: int) -> int:
    """Without those of the history, which SQLite opens and closes as it likes, two or three at a time."""
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += "history.db" not in os.readlink(entry)
    return found


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def rss_kb(pid: int) -> int:
    return _status_kb(pid, "VmRSS")


def peak_rss_kb(pid: int) -> int:
    """The most it ever had."""
    return _status_kb(pid, "VmHWM")


def _status_kb(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found, f"{name} of {pid}"
    return int(found[1])


def processes_of(home: Path) -> list[int]:
    """The living processes that were given this folder as their home: whatever group or session they are in."""
    return _with_home(lambda given: given == home)


def processes_below(folder: Path) -> list[int]:
    """The same for every home in a folder."""
    return _with_home(lambda given: given.is_relative_to(folder))


def _with_home(fits: Callable[[Path], bool]) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:  # gone meanwhile, or not ours
                continue
            homes = [item[5:] for item in environment.split(b"\0") if item.startswith(b"HOME=")]
            if homes and fits(Path(os.fsdecode(homes[0]))):
                found.append(int(entry.name))
    return found


# --- a gateway from outside ---------------------------------------------------------------------------


def agents_of(gateway: RunningGateway) -> list[int]:
    """The living agents and all that they have started. An agent has a session of its own, a worker has not."""
    session = os.getsid(0)
    return [pid for pid in processes_of(gateway.home) if _session(pid) not in (session, None)]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def zombies_of(gateway: RunningGateway) -> list[int]:
    """Children that have ended, and whose end nobody has taken note of."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, parent, *_ = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if state == "Z" and int(parent) == gateway.process.pid:
                    found.append(int(entry.name))
    return found


def is_healthy(gateway: RunningGateway, seconds: float = TIMEOUT) -> bool:
    """Whether /health answers, and a short prompt is answered whole."""
    with httpx2.Client(base_url=gateway.url, timeout=seconds) as client:
        if client.get("/health").status_code != 200:
            return False
        answer = client.post("/v1/chat", json={"message": "standin: say\n---\nI am well.\n--- end"})
        return answer.status_code == 200 and answer.json()["documents"][0]["content"] == "I am well."
