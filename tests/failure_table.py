"""What can go wrong with the agent: the prompt that makes the stand-in fail, and what every client is told.

The tests of the server, those with real clients, and docs/reference/failures.md use the same table.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

When: TypeAlias = Literal["early", "late", "either"]  # before any text, after it, or as the machine's load has it
Program: TypeAlias = Literal["codex", "claude"]

SAID = "I was about to say more."  # before a late failure


class Row(Struct, frozen=True):
    prompt: str
    status: int
    code: str
    kind: str
    advice: str  # a part of the message: what to do
    when: When = "early"
    retry_after: str | None = None

    @property
    def effect(self) -> tuple[str, When]:
        """All that a client can see of it, but for the message."""
        return self.code, self.when


LOGIN = (401, "agent_unauthenticated", "authentication_error")
MODEL = (404, "model_not_found", "invalid_request_error")
QUOTA = (429, "insufficient_quota", "insufficient_quota", "wait for its reset or raise the limit")
BUSY = (429, "agent_overloaded", "rate_limit_error", "try again later")
NETWORK = (502, "agent_unreachable", "api_error", "check the network and try again")
SERVICE = (502, "agent_unreachable", "api_error", "try again later")
CRASH = (502, "agent_crashed", "api_error", "Try again")
OPTION = (500, "agent_misconfigured", "api_error")
TIME = (504, "agent_timed_out", "api_error")

WORTH_ANOTHER_TRY = {
    "agent_crashed",
    "agent_failed",
    "agent_overloaded",
    "agent_timed_out",
    "agent_unreachable",
    "too_many_runs",
}

ROWS = [
    Row("fail-auth", *LOGIN, "run `cursor-agent login` or set CURSOR_API_KEY"),
    Row("fail-key", *LOGIN, "set CURSOR_API_KEY to a valid one"),
    Row("fail-model model=gpt-5-mino", *MODEL, "did you mean gpt-5-mini"),
    Row("fail-free-plan", *MODEL, "can only use the model `auto`"),
    Row("fail-quota-early", *QUOTA),
    Row("fail-quota", *QUOTA, when="late"),
    Row("fail-quota variant=action", *QUOTA, when="late"),
    Row("fail-capacity", *BUSY, retry_after="10"),
    Row("fail-capacity class=T", *BUSY, retry_after="10"),
    Row("fail-capacity-late", *BUSY, when="late", retry_after="10"),
    Row("fail-network kind=dns", *NETWORK),
    Row("fail-network kind=cancel", *NETWORK),
    Row("fail-network kind=ping class=S", *NETWORK),
    Row("fail-network kind=internal", *SERVICE),
    Row("fail-network-late kind=dns class=T", *NETWORK, when="late"),
    Row("fail-network-late kind=cancel", *NETWORK, when="late"),
    Row("fail-network-late kind=ping", *NETWORK, when="late"),
    Row("fail-network-late kind=internal class=T", *SERVICE, when="late"),
    Row("fail-internal", *SERVICE),
    Row("fail-resume", 404, "session_lost", "invalid_request_error", "start a new conversation"),
    Row("fail-sandbox", *OPTION, "turn it off in the agent's configuration"),
    Row("fail-result", 502, "agent_failed", "api_error", "Try again, or rephrase the request"),
    Row("fail-result exit=0", 502, "agent_failed", "api_error", "The agent could not finish"),
    Row("crash-early", *CRASH),
    Row("crash", *CRASH, when="late"),
    Row("crash exit=139", *CRASH, when="late"),
    Row("killed", *CRASH, when="late"),
    Row("truncated", *CRASH, when="late"),
]


class Set(Struct, frozen=True):
    """A failure that a gateway of its own brings about."""

    settings: Mapping[str, str]
    knobs: Mapping[str, object]  # of the stand-in
    row: Row


SET = {
    "the folder is not trusted": Set(
        {"trust": "false"},
        {},
        Row("text", 403, "workspace_untrusted", "permission_error", "there once and accept"),
    ),
    "force is forbidden": Set(
        {"force": "true"},
        {"force_forbidden": True},
        Row("text", *OPTION, "does not allow `--force`; run without it"),
    ),
    "nobody is logged in": Set({}, {"login": "none"}, Row("text", *LOGIN, "run `cursor-agent login`")),
    "nothing is ever said": Set({"first_event_seconds": "0.3"}, {}, Row("hang", *TIME, "raise `first_event_seconds`")),
    "silence from the start": Set({"idle_seconds": "0.3"}, {}, Row("hang-after-init", *TIME, "raise `idle_seconds`")),
    "silence in the middle": Set({"idle_seconds": "0.3"}, {}, Row("hang-mid", *TIME, "raise `idle_seconds`", "either")),
    "a run that is too long": Set({"run_seconds": "0.3"}, {}, Row("hang-after-init", *TIME, "raise `run_seconds`")),
    "too much output": Set(
        {"max_output_bytes": "100000"},
        {},
        Row("huge-line size=1000000", 502, "agent_output_too_large", "api_error", "raise `max_output_bytes`", "either"),
    ),
}

MISSING = Row("text", 503, "agent_missing", "api_error", "install it")
TOO_MANY = Row("text", 429, "too_many_runs", "rate_limit_error", "try again later", retry_after="1")


# --- real clients ---------------------------------------------------------------------------------------


class Attempts(Struct, frozen=True):
    """What one question leads to."""

    requests: int = 1
    agents: int = 1
    shows_message: bool = True  # the gateway's, not one of the program's own


def attempts(program: Program, row: Row) -> Attempts:
    """Of Codex and Claude Code, as tests/clients counts them."""
    agents = 0 if row == MISSING else 1
    if program == "codex":
        return Attempts(agents=agents)
    if row.status == 404:
        return Attempts(requests=2, agents=agents, shows_message=False)
    return Attempts(requests=1 if row.when == "early" else 2, agents=agents)
