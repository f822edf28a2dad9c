"""When something may be done again: at once after a quiet time, then once in an interval.

What came in between is done together. Of a stream of events, each statement, notification and wake-up costs more than
the events that it brings, and nobody sees a delay of a twenty-fifth of a second.
"""

import asyncio

_SECONDS = 0.04


class Pace:
    def __init__(self, *, is_common: bool = False) -> None:
        """`is_common`: at the same moments as others of this process, so that they are done together."""
        self._is_common = is_common
        self._next = 0.0  # by the clock of the event loop
        self._due = asyncio.Event()

    def hurry(self) -> None:
        """The turn that somebody waits for, or the next one, is now."""
        self._due.set()

    async def turn(self) -> None:
        """Waits until the next turn, or until somebody is in a hurry. For one caller at a time."""
        loop = asyncio.get_running_loop()
        if self._next > loop.time():
            timer = loop.call_at(self._next, self._due.set)
            try:
                await self._due.wait()
            finally:
                timer.cancel()
        self._due.clear()
        self._next = loop.time() + _SECONDS
        if self._is_common:
            self._next = round(self._next / _SECONDS) * _SECONDS
