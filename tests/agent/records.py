"""The stand-in's log in; its records out."""

import json
from pathlib import Path
from typing import Any

from cursor_gateway.sources.processes import snapshot, values_of


def records(log: Path) -> list[dict[str, Any]]:
    """One for each start. A line of which only the beginning is written does not count yet."""
    whole, _, _ = (log.read_bytes() if log.exists() else b"").rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]


def left_of(log: Path) -> list[int]:
    """The living processes of its agents. Pids are reused, also for groups: only those with the log's home count."""
    groups = {started["pgid"] for started in records(log)}
    found = [process.pid for process in snapshot().values() if process.group in groups]
    return [pid for pid, home in values_of("HOME", found).items() if home == str(log.parent)]
