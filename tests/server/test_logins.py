"""A shared gateway: devices log in with a code on a port of their own, where a key is always required."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec import Struct

from tests.cli.processes import finished
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import eventually

_PUBLIC = "gateway.example.com"
_LINK = re.compile(rb"https://gateway\.example\.com/#/login/([\w-]+)\n")
_PORTS = re.compile(r"\b127\.0\.0\.1\D+(\d+)")


class Shared(Struct, frozen=True):
    gateway: RunningGateway
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: str = "") -> httpx2.Client:
        """As a proxy connects."""
        headers = {"host": _PUBLIC} | ({"authorization": f"Bearer {key}"} if key else {})
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60)

    def log_in(self, code: str) -> httpx2.Response:
        with self.client() as client:
            return client.post("/v1/login", json={"code": code})

    def new_code(self) -> str:
        """As the operator gets one."""
        link = httpx2.post(f"{self.gateway.url}/v1/logins").json()["url"]
        assert link.startswith(f"https://{_PUBLIC}/#/login/")
        return str(link.rpartition("/")[2])

    def new_key(self) -> str:
        reply = self.log_in(self.new_code())
        assert reply.status_code == 201, reply.text
        return str(reply.json()["key"])

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        port = self.gateway.url.rpartition(":")[2]
        return finished(*arguments, CURSOR_GATEWAY_DATA_DIR=str(self.gateway.data), CURSOR_GATEWAY_PORT=port)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Ten logins a minute are possible, and the tests together need fewer."""
    with shared_gateway(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture(scope="module")
def key(shared: Shared) -> str:
    """Of a device that stays logged in."""
    return shared.new_key()


@contextmanager
def shared_gateway(home: Path, **more: str) -> Iterator[Shared]:
    settings = {"page_url": f"https://{_PUBLIC}", "log_format": "json", **more}
    with running_gateway(home, "--share", settings=settings) as running:
        eventually(lambda: len(_PORTS.findall(running.log.read_text())) == 2)
        _, port = _PORTS.findall(running.log.read_text())
        yield Shared(running, int(port))


def test_a_device_that_has_logged_in_sees_what_its_user_sees(shared: Shared, key: str) -> None:
    started = httpx2.post(f"{shared.gateway.url}/v1/chat", json={"message": "At the desk"}, timeout=60).json()
    with shared.client(key) as client:
        listed = client.get("/v1/conversations").json()["conversations"]
        assert started["conversationId"] in [one["id"] for one in listed]
        assert client.post("/v1/chat", json={"message": "On the phone"}).json()["status"] == "completed"
    here = httpx2.get(f"{shared.gateway.url}/v1/conversations").json()["conversations"]
    assert [one["title"] for one in here] == ["On the phone", "At the desk"]


def test_a_code_works_once_and_on_the_devices_port_only(shared: Shared) -> None:
    code = shared.new_code()
    assert httpx2.post(f"{shared.gateway.url}/v1/login", json={"code": code}).status_code == 404
    assert shared.log_in(code).status_code == 201
    again = shared.log_in(code)
    assert (again.status_code, again.json()["error"]["code"]) == (403, "forbidden")


def test_attempts_to_log_in_are_limited(tmp_path: Path) -> None:
    with shared_gateway(tmp_path) as shared:
        replies = [shared.log_in("guess") for _ in range(30)]
    assert {reply.status_code for reply in replies} == {403, 429}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies if reply.status_code == 429)


def test_attempts_of_others_do_not_use_up_the_requests_of_a_device(tmp_path: Path) -> None:
    with shared_gateway(tmp_path, requests_per_minute="3") as shared:
        key = shared.new_key()
        assert {shared.log_in("guess").status_code for _ in range(5)} == {403}
        with shared.client(key) as client:
            assert client.get("/v1/models").status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{}", 400),
        (b'{"code": 1}', 400),
        (b'{"code": "x", "more": 1}', 400),
        (b'{"code": "' + b"x" * 300 + b'"}', 400),
        (b'{"code": "' + b"x" * 5000 + b'"}', 413),
    ],
    ids=["nothing", "no code", "a number", "another field", "too long", "too large"],
)
def test_what_is_no_login_is_refused(shared: Shared, body: bytes, status: int) -> None:
    with shared.client() as client:
        reply = client.post("/v1/login", content=body, headers={"content-type": "application/json"})
        assert reply.status_code == status


def test_without_a_key_devices_get_nothing_although_programs_here_need_none(shared: Shared) -> None:
    assert httpx2.get(f"{shared.gateway.url}/v1/models").status_code == 200
    with shared.client() as client:
        for path in (
            "/v1/models",
            "/v1/conversations",
            "/v1/runs",
            "/v1/permissions",
            "/metrics",
            "/v1/workspace/files",
        ):
            assert client.get(path).status_code == 401, path
        assert client.post("/v1/chat", json={"message": "Hi"}).status_code == 401
        assert client.delete("/v1/login").status_code == 401
        assert str(shared.gateway.home) not in client.get("/health").text


def test_a_device_cannot_let_others_in_nor_see_them(shared: Shared, key: str) -> None:
    with shared.client(key) as client:
        assert client.post("/v1/logins").status_code == 404
        assert client.get("/v1/devices").status_code == 404
        assert client.delete("/v1/devices/dev_1").status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "gateway.example.com.evil.example", "localhost.evil.example"])
def test_only_the_shared_name_is_answered(shared: Shared, key: str, host: str) -> None:
    with shared.client(key) as client:
        assert client.get("/v1/models", headers={"host": host}).status_code == 403
        assert client.get("/v1/models").status_code == 200


def test_a_page_of_another_site_cannot_log_in(shared: Shared) -> None:
    code = shared.new_code()
    with shared.client() as client:
        reply = client.post("/v1/login", json={"code": code}, headers={"origin": "https://evil.example"})
        assert reply.status_code == 403
        own = client.post("/v1/login", json={"code": code}, headers={"origin": f"https://{_PUBLIC}"})
        assert own.status_code == 201


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_a_device_logs_out(tmp_path: Path, header: str) -> None:
    """Ten logins a minute are possible: this gateway is for these alone."""
    with shared_gateway(tmp_path) as shared:
        one, other = shared.new_key(), shared.new_key()
        given = {header: f"Bearer {one}" if header == "authorization" else one}
        with shared.client() as client:
            assert client.delete("/v1/login", headers=given).status_code == 204
            assert client.get("/v1/models", headers=given).status_code == 401
        with shared.client(other) as client:
            assert client.get("/v1/models").status_code == 200


def test_the_operator_lists_and_forgets_devices_by_command(shared: Shared) -> None:
    key = shared.new_key()
    listed = shared.command("share", "--list").stdout.decode().splitlines()
    id = listed[-1].split("\t")[0]
    assert "python-httpx" in listed[-1]
    assert shared.command("share", "--forget", "dev_none").returncode == 1
    assert shared.command("share", "--forget", id).returncode == 0
    with shared.client(key) as client:
        assert client.get("/v1/models").status_code == 401


def test_the_command_shows_a_link_for_one_more_device(shared: Shared) -> None:
    found = _LINK.search(shared.command("share").stdout)
    assert found
    assert shared.log_in(found[1].decode()).status_code == 201


def test_no_key_and_no_code_is_logged(shared: Shared) -> None:
    code = shared.new_code()
    key = shared.log_in(code).json()["key"]
    eventually(lambda: "a device has logged in" in shared.gateway.log.read_text())
    logged = shared.gateway.log.read_text()
    assert code not in logged
    assert key not in logged
    assert httpx2.delete(f"{shared.gateway.url}/v1/devices/dev_none").status_code == 404
