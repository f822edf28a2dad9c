"""A host that refuses, fills up, jumps or goes: what answers, readers and the history must outlive."""

import errno
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx2

from chaos.hosting import (
    Bare,
    bare_gateway,
    cpu_seconds,
    fill,
    limited,
    next_descriptor,
    no_new_tasks,
    remount,
    small_disk,
)
from chaos.native import light_agent, shim
from chaos.place import TIMEOUT, Place, agents_of, fds_but_database, is_healthy, wait_until
from chaos.table import fault
from chaos.talking import (
    PIXEL,
    Growing,
    Json,
    chat,
    client,
    connected,
    growing,
    is_whole,
    light,
    refusal,
    reply_of,
    request,
    standin,
    text_of,
)
from tests.agent.install import install
from tests.gateways import RunningGateway, running_gateway
from tests.server.damaged import CONVERSATIONS, make_histories, use_damaged
from tests.store.damages import damage

# --- what the kernel hands out ------------------------------------------------------------------------


@fault(
    "out of file descriptors",
    provoked="The running gateway's limit is lowered to the number of open files, then raised one by one.",
    holds="Requests get a 503 with an explanation, an active run continues, nothing busy-loops or leaks, and "
    "everything recovers.",
)
def out_of_descriptors(place: Place) -> str:
    proceed = place.folder / "go-on"
    with place.gateway() as gateway, client(gateway, 1) as http, client(gateway, 1) as other:
        pid = gateway.process.pid
        chat(http, "hello")
        http.get("/v1/conversations")
        with growing(other, standin(f'wait-for file="{proceed}"')) as stream:
            stream.until(b"Waiting")
            before, statuses = fds_but_database(pid), dict[int, int]()
            for spare in range(14):
                with limited(pid, resource.RLIMIT_NOFILE, next_descriptor(pid) + spare):
                    reply = http.post("/v1/chat", json={"message": "hello"})
                    assert reply.status_code == 200 or refusal(reply).status == 503, reply.text
                    statuses[reply.status_code] = statuses.get(reply.status_code, 0) + 1
                    result = http.get("/v1/conversations")
                    assert result.status_code in (200, 503), result.text
            assert statuses.get(503), statuses
            wait_until(
                lambda: len(agents_of(gateway)) == 1 and fds_but_database(pid) <= before,
                what="what the refused had open",
            )
            with limited(pid, resource.RLIMIT_NOFILE, next_descriptor(pid)):
                assert http.get("/health").status_code == 200
                spent = cpu_seconds(pid)
                turned_away = _turned_away(gateway, 20)
                time.sleep(1)  # what spins shows in the time that it takes
                spent = cpu_seconds(pid) - spent
                assert turned_away == 20, turned_away
                assert spent < 0.7, f"{spent:.2f} s of processor time in about 1 s"
                proceed.touch()
                assert is_whole(stream.rest()), stream.body[-500:]
        wait_until(lambda: not agents_of(gateway), what="no agents")
        wait_until(lambda: fds_but_database(pid) <= before, what=f"no more than {before} descriptors")
        assert is_healthy(gateway)
    return (
        f"{statuses.get(503, 0)} requests were refused with 503 and {statuses.get(200, 0)} answered as the limit rose; "
        f"{turned_away} of 20 new connections were turned away at once, with {spent:.2f} s of processor time; "
        f"afterwards {before} descriptors or fewer, and the next answer was complete."
    )


def _turned_away(gateway: RunningGateway, count: int) -> int:
    """Connections that are closed, or answered, instead of being left to wait."""
    found = 0
    for _ in range(count):
        with connected(gateway, 5) as sock:
            try:
                sock.sendall(request("GET", "/health"))
                found += sock.recv(65536)[:12] in (b"", b"HTTP/1.1 503")
            except TimeoutError:
                pass
            except ConnectionError:
                found += 1
    return found


@fault(
    "out of process slots",
    provoked="The kernel denies the running gateway every new process and thread.",
    holds="Requests get a 503 with an explanation, never a 500, an active run continues, and everything recovers.",
)
def out_of_slots(place: Place) -> str:
    proceed = place.folder / "go-on"
    with place.gateway() as gateway, client(gateway) as http:
        pid = gateway.process.pid
        known = chat(http, "hello")
        with growing(http, standin(f'wait-for file="{proceed}"')) as stream:
            stream.until(b"Waiting")
            with no_new_tasks(pid) as what:
                refused = [refusal(http.post("/v1/chat", json={"message": "hello"})) for _ in range(10)]
                assert {one.status for one in refused} == {503}, refused
                with ThreadPoolExecutor(20) as pool:  # more at once than there are threads
                    paths = ["/v1/conversations", f"/v1/chat/{known['id']}", "/v1/conversations?q=hello", "/v1/models"]
                    looked = list(pool.map(http.get, paths * 10))
                assert {one.status_code for one in looked} <= {200, 503}, [one.text for one in looked][:3]
                proceed.touch()
                assert is_whole(stream.rest()), stream.body[-500:]
        assert is_healthy(gateway)
        wait_until(lambda: not agents_of(gateway), what="no agents")
    return (
        f"With {what}: 10 of 10 requests were refused ({refused[0].message!r}), of 40 reads of the history "
        f"{sum(one.status_code == 200 for one in looked)} got a 200, the running answer was complete, "
        "and so was the next."
    )


@fault(
    "fork refused",
    provoked="The C library's fork fails with ENOMEM, then with EAGAIN (by a preloaded library).",
    holds="Requests get a 503 with the reason at once, and the first one afterwards works.",
)
def fork_refused(place: Place) -> str:
    switch = place.folder / "fork"
    environment = {"LD_PRELOAD": shim(place.folder), "CHAOS_FORK": str(switch)}
    result = []
    with place.gateway(environment=environment) as gateway, client(gateway) as http:
        chat(http, "hello")
        before = fds_but_database(gateway.process.pid)
        for number in (errno.ENOMEM, errno.EAGAIN):
            switch.write_text(str(number))
            for stream in (False, True):
                reply = http.post("/v1/chat", json={"message": "hello", "stream": stream})
                result.append(refusal(reply))
                assert result[-1].status == 503, reply.text
                assert os.strerror(number) in result[-1].message
                reply = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hello"}]})
                assert refusal(reply).status == 503, reply.text
            switch.write_text("")
            assert is_healthy(gateway)
        wait_until(lambda: fds_but_database(gateway.process.pid) <= before + 1, what="no more descriptors")
    return f"8 of 8 requests got a 503, for example {result[0].message!r}; the first ones after it were answered."


# --- disks and databases ------------------------------------------------------------------------------


@fault(
    "full disk",
    provoked="The history is on a 3 MB disk, which is filled to its last byte.",
    holds="Answers are complete and marked `stored: false`; when there is space again they are stored, and nothing "
    "is lost.",
)
def full_disk(place: Place) -> str:
    home = place.folder / "home"
    with small_disk(home / "data") as disk:
        _elsewhere(disk, place.folder / "other")
        with running_gateway(home) as gateway, client(gateway) as http:
            before = chat(http, "before")
            wait_until(  # files of runs that were moved are emptied, and used again
                lambda: not any(file.stat().st_size for file in disk.glob("runs/*.ndjson")),
                what="an answer that is in the database",
            )
            ballast = fill(disk)
            result = [chat(http, standin(scenario)) for scenario in ("tools", "fences", "text chunks=200 length=20000")]
            assert all(answer["metadata"].get("stored") is False for answer in result), result[0]["metadata"]
            assert http.get(f"/v1/chat/{before['id']}").json() == before
            ballast.unlink()
            for answer in result:
                _wait_stored(http, answer)
            assert "stored" not in chat(http, "after")["metadata"]
        with running_gateway(home) as gateway, client(gateway) as http:
            for answer in (before, *result):
                assert http.get(f"/v1/chat/{answer['id']}").json() == answer
    return (
        f"{len(result)} answers were complete but not stored; with space again, all were stored, and still there after "
        "a restart."
    )


@fault(
    "file size limit",
    provoked="The running gateway's file size limit is set below the size of its database (like a quota).",
    holds="Answers are complete and marked `stored: false`; when the limit is lifted they are stored.",
)
def files_may_not_grow(place: Place) -> str:
    settings = {"agent_program": light_agent(place.folder)}  # which writes no files
    with place.gateway(settings=settings) as gateway, client(gateway) as http:
        chat(http, "before")
        with limited(gateway.process.pid, resource.RLIMIT_FSIZE, 4096):
            result = [chat(http, light(count=20, size=1000)) for _ in range(3)]
            assert all(answer["metadata"].get("stored") is False for answer in result), result[0]["metadata"]
        for answer in result:
            _wait_stored(http, answer)
    return (
        f"{len(result)} of {len(result)} answers were complete but not stored; they were stored when the limit was "
        "lifted."
    )


@fault(
    "locked database",
    provoked="Another program holds an exclusive transaction for 5 s, far longer than the writer's timeout of 0.1 s.",
    holds="Answers are complete and stored: in their files, and in the database when it is free.",
)
def locked_database(place: Place) -> str:
    with place.gateway() as gateway, client(gateway) as http:
        chat(http, "before")
        with closing(sqlite3.connect(gateway.data / "history.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            until = time.monotonic() + 5
            result = [chat(http, standin("text chunks=200 length=2000"))]
            while len(result) < 50 and time.monotonic() < until:
                result.append(chat(http, standin("text chunks=20 length=200")))
            time.sleep(max(0.0, until - time.monotonic()))
            assert not any("stored" in answer["metadata"] for answer in result)
            assert len(list(gateway.data.glob("runs/*.ndjson"))) >= len(result)
            other.execute("ROLLBACK")
        for answer in result:
            _wait_stored(http, answer)
        assert is_healthy(gateway)
    return f"{len(result)} answers were complete and stored during the lock, and in the database after it."


@fault(
    "database deleted",
    provoked="The database's files are deleted while an answer streams.",
    holds="The answer, which is in a file of its own, is complete and stored in a new history, without a restart.",
)
def deleted_database(place: Place) -> str:
    def delete(data: Path) -> None:
        for file in data.glob("history.db*"):
            file.unlink()

    return _hit_while_streaming(place, delete, keeps=True)


@fault(
    "data directory deleted",
    provoked="The whole data directory is deleted while an answer streams.",
    holds="The answer is complete and says that it is not stored; a new history is created without a restart.",
)
def deleted_directory(place: Place) -> str:
    return _hit_while_streaming(place, shutil.rmtree)


@fault(
    "database replaced",
    provoked="Another gateway's database replaces the one in use while an answer streams.",
    holds="The answer is complete and stored in the other database, which is served and written to from then on.",
)
def replaced_database(place: Place) -> str:
    with place.gateway() as gateway, client(gateway) as http:
        theirs = chat(http, "theirs")
        other = gateway.data / "history.db"

    def replace(data: Path) -> None:
        for file in data.glob("history.db-*"):
            file.unlink()
        os.replace(other, data / "history.db")

    return _hit_while_streaming(place, replace, known=theirs, keeps=True)


def _hit_while_streaming(
    place: Place, hit: Callable[[Path], object], known: Json | None = None, *, keeps: bool = False
) -> str:
    """`keeps`: the file of the running run is not hit."""
    proceed = place.folder / "go-on"
    with place.gateway() as gateway, client(gateway) as http:
        chat(http, "before")
        with growing(http, standin(f'wait-for file="{proceed}"')) as stream:
            stream.until(b"Waiting")
            hit(gateway.data)
            proceed.touch()
            assert is_whole(stream.rest()), stream.body[-500:]
        assert (b'"stored":false' in stream.body) != keeps
        after = wait_until(lambda: _stored_answer(http), what="an answer that is stored") or {}
        listed = [entry["id"] for entry in http.get("/v1/conversations").json()["conversations"]]
        assert after["conversationId"] in listed
        assert len(listed) >= 1 + keeps + (known is not None), listed
        if known is not None:
            assert http.get(f"/v1/chat/{known['id']}").json() == known
        assert b'"level": "error"' not in gateway.log.read_bytes(), gateway.log.read_text()[-2000:]
    marked = "stored" if keeps else "marked"
    return f"The stream of {len(stream.body)} bytes was complete and {marked}; the next answers were stored and listed."


@fault(
    "read-only history",
    provoked="The history's disk is read-only when the gateway starts, as after a disk failure; later it is "
    "writable again.",
    holds="Answers are complete and marked `stored: false`, the history endpoints say why they are unavailable, "
    "and everything is stored afterwards.",
)
def read_only_history(place: Place) -> str:
    home = place.folder / "home"
    with small_disk(home / "data", 20) as disk:
        _elsewhere(disk, place.folder / "other")
        with running_gateway(home) as gateway, client(gateway) as http:
            before = chat(http, "before")
        remount(disk, "ro")
        with running_gateway(home) as gateway, client(gateway) as http:
            result = [chat(http, standin("fences")) for _ in range(3)]
            assert all(answer["metadata"].get("stored") is False for answer in result), result[0]["metadata"]
            refused = refusal(http.get("/v1/conversations"))
            assert refused.status == 503
            remount(disk, "rw")
            for answer in result:
                _wait_stored(http, answer)
            assert http.get(f"/v1/chat/{before['id']}").json() == before
    return (
        f"{len(result)} answers were complete but not stored; the history said {refused.message!r}; they were stored "
        "the disk could be written again."
    )


@fault(
    "database damaged",
    provoked="Most pages of the database are overwritten with random bytes while the gateway runs.",
    holds="Answers are complete; readers of the history get a 410, a 503 or data that is still correct, never a 500 or "
    "garbage; the next start sets the file aside.",
)
def damaged_database(place: Place) -> str:
    home = place.folder / "home"
    statuses: dict[int, int] = {}
    with running_gateway(home) as gateway, client(gateway) as http:
        known = [chat(http, standin("text chunks=100 length=20000")) for _ in range(5)]
        path = gateway.data / "history.db"
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(max(0, path.stat().st_size - 2 * 4096)))
        for answer in known:
            chat(http, "hello")
            for address in ("/v1/conversations", f"/v1/chat/{answer['id']}", "/v1/conversations?q=hello", "/v1/runs"):
                reply = http.get(address)
                statuses[reply.status_code] = statuses.get(reply.status_code, 0) + 1
                assert reply.status_code in (200, 404, 410, 503), reply.text
                if reply.status_code == 200 and reply.json().get("id") == answer["id"]:
                    assert reply.json() == answer, "an answer that was never given"
        assert statuses.keys() & {410, 503}, statuses
    with running_gateway(home) as gateway, client(gateway) as http:
        wait_until(lambda: b"damaged" in gateway.log.read_bytes(), 10, "the log tells of the damage")
        assert "stored" not in chat(http, "hello")["metadata"]
        aside = [file.name for file in gateway.data.glob("history*") if file.stat().st_size > 50_000]
        assert aside
    result = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    return (
        f"5 of 5 answers were complete; the history answered {result}; the next start created a new one and kept the "
        "old."
    )


def _elsewhere(data: Path, other: Path) -> None:
    """What the agents need stands on another disk, so that only the history is hit."""
    for name in ("conversations", "instances"):
        (other / name).mkdir(parents=True)
        (data / name).symlink_to(other / name)


def _stored_answer(http: httpx2.Client) -> Json | None:
    answer = chat(http, "hello")
    return answer if "stored" not in answer["metadata"] else None


def _wait_stored(http: httpx2.Client, answer: Json) -> None:
    def is_listed() -> bool:
        listed = http.get("/v1/conversations", params={"limit": 100})
        ids = {entry["id"] for entry in listed.json()["conversations"]} if listed.status_code == 200 else set()
        return answer["conversationId"] in ids

    wait_until(is_listed, what="the answer in the history")
    assert http.get(f"/v1/chat/{answer['id']}").json() == answer


# --- time ---------------------------------------------------------------------------------------------


@fault(
    "clock jumping backwards and forwards",
    provoked="The system time jumps by -5 h, +11 h and back while answers stream (by a preloaded library).",
    holds="Active runs continue, no duration is negative, turns keep their order, and conversations can continue.",
)
def clock_jumps(place: Place) -> str:
    clock = place.folder / "clock"
    environment = {"LD_PRELOAD": shim(place.folder), "CHAOS_CLOCK": str(clock)}
    # short limits of silence: by the wrong clock they would be over at once
    settings = {"idle_seconds": "20", "first_event_seconds": "20", "run_seconds": "60", "history_days": "30"}
    asked, durations = [], list[float]()
    with place.gateway(settings=settings, environment=environment) as gateway, client(gateway) as http:
        first = chat(http, "turn 0")
        asked.append("turn 0")
        last = first
        for turn, hours in enumerate((-5, 11, -1000, 0), start=1):
            proceed = place.folder / f"go-on-{turn}"
            with growing(http, standin(f'wait-for file="{proceed}"')) as stream:
                stream.until(b"Waiting")
                clock.write_text(str(hours * 3600))
                last = chat(http, f"turn {turn}", conversationId=last["id"])  # only the latest answer's id goes on
                asked.append(f"turn {turn}")
                proceed.touch()
                assert is_whole(stream.rest()), stream.body[-500:]
            across = http.get(f"/v1/chat/{stream.id}").json()
            durations += [answer["metadata"]["duration_ms"] for answer in (last, across)]
        assert min(durations) >= 0, durations
        assert max(durations) < 60_000, durations
        result = http.get(f"/v1/conversations/{first['conversationId']}").json()
        said = [message["text"] for message in result["messages"] if message["role"] == "user"]
        assert said == asked, said
        for line in http.get("/metrics").text.splitlines():
            assert "_seconds_" not in line or float(line.rpartition(" ")[2]) >= 0, line
        logged = [json.loads(line) for line in gateway.log.read_text().splitlines()]
        assert min(line["seconds"] for line in logged if "seconds" in line) >= 0
    return (
        f"4 jumps: 4 streams continued across them, {len(asked)} turns are in order, and durations are between "
        f"{min(durations)} and {max(durations)} ms."
    )


@fault(
    "a locked database, and a clock that jumps backwards",
    provoked="The database is locked while an answer streams, and the system time jumps by -5 h; then it is unlocked.",
    holds="Storing resumes within moments, not when the clock has caught up: a SIGKILL loses nothing.",
)
def lock_and_jump(place: Place) -> str:
    clock, home = place.folder / "clock", place.folder / "home-1"
    environment = {"LD_PRELOAD": shim(place.folder), "CHAOS_CLOCK": str(clock)}
    settings = {"agent_program": light_agent(place.folder)}
    with place.gateway(settings=settings, environment=environment) as gateway, client(gateway) as http:
        chat(http, light())
        with growing(http, light(count=5000, pause_ms=50)) as stream:
            stream.until(b"id: 5\n")
            with closing(sqlite3.connect(gateway.data / "history.db", isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                stream.until(b"id: 15\n")
                clock.write_text(str(-5 * 3600))
                stream.until(b"id: 20\n")
                other.execute("ROLLBACK")
            stream.until(b"id: 80\n")  # 3 s: three times as long as is waited between two tries
            gateway.process.send_signal(signal.SIGKILL)
            gateway.process.wait(TIMEOUT)
    with running_gateway(home, settings=settings) as gateway, client(gateway) as http:
        kept = http.get(f"/v1/chat/{stream.id}/events").content
        result = stream.body.replace(b": keep-alive\n\n", b"")
        assert kept.startswith(result), (result[-200:], kept[-500:])
    return f"All {len(result):,} bytes that the reader had are in the history."


@fault(
    "the gateway is suspended for longer than its timeouts",
    provoked="SIGSTOP for 4 s while the agent writes, with an idle timeout of 2 s; then SIGCONT.",
    holds="The agent is not mistaken for a silent one: the answer is complete.",
)
def stopped(place: Place) -> str:
    settings = {"agent_program": light_agent(place.folder), "idle_seconds": "2", "keep_alive_seconds": "1"}
    with place.gateway(settings=settings) as gateway, client(gateway) as http:
        with (
            growing(http, light(count=60, pause_ms=100)) as stream,
            growing(http, light(count=1, pause_ms=1000)) as one,
        ):
            stream.until(b"event: content_delta")
            gateway.process.send_signal(signal.SIGSTOP)
            time.sleep(4)
            gateway.process.send_signal(signal.SIGCONT)
            assert is_whole(one.rest()), one.body[-500:]
            assert is_whole(stream.rest()), stream.body[-500:]
        wait_until(lambda: not agents_of(gateway), what="no agents")
    return f"Both streams, {len(stream.body) + len(one.body)} bytes, were complete after 4 s of suspension."


# --- signals ------------------------------------------------------------------------------------------


@contextmanager
def _reading(gateway: RunningGateway, messages: list[str]) -> Iterator[tuple[list[Growing], "ThreadPoolExecutor"]]:
    """Streams that have all begun."""
    with client(gateway, len(messages) + 10) as http, ThreadPoolExecutor(len(messages)) as pool:
        opened = [growing(http, message) for message in messages]
        streams = list(pool.map(lambda context: context.__enter__(), opened))
        try:
            for stream in streams:
                stream.until(b"event: content_delta")
            assert http.get("/health").json()["runs"]["running"] == len(messages)
            yield streams, pool
        finally:
            for context in opened:
                context.__exit__(None, None, None)


@fault(
    "SIGTERM with 100 active runs",
    provoked="Half of the runs end within the drain time, half would take minutes; new requests arrive meanwhile.",
    holds="The first half is answered completely, the second half gets the reason why it ends, new requests are "
    "refused, no agent is left, and the exit status is 0.",
)
def sigterm(place: Place) -> str:
    half = place.size(50, 10)
    settings = {
        "agent_program": light_agent(place.folder),
        "max_runs": "200",
        "drain_seconds": "14",
        "keep_alive_seconds": "1",
    }
    messages = [light(count=50, pause_ms=200)] * half + [light(count=5000, pause_ms=200)] * half
    with place.gateway(settings=settings) as gateway:
        with _reading(gateway, messages) as (streams, pool):
            gateway.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            bodies = pool.map(Growing.rest, streams)
            time.sleep(0.5)
            refused = [_is_refused(gateway) for _ in range(20)]
            received = list(bodies)
        status = gateway.process.wait(TIMEOUT)
        seconds = time.monotonic() - began
        wait_until(lambda: not agents_of(gateway), 5, "no agents")
        assert status == 0, status
        assert all(refused), refused
        assert all(map(is_whole, received[:half])), [body[-300:] for body in received[:half] if not is_whole(body)][:1]
        for body in received[half:]:
            assert b"SHUTTING_DOWN" in body, body[-500:]
            assert body.rpartition(b"event: done\n")[1], body[-500:]
        assert b'"level": "error"' not in gateway.log.read_bytes(), gateway.log.read_text()[-2000:]
    return (
        f"{half} answers were complete, {half} got the reason; 20 of 20 new requests were refused; exit 0 after "
        f"{seconds:.1f} s with a drain of 14 s; no agent was left."
    )


def _is_refused(gateway: RunningGateway) -> bool:
    try:
        with connected(gateway, 10) as sock:
            sock.sendall(request("POST", "/v1/chat", body={"message": "hello"}))
            reply = reply_of(sock, 100)
            return not reply or reply.startswith(b"HTTP/1.1 503")
    except ConnectionError:
        return True


@fault(
    "a second signal",
    provoked="SIGINT twice during a drain of 60 s; SIGTERM twice.",
    holds="The second SIGINT ends everything at once, a second SIGTERM changes nothing; the exit status is 0, and "
    "no agent is left.",
)
def second_signal(place: Place) -> str:
    took = []
    for number, drain in ((signal.SIGINT, 60), (signal.SIGTERM, 3)):
        settings = {"agent_program": light_agent(place.folder), "drain_seconds": str(drain)}
        with place.gateway(settings=settings) as gateway:
            with _reading(gateway, [light(count=5000, pause_ms=100)] * 5) as (streams, pool):
                bodies = pool.map(Growing.rest, streams)
                began = time.monotonic()
                gateway.process.send_signal(number)
                time.sleep(0.5)
                assert gateway.process.poll() is None
                gateway.process.send_signal(number)
                status = gateway.process.wait(TIMEOUT)
                took.append(time.monotonic() - began)
                received = list(_even_broken(bodies))
            assert _has_no_agents(gateway)
            assert status == 0, status
            assert len(received) <= len(streams)
    assert took[0] < 30, took
    return f"Two SIGINT ended it in {took[0]:.1f} s of a drain of 60 s, two SIGTERM in {took[1]:.1f} s of 3 s."


def _has_no_agents(gateway: RunningGateway) -> bool:
    return wait_until(lambda: not agents_of(gateway), 5, "no agents")


def _even_broken(bodies: Iterator[bytes]) -> Iterator[bytes]:
    while True:
        try:
            yield next(bodies)
        except StopIteration:
            return
        except (httpx2.HTTPError, AssertionError):
            continue


@fault(
    "SIGKILL with active runs",
    provoked="SIGKILL while 20 agents are writing and 20 are silent; then a new gateway with the same data.",
    holds="Everything that readers received is in the history, byte for byte; interrupted runs say so; all "
    "agents end with the gateway, before the next one starts.",
)
def sigkill(place: Place) -> str:
    home, count = place.folder / "home", place.size(20, 8)
    settings = {"agent_program": light_agent(place.folder), "max_runs": "100", "hold_seconds": "0.1"}
    silent = light(count=1, pause_ms=600_000)  # who writes notices that nobody reads; these do not
    with running_gateway(home, settings=settings) as gateway:
        with client(gateway, 2 * count + 5) as http:
            opened = [growing(http, message) for message in [light(count=5000, pause_ms=20), silent] * count]
            streams = [context.__enter__() for context in opened]
            for stream in streams[::2]:
                stream.until(b"id: 5\n")
            gateway.process.send_signal(signal.SIGKILL)
            gateway.process.wait(TIMEOUT)
            for stream in streams:
                _read_until_broken(stream)
            for context in opened:
                context.__exit__(None, None, None)
        wait_until(lambda: not agents_of(gateway), 10, "no orphans")
    with running_gateway(home, settings=settings) as gateway, client(gateway) as http:
        for stream in streams:
            kept, told_of = (
                http.get(f"/v1/chat/{stream.id}/events").content,
                stream.body.replace(b": keep-alive\n\n", b""),
            )
            assert kept.startswith(told_of), (told_of[-200:], kept[-200:])
            answer = http.get(f"/v1/chat/{stream.id}").json()
            assert answer["status"] == "error"
            assert answer["documents"][-1]["metadata"]["errorCode"] == "GATEWAY_RESTARTED"
        result = sum(len(stream.body) for stream in streams)
    return f"{result} bytes of {2 * count} streams are in the history as delivered; no agent was left."


def _read_until_broken(stream: Growing) -> None:
    with suppress(httpx2.HTTPError, AssertionError):
        stream.until(b"\0")  # which never comes


# --- what it stands on --------------------------------------------------------------------------------


def _environment(place: Place, home: Path, **settings: str) -> dict[str, str]:
    for folder in ("work", "data", ".cursor", "bin"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    install(home / "bin")
    given = {"data_dir": str(home / "data"), "workspace": str(home / "work"), "grace_seconds": "1", **settings}
    return {
        "PATH": f"{home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(home),
        **{f"CURSOR_GATEWAY_{name.upper()}": value for name, value in given.items()},
    }


@fault(
    "a log that is not read",
    provoked="Standard error is a pipe that is not read, and the gateway logs far more than it can hold.",
    holds="The gateway answers as before; log lines are lost, answers are not.",
)
def unread_logs(place: Place) -> str:
    home, count = place.folder / "home", place.size(600, 300)
    environment = _environment(place, home, agent_program=light_agent(place.folder))
    read, write = os.pipe()
    try:
        with bare_gateway(home, stderr=write, environment=environment) as gateway:
            with httpx2.Client(base_url=gateway.url, timeout=20) as http:
                for _ in range(count):  # three lines each
                    assert text_of(chat(http, light(count=1))) == "0123456789"
            size = len(os.read(read, 1 << 20))
    finally:
        os.close(read)
        os.close(write)
    assert 30_000 < size < 300 * count, size  # of three lines of more than 100 bytes each: the rest did not fit
    return f"The pipe was full with {size} bytes of log; {count} of {count} answers came as before."


@fault(
    "standard output and error closed",
    provoked="The gateway is started as `serve 2>&-`, as `serve >&-`, and with pipes whose readers have exited.",
    holds="It answers and exits with status 0; if it cannot print, it says so and does not start.",
)
def closed_outputs(place: Place) -> str:
    home = place.folder / "home"
    environment = _environment(place, home)
    with bare_gateway(home, environment=environment, closed=(2,)) as gateway:
        assert text_of(_ask(gateway)) == "You said: hello"
    assert gateway.process.returncode == 0, gateway.process.returncode
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "cursor_gateway", "serve", "--port", "0"]
    refused = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=TIMEOUT)
    assert refused.returncode == 2, refused
    assert "standard output is closed" in refused.stderr
    read, write = os.pipe()
    os.close(read)
    try:
        with bare_gateway(home, stdout=write, stderr=write, environment=environment) as gateway:
            assert text_of(_ask(gateway)) == "You said: hello"
        assert gateway.process.returncode == 0, gateway.process.returncode
    finally:
        os.close(write)
    return (
        "Without a log, and without readers, it answered and exited with status 0; otherwise: "
        f"{refused.stderr.strip()!r}."
    )


def _ask(gateway: Bare) -> Json:
    with httpx2.Client(base_url=gateway.url, timeout=20) as http:
        return chat(http, "hello")


@fault(
    "no home directory",
    provoked="HOME is a folder that neither exists nor can be created, with and without `data_dir`.",
    holds="With `data_dir`, everything works; without it, the gateway refuses to start, with a message that names "
    "`data_dir`.",
)
def no_home(place: Place) -> str:
    nowhere = "/proc/nobody"  # not even root can make it
    with place.gateway(environment={"HOME": nowhere}) as gateway, client(gateway) as http:
        assert text_of(chat(http, "hello")) == "You said: hello"
        assert "stored" not in chat(http, "hello")["metadata"]
    home = place.folder / "other"
    environment = {**_environment(place, home), "HOME": nowhere, "CURSOR_GATEWAY_DATA_DIR": ""}
    command = [sys.executable, "-m", "cursor_gateway", "serve", "--port", "0"]
    ended = subprocess.run(
        command, env=environment, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert ended.returncode != 0
    assert "data_dir" in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    return f"With `data_dir`, both answers were complete and stored; without it: {last!r}."


@fault(
    "temporary folder full",
    provoked="TMPDIR is a disk without a free byte.",
    holds="Short and long prompts, images, searches and exports work, because nothing needs it.",
)
def no_temporary(place: Place) -> str:
    temporary = place.folder / "tmp"
    with small_disk(temporary, 1) as disk:
        fill(disk)
        with place.gateway(environment={"TMPDIR": str(temporary)}) as gateway, client(gateway) as http:
            assert text_of(chat(http, "hello")) == "You said: hello"
            assert text_of(chat(http, f"{'x' * 500_000}\n{standin('say', 'heard')}")) == "heard"
            chat(http, "look", images=[PIXEL])
            found = http.get("/v1/conversations", params={"q": "hello"})
            assert found.status_code == 200, found.text
            assert found.json()["conversations"]
    return "A short prompt, one of 500,000 characters, an image and a search were answered."


# --- damaged files ------------------------------------------------------------------------------------


@fault(
    "the history's file is damaged",
    provoked="300 random damages of the database, its WAL and its shared memory: flipped bits, pages that are zeroed, "
    "swapped or filled with random bytes, files that are cut or replaced by folders.",
    holds="The gateway starts, names the damaged file that it keeps, and recovers what can be read; no request gets a "
    "500; new answers are stored.",
    seconds=1800,
)
def damaged_history(place: Place) -> str:
    counted = place.size(300, 20)
    good, killed = make_histories(place.folder / "made")
    kept, whole, aside = 0, 0, 0
    for number in range(counted):
        home = place.folder / "damaged"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(killed if number % 3 == 0 else good, home / "data")
        name = damage(home / "data", number)
        found = use_damaged(home, name)
        kept += found
        whole += found == CONVERSATIONS
        aside += any(".damaged-" in file.name for file in (home / "data").iterdir())
    share = 100 * kept / (counted * CONVERSATIONS)
    return (
        f"{counted} damages; {aside} files were set aside; {share:.0f} % of all conversations were recovered, "
        f"and in {whole} cases all of them. No 500, no traceback; a new answer was stored each time."
    )
