"""What cursor-agent prints when it fails in, the error it means out.

The texts are the program's own (stderr, or the end of its output where both are one pipe). Minified
builds print the error's class as one letter ("T: [internal] …"), so only the part after it is matched.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

from cursor_gateway.errors import (
    AgentCrashed,
    AgentError,
    AgentFailed,
    AgentMisconfigured,
    AgentOverloaded,
    AgentQuotaExhausted,
    AgentUnauthenticated,
    AgentUnreachable,
    ModelUnavailable,
    RunCancelled,
    SessionLost,
    WorkspaceUntrusted,
    unknown_model,
)

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BREAKS = re.compile(r"[^a-z0-9]+")
_MODEL = re.compile(r"Cannot use this model: (.+?)\.?(?: Available models: (.*))?$", re.IGNORECASE | re.MULTILINE)
_CHAT_MESSAGE = re.compile(r"^chatMessage: *\*?(.+?)\*?$", re.MULTILINE)  # of a usage limit: when it resets
_LONGEST_DETAILS = 2000  # characters
_LONGEST_QUOTE = 300  # characters of the agent's words in a message; the details have more
_LONGEST_NAME = 100  # of a model: whatever a caller sends is compared and repeated
_ALIKE = 0.5  # how much of two names must agree for one to be offered in the other's place

_TABLE: list[tuple[str, type[AgentError], str]] = [
    (
        r"Authentication required|Not logged in",
        AgentUnauthenticated,
        "The agent is not logged in; run `cursor-agent login` or set CURSOR_API_KEY.",
    ),
    (
        r"API key is invalid",
        AgentUnauthenticated,
        "Cursor refuses the API key; set CURSOR_API_KEY to a valid one, or unset it to use the login.",
    ),
    (
        r"Workspace Trust Required",
        WorkspaceUntrusted,
        "The agent does not trust this folder; run it there once and accept, or allow `--trust`.",
    ),
    (
        r"Cannot use this model",
        ModelUnavailable,
        "The agent does not know this model; choose one that `cursor-agent --list-models` shows.",
    ),
    (
        r"Named models unavailable",
        ModelUnavailable,
        "This Cursor plan can only use the model `auto`; choose it, or upgrade the plan.",
    ),
    (
        r"You've (?:hit|reached) your usage limit",
        AgentQuotaExhausted,
        "The Cursor account has reached its usage limit; wait for its reset or raise the limit.",
    ),
    (
        r"resource_exhausted",
        AgentOverloaded,
        "Cursor's service has no capacity for this request at the moment; try again in a while.",
    ),
    (
        r"Failed to claim persistent session|Failed to resume chat",
        SessionLost,
        "The agent cannot resume this chat; start a new conversation.",
    ),
    (
        r"No prompt provided",
        AgentMisconfigured,
        "The agent was given no prompt; send a message that is not empty.",
    ),
    (
        r"administrator has disabled the 'Run Everything'",
        AgentMisconfigured,
        "The team's administrator does not allow `--force`; run without it.",
    ),
    (
        r"Sandbox mode is enabled but not available",
        AgentMisconfigured,
        "The agent's sandbox does not work on this system; turn it off in the agent's configuration.",
    ),
    (
        r"Session ID \"[^\"]*\" is already in use|error: unknown option|\[invalid_argument\]",
        AgentMisconfigured,
        "The agent refuses an option that it was given.",
    ),
    (
        r"Aborting operation|Operation cancelled",
        RunCancelled,
        "The run was stopped; start it again to have the whole answer.",
    ),
    (
        r"\[(?:unavailable|canceled|deadline_exceeded)\]|ENOTFOUND|ECONN(?:REFUSED|RESET)|PING timed out",
        AgentUnreachable,
        "The agent lost its connection to Cursor's service; check the network and try again.",
    ),
    (
        r"\[internal\] |exceeded max retries",
        AgentUnreachable,
        "Cursor's service failed several times in a row; try again in a while.",
    ),
]

_PATTERNS = [(re.compile(pattern, re.IGNORECASE), error, message) for pattern, error, message in _TABLE]
_QUOTED = (AgentQuotaExhausted, AgentMisconfigured)  # what to do depends on what exactly the agent says


def known_failure(text: str) -> AgentError | None:
    """None when the text is none of the agent's known last words."""
    text = plain(text)
    for pattern, error, message in _PATTERNS:
        if found := pattern.search(text):
            first = text.rfind("\n", 0, found.start()) + 1
            details = text if len(text) <= _LONGEST_DETAILS else text[first:]
            if error is ModelUnavailable and (named := _MODEL.search(text)):
                id, available = named[1], (named[2] or "").split(", ")
                near = nearest_names(id, {name.strip(): () for name in available if name.strip()})
                unknown = unknown_model(id[:_LONGEST_NAME], near)
                unknown.details = details
                return unknown
            if error in _QUOTED:
                told = _CHAT_MESSAGE.search(text)
                message = quoting(message, told[1] if told else text[first:].partition("\n")[0])
            return error(message, details=details)
    return None


def quoting(message: str, words: str) -> str:
    """The message with the agent's own words behind it."""
    words = " ".join(words.split())[:_LONGEST_QUOTE]
    return f"{message} The agent says: {words}" if words else message


def nearest_names(wanted: str, names: Mapping[str, Iterable[str]], count: int = 3) -> list[str]:
    """Names, each with what else it is called, that somebody may have meant; the likeliest first.

    A name that holds all that was written comes before one that only looks like it: `opus` means
    `claude-opus-4-8-high`, though most of their letters differ.
    """
    wanted = _comparable(wanted[:_LONGEST_NAME])
    found = []
    for name, others in names.items():
        calls = [_comparable(call) for call in (name, *others)]
        alike = max(SequenceMatcher(None, wanted, call, autojunk=False).ratio() for call in calls)
        holds = bool(wanted) and any(wanted in call for call in calls)
        if holds or alike >= _ALIKE:
            found.append((not holds, -alike, name))
    found.sort(key=lambda entry: entry[:2])  # of two alike the one that is listed first
    return [name for *_, name in found[:count]]


def _comparable(name: str) -> str:
    return _BREAKS.sub("-", name.casefold()).strip("-")


def failure_of(text: str) -> AgentError:
    """The error for a run that ended without a result."""
    return known_failure(text) or AgentCrashed(details=plain(text))


def reported_failure(text: str) -> AgentError:
    """The error for a result that says itself that the run failed."""
    told = " ".join(plain(text).split())[:_LONGEST_QUOTE] or "no reason"
    return known_failure(text) or AgentFailed(
        f"The agent gave up and says: {told}. Run it again, or ask it in another way.", details=plain(text)
    )


def plain(text: str) -> str:
    """Without the terminal's colours and the white space around it."""
    return _ANSI.sub("", text).strip()
