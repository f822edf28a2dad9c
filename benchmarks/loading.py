"""A contender and a prompt in; how it answered the load client, out. A reply that is not whole has no figure."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.contenders import Contender
from benchmarks.failing import BenchmarkFailed

_SECONDS = 120.0


class Sample(Struct, frozen=True):
    count: int
    p50: float
    p99: float
    max: float


class Summary(Struct, frozen=True):
    asked: int
    answered: int
    finished: int
    failed: int
    seconds: float
    bytes: int
    total_us: Sample | None
    first_us: Sample | None
    delay_us: Sample | None

    @property
    def rate(self) -> float:
        return self.finished / self.seconds

    @property
    def total(self) -> float:
        """Seconds."""
        assert self.total_us is not None
        return self.total_us.p50 / 1e6

    @property
    def first(self) -> float:
        assert self.first_us is not None
        return self.first_us.p50 / 1e6


class Load(Struct, frozen=True):
    program: Path
    folder: Path

    def ask(
        self, contender: Contender, prompt: str, *, concurrency: int = 1, count: int = 1, stamps: int = 0
    ) -> tuple[Summary, bytes]:
        """And the first reply. `stamps` are expected in all replies together."""
        command = self._command(contender, prompt, concurrency, count, stamps)
        return self._summary(subprocess.run(command, capture_output=True, timeout=2 * _SECONDS), contender, stamps)

    def ask_all(self, contenders: list[Contender], prompt: str, *, concurrency: int, count: int) -> float:
        """All at the same time, each with its own client: replies a second, of all together."""
        commands = [
            self._command(contender, prompt, concurrency, count, 0, name) for name, contender in enumerate(contenders)
        ]
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for command in commands]
        summaries = []
        for client, contender in zip(clients, contenders, strict=True):
            out, err = client.communicate(timeout=2 * _SECONDS)
            ran = subprocess.CompletedProcess(client.args, client.returncode, out, err)
            summaries.append(self._summary(ran, contender, 0)[0])
        return sum(summary.finished for summary in summaries) / max(summary.seconds for summary in summaries)

    @contextmanager
    def holding(self, contender: Contender, path: str, count: int) -> Iterator[None]:
        """So many replies to GET are open meanwhile."""
        request = self._written(contender.server.request(path), 0)
        command = [str(self.program), "-p", str(contender.server.port), "-q", str(request), "-n", str(count), "-h"]
        with subprocess.Popen(
            [*command, "-t", str(_SECONDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as client:
            assert client.stdout is not None
            if client.stdout.readline() != b"open\n":
                raise BenchmarkFailed(f"{count} replies could not be opened at once.")
            yield
            out, _ = client.communicate(timeout=_SECONDS)
        summary = msgspec.json.decode(out, type=Summary)
        if summary.failed or summary.finished:
            raise BenchmarkFailed(f"Of {count} open replies {summary.finished} ended early.")

    def _command(
        self, contender: Contender, prompt: str, concurrency: int, count: int, stamps: int, name: int = 0
    ) -> list[str]:
        request = self._written(contender.request(prompt), name)
        command = [str(self.program), "-p", str(contender.server.port), "-q", str(request), "-t", str(_SECONDS)]
        command += ["-c", str(concurrency), "-n", str(count), "-o", str(self._reply(name))]
        command += ["-f", contender.dialect.first, "-e", contender.dialect.end]
        return [*command, "-s"] if stamps else command

    def _summary(
        self, ran: "subprocess.CompletedProcess[bytes]", contender: Contender, stamps: int
    ) -> tuple[Summary, bytes]:
        where = contender.dialect.path
        if ran.returncode:
            raise BenchmarkFailed(f"The load client failed at {where}: {ran.stderr.decode()}")
        summary = msgspec.json.decode(ran.stdout, type=Summary)
        reply = self._reply(0).read_bytes()
        if summary.failed or summary.finished != summary.asked:
            raise BenchmarkFailed(
                f"Of {summary.asked} replies from {where} {summary.finished - summary.failed} were whole. "
                f"The first one ends with {reply[-500:]!r}"
            )
        if stamps and (summary.delay_us is None or summary.delay_us.count != stamps):
            raise BenchmarkFailed(f"Of {stamps} stamped events from {where} {summary.delay_us} came.")
        return summary, reply

    def _written(self, request: bytes, name: int) -> Path:
        path = self.folder / f"request-{name}"
        path.write_bytes(request)
        return path

    def _reply(self, name: int) -> Path:
        return self.folder / f"reply-{name}"
