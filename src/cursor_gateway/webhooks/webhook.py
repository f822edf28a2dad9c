"""A webhook, as the operator sets it."""

import binascii
from base64 import b64decode
from typing import Annotated, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from msgspec import Meta, Struct

WebhookEvent: TypeAlias = Literal["waiting", "finished", "failed"]

SECRET_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)  # as Standard Webhooks has it


class Webhook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text in each annotation describes the field for people."""

    url: Annotated[str, Meta(min_length=1), "Where messages are sent (POST)."]
    secret: Annotated[
        str, "Signs the messages: `whsec_` and 24 to 64 bytes in base64; if empty, they are unsigned."
    ] = ""
    events: Annotated[frozenset[WebhookEvent], Meta(min_length=1), "Which events are sent."] = frozenset(
        get_args(WebhookEvent)
    )
    keys: Annotated[list[str], "The names of the API keys whose runs are reported; if empty, all."] = []
    body: Annotated[dict[str, str], "The fields of the body, for services with their own form; see the page."] = {}
    allow_private: Annotated[bool, "Also send to private, loopback and link-local addresses."] = False

    def __post_init__(self) -> None:
        """Raises `ValueError`; msgspec makes it an error of the setting."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("`url` must begin with https:// or http://, without a user name")
        _ = parts.port  # raises for one that is none
        if any(character <= " " or character > "~" for character in self.url):
            raise ValueError("`url` has characters that must be percent-encoded")
        if self.secret:
            secret_key(self.secret)


def secret_key(secret: str) -> bytes:
    """The bytes that sign. Raises `ValueError`."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith(SECRET_PREFIX) or len(key) not in _SECRET_BYTES:
        raise ValueError("`secret` must be `whsec_` and 24 to 64 bytes in base64")
    return key
