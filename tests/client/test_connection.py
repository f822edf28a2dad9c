"""Addresses, keys and images that can be none are refused before anything is sent; errors say what the system said."""

import errno
from pathlib import Path

import pytest

from cursor_gateway import AsyncClient, Client
from cursor_gateway.client.connection import address, checked, data_uri, http_options, lost, reason_of


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787"),
        ("http://127.0.0.1:8787/v1/", "http://127.0.0.1:8787"),
        ("https://example.org/gateway/", "https://example.org/gateway"),
        ("http://[::1]:8787/v1", "http://[::1]:8787"),
    ],
)
def test_an_address(given: str, meant: str) -> None:
    assert checked(given) == meant


def test_the_address_and_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CURSOR_GATEWAY_URL", "CURSOR_GATEWAY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert address(None, None) == ("http://127.0.0.1:8787", None)
    monkeypatch.setenv("CURSOR_GATEWAY_URL", "https://example.org")
    monkeypatch.setenv("CURSOR_GATEWAY_API_KEY", "secret")
    assert address(None, None) == ("https://example.org", "secret")
    assert address(None, "mine") == ("https://example.org", "mine")
    assert address("https://other.example", None) == ("https://other.example", None)  # it must not get the key


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8787", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://[x"]
)
def test_what_is_no_address(url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="address of a gateway"):
            kind(url)


@pytest.mark.parametrize("key", ["a\nb", "é"])
def test_what_is_no_key(key: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="key"):
            kind(api_key=key)


def test_a_proxy_of_the_company_does_not_lead_to_this_machine() -> None:
    for url, expected in {"http://127.0.0.1:1": False, "http://localhost": False, "http://10.0.0.1": True}.items():
        assert http_options(url, None, 60)["trust_env"] is expected


def test_only_those_who_encrypt_need_certificates() -> None:
    assert http_options("http://10.0.0.1", None, 60)["verify"] is False
    assert http_options("https://10.0.0.1", None, 60)["verify"] is True


@pytest.mark.parametrize(
    ("data", "uri"),
    [
        (b"\x89PNG\r\n", "data:image/png;base64,iVBORw0K"),
        (b"\xff\xd8\xff\xe0", "data:image/jpeg;base64,/9j/4A=="),
        (b"GIF89a", "data:image/gif;base64,R0lGODlh"),
        (b"RIFF1234WEBP", "data:image/webp;base64,UklGRjEyMzRXRUJQ"),
    ],
)
def test_images(data: bytes, uri: str, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(data)
    assert data_uri(data) == data_uri(tmp_path / "image") == data_uri(uri) == uri


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"RIFF1234WAVE"])
def test_what_is_no_image(data: bytes) -> None:
    with pytest.raises(ValueError, match="png, jpeg, gif or webp"):
        data_uri(data)


def test_the_systems_own_words() -> None:
    import httpx2

    error = httpx2.ConnectError("All connection attempts failed")
    error.__cause__ = OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
    assert reason_of(error) == "Connection refused"
    assert lost(error).was_connected is False
    error.__cause__ = OSError(errno.EHOSTUNREACH, "No route to host")
    assert reason_of(error) == "No route to host"
    assert reason_of(httpx2.ReadTimeout("")) == "ReadTimeout"
    assert lost(httpx2.RemoteProtocolError("It left.")) == lost(httpx2.ReadError("It left."))
