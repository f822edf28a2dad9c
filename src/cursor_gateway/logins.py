"""One-time login codes, and the keys of the devices that logged in with one.

A code is in the link that a phone scans. It is valid for a few minutes and for one login, which exchanges it for a key
that only this device has. Codes and keys are kept as hashes: codes in memory, keys in a file, so that devices stay
logged in when the gateway is restarted.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, time

import msgspec
from msgspec import Struct

from cursor_gateway.errors import RequestForbidden, TooManyRequests
from cursor_gateway.keys import KeyRing, Rate, hash_key, new_key

CODE_SECONDS = 600
DEVICE_DAYS = 30

_CODE_BYTES = 16
_MOST_CODES = 5  # that are valid at a time; a new one replaces the oldest
_MOST_DEVICES = 20
_ATTEMPTS_PER_MINUTE = 10  # by anyone: behind a proxy, all clients have the same address
_DAY_MS = 24 * 3600 * 1000
_LONGEST_NAME = 120


class LoginCodes:
    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, float] = {}  # by their hashes: when they expire
        self._rate = Rate(_ATTEMPTS_PER_MINUTE)

    def new_code(self) -> str:
        code = secrets.token_urlsafe(_CODE_BYTES)
        while len(self._codes) >= _MOST_CODES:
            del self._codes[next(iter(self._codes))]
        self._codes[hash_key(code)] = self._clock() + CODE_SECONDS
        return code

    def use(self, code: str) -> None:
        """Raises `TooManyRequests`, and `RequestForbidden` for a code that is unknown, expired or already used."""
        now = self._clock()
        if (seconds := self._rate.take("", now)) is not None:
            error = TooManyRequests("Too many attempts to log in; wait a moment, then open the link again.")
            error.retry_after = max(1, round(seconds))
            raise error
        expires = self._codes.pop(hash_key(code), None)
        if expires is None or expires <= now:
            raise RequestForbidden(
                "This login link has expired or was already used; create a new one with `cursor-gateway share`."
            )


class Device(Struct, frozen=True):
    """A browser or program that logged in."""

    id: str
    name: str  # as it calls itself
    hash: str  # of its key
    created_ms: int

    @property
    def expires_ms(self) -> int:
        return self.created_ms + DEVICE_DAYS * _DAY_MS


class DeviceKeys(KeyRing):
    """The keys of devices, and those of the settings. One of them is always required."""

    def __init__(self, api_keys: Mapping[str, str], owner: str, file: Path, clock: Callable[[], float] = time) -> None:
        """`owner`: to whom the devices belong; `file`: which only the gateway's user can read and write."""
        super().__init__(api_keys, is_exposed=True)
        self._owner, self._file, self._clock = owner, file, clock
        self._devices = {device.hash: device for device in _read(file)}

    def owner_of(self, key: str) -> str | None:
        device = self._devices.get(hash_key(key))
        if device is not None and self._now_ms() < device.expires_ms:
            return self._owner
        return super().owner_of(key)

    def has_owner(self, owner: str) -> bool:
        return owner == self._owner or super().has_owner(owner)

    def add(self, name: str) -> str:
        """The key of a new device. Raises `OSError`."""
        key = new_key()
        shown = "".join(filter(str.isprintable, name))[:_LONGEST_NAME]
        device = Device(f"dev_{secrets.token_hex(4)}", shown, hash_key(key), self._now_ms())
        self._keep([*self.devices()[-(_MOST_DEVICES - 1) :], device])
        return key

    def devices(self) -> list[Device]:
        """Those that are logged in, the oldest first."""
        return [device for device in self._devices.values() if self._now_ms() < device.expires_ms]

    def forget(self, id: str) -> bool:
        """False if there is no such device. Raises `OSError`."""
        kept = [device for device in self.devices() if device.id != id]
        is_known = len(kept) < len(self.devices())
        self._keep(kept)
        return is_known

    def forget_key(self, key: str) -> None:
        """Raises `OSError`."""
        hashed = hash_key(key)
        self._keep([device for device in self.devices() if device.hash != hashed])

    def _keep(self, devices: list[Device]) -> None:
        """In the file first: what is valid here must be valid after a restart, and what is forgotten forgotten."""
        made = self._file.with_suffix(".new")
        made.unlink(missing_ok=True)
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(devices))
        made.replace(self._file)
        self._devices = {device.hash: device for device in devices}

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _read(file: Path) -> list[Device]:
    """None if there is no file, or if it was damaged: then devices must log in again."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[Device])
    except (OSError, msgspec.DecodeError):
        return []
