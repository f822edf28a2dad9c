"""Connections that a careful client would never make: too slow, too many, too odd, or in an older HTTP."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cursor_gateway.cli.assembly.local_socket import bound_socket
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import eventually, invocations, standin, unique
from tests.server.edges import CLOSE, JSON, chat_body, exchanged, line, request

HELLO = standin("text")
UPGRADES = [
    # as Java's HttpClient sends it
    ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"],
    [
        "Connection: upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ],
    ["Upgrade: TLS/1.0", "Connection: keep-alive, Upgrade"],
]


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """It waits for nobody."""
    settings = {"head_seconds": "0.5", "body_seconds": "0.5", "max_body_bytes": "100000"}
    with running_gateway(tmp_path_factory.mktemp("hasty"), settings=settings) as running:
        yield running


# --- time -----------------------------------------------------------------------------------------------


def test_a_connection_that_says_nothing_is_closed(hasty: RunningGateway) -> None:
    with line(hasty) as connection:
        assert connection.rest() == b""


@pytest.mark.parametrize("sent", [b"G", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_head_that_does_not_come_is_not_waited_for(hasty: RunningGateway, sent: bytes) -> None:
    with line(hasty) as connection:
        connection.send(sent)
        reply = connection.reply()
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
        assert reply.headers["connection"] == "close"
        assert connection.rest() == b""


def test_a_head_that_begins_with_the_end_of_the_request_before_is_not_waited_for_either(hasty: RunningGateway) -> None:
    with line(hasty) as connection:
        connection.send(request("GET", "/health") + b"GET /hea")
        assert connection.reply().status == 200
        assert connection.reply().status == 408


def test_a_head_that_trickles_is_not_waited_for(hasty: RunningGateway) -> None:
    with line(hasty) as connection:
        connection.sock.settimeout(0.05)

        def answered() -> bool:
            connection.send(b"a")  # each byte comes well within the limit, the head does not
            try:
                return not connection.more() or True
            except TimeoutError:
                return False

        connection.send(b"GET /health HTTP/1.1\r\nX: ")
        eventually(answered)
        assert connection.reply().status == 408


def test_a_connection_may_wait_between_requests_and_then_is_closed(hasty: RunningGateway) -> None:
    with line(hasty) as connection:
        for _ in range(2):
            connection.send(request("GET", "/health"))
            reply = connection.reply()
            assert reply.status == 200
            assert "connection" not in reply.headers
        assert connection.rest() == b""


def test_a_body_that_trickles_loses_its_connection(hasty: RunningGateway) -> None:
    with line(hasty) as connection:
        connection.send(request("POST", "/v1/chat", JSON, "Content-Length: 90000"))
        connection.send(b" ")
        reply = connection.reply()
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
        assert reply.headers["connection"] == "close"
        connection.send(b" ")
        assert connection.rest() == b""


# --- number ---------------------------------------------------------------------------------------------


def test_who_comes_when_all_places_are_taken_is_refused(tmp_path: Path) -> None:
    few = ("/bin/sh", "-c", 'ulimit -n 160 && exec "$@"', "sh")
    with ExitStack() as stack:
        gateway = stack.enter_context(running_gateway(tmp_path, settings={"max_runs": "4"}, before=few))
        held = [stack.enter_context(line(gateway)) for _ in range(160 - 64 - 4 * 8)]
        for connection in held:
            connection.send(b"GET /hea")  # whoever is told has been counted

        def refused() -> bool:
            reply = exchanged(gateway, request("GET", "/health", CLOSE))
            if reply.status == 200:
                return False
            assert (reply.status, reply.error["code"]) == (503, "too_many_connections")
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.headers["connection"] == "close"
            return True

        eventually(refused)
        for connection in held:  # those who were there before are served
            connection.send(b"lth HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert connection.reply().status == 200
        asked = request("POST", "/v1/chat", CLOSE, body=chat_body(HELLO))
        eventually(lambda: exchanged(gateway, asked).status == 200)  # when it has seen that they are gone


# --- other protocols, and older ones ----------------------------------------------------------------------


@pytest.mark.parametrize("headers", UPGRADES)
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_whoever_asks_for_another_protocol_is_served_in_this_one(
    gateway: RunningGateway, headers: list[str], size: int
) -> None:
    data = request("POST", "/v1/chat", *headers, body=chat_body(HELLO)) + request("GET", "/health", *headers, CLOSE)
    with line(gateway) as connection:
        for at in range(0, len(data), size):
            connection.send(data[at : at + size])
        first, second = connection.reply(), connection.reply()
    assert (first.status, json.loads(first.body)["status"]) == (200, "completed")
    assert (second.status, json.loads(second.body)["status"]) == (200, "ok")


def test_it_is_no_proxy(gateway: RunningGateway) -> None:
    reply = exchanged(gateway, b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n")
    assert (reply.status, reply.error["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("headers", [[], ["Connection: keep-alive"]])
@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions"])
def test_a_stream_for_http_1_0_has_no_chunks_and_ends_with_the_connection(
    gateway: RunningGateway, headers: list[str], path: str
) -> None:
    asked = {"message": HELLO} if path == "/v1/chat" else {"messages": [{"role": "user", "content": HELLO}]}
    body = json.dumps({**asked, "stream": True}).encode()
    reply = exchanged(gateway, request("POST", path, *headers, body=body, version="1.0"))
    assert reply.status == 200
    assert reply.headers["connection"] == "close"
    assert not {"transfer-encoding", "content-length"} & set(reply.headers)
    assert reply.body.startswith((b"id: 1\n", b"data: {"))
    assert reply.body.endswith(b"\n\n")
    assert b"\r\n" not in reply.body


def test_http_1_0_keeps_a_connection_only_when_it_says_so(gateway: RunningGateway) -> None:
    with line(gateway) as connection:
        connection.send(request("GET", "/health", "Connection: keep-alive", version="1.0"))
        assert connection.reply().headers["connection"] == "keep-alive"
        connection.send(request("GET", "/health", version="1.0"))
        assert connection.reply().headers["connection"] == "close"
        assert connection.rest() == b""


@pytest.mark.parametrize("version", ["2.0", "0.9", "1.2", "3.0"])
def test_other_versions_are_refused(gateway: RunningGateway, version: str) -> None:
    assert exchanged(gateway, request("GET", "/health", version=version)).error["code"] == "invalid_request"


def test_requests_that_do_not_wait_for_replies_are_answered_in_their_order(gateway: RunningGateway) -> None:
    with line(gateway) as connection:
        connection.send(
            request("POST", "/v1/chat", body=chat_body(HELLO))
            + b"".join(request("GET", f"/nothing-{number}") for number in range(30))
            + request("GET", "/health", CLOSE)
            + request("GET", "/health")
        )
        assert json.loads(connection.reply().body)["status"] == "completed"
        for number in range(30):
            assert f"/nothing-{number};" in connection.reply().error["message"]
        assert connection.reply().headers["connection"] == "close"
        assert connection.rest() == b""  # what comes after the last one is not read


# --- form -----------------------------------------------------------------------------------------------

ODD = {
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n": 400,  # folded
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n": 400,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX Y: a\r\n\r\n": 400,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n: a\r\n\r\n": 400,
    b"GET /health HTTP/1.1\nHost: localhost\n\n": 400,
    b"get /health HTTP/1.1\r\nHost: localhost\r\n\r\n": 400,
    b"BREW /health HTTP/1.1\r\nHost: localhost\r\n\r\n": 400,
    b"GET health HTTP/1.1\r\nHost: localhost\r\n\r\n": 400,
    b"GET \xff HTTP/1.1\r\nHost: localhost\r\n\r\n": 400,
    b"GET /\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n": 400,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": 400,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100: 400,  # a client that speaks TLS
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 101 + b"\r\n": 431,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n": 431,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 700_000: 431,
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n": 431,
    b"GET /" + b"a" * 700_000: 431,
    request("POST", "/v1/chat", "Content-Length: 5", body=b"{}"): 400,
    request("POST", "/v1/chat", "Content-Length: 2", body=b"{}"): 400,
    request("POST", "/v1/chat", "Transfer-Encoding: chunked", body=b"{}"): 400,
    request("POST", "/v1/chat", JSON, "Transfer-Encoding: chunked") + b"zz\r\n{}": 400,
    request("POST", "/v1/chat", JSON, "Transfer-Encoding: chunked") + b"2\r\n{}garbage\r\n": 400,
    request("POST", "/v1/chat", JSON, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n": 415,
    request("POST", "/v1/chat", JSON, "Transfer-Encoding: gzip") + b"{}": 400,
    request("POST", "/v1/chat", "Content-Encoding: br", body=b"{}"): 415,
    request("POST", "/v1/chat", body=b""): 400,
    request("POST", "/v1/chat", JSON): 400,
}


@pytest.mark.parametrize(("data", "status"), ODD.items(), ids=[str(number) for number in range(len(ODD))])
def test_what_is_no_request_is_refused_and_disturbs_nobody(gateway: RunningGateway, data: bytes, status: int) -> None:
    with line(gateway) as other:
        other.send(b"GET /health HTTP/1.1\r\nHost: local")
        reply = exchanged(gateway, data)
        assert reply.status == status
        assert reply.error["message"].endswith(".")
        other.send(b"host\r\n\r\n")
        assert other.reply().status == 200


def test_what_comes_after_a_request_is_refused_after_its_reply(gateway: RunningGateway) -> None:
    with line(gateway) as connection:
        connection.send(request("POST", "/v1/chat", body=chat_body(HELLO)) + b"\0garbage")
        assert json.loads(connection.reply().body)["status"] == "completed"
        assert connection.reply().status == 400
        assert connection.rest() == b""


def test_garbage_after_a_request_leaves_its_stream_whole(gateway: RunningGateway) -> None:
    with line(gateway) as connection:
        connection.send(request("POST", "/v1/chat", body=chat_body(standin("slow"), stream=True)))
        connection.until(b"\r\n\r\n")
        connection.send(b"\0garbage")
        came = connection.rest()
    stream, _, refused = came.partition(b"0\r\n\r\n")
    assert b"event: done" in stream
    assert refused.startswith(b"HTTP/1.1 400 ")


def test_a_body_that_turns_out_to_be_none_starts_nothing(gateway: RunningGateway) -> None:
    mark = unique()
    body = chat_body(f"{HELLO} {mark}")
    chunks = b"%x\r\n%b\r\n" % (len(body), body)
    reply = exchanged(
        gateway, request("POST", "/v1/chat", JSON, "Transfer-Encoding: chunked") + chunks + b"no size\r\n"
    )
    assert reply.status == 400
    assert exchanged(gateway, request("POST", "/v1/chat", body=chat_body(HELLO))).status == 200
    assert invocations(gateway, mark) == []


def test_a_body_is_invited_only_where_it_may_come(gateway: RunningGateway, hasty: RunningGateway) -> None:
    body = chat_body(HELLO)
    with line(gateway) as connection:
        connection.send(request("POST", "/v1/chat", JSON, f"Content-Length: {len(body)}", "Expect: 100-continue"))
        assert connection.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.send(body)
        assert connection.reply().status == 200
    with line(hasty) as connection:
        connection.send(request("POST", "/v1/chat", JSON, "Content-Length: 100001", "Expect: 100-continue"))
        assert connection.reply().error["code"] == "request_too_large"
    with line(gateway) as connection:
        connection.send(request("POST", "/v1/chat", "Content-Length: 5", "Expect: 100-continue"))
        assert connection.reply().status == 415


def test_a_body_over_the_limit_is_refused_while_it_comes_and_the_reply_is_not_lost(hasty: RunningGateway) -> None:
    """The client is still sending: a connection closed at once would take the reply with it."""
    piece = b"%x\r\n%b\r\n" % (10_000, b" " * 10_000)
    for head, body in (
        (request("POST", "/v1/chat", JSON, "Transfer-Encoding: chunked"), piece * 300),
        (request("POST", "/v1/chat", JSON, "Content-Length: 3000000"), b" " * 3_000_000),
    ):
        with line(hasty) as connection:
            connection.send(head + body)  # the chunked one has no end, so it cannot be read first
            reply = connection.reply()
            assert (reply.status, reply.error["code"]) == (413, "request_too_large")
            assert reply.headers["connection"] == "close"


# --- the end --------------------------------------------------------------------------------------------


def test_a_gateway_that_stops_answers_what_was_asked_and_refuses_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "go"
    with ExitStack() as stack:
        gateway = stack.enter_context(running_gateway(tmp_path / "home", settings={"drain_seconds": "60"}))
        idle, asking, busy, late = (stack.enter_context(line(gateway)) for _ in range(4))
        idle.send(request("GET", "/health"))
        assert idle.reply().status == 200
        asking.send(b"GET /health HTTP/1.1\r\n")
        waiting = chat_body(standin(f"wait-for file={file}"), stream=True)
        busy.send(request("POST", "/v1/chat", body=waiting))
        busy.until(b"file.")
        late.send(request("POST", "/v1/chat", body=chat_body(standin(f"wait-for file={file}"))))
        eventually(lambda: len(invocations(gateway, str(file))) == 2)
        gateway.process.send_signal(signal.SIGTERM)
        assert idle.rest() == b""
        asking.send(b"Host: localhost\r\n\r\n")
        refused = asking.reply()
        assert (refused.status, refused.error["code"]) == (503, "shutting_down")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["connection"] == "close"
        busy.send(request("GET", "/health"))  # after the stream, on the same connection
        file.touch()
        answered = late.reply()
        assert (answered.status, json.loads(answered.body)["status"]) == (200, "completed")
        assert answered.headers["connection"] == "close"
        stream, _, after = busy.rest().partition(b"0\r\n\r\n")
        assert b"event: done" in stream
        assert after.startswith(b"HTTP/1.1 503 ")
        assert gateway.process.wait(60) == 0


def test_malformed_requests_are_counted_and_not_logged(hasty: RunningGateway) -> None:
    """Whoever sends many of them would fill the disk."""
    before = eventually(lambda: b"listening" in (result := hasty.log.read_bytes()) and result)
    for _ in range(20):
        assert exchanged(hasty, b"\0\0\0\0").status == 400
    assert hasty.log.read_bytes() == before
    result = exchanged(hasty, request("GET", "/metrics")).body.decode()
    assert 'cursor_gateway_requests_total{method="GET",route="none",status="400"}' in result


def test_blanks_after_a_value_are_no_part_of_it_and_a_target_may_name_an_address(gateway: RunningGateway) -> None:
    with line(gateway) as connection:
        connection.send(b"GET /health HTTP/1.1\r\nHost: localhost \t\r\n\r\n")
        assert connection.reply().status == 200
        connection.send(b"GET http://[::1]:80/health HTTP/1.1\r\nHost: [::1]:80\r\n\r\n")
        assert connection.reply().status == 200


def test_of_two_gateways_on_one_port_the_second_says_why_it_does_not_start(gateway: RunningGateway) -> None:
    port = gateway.url.rpartition(":")[2]
    with pytest.raises(OSError, match="in use"):
        bound_socket("127.0.0.1", int(port))
