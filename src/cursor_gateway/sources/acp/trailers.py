"""The agent's text in pieces in; what of it may be said now, and the failure that stands at its end, out.

Over ACP a turn that failed ends as others do: its last text is `\\n\\nError: RetriableError: [unavailable] …`, and the
reason to stop is `end_turn` (seen in 2026.08.11). What may be the beginning of that is not said before it is known.
"""

import re

from cursor_gateway.errors import AgentError
from cursor_gateway.sources.cursor.failures import known_failure, reported_failure

_MARK = "\n\nError: "
_LONGEST = 4000  # characters of a failure
# The service's own errors; minified builds write a class as one or two letters, and then a code follows.
_CLASS = re.compile(r"\w*(?:Retriable|ActionRequired|Connect)Error: |[A-Za-z_$]{1,2}: \[[a-z_]+\]")


class TrailerWatch:
    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str, /) -> str:
        """What may be said now."""
        held = self._held + text
        start = held.rfind(_MARK)
        if start >= 0 and _may_be_failure(held[start + len(_MARK) :]):
            self._held = held[start:]
        else:
            self._held = _beginning_at_end_of(held)
        return held[: len(held) - len(self._held)]

    def release(self) -> str:
        """Something follows that no failure is followed by: it was text."""
        held, self._held = self._held, ""
        return held

    def finish(self) -> tuple[str, AgentError | None]:
        """The end of the text: what is left of it to say, and the failure that it was."""
        held = self.release()
        told = held.removeprefix(_MARK)
        if told != held and _is_failure(told):
            return "", reported_failure(told)
        return held, None


def _may_be_failure(told: str) -> bool:
    if len(told) > _LONGEST:
        return False
    return "\n" not in told or _is_failure(told)


def _is_failure(told: str) -> bool:
    if _CLASS.match(told):
        return True
    return "```" not in told and known_failure(told.partition("\n")[0]) is not None


def _beginning_at_end_of(text: str) -> str:
    return next((_MARK[:length] for length in range(len(_MARK) - 1, 0, -1) if text.endswith(_MARK[:length])), "")
