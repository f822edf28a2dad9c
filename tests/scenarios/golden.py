"""Scenario folders in, their expected files out: `python -m tests.scenarios.golden` writes them all anew.

Review the difference before it is kept: an expected file says what is right, not what is current. A file
that somebody else has decided (the specification's examples) is `fixed` in its `about.toml`: it is never
written, and a difference is reported.
"""

import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from cursor_gateway import (
    ChunkEncoder,
    CompletionFold,
    CompletionHead,
    DocumentEvent,
    NdjsonEncoder,
    RunInfo,
    SseEncoder,
    TextEncoder,
    encode_response,
    read_events,
    read_response,
)

FOLDER = Path(__file__).parent
HEAD = CompletionHead(id="chatcmpl-scenario", created=1771842600, model="cursor-agent")


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario's `about.toml`."""

    shows: str
    cli: str  # the version whose shapes the recording uses
    flags: list[str]
    note: str = ""
    options: dict[str, Any] = {}  # fields of RunInfo
    fixed: list[str] = []  # expected files that are not ours to write


class Scenario(msgspec.Struct, frozen=True):
    folder: Path
    about: About
    run: RunInfo

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def lines(self) -> list[bytes]:
        """The recording as a slow agent writes it: one line at a time, so that every delta keeps its grain."""
        with (self.folder / "agent.ndjson").open("rb") as recording:
            return recording.readlines()

    def expected(self, file: str) -> str:
        return (self.folder / file).read_bytes().decode()


def scenario(name: str) -> Scenario:
    about = msgspec.convert(tomllib.loads((FOLDER / name / "about.toml").read_text(encoding="utf-8")), About)
    given = {"id": "chat_scenario", "created": "2026-02-23T10:30:00Z", **about.options}
    return Scenario(FOLDER / name, about, msgspec.convert(given, RunInfo))


def scenarios() -> list[Scenario]:
    return [scenario(path.parent.name) for path in sorted(FOLDER.glob("*/about.toml"))]


def _documents_json(lines: list[bytes], run: RunInfo) -> bytes:
    return _pretty(encode_response(read_response(lines, run)))


def _openai_chat_json(lines: list[bytes], run: RunInfo) -> bytes:
    fold = CompletionFold(HEAD)
    for event in read_events(lines, run):
        fold.push(event)
    return _pretty(msgspec.json.encode(fold.completion()))


def _pretty(json: bytes) -> bytes:
    return msgspec.json.format(json, indent=2) + b"\n"


def _said(push: Callable[[DocumentEvent], bytes], events: Iterable[DocumentEvent]) -> bytes:
    return b"".join(push(event) for event in events)


DIALECTS: dict[str, Callable[[list[bytes], RunInfo], bytes]] = {
    "documents.json": _documents_json,
    "documents.sse": lambda lines, run: _said(SseEncoder().push, read_events(lines, run)),
    "documents.ndjson": lambda lines, run: _said(NdjsonEncoder().push, read_events(lines, run)),
    "openai_chat.json": _openai_chat_json,
    "openai_chat.sse": lambda lines, run: _said(ChunkEncoder(HEAD, include_usage=True).push, read_events(lines, run)),
    "text.txt": lambda lines, run: _said(TextEncoder().push, read_events(lines, run)),
}


def write(found: Scenario) -> list[Path]:
    """Write a scenario's expected files anew; the fixed ones that are not what is said now are left as they are."""
    differing = []
    for file, said in DIALECTS.items():
        path = found.folder / file
        now = said(found.lines, found.run)
        if file not in found.about.fixed:
            path.write_bytes(now)
        elif now != path.read_bytes():
            differing.append(path)
    return differing


def main() -> int:
    differing = [path for found in scenarios() for path in write(found)]
    for path in differing:
        sys.stderr.write(
            f"{path.relative_to(FOLDER)} is fixed and was left alone, but the output differs: mend the code.\n"
        )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
