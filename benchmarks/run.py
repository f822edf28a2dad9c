"""A long session in; what the pure pipeline costs in units of the bare decoding of its lines, and `convert`, out.

The rounds of all contenders are interleaved and a ratio is taken within each round, so that a noisy machine moves both
sides; what is shown is the median. `python -m benchmarks.run` measures these alone.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from benchmarks.failing import BenchmarkFailed
from benchmarks.found import Found, Part
from benchmarks.report import report
from benchmarks.sessions import Session, session
from cursor_gateway import ChunkEncoder, CompletionHead, DocumentEvent, DocumentReader, RunInfo, SseEncoder, TextEncoder
from cursor_gateway.sources.cursor.records import decode

ROUNDS = 7
PIECE = 65_536
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


def pipeline(long: Session) -> Part:
    if text_of(pieces(long.data)) != long.text or text_of(line + b"\n" for line in long.lines) != long.text:
        raise BenchmarkFailed("The text that came out of the pipeline is not the text that went in.")
    found = ratios(contenders(long), "decode")
    yield "pipeline chat blocks", Found(found["chat, 64 kB"])
    yield "pipeline documents blocks", Found(found["documents, 64 kB"])
    yield "pipeline chat lines", Found(found["chat, lines"])
    yield "pipeline documents lines", Found(found["documents, lines"])
    yield from _growth(long)
    yield from _memory(long)


def _growth(long: Session) -> Part:
    small, large = pieces(session(5_000, tools=6).data), pieces(long.data)
    by_length = ratios({"5k": lambda: convert(small, SseEncoder()), "50k": lambda: convert(large, SseEncoder())}, "5k")
    ten, twenty = (pieces(_one_long_line(size)) for size in (10_000_000, 20_000_000))
    by_line = ratios(
        {"10 MB": lambda: convert(ten, SseEncoder()), "20 MB": lambda: convert(twenty, SseEncoder())}, "10 MB"
    )
    yield "pipeline growth", Found(by_length["50k"])
    yield "pipeline long line", Found(by_line["20 MB"])


def _one_long_line(size: int) -> bytes:
    text = "All work and no play makes a long line. " * (size // 40)
    return b'{"type":"assistant","message":{"content":[{"type":"text","text":"%b"}]}}\n' % text.encode()


def _memory(long: Session) -> Part:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.ndjson"
        path.write_bytes(long.data)
        for form in FORMS:
            yield f"convert {form}", Found(_peak_megabytes(path, form))


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
        raise BenchmarkFailed(f"`cursor-gateway convert --to {form}` failed.")
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main() -> int:
    return report(dict(pipeline(session(50_000, tools=60))))


if __name__ == "__main__":
    sys.exit(main())
