"""What went wrong in; an error of the bridge's protocol (Connect, with the SDK's details) out."""

import re
from typing import Any

from tests.agent.failures import Failure

HTTP = {
    "canceled": 499,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "unimplemented": 501,
    "unavailable": 503,
    "unauthenticated": 401,
}

# What the CLI says on stderr, as the bridge says it. What is not here has no code of the SDK's.
_WORDS = [
    (r"Authentication required|API key is invalid", "unauthenticated", "UNAUTHORIZED"),
    (r"Cannot use this model", "invalid_argument", "INVALID_MODEL"),
    (r"usage limit", "resource_exhausted", "USAGE_LIMIT_EXCEEDED"),
    (r"resource_exhausted", "resource_exhausted", "RATE_LIMIT_EXCEEDED"),
    (r"Failed to resume chat", "not_found", "AGENT_NOT_FOUND"),
    (r"\[(?:unavailable|canceled|internal)\]", "unavailable", "UPSTREAM_ERROR"),
    (r"administrator has disabled|Workspace Trust", "permission_denied", "ROLE_FORBIDDEN"),
    (r"Sandbox mode", "failed_precondition", "FEATURE_UNAVAILABLE"),
]


class BridgeError(Exception):
    def __init__(self, code: str, message: str, sdk_code: str = "", retry_after: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.sdk_code, self.retry_after = code, message, sdk_code, retry_after

    @property
    def status(self) -> int:
        return HTTP.get(self.code, 500)

    def payload(self) -> dict[str, Any]:
        result: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.sdk_code:
            debug = {"sdkErrorCode": f"SDK_ERROR_CODE_{self.sdk_code}", "message": self.message}
            if self.retry_after:
                debug["retryAfter"] = self.retry_after
            result["details"] = [{"type": "sdk.v1.SdkErrorDetails", "value": "AAAA", "debug": debug}]
        return result


def error_of(failure: Failure) -> BridgeError:
    for words, code, sdk_code in _WORDS:
        if re.search(words, failure.message, re.IGNORECASE):
            return BridgeError(code, failure.message, sdk_code)
    return BridgeError("internal", failure.message)


def parsed(text: str) -> BridgeError:
    """`code SDK_CODE retry_after a message…`, with `-` for what there is none of."""
    code, sdk_code, retry_after, *words = text.split(" ")
    return BridgeError(code, " ".join(words), sdk_code.strip("-"), retry_after.strip("-"))
