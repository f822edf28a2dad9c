"""Recognize a failure that arrives as the last text of a turn.

Over ACP a failed turn ends like any other, with the stop reason `end_turn`: its last chunk is
`\\n\\nError: RetriableError: [unavailable] …`, or its only one is a sentence such as `Please sign in to continue`. A
model may quote either, so only a whole chunk counts, at the very end; it is held back until that is decided. As the
only chunk of a turn, a failure may lack the blank line and the word "Error".
"""

import re

from cursor_gateway.errors import AgentError
from cursor_gateway.sources.cursor.failures import ACCOUNT_SENTENCES, known_failure, reported_failure

_MARK = "\n\nError: "
_LONGEST = 4000  # characters of a failure
_CODES = (
    "aborted|already_exists|canceled|data_loss|deadline_exceeded|failed_precondition|internal|invalid_argument|not_found|"
    "out_of_range|permission_denied|resource_exhausted|unauthenticated|unavailable|unimplemented|unknown"
)
# The service's own errors: a class, which minified builds write as one or two letters, or a code alone, or both.
_SERVICE = re.compile(
    rf"\w*(?:Retriable|ActionRequired|Cancelled|Connect)Error(?:: |\Z)|(?:[A-Za-z_$]{{1,2}}: )?\[(?:{_CODES})\](?: |\Z)"
)


class TrailerWatch:
    def __init__(self) -> None:
        self._held = ""
        self._is_first = True  # nothing came before in this turn

    def push(self, chunk: str, /) -> str:
        """Returns the text to emit now."""
        if not chunk:
            return ""
        is_failure = _is_failure(chunk, self._is_first)
        held = self.release()
        if is_failure:
            self._held = chunk
            return held
        return held + chunk

    def release(self) -> str:
        """Something else follows, so the held text was not a failure. Returns it."""
        self._is_first = False
        held, self._held = self._held, ""
        return held

    def finish(self) -> AgentError | None:
        """The end of the turn. Returns the failure."""
        held = self.release()
        return reported_failure(held.strip().removeprefix(_MARK.strip()).strip()) if held else None


def _is_failure(chunk: str, is_first: bool) -> bool:
    said = chunk.strip().removeprefix(_MARK.strip()).strip()
    if is_first and (said in ACCOUNT_SENTENCES or (len(said) <= _LONGEST and _SERVICE.match(said))):
        return True
    message = chunk.removeprefix(_MARK)
    if message == chunk or len(message) > _LONGEST:
        return False
    if _SERVICE.match(message):
        return True
    return "```" not in message and known_failure(message.partition("\n")[0]) is not None
