"""The encoder: one write for the head and the first piece, and a body whose end the client can see."""

import pytest

from cursor_gateway.http1.responses import ResponseEncoder

DATE = b"Mon, 23 Feb 2026 10:30:00 GMT"


def encoded(
    method: str = "GET",
    version: str = "1.1",
    status: int = 200,
    headers: list[tuple[bytes, bytes]] | None = None,
    pieces: tuple[bytes, ...] = (b"ab", b"", b"c"),
    *,
    closes: bool = False,
) -> tuple[list[bytes], bool]:
    response = ResponseEncoder(method, version)
    response.start(status, headers or [], DATE, closes=closes)
    last = len(pieces) - 1
    return [response.body(piece, at == last) for at, piece in enumerate(pieces)], response.closes


def test_without_a_length_the_body_is_in_chunks() -> None:
    head = b"HTTP/1.1 200 OK\r\ndate: %b\r\ntransfer-encoding: chunked\r\n\r\n" % DATE
    assert encoded() == ([head + b"2\r\nab\r\n", b"", b"1\r\nc\r\n0\r\n\r\n"], False)


def test_with_a_length_it_is_as_it_is() -> None:
    (first, _, last), closes = encoded(headers=[(b"content-length", b"3")])
    assert first.endswith(b"content-length: 3\r\n\r\nab")
    assert (last, closes) == (b"c", False)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_some_replies_have_no_body(method: str, status: int) -> None:
    (head, *rest), _ = encoded(method, status=status)
    assert head.endswith(b"GMT\r\n\r\n")
    assert rest == [b"", b""]


def test_http_1_0_knows_no_chunks() -> None:
    (first, _, last), closes = encoded(version="1.0")
    assert first.endswith(b"connection: close\r\n\r\nab")
    assert (last, closes) == (b"c", True)
    (first, *_), closes = encoded(version="1.0", headers=[(b"content-length", b"3")])
    assert b"connection: keep-alive\r\n" in first
    assert not closes


def test_who_closes_says_so() -> None:
    (first, *_), closes = encoded(closes=True)
    assert b"\r\nconnection: close\r\n" in first
    assert closes


@pytest.mark.parametrize(("status", "line"), [(404, b"HTTP/1.1 404 Not Found\r\n"), (799, b"HTTP/1.1 799 Other\r\n")])
def test_every_status_has_a_phrase(status: int, line: bytes) -> None:
    assert encoded(status=status)[0][0].startswith(line)


@pytest.mark.parametrize("header", [(b"x", b"a\r\nb: c"), (b"x\n", b"a"), (b"x", b"a\r")])
def test_no_header_makes_another(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="contains a line end"):
        encoded(headers=[header])
