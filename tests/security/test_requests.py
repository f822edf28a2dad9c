"""Bytes that are meant to be read in two ways, or to cost more than they are: framing, numbers, nesting, schemas."""

import gzip
import json
import re
import socket
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, chat, http_client, invocations, question, standin, unique
from tests.server.test_safety import CHUNKED, assert_nothing_was_started, connected, error_of, exchange, request

HOST, TYPE = b"Host: localhost\r\n", b"Content-Type: application/json\r\n"
_REPLY = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Z](?s:.*?)\r\nx-request-id: ([^\r]*)")
NEXT = b"GET /health HTTP/1.1\r\nX-Request-Id: smuggled\r\n" + HOST + b"Connection: close\r\n\r\n"


def replies(gateway: RunningGateway, data: bytes) -> list[tuple[int, str]]:
    """The statuses and ids of all that is answered on one connection, which the gateway must end."""
    result = b""
    with connected(gateway) as sock, suppress(ConnectionError):
        sock.sendall(data)
        while piece := sock.recv(65536):
            result += piece
    return [(int(status), id.decode()) for status, id in _REPLY.findall(result)]


# --- where a request ends ---------------------------------------------------------------------------------

AMBIGUOUS = {
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 44",
    "two lengths in one": b"Content-Length: 0, 44",
    "a length with a sign": b"Content-Length: +0",
    "a length in hex": b"Content-Length: 0x0",
    "a length with an underscore": b"Content-Length: 0_0",
    "another coding": b"Transfer-Encoding: xchunked",
    "chunks before the last": b"Transfer-Encoding: chunked, identity",
    "chunks, then not": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "chunks twice": b"Transfer-Encoding: chunked, chunked, x",
    "identity": b"Transfer-Encoding: identity",
    "a space before the colon": b"Transfer-Encoding : chunked",
    "a vertical tab": b"Transfer-Encoding:\x0bchunked",
    "a NUL": b"Transfer-Encoding: chunked\0",
    "a folded line": b"X: y\r\n Transfer-Encoding: chunked",
    "a folded line with a tab": b"X: y\r\n\tContent-Length: 44",
    "a line feed alone": b"X: y\nTransfer-Encoding: chunked",
    "a carriage return alone": b"X: y\rTransfer-Encoding: chunked",
    "a header without a name": b": chunked",
    "a header without a colon": b"Transfer-Encoding",
}


@pytest.mark.parametrize("shape", AMBIGUOUS)
def test_a_request_that_could_end_in_two_places_is_refused_with_all_that_follows(
    open_gateway: RunningGateway, shape: str
) -> None:
    head = b"POST /v1/chat/x/cancel HTTP/1.1\r\n" + HOST + TYPE + AMBIGUOUS[shape] + b"\r\n\r\n"
    answered = replies(open_gateway, head + b"0\r\n\r\n" + NEXT)
    assert [status for status, _ in answered] == [400]
    assert "smuggled" not in [id for _, id in answered]


@pytest.mark.parametrize("size", [b"0x2", b"2 ", b"-2", b"+2", b"2_", b"ffffffffffffffff2", b"2\n", b"\xb2", b""])
def test_a_chunk_has_a_size_and_no_other_thing(open_gateway: RunningGateway, size: bytes) -> None:
    head = b"POST /v1/chat/x/cancel HTTP/1.1\r\n" + HOST + TYPE + b"Transfer-Encoding: chunked\r\n\r\n"
    answered = replies(open_gateway, head + size + b"\r\n{}\r\n0\r\n\r\n" + NEXT)
    assert "smuggled" not in [id for _, id in answered]
    assert answered[-1][0] == 400


def test_chunks_are_not_for_the_old_protocol(open_gateway: RunningGateway) -> None:
    """Who stands between, and knows no chunks in HTTP/1.0, ends the request elsewhere."""
    head = b"POST /v1/chat/x/cancel HTTP/1.0\r\n" + HOST + TYPE
    more = b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert [status for status, _ in replies(open_gateway, head + more + NEXT)] == [400]


def test_a_body_is_nobody_elses_request(open_gateway: RunningGateway) -> None:
    """Also where the path takes no body, and where another protocol is asked for."""
    asked = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    for more in (b"", asked, asked.replace(b"websocket", b"h2c")):
        for line in (b"GET /health", b"HEAD /health", b"POST /v1/chat/x/cancel", b"DELETE /v1/conversations/x"):
            head = line + b" HTTP/1.1\r\n" + HOST + TYPE + more + b"Content-Length: %d\r\n\r\n" % len(NEXT)
            answered = replies(open_gateway, head + NEXT + NEXT.replace(b"smuggled", b"the-next"))
            assert [id for _, id in answered][1:] == ["the-next"], head


def test_trailers_are_no_headers(open_gateway: RunningGateway) -> None:
    """Who checks the headers of a request, here or on its way, has not seen them. Also of one that has to wait."""
    trailed = b"POST /v1/chat/x/cancel HTTP/1.1\r\n" + HOST + TYPE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    trailed += b"X-Request-Id: forged\r\nX-Api-Key: forged\r\nOrigin: https://evil.example\r\n\r\n"
    for before in (b"", b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"):
        answered = replies(open_gateway, before + trailed + NEXT)
        assert [status for status, _ in answered][-2:] == [404, 200]
        assert [id for _, id in answered][-1] == "smuggled"  # it is a request of its own, where it stands
        assert "forged" not in [id for _, id in answered]


def memory(gateway: RunningGateway) -> int:
    """Resident, in megabytes."""
    lines = Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) // 1024


ENDLESS = {
    "trailers": b"0\r\n" + b"a: b\r\n" * 10_000,
    "one trailer": b"0\r\nx: " + b"a" * 60_000,
    "an extension of a chunk": b"1;" + b"a" * 60_000,
}


@pytest.mark.parametrize("shape", ENDLESS)
def test_what_brings_no_body_has_an_end(open_gateway: RunningGateway, shape: str) -> None:
    head = b"POST /v1/chat HTTP/1.1\r\n" + HOST + TYPE + b"Transfer-Encoding: chunked\r\n\r\n"
    more = ENDLESS[shape].rpartition(b"\n")[2] if shape != "trailers" else b"a: b\r\n" * 10_000
    with connected(open_gateway) as sock:
        sent = 0
        sock.settimeout(20)
        with suppress(ConnectionError):
            sock.sendall(head + ENDLESS[shape])
            while sent < 64 * 1024 * 1024:
                sock.sendall(more)
                sent += len(more)
                sock.setblocking(False)
                with suppress(BlockingIOError):
                    if sock.recv(65536):
                        break
                sock.settimeout(20)
        assert sent < 32 * 1024 * 1024  # it did not listen to the end


# --- bodies that are more than they seem -------------------------------------------------------------------


def _bombs(mark: str) -> Iterator[tuple[str, bytes]]:
    body = json.dumps({"message": mark, "x": " " * 10_000_000}).encode()
    yield "gzip", gzip.compress(body)
    yield "deflate", zlib.compress(body)
    yield "br", b"\x1b\xff\xff\x00"
    yield "zstd", b"\x28\xb5\x2f\xfd\x00"
    yield "gzip, gzip", gzip.compress(gzip.compress(body))
    yield "identity, gzip", gzip.compress(body)
    yield "x-gzip", gzip.compress(body)
    yield "GZIP", gzip.compress(body)


def test_nothing_is_ever_inflated(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    mark = unique()
    for coding, body in _bombs(mark):
        for path in ("/v1/chat", "/v1/chat/completions", "/v1/chat/x/answer", "/v1/chat/x/cancel"):
            headers = {"content-type": "application/json", "content-encoding": coding}
            refused = anybody.post(path, content=body, headers=headers)
            assert (refused.status_code, error_of(refused.content)["code"]) == (415, "unsupported_media_type")
        head = request("POST", "/v1/chat", "Content-Type: application/json", f"Transfer-Encoding: {coding}, chunked")
        chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        assert exchange(open_gateway, head + chunk).status in (400, 415)
        sneaky = request("POST", "/v1/chat", "Content-Encoding: identity", f"Content-Encoding: {coding}", body=body)
        assert exchange(open_gateway, sneaky).status in (400, 415)
    assert_nothing_was_started(open_gateway, anybody, mark)


HUGE = {
    "an exponent": b"1e999999999",
    "a million digits": b"9" * 1_000_000,
    "minus a million digits": b"-" + b"9" * 1_000_000,
    "an exponent of a million digits": b"1e" + b"9" * 1_000_000,
    "arrays in arrays": b"[" * 500_000 + b"]" * 500_000,
    "arrays without an end": b"[" * 1_000_000,
    "objects in objects": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "strings and arrays": b'["\\ud800",' * 100_000 + b"1" + b"]" * 100_000,
    "halves of letters and digits": b'["\\ud800",' + b"9" * 1_000_000 + b"]",
}
PLACES = {
    "/v1/chat": b'{"message":"MARK","conversationId":%b}',
    "/v1/chat/x/answer": b'{"toolResults":[{"toolCallId":"x","content":%b}]}',
    "/v1/chat/completions": b'{"model":"auto","messages":[{"role":"user","content":"MARK"}],"metadata":{"a":%b}}',
}


@pytest.mark.parametrize("kind", HUGE)
def test_no_value_is_too_much(open_gateway: RunningGateway, anybody: httpx2.Client, kind: str) -> None:
    """A number of a million digits takes minutes to read, and nesting the whole stack, where nobody forbids it."""
    mark = unique()
    for path, place in PLACES.items():
        body = place.replace(b"MARK", mark.encode()) % HUGE[kind]
        refused = anybody.post(path, content=body, headers={"content-type": "application/json"})
        assert (refused.status_code, error_of(refused.content)["code"]) == (400, "invalid_request")
    assert_nothing_was_started(open_gateway, anybody, mark)


def test_of_two_fields_of_one_name_the_last_counts_for_all_of_us(
    open_gateway: RunningGateway, anybody: httpx2.Client
) -> None:
    """There is one reader of a body, so nobody checks one value and uses the other."""
    first, last = unique(), unique()
    body = f'{{"message": "{first}", "workspace": "/etc", "message": "{standin("text")} {last}", "workspace": "."}}'
    result = anybody.post("/v1/chat", content=body.encode(), headers={"content-type": "application/json"})
    assert result.status_code == 200
    assert invocations(open_gateway, first) == []
    body = f'{{"message": "{last}", "workspace": ".", "workspace": "/etc"}}'
    refused = anybody.post("/v1/chat", content=body.encode(), headers={"content-type": "application/json"})
    assert refused.status_code == 403


def test_many_fields_of_like_names_are_read_like_others(anybody: httpx2.Client) -> None:
    """Names chosen to meet in a table of hashes (they would, in a table of numbers)."""
    fields = {str(number * (2**61 - 1)): 1 for number in range(100_000)}
    body: Json = {"toolResults": [{"toolCallId": "x", "content": fields}]}
    assert anybody.post("/v1/chat/chat_1/answer", json=body).status_code == 404
    unknown = anybody.post("/v1/chat", json={"message": "x", **fields})
    assert (unknown.status_code, error_of(unknown.content)["code"]) == (400, "invalid_request")


# --- schemas ------------------------------------------------------------------------------------------------


def _asked(schema: Json, answer: str = '{"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}') -> Json:
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return question(standin("say", answer), response_format=format)


CATASTROPHIC = "^(a+)+$"


def test_a_pattern_of_a_schema_is_never_run(anybody: httpx2.Client) -> None:
    """Some take longer than the universe has, and everybody else would wait."""
    for schema in (
        {"properties": {"a": {"type": "string", "pattern": CATASTROPHIC}}},
        {"patternProperties": {CATASTROPHIC: {"type": "string"}}},
        {"propertyNames": {"pattern": CATASTROPHIC}},
        {"additionalProperties": {"anyOf": [{"pattern": CATASTROPHIC}, {"$ref": "#/$defs/b"}]}, "$defs": {"b": {}}},
        {"properties": {"a": {"format": "regex"}}},
    ):
        assert anybody.post("/v1/chat/completions", json=_asked({"type": "object", **schema})).status_code == 200


class _Trap:
    """An address of this machine that notices whoever comes."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def was_visited(self) -> bool:
        self._listening.setblocking(False)
        with suppress(BlockingIOError):
            self._listening.accept()
            return True
        return False

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def trap() -> Iterator[_Trap]:
    made = _Trap()
    yield made
    made.close()


def _references(url: str) -> Iterator[dict[str, Any]]:
    yield {"$ref": f"{url}/schema.json"}
    yield {"properties": {"a": {"$ref": f"{url}/schema.json#/$defs/a"}}}
    yield {"$dynamicRef": f"{url}/schema.json"}
    yield {"$schema": f"{url}/schema.json", "type": "object"}
    yield {"$id": f"{url}/", "$ref": "schema.json"}
    yield {"$id": f"{url}/", "properties": {"a": {"$id": "other/", "$ref": "schema.json"}}}
    yield {"$ref": "file:///etc/passwd"}


def test_no_reference_of_a_schema_is_fetched(anybody: httpx2.Client, trap: _Trap) -> None:
    for schema in _references(trap.url):
        anybody.post("/v1/chat/completions", json=_asked(schema))
        tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", **schema}}}
        steps = json.dumps([{"call": "t", "args": {"a": "x"}}, {"say": "done"}])
        prompt = f"standin: program\n---\n{steps}\n--- end"
        reply = anybody.post("/v1/chat/completions", json=question(prompt, tools=[tool]))
        assert reply.status_code < 500 or reply.json()["error"]["code"] == "answer_unfit"
    assert not trap.was_visited()


def test_no_image_is_fetched(open_gateway: RunningGateway, anybody: httpx2.Client, trap: _Trap) -> None:
    (open_gateway.home / "secret.png").write_bytes(b"\x89PNG secret")
    mark = unique()
    for url in (
        f"{trap.url}/x.png",
        f"HTTP://{trap.url.removeprefix('http://')}/x.png",
        f"data:{trap.url}/x.png",
        f"data:text/html;base64,{trap.url}",
        f"file://{open_gateway.home}/secret.png",
        f"{open_gateway.home}/secret.png",
        "ftp://127.0.0.1/x.png",
        "http://169.254.169.254/latest/meta-data/",
        "data:image/svg+xml;base64,PHN2Zy8+",
        "data:image/png,../../secret.png",
    ):
        content = [{"type": "text", "text": mark}, {"type": "image_url", "image_url": {"url": url}}]
        for path, body in {
            "/v1/chat": {"message": mark, "images": [url]},
            "/v1/chat/completions": {"model": "auto", "messages": [{"role": "user", "content": content}]},
            "/v1/chat/x/answer": {"toolResults": [{"toolCallId": "x", "content": content}]},
        }.items():
            refused = anybody.post(path, json=body)
            assert (refused.status_code, error_of(refused.content)["code"]) == (400, "invalid_request"), url
    assert not trap.was_visited()
    assert_nothing_was_started(open_gateway, anybody, mark)


# --- limits -------------------------------------------------------------------------------------------------


def test_every_limit_of_the_operator_holds(tmp_path: Path) -> None:
    """One for each setting; each is refused in its own words, and the gateway goes on."""
    settings = {
        "max_body_bytes": "4096",
        "max_output_bytes": "20000",
        "run_seconds": "3",
        "first_event_seconds": "2",
        "idle_seconds": "2",
        "body_seconds": "0.5",
    }
    with running_gateway(tmp_path, settings=settings) as gateway, http_client(gateway) as client:

        def code(message: str) -> str:
            reply = client.post("/v1/chat", json={"message": message})
            return str(reply.json().get("error", {}).get("code", reply.json().get("status")))

        assert code("x" * 5000) == "request_too_large"
        assert code(standin("huge-line")) == "agent_output_too_large"
        assert code(standin("hang")) == "agent_timed_out"
        assert code(standin("hang-mid")) == "agent_timed_out"
        late = exchange(gateway, request("POST", "/v1/chat", *CHUNKED) + b"5\r\nab")
        assert late.error["code"] == "request_timeout"
        chat(client, standin("text"))


def test_a_schema_is_no_larger_than_can_be_checked_while_others_wait(
    open_gateway: RunningGateway, anybody: httpx2.Client
) -> None:
    mark = unique()
    schema = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(50_000)}}
    refused = anybody.post("/v1/chat/completions", json=_asked(schema, mark))
    assert (refused.status_code, error_of(refused.content)["param"]) == (400, "response_format.json_schema.schema")
    assert_nothing_was_started(open_gateway, anybody, mark)


def test_a_schema_that_goes_round_in_circles_is_left_in_time(anybody: httpx2.Client) -> None:
    circles = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    unfit = anybody.post("/v1/chat/completions", json=_asked(circles))
    assert (unfit.status_code, unfit.json()["error"]["code"]) == (424, "answer_unfit")
    assert anybody.get("/health").status_code == 200
