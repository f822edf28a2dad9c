"""API keys: shown once when they are created, and stored only as hashes."""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, time

import msgspec
from msgspec import Struct

from cursor_gateway.errors import RequestForbidden, TooManyRequests

LOCAL_OWNER = "local"  # of everything from before there were keys

_PREFIX = "cgw_"
_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def new_key() -> str:
    return _PREFIX + secrets.token_urlsafe(_BYTES)


def hash_key(key: str) -> str:
    """One round is enough: unlike passwords, keys of 256 random bits cannot all be tried."""
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


def is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Of a key's owner. A key is not a valid name: if the two are mixed up, it must not appear in logs and errors."""
    return _NAME.fullmatch(text) is not None and not text.startswith(_PREFIX) and not is_reserved(text)


def is_reserved(name: str) -> bool:
    """A key of this name would see all conversations from before there were keys."""
    return name == LOCAL_OWNER


def owner_of(key: str, api_keys: Mapping[str, str]) -> str | None:
    """Compares the key with every hash in full, so that the time this takes reveals nothing."""
    hashed = hash_key(key).encode()
    found = None
    for owner, stored in api_keys.items():
        if hmac.compare_digest(hashed, stored.encode()):
            found = owner
    return found


class KeyRing:
    """The keys that are valid now: those of the settings, and those of a database, which may change at any time."""

    def __init__(self, api_keys: Mapping[str, str], *, is_exposed: bool = False, has_database: bool = False) -> None:
        """`is_exposed`: other machines can connect, so a key is required even if there are none."""
        self._api_keys = api_keys
        self._owners: Mapping[str, str] = {}  # of the database's keys, by their hashes
        self._is_closed = bool(api_keys) or is_exposed
        self._has_stored = has_database  # until it is known that there are none
        self.is_complete = not has_database  # all keys are known

    @property
    def are_required(self) -> bool:
        return self._is_closed or self._has_stored

    def replace_stored(self, owners: Mapping[str, str], *, has_any: bool) -> None:
        """`has_any`: the database has keys, which may all be revoked."""
        self._owners, self._has_stored, self.is_complete = owners, has_any, True

    def owner_of(self, key: str) -> str | None:
        """An empty key is never valid, whatever hash was configured."""
        if not key:
            return None
        return owner_of(key, self._api_keys) or self._owners.get(hash_key(key))

    def has_owner(self, owner: str) -> bool:
        """Somebody can act as this owner now, for example to revoke what it has published."""
        if not self.are_required:
            return owner == LOCAL_OWNER
        return owner in self._api_keys or owner in self._owners.values()


class Rate:
    """So many requests a minute for each owner, as a bucket that fills steadily and holds a minute's worth."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: dict[str, tuple[float, float]] = {}  # what was left, and when

    def take(self, owner: str, now: float) -> float | None:
        """None if the request may pass; else the seconds until the next one may."""
        if not self._per_minute:
            return None
        left, when = self._buckets.get(owner, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + max(0.0, now - when) * self._per_minute / 60)
        may_pass = left >= 1
        self._buckets[owner] = (left - 1 if may_pass else left, now)
        return None if may_pass else (1 - left) * 60 / self._per_minute


# --- devices that have logged in at a gateway that is shared ------------------------------------------
# A code is in the link that a phone scans, and is exchanged for a key once. Codes are in memory, keys in a file.

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
