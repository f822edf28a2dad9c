"""Many at once, and some with ill will: what the gateway must bear without refusing the others."""

import asyncio
import json
import random
import re
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import httpx2

from chaos.hosting import cpu_seconds, many_descriptors
from chaos.malformed import Malformed, malformed
from chaos.many import Wire, asked, whole, wire
from chaos.native import light_agent
from chaos.place import Place, agents_of, fds_but_database, peak_rss_kb, rss_kb, wait_until
from chaos.table import fault
from chaos.talking import Json, chat, client, connected, growing, is_whole, light, request
from tests.gateways import RunningGateway

_KEEP_ALIVE = b": keep-alive\n\n"


# --- many streams -------------------------------------------------------------------------------------


@fault(
    "1,000 concurrent streams",
    provoked="400 runs with one reader each, 600 more readers for 20 of them, and one run more than allowed.",
    holds="Every stream is complete, all readers of a run get the same bytes, and one run too many gets 429 with "
    "Retry-After.",
    seconds=180,
)
def concurrent_streams(place: Place) -> str:
    many_descriptors()
    count, runs = place.size(1000, 150), place.size(400, 60)
    popular = runs // 20
    pieces = place.size(45, 12)
    settings = {"agent_program": light_agent(place.folder), "max_runs": str(runs)}

    async def all_streams(gateway: RunningGateway) -> tuple[int, int]:
        enough = asyncio.Semaphore(50)  # that ask at the same moment: a queue for accepting has an end, too

        async def ordered(message: str) -> Wire:
            async with enough:
                one = await wire(gateway)
                one.send(request("POST", "/v1/chat", body={"message": message, "stream": True}))
            assert await one.head() == 200, (one.status, await one.body())
            return one

        async def joined(id: str) -> Wire:
            async with enough:
                one = await wire(gateway)
                one.send(request("GET", f"/v1/chat/{id}/events"))
            assert await one.head() == 200, one.status
            return one

        wires = list(await asyncio.gather(*(ordered(light(pieces, 1000)) for _ in range(runs))))
        ids = [one.headers["x-chat-id"] for one in wires]
        more = [id for id, _ in zip(cycle(ids[:popular]), range(count - runs), strict=False)]
        wires += await asyncio.gather(*map(joined, more))
        async with asked(gateway, "POST", "/v1/chat", body={"message": light()}) as refused:
            assert refused.status == 429, refused.status
            assert int(refused.headers["retry-after"]) >= 1
            assert b"too_many_runs" in await refused.body()
        _, figures = await whole(gateway, "GET", "/metrics")
        found = re.search(rb"^cursor_gateway_open_streams (\d+)", figures, re.MULTILINE)
        assert found
        bodies = await asyncio.gather(*(one.body() for one in wires))
        for one in wires:
            one.close()
        expected = "".join("0123456789"[nth % 10 :] + "0123456789"[: nth % 10] for nth in range(pieces)).encode()
        said: dict[str, set[bytes]] = {}
        for id, body in zip(ids + more, bodies, strict=True):
            assert is_whole(body), body[-300:]
            assert expected in body
            said.setdefault(id, set()).add(body.replace(_KEEP_ALIVE, b""))
        assert all(len(same) == 1 for same in said.values()), "readers of one run were told different things"
        return int(found[1]), sum(map(len, bodies))

    with place.gateway(settings=settings) as gateway:
        pid = gateway.process.pid
        _warm_up(gateway)
        before, descriptors = rss_kb(pid), fds_but_database(pid)
        at_once, size = asyncio.run(all_streams(gateway))
        assert at_once >= count * 0.9, at_once  # some may have ended when they were counted
        used = peak_rss_kb(pid) - before
        assert used < 100_000 + 60 * count, f"{used} kB"
        wait_until(lambda: fds_but_database(pid) <= descriptors + 1, what=f"no more than {descriptors} descriptors")
        wait_until(lambda: not agents_of(gateway), what="no agents")
        assert is_whole(_one_stream(gateway))
    return (
        f"{at_once} streams were open at once; all {count} were complete, {size:,} bytes; one run too many got 429; "
        f"at most {used / 1024:.0f} MB more memory, {used / count:.0f} kB per stream, "
        f"including its share of {runs} agents."
    )


def _warm_up(gateway: RunningGateway) -> None:
    """So that what is kept for the next, such as connections to the history, is there."""
    body = _one_stream(gateway)
    found = re.search(rb'"id":"(chat_\w+)"', body)
    assert found
    with client(gateway) as http, ThreadPoolExecutor(16) as pool:
        assert {reply.status_code for reply in pool.map(http.get, [f"/v1/chat/{found[1].decode()}"] * 64)} == {200}


def _one_stream(gateway: RunningGateway) -> bytes:
    with client(gateway) as http, growing(http, light()) as stream:
        return stream.rest()


@fault(
    "many clients resume one run at once",
    provoked="500 readers connect in the middle of a long answer, each after a different event (Last-Event-ID).",
    holds="Each reader gets exactly the events after its own, byte for byte.",
    seconds=120,
)
def many_resumes(place: Place) -> str:
    many_descriptors()
    count, events = place.size(500, 100), 400
    settings = {"agent_program": light_agent(place.folder)}

    async def all_readers(gateway: RunningGateway) -> int:
        async with asked(gateway, "POST", "/v1/chat", body={"message": light(events, 20), "stream": True}) as first:
            id = first.headers["x-chat-id"]
            begun = await first.until(b"id: 100\n")
            chance = random.Random(8)
            after = [
                int(number) for number in chance.choices(re.findall(rb"^id: (\d+)$", begun, re.MULTILINE), k=count)
            ]

            async def resumed(number: int) -> bytes:
                status, body = await whole(gateway, "GET", f"/v1/chat/{id}/events", f"Last-Event-ID: {number}")
                assert status == 200, (status, body)
                return body.replace(_KEEP_ALIVE, b"")

            bodies = await asyncio.gather(*map(resumed, after))
            _, all = await whole(gateway, "GET", f"/v1/chat/{id}/events")
            assert all.startswith(begun.replace(_KEEP_ALIVE, b""))
            for number, body in zip(after, bodies, strict=True):
                assert body == _after(all, number), f"after {number}: {body[:200]!r}"
            return sum(map(len, bodies))

    with place.gateway(settings=settings) as gateway:
        size = asyncio.run(all_readers(gateway))
        assert is_whole(_one_stream(gateway))
    return f"{count} of {count} got exactly the rest, {size:,} bytes altogether."


def _after(stream: bytes, number: int) -> bytes:
    """What follows the frame with this id."""
    at = stream.index(b"id: %d\n" % number)
    return stream[stream.index(b"\n\n", at) + 2 :]


# --- slow ones ----------------------------------------------------------------------------------------


@fault(
    "readers that read one byte per second",
    provoked="50 readers of one 8 MB answer read one byte per second; one reads normally.",
    holds="The agent is not slowed down, the normal reader gets everything meanwhile, and memory stays bounded.",
    seconds=120,
)
def slow_readers(place: Place) -> str:
    many_descriptors()
    count, pieces, size = place.size(50, 20), 800, 10_000
    settings = {"agent_program": light_agent(place.folder), "when_client_leaves": "finish"}
    with place.gateway(settings=settings) as gateway, client(gateway) as http:
        pid = gateway.process.pid
        _warm_up(gateway)
        descriptors, stop = fds_but_database(pid), threading.Event()
        chat(http, light(pieces, 2, size))
        before = peak_rss_kb(pid)  # with such an answer, and one reader
        with growing(http, light(pieces, 2, size)) as usual:
            slow = [_slow_reader(gateway, usual.id) for _ in range(count)]
            reading = threading.Thread(target=_read_slowly, args=(slow, stop))
            reading.start()
            try:
                assert is_whole(usual.rest())
                assert usual.body.count(b"0123456789") >= pieces * size // 20
                wait_until(lambda: not agents_of(gateway), what="no agents")  # nobody holds it back
                assert text_size(chat(http, light())) == 50
                used = peak_rss_kb(pid) - before
                assert used < 20_000 + 1000 * count, f"{used} kB"
            finally:
                stop.set()
                reading.join()
                for sock in slow:
                    sock.close()
        http.close()  # its own connections are none of those
        wait_until(lambda: fds_but_database(pid) <= descriptors + 1, what=f"no more than {descriptors} descriptors")
    return (
        f"The normal reader had all {len(usual.body):,} bytes and the agent had ended while {count} slow ones read; "
        f"at most {used / 1024:.1f} MB more memory than for one reader, {used / count:.0f} kB each."
    )


def text_size(answer: Json) -> int:
    return sum(len(document["content"]) for document in answer["documents"])


def _slow_reader(gateway: RunningGateway, id: str) -> socket.socket:
    sock = connected(gateway)
    sock.sendall(request("GET", f"/v1/chat/{id}/events"))
    sock.setblocking(False)
    return sock


def _read_slowly(sockets: list[socket.socket], stop: threading.Event) -> None:
    while not stop.wait(1):
        for sock in sockets:
            try:
                sock.recv(1)
            except (BlockingIOError, ConnectionError):
                continue


@fault(
    "request bodies sent at one byte per second",
    provoked="200 clients send a body at one byte per second, with `body_seconds` of 3.",
    holds="Each connection gets a 408 or is closed, and others are answered meanwhile.",
)
def slow_bodies(place: Place) -> str:
    count = place.size(200, 60)
    start = request("POST", "/v1/chat", "Content-Type: application/json", "Content-Length: 1000")
    return _slow_requests(place, count, {"body_seconds": "3"}, start, b" ")


@fault(
    "request headers that never end",
    provoked="200 clients send a header at one byte per second, with `head_seconds` of 3 (slowloris).",
    holds="Each connection gets a 408 or is closed, and others are answered meanwhile.",
)
def slow_heads(place: Place) -> str:
    count = place.size(200, 60)
    start = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
    return _slow_requests(place, count, {"head_seconds": "3"}, start, b"x")


def _slow_requests(place: Place, count: int, settings: dict[str, str], start: bytes, byte: bytes) -> str:
    many_descriptors()

    async def all_slow(gateway: RunningGateway) -> tuple[Counter[str], int]:
        ends: Counter[str] = Counter()

        async def one_slow() -> None:
            one = await wire(gateway)
            one.send(start)
            closing = asyncio.ensure_future(one.ended())
            for _ in range(30):
                done, _ = await asyncio.wait([closing], timeout=1)
                if done:
                    break
                one.send(byte)
            else:
                ends["never"] += 1
                closing.cancel()
                one.abort()
                return
            reply = closing.result()
            ends[reply.split(b" ", 2)[1].decode() if reply.startswith(b"HTTP/1.1 ") else "closed"] += 1
            one.abort()

        answered = 0

        async def others() -> None:
            nonlocal answered
            while not all_ended.done():
                status, _ = await whole(gateway, "POST", "/v1/chat", body={"message": light()})
                assert status == 200, status
                answered += 1

        all_ended = asyncio.gather(*(one_slow() for _ in range(count)))
        await asyncio.gather(all_ended, others())
        return ends, answered

    given = {"agent_program": light_agent(place.folder), **settings}
    with place.gateway(settings=given) as gateway:
        pid = gateway.process.pid
        _one_stream(gateway)
        descriptors = fds_but_database(pid)
        ends, answered = asyncio.run(all_slow(gateway))
        assert set(ends) <= {"408", "closed"}, ends
        assert answered > 0
        wait_until(lambda: fds_but_database(pid) <= descriptors + 1, what="no more descriptors")
        assert is_whole(_one_stream(gateway))
    result = ", ".join(f"{number} × {how}" for how, number in sorted(ends.items()))
    return f"{count} slow clients: {result}; {answered} others were answered meanwhile."


@fault(
    "connections that send nothing",
    provoked="2,000 connections are opened and send nothing.",
    holds="Others are answered meanwhile, the cost is small, and the connections are closed after their timeout.",
    seconds=120,
)
def silent_connections(place: Place) -> str:
    many_descriptors()
    count = place.size(2000, 300)

    async def all_silent(gateway: RunningGateway) -> tuple[int, int, float]:
        pid = gateway.process.pid
        before = rss_kb(pid)
        enough = asyncio.Semaphore(100)

        async def silent() -> Wire:
            async with enough:
                return await wire(gateway)

        wires = await asyncio.gather(*(silent() for _ in range(count)))
        statuses = [(await whole(gateway, "GET", "/health"))[0] for _ in range(20)]
        assert set(statuses) <= {200, 503}, statuses
        used, spent = rss_kb(pid) - before, cpu_seconds(pid)
        await asyncio.sleep(2)
        spent = cpu_seconds(pid) - spent
        assert spent < 1, f"{spent:.2f} s of processor time for silence"
        ends = await asyncio.gather(*(one.ended() for one in wires))
        assert len(ends) == count
        for one in wires:
            one.close()
        return used, statuses.count(200), spent

    settings = {"agent_program": light_agent(place.folder), "head_seconds": "10"}
    with place.gateway(settings=settings) as gateway:
        pid = gateway.process.pid
        _one_stream(gateway)
        descriptors = fds_but_database(pid)
        used, answered, spent = asyncio.run(all_silent(gateway))
        wait_until(lambda: fds_but_database(pid) <= descriptors + 1, what="no more descriptors")
        assert is_whole(_one_stream(gateway))
        assert answered or count > 1000
    return (
        f"{count} connections took {used / count:.1f} kB each and {spent:.2f} s of processor time in 2 s; "
        f"{answered} of 20 other requests were answered with 200; all were closed after their timeout."
    )


# --- odd ones -----------------------------------------------------------------------------------------


@fault(
    "pipelined requests",
    provoked="1,000 requests are sent on one connection without waiting, in one piece and split at odd places.",
    holds="All are answered, in order.",
)
def pipelined(place: Place) -> str:
    count = place.size(1000, 300)
    all = b"".join(request("GET", f"/v1/models/model-{number}") for number in range(count))

    async def answers(gateway: RunningGateway, step: int) -> list[int]:
        one = await wire(gateway)

        async def send() -> None:
            for at in range(0, len(all), step):
                one.send(all[at : at + step])
                await asyncio.sleep(0)

        sending = asyncio.ensure_future(send())
        found = []
        for _ in range(count):
            assert await one.head() == 404, one.status
            result = re.search(rb"model-(\d+)", await one.body())
            assert result
            found.append(int(result[1]))
        await sending
        one.close()
        return found

    with place.gateway(settings={"agent_program": light_agent(place.folder)}) as gateway:
        _one_stream(gateway)
        for step in (len(all), 4093, 97):
            assert asyncio.run(answers(gateway, step)) == list(range(count))
        assert is_whole(_one_stream(gateway))
    return f"3 × {count} requests were answered in order."


@fault(
    "100,000 malformed requests",
    provoked="Generated: wrong methods, targets, headers, lengths, encodings, JSON, types, NULs, deep nesting, junk.",
    holds="Never a 5xx, never a crash, no internal error in the log, and no growth.",
    seconds=600,
)
def malformed_requests(place: Place) -> str:
    count, workers = place.size(100_000, 5_000), 4
    settings = {"agent_program": light_agent(place.folder), "body_seconds": "2"}
    with place.gateway(settings=settings) as gateway:
        pid = gateway.process.pid
        _one_stream(gateway)
        with ThreadPoolExecutor(workers) as pool:
            warm = count // 10
            list(pool.map(lambda seed: _send_malformed(gateway, seed, warm // workers), range(100, 100 + workers)))
            before, descriptors = rss_kb(pid), fds_but_database(pid)
            found = sum(
                pool.map(lambda seed: _send_malformed(gateway, seed, count // workers), range(workers)), Counter[int]()
            )
        grown = rss_kb(pid) - before
        assert not [status for status in found if status >= 500], found
        assert sum(found.values()) >= count, found
        assert grown < 20_000, f"{grown} kB more memory"
        wait_until(lambda: fds_but_database(pid) <= descriptors + 1, what="no more descriptors")
        assert not agents_of(gateway)
        mistakes = [line for line in gateway.log.read_text().splitlines() if json.loads(line)["level"] == "error"]
        assert not mistakes, mistakes[0][:2000]
        assert is_whole(_one_stream(gateway))
    result = ", ".join(f"{number:,} × {status or 'closed'}" for status, number in sorted(found.items()))
    return f"{sum(found.values()):,} requests: {result}; {grown} kB more memory, no more descriptors."


def _send_malformed(gateway: RunningGateway, seed: int, count: int) -> Counter[int]:
    """By status; 0 for those that were closed, or left, without one."""
    chance, found = random.Random(seed), Counter[int]()
    sock: socket.socket | None = None
    for _ in range(count):
        one = malformed(chance)
        if sock is None:
            sock = connected(gateway, 20)
        try:
            sock.sendall(one.data)
            status, goes_on = (0, False) if one.is_left else _status(sock, one)
        except ConnectionError:
            status, goes_on = 0, False
        found[status] += 1
        if not goes_on:
            sock.close()
            sock = None
    if sock is not None:
        sock.close()
    return found


_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


def _status(sock: socket.socket, one: Malformed) -> tuple[int, bool]:
    """Of the first reply, and whether the connection can be used again."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = sock.recv(65536)
        if not piece:
            return 0, False
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = _LENGTH.search(head + b"\r\n")
    status = int(head.split(b" ", 2)[1])
    if one.is_alone or length is None or b"connection: close" in head.lower():
        return status, False
    while len(body) < int(length[1]) and not one.is_bodiless:
        piece = sock.recv(65536)
        if not piece:
            return status, False
        body += piece
    return status, True


# --- the history under fire ---------------------------------------------------------------------------


@fault(
    "10,000 conversations deleted while they are read",
    provoked="Four threads list, search, read and stream the history while four others delete all of it.",
    holds="Each reply is complete, or a 404; in the end the list is empty, and no folder is left.",
    seconds=600,
)
def deleted_while_read(place: Place) -> str:
    count = place.size(10_000, 400)
    settings = {"agent_program": light_agent(place.folder), "max_runs": "16"}
    with place.gateway(settings=settings) as gateway, client(gateway) as http:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: chat(http, f"word{number} {light(3)}"), range(count)))
        conversations = [(answer["conversationId"], answer["id"]) for answer in answers]
        given = {f"/v1/chat/{answer['id']}": answer for answer in answers}
        found, is_over = Counter[int](), threading.Event()

        def read(seed: int) -> Counter[int]:
            chance, seen = random.Random(seed), Counter[int]()
            while not is_over.is_set():
                conversation, run = chance.choice(conversations)
                for path in (
                    "/v1/conversations?limit=100",
                    f"/v1/conversations/{conversation}",
                    f"/v1/chat/{run}",
                    f"/v1/chat/{run}/events",
                    f"/v1/conversations?q=word{chance.randrange(count)}",
                ):
                    try:
                        reply = http.get(path)
                    except httpx2.RemoteProtocolError as error:
                        raise AssertionError(f"{path} was cut off") from error
                    seen[reply.status_code] += 1
                    if reply.status_code == 200 and path in given:
                        assert reply.json() == given[path], "an answer that was never given"
                    assert reply.status_code != 200 or not path.endswith("/events") or is_whole(reply.content), path
            return seen

        def remove(part: int) -> Counter[int]:
            return Counter(http.delete(f"/v1/conversations/{id}").status_code for id, _ in conversations[part::4])

        with ThreadPoolExecutor(8) as pool:
            readers = [pool.submit(read, seed) for seed in range(4)]
            try:
                removed = sum(pool.map(remove, range(4)), Counter[int]())
            finally:
                is_over.set()
            for reader in readers:
                found += reader.result()
        assert set(removed) <= {200, 204}, removed
        assert set(found) <= {200, 204, 404}, found
        assert http.get("/v1/conversations").json()["conversations"] == []
        folders = gateway.data / "conversations"
        wait_until(lambda: not list(folders.glob("conv_*")), what="no folders")
        assert is_whole(_one_stream(gateway))
    result = ", ".join(f"{number:,} × {status}" for status, number in sorted(found.items()))
    return f"{count:,} conversations were deleted during {sum(found.values()):,} reads ({result}); nothing is left."
