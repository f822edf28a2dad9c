"""Which gateway the commands talk to: not a question of speed, and never a stranger's."""

import asyncio
import json
import os
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.cli.assembly.local_socket import listening
from cursor_gateway.cli.assembly.remote import open_gateway
from cursor_gateway.cli.output import Trouble
from cursor_gateway.settings import Settings
from tests.agent.install import install
from tests.agent.records import records
from tests.cli.processes import TIMEOUT, finished, own_machine, read_until, started
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import eventually

KEY = "cgw_a_key_that_nobody_else_may_see"
PROMPT = "standin: echo-args"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    own_machine(monkeypatch, home, data_dir=str(home / "data"), api_key=KEY, grace_seconds="0.5")
    monkeypatch.delenv("CURSOR_GATEWAY_PORT")
    install(home / "bin", knobs={"log": str(home / "agent.log")})
    return home


def has_run(home: Path) -> bool:
    return any(record["prompt"] is not None for record in records(home / "agent.log"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def port_of(gateway: RunningGateway) -> str:
    return gateway.url.rpartition(":")[2]


def chat(*arguments: str, **environment: str) -> tuple[int, str, str]:
    ended = finished("chat", *arguments, stdin=b"", **environment)
    assert b"Traceback" not in ended.stderr
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


# --- slow gateways ----------------------------------------------------------------------------------

HEALTH = {
    "status": "ok",
    "version": "1",
    "source": {"name": "cli", "detail": "cursor-agent", "demo": False},
    "sources": ["cli"],
    "mode": "agent",
    "model": "auto",
    "runs": {"running": 0, "limit": 8},
}


class Slow:
    """Takes a request, and answers when it is allowed to."""

    def __init__(self) -> None:
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # of those who only look whether it is there
            await reader.readuntil(b"\r\n\r\n")
            self.asked.set()
            await self.may_answer.wait()
            body = json.dumps(HEALTH).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()


@asynccontextmanager
async def slow_gateway(data: Path, port: int) -> AsyncIterator[Slow]:
    slow = Slow()
    with listening(data, port) as bound:
        async with await asyncio.start_unix_server(slow.answer, sock=bound):
            yield slow


async def pass_time(seconds: float) -> None:
    """By the loop's clock; nobody waits for it."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]
    for _ in range(10):
        await asyncio.sleep(0)


async def found(settings: Settings, url: str | None) -> tuple[str, bool] | None:
    async with open_gateway(settings, url) as remote:
        return None if remote is None else (remote.url, remote.is_own)


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_gateway_that_takes_long_to_answer_is_still_the_gateway(is_named: bool, tmp_path: Path) -> None:
    port = free_port()
    settings, url = Settings(port=port, data_dir=str(tmp_path)), f"http://127.0.0.1:{port}"
    async with slow_gateway(tmp_path, port) as gateway:
        looking = asyncio.ensure_future(found(settings, url if is_named else None))
        await gateway.asked.wait()
        await pass_time(50)
        assert not looking.done()
        gateway.may_answer.set()
        assert await looking == (url, True)


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_gateway_that_does_not_answer_at_all_is_an_error(is_named: bool, tmp_path: Path) -> None:
    port = free_port()
    settings, url = Settings(port=port, data_dir=str(tmp_path)), f"http://127.0.0.1:{port}"
    async with slow_gateway(tmp_path, port) as gateway:
        looking = asyncio.ensure_future(found(settings, url if is_named else None))
        await gateway.asked.wait()
        await pass_time(61)
        with pytest.raises(Trouble, match=r"did not answer within 60 s; .* or use --direct"):
            await looking
        gateway.may_answer.set()


def test_only_a_refused_connection_means_that_there_is_none(tmp_path: Path) -> None:
    settings = Settings(port=free_port(), data_dir=str(tmp_path))
    assert asyncio.run(found(settings, None)) is None
    with pytest.raises(Trouble, match="cannot be reached: Connection refused; start one with"):
        asyncio.run(found(settings, f"http://127.0.0.1:{settings.port}"))


# --- strangers --------------------------------------------------------------------------------------


class Stranger:
    """Listens on a port, says what it is told to, and keeps what it receives."""

    def __init__(self, reply: Callable[[bytes], bytes]) -> None:
        self.received = b""
        self._reply = reply
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = str(self._listening.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while data := client.recv(65536):
                while _lacks_body(data) and (more := client.recv(65536)):
                    data += more
                self.received += data
                client.sendall(self._reply(data))


def _lacks_body(request: bytes) -> bool:
    """Head and body may come one after the other."""
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return length is not None and len(body) < int(length[1])


@contextmanager
def stranger(reply: Callable[[bytes], bytes]) -> Iterator[Stranger]:
    there = Stranger(reply)
    try:
        yield there
    finally:
        there.close()


def like_a_gateway(request: bytes) -> bytes:
    body = json.dumps(HEALTH).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("command", [["chat", PROMPT], ["models"], ["conversations"], ["export", "last"]])
def test_a_stranger_on_the_port_gets_neither_key_nor_prompt(command: list[str], home: Path) -> None:
    with stranger(like_a_gateway) as there:
        ways: list[tuple[list[str], dict[str, str]]] = [
            ([], {"CURSOR_GATEWAY_PORT": there.port}),
            (["--url", f"http://127.0.0.1:{there.port}"], {}),
            ([], {"CURSOR_GATEWAY_URL": f"http://localhost:{there.port}"}),
        ]
        for arguments, environment in ways:
            ended = finished(*command, *arguments, stdin=b"", **environment)
            assert (ended.returncode, ended.stdout) == (2, b"")
            assert b"nothing was sent to it" in ended.stderr
            assert b"CURSOR_GATEWAY_VERIFY_GATEWAY=false" in ended.stderr
        assert there.received == b""
    assert not has_run(home)


def test_a_stranger_cannot_pass_on_what_is_said_to_the_gateway(home: Path) -> None:
    """The user's own gateway listens, on another port: that proves nothing about this one."""
    with running_gateway(home) as gateway:

        def relayed(request: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", int(port_of(gateway)))) as real:
                real.sendall(request)
                return real.recv(65536)

        with stranger(relayed) as there:
            status, _, error = chat(PROMPT, "--url", f"http://127.0.0.1:{there.port}")
            assert status == 2
            assert "nothing was sent to it" in error
            assert not has_run(home)
            assert chat(PROMPT, CURSOR_GATEWAY_PORT=there.port)[0] == 0  # the user's own is used instead
            assert there.received == b""


def test_a_stranger_that_takes_the_port_of_a_gateway_that_died_gets_nothing(home: Path) -> None:
    """Not even while a connection that broke off is made anew."""
    port = free_port()
    with running_gateway(home, "--port", str(port)) as gateway:
        process = started("chat", "--text", "--url", gateway.url, "standin: hang-mid")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        said = read_until(process.stdout.fileno(), b"more.")
        gateway.process.kill()
        gateway.process.wait()
    received = b""
    with process, socket.create_server(("127.0.0.1", port)) as listening:
        listening.settimeout(0.05)
        while process.poll() is None:
            with suppress(TimeoutError):
                client, _ = listening.accept()
                with client:
                    received += client.recv(65536)
        assert process.wait(TIMEOUT) == 1
        assert process.stderr is not None
        assert said + process.stdout.read() == b"I was about to say more.\n"
        assert b"was lost" in process.stderr.read()
    assert received == b""


def test_who_turns_the_check_off_vouches_for_the_port(home: Path) -> None:
    with stranger(like_a_gateway) as there:
        chat(PROMPT, CURSOR_GATEWAY_PORT=there.port, CURSOR_GATEWAY_VERIFY_GATEWAY="false")
        assert KEY.encode() in there.received
        assert PROMPT.encode() in there.received


@pytest.mark.parametrize("url", ["https://127.0.0.1:{}", "http://gateway.example:{}"])
def test_who_names_another_machine_or_encrypts_vouches_for_it(url: str, tmp_path: Path) -> None:
    """No socket is looked for; what fails here is the connection itself."""
    settings = Settings(data_dir=str(tmp_path / "none"))
    with stranger(like_a_gateway) as there, pytest.raises(Trouble, match="cannot be reached"):
        asyncio.run(found(settings, url.format(there.port)))


# --- a gateway of one's own -------------------------------------------------------------------------


def decoded(out: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_the_own_gateway_is_found_and_works_in_the_current_folder(home: Path) -> None:
    with running_gateway(home, settings={"workspace_roots": str(home)}) as gateway:
        (home / "work" / "here").mkdir()
        os.chdir(home / "work" / "here")
        for arguments, environment in (
            ([], {"CURSOR_GATEWAY_PORT": port_of(gateway)}),
            (["--url", gateway.url], {}),
            (["--url", f"http://localhost:{port_of(gateway)}"], {}),
        ):
            status, out, error = chat("--text", *arguments, PROMPT, **environment)
            assert status == 0
            assert decoded(out)["workspace"] == str(home / "work" / "here")
            (line,) = error.splitlines()
            assert re.match(r"Gateway at http://\S+: cursor-agent 2026\S* .*, in /.*/here$", line)
        assert chat("--json", "--url", gateway.url, PROMPT)[2] == ""  # nothing unexpected: a script is told nothing
        ended = finished("models", "--url", gateway.url)
        assert (ended.returncode, ended.stderr.decode().splitlines()[0][:10]) == (0, "Gateway at")
        ended = finished("conversations", "--url", gateway.url)
        assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 4)


def test_gateways_are_found_on_any_port_and_the_one_of_the_folder_is_used(home: Path) -> None:
    """The port of the settings is neither's."""
    (home / "other").mkdir()
    with running_gateway(home) as first, running_gateway(home, settings={"workspace": str(home / "other")}) as second:
        for folder, gateway in (("work", first), ("other", second)):
            os.chdir(home / folder)
            status, out, error = chat("--text", PROMPT)
            assert (status, decoded(out)["workspace"]) == (0, str(home / folder))
            assert error.startswith(f"Gateway at {gateway.url}: ")
            assert finished("models").stderr.decode().startswith(f"Gateway at {gateway.url}: ")
            ended = finished("connect", "zed")
            assert f'"{gateway.url}/v1"' in ended.stdout.decode()
            assert f"Set `port = {port_of(gateway)}`" in ended.stderr.decode()
            found = {
                one["subject"]: one["found"] for one in json.loads(finished("doctor", "--json").stdout)["findings"]
            }
            assert f"{gateway.url} in {home / folder}; commands in this folder use it" in found["running"]
        os.chdir(home)
        assert chat("--text", "--workspace", "other", PROMPT)[2].startswith(f"Gateway at {second.url}: ")
    ended = finished("connect", "zed")
    assert "No gateway is running" in ended.stderr.decode()
    assert "8787/v1" in ended.stdout.decode()


def test_a_folder_that_the_gateway_may_not_work_in_is_reported(home: Path) -> None:
    (home / "elsewhere").mkdir()
    os.chdir(home / "elsewhere")
    with running_gateway(home) as gateway:
        for form in ("--text", "--json"):
            status, out, error = chat(form, "--url", gateway.url, PROMPT)
            assert status == 0
            line = error.splitlines()[-1]
            assert line.startswith(
                f"This gateway is not allowed to work in {home / 'elsewhere'}, so it uses its default folder"
            )
            assert str(gateway.workspace) in line
            assert str(gateway.workspace) in out
        status, out, error = chat("--workspace", ".", "--url", gateway.url, PROMPT)
        assert (status, out) == (2, "")  # who names a folder means that one
        assert "workspace_roots" in error


def test_a_conversation_stays_in_its_folder(home: Path) -> None:
    with running_gateway(home, settings={"workspace_roots": str(home)}) as gateway:
        (home / "work" / "first").mkdir()
        os.chdir(home / "work" / "first")
        assert chat("--text", "--url", gateway.url, "hi")[0] == 0
        os.chdir(home / "work")
        status, out, error = chat("--text", "--continue", "--url", gateway.url, PROMPT)
        assert status == 0
        assert decoded(out)["workspace"] == str(home / "work" / "first")
        assert error.splitlines()[0].endswith(f", in {home / 'work' / 'first'}")


def test_a_gateway_that_comes_back_has_what_was_said(home: Path) -> None:
    """Through its socket: the next gateway of the same port has one, too."""
    port = str(free_port())
    with running_gateway(home, "--port", port) as gateway:
        process = started("chat", "--text", "--url", gateway.url, "standin: hang-mid")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        said = read_until(process.stdout.fileno(), b"more.")
        gateway.process.kill()
        gateway.process.wait()
    with process, running_gateway(home, "--port", port):
        assert process.wait(TIMEOUT) == 1
        assert process.stderr is not None
        assert said + process.stdout.read() == b"I was about to say more.\n"
        assert b"the run failed: " in process.stderr.read()


def test_a_gateway_without_its_socket_serves_others(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "sockets").write_text("in the way")
    with running_gateway(home) as gateway:
        status, _, error = chat("--url", gateway.url, PROMPT)
        assert status == 2
        assert "nothing was sent to it" in error
        eventually(lambda: "no local socket" in gateway.log.read_text())
        assert chat("--url", gateway.url, PROMPT, CURSOR_GATEWAY_VERIFY_GATEWAY="false")[0] == 0
