"""The parts of the gateway that no answer can do without, added to the relay one by one, in; what each takes of a short
run's CPU time, out. Together, they are the least that the gateway could take.

`python -m benchmarks.parts` measures, and is also the server that is measured: a relay that decodes what the agent
writes, makes documents of it, encodes these as OpenAI's chunks, and appends their events to a file.
"""

import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path

import click
import msgspec

from benchmarks.contenders import OPENAI, RELAY, Contender, Dialect, started
from benchmarks.field import Field
from benchmarks.processes import cpu_seconds
from benchmarks.relay import relay, serve
from cursor_gateway import ChunkEncoder, CompletionHead, DocumentEvent, DocumentReader, RunInfo
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store import batches
from cursor_gateway.wire.lines import LineSplitter

AT_ONCE, RUNS = 16, 300
_RUN = RunInfo(id="chat_benchmark", created="2026-02-23T10:30:00Z")


class Parts(IntEnum):
    """Each has those before it."""

    RELAY = 0
    LINES = 1
    DOCUMENTS = 2
    CHUNKS = 3
    LOG = 4


class Pieces:
    """What the agent writes in, what the client gets out."""

    def __init__(self, parts: Parts, folder: Path) -> None:
        self._parts = parts
        self._lines, self._decoder = LineSplitter(keeps_ends=True), CursorDecoder()
        self._documents, self._state = DocumentReader(_RUN), RunState()
        self._chunks = ChunkEncoder(CompletionHead("chatcmpl-benchmark", 1_771_842_600, "opus"))
        self._log = os.open(folder / f"{id(self)}.ndjson", os.O_CREAT | os.O_WRONLY) if parts >= Parts.LOG else -1

    def push(self, piece: bytes) -> bytes:
        if self._parts is Parts.LINES:
            self._decoder.push(self._lines.push(piece))
        if self._parts < Parts.DOCUMENTS:
            return piece
        sent = self._shown(self._documents.push(piece))
        return sent if self._parts >= Parts.CHUNKS else piece

    def end(self) -> bytes:
        if self._parts < Parts.DOCUMENTS:
            return b""
        sent = self._shown(self._documents.flush())
        if self._log >= 0:
            os.close(self._log)
        return sent if self._parts >= Parts.CHUNKS else b""

    def _shown(self, events: list[DocumentEvent]) -> bytes:
        if self._parts < Parts.CHUNKS or not events:
            return b""
        if self._parts >= Parts.LOG:
            self._state.push_all(events)
            os.write(self._log, batches.encode(events))
        return b"".join([self._chunks.push(event) for event in events])


def _dialect(parts: Parts) -> Dialect:
    return OPENAI if parts >= Parts.CHUNKS else msgspec.structs.replace(RELAY, path=OPENAI.path, body=OPENAI.body)


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--serve", "served", nargs=2, hidden=True, help="The agent, and the number of parts.")
def main(rounds: int, served: tuple[str, str] | None) -> None:
    """Measure what each part adds, in alternating rounds; and the whole gateway beside it."""
    if served is not None:
        agent, level = served
        with tempfile.TemporaryDirectory() as folder:
            serve(relay(agent, lambda: Pieces(Parts(int(level)), Path(folder))))
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        field = Field(Path(folder), stack)
        contenders = {"gateway": field.openai}
        for parts in Parts:
            command = [sys.executable, "-m", "benchmarks.parts", "--serve", str(field.agent), str(int(parts))]
            server = stack.enter_context(started(command, os.environ, field.folder / parts.name))
            contenders[parts.name.lower()] = Contender(server, _dialect(parts))
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(rounds + 1):
            for name, one in contenders.items():
                before = cpu_seconds(one.server.pid)
                field.load.ask(one, "replay 100", concurrency=AT_ONCE, count=RUNS)
                if turn:  # the first round loads what is loaded on first use
                    found[name].append((cpu_seconds(one.server.pid) - before) / RUNS * 1e3)
        for name, times in found.items():
            ratio = statistics.median(time / whole for time, whole in zip(times, found["gateway"], strict=True))
            click.echo(f"{name:10} {statistics.median(times):.2f} ms, {ratio:.2f} of the gateway's")


if __name__ == "__main__":
    main()
