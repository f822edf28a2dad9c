"""A status, headers and pieces of a body in; the bytes of one response out. No I/O.

The head is held back until the first piece of the body, so that both are one write.
"""

from collections.abc import Iterable
from functools import cache
from http import HTTPStatus

_BODILESS = (204, 304)


class ResponseEncoder:
    __slots__ = ("_head", "_is_chunked", "_is_head_request", "_is_silent", "_version", "closes")

    def __init__(self, method: str, version: str) -> None:
        """The request's method and version."""
        self._is_head_request, self._version = method == "HEAD", version
        self._head = b""
        self._is_chunked = self._is_silent = False
        self.closes = False  # whether the connection closes after the response

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]], date: bytes, *, closes: bool) -> None:
        """Raises `ValueError` for a header that would be several lines."""
        headers = list(headers)
        lines = [_status_line(status), b"date: " + date, *map(b": ".join, headers)]
        has_length = b"content-length" in dict(headers)
        self.closes = closes
        self._is_silent = self._is_head_request or status in _BODILESS
        if not self._is_silent and not has_length:
            if self._version == "1.0":  # no chunks: the end of the connection ends the body
                self.closes = True
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked")
        if self.closes:
            lines.append(b"connection: close")
        elif self._version == "1.0":
            lines.append(b"connection: keep-alive")
        lines += (b"", b"")
        head = b"\r\n".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines) - 1:
            raise ValueError("A header of the response contains a line end.")
        self._head = head

    def body(self, data: bytes, is_end: bool) -> bytes:
        if self._is_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            if is_end:
                data += b"0\r\n\r\n"
        elif self._is_silent:
            data = b""
        if self._head:
            data, self._head = self._head + data, b""
        return data


@cache
def _status_line(status: int) -> bytes:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Other"
    return f"HTTP/1.1 {status} {phrase}".encode()
