"""The steps of a call, as values: generators (here, in `calls` and `following`) yield them, and a client performs them.

    generator ── Open, Read, Close, Pause ──▶ shell (HTTP and sleep; blocking or asynchronous)
    generator ◀── Head, bytes, Lost ───────── shell

So both shells share one implementation of requests, replies and retries.
"""

from collections.abc import Generator, Mapping
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from cursor_gateway.client.failures import NOT_A_GATEWAY, CallFailed, CannotReach, may_pass, refusal

T = TypeVar("T")

_LONGEST_WAIT = 30  # seconds, however much a server asks for


class Request(Struct, frozen=True, kw_only=True):
    method: Literal["GET", "POST", "DELETE"]
    path: tuple[str, ...]  # its segments, not yet encoded
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes = b""
    seconds: float | None = None  # without data; None: the client's default


# --- steps -------------------------------------------------------------------------


class Open(Struct, frozen=True):
    """Send the request; answered with the reply's `Head`."""

    request: Request


class Read(Struct, frozen=True):
    """Answered with the next bytes of the open reply's body; empty at the end."""


class Close(Struct, frozen=True):
    """Closes the open reply, if there is one."""


class Pause(Struct, frozen=True):
    seconds: float


Step: TypeAlias = Open | Read | Close | Pause


class Batch(Struct, Generic[T], frozen=True):
    """Items for the caller, as soon as they are there."""

    items: list[T]


# --- results ----------------------------------------------------------------------------------


class Head(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # their names in lower case


class Lost(Struct, frozen=True):
    """The connection failed or broke."""

    reason: str
    was_connected: bool = True  # so the request may have arrived


class Reply(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


Result: TypeAlias = Head | Lost | bytes | None
Call: TypeAlias = Generator[Step, Result, T]
BatchCall: TypeAlias = Generator[Step | Batch[T], Result, None]


# --- retries -----------------------------------------------------------------------------------------


class Link(Struct, frozen=True):
    """A gateway's URL, and the seconds to wait before each retry."""

    url: str
    pauses: tuple[float, ...]


class Tries:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.used = 0
        self._has_begun = False

    def reset(self) -> None:
        """The gateway answered, so the next failure starts a new series of retries."""
        self.used, self._has_begun = 0, True

    def pause_after(self, trouble: Lost | Reply) -> float:
        """Raises `CallFailed` if a retry is useless.

        A first request that could not connect is not retried: the gateway is probably not running.
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


def next_batch(steps: BatchCall[T]) -> Call[list[T] | None]:
    """None at the end."""
    result: Result = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration:
            return None
        if isinstance(step, Batch):
            return step.items
        result = yield step


def opened(request: Request) -> Call[Head | Lost]:
    result = yield Open(request)
    assert isinstance(result, Head | Lost)
    return result


def piece() -> Call[bytes | Lost]:
    result = yield Read()
    assert isinstance(result, bytes | Lost)
    return result


def body_of(head: Head) -> Call[Reply | Lost]:
    pieces: list[bytes] = []
    while True:
        read = yield from piece()
        if isinstance(read, Lost):
            return read
        if not read:
            yield Close()
            return Reply(head.status, head.headers, b"".join(pieces))
        pieces.append(read)


def once(request: Request) -> Call[Reply | Lost]:
    head = yield from opened(request)
    return head if isinstance(head, Lost) else (yield from body_of(head))


def ask(request: Request, tries: Tries) -> Call[Reply]:
    """With retries, for requests that may be repeated. Raises `CallFailed`."""
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
        f"The answer of {link.url} cannot be used: {why}; is it a gateway, of a similar version?",
        code=NOT_A_GATEWAY,
        status=status,
    )
