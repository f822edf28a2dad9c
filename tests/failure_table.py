"""What can go wrong with the agent: the prompt that makes the stand-in fail, and what every client is told.

The tests of the server, those with real clients, and docs/reference/failures.md use the same table.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

When: TypeAlias = Literal["early", "late", "either"]  # before any text, after it, or as the machine's load has it
Program: TypeAlias = Literal["codex", "claude"]

SAID = "I was about to say more."  # before a late failure


class Row(Struct, frozen=True):
    prompt: str
    status: int  # in the documents API
    code: str
    kind: str  # of OpenAI's form
    advice: str  # a part of the message: what to do
    when: When = "early"
    retry_after: str | None = None

    @property
    def client_status(self) -> int:
        """Of the other APIs: one that their clients show and do not retry, unless no agent was started."""
        if self.code == "insufficient_quota":
            return 402
        is_retried = self.status == 429 or self.status >= 500
        return 424 if is_retried and self.code != "too_many_runs" else self.status

    @property
    def client_code(self) -> str:
        return "agent_no_capacity" if self.code == "agent_overloaded" else self.code

    @property
    def client_kind(self) -> str:
        return "api_error" if self.client_status == 424 else self.kind

    @property
    def kind_in_stream(self) -> str:
        """Of the chat API."""
        return "invalid_request_error" if self.kind in ("api_error", "rate_limit_error") else self.kind

    @property
    def effect(self) -> tuple[str, When]:
        """All that a client can see of it, but for the message."""
        return self.code, self.when


LOGIN = (401, "agent_unauthenticated", "authentication_error")
MODEL = (404, "model_not_found", "invalid_request_error")
QUOTA = (429, "insufficient_quota", "insufficient_quota", "wait for its reset or raise the limit")
BUSY = (429, "agent_overloaded", "rate_limit_error", "wait a while, then ask again")
NETWORK = (502, "agent_unreachable", "api_error", "check the network and try again")
SERVICE = (502, "agent_unreachable", "api_error", "wait a while, then ask again")
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
        {"trust": "false"}, {}, Row("text", 403, "workspace_untrusted", "permission_error", "there once and accept")
    ),
    "force is forbidden": Set(
        {"force": "true"}, {"force_forbidden": True}, Row("text", *OPTION, "does not allow `--force`; run without it")
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


class ClientFailure(Struct, frozen=True):
    """A failure that every client meets."""

    name: str
    row: Row
    settings: Mapping[str, str] = {}  # of a gateway that brings it about
    has_agent: bool = True
    is_common: bool = False


def _row(prompt: str) -> Row:
    (row,) = (row for row in ROWS if row.prompt == prompt)
    return row


_SILENT = SET["nothing is ever said"]

FAILURES = [
    ClientFailure("crash before the first event", _row("crash-early"), is_common=True),
    ClientFailure("end without any output", replace(_row("crash-early"), prompt="crash-early exit=0")),
    ClientFailure("network lost", _row("fail-network kind=dns")),
    ClientFailure("no capacity", _row("fail-capacity")),
    ClientFailure("used-up account", _row("fail-quota-early"), is_common=True),
    ClientFailure("not logged in", _row("fail-auth")),
    ClientFailure("unknown model", _row("fail-model model=gpt-5-mino")),
    ClientFailure("agent not installed", MISSING, has_agent=False),
    ClientFailure("no event in time", _SILENT.row, _SILENT.settings),
    ClientFailure("crash after the first words", _row("crash"), is_common=True),
]


class Met(Struct, frozen=True):
    """What one question of a client led to."""

    agents: int  # titles, which another request asks for, not counted
    requests: int
    requests_before: int  # up to the words
    seconds: float | None  # from the first request to the words; None: they were not shown


class Counted(Struct, frozen=True):
    failure: str
    client: str
    met: Met
