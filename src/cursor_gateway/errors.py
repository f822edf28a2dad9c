"""What can go wrong, as types: a stable code, an HTTP status, and a sentence that says what to do.

GatewayError            foreseen; raise a subclass
├── RequestError        the caller's to mend
│   └── UnusableInput       400   no event of cursor-agent in the input
└── AgentError          the agent's side; in a running answer it becomes an `error` document
    ├── AgentUnauthenticated 401  not logged in, or a key that is refused
    ├── WorkspaceUntrusted   403  the folder is not trusted
    ├── ModelUnavailable     404  the agent does not know, or may not use, the model
    ├── SessionLost          404  a chat that cannot be resumed
    ├── AgentQuotaExhausted  429  the account's usage limit
    ├── AgentOverloaded      429  capacity or rate, worth another try
    ├── AgentMisconfigured   500  an option that this agent or account refuses
    ├── AgentUnreachable     502  the agent cannot reach its service
    ├── AgentCrashed         502  it ended without a result
    ├── AgentFailed          502  it says itself that it failed
    └── RunCancelled         499  stopped on request

An error states facts; each dialect has one function that shapes it.
"""

from typing import ClassVar

import msgspec

_CUT_SHORT = "The agent's output ended before the agent had finished; what had arrived is kept. Run it again."


class Failure(msgspec.Struct, frozen=True):
    """An error as a value, for streams: what readers of a run are told."""

    code: str
    message: str
    status: int
    retryable: bool = False
    details: str = ""
    source: str = "agent"


class GatewayError(Exception):
    """Something foreseen. Never raised itself; raise a subclass."""

    code: ClassVar[str]
    status: ClassVar[int]
    retryable: ClassVar[bool] = False
    source: ClassVar[str] = "gateway"

    def __init__(self, message: str, *, details: str = "") -> None:
        super().__init__(message)
        self.details = details

    def failure(self) -> Failure:
        return Failure(
            code=self.code,
            message=str(self),
            status=self.status,
            retryable=self.retryable,
            details=self.details,
            source=self.source,
        )


class RequestError(GatewayError):
    """The caller can mend it."""


class UnusableInput(RequestError):
    code, status = "unusable_input", 400


class AgentError(GatewayError):
    """The agent's side failed."""

    source = "agent"


class AgentUnauthenticated(AgentError):
    code, status = "agent_unauthenticated", 401


class WorkspaceUntrusted(AgentError):
    code, status = "workspace_untrusted", 403


class ModelUnavailable(AgentError):
    code, status = "model_unavailable", 404


class SessionLost(AgentError):
    code, status = "session_lost", 404


class AgentQuotaExhausted(AgentError):
    code, status = "insufficient_quota", 429


class AgentOverloaded(AgentError):
    code, status, retryable = "agent_overloaded", 429, True


class AgentMisconfigured(AgentError):
    code, status = "agent_misconfigured", 500


class AgentUnreachable(AgentError):
    code, status, retryable = "agent_unreachable", 502, True


class AgentCrashed(AgentError):
    code, status, retryable = "agent_crashed", 502, True

    def __init__(self, message: str = _CUT_SHORT, *, details: str = "") -> None:
        super().__init__(message, details=details)


class AgentFailed(AgentError):
    code, status, retryable = "agent_failed", 502, True


class RunCancelled(AgentError):
    code, status = "cancelled", 499
