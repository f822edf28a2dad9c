"""Sessions of hosts before 2026-07-28, and places in their streams, as text that the host sends back.

A session's id contains what its host said in `initialize`, and an event's id the run that it is about. So every process
can take any request of a session, and continue any stream: nothing is kept between requests. A host that changes them
only changes what it said about itself: what it may read and do depends on its key.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from secrets import token_hex
from typing import TypeVar

import msgspec
from msgspec import Struct

from cursor_gateway.mcp_server.messages import RequestId
from cursor_gateway.mcp_server.peers import LEGACY, Peer

_MOST = 10_000
_LONGEST = 1000  # characters


class Session(Struct, frozen=True, array_like=True):
    peer: Peer
    nonce: str


class Place(Struct, frozen=True, array_like=True):
    """After an event of a run, in the stream that answers a request."""

    request_id: RequestId
    run_id: str
    after: int
    progress_token: RequestId | None = None


_T = TypeVar("_T")


def new_session(peer: Peer) -> str:
    return _encode(Session(peer, token_hex(16)))


def read_session(id: str) -> Peer | None:
    """None: it is none of ours."""
    session = _decode(id, Session)
    return session.peer if session is not None and session.peer.version in LEGACY else None


def encode_place(place: Place) -> str:
    return _encode(place)


def read_place(id: str) -> Place | None:
    return _decode(id, Place)


def _encode(value: Struct) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(value)).decode().rstrip("=")


def _decode(text: str, type: type[_T]) -> _T | None:
    if len(text) > _LONGEST or not text.isascii():
        return None
    try:
        return msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=type)
    except (ValueError, msgspec.DecodeError):
        return None


class EndedSessions:
    """The latest ones that their hosts have ended, at this process. An owner ends only its own."""

    def __init__(self, most: int = _MOST) -> None:
        self._ended: dict[tuple[str, str], None] = {}
        self._most = most

    def add(self, owner: str, id: str) -> None:
        self._ended[owner, id] = None
        if len(self._ended) > self._most:
            del self._ended[next(iter(self._ended))]

    def has(self, owner: str, id: str) -> bool:
        return (owner, id) in self._ended
