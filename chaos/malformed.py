"""A source of chance in; a request that is wrong in one way or another, as bytes, out."""

import json
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from msgspec import Struct

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "P\u00f6ST"]
_PATHS = ["/v1/chat", "/v1/chat/completions", "/v1/chat/x/answer", "/v1/chat/x/cancel", "/v1/conversations", "/health"]
_ODD_PATHS = [
    "/../../etc/passwd",
    "/v1/chat/%00",
    "/v1/chat/%ff%fe/events",
    "/v1/conversations/" + "x" * 5000,
    "//v1//chat",
    "/v1/models/%2e%2e%2f%2e%2e",
    "/v1/conversations?limit=-1",
    "/v1/conversations?limit=99999999999999999999",
    "/v1/conversations?q=%22%22%22*(NEAR",
    "/v1/conversations?cursor=%00",
    "/v1/chat/chat_x/events?after=-5",
    "/page/..%2f..%2fpyproject.toml",
    "*",
    "",
    "no-slash",
    "http://elsewhere.example/",
    "/%",
    "/\u2028",
]
_TYPES = ["application/json", "text/plain", "application/json; charset=utf-16", "", "multipart/form-data; boundary=x"]


class Malformed(Struct, frozen=True):
    data: bytes
    is_left: bool = False  # nobody waits for its reply
    is_alone: bool = False  # nothing can follow it on its connection
    is_bodiless: bool = False  # its reply has a length, and no body


_Kind: TypeAlias = Callable[[Random], Malformed]


def malformed(chance: Random) -> Malformed:
    return chance.choice(_KINDS)(chance)


def _request(method: str, path: str, *headers: str, body: bytes = b"", host: str = "localhost") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + body


def _post(path: str, body: bytes, type: str = "application/json") -> bytes:
    return _request("POST", path, f"Content-Type: {type}", f"Content-Length: {len(body)}", body=body)


def _any_value(chance: Random, depth: int = 0) -> object:
    if depth < 3 and chance.random() < 0.3:
        if chance.random() < 0.5:
            return [_any_value(chance, depth + 1) for _ in range(chance.randrange(4))]
        return {chance.choice(["role", "content", "type", "\0", ""]): _any_value(chance, depth + 1)}
    odd: list[object] = [None, True, -1, 0, 1e308, 2**70, "", "\0", "\ud800", "x" * 300, "../..", [], {}, 3.5]
    return chance.choice(odd)


# --- kinds ----------------------------------------------------------------------------------------------


def _odd_method(chance: Random) -> Malformed:
    method = chance.choice(_METHODS)
    known_to_bodiless = method in ("HEAD", "get", "BREW", "P\u00f6ST", "CONNECT")
    return Malformed(_request(method, "/v1/chat", "Content-Length: 0"), is_alone=known_to_bodiless)


def _odd_path(chance: Random) -> Malformed:
    return Malformed(_request(chance.choice(["GET", "DELETE"]), chance.choice(_ODD_PATHS)), is_alone=True)


def _bad_json(chance: Random) -> Malformed:
    texts = [b"", b"{", b"[", b'{"message":', b"nul", b"\xff\xfe", b'{"message": "\xc3("}', b"{}" * 3, b"\0" * 20]
    texts += [b"[" * 100_000, b'{"a":' * 20_000, b'{"message":"x"' + b" " * 1000, b"1" * 5000, b'"' + b"\\u" * 100]
    return Malformed(_post(chance.choice(_PATHS[:4]), chance.choice(texts)))


def _wrong_types(chance: Random) -> Malformed:
    names = ["message", "messages", "model", "mode", "stream", "images", "tools", "conversationId", "workspace"]
    names += [
        "n",
        "stop",
        "max_tokens",
        "response_format",
        "tool_choice",
        "include",
        "fences",
        "answers",
        "toolResults",
    ]
    body = {name: _any_value(chance) for name in chance.sample(names, chance.randrange(1, 6))}
    body["mode"] = chance.choice([7, "none", [], {}])  # or it might be a request as others, with an agent
    body["n"] = chance.choice([7, "x", []])
    return Malformed(_post(chance.choice(_PATHS[:4]), json.dumps(body).encode()))


def _random_body(chance: Random) -> Malformed:
    return Malformed(_post(chance.choice(_PATHS[:4]), chance.randbytes(chance.randrange(2000)), chance.choice(_TYPES)))


def _bad_length(chance: Random) -> Malformed:
    length = chance.choice(["-1", "x", "1, 2", "99999999999999999999999", "0x10", "", "1e3", "+5", "5 5"])
    return Malformed(
        _request("POST", "/v1/chat", "Content-Type: application/json", f"Content-Length: {length}", body=b"{}"),
        is_alone=True,
    )


def _short_body(chance: Random) -> Malformed:
    """It says that more will come, and goes."""
    length = chance.choice([100, 10_000_000, 19_000_000])
    head = _request("POST", "/v1/chat", "Content-Type: application/json", f"Content-Length: {length}", body=b"{")
    return Malformed(head, is_left=True)


def _two_lengths(chance: Random) -> Malformed:
    headers = ["Content-Type: application/json", "Content-Length: 2", "Content-Length: 3"]
    if chance.random() < 0.5:
        headers = ["Content-Type: application/json", "Content-Length: 2", "Transfer-Encoding: chunked"]
    return Malformed(_request("POST", "/v1/chat", *headers, body=b"{}"), is_left=True)


def _bad_chunks(chance: Random) -> Malformed:
    body = chance.choice([b"zz\r\n", b"-1\r\n\r\n", b"ffffffffffffffffff\r\n", b"2\r\n{}XX0\r\n\r\n", b"5;x\r\n{}"])
    headers = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
    return Malformed(_request("POST", "/v1/chat", *headers, body=body), is_left=True)


def _odd_headers(chance: Random) -> Malformed:
    header = chance.choice(
        [
            "X-Nul: a\0b",
            "no colon at all",
            ": no name",
            "X-Bare: a\rb",
            "X-Folded: a\n b",
            "Authorization: " + "x" * 3000,
            "Last-Event-ID: " + "9" * 400,
            "Last-Event-ID: -1",
            "X-Request-Id: \u2028",
            "Cookie: " + "a=b; " * 500,
            "Accept: " + ",".join(["*/*"] * 300),
            "Content-Encoding: gzip",
            "Expect: 200-maybe",
            "Upgrade: websocket\r\nConnection: Upgrade",
            "Origin: http://elsewhere.example",
            "Sec-Fetch-Site: cross-site",
        ]
    )
    return Malformed(_request(chance.choice(["GET", "POST"]), "/v1/chat/x/events", header), is_alone=True)


def _huge_headers(chance: Random) -> Malformed:
    many = [f"X-{number}: {'y' * 100}" for number in range(chance.choice([90, 300, 900]))]
    return Malformed(_request("GET", "/health", *many), is_alone=True)


def _odd_host(chance: Random) -> Malformed:
    host = chance.choice(
        ["elsewhere.example", "", "[::1", "a b", "localhost:99999999", "\u00e4.example", "localhost,x"]
    )
    return Malformed(_request("GET", "/v1/runs", host=host), is_alone=True)


def _junk(chance: Random) -> Malformed:
    junk = chance.choice(
        [
            chance.randbytes(chance.randrange(1, 500)),
            b"\r\n" * 50,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(200),  # how TLS begins
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET /\r\n",
            b"\0" * 100,
        ]
    )
    return Malformed(junk, is_left=True)


def _pipelined_junk(chance: Random) -> Malformed:
    return Malformed(_request("GET", "/nothing") * 3 + chance.randbytes(100), is_alone=True)


_KINDS: list[_Kind] = [
    _odd_method,
    _odd_path,
    _bad_json,
    _wrong_types,
    _wrong_types,
    _random_body,
    _bad_length,
    _short_body,
    _two_lengths,
    _bad_chunks,
    _odd_headers,
    _huge_headers,
    _odd_host,
    _junk,
    _pipelined_junk,
]
