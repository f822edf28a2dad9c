"""Recognize what cursor-agent says when it fails.

The texts come from stderr, or from the end of the output where both share a pipe; over ACP, from the last text of a
turn. Minified builds print the error's class as one letter ("T: [internal] …"), so only the part after it is matched.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

from cursor_gateway import errors

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BREAKS = re.compile(r"[^a-z0-9]+")
_MODEL = re.compile(r"Cannot use this model: (.+?)\.?(?: Available models: (.*))?$", re.IGNORECASE | re.MULTILINE)
_CHAT_MESSAGE = re.compile(r"^chatMessage: *\*?(.+?)\*?$", re.MULTILINE)  # says when a usage limit resets
_LONGEST_DETAILS = 2000  # characters
_LONGEST_QUOTE = 300  # characters of agent output quoted in a message; the details have more
_LONGEST_NAME = 100  # characters of a model name, which comes from the caller and is compared and repeated
_MOST_SUGGESTIONS = 3
_ALIKE = 0.5  # minimum similarity for a suggestion

# What the other backends report as well, in their own ways.
NOT_LOGGED_IN = "The agent is not logged in; run `cursor-agent login` or set CURSOR_API_KEY."
KEY_REJECTED = "Cursor rejected the API key; set CURSOR_API_KEY to a valid one, or unset it to use the login."
USAGE_LIMIT = "The Cursor account has reached its usage limit; wait for its reset or raise the limit."
NO_CAPACITY = "Cursor's service has no capacity for this request at the moment; wait a while, then ask again."
CANCELLED = "The run was cancelled; start it again to get the whole answer."
CONNECTION_LOST = "The agent lost its connection to Cursor's service; check the network and try again."
BAD_OPTION = "The agent rejected one of its options."
LOGIN_REJECTED = "Cursor rejected the agent's login; run `cursor-agent login` again, or set a valid CURSOR_API_KEY."
ACCOUNT_REFUSED = "Cursor does not serve this account at the moment; follow the instructions at cursor.com/dashboard."

# The whole answer of Cursor's service if the account must be changed first.
ACCOUNT_SENTENCES = frozenset(
    {
        "Please sign in to continue",
        "Upgrade your plan to continue",
        "Add a payment method to continue",
        "Check your settings to continue",
    }
)

_TABLE: list[tuple[str, type[errors.AgentError], str]] = [
    (r"Authentication required|Not logged in", errors.AgentUnauthenticated, NOT_LOGGED_IN),
    (r"API key is invalid", errors.AgentUnauthenticated, KEY_REJECTED),
    (r"\bPlease sign in to continue|\[unauthenticated\]", errors.AgentUnauthenticated, LOGIN_REJECTED),
    (r"\b(?:Upgrade your plan|Add a payment method) to continue", errors.AgentQuotaExhausted, ACCOUNT_REFUSED),
    (r"\bCheck your settings to continue", errors.AgentMisconfigured, ACCOUNT_REFUSED),
    (
        r"Workspace Trust Required",
        errors.WorkspaceUntrusted,
        "The agent does not trust this folder; run `cursor-agent` there once and accept, or set `trust`.",
    ),
    (
        r"Cannot use this model",
        errors.ModelUnavailable,
        "The agent does not know this model; choose one that `cursor-agent --list-models` shows.",
    ),
    (
        r"Named models unavailable",
        errors.ModelUnavailable,
        "This Cursor plan can only use the model `auto`; choose it, or upgrade the plan.",
    ),
    (r"You've (?:hit|reached) your usage limit", errors.AgentQuotaExhausted, USAGE_LIMIT),
    (r"resource_exhausted", errors.AgentOverloaded, NO_CAPACITY),
    (
        r"Failed to claim persistent session|Failed to resume chat",
        errors.SessionLost,
        "The agent cannot resume this chat; start a new conversation.",
    ),
    (r"No prompt provided", errors.AgentMisconfigured, "The prompt is empty; send a message."),
    (
        r"administrator has disabled the 'Run Everything'",
        errors.AgentMisconfigured,
        "The team's administrator does not allow `--force`; run without it.",
    ),
    (
        r"Sandbox mode is enabled but not available",
        errors.AgentMisconfigured,
        "The agent's sandbox does not work on this system; turn it off in the agent's configuration.",
    ),
    (
        r"Session ID \"[^\"]*\" is already in use|error: unknown option|\[invalid_argument\]",
        errors.AgentMisconfigured,
        BAD_OPTION,
    ),
    (r"Aborting operation|Operation cancelled|\bCancelledError(?:: |$)", errors.RunCancelled, CANCELLED),
    (
        r"\[(?:unavailable|canceled|deadline_exceeded)\]|ENOTFOUND|ECONN(?:REFUSED|RESET)|PING timed out",
        errors.AgentUnreachable,
        CONNECTION_LOST,
    ),
    (
        r"\[internal\] |exceeded max retries",
        errors.AgentUnreachable,
        "Cursor's service failed several times in a row; wait a while, then ask again.",
    ),
    (r"\bActionRequiredError: ", errors.AgentMisconfigured, ACCOUNT_REFUSED),
    (r"^(?:Error: )?(?:\w\w?: )?\[permission_denied\]", errors.AgentMisconfigured, ACCOUNT_REFUSED),
    (
        r"\bNonRetriableError(?:: |$)|"
        r"^(?:Error: )?(?:\w\w?: )?\[(?:already_exists|failed_precondition|not_found|out_of_range|unimplemented)\]",
        errors.AgentMisconfigured,
        "Cursor's service rejected the request; change it, because trying again would not help.",
    ),
]

_PATTERNS = [(re.compile(pattern, re.IGNORECASE | re.MULTILINE), error, message) for pattern, error, message in _TABLE]
QUOTED = (
    errors.AgentQuotaExhausted,
    errors.AgentMisconfigured,
)  # the remedy depends on the agent's exact words, so quote them


def known_failure(text: str) -> errors.AgentError | None:
    """None when the text matches no known failure."""
    text = plain(text)
    for pattern, error, message in _PATTERNS:
        if found := pattern.search(text):
            first = text.rfind("\n", 0, found.start()) + 1
            details = text if len(text) <= _LONGEST_DETAILS else text[first:]
            if error is errors.ModelUnavailable and (named := _MODEL.search(text)):
                id, available = named[1], (named[2] or "").split(", ")
                near = nearest_names(id, {name.strip(): () for name in available if name.strip()})
                unknown = errors.unknown_model(id[:_LONGEST_NAME], near)
                unknown.details = details
                return unknown
            if error in QUOTED:
                chat_message = _CHAT_MESSAGE.search(text)
                message = quoting(message, chat_message[1] if chat_message else text[first:].partition("\n")[0])
            return error(message, details=details)
    return None


def quoting(message: str, words: str) -> str:
    """The message, followed by the agent's own words."""
    words = " ".join(words.split())[:_LONGEST_QUOTE]
    return f"{message} The agent says: {words}" if words else message


def nearest_names(wanted: str, names: Mapping[str, Iterable[str]]) -> list[str]:
    """Up to three suggestions for a mistyped name, most likely first. `names` maps each name to its aliases.

    A name that contains the whole input ranks above one that is merely similar: `opus` means
    `claude-opus-4-8-high`, though most letters differ.
    """
    wanted = _comparable(wanted[:_LONGEST_NAME])
    found = []
    for name, aliases in names.items():
        spellings = [_comparable(spelling) for spelling in (name, *aliases)]
        alike = max(SequenceMatcher(None, wanted, spelling, autojunk=False).ratio() for spelling in spellings)
        contains = bool(wanted) and any(wanted in spelling for spelling in spellings)
        if contains or alike >= _ALIKE:
            found.append((not contains, -alike, name))
    found.sort(key=lambda entry: entry[:2])  # stable: ties keep the order of the list
    return [name for *_, name in found[:_MOST_SUGGESTIONS]]


def _comparable(name: str) -> str:
    return _BREAKS.sub("-", name.casefold()).strip("-")


def failure_of(text: str, ending: str | None = None) -> errors.AgentError:
    """The error for a run that ended without a result. `ending` is how its process ended; empty: it still runs."""
    how = "" if ending is None else ending or "it closed its output and did not end"
    return known_failure(text) or errors.AgentCrashed(details=f"{how}\n{plain(text)}".strip())


def output_too_large(limit: int) -> errors.AgentOutputTooLarge:
    return errors.AgentOutputTooLarge(
        f"The agent wrote more than {limit} bytes; ask for less at a time, or raise `max_output_bytes`."
    )


def line_too_long(limit: int) -> errors.AgentOutputTooLarge:
    return errors.AgentOutputTooLarge(f"The agent wrote a line of more than {limit} bytes; ask for less at a time.")


def reported_failure(text: str) -> errors.AgentError:
    """The error for a result that reports a failed run."""
    reason = " ".join(plain(text).split())[:_LONGEST_QUOTE] or "no reason"
    said = reason if reason.endswith((".", "!", "?")) else f"{reason}."
    return known_failure(text) or errors.AgentFailed(
        f"The agent gave up: {said} Try again, or rephrase the request.", details=plain(text)
    )


def plain(text: str) -> str:
    """Without terminal colours and surrounding white space."""
    return _ANSI.sub("", text).strip()


# --- A failure that is the last text of a turn -----------------------------------------------------
# Over ACP a failed turn ends like any other, with the stop reason `end_turn`: its last chunk is
# `\n\nError: RetriableError: [unavailable] …`, or its only one is a sentence such as `Please sign in to continue`. A
# model may quote either, so only a whole chunk counts, at the very end; it is held back until that is decided. As the
# only chunk of a turn, a failure may lack the blank line and the word "Error".

_MARK = "\n\nError: "
_LONGEST_TRAILER = 4000  # characters of a failure
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

    def finish(self) -> errors.AgentError | None:
        """The end of the turn. Returns the failure."""
        held = self.release()
        return reported_failure(held.strip().removeprefix(_MARK.strip()).strip()) if held else None


def _is_failure(chunk: str, is_first: bool) -> bool:
    said = chunk.strip().removeprefix(_MARK.strip()).strip()
    if is_first and (said in ACCOUNT_SENTENCES or (len(said) <= _LONGEST_TRAILER and _SERVICE.match(said))):
        return True
    message = chunk.removeprefix(_MARK)
    if message == chunk or len(message) > _LONGEST_TRAILER:
        return False
    if _SERVICE.match(message):
        return True
    return "```" not in message and known_failure(message.partition("\n")[0]) is not None
