"""Servers, all up at the same time, in; how they compare, in rounds that rotate, out."""

import http.client
import os
import resource
import select
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.contenders import DOCUMENTS, MESSAGES, OPENAI, RESPONSES, Contender, Server
from benchmarks.failing import BenchmarkFailed
from benchmarks.field import Field, Round, median, ratio, rotated, seconds
from benchmarks.found import Found, Part
from benchmarks.processes import children, cpu_seconds, own_kilobytes, peak_megabytes
from benchmarks.run import decode_only

AT_ONCE = 16
IDLE = 5_000
_SPARE = 500  # file descriptors that are not streams


def long_replies(field: Field, rounds: int) -> Part:
    """50,000 lines in units of the limit and the bare decode, and the peak of the memory; 2,000 lines beside them."""
    ours = _ours(field)
    for name in ("50k", "2k"):
        actions = {
            "pipe": partial(field.pipe, name),
            "decode": partial(seconds, partial(decode_only, field.sessions[name].lines)),
            **{f"{name} {who}": partial(field.total, one, name) for who, one in ours.items()},
        }
        if name == "50k":
            actions["pipe blocks"] = partial(field.pipe, name, "blocks")
            actions |= {f"50k blocks {who}": partial(field.total, one, name, "blocks") for who, one in ours.items()}
        found = rotated(actions, rounds, {f"{name} plain": partial(field.total, field.plain, name)})
        for row in found[0]:
            if row.startswith(name):
                how = "pipe blocks" if "blocks" in row else "pipe"
                base = median(found, how) + median(found, "decode")
                yield row, Found(ratio(found, row, how, "decode"), f"{_ms(median(found, row))} against {_ms(base)}")
        if name == "50k":
            yield "peak", Found(peak_megabytes(field.gateway.pid), f"{4 * rounds} runs")


def many_replies(field: Field, rounds: int, count: int = 400) -> Part:
    """100 lines, 16 at once: requests a second, and the CPU time that a server needs for each."""
    used: dict[str, list[float]] = {}  # seconds for a request, in each round

    def rate(who: str, one: Contender, count: int) -> float:
        before = cpu_seconds(one.server.pid)
        found = field.ask(one, "100", concurrency=AT_ONCE, count=count).rate
        used.setdefault(who, []).append((cpu_seconds(one.server.pid) - before) / count)
        return found

    actions = {who: partial(rate, who, one, count) for who, one in _ours(field).items()}
    found = rotated(actions, rounds, {"plain": partial(rate, "plain", field.plain, count // 4)})
    for who in ("openai", "documents", "plain"):
        rates = f"{median(found, who):,.0f}/s against {median(found, 'relay'):,.0f}/s"
        yield f"many {who}", Found(ratio(found, who, "relay"), rates)
    for who, times in used.items():
        yield f"cpu {who}", Found(statistics.median(times) * 1e3, f"least {min(times) * 1e3:.2f} ms")


def other_dialects(field: Field, rounds: int, session: str = "50k", count: int = 400) -> Part:
    """50,000 lines, and 100 lines at 16 at once, in units of chat completions."""
    chat = Contender(field.gateway, OPENAI)
    others = {"responses": Contender(field.gateway, RESPONSES), "messages": Contender(field.gateway, MESSAGES)}
    everybody = {"chat": chat, **others}
    found = rotated({who: partial(field.total, one, session) for who, one in everybody.items()}, rounds)
    for who in others:
        yield (
            f"50k {who}",
            Found(ratio(found, who, "chat"), f"{_ms(median(found, who))} against {_ms(median(found, 'chat'))}"),
        )

    def pace(one: Contender) -> float:
        return 1 / field.ask(one, "100", concurrency=AT_ONCE, count=count).rate

    found = rotated({who: partial(pace, one) for who, one in everybody.items()}, rounds)
    for who in others:
        rates = f"{1 / median(found, who):,.0f}/s against {1 / median(found, 'chat'):,.0f}/s"
        yield f"many {who}", Found(ratio(found, who, "chat"), rates)


def first_content(field: Field, rounds: int) -> Part:
    """Of a reply to a client that is alone."""

    def first(one: Contender, count: int) -> float:
        return field.ask(one, "100", count=count).first

    actions = {who: partial(first, one, 80) for who, one in _ours(field).items()}
    yield from _against_relay("first", rotated(actions, rounds, {"plain": partial(first, field.plain, 30)}))


def event_delays(field: Field, rounds: int, streams: int = 4, events: int = 150, rate: int = 100) -> Part:
    """How late an event is that a hundredth of a second passes before; the worst of a hundred."""

    def delay(one: Contender) -> float:
        summary, _ = field.load.ask(
            one, f"paced {events} {rate}", concurrency=streams, count=streams, stamps=streams * events
        )
        assert summary.delay_us is not None
        return summary.delay_us.p99 / 1e6

    actions = {who: partial(delay, one) for who, one in _ours(field).items()}
    yield from _against_relay("delay", rotated(actions, rounds, {"plain": partial(delay, field.plain)}))


def idle_streams(field: Field, _: int) -> Part:
    """One silent run, read by 5,000 clients: what each of them costs the gateway."""
    used, count = idle_kilobytes(field, field.new_gateway("idle"))
    yield "idle", Found(used / count, f"{used / 1024:.0f} MB for {count:,} readers of one silent run")


def idle_kilobytes(field: Field, server: Server) -> tuple[float, int]:
    """What so many readers take."""
    count = min(IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE)
    reader = Contender(server, DOCUMENTS)
    with _open(reader, "silent") as reply:
        path = f"/v1/chat/{reply.getheader('x-chat-id')}/events"
        with field.load.holding(reader, path, 100):
            pass  # a first hundred: what is allocated once for all is none of a stream's cost
        before = own_kilobytes(server.pid)
        with field.load.holding(reader, path, count):
            return own_kilobytes(server.pid) - before, count


def growth(field: Field, rounds: int) -> Part:
    """The server's own time for a line, without what a request costs anyway: whether a long run makes it dearer."""

    def cpu(session: str, count: int) -> float:
        before = cpu_seconds(field.gateway.pid)
        field.ask(field.openai, session, "blocks", count=count)
        return (cpu_seconds(field.gateway.pid) - before) / count

    found = rotated(
        {"50k": partial(cpu, "50k", 1), "5k": partial(cpu, "5k", 6), "100": partial(cpu, "100", 20)}, max(rounds, 7)
    )
    lines = {name: len(session.lines) for name, session in field.sessions.items()}
    per_line = [
        {name: (turn[name] - turn["100"]) / (lines[name] - lines["100"]) for name in ("50k", "5k")} for turn in found
    ]
    result = f"{median(per_line, '50k') * 1e6:.2f} µs against {median(per_line, '5k') * 1e6:.2f} µs"
    yield "growth length", Found(ratio(per_line, "50k", "5k"), result)


def two_gateways(field: Field, rounds: int) -> Part:
    both = [field.openai, Contender(field.new_gateway("second"), OPENAI)]
    found = rotated(
        {
            "one": lambda: field.load.ask_all(both[:1], "replay 100", concurrency=AT_ONCE, count=200),
            "two": lambda: field.load.ask_all(both, "replay 100", concurrency=AT_ONCE // 2, count=100),
        },
        rounds,
    )
    result = f"{median(found, 'two'):,.0f}/s against {median(found, 'one'):,.0f}/s, {os.cpu_count()} cores"
    yield "two", Found(ratio(found, "two", "one"), result)


def leaving(field: Field, rounds: int) -> Part:
    times = [_time_to_end(field.openai) for _ in range(max(rounds, 5))]
    yield "leave openai", Found(statistics.median(times) * 1e3, f"at most {max(times) * 1e3:.1f} ms")


def _time_to_end(one: Contender) -> float:
    before = set(children(one.server.pid))
    with _open(one, "paced 100000 100"):
        agents = set(children(one.server.pid)) - before
        if len(agents) != 1:
            raise BenchmarkFailed(f"There should be one agent, not {len(agents)}.")
        ended = os.pidfd_open(agents.pop())
        left = time.perf_counter()
    try:
        if not select.select([ended], [], [], 30)[0]:
            raise BenchmarkFailed("An agent outlived its client by 30 seconds.")
        return time.perf_counter() - left
    finally:
        os.close(ended)


@contextmanager
def _open(one: Contender, prompt: str) -> Iterator[http.client.HTTPResponse]:
    """A reply whose first content has come. Leaving is closing."""
    with socket.create_connection(("127.0.0.1", one.server.port), timeout=30) as connection:
        connection.sendall(one.request(prompt))
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        if reply.status != 200:
            raise BenchmarkFailed(f"`{prompt}` was answered with {reply.status}.")
        seen = b""
        while one.dialect.first.encode() not in seen:
            if not (piece := reply.read1()):
                raise BenchmarkFailed(f"`{prompt}` ended early: {seen!r}")
            seen += piece
        yield reply
        reply.close()


def history_cost(field: Field, rounds: int, with_history: Server, without: Server) -> Part:
    """Whether requests are dearer where there is much history."""
    found = rotated(
        {
            "with": partial(field.total, Contender(with_history, OPENAI), "100", count=50),
            "without": partial(field.total, Contender(without, OPENAI), "100", count=50),
        },
        max(rounds, 5),
    )
    result = f"{_ms(median(found, 'with'))} against {_ms(median(found, 'without'))}"
    yield "growth history", Found(ratio(found, "with", "without"), result)


# --- shared -------------------------------------------------------------------------------------------


def _ours(field: Field) -> dict[str, Contender]:
    """And what they are compared with."""
    return {"relay": field.relay, "openai": field.openai, "documents": field.documents}


def _against_relay(part: str, found: list[Round]) -> Part:
    for who in ("openai", "documents", "plain"):
        result = f"{_ms(median(found, who))} against {_ms(median(found, 'relay'))}"
        yield f"{part} {who}", Found(ratio(found, who, "relay"), result)


def _ms(value: float) -> str:
    return f"{value * 1e3:,.0f} ms" if value >= 0.1 else f"{value * 1e3:.2f} ms"
