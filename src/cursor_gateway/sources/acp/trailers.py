"""Hold back text that may be the failure at the end of a turn.

Over ACP a failed turn ends like any other: its last text is `\\n\\nError: RetriableError: [unavailable] …`, and the
stop reason is `end_turn` (seen in 2026.08.11). Text that may be the start of that is held back until it is decided.
"""

import re

from cursor_gateway.errors import AgentError
from cursor_gateway.sources.cursor.failures import known_failure, reported_failure

_MARK = "\n\nError: "
_LONGEST = 4000  # characters of a failure
# The service's own errors; minified builds write the class as one or two letters, followed by a code.
_CLASS = re.compile(r"\w*(?:Retriable|ActionRequired|Connect)Error: |[A-Za-z_$]{1,2}: \[[a-z_]+\]")


class TrailerWatch:
    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str, /) -> str:
        """Returns the text to emit now."""
        held = self._held + text
        start = held.rfind(_MARK)
        if start >= 0 and _may_be_failure(held[start + len(_MARK) :]):
            self._held = held[start:]
        else:
            self._held = _beginning_at_end_of(held)
        return held[: len(held) - len(self._held)]

    def release(self) -> str:
        """Something else follows, so the held text was not a failure. Returns it."""
        held, self._held = self._held, ""
        return held

    def finish(self) -> tuple[str, AgentError | None]:
        """The end of the text. Returns the rest of it, or the failure."""
        held = self.release()
        message = held.removeprefix(_MARK)
        if message != held and _is_failure(message):
            return "", reported_failure(message)
        return held, None


def _may_be_failure(message: str) -> bool:
    if len(message) > _LONGEST:
        return False
    return "\n" not in message or _is_failure(message)


def _is_failure(message: str) -> bool:
    if _CLASS.match(message):
        return True
    return "```" not in message and known_failure(message.partition("\n")[0]) is not None


def _beginning_at_end_of(text: str) -> str:
    return next((_MARK[:length] for length in range(len(_MARK) - 1, 0, -1) if text.endswith(_MARK[:length])), "")
