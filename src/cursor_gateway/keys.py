"""API keys: shown once when they are created, and stored only as hashes."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

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
