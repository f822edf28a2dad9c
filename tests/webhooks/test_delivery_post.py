import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.webhooks import delivery as module
from cursor_gateway.webhooks.delivery import Posted, PostFailed, is_public, post, seconds_until
from tests.webhooks.receiver import receiving


def send(url: str, *, allow_private: bool = True, body: bytes = b"{}") -> Posted:
    return asyncio.run(post(url, {"webhook-id": "msg_1"}, body, allow_private=allow_private))


@contextmanager
def answering(reply: bytes | None, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port where everybody gets these bytes; None: nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), connection:
                    secured = context.wrap_socket(connection, server_side=True) if context else connection
                    with secured:
                        secured.recv(65536)
                        if reply is None:
                            done.wait(60)
                        else:
                            secured.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def resolves_to(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Each look-up of a name gets the next of these addresses."""
    asked, found = list[str](), iter(answers)
    original = asyncio.BaseEventLoop.getaddrinfo

    async def look_up(self: Any, host: str, port: int, **options: Any) -> Any:
        asked.append(host)
        return await original(self, next(found), port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    return asked


def test_a_request_is_a_post_of_json() -> None:
    with receiving() as receiver:
        assert send(f"{receiver.url}/a?b=c", body=b'{"type":"test"}') == Posted(204)
    (one,) = receiver.received
    assert (one.path, one.body, one.headers["content-type"]) == ("/hook/a?b=c", b'{"type":"test"}', "application/json")
    assert one.headers["host"] in receiver.url
    assert one.id == "msg_1"


def test_a_redirect_is_not_followed() -> None:
    with receiving() as other, receiving(f"302 location: {other.url}") as receiver:
        assert send(receiver.url).status == 302
    assert not other.received


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("::7f00:1", False),
        ("::ffff:0:a9fe:a9fe", False),
        ("64:ff9b:1::a9fe:a9fe", False),
        ("fec0::1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:7f00:1::1", False),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", False),
    ],
)
def test_private_addresses_are_recognised_in_every_form(address: str, is_one: bool) -> None:
    assert is_public(address) is is_one


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0"])
def test_nothing_is_sent_to_this_machine_unless_allowed(host: str) -> None:
    with receiving() as receiver:
        with pytest.raises(PostFailed, match="its address is private"):
            send(receiver.url.replace("127.0.0.1", host), allow_private=False)
        assert not receiver.received


def test_the_address_that_was_checked_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to a public address for the check, and to this machine afterwards, gains nothing: it is
    looked up once."""
    connected: list[str] = []

    async def connect(host: str, port: int, **options: Any) -> Any:
        connected.append(host)
        raise ConnectionRefusedError(111, "refused")

    asked = resolves_to(monkeypatch, "93.184.216.34", "127.0.0.1")
    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(PostFailed, match="refused"):
        send("http://rebinding.example/", allow_private=False)
    assert (asked, connected) == (["rebinding.example"], ["93.184.216.34"])


def test_a_name_with_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "127.0.0.1")
    with receiving() as receiver, pytest.raises(PostFailed, match="private"):
        send(receiver.url.replace("127.0.0.1", "internal.example"), allow_private=False)
    assert not receiver.received


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"", "closed without a reply"),
        (b"HTTP/1.1 200", "closed without a reply"),
        (b"hello\r\n\r\n", "not HTTP"),
        (b"HTTP/2 200 x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 abc x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 " + b"x" * 40_000 + b"\r\n\r\n", "not HTTP"),
    ],
)
def test_what_is_not_a_reply_is_a_failure(reply: bytes, reason: str) -> None:
    with answering(reply) as port, pytest.raises(PostFailed, match=reason):
        send(f"http://127.0.0.1:{port}/")


def test_hints_before_the_reply_are_skipped() -> None:
    reply = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After:  7\r\n\r\n"
    with answering(reply) as port:
        assert send(f"http://127.0.0.1:{port}") == Posted(503, "7")


def test_a_service_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.2)
    with answering(None) as port, pytest.raises(PostFailed, match="no reply within"):
        send(f"http://127.0.0.1:{port}/")


def test_an_address_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(host: str, port: int, **options: Any) -> Any:
        await asyncio.sleep(60)

    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(PostFailed, match="no connection within 5 seconds"):
        send("http://127.0.0.1:9/")


def test_an_unknown_name_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(self: Any, host: str, port: int, **options: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    with pytest.raises(PostFailed, match="Name or service not known"):
        send("http://nowhere.example/")


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """Of `hooks.example`, and trusted."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl makes the certificate")
    key, made = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=hooks.example -keyout {key} -out {made}"
    subprocess.run(
        [openssl, *words.split(), "-addext", "subjectAltName=DNS:hooks.example"], check=True, capture_output=True
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    module._context.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    yield context
    module._context.cache_clear()


def test_the_certificate_must_be_that_of_the_name(certificate: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a number is connected to."""
    reply = b"HTTP/1.1 200 OK\r\n\r\n"
    with answering(reply, certificate) as port:
        resolves_to(monkeypatch, "127.0.0.1", "127.0.0.1")
        assert send(f"https://hooks.example:{port}/") == Posted(200)
        with pytest.raises(PostFailed, match="TLS: CERTIFICATE_VERIFY_FAILED"):
            send(f"https://other.example:{port}/")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (lambda now: "120", 120.0),
        (lambda now: formatdate(now + 60, usegmt=True), 60.0),
        (lambda now: formatdate(now - 60, usegmt=True), 0.0),
        (lambda now: "soon", 0.0),
        (lambda now: "", 0.0),
        (lambda now: "-5", 0.0),
    ],
)
def test_a_receiver_says_when_to_retry(header: Callable[[float], str], seconds: float) -> None:
    now = float(int(time.time()))
    assert seconds_until(header(now), now) == seconds
