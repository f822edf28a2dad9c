"""Clients that leave, in every way in which a connection can end."""

import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx2

from chaos.place import Place, agents_of, fds_but_database, is_healthy, wait_until, zombies_of
from chaos.table import fault
from chaos.talking import Json, chat, client, connected, growing, is_whole, reply_of, request, standin
from tests.gateways import RunningGateway

_SOON = 10.0  # seconds; the figures say how soon, this is for a machine that is busy with something else
# The 200 is not sent before there is something to tell, however long that takes.
_SETTINGS = {"hold_seconds": "600", "max_runs": "64"}

Leave = Callable[[socket.socket], None]


def _close(sock: socket.socket) -> None:
    sock.close()


def _half_close(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


_WAYS: tuple[Leave, ...] = (_close, _half_close, _reset)


def _documents(message: str, *, stream: bool) -> bytes:
    return request("POST", "/v1/chat", body={"message": message, "stream": stream})


def _completion(message: str, *, stream: bool) -> bytes:
    body = {"model": "auto", "messages": [{"role": "user", "content": message}], "stream": stream}
    return request("POST", "/v1/chat/completions", body=body)


def _both(scenario: str, *, stream: bool) -> list[bytes]:
    return [form(standin(scenario), stream=stream) for form in (_documents, _completion)]


# --- what is seen from outside ------------------------------------------------------------------------


def _open_runs(http: httpx2.Client) -> int:
    return int(http.get("/health").json()["runs"]["running"])


def _ended(gateway: RunningGateway, count: int) -> list[Json]:
    """The runs that have ended, as the log tells them; it may be a moment behind."""

    def found() -> list[Json]:
        whole, _, _ = gateway.log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["event"] == "run ended"]

    wait_until(lambda: len(found()) >= count, _SOON, f"{count} runs have ended")
    return found()


def _starts(gateway: RunningGateway) -> int:
    return gateway.agent_log.read_bytes().count(b"\n") if gateway.agent_log.exists() else 0


@contextmanager
def _bystander(place: Place, gateway: RunningGateway) -> Iterator[None]:
    """A run of somebody else's, which goes on all the time and must be whole in the end."""
    go = place.folder / "go"
    with client(gateway) as http, growing(http, standin(f"wait-for file={go}")) as stream:
        stream.until(b"file.")
        yield
        go.touch()
        assert is_whole(stream.rest()), "somebody else's answer was not whole"


def _leaves(place: Place, requests: list[bytes], leave: Leave, seen: bytes = b"") -> str:
    """Each request again and again; the client leaves when the agent runs and it has received `seen`."""
    took: list[float] = []
    with place.gateway(settings=_SETTINGS) as gateway, _bystander(place, gateway), client(gateway) as http:
        pid, others = gateway.process.pid, agents_of(gateway)

        def one(asked: bytes) -> None:
            with connected(gateway) as sock:
                started = _starts(gateway)
                sock.sendall(asked)
                wait_until(lambda: _starts(gateway) > started, what="an agent has read its prompt")
                assert set(agents_of(gateway)) - set(others)
                received = b""
                while seen not in received:
                    piece = sock.recv(65536)
                    assert piece, "the reply ended before the client left"
                    received += piece
                at = time.monotonic()
                leave(sock)
                wait_until(lambda: not set(agents_of(gateway)) - set(others), _SOON, "the agent is gone")
                took.append(time.monotonic() - at)

        for asked in requests:  # the first of each kind may open and import
            one(asked)
        wait_until(lambda: _open_runs(http) == 1, _SOON, "only the other run is open")
        before = fds_but_database(pid)
        for _ in range(place.size(10, 2)):
            for asked in requests:
                one(asked)
        wait_until(lambda: _open_runs(http) == 1, _SOON, "only the other run is open")
        wait_until(lambda: fds_but_database(pid) <= before, _SOON, f"as many descriptors as before, {before}")
        wait_until(lambda: not zombies_of(gateway), _SOON, "no zombie is left")
        ended = [run.get("code") for run in _ended(gateway, len(took))]
        assert ended == ["cancelled"] * len(took), ended
        left = f"{before} descriptors before and {fds_but_database(pid)} after"
    took.sort()
    return (
        f"{len(took)} times; the agent was gone after {1000 * took[len(took) // 2]:.0f} ms (median), "
        f"{1000 * took[-1]:.0f} ms at most; {left}; all runs ended as cancelled, the other run was complete."
    )


_HOLDS = (
    "The agent ends soon, the run ends as cancelled, no descriptor or open run is left, and other runs are not "
    "affected."
)


# --- the faults ---------------------------------------------------------------------------------------


@fault(
    "the client disconnects before the first byte of a stream",
    provoked="The agent has started and produces no output; the connection is closed while the 200 is held back.",
    holds=_HOLDS,
)
def before_the_first_byte(place: Place) -> str:
    return _leaves(place, _both("hang-after-init", stream=True), _close)


@fault(
    "the client disconnects while the gateway asks the agent for its version",
    provoked="Every agent command takes 0.7 s to start; the client disconnects before the first one ends.",
    holds="The queried agents end, the run is cancelled, and the next client is answered.",
)
def while_it_is_asked(place: Place) -> str:
    with place.gateway(settings=_SETTINGS, knobs={"slow_start_seconds": 0.7}) as gateway, client(gateway) as http:
        for asked in _both("text", stream=True):
            with connected(gateway) as sock:
                sock.sendall(asked)
                wait_until(lambda: _open_runs(http) == 1, what="a run begins")
                time.sleep(0.2)
        wait_until(lambda: _open_runs(http) == 0, _SOON, "no run is open")
        wait_until(lambda: not agents_of(gateway) and not zombies_of(gateway), _SOON, "nobody is left")
        ended = [run.get("code") for run in _ended(gateway, 2)]
        assert ended == ["cancelled"] * 2, ended
        assert is_healthy(gateway)
        last = _ended(gateway, 3)[-1]
    return f"Two disconnected, no process was left; the next answer was {last['status']} after {last['seconds']:g} s."


@fault(
    "a caller receives a tool call and never answers",
    provoked="The agent calls one of the caller's tools; the reply ends with that call; no result is ever sent.",
    holds="The run waits for `answer_seconds` (here 1), although it has no reader; then the run and its agent are "
    "ended.",
)
def never_comes_back(place: Place) -> str:
    weather = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {}}}
    steps = json.dumps([{"call": "weather", "args": {}}, {"say": "$1"}])
    with place.gateway(settings={**_SETTINGS, "answer_seconds": "1"}) as gateway, client(gateway) as http:
        message = {"role": "user", "content": standin("program", steps)}
        body = {"model": "auto", "messages": [message], "tools": [weather]}
        reply = http.post("/v1/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        assert reply.json()["choices"][0]["finish_reason"] == "tool_calls", reply.text
        began = time.monotonic()
        wait_until(lambda: _open_runs(http) == 0, _SOON, "the run has ended")
        wait_until(lambda: not agents_of(gateway), _SOON, "the agent is gone")
        took = time.monotonic() - began
        (ended,) = _ended(gateway, 1)
        assert ended["status"] == "failed", ended
        assert is_healthy(gateway)
    return f"Ended after {took:.1f} s as `{ended['code']}`; no agent was left."


@fault(
    "the client disconnects while it waits for a whole answer",
    provoked="The agent is in the middle of its text; the connection of a request without `stream` is closed.",
    holds=_HOLDS,
)
def while_it_waits(place: Place) -> str:
    return _leaves(place, _both("hang-mid", stream=False), _close)


@fault(
    "the client disconnects after the first byte",
    provoked="The connection is closed as soon as one byte of the reply has arrived.",
    holds=_HOLDS,
)
def after_the_first_byte(place: Place) -> str:
    return _leaves(place, _both("hang-mid", stream=True), _close, b"H")


@fault(
    "the client disconnects in the middle of a busy stream",
    provoked="The agent writes a word every 5 ms; the connection is closed after some of them, with more unread.",
    holds=_HOLDS,
)
def in_the_middle(place: Place) -> str:
    return _leaves(place, _both("slow count=100000 delay_ms=5", stream=True), _close, b"7 ")


@fault(
    "the client resets the connection",
    provoked="SO_LINGER 0 and a close, as when a client is killed with unread data: RST instead of FIN.",
    holds=_HOLDS,
)
def resets(place: Place) -> str:
    asked = [*_both("hang-mid", stream=True), *_both("hang-mid", stream=False)]
    return _leaves(place, asked, _reset)


@fault(
    "the client closes its half of the connection and keeps reading",
    provoked="shutdown(SHUT_WR) before the reply begins, and after its first words.",
    holds="Requests that can be answered at once are answered. A client that waits for an agent counts as "
    "disconnected, because a FIN looks the same: the run is cancelled, and the reply is cut off so that it cannot "
    "be mistaken for a whole one.",
)
def half_closes(place: Place) -> str:
    waiting = _leaves(place, _both("hang-mid", stream=False), _half_close)
    with place.gateway(settings=_SETTINGS) as gateway:
        with connected(gateway) as sock:
            sock.sendall(_documents(standin("hang-mid"), stream=True))
            received = b""
            while b"about" not in received:
                received += sock.recv(65536)
            _half_close(sock)
            received += reply_of(sock)
        assert not received.endswith(b"0\r\n\r\n"), "the reply looks whole"
        assert b"event: done" not in received
        with connected(gateway) as sock:
            sock.sendall(request("GET", "/health", "Connection: close"))
            _half_close(sock)
            assert reply_of(sock).startswith(b"HTTP/1.1 200 "), "a short reply was lost"
        wait_until(lambda: not agents_of(gateway), _SOON, "the agent is gone")
    cut = f"In a stream: cut after {len(received)} bytes, without the last chunk."
    return f"While waiting: {waiting} {cut} /health was answered."


@fault(
    "clients disconnect at any moment",
    provoked="Each client sends a request, waits for a random time of 0 to 100 ms, and disconnects in one of the "
    "three ways: before the agent has started, while it starts, while it answers, or while it ends.",
    holds="No agent, open run or descriptor is left; every run has ended.",
    seconds=120,
)
def at_any_moment(place: Place) -> str:
    chance = random.Random(8)
    asked = [
        *_both("hang", stream=False),
        *_both("hang-mid", stream=True),
        *_both("text", stream=True),
        *_both("killed", stream=False),
    ]
    count = place.size(400, 60)
    moments = [(chance.choice(asked), chance.uniform(0, 0.1), chance.choice(_WAYS)) for _ in range(count)]

    with place.gateway(settings={**_SETTINGS, "max_runs": "1000"}) as gateway, client(gateway) as http:

        def one(moment: tuple[bytes, float, Leave]) -> None:
            with connected(gateway) as sock:
                sock.sendall(moment[0])
                time.sleep(moment[1])
                moment[2](sock)

        def is_quiet() -> bool:
            return _open_runs(http) == 0 and not agents_of(gateway)

        chat(http, standin("text"))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, moments[: count // 4]))  # the first ones may open and import
            wait_until(is_quiet, 60, "no run and no agent is left")
            before = fds_but_database(gateway.process.pid)
            list(pool.map(one, moments))
        wait_until(is_quiet, 60, "no run and no agent is left")
        wait_until(
            lambda: fds_but_database(gateway.process.pid) <= before, _SOON, f"as many descriptors as before, {before}"
        )
        log = gateway.log.read_text()
        started = log.count('"run started"')
        ended = len(_ended(gateway, started))
        assert started == ended, (started, ended)
        assert '"level": "error"' not in log, log[-2000:]
        chat(http, standin("text"))
    return f"{count * 5 // 4} clients, {started - 1} runs: all have ended; {before} descriptors before and after."


@fault(
    "some of several readers disconnect",
    provoked="One client starts a run, nine more read it; all but the last disconnect, in different ways.",
    holds="The run continues for the remaining readers, and ends as cancelled when the last one disconnects.",
)
def several_readers(place: Place) -> str:
    with place.gateway(settings=_SETTINGS) as gateway, client(gateway) as http, ExitStack() as stack:
        go = place.folder / "go"
        first = connected(gateway)
        stack.callback(first.close)
        first.sendall(_documents(standin(f"wait-for file={go}"), stream=True))
        head = b""
        while b"file." not in head:
            head += first.recv(65536)
        # The gateway has asked it for its models, too, which another one tells.
        (agent,) = wait_until(lambda: _only(agents_of(gateway)), what="one agent is left")
        id = head.partition(b"x-chat-id: ")[2].partition(b"\r\n")[0].decode()
        readers = [first]
        for _ in range(9):
            readers.append(reader := connected(gateway))
            stack.callback(reader.close)
            reader.sendall(request("GET", f"/v1/chat/{id}/events"))
            received = b""
            while b"file." not in received:
                received += reader.recv(65536)
        last = readers.pop()
        for nth, reader in enumerate(readers):
            _WAYS[nth % 3](reader)
        chat(http, standin("text"))  # long enough for the gateway to have noticed
        wait_until(lambda: _streams(http) == 1, _SOON, "nine readers have gone")
        assert agent in agents_of(gateway), "the agent was ended although somebody reads"
        last.close()
        wait_until(lambda: not agents_of(gateway), _SOON, "the agent is gone")
        assert _ended(gateway, 2)[-1]["code"] == "cancelled"
    return "Nine of ten disconnected and the agent continued; the tenth disconnected and the run ended as cancelled."


def _only(agents: list[int]) -> list[int]:
    return agents if len(agents) == 1 else []


def _streams(http: httpx2.Client) -> int:
    (found,) = [
        line.rpartition(" ")[2]
        for line in http.get("/metrics").text.splitlines()
        if line.startswith("cursor_gateway_open_streams ")
    ]
    return int(float(found))


@fault(
    "a client disconnects and returns for the answer",
    provoked="The operator lets runs finish (`when_client_leaves`); the client disconnects after the first words.",
    holds="The agent keeps running; a client that returns with Last-Event-ID gets every word exactly once.",
)
def comes_back(place: Place) -> str:
    settings = {**_SETTINGS, "when_client_leaves": "finish"}
    with place.gateway(settings=settings) as gateway, client(gateway) as http:
        go = place.folder / "go"
        with growing(http, standin(f"wait-for file={go}")) as stream:
            stream.until(b"file.")
            stream.until(b"\n\n")
            id, had = stream.id, stream.body
        wait_until(lambda: _streams(http) == 0, _SOON, "it has left")
        assert agents_of(gateway), "the agent was ended"
        go.touch()
        whole = had[: had.rindex(b"\n\n") + 2]
        number = whole.rpartition(b"\nid: ")[2].split(b"\n")[0].decode()
        with http.stream("GET", f"/v1/chat/{id}/events", headers={"Last-Event-ID": number}) as reply:
            rest = b"".join(reply.iter_raw())
        assert is_whole(rest)
        said = [
            json.loads(line[6:])["delta"]
            for line in (whole + rest).split(b"\n")
            if line.startswith(b'data: {"documentId"') and b'"delta"' in line
        ]
        assert "".join(said) == "Waiting for the file. It is there.", said
    return f"Came back after event {number}: the rest was delivered once, and the answer is complete."
