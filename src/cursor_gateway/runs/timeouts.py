"""A run in; its end, when it takes too long or its agent is silent for too long, out."""

import asyncio

from msgspec import Struct

from cursor_gateway.errors import AgentTimedOut
from cursor_gateway.runs.driver import Driver
from cursor_gateway.runs.waiting import Waiting

_LATE_SECONDS = 1.0  # if a timer fires this late, the process was suspended


class Timeouts(Struct, frozen=True, kw_only=True):
    first_event_seconds: float
    idle_seconds: float
    run_seconds: float


class TimeoutWatch:
    """The three time limits of a run, on one timer that is only rescheduled when it fires."""

    def __init__(self, driver: Driver, waiting: Waiting, limits: Timeouts, loop: asyncio.AbstractEventLoop) -> None:
        self._driver, self._waiting, self._limits, self._loop = driver, waiting, limits, loop
        self._timer = self._set(self._left())

    def cancel(self) -> None:
        self._timer.cancel()
        del self._timer  # or the two hold each other, and with them the run, until the next collection

    def _left(self) -> float:
        if self._waiting.is_waiting:  # which has a limit of its own
            return self._limits.idle_seconds
        now = self._loop.time()
        silence = self._limits.idle_seconds if self._driver.has_events else self._limits.first_event_seconds
        return min(self._driver.heard_at + silence, self._last_moment) - now

    @property
    def _last_moment(self) -> float:
        return self._driver.started_at + self._waiting.seconds + self._limits.run_seconds

    def _ring(self) -> None:
        left = self._left()
        if left <= 0 and self._loop.time() > self._due + _LATE_SECONDS:
            left = _LATE_SECONDS  # the gateway was suspended: what the agent wrote meanwhile is still unread
        if left > 0:
            self._timer = self._set(left)
            return
        self._driver.stop(AgentTimedOut(self._message()))

    def _set(self, seconds: float) -> asyncio.TimerHandle:
        """Before the first event, it also fires within the idle limit, which may be shorter."""
        seconds = min(seconds, self._limits.idle_seconds)
        self._due = self._loop.time() + seconds
        return self._loop.call_later(seconds, self._ring)

    def _message(self) -> str:
        limits = self._limits
        if self._last_moment <= self._loop.time():  # as `_left` adds: rounding must agree
            return f"The run took longer than {limits.run_seconds:g} s; ask for less at a time, or raise `run_seconds`."
        if self._driver.has_events:
            return f"The agent sent nothing for {limits.idle_seconds:g} s; try again, or raise `idle_seconds`."
        return (
            f"The agent sent nothing within {limits.first_event_seconds:g} s of its start; try again, run "
            "`cursor-gateway doctor`, or raise `first_event_seconds`."
        )
