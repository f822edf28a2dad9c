"""Whatever is sent, the gateway answers: never with a 5xx of its own, never with nothing, and it lives on.

By the description of its own API, with bodies that somebody has thought of, and with what is no HTTP at all.
"""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.server.openapi import openapi_document
from cursor_gateway.settings import Settings
from cursor_gateway.wire import json_body
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import TIMEOUT, Json, chat, http_client, question, standin
from tests.server.test_safety import as_json, connected, error_of, exchange, request
from tests.strategies import examples

if TYPE_CHECKING:
    from schemathesis import BaseSchema, Case

EXAMPLES = 40  # for each operation: so many that are right, and so many that are wrong


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A mistake of the gateway's is one also where nobody was told of it."""
    limits = {"body_seconds": "5", "max_runs": "32"}
    with running_gateway(tmp_path_factory.mktemp("fuzzed"), settings=limits) as running, http_client(running) as client:
        assert client.get("/v1/models").status_code == 200  # from now on, names that are none start no agent
        yield running
        chat(client, standin("text"))
    logged = [json.loads(line) for line in running.log.read_text().splitlines()]
    assert [line for line in logged if line["level"] in ("error", "critical") or "exception" in line] == []


@pytest.fixture
def client(fuzzed: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(fuzzed) as made:
        yield made


# --- by the description of the API ----------------------------------------------------------------------

OPERATIONS = [
    (path, method)
    for path, methods in openapi_document("", dialects_of(Settings()))["paths"].items()
    for method in methods
    if method in ("get", "post", "put", "patch", "delete")
]
UNFIT = (b'"answer_unfit"', b'"tool_not_called"')


@pytest.fixture(scope="module")
def described(fuzzed: RunningGateway) -> "BaseSchema":
    """As a library reads it that takes long to import, in each worker: only the one that needs it does so."""
    import schemathesis

    return schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.quick_cases(3)
def test_every_reply_is_as_it_is_described(described: "BaseSchema", path: str, method: str, mode: str) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    @settings(examples(EXAMPLES), suppress_health_check=list(HealthCheck))
    @given(case=described[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    def check(case: "Case[Any]") -> None:
        response = case.call(timeout=TIMEOUT)
        checks = [status_code_conformance, content_type_conformance, response_schema_conformance]
        # An answer that is no JSON, or without a call, though that was asked for is the agent's: a bad gateway, and
        # described as one.
        if response.status_code != 502 or not any(code in response.content for code in UNFIT):
            checks.append(not_a_server_error)
        case.validate_response(response, checks=checks)

    with suppress(Unsatisfiable):  # where there is nothing to send, nothing can be wrong with it
        check()


# --- bodies ---------------------------------------------------------------------------------------------

PATHS = ("/v1/chat", "/v1/chat/chat_none/answer", "/v1/chat/completions")
DEEP = 100_000


def _nested(open: bytes, close: bytes) -> bytes:
    return open * DEEP + close * DEEP


NO_JSON: dict[str, bytes] = {
    "empty": b"",
    "white space": b" \n\t\r ",
    "null": b"null",
    "true": b"true",
    "number": b"42",
    "string": b'"message"',
    "array": b"[]",
    "array of requests": b'[{"message": "x", "messages": []}]',
    "nothing in it": b"{}",
    "nul": b"\0",
    "nuls": b"\0" * 1000,
    "half": b'{"message": "x", "messages": [{"role": "user"',
    "unclosed string": b'{"message": "x',
    "two": b'{"message": "x"}{"message": "y"}',
    "trailing": b'{"message": "x", "messages": [{"role": "user", "content": "x"}]} x',
    "trailing comma": b'{"message": "x",}',
    "comment": b'{"message": "x" /* */}',
    "single quotes": b"{'message': 'x'}",
    "bare name": b'{message: "x"}',
    "not UTF-8": b'{"message": "\xff\xfe", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "overlong UTF-8": b'{"message": "\xc0\x80", "messages": [{"role": "user", "content": "\xc0\x80"}]}',
    "surrogates in UTF-8": b'{"message": "\xed\xa0\x80", "messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
    "UTF-16": '{"message": "x"}'.encode("utf-16"),
    "UTF-32": '{"message": "x"}'.encode("utf-32"),
    "control in string": b'{"message": "a\nb", "messages": [{"role": "user", "content": "a\nb"}]}',
    "NaN": b'{"message": NaN, "messages": NaN}',
    "NaN and half a character": rb'{"message": "\\ud800", "mode": NaN, "messages": [], "n": NaN}',
    "Infinity and half a character": rb'{"message": "\\ud800", "mode": 1e999, "messages": [], "n": -1e999}',
    "half a name": rb'{"\ud800": "\ud800"}',
    "deep arrays": b'{"message": ' + _nested(b"[", b"]") + b', "messages": ' + _nested(b"[", b"]") + b"}",
    "deep objects": b'{"x": ' + _nested(b'{"a":', b"}").replace(b":}", b":1}", 1) + b"}",
    "deep and unclosed": b"[" * DEEP,
    "deep and half a character": rb'{"message": "\ud800", "x": ' + _nested(b"[", b"]") + b"}",
    "form": b"message=x&messages=y",
    "multipart": b'--x\r\nContent-Disposition: form-data; name="message"\r\n\r\nx\r\n--x--\r\n',
    "xml": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("name", NO_JSON)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.quick_cases(37)
def test_a_body_that_is_no_request_is_refused(client: httpx2.Client, path: str, name: str) -> None:
    assert_refused(client, path, NO_JSON[name])


def assert_refused(client: httpx2.Client, path: str, body: bytes, about: str = "") -> Json:
    reply = client.post(path, content=body, headers={"content-type": "application/json"})
    assert 400 <= reply.status_code < 500, (about, reply.text[:500])
    error = error_of(reply.content)
    assert error["type"] == "invalid_request_error"
    return error


def test_a_body_that_cannot_be_mended_is_not_mended_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's decoder takes NaN and the strict one does not: a large body would be read hundreds of times."""
    tried: list[bytes] = []

    def count(body: bytes, mend: Callable[[bytes], str] = json_body._repaired) -> str:
        tried.append(body)
        return mend(body)

    monkeypatch.setattr(json_body, "_repaired", count)
    with pytest.raises(InvalidRequest):
        json_body.read_json(NO_JSON["NaN and half a character"], dict)
    assert len(tried) <= 2


def test_what_is_odd_but_has_a_meaning_is_answered(client: httpx2.Client) -> None:
    """The last of two equal names counts, halves of characters are mended, and a long text is only long."""
    body = (
        rb'{"message": "x", "message": "standin: text", "stream": true, "stream": false, "model": "x", "model": "auto"}'
    )
    headers = {"content-type": "application/json"}
    assert client.post("/v1/chat", content=body, headers=headers).status_code == 200
    for half in (rb"\ud83d", rb"\udc00\ud83d", rb"\ud83d\ude00"):
        body = b'{"message": "standin: text %b"}' % half
        assert client.post("/v1/chat", content=body, headers=headers).status_code == 200
        body = b'{"messages": [{"role": "user", "content": "standin: text %b"}]}' % half
        assert client.post("/v1/chat/completions", content=body, headers=headers).status_code == 200
    chat(client, "x" * 1_000_000 + "\n" + standin("text"))
    result = client.post("/v1/chat/completions", json=question(standin("text"), something_new={"a": [1]}, seed=10**18))
    assert result.status_code == 200


HEADERS = ["x-cursor-mode", "x-cursor-fences", "x-cursor-include", "x-cursor-workspace", "x-cursor-conversation-id"]


@pytest.mark.parametrize("name", HEADERS)
def test_headers_in_the_place_of_fields_are_refused_likewise(fuzzed: RunningGateway, name: str) -> None:
    body = as_json(**question("x"))
    for value in ("", "\xff\xfe", "x" * 30_000, "a\tb", "null", "[]", "../..", "\x01", "%00", '"'):
        reply = exchange(fuzzed, request("POST", "/v1/chat/completions", f"{name}: {value}", body=body))
        assert 400 <= reply.status < 500
        if reply.body.startswith(b"{"):  # the parser's own refusal is plain text
            assert reply.error["type"] in ("invalid_request_error", "permission_error")


# --- methods and paths ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
def test_every_method_of_every_path_is_answered(client: httpx2.Client, method: str) -> None:
    known = ["/v1/chat", "/v1/chat/completions", "/v1/chat/x/cancel", "/v1/models", "/v1/models/x", "/health"]
    known += ["/metrics", "/openapi.json", "/docs", "/docs.css", "/"]
    strange = ["/v1", "/v1/", "/v1/chat/", "//", "/v1//chat", "/V1/chat", "/v1/chat/x", "/v1/chat/x/cancel/"]
    strange += ["/v1/models/", "/v1/models/a/b/c", "/.env", "/%2e%2e/%2e%2e/etc/passwd", "/%00", "/%ff", "/%", "/%zz"]
    strange += ["/docs/../../etc/passwd", "/?" + "a=b&" * 1000, "/a;b", "/v1/chat?stream=true", "/" + "a" * 5000]
    for path in (*known, *strange):
        reply = client.request(method, path, json={} if method in ("POST", "PUT", "PATCH") else None)
        assert reply.status_code < 500, (path, reply.text)
        assert reply.headers["x-request-id"]
        if reply.status_code >= 400 and method != "HEAD":
            error_of(reply.content)
        if reply.status_code == 405:
            assert method not in reply.headers["allow"]


# --- no HTTP --------------------------------------------------------------------------------------------


def sent(gateway: RunningGateway, data: bytes) -> bytes:
    """What comes back when nothing follows; the gateway need not have read it all."""
    received = b""
    with connected(gateway) as sock, suppress(ConnectionError):
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        finally:
            while piece := sock.recv(65536):
                received += piece
    return received


def test_connections_that_say_nothing_keep_nobody_waiting(fuzzed: RunningGateway, client: httpx2.Client) -> None:
    silent = [connected(fuzzed) for _ in range(100)]
    try:
        for sock in silent[::2]:
            sock.sendall(b"POST /v1/chat HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert client.get("/health").status_code == 200
        chat(client, standin("text"))
    finally:
        for sock in silent:
            sock.close()
