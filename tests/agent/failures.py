"""What went wrong in; the exit status and the words on stderr out.

Wordings are the program's own, seen in builds of 2026.08 to 2026.10.
"""

from _collections_abc import Iterable  # without `collections`, which takes longer


class Failure(Exception):
    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def not_logged_in() -> Failure:
    remedy = "Please run 'agent login' first, or set CURSOR_API_KEY environment variable."
    return Failure(f"Error: Authentication required. {remedy}")


def bad_key() -> Failure:
    return Failure("\x1b[33m⚠ Warning: The provided API key is invalid.\x1b[39m\nPlease check it, or log in instead.")


def untrusted(workspace: str) -> Failure:
    return Failure(
        "\n⚠ Workspace Trust Required\n\n"
        "  Cursor Agent can execute code and access files in this directory.\n"
        "  Do you trust the contents of this directory?\n\n"
        f"    {workspace}\n\n"
        "  To proceed, you can either:\n"
        "    • Run 'agent' interactively to decide\n"
        "    • Pass --trust, --yolo, or -f if you trust this directory"
    )


def unknown_model(model: str, available: Iterable[str]) -> Failure:
    return Failure(f"Cannot use this model: {model}. Available models: {', '.join(available)}")


def free_plan() -> Failure:
    remedy = "Free plans can only use Auto. Switch to Auto or upgrade plans to continue."
    return Failure(f"ActionRequiredError: Named models unavailable {remedy}")


def usage_limit() -> Failure:
    return Failure(
        "Error: You've hit your usage limit\n"
        "fallbackModel:\n"
        "spendLimitHit: false\n"
        "chatMessage: *Your usage limits will reset when your monthly cycle ends on 10/2/2026.*\n"
        "spendLimits: [50,100,200]"
    )


def usage_limit_action() -> Failure:
    return Failure("ActionRequiredError: You've reached your usage limit")


def retriable(reason: str, name: str = "RetriableError") -> Failure:
    """Minified builds print the class as one letter."""
    return Failure(f"{name}: {reason}")


CAPACITY = "[resource_exhausted] Error"
NETWORK = {
    "dns": "[unavailable] getaddrinfo ENOTFOUND agentn.global.api5.cursor.sh",
    "cancel": "[canceled] http/2 stream closed with error code CANCEL (0x8)",
    "ping": "[unavailable] PING timed out",
    "internal": "[internal] Failed to run step, exceeded max retries",
}


def not_a_session(chat: str) -> Failure:
    return Failure(f'Failed to claim persistent session for chat "{chat}": Persistent-session chat ID must be a UUID')


def broken_session(chat: str, reason: str) -> Failure:
    return Failure(f'Failed to resume chat "{chat}": {reason}')


def session_in_use(chat: str) -> Failure:
    return Failure(f'Error: Session ID "{chat}" is already in use.')


def no_prompt() -> Failure:
    return Failure("Error: No prompt provided for print mode")


def force_forbidden() -> Failure:
    return Failure("Error: Your team administrator has disabled the 'Run Everything' option.")


def no_sandbox() -> Failure:
    return Failure("Sandbox mode is enabled but not available on this system")
