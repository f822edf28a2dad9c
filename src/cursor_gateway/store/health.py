"""Calls of a store in; whether it works out: for the log at once, and for metrics and `/health`.

An engine reports each call that failed, and each that succeeded. Reading, writing and appending to the files of running
runs are separate: on a full disk, one can still read, and a locked database does not stop the files. Damage
stays a problem, although other calls succeed. A short conflict with another writer is counted, but is a problem only if
it lasts.
"""

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.errors import StoreUnavailable

_log = logging.getLogger(__name__)

Access: TypeAlias = Literal["read", "write", "append"]
_Kind: TypeAlias = Access | Literal["damage"]  # which lasts until the next start

_LASTING_SECONDS = 5.0  # of a conflict
_REPEAT_SECONDS = 60.0  # between two log lines about the same problem


class Figure(Struct, frozen=True):
    """For the metrics, from modules that do not depend on how these are published."""

    name: str
    help: str
    value: float
    is_total: bool = False  # it only grows


class StoreHealth:
    """For any number of threads."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.errors = 0
        self._clock = clock
        self._failing: dict[_Kind, _Problem] = {}
        self._lock = threading.Lock()

    @property
    def problem(self) -> str:
        """A sentence for the operator, without addresses and paths; empty if it works."""
        return next((problem.message for problem in list(self._failing.values()) if problem.is_reported), "")

    @property
    def is_failing(self) -> bool:
        """Whether the last call failed, even if only for a moment."""
        return bool(self._failing)

    def figures(self) -> list[Figure]:
        return [
            Figure("store_errors", "Reads and writes of the history that failed.", self.errors, is_total=True),
            Figure("store_available", "0 while the history cannot be read or written.", 0 if self.problem else 1),
        ]

    def failed(self, kind: _Kind, error: StoreUnavailable, *, is_conflict: bool = False) -> None:
        now = self._clock()
        with self._lock:
            self.errors += 1
            problem = self._failing.setdefault(kind, _Problem(now))
            problem.message = str(error)
            is_due = now >= problem.next_report and not (is_conflict and now - problem.since < _LASTING_SECONDS)
            if is_due:
                problem.is_reported, problem.next_report = True, now + _REPEAT_SECONDS
        if is_due:
            _log.error("%s", error, extra={"facts": {"kind": kind, "details": error.details}})

    def worked(self, access: Access) -> None:
        if access in self._failing:
            with self._lock:
                problem = self._failing.pop(access, None)
            if problem is not None and problem.is_reported:
                seconds = round(self._clock() - problem.since, 1)
                _log.warning("The history works again.", extra={"facts": {"kind": access, "after_seconds": seconds}})


class _Problem:
    def __init__(self, since: float) -> None:
        self.since, self.next_report = since, since
        self.message = ""
        self.is_reported = False
