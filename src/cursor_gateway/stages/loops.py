"""Calls and what they gave in; whether the agent goes round in circles out.

To ask the same again is no loop: whoever waits for a build asks the same, too. A call counts as a repetition only if
it gave the same as before, and only an unbroken row of fast repetitions, whatever calls it is made of, is a loop.
"""

import hashlib

_WARN_AT = 3  # the same call with the same result, so often
_STOP_AT = 25  # calls without anything new among them
_SLOW = 1.0  # seconds: who goes round in circles does so fast, and who waits for something sleeps


class LoopGuard:
    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}
        self._row = 0

    def gave(self, call: str, result: str, seconds: float = 0.0) -> str:
        """What the model should be told beside the result, which took so long; empty in general."""
        pair = hashlib.sha256(f"{len(call)} {call}{result}".encode(errors="surrogatepass")).digest()
        times = self._seen[pair] = self._seen.get(pair, 0) + 1
        self._row = self._row + 1 if times > 1 and seconds < _SLOW else 0
        if times < _WARN_AT:
            return ""
        return (
            f"[You have made this call {times} times with the same arguments, and it gave the same each time. "
            "Do something else, or answer with what you have.]"
        )

    @property
    def is_loop(self) -> bool:
        return self._row >= _STOP_AT
