"""Notices of a store in; requests to webhooks out, each at least once, until it is accepted or given up.

Every process of a cluster delivers. A notice is claimed for longer than a request can take, so two processes do not
send it at the same time; if one dies, another sends it again, with the same id. Each webhook has a task of its own: one
that does not answer delays no other.
"""

import asyncio
import random
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from time import time
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store.base import ClaimedNotice, Outbox
from cursor_gateway.webhooks.messages import headers_of
from cursor_gateway.webhooks.webhook import Webhook

SECONDS = 15.0  # for all of it
_CONNECT_SECONDS = 5.0  # for one address
_LARGEST_HEAD = 16 * 1024
_NAT64 = IPv6Network("64:ff9b::/96")
_INTERNET = IPv6Network("2000::/3")


class PostFailed(Exception):
    """With what has happened, without the URL: it may contain a secret."""


class Posted(Struct, frozen=True):
    status: int
    retry_after: str = ""  # the header


async def post(url: str, headers: Mapping[str, str], body: bytes, *, allow_private: bool) -> Posted:
    """Raises `PostFailed`."""
    try:
        async with asyncio.timeout(SECONDS):
            return await _post(url, headers, body, allow_private)
    except TimeoutError:
        raise PostFailed(f"no reply within {SECONDS:.0f} seconds") from None
    except (OSError, UnicodeError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise PostFailed(_described(error)) from None


def _described(error: Exception) -> str:
    match error:
        case ssl.SSLError():
            return f"TLS: {error.reason or error}"
        case OSError():
            return error.strerror or str(error)
        case asyncio.IncompleteReadError():
            return "the connection was closed without a reply"
        case _:
            return "the reply is not HTTP"


async def _post(url: str, headers: Mapping[str, str], body: bytes, allow_private: bool) -> Posted:
    parts = urlsplit(url)
    host, is_secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    reader, writer = await _connected(host, port, is_secure=is_secure, allow_private=allow_private)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        fields = {
            "host": parts.netloc,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "user-agent": "cursor-gateway",
            "connection": "close",
            **headers,
        }
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        writer.write("\r\n".join(lines).encode("ascii") + body)
        await writer.drain()
        while (posted := _read(await reader.readuntil(b"\r\n\r\n"))).status < 200:  # more follows
            pass
        return posted
    finally:
        writer.transport.abort()  # nobody needs the rest of the reply


async def _connected(
    host: str, port: int, *, is_secure: bool, allow_private: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(place[4][0]) for place in found))
    usable = [address for address in addresses if allow_private or is_public(address)]
    if not usable:
        raise PostFailed("its address is private; set `allow_private` if that is intended")
    reason: Exception = OSError("no address")
    for address in usable:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await asyncio.open_connection(
                    address,
                    port,
                    ssl=_context() if is_secure else None,
                    server_hostname=host if is_secure else None,
                    limit=_LARGEST_HEAD,
                )
        except OSError as error:  # a timeout, too
            reason = error
    raise PostFailed("no connection within 5 seconds") if isinstance(reason, TimeoutError) else reason


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def is_public(address: str) -> bool:
    """Whether it is an address of the Internet, and not of this machine or its networks; also inside an address that
    carries another one."""
    known = ip_address(address.partition("%")[0])
    if isinstance(known, IPv6Address) and known not in _INTERNET and known not in _NAT64 and not known.ipv4_mapped:
        return False  # Python takes some for global, such as those of other kinds of NAT64
    return known.is_global and not known.is_multicast and all(is_public(str(one)) for one in _carried(known))


def _carried(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    if isinstance(address, IPv4Address):
        return []
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        carried.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return [one for one in carried if one is not None]


def _read(head: bytes) -> Posted:
    """Raises `ValueError`."""
    first, *lines = head.decode("latin-1").split("\r\n")
    protocol, status = first.split(" ", 2)[:2]
    if not protocol.startswith("HTTP/1.") or len(status) != 3:
        raise ValueError(first)
    named = [line.partition(":") for line in lines]
    waits = [value.strip() for name, _, value in named if name.lower() == "retry-after"]
    return Posted(int(status), waits[0] if waits else "")


def seconds_until(retry_after: str, now: float) -> float:
    """What the header asks for, as seconds or as a date; 0 if it asks for nothing that can be understood."""
    from email.utils import parsedate_to_datetime

    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    with suppress(ValueError, OverflowError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    return 0.0


# --- one request ----------------------------------------------------------------------------------
# A name may resolve to another address with each look, so the addresses are looked up once, checked, and connected to
# as numbers. No redirect is followed, and no proxy is used: both would choose another address.


DeliveryResult: TypeAlias = Literal["delivered", "failed", "dead", "outdated"]

ATTEMPTS = 10  # within about a day
_FIRST_SECONDS, _FACTOR, _LONGEST_SECONDS = 5.0, 4.0, 8 * 3600.0
_MOST_ASKED = 24 * 3600.0  # by Retry-After
_LEASE_MS = int(2 * SECONDS * 1000)
_AT_ONCE = 4
_LOOK_SECONDS = 1.0
_GONE = 410  # the receiver wants no more


class Delivered(Struct, frozen=True, kw_only=True):
    """What became of an attempt, for logs and metrics."""

    webhook: str
    id: str
    run: str
    result: DeliveryResult
    attempts: int
    reason: str = ""
    next_seconds: float = 0.0


async def deliver(
    outbox: Outbox,
    name: str,
    webhook: Webhook,
    report: Callable[[Delivered], None],
    look_seconds: float = _LOOK_SECONDS,
) -> None:
    """Until it is cancelled. What is under way then is delivered by the next process."""
    while True:
        claimed: list[ClaimedNotice] = []
        with suppress(StoreUnavailable):
            claimed = await outbox.claim_notices(name, _AT_ONCE, _LEASE_MS)
        if claimed:
            attempts = await asyncio.gather(*(_attempt(outbox, name, webhook, notice) for notice in claimed))
            for attempt in attempts:
                report(attempt)
        else:
            await asyncio.sleep(look_seconds)


async def _attempt(outbox: Outbox, name: str, webhook: Webhook, notice: ClaimedNotice) -> Delivered:
    """If the store fails afterwards, the same is sent again."""
    result, reason, next_seconds = await _try(outbox, webhook, notice)
    with suppress(StoreUnavailable):
        if result == "failed":
            await outbox.put_off_notice(name, notice, int(next_seconds * 1000))
        else:
            await outbox.remove_notice(name, notice.id)
    return Delivered(
        webhook=name,
        id=notice.id,
        run=notice.run,
        result=result,
        attempts=notice.attempts,
        reason=reason,
        next_seconds=next_seconds,
    )


async def _try(outbox: Outbox, webhook: Webhook, notice: ClaimedNotice) -> tuple[DeliveryResult, str, float]:
    asked = 0.0
    try:
        if await _is_outdated(outbox, notice):
            return "outdated", "", 0.0
        now = time()
        headers = headers_of(webhook, notice.id, notice.body, int(now))
        posted = await post(webhook.url, headers, notice.body, allow_private=webhook.allow_private)
    except (PostFailed, StoreUnavailable) as error:
        reason = str(error)
    else:
        if 200 <= posted.status < 300:
            return "delivered", "", 0.0
        reason, asked = f"status {posted.status}", seconds_until(posted.retry_after, now)
        if posted.status == _GONE:
            return "dead", reason, 0.0
    if notice.attempts >= ATTEMPTS:
        return "dead", reason, 0.0
    return "failed", reason, max(min(asked, _MOST_ASKED), pause_after(notice.attempts, random.uniform(0.75, 1.25)))


def pause_after(attempts: int, jitter: float) -> float:
    """In seconds. The jitter spreads what failed at the same time."""
    return min(_FIRST_SECONDS * _FACTOR ** (attempts - 1), _LONGEST_SECONDS) * jitter


async def _is_outdated(outbox: Outbox, notice: ClaimedNotice) -> bool:
    """Of a run that waits: it has gone on since."""
    if not notice.number:
        return False
    run = await outbox.run(notice.run, notice.owner)
    return run is None or run.state != "running" or run.event_count > notice.number
