"""Errors about the agent's account in; the same errors for later requests, without starting an agent, out.

Many clients repeat a request that failed, whatever the reply says. Without a login, or at the usage limit,
each retry would start an agent only to get the same error.
"""

import os
from collections.abc import Callable, Hashable
from pathlib import Path

from msgspec import Struct

from cursor_gateway.errors import AgentError, AgentQuotaExhausted, AgentUnauthenticated, Failure
from cursor_gateway.sources.router import SourceRouter

_ERRORS: dict[str, type[AgentError]] = {error.code: error for error in (AgentUnauthenticated, AgentQuotaExhausted)}
_RESET_FILE = "account_errors_reset"
_MOST = 1000  # errors that are remembered
_RECENT_SECONDS = 1.0


class Asked(Struct, frozen=True):
    """The caller, account and model of a request."""

    owner: str
    account: Hashable  # the source with its credentials, configuration and program
    model: str


class _Key(Struct, frozen=True):
    """Per owner: what one caller makes the agent say must not lock out another."""

    owner: str
    account: Hashable
    model: str | None  # None: all of them. A usage limit may hold for one model and not for another.


class _Remembered(Struct, frozen=True):
    failure: Failure
    heard_at: float


class AccountErrors:
    """Each error is kept for `seconds`, or until a run succeeds or the account changes; 0 keeps none."""

    def __init__(self, source: SourceRouter, seconds: float, clock: Callable[[], float], data_dir: Path) -> None:
        self._source, self._seconds, self._clock = source, seconds, clock
        self._reset_file = data_dir / _RESET_FILE
        self._remembered: dict[_Key, _Remembered] = {}  # the oldest first
        self._recent: dict[str | None, tuple[float, Hashable]] = {}  # accounts and when they were read, by source

    def asked(self, owner: str, source: str | None, model: str) -> Asked:
        """Call this before the agent starts: an error is about the account as it was then.

        Reading the account takes a while, and matters only if an error is cached; otherwise a recent result is reused.
        """
        now = self._clock()
        known = self._recent.get(source)
        if known is None or self._remembered or not 0 <= now - known[0] < _RECENT_SECONDS:
            known = self._recent[source] = now, (self._source.account_of(source), _stamp(self._reset_file))
        return Asked(owner, known[1], model)

    def known(self, asked: Asked) -> AgentError | None:
        """The cached error that an agent would report again, if there is one."""
        now = self._clock()
        for model in (None, asked.model):
            found = self._remembered.get(_Key(asked.owner, asked.account, model))
            if found is not None and (age := now - found.heard_at) < self._seconds:
                failure = found.failure
                return _ERRORS[failure.code](
                    f"{failure.message} (The agent said so {age:.0f} s ago. It is asked again after {self._seconds:g} "
                    "s, when its login or configuration changes, or after `cursor-gateway doctor`.)",
                    details=failure.details,
                    param=failure.param,
                )
        return None

    def record(self, asked: Asked, failure: Failure | None) -> None:
        """How a run has ended; None if it succeeded."""
        if failure is None:
            self._remembered = {
                key: error
                for key, error in self._remembered.items()
                if key.account != asked.account or key.model not in (None, asked.model)
            }
        elif failure.code in _ERRORS:
            key = _Key(asked.owner, asked.account, asked.model if failure.code == AgentQuotaExhausted.code else None)
            self._remembered.pop(key, None)
            self._remembered[key] = _Remembered(failure, self._clock())
            if len(self._remembered) > _MOST:
                del self._remembered[next(iter(self._remembered))]


def forget_account_errors(data_dir: Path) -> None:
    """For every gateway with this data folder, from another process. Raises `OSError`."""
    if data_dir.is_dir():
        (data_dir / _RESET_FILE).touch(mode=0o600)


def _stamp(file: Path) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0
