"""A process id in; what it listens on, uses and has started, out (Linux's /proc)."""

import os
from contextlib import suppress
from pathlib import Path


def listens(pid: int, port: int) -> bool:
    """Whether it is this process that answers there, and not one that somebody forgot."""
    sockets = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and int(fields[1].partition(":")[2], 16) == port:  # 0A: LISTEN
            sockets.add(f"socket:[{fields[9]}]")
    return any(_target(link) in sockets for link in Path(f"/proc/{pid}/fd").iterdir())


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed meanwhile
        return ""


def cpu_seconds(pid: int) -> float:
    """Of all its threads, to the nanosecond: what `stat` tells is counted in hundredths of a second."""
    used = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # ended meanwhile
            used += int((thread / "schedstat").read_text().split()[0])
    return used / 1e9


def peak_megabytes(pid: int) -> float:
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM") / 1024


def own_kilobytes(pid: int) -> float:
    """Its share of the memory that it uses (PSS)."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def _kilobytes(file: Path, name: str) -> float:
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1])
    raise ValueError(f"{file} has no {name}")


def children(pid: int) -> list[int]:
    """Those that run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] != "Z":
                    found.append(int(entry.name))
    return found
