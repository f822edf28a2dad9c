"""Whatever ends a run, a connection or the gateway: nothing of it is left, neither process nor file nor descriptor."""

import json
import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import httpx2
import pytest

from cursor_gateway.sources.processes import members
from cursor_gateway.store.sqlite.run_files import FOLDER
from tests.agent.records import left_of
from tests.cli.processes import TIMEOUT
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import (
    Json,
    chat,
    eventually,
    growing,
    http_client,
    invocation,
    question,
    sse,
    standin,
    unique,
)
from tests.server.test_safety import as_json, connected, request

on_linux = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts what /proc tells")


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """The gateway whose runs are left alone. `hold_seconds`: nothing is told before there is something to tell."""
    # Agents that are started in advance are looked for in `test_spares`.
    settings = {"hold_seconds": "600", "max_runs": "32", "spare_agents": "0"}
    with ended_agents(tmp_path_factory.mktemp("leaky")) as home, running_gateway(home, settings=settings) as running:
        yield running


@contextmanager
def ended_agents(home: Path) -> Iterator[Path]:
    """A folder for a gateway; a red test does not leave agents behind."""
    try:
        yield home
    finally:
        for pid in left_of(home / "agent.log"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def group_of(gateway: RunningGateway, mark: str) -> int:
    """Of the agent that was given this; it is alive."""
    group: int = invocation(gateway, mark)["pgid"]
    assert members(group)
    return group


def running(gateway: RunningGateway) -> int:
    with http_client(gateway) as client:
        result: int = client.get("/health").json()["runs"]["running"]
        return result


def ended_runs(gateway: RunningGateway) -> list[Json]:
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    return [line for line in lines if line["event"] == "run ended"]


# --- the client goes ------------------------------------------------------------------------------------


def close(sock: socket.socket) -> None:
    sock.close()


def half_close(sock: socket.socket) -> None:
    """A client that has nothing more to say is taken for one that has gone, as by every server of this kind."""
    sock.shutdown(socket.SHUT_WR)


def reset(sock: socket.socket) -> None:
    """As when a client is killed with unread data."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()


def documents(message: str, **fields: object) -> bytes:
    return request("POST", "/v1/chat", body=as_json(message=message, **fields))


def completion(message: str, **fields: object) -> bytes:
    return request("POST", "/v1/chat/completions", body=as_json(**question(message, **fields)))


WAITING: dict[str, Callable[[str], bytes]] = {
    # before the first byte of the reply
    "held": lambda mark: documents(f"{standin('hang')} {mark}", stream=True),
    "held after init": lambda mark: documents(f"{standin('hang-after-init')} {mark}", stream=True),
    "held openai": lambda mark: completion(f"{standin('hang')} {mark}", stream=True),
    "whole": lambda mark: documents(f"{standin('hang-mid')} {mark}"),
    "whole openai": lambda mark: completion(f"{standin('hang-mid')} {mark}"),
    "checked": lambda mark: completion(f"{standin('hang-mid')} {mark}", response_format={"type": "json_object"}),
    "checked stream": lambda mark: completion(
        f"{standin('hang-mid')} {mark}", response_format={"type": "json_object"}, stream=True
    ),
    # after it
    "documents": lambda mark: documents(f"{standin('hang-mid')} {mark}", stream=True),
    "openai": lambda mark: completion(f"{standin('hang-mid')} {mark}", stream=True),
    "ndjson": lambda mark: request(
        "POST",
        "/v1/chat",
        "Accept: application/x-ndjson",
        body=as_json(message=f"{standin('hang-mid')} {mark}", stream=True),
    ),
}
_STREAMS = ("documents", "openai", "ndjson")


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("leave", [close, half_close, reset])
@pytest.mark.parametrize("name", WAITING)
@pytest.mark.quick_cases(7)
def test_the_agent_goes_with_its_client(
    leaky: RunningGateway, name: str, leave: Callable[[socket.socket], None]
) -> None:
    mark = unique()
    with connected(leaky) as sock:
        sock.sendall(WAITING[name](mark))
        group = group_of(leaky, mark)
        if name in _STREAMS:
            received = b""
            while b"about" not in received:
                received += sock.recv(65536)
        leave(sock)
        eventually(lambda: not members(group))


def test_the_agent_goes_with_a_client_that_has_sent_another_request_already(leaky: RunningGateway) -> None:
    mark = unique()
    first = documents(f"{standin('hang-mid')} {mark}", stream=True).replace(b"Connection: close\r\n", b"")
    with connected(leaky) as sock:
        sock.sendall(first + request("GET", "/health") + request("GET", "/v1/models"))
        group = group_of(leaky, mark)
        assert sock.recv(65536)
    eventually(lambda: not members(group))


def test_an_agent_that_ignores_the_request_to_end_is_ended(leaky: RunningGateway) -> None:
    mark = unique()
    with http_client(leaky) as client, growing(client, "documents", f"{standin('ignore-term')} {mark}") as stream:
        stream.until(b"listen")
        group = group_of(leaky, mark)
    eventually(lambda: not members(group))


def test_nobody_runs_when_all_have_gone(leaky: RunningGateway) -> None:
    """After whatever the tests before it did, or none."""
    eventually(lambda: running(leaky) == 0)
    live = {entry.name.partition("-")[0] for entry in leaky.data.glob("instances/*/agents/*")}
    eventually(lambda: not any(members(int(group)) for group in live))
    eventually(lambda: not list(leaky.data.glob("instances/*/agents/*")))


def test_the_operator_can_let_runs_finish(tmp_path: Path) -> None:
    file = tmp_path / "go"
    settings = {"when_client_leaves": "finish", "hold_seconds": "600"}
    with ended_agents(tmp_path / "home") as home, running_gateway(home, settings=settings) as gateway:
        for leave in (close, half_close):
            for stream in (True, False):
                mark = unique()
                with connected(gateway) as sock:
                    sock.sendall(documents(f"{standin(f'wait-for file={file}')} {mark}", stream=stream))
                    group_of(gateway, mark)
                    if stream:
                        sock.recv(1)
                    leave(sock)
        assert running(gateway) == 4
        file.touch()
        eventually(lambda: len(ended_runs(gateway)) == 4)
        assert {run["status"] for run in ended_runs(gateway)} == {"completed"}


# --- one gateway, many runs -----------------------------------------------------------------------------


def descriptors(pid: int) -> Counter[str]:
    """What they are open on, without the numbers that differ."""
    found: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found[re.sub(r"\d+", "N", os.readlink(entry))] += 1
    return found


State: TypeAlias = tuple[Counter[str], int, set[str]]  # descriptors, threads, files


def grown(before: State, after: State) -> State:
    return after[0] - before[0], max(0, after[1] - before[1]), after[2] - before[2]


def sockets(pid: int) -> int:
    return descriptors(pid)["socket:[N]"]


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def children(pid: int) -> list[str]:
    """But for the watchdog."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid for pid in pids if b"sources.ledger" not in _command(pid)]


def _command(pid: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def files(home: Path) -> set[str]:
    """All but the logs, what conversations that can be continued keep, and empty files for the next runs."""
    found = {str(path.relative_to(home)) for path in home.rglob("*")}
    kept = ("/conversations/", "/changes/", f"/{FOLDER}/")
    return {name for name in found if not name.endswith(".log") and not any(part in name for part in kept)}


KINDS = ["text", "tools", "crash", "fail-auth", "killed", "garbage", "stderr-flood bytes=100000", "hang-mid", "cancel"]


def one_of_a_kind(client: httpx2.Client, kind: str) -> None:
    match kind:
        case "hang-mid":
            with growing(client, "documents", standin(kind)) as stream:
                stream.until(b"about")
        case "cancel":
            with growing(client, "openai", standin("hang-mid")) as stream:
                stream.until(b"about")
                id = stream.response.headers["x-chat-id"]
                assert client.post(f"/v1/chat/{id}/cancel", json={}).status_code == 200
        case _:
            client.post("/v1/chat", json={"message": standin(kind)})
            client.post("/v1/chat/completions", json=question(standin(kind), stream=True))


@on_linux
def test_runs_leave_nothing_behind_in_the_gateway(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with (
        ended_agents(tmp_path / "home") as home,
        # As above, without agents that are started in advance.
        running_gateway(home, settings={"spare_agents": "0"}, environment={"TMPDIR": str(temporary)}) as gateway,
    ):
        pid = gateway.process.pid

        def all_kinds() -> None:
            with http_client(gateway) as client:
                for kind in KINDS:
                    one_of_a_kind(client, kind)

        at_start = sockets(pid)

        def settled() -> bool:
            agents = list(gateway.data.glob("instances/*/agents/*"))
            is_moved = not any(file.stat().st_size for file in (gateway.data / FOLDER).iterdir())
            return not children(pid) and not agents and sockets(pid) <= at_start and is_moved

        def left() -> State:
            all_kinds()
            eventually(settled)
            return descriptors(pid), threads(pid), files(home)

        # The first runs import, open and warm up, and so may the next; what leaks grows with every one of them.
        rounds = [left(), left()]
        while any(more := grown(*rounds[-2:])):
            assert len(rounds) < 7, more
            rounds.append(left())
        with http_client(gateway) as client:  # whatever has a folder can be continued
            for folder in [*(gateway.data / "conversations").iterdir(), *(gateway.data / "changes").iterdir()]:
                assert client.get(f"/v1/conversations/{folder.name}").status_code == 200
        # Of all kinds, only the agents with tools report edits: one in each dialect.
        assert len(list((gateway.data / "changes").iterdir())) == 2 * len(rounds)
        spares = list((gateway.data / FOLDER).iterdir())
        assert 0 < len(spares) <= 32
        assert not any(spare.stat().st_size for spare in spares)
        assert list(temporary.iterdir()) == []
    assert list(temporary.iterdir()) == []
    assert list((home / "data" / "instances").iterdir()) == []


def test_starts_and_stops_leave_nothing_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    seen: set[str] = set()
    with ended_agents(tmp_path / "home") as home:
        for turn in range(6):
            with running_gateway(
                home, settings={"drain_seconds": "0.05"}, environment={"TMPDIR": str(temporary)}
            ) as gateway:
                if turn % 2:
                    with http_client(gateway) as client:
                        chat(client, standin("text"))
                else:
                    mark = unique()
                    sock = connected(gateway)
                    sock.sendall(documents(f"{standin('hang-mid')} {mark}", stream=True))
                    group_of(gateway, mark)
                    gateway.process.send_signal(signal.SIGTERM)
                    gateway.process.wait(TIMEOUT)
                    sock.close()
            assert gateway.process.returncode == 0
            assert left_of(gateway.agent_log) == []
            left = files(home)
            assert turn < 2 or left <= seen
            seen |= left
        assert list((home / "data" / "instances").iterdir()) == []
    assert list(temporary.iterdir()) == []


# --- the gateway goes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("scenario", ["hang-mid", "ignore-term", "grandchild group=same"])
@pytest.mark.quick_cases(2)
def test_the_agents_go_with_the_gateway(tmp_path: Path, number: signal.Signals, scenario: str) -> None:
    settings = {"drain_seconds": "0.1", "hold_seconds": "600"}
    with ended_agents(tmp_path) as home, running_gateway(home, settings=settings) as gateway:
        marks = [unique() for _ in range(3)]
        with http_client(gateway) as client, growing(client, "documents", f"{standin(scenario)} {marks[0]}") as stream:
            stream.until(b"content_delta")
            with growing(client, "openai", f"{standin(scenario)} {marks[1]}") as other, connected(gateway) as held:
                held.sendall(documents(f"{standin('hang')} {marks[2]}", stream=True))
                groups = [group_of(gateway, mark) for mark in marks]
                gateway.process.send_signal(number)
                events = sse(stream.rest())  # raises when the connection breaks before the reply has its end
                chunks = other.rest()
                refused = b""
                while piece := held.recv(65536):
                    refused += piece
        assert gateway.process.wait(TIMEOUT) == 0
        assert not [pid for group in groups for pid in members(group)]
        assert list((gateway.data / "instances").iterdir()) == []
    assert (events[-1].event, json.loads(events[-1].data)["status"]) == ("done", "error")
    assert b"shutting_down" in chunks
    assert chunks.endswith(b"data: [DONE]\n\n")
    assert refused.startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("scenario", ["hang-mid", "ignore-term", "grandchild group=same"])
@pytest.mark.quick_cases(1)
def test_what_a_killed_gateway_has_left_is_ended_by_the_next(tmp_path: Path, scenario: str) -> None:
    with ended_agents(tmp_path) as home:
        mark = unique()
        with running_gateway(home) as gateway, http_client(gateway) as client:
            with growing(client, "documents", f"{standin(scenario)} {mark}") as stream:
                stream.until(b"content_delta")
                group = group_of(gateway, mark)
                alive = members(group)
                gateway.process.kill()
                gateway.process.wait(TIMEOUT)
                with pytest.raises(httpx2.HTTPError):
                    stream.rest()
            assert set(members(group)) == set(alive)  # nobody else ends them: they are a session of their own
            left = list((gateway.data / "instances").iterdir())
            assert len(left) == 1
        with running_gateway(home) as next_one:
            eventually(lambda: not members(group))
            assert left[0] not in list((next_one.data / "instances").iterdir())
            with http_client(next_one) as client:
                chat(client, standin("text"))
        assert list((home / "data" / "instances").iterdir()) == []


def test_two_gateways_with_one_data_directory_leave_each_other_alone(tmp_path: Path) -> None:
    with (
        ended_agents(tmp_path / "one") as home,
        running_gateway(home) as one,
        http_client(one) as client,
        growing(client, "documents", standin("hang-mid")) as stream,
    ):
        stream.until(b"about")
        (folder,) = (one.data / "instances").iterdir()
        (agent,) = folder.glob("agents/*")
        group = int(agent.name.partition("-")[0])
        for number in (signal.SIGTERM, signal.SIGKILL):
            with running_gateway(tmp_path / "two", settings={"data_dir": str(one.data)}) as two:
                with http_client(two) as other:
                    chat(other, standin("text"))
                assert members(group)
                two.process.send_signal(number)
                two.process.wait(TIMEOUT)
            assert members(group)
            assert folder.is_dir()
        client.post(f"/v1/chat/{stream.response.headers['x-chat-id']}/cancel", json={})
        assert b"event: done" in stream.rest()


# --- a reader that does not read ------------------------------------------------------------------------

SAID = 10_000_000  # bytes: more than the system's buffers of a connection take


def memory(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


@on_linux
def test_a_reader_that_does_not_read_delays_nobody(tmp_path: Path) -> None:
    with ended_agents(tmp_path) as home, running_gateway(home, settings={"keep_alive_seconds": "1"}) as gateway:
        pid = gateway.process.pid
        with http_client(gateway) as client, connected(gateway) as sock:
            chat(client, standin("text"))
            before = memory(pid)
            sock.sendall(documents(standin(f"text chunks=400 length={SAID}"), stream=True))
            eventually(lambda: len(ended_runs(gateway)) == 2)  # the agent is not held up by it
            for dialect in ("/v1/chat", "/v1/chat/completions"):
                body = {"message": standin("text")} if dialect == "/v1/chat" else question(standin("text"))
                assert client.post(dialect, json=body).status_code == 200
            # What was said, as events and as bytes to be sent, each with the agent's own repetitions of it.
            assert memory(pid) - before < 12 * SAID
            received = bytearray()
            while piece := sock.recv(1 << 20):
                received += piece
        assert received.endswith(b"\r\n0\r\n\r\n")  # all of it, when it reads at last
        assert received.count(b"event: done\n") == 1


@on_linux
def test_readers_that_never_read_are_forgotten_when_they_go(tmp_path: Path) -> None:
    """With their descriptors, and the agents that still write for them."""
    with ended_agents(tmp_path) as home, running_gateway(home, settings={"spare_agents": "0"}) as gateway:
        pid = gateway.process.pid
        at_start = sockets(pid)
        with http_client(gateway) as client:
            chat(client, standin("text"))
        eventually(lambda: not children(pid) and sockets(pid) <= at_start)
        before = descriptors(pid)
        marks = [unique() for _ in range(5)]

        def never_read(mark: str) -> None:
            with connected(gateway) as sock:
                prompt = f"{standin('text chunks=2000 length=4000000 delay_ms=5')} {mark}"
                sock.sendall(documents(prompt, stream=True))
                invocation(gateway, mark)
                time.sleep(0.2)  # some of it piles up; how much does not matter

        with ThreadPoolExecutor(len(marks)) as pool:
            list(pool.map(never_read, marks))
        groups = [invocation(gateway, mark)["pgid"] for mark in marks]
        eventually(lambda: not [member for group in groups for member in members(group)])
        eventually(lambda: not descriptors(pid) - before)
