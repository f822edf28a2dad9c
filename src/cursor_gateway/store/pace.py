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

    async def turn(self, hurry: asyncio.Event | None = None) -> None:
        """Waits until the next turn, or until somebody is in a hurry. For one caller at a time."""
        loop = asyncio.get_running_loop()
        left = self._next - loop.time()
        if left > 0 and hurry is None:
            await asyncio.sleep(left)
        elif left > 0 and hurry is not None:
            timer = loop.call_later(left, hurry.set)
            try:
                await hurry.wait()
            finally:
                timer.cancel()
        if hurry is not None:
            hurry.clear()
        self._next = loop.time() + _SECONDS
        if self._is_common:
            self._next = round(self._next / _SECONDS) * _SECONDS
