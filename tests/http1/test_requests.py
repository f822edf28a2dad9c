"""The parser: the same events however the bytes are divided; what is rejected, and that nothing comes after it."""

from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.http1.requests import (
    MAX_HEAD,
    MAX_HEADERS,
    BodyPiece,
    Event,
    Rejected,
    RequestEnd,
    RequestHead,
    RequestParser,
)

# A request as it was understood: its head and its body; or the status and the method of its refusal.
Request: TypeAlias = tuple[str, bytes, bytes, bytes] | tuple[int, str]

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


def parsed(pieces: list[bytes]) -> list[Event]:
    """With the pieces of each body joined."""
    parser = RequestParser()
    events: list[Event] = []
    for piece in pieces:
        for event in parser.push(piece):
            last = events[-1] if events else None
            if isinstance(event, BodyPiece) and isinstance(last, BodyPiece):
                events[-1] = BodyPiece(last.data + event.data)
            else:
                events.append(event)
    return events


def one_by_one(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def requests(stream: bytes) -> list[Request]:
    found: list[Request] = []
    head: RequestHead | None = None
    body = b""
    for event in parsed(one_by_one(stream)):
        match event:
            case RequestHead():
                assert head is None
                head, body = event, b""
            case BodyPiece(data=data):
                assert head is not None
                body += data
            case RequestEnd():
                assert head is not None
                found.append((head.method, head.path, head.query, body))
                head = None
            case Rejected(error=error, method=method):
                found.append((error.status, method))
                head = None
    return found


GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-Late: 1\r\n\r\n"
CHUNKED = b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS
UPGRADE = b"GET /u HTTP/1.1\r\nHost: x\r\n" + H2C + b"\r\n"
UPGRADE_POST = b"POST /v HTTP/1.1\r\nHost: x\r\n" + H2C + b"Content-Length: 5\r\n\r\nhello"
UPGRADE_CHUNKED = b"POST /w HTTP/1.1\r\nHost: x\r\n" + H2C + b"Transfer-Encoding: Chunked\r\n\r\n" + CHUNKS
LAST = b"GET /z HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
BROKEN = b"GET /\x01 HTTP/1.1\r\n\r\n"

WHOLE: dict[bytes, Request] = {
    GET: ("GET", b"/a", b"b=c", b""),
    POST: ("POST", b"/p", b"", b"hello"),
    CHUNKED: ("POST", b"/c", b"", b"abcde"),
    UPGRADE: ("GET", b"/u", b"", b""),
    UPGRADE_POST: ("POST", b"/v", b"", b"hello"),
    UPGRADE_CHUNKED: ("POST", b"/w", b"", b"abcde"),
}


@pytest.mark.parametrize("stream", WHOLE, ids=lambda stream: stream[:7].decode())
def test_a_request(stream: bytes) -> None:
    assert requests(stream) == [WHOLE[stream]]


@given(
    sent=st.lists(st.sampled_from([*WHOLE, b"\r\n"]), max_size=6),
    end=st.sampled_from([b"", LAST, BROKEN, LAST + BROKEN, LAST + GET]),
    cuts=st.lists(st.integers(0, 900), max_size=8),
)
def test_events_do_not_depend_on_how_the_bytes_are_divided(sent: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = b"".join(sent) + end
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:stop] for start, stop in pairwise(places)]
    found = parsed(pieces)
    kinds = [type(event) for event in found]
    assert requests(stream) == [WHOLE[one] for one in sent if one in WHOLE] + (
        [("GET", b"/z", b"", b"")] if end.startswith(LAST) else [(400, "GET")] if end else []
    )
    assert kinds == [type(event) for event in parsed(one_by_one(stream))]
    assert [event for event in found if not isinstance(event, Rejected)] == [
        event for event in parsed(one_by_one(stream)) if not isinstance(event, Rejected)
    ]


def test_a_head_has_what_was_sent_and_no_trailer() -> None:
    parser = RequestParser()
    head, _, _, end = parser.push(CHUNKED.replace(b"Host: x", b"Host: x\r\nX-A: 1 \t"))
    assert isinstance(head, RequestHead)
    assert head.headers == [(b"host", b"x"), (b"x-a", b"1"), (b"transfer-encoding", b"chunked")]
    assert (head.version, head.keep_alive, type(end)) == ("1.1", True, RequestEnd)


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (UPGRADE, True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_the_last_request_closes_the_input(head: bytes, keep_alive: bool) -> None:
    parser = RequestParser()
    first, end = parser.push(head)
    assert isinstance(first, RequestHead)
    assert first.keep_alive == keep_alive
    assert type(end) is RequestEnd
    assert parser.is_closed == (not keep_alive)
    assert bool(parser.push(GET)) == keep_alive


@pytest.mark.parametrize(
    ("target", "path", "query", "host"),
    [
        (b"/%C3%A9?a=%20#f", b"/%C3%A9", b"a=%20", b"x"),
        (b"http://other:81/p?q=1", b"/p", b"q=1", b"other:81"),
        (b"http://[::1]/", b"/", b"", b"[::1]"),
        (b"http://other", b"/", b"", b"other"),
        (b"*", b"*", b"", b"x"),
    ],
)
def test_the_target_says_which_host_is_meant(target: bytes, path: bytes, query: bytes, host: bytes) -> None:
    head = RequestParser().push(b"OPTIONS %b HTTP/1.1\r\nHost: x\r\n\r\n" % target)[0]
    assert isinstance(head, RequestHead)
    assert (head.path, head.query, [value for name, value in head.headers if name == b"host"]) == (path, query, [host])


REJECTED: dict[str, tuple[bytes, int, str]] = {
    "nvalid": (b"\x16\x03\x01\x02\x00", 400, "GET"),
    "another version": (b"GET / HTTP/3.7\r\nHost: x\r\n\r\n", 400, "GET"),
    "version 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "GET"),
    "version 0.9": (b"GET / HTTP/0.9\r\nHost: x\r\n\r\n", 400, "GET"),
    "a proxy's request": (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "CONNECT"),
    "no target": (b"HEAD http:// HTTP/1.1\r\nHost: x\r\n\r\n", 400, "HEAD"),
    "a target that is no ASCII": (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "GET"),
    "chunks in 1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "POST"),
    "two lengths": (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "GET"),
    "an upgrade of unclear length": (
        b"POST / HTTP/1.1\r\nHost: x\r\n" + H2C + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        400,
        "POST",
    ),
    "a bad chunk": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "POST"),
    "many headers": (b"HEAD / HTTP/1.1\r\n" + b"a: b\r\n" * (MAX_HEADERS + 1) + b"\r\n", 431, "HEAD"),
    "many headers and a body": (
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n" + b"a: b\r\n" * MAX_HEADERS + b"\r\nhi",
        431,
        "POST",
    ),
    "a long head": (b"GET / HTTP/1.1\r\na: " + b"x" * MAX_HEAD + b"\r\n\r\n", 431, "GET"),
    "line ends without end": (b"\r\n" * MAX_HEAD, 431, "GET"),
    "long trailers": (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: " + b"x" * MAX_HEAD, 431, "POST"),
}


BY_PUSH = ("a long head", "line ends without end", "long trailers")  # counted when the next bytes come


@pytest.mark.parametrize("name", REJECTED)
@pytest.mark.parametrize("before", [b"", GET + POST])
def test_what_is_rejected_is_the_last_event(name: str, before: bytes) -> None:
    stream, status, method = REJECTED[name]
    whole = [] if name in BY_PUSH else [[before + stream], [before, stream]]
    for pieces in [*whole, one_by_one(before + stream)]:
        parser = RequestParser()
        events = [event for piece in pieces for event in parser.push(piece)]
        assert [type(event) for event in events].count(Rejected) == 1
        last = events[-1]
        assert isinstance(last, Rejected)
        assert last.error.status == status
        assert last.method == method
        assert parser.is_closed
        assert parser.push(GET) == []


def test_a_head_that_comes_at_once_is_not_too_long_either() -> None:
    stream = b"HEAD / HTTP/1.1\r\na: " + b"x" * MAX_HEAD + b"\r\n\r\n"
    for before in (b"", GET):
        last = RequestParser().push(before + stream)[-1]
        assert isinstance(last, Rejected)
        assert (last.error.status, last.method) == (431, "HEAD")


def test_a_long_body_is_no_long_head() -> None:
    body = b"x" * (5 * MAX_HEAD)
    for head in (b"Content-Length: %d\r\n" % len(body), b"Content-Length: %d\r\n%b" % (len(body), H2C)):
        stream = b"POST / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n" + body + GET
        events = parsed([stream])
        assert [type(event) for event in events] == [RequestHead, BodyPiece, RequestEnd, RequestHead, RequestEnd]
        assert events[1] == BodyPiece(body)


def test_many_upgrades_at_once_are_as_many_requests() -> None:
    events = parsed([UPGRADE * 3000])
    assert [type(event) for event in events] == [RequestHead, RequestEnd] * 3000


def test_it_knows_where_in_a_request_it_is() -> None:
    parser = RequestParser()
    seen: list[tuple[bool, bool, bool]] = []
    for piece in (b"\r\n", b"GE", b"T / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\na", b"aGET"):
        parser.push(piece)
        seen.append((parser.is_idle, parser.in_head, parser.head_has_begun))
    assert seen == [
        (False, True, False),
        (False, True, True),
        (True, True, False),
        (False, False, False),
        (False, True, True),
    ]


@pytest.mark.parametrize("at", range(len(UPGRADE_CHUNKED)))
def test_after_it_was_closed_there_are_no_events(at: int) -> None:
    parser = RequestParser()
    parser.push(UPGRADE_CHUNKED[:at])
    parser.close()
    assert parser.push(UPGRADE_CHUNKED[at:]) == []
