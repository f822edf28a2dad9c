"""A wall clock that can be moved, in the Python process that finds this module on its path when it starts.

The seconds in the file that `NEMESIS_CLOCK` names are added to the time; the monotonic clock stays. (libfaketime moves
the clocks of any program, but with the monotonic one left alone, `time.sleep` fails: errno 22, version 0.9.10.)
"""

import os
import time

_LOOK_NS = 50_000_000  # between two looks at the file
_FILE = os.environ.get("NEMESIS_CLOCK", "")


class _Offset:
    def __init__(self) -> None:
        self._seconds, self._next_ns = 0, 0

    def seconds(self) -> int:
        now = time.monotonic_ns()
        if now >= self._next_ns:
            self._next_ns = now + _LOOK_NS
            try:
                with open(_FILE, encoding="ascii") as file:
                    self._seconds = int(file.read())
            except (OSError, ValueError):  # it is being written
                pass
        return self._seconds


def _install() -> None:
    offset, real, real_ns = _Offset(), time.time, time.time_ns
    time.time = lambda: real() + offset.seconds()
    time.time_ns = lambda: real_ns() + offset.seconds() * 1_000_000_000


if _FILE:
    _install()
