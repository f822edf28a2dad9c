"""What a client does, as values: the meaning (generators, here and beside) yields steps, a shell performs them.

    meaning ── Open, Read, Close, Pause ──▶ shell (HTTP and sleep; waiting or awaiting)
    meaning ◀── Head, bytes, Lost ───────── shell

So there is one implementation of what is asked, what a reply means and what is tried again, for both shells.
"""

from collections.abc import Generator, Mapping
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from cursor_gateway.client.failures import NOT_A_GATEWAY, CallFailed, CannotReach, may_pass, refusal

T = TypeVar("T")

_LONGEST_WAIT = 30  # seconds: of a server that wants more, the last word counts


class Request(Struct, frozen=True, kw_only=True):
    method: Literal["GET", "POST", "DELETE"]
    path: tuple[str, ...]  # its parts, as they are
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes = b""
    seconds: float | None = None  # of silence; None: as many as the client allows


# --- what the meaning wants -------------------------------------------------------------------------


class Open(Struct, frozen=True):
    """Send the request; answered with the reply's `Head`."""

    request: Request


class Read(Struct, frozen=True):
    """Answered with the next bytes of the body that is open; none are its end."""


class Close(Struct, frozen=True):
    """The reply that is open, if there is one."""


class Pause(Struct, frozen=True):
    seconds: float


Step: TypeAlias = Open | Read | Close | Pause


class Told(Struct, Generic[T], frozen=True):
    """For whoever reads, as soon as it is known."""

    items: list[T]


# --- what it hears ----------------------------------------------------------------------------------


class Head(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # their names in lower case


class Lost(Struct, frozen=True):
    """No connection, or no longer one."""

    reason: str
    was_connected: bool = True  # so the request may have arrived


class Reply(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


Heard: TypeAlias = Head | Lost | bytes | None
TurnBuilder: TypeAlias = Generator[Step, Heard, T]
Telling: TypeAlias = Generator[Step | Told[T], Heard, None]


# --- trying -----------------------------------------------------------------------------------------


class Link(Struct, frozen=True):
    """Which gateway, and the pauses before it is tried again: as many tries as there are pauses."""

    url: str
    pauses: tuple[float, ...]


class Tries:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.used = 0
        self._has_begun = False

    def heard(self) -> None:
        """It is there: what goes wrong from now on is new trouble."""
        self.used, self._has_begun = 0, True

    def pause_after(self, trouble: Lost | Reply) -> float:
        """Raises `CallFailed` for trouble that stays.

        So is a first request that found nobody: nothing was lost, and whoever forgot to start the gateway shall not
        wait.
        """
        if isinstance(trouble, Lost):
            is_final = not trouble.was_connected and not self._has_begun
            self._has_begun = self._has_begun or trouble.was_connected
            lost = CannotReach(
                f"{self.link.url} cannot be reached: {trouble.reason}; is the gateway running there?",
                code="cannot_reach",
            )
            lost.reason, lost.was_connected = trouble.reason, self._has_begun
            error: CallFailed = lost
        else:
            error = refusal(self.link.url, trouble.status, trouble.headers, trouble.body)
            is_final = not may_pass(error)
            self._has_begun = True
        if is_final or self.used == len(self.link.pauses):
            raise error
        self.used += 1
        return max(self.link.pauses[self.used - 1], min(error.retry_after or 0, _LONGEST_WAIT))


def opened(request: Request) -> TurnBuilder[Head | Lost]:
    heard = yield Open(request)
    assert isinstance(heard, Head | Lost)
    return heard


def piece() -> TurnBuilder[bytes | Lost]:
    heard = yield Read()
    assert isinstance(heard, bytes | Lost)
    return heard


def body_of(head: Head) -> TurnBuilder[Reply | Lost]:
    pieces: list[bytes] = []
    while True:
        read = yield from piece()
        if isinstance(read, Lost):
            return read
        if not read:
            yield Close()
            return Reply(head.status, head.headers, b"".join(pieces))
        pieces.append(read)


def once(request: Request) -> TurnBuilder[Reply | Lost]:
    head = yield from opened(request)
    return head if isinstance(head, Lost) else (yield from body_of(head))


def ask(request: Request, tries: Tries) -> TurnBuilder[Reply]:
    """For requests that may be repeated. Raises `CallFailed`."""
    while True:
        reply = yield from once(request)
        if isinstance(reply, Reply) and 200 <= reply.status < 300:
            return reply
        yield Close()
        yield Pause(tries.pause_after(reply))


def read_value(link: Link, reply: Reply, shape: type[T]) -> T:
    """Raises `CallFailed`."""
    try:
        return msgspec.json.decode(reply.body, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise unreadable(link, str(error), reply.status) from None


def unreadable(link: Link, why: str, status: int = 200) -> CallFailed:
    return CallFailed(
        f"The answer of {link.url} cannot be used: {why}; is a gateway there, of a version like this one?",
        code=NOT_A_GATEWAY,
        status=status,
    )
