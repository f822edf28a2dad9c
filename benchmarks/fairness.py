"""Two API keys on one gateway: how much longer a modest key waits while a greedy one takes all it can get."""

import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from msgspec.structs import replace

from benchmarks.contenders import OPENAI, Contender
from benchmarks.failing import BenchmarkFailed
from benchmarks.field import Field, median, ratio, rotated
from benchmarks.found import Found, Part
from cursor_gateway.keys import hash_key, new_key

# The agents sleep between their deltas, so that runs take time and hardly any CPU: eight of them and the refused
# requests keep a core a fifth busy. What is measured is who gets a place, not who gets the processor.
PLACES = 8
OUTSTANDING = 4 * PLACES
REQUESTS = 150  # of the modest key in each measurement, one after the other
MODEST = "paced 5 100"
GREEDY = ("paced 5 10", "paced 30 10")  # half a second and three seconds, by turns
_RETRY_SECONDS = 0.25  # after a 429, which asks for a second and more
_SECONDS = 30.0


def shared_places(field: Field, rounds: int, requests: int = REQUESTS) -> Part:
    """The 99th percentile of the modest key's times, in units of those that it has alone."""
    modest_key, greedy_key = new_key(), new_key()
    keys = f"modest={hash_key(modest_key)},greedy={hash_key(greedy_key)}"
    server = field.new_gateway("fairness", settings={"max_runs": str(PLACES), "api_keys": keys})
    modest = Contender(replace(server, key=modest_key), OPENAI)
    greedy = Contender(replace(server, key=greedy_key), OPENAI)
    firsts: dict[str, list[float]] = {"alone": [], "beside": []}
    crowds: list[Crowd] = []

    def measure(name: str) -> float:
        summary, _ = field.load.ask(modest, MODEST, count=requests)
        assert summary.first_us is not None
        assert summary.total_us is not None
        firsts[name].append(summary.first_us.p99 / 1e6)
        return summary.total_us.p99 / 1e6

    def beside() -> float:
        with crowd(greedy) as one:
            crowds.append(one)
            return measure("beside")

    field.load.ask(modest, MODEST, count=10)  # warm
    totals = rotated({"alone": partial(measure, "alone"), "beside": beside}, rounds)
    first = [dict(zip(firsts, pair, strict=True)) for pair in zip(*firsts.values(), strict=True)]
    runs = statistics.mean(one.runs_at_once for one in crowds)
    refused = sum(one.refused for one in crowds)
    for name, found in (("first content", first), ("whole answer", totals)):
        result = f"{median(found, 'beside') * 1e3:.0f} ms against {median(found, 'alone') * 1e3:.0f} ms"
        result += f"; the heavy key had {runs:.1f} of {PLACES} runs; {refused:,} of its requests were refused"
        yield f"fair {name}", Found(ratio(found, "beside", "alone"), result)


class Crowd:
    """What the greedy key got."""

    def __init__(self) -> None:
        self.refused = 0
        self.runs: list[tuple[float, float]] = []  # when each began and ended
        self.errors: list[str] = []
        self.began = self.ended = 0.0
        self.is_full = threading.Event()  # a request was refused: there is nothing left to take
        self.is_over = threading.Event()

    @property
    def runs_at_once(self) -> float:
        within = sum(max(0.0, min(end, self.ended) - max(start, self.began)) for start, end in self.runs)
        return within / (self.ended - self.began)


@contextmanager
def crowd(greedy: Contender) -> Iterator[Crowd]:
    """So many requests are outstanding meanwhile; each is sent again when it has ended."""
    one = Crowd()
    requests = [greedy.request(GREEDY[number % len(GREEDY)]) for number in range(OUTSTANDING)]
    threads = [
        threading.Thread(
            target=_keep_asking, args=(one, greedy.server.port, request, _RETRY_SECONDS * number / OUTSTANDING)
        )
        for number, request in enumerate(requests)
    ]
    for thread in threads:
        thread.start()
    try:
        if not one.is_full.wait(_SECONDS):
            raise BenchmarkFailed("The greedy key was never refused.")
        one.began = time.perf_counter()
        yield one
        one.ended = time.perf_counter()
    finally:
        one.is_over.set()
        for thread in threads:
            thread.join(_SECONDS)
    if one.errors:
        raise BenchmarkFailed(f"The greedy key was answered with {one.errors[0]}.")


def _keep_asking(one: Crowd, port: int, request: bytes, delay: float) -> None:
    """After a delay, so that those that are refused do not all come back in the same moment."""
    one.is_over.wait(delay)
    while not one.is_over.is_set():
        began, reply = _reply(port, request)
        if reply.startswith(b"HTTP/1.1 200"):
            one.runs.append((began, time.perf_counter()))
            continue
        if reply.startswith(b"HTTP/1.1 429"):
            one.refused += 1
            one.is_full.set()
        else:
            one.errors.append(repr(reply[:200]))
        one.is_over.wait(_RETRY_SECONDS)


def _reply(port: int, request: bytes) -> tuple[float, bytes]:
    """And when it began: a request that waits for a place is not a run yet."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as connection:
            connection.sendall(request)
            first = connection.recv(65536)
            began = time.perf_counter()
            return began, first + b"".join(iter(lambda: connection.recv(65536), b""))
    except OSError as error:
        return time.perf_counter(), str(error).encode()
