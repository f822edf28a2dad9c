"""Detect an agent that repeats the same calls.

The same call twice is not a loop: an agent that waits for a build repeats its call, too. A call counts as a repetition
only if its result is also the same, and only an unbroken series of fast repetitions, of any calls, is a loop.
"""

import hashlib

_WARN_AT = 3  # times the same call gave the same result
_STOP_AT = 25  # repetitions in a row
_SLOW = 1.0  # seconds: loops are fast, and an agent that polls sleeps in between


class LoopGuard:
    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}
        self._repetitions = 0

    def gave(self, call: str, result: str, seconds: float = 0.0) -> str:
        """A warning to add to the result for the model; usually empty. `seconds` is how long the call took."""
        pair = hashlib.sha256(f"{len(call)} {call}{result}".encode(errors="surrogatepass")).digest()
        times = self._seen[pair] = self._seen.get(pair, 0) + 1
        self._repetitions = self._repetitions + 1 if times > 1 and seconds < _SLOW else 0
        if times < _WARN_AT:
            return ""
        return (
            f"[You have made this call {times} times with the same arguments, and it gave the same each time. "
            "Do something else, or answer with what you have.]"
        )

    @property
    def is_loop(self) -> bool:
        return self._repetitions >= _STOP_AT
