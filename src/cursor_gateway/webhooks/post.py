"""A request in; the status of its reply out, from an address that may be used.

A name may resolve to another address with each look, so the addresses are looked up once, checked, and connected to as
numbers. No redirect is followed, and no proxy is used: both would choose another address.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from msgspec import Struct

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
