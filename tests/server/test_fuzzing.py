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


KINDS: dict[str, object] = {
    "string": "\0 x",  # which is no mode, no model, no folder …
    "integer": -7,
    "number": 1.5,
    "huge": 10**400,
    "boolean": True,
    "array": [1],
    "object": {"x": [1]},
}

# The kinds that some field takes; of the others each must be refused.
DOCUMENTS = {
    "message": "string",
    "conversationId": "",
    "model": "",
    "mode": "",
    "stream": "boolean",
    "include": "",
    "fences": "",
    "workspace": "",
    "images": "",
    "tools": "",
    "toolChoice": "",
    "parallelToolCalls": "boolean",
    "whenClientLeaves": "",
}
ANSWERS = {"toolResults": "", "answers": "", "plan": "", "stream": "boolean", "whenClientLeaves": ""}
COMPLETIONS = {
    "messages": "",
    "model": "",
    "stream": "boolean",
    "stream_options": "object",
    "max_tokens": "huge",
    "max_completion_tokens": "huge",
    "stop": "string",
    "response_format": "",
    "tools": "",
    "tool_choice": "",
    "parallel_tool_calls": "boolean",
    "functions": "",
    "cursor": "",
    "n": "",
    "logprobs": "",
    "top_logprobs": "",
    "modalities": "",
    "temperature": "integer number huge",
    "top_p": "integer number huge",
    "presence_penalty": "integer number huge",
    "frequency_penalty": "integer number huge",
    "seed": "integer huge",
    "reasoning_effort": "string",
    "store": "boolean",
    "metadata": "object",
    "user": "string",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_of_the_wrong_kind_is_refused_wherever_it_stands(client: httpx2.Client, kind: str) -> None:
    for path, fields, base in (
        ("/v1/chat", DOCUMENTS, {"message": "x"}),
        ("/v1/chat/chat_none/answer", ANSWERS, {}),
        ("/v1/chat/completions", COMPLETIONS, question("x")),
    ):
        for field, taken in fields.items():
            if kind not in taken.split():
                error = assert_refused(client, path, as_json(**{**base, field: KINDS[kind]}), field)
                assert error["param"] is None or error["param"].startswith(field), (field, error)


def _content(*parts: object) -> list[Json]:
    return [{"role": "user", "content": [*parts]}]


MESSAGES: list[object] = [
    [],
    [None],
    ["x"],
    [[]],
    [{}],
    [{"role": "user"}],
    [{"content": "x"}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": 7}],
    [{"role": "user", "content": {}}],
    [{"role": "user", "content": " \n"}],
    [{"role": "user", "content": []}],
    [{"role": "root", "content": "x"}],
    [{"role": ["user"], "content": "x"}],
    [{"role": "x" * 1_000_000, "content": "x"}],
    [{"role": "user", "content": "x", "name": 7}],
    [{"role": "tool", "content": "x"}],
    [{"role": "tool", "content": "x", "tool_call_id": 7}],
    [{"role": "function", "content": "x"}],
    [{"role": "assistant", "tool_calls": [{}]}],
    [{"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "x", "arguments": {}}}]}],
    [{"role": "assistant", "tool_calls": "x"}],
    _content("x"),
    _content({}),
    _content({"type": "text"}),
    _content({"type": "text", "text": 7}),
    _content({"type": "video", "video": "x"}),
    _content({"type": "image_url"}),
    _content({"type": "image_url", "image_url": 7}),
    _content({"type": "image_url", "image_url": {"url": "https://evil.example/x.png"}}),
    _content({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
    _content({"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}}),
    _content({"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!"}}),
    _content({"type": "image_url", "image_url": {"url": "data:" + "x" * 1_000_000}}),
    [{"role": "system", "content": [{"type": "image_url", "image_url": "data:image/png;base64,AAAA"}]}],
]


@pytest.mark.parametrize("place", range(len(MESSAGES)))
@pytest.mark.quick_cases(12)
def test_messages_that_are_none_are_refused(client: httpx2.Client, place: int) -> None:
    error = assert_refused(client, "/v1/chat/completions", as_json(messages=MESSAGES[place]))
    assert error["param"] is None or error["param"].startswith("messages")


ODD: list[tuple[str, Json]] = [
    ("/v1/chat", {"unknown": 1}),
    ("/v1/chat", {"Message": "y"}),
    ("/v1/chat", {"x" * 1_000_000: 1}),
    ("/v1/chat", {"a`b - at `$.c`": 1}),
    ("/v1/chat", {"\ud800": 1}),
    ("/v1/chat", {"message": ""}),
    ("/v1/chat", {"message": "\u2003\n"}),
    ("/v1/chat", {"model": ""}),
    ("/v1/chat", {"model": "x" * 1_000_000}),
    ("/v1/chat", {"model": "none-such"}),
    ("/v1/chat", {"model": "../../etc/passwd"}),
    ("/v1/chat", {"model": "auto]" + "[" * 1000}),
    ("/v1/chat", {"mode": "x" * 1_000_000}),
    ("/v1/chat", {"mode": "Agent"}),
    ("/v1/chat", {"include": ["thinking", "x"]}),
    ("/v1/chat", {"include": ["x" * 1_000_000]}),
    ("/v1/chat", {"fences": "both"}),
    ("/v1/chat", {"conversationId": "x" * 1_000_000}),
    ("/v1/chat", {"conversationId": "../.."}),
    ("/v1/chat", {"conversationId": ""}),
    ("/v1/chat", {"workspace": "w" * 1_000_000}),
    ("/v1/chat", {"images": ["https://evil.example/x.png"]}),
    ("/v1/chat", {"images": ["x" * 1_000_000]}),
    ("/v1/chat", {"images": ["data:image/png;base64," + "!" * 1_000_000]}),
    ("/v1/chat", {"images": ["data:image/png;base64,AAAA", None]}),
    ("/v1/chat", {"tools": [{"name": "a"}, {"name": "a"}]}),
    ("/v1/chat", {"tools": [{"name": "x" * 1_000_000}], "toolChoice": {"name": "y" * 1_000_000}}),
    ("/v1/chat", {"tools": [{"name": "a", "parameters": {"type": "string"}}]}),
    ("/v1/chat", {"tools": [{"function": {"description": "x"}}]}),
    ("/v1/chat", {"toolChoice": "required"}),
    ("/v1/chat", {"tools": [{"name": "a"}], "mode": "plan"}),
    ("/v1/chat/completions", {"model": "x" * 1_000_000}),
    ("/v1/chat/completions", {"n": 2}),
    ("/v1/chat/completions", {"n": -(10**30)}),
    ("/v1/chat/completions", {"max_tokens": 0}),
    ("/v1/chat/completions", {"stop": ["a", "b", "c", "d", "e"]}),
    ("/v1/chat/completions", {"stop": ""}),
    ("/v1/chat/completions", {"stop": [""]}),
    ("/v1/chat/completions", {"cursor": {"unknown": 1}}),
    ("/v1/chat/completions", {"cursor": {"x" * 1_000_000: 1}}),
    ("/v1/chat/completions", {"cursor": {"workspace": "\0"}}),
    ("/v1/chat/completions", {"cursor": {"conversationId": "conv_none"}}),
    ("/v1/chat/completions", {"tool_choice": "required"}),
    ("/v1/chat/completions", {"tool_choice": {"type": "function", "function": {"name": "x" * 1_000_000}}}),
    ("/v1/chat/completions", {"tools": [{"type": "function", "function": {"name": ""}}]}),
    ("/v1/chat/completions", {"tools": [{"type": "code_interpreter"}]}),
    ("/v1/chat/completions", {"functions": [{"name": "a"}]}),
    ("/v1/chat/completions", {"tools": [{"function": {"name": "a"}}, {"function": {"name": "a"}}]}),
    ("/v1/chat/completions", {"response_format": {"type": "x" * 1_000_000}}),
    ("/v1/chat/completions", {"response_format": {"type": "json_schema"}}),
    ("/v1/chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 7}}}}),
    ("/v1/chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"schema": {"pattern": "("}}}}),
]


@pytest.mark.parametrize("place", range(len(ODD)))
@pytest.mark.quick_cases(17)
def test_fields_that_cannot_be_honoured_are_refused(client: httpx2.Client, place: int) -> None:
    path, fields = ODD[place]
    base = {"message": "x"} if path == "/v1/chat" else question("x")
    assert_refused(client, path, as_json(**{**base, **fields}))


@pytest.mark.parametrize("name", ["metadata", "parameters", "schema", "unknown"])
def test_depth_is_refused_also_where_anything_may_stand(client: httpx2.Client, name: str) -> None:
    deep = _nested(b"[", b"]")
    fields = {
        "metadata": b'"metadata": {"a": %b}' % deep,
        "parameters": b'"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": %b}}}]' % deep,
        "schema": b'"response_format": {"type": "json_schema", "json_schema": {"schema": {"default": %b}}}' % deep,
        "unknown": b'"something_new": %b' % deep,
    }
    assert_refused(
        client, "/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], %b}' % fields[name]
    )


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

_CHUNKED = "Transfer-Encoding: chunked\r\nContent-Type: application/json"


def _chunks(body: str) -> bytes:
    return f"POST /v1/chat HTTP/1.1\r\nHost: localhost\r\n{_CHUNKED}\r\n\r\n{body}".encode("latin-1")


MALFORMED: dict[str, bytes] = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "nuls": b"\0" * 10_000,
    "bytes": bytes(range(256)) * 100,
    "line ends": b"\r\n" * 10_000,
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/9.9": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "no version": b"GET / \r\nHost: localhost\r\n\r\n",
    "no method": b" / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "unknown method": b"CHAT / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "small method": b"get / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long method": b"A" * 100_000 + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long path": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bytes in path": b"GET /\xff\xfe\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "absolute": b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "broken absolute": b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "connect": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "header without colon": b"GET / HTTP/1.1\r\nHost: localhost\r\nNothing\r\n\r\n",
    "header without name": b"GET / HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n",
    "space before colon": b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "nul in header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    "bare CR": b"GET / HTTP/1.1\rHost: localhost\r\r",
    "huge header": b"GET / HTTP/1.1\r\nHost: evil.example\r\nX: " + b"a" * 5_000_000 + b"\r\n\r\n",
    "huge name": b"GET / HTTP/1.1\r\nHost: evil.example\r\n" + b"a" * 5_000_000 + b": x\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: evil.example\r\n" + b"X: a\r\n" * 500_000 + b"\r\n",
    "no hex": _chunks("zz\r\nx\r\n0\r\n\r\n"),
    "negative chunk": _chunks("-1\r\nx\r\n0\r\n\r\n"),
    "huge chunk": _chunks("ffffffffffffffffff\r\nx\r\n0\r\n\r\n"),
    "chunk too long": _chunks("2\r\nxxxxxx\r\n0\r\n\r\n"),
    "chunk without end": _chunks("2\r\nxx0\r\n\r\n"),
    "gzip of chunks": _chunks("0\r\n\r\n").replace(b": chunked", b": gzip, chunked"),
    "not chunked": _chunks("0\r\n\r\n").replace(b": chunked", b": identity"),
    "twice chunked": _chunks("0\r\n\r\n").replace(b": chunked", b": chunked, chunked"),
    "smuggling": _chunks("0\r\n\r\n").replace(b"Transfer", b"Content-Length: 5\r\nTransfer"),
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_http_is_refused_and_survived(fuzzed: RunningGateway, client: httpx2.Client, name: str) -> None:
    received = sent(fuzzed, MALFORMED[name])
    assert received == b"" or received.startswith((b"HTTP/1.1 4", b"HTTP/1.1 307 "))
    assert client.get("/health").status_code == 200


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


def test_headers_are_not_read_without_end(fuzzed: RunningGateway) -> None:
    """Before any key is looked at, so anybody could fill the memory."""
    most = 64_000_000
    with connected(fuzzed) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        size = 0
        with suppress(ConnectionError):
            while size < most:
                sock.sendall(b"a" * 65536)
                size += 65536
    assert size < most


def test_an_upgrade_is_not_taken(fuzzed: RunningGateway) -> None:
    headers = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA"]
    for path in ("/health", "/v1/chat"):
        reply = sent(fuzzed, "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode())
        assert reply.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 405 ", b"HTTP/1.1 4")) or reply == b""
        assert b"101 Switching" not in reply


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
