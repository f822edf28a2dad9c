"""Measures the pure pipeline and the command against the bare decoding of the same lines, and prints ratios.

The rounds of all contenders are interleaved and a ratio is taken within each round, so that a noisy
machine moves both sides; what is shown is the median. A wrong text fails, and so do growth or memory that are far over
their limits; the ratios against the decoding, which a busy machine's caches move, are only reported.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.sessions import Session, session
from cursor_gateway import ChunkEncoder, CompletionHead, DocumentEvent, DocumentReader, RunInfo, SseEncoder, TextEncoder
from cursor_gateway.sources.cursor_cli.records import decode

ROUNDS = 9
PIECE = 65_536
FAR_OVER = 1.3  # times its limit: no noise, but a mistake
FORMS = ("documents", "sse", "openai-sse", "text")
RUN = RunInfo(id="chat_benchmark", created="2026-02-23T10:30:00Z")


class Encoder(Protocol):
    def push(self, event: DocumentEvent, /) -> bytes: ...


def decode_only(lines: list[bytes]) -> None:
    for line in lines:
        decode(line)


def convert(chunks: Iterable[bytes], encoder: Encoder) -> bytes:
    """What a server does with each read: bytes in, events, one write out. The last write is returned."""
    reader = DocumentReader(RUN)
    push, encode = reader.push, encoder.push
    written = b""
    for chunk in chunks:
        events = push(chunk)
        if len(events) == 1:
            written = encode(events[0])
        elif events:
            written = b"".join([encode(event) for event in events])
    return b"".join([written, *(encode(event) for event in reader.flush())])


def text_of(chunks: Iterable[bytes]) -> str:
    reader, encoder = DocumentReader(RUN), TextEncoder()
    events = [event for chunk in chunks for event in reader.push(chunk)] + reader.flush()
    return b"".join(encoder.push(event) for event in events).decode()


def chat() -> Encoder:
    return ChunkEncoder(CompletionHead("chatcmpl-benchmark", 1_771_842_600, "opus"))


def seconds(action: Callable[[], object]) -> float:
    """CPU time: other processes on the machine do not count."""
    start = time.process_time()
    action()
    return time.process_time() - start


def ratios(contenders: dict[str, Callable[[], object]], base: str) -> dict[str, float]:
    """The median over all rounds of each contender's time in units of the base's time in the same round."""
    rounds = [{name: seconds(action) for name, action in contenders.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(times[name] / times[base] for times in rounds) for name in contenders}


def pieces(data: bytes, size: int = PIECE) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def contenders(long: Session) -> dict[str, Callable[[], object]]:
    lines, blocks = long.lines, pieces(long.data)
    line_by_line = [line + b"\n" for line in lines]
    return {
        "decode": lambda: decode_only(lines),
        "chat, 64 kB": lambda: convert(blocks, chat()),
        "documents, 64 kB": lambda: convert(blocks, SseEncoder()),
        "chat, lines": lambda: convert(line_by_line, chat()),
        "documents, lines": lambda: convert(line_by_line, SseEncoder()),
    }


def pipeline_rows(long: Session) -> list[tuple[str, float, float]]:
    found = ratios(contenders(long), "decode")
    return [
        ("OpenAI chunks, fed in 64 kB pieces", found["chat, 64 kB"], 2.0),
        ("documents SSE, fed in 64 kB pieces", found["documents, 64 kB"], 2.5),
        ("OpenAI chunks, fed line by line", found["chat, lines"], 4.0),
        ("documents SSE, fed line by line", found["documents, lines"], 5.0),
    ]


def growth_rows(long: Session) -> list[tuple[str, float, float]]:
    short = session(5_000, tools=6)
    small, large = pieces(short.data), pieces(long.data)
    by_length = ratios({"5k": lambda: convert(small, SseEncoder()), "50k": lambda: convert(large, SseEncoder())}, "5k")
    ten, twenty = (pieces(_one_long_line(size)) for size in (10_000_000, 20_000_000))
    by_line = ratios(
        {"10 MB": lambda: convert(ten, SseEncoder()), "20 MB": lambda: convert(twenty, SseEncoder())}, "10 MB"
    )
    return [
        ("50,000 lines against 5,000", by_length["50k"], 11.0),
        ("one line of 20 MB against one of 10 MB", by_line["20 MB"], 2.2),
    ]


def _one_long_line(size: int) -> bytes:
    text = "All work and no play makes a long line. " * (size // 40)
    return b'{"type":"assistant","message":{"content":[{"type":"text","text":"%b"}]}}\n' % text.encode()


def memory_rows(long: Session) -> list[tuple[str, float, float]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.ndjson"
        path.write_bytes(long.data)
        return [(f"convert --to {form}, peak MB", _peak_megabytes(path, form), 60.0) for form in FORMS]


# Run by a process of its own: a child's peak starts with the memory of the process that started it.
_MEASURE = """
import os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, 1, 0)])
_, status, usage = os.wait4(child, 0)
print(status, usage.ru_maxrss)
"""


def _peak_megabytes(path: Path, form: str) -> float:
    command = [sys.executable, "-m", "cursor_gateway", "convert", str(path), "--to", form]
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE, *command], capture_output=True, text=True, check=True, timeout=120
    )
    status, peak = map(int, measured.stdout.split())
    if status:
        raise SystemExit(f"cursor-gateway convert --to {form} failed")
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main() -> None:
    console = Console(soft_wrap=False)
    long = session(50_000, tools=60)
    if text_of(pieces(long.data)) != long.text or text_of(line + b"\n" for line in long.lines) != long.text:
        raise SystemExit("the text that came out is not the text that went in")
    table = Table(title=f"50,000 lines, {len(long.data) / 1e6:.1f} MB; median of {ROUNDS} interleaved rounds")
    for heading in ("what", "measured", "at most", ""):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    failed = False
    for rows, unit in ((pipeline_rows, "× decode"), (growth_rows, "×"), (memory_rows, "")):
        for what, measured, limit in rows(long):
            verdict = "[green]ok[/]" if measured <= limit else "[red]over[/]"
            table.add_row(what, f"{measured:.2f} {unit}", f"{limit:g}", verdict)
            failed = failed or (measured > FAR_OVER * limit and rows is not pipeline_rows)
    console.print(table)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
