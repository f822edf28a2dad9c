"""API keys: made once, shown once, known afterwards only by their hashes."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

LOCAL_OWNER = "local"  # of everything that was said while there were no keys

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
    """Of a key's owner. A key is none: who mixes the two up must not find it in logs and error messages."""
    return _NAME.fullmatch(text) is not None and not text.startswith(_PREFIX) and not is_reserved(text)


def is_reserved(name: str) -> bool:
    """A key of this name would see what others said before there were keys."""
    return name == LOCAL_OWNER


def owner_of(key: str, api_keys: Mapping[str, str]) -> str | None:
    """Looks at every hash to its end, whichever it is, so that the time reveals nothing."""
    hashed = hash_key(key).encode()
    found = None
    for owner, stored in api_keys.items():
        if hmac.compare_digest(hashed, stored.encode()):
            found = owner
    return found
