"""When replies were delivered: a client that repeats a request some time later wants another answer."""

import time
from collections.abc import Callable

_MOST = 1000  # replies that are remembered


class Deliveries:
    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """For `seconds` after a reply, the same request counts as a retry: the reply may have been lost in transit."""
        self._seconds, self._clock = seconds, clock
        self._delivered: dict[tuple[str, str], float] = {}  # when, by owner and key; the latest last

    def note(self, owner: str, key: str) -> None:
        self._delivered.pop((owner, key), None)
        self._delivered[owner, key] = self._clock()
        if len(self._delivered) > _MOST:
            del self._delivered[next(iter(self._delivered))]

    def is_asked_again(self, owner: str, key: str) -> bool:
        """Whether this question was answered long enough ago. It is then forgotten: the next one like it may be a retry
        of this one."""
        delivered = self._delivered.get((owner, key))
        if delivered is None or self._clock() - delivered < self._seconds:
            return False
        del self._delivered[owner, key]
        return True
