"""Measure how late the event loop is, with a timer that should fire ten times a second.

All clients wait while one callback runs. The time is in `/metrics`; over 100 ms it is also logged, at most one a
minute, with the largest since the line before. The CPU time of the loop's thread shows whether the gateway itself was
busy, or had to wait for the machine.
"""

import asyncio
import time
from collections.abc import Callable

from cursor_gateway.server.logs import Log
from cursor_gateway.server.metrics import Metrics

_EVERY_SECONDS = 0.1
_LONG_SECONDS = 0.1
_LOG_SECONDS = 60.0

_BUSY_GATEWAY = "A request or an answer took too long to process. If it happens again, please report the request."
_BUSY_MACHINE = "Other programs used the machine, or it has too little CPU: give the gateway more, or lower `max_runs`."


class LoopLag:
    def __init__(
        self,
        metrics: Metrics,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._metrics, self._log, self._clock, self._cpu = metrics, log, clock, cpu
        self._slept_at, self._cpu_at = clock(), cpu()
        self._worst, self._worst_cpu = 0.0, 0.0
        self._logged_at = -_LOG_SECONDS

    async def watch(self) -> None:
        while True:
            self.sleeps()
            await asyncio.sleep(_EVERY_SECONDS)
            self.woke()

    def sleeps(self) -> None:
        self._slept_at, self._cpu_at = self._clock(), self._cpu()

    def woke(self) -> None:
        now = self._clock()
        lag, used = max(0.0, now - self._slept_at - _EVERY_SECONDS), self._cpu() - self._cpu_at
        self._metrics.loop_lag(lag)
        if lag > self._worst:
            self._worst, self._worst_cpu = lag, used
        if self._worst > _LONG_SECONDS and now >= self._logged_at + _LOG_SECONDS:
            advice = _BUSY_GATEWAY if self._worst_cpu > self._worst / 2 else _BUSY_MACHINE
            self._log.warning(
                "loop_lag", seconds=round(self._worst, 3), cpu_seconds=round(self._worst_cpu, 3), advice=advice
            )
            self._worst, self._logged_at = 0.0, now
