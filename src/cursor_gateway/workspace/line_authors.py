"""The recorded changes of a conversation's files in; which run wrote which of the lines that are there now, out; also
as a record of Agent Trace.

Each line has an author: a run, or nobody known. A step of the log replaces lines, found by comparing its two versions;
the new ones are its run's, and all others keep their authors. What somebody changed between two steps, or since the
last one, is nobody's. A version that was there before has the authors that it had, so a revert gives nothing away.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from typing import TypeAlias
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.model import changes
from cursor_gateway.model.changes import LineTrace, WrittenFile, WrittenLines
from cursor_gateway.stages.hunks import hunks_between, is_binary, lines_of
from cursor_gateway.workspace.change_log import ChangeStep, FileStep, FileVersion, KeepStep, TurnStep

_NOBODY = ""
_Content: TypeAlias = Callable[[FileVersion | None], bytes | None]


class _FileLines(Struct):
    hash: str  # of its version; empty: it is unknown, or there is no such file
    lines: list[bytes] | None  # None: they are unknown
    authors: list[str] = []  # of each line
    known: dict[str, list[str]] = {}  # the same of earlier versions, by their hashes


def changes_by_file(steps: Sequence[ChangeStep]) -> dict[str, list[tuple[str, FileStep]]]:
    """In the order in which files were first changed: each change with its author."""
    found: dict[str, list[tuple[str, FileStep]]] = {}
    for step in steps:
        if not isinstance(step, KeepStep):
            author = step.chat_id if isinstance(step, TurnStep) else _NOBODY
            for one in step.files:
                found.setdefault(one.path, []).append((author, one))
    return found


def written_lines(
    changes: Sequence[tuple[str, FileStep]], now: FileVersion | None, content: _Content
) -> list[WrittenLines]:
    """Of one file. `now` is the version that is there; `content` returns that of a version."""
    file = _first(changes[0][1].before, content)
    for author, change in changes:
        _move(file, change.before, _NOBODY, content)
        _move(file, change.after, author, content)
    _move(file, now, _NOBODY, content)
    return list(_ranges(file))


def _first(version: FileVersion | None, content: _Content) -> _FileLines:
    lines = _lines(version, content)
    return _FileLines(version.hash if version is not None else "", lines, [_NOBODY] * len(lines or ()))


def _lines(version: FileVersion | None, content: _Content) -> list[bytes] | None:
    data = content(version)
    return None if data is None or is_binary(data) else lines_of(data)


def _move(file: _FileLines, version: FileVersion | None, author: str, content: _Content) -> None:
    """To another version, whose new lines are this author's."""
    hash = version.hash if version is not None else ""
    if hash and hash == file.hash:
        return
    if file.hash:
        file.known[file.hash] = file.authors
    before, after = file.lines, _lines(version, content)
    if after is None or before is None:  # what is new cannot be found out
        authors = [_NOBODY] * len(after or ())
    else:
        authors, at = list[str](), 0
        for hunk in hunks_between(before, after):
            authors += [*file.authors[at : hunk.old_start], *[author] * hunk.added]
            at = hunk.old_end
        authors += file.authors[at:]
    if author == _NOBODY and hash in file.known:
        authors = file.known[hash]
    file.hash, file.lines, file.authors = hash, after, authors


def _ranges(file: _FileLines) -> Iterator[WrittenLines]:
    numbered = enumerate(zip(file.authors, file.lines or (), strict=True), 1)
    for author, group in groupby(numbered, lambda line: line[1][0]):
        lines = list(group)
        if author != _NOBODY:
            text = b"".join(line for _, (_, line) in lines).replace(b"\r\n", b"\n")
            yield WrittenLines(author, lines[0][0], lines[-1][0], hashlib.sha256(text).hexdigest())


# --- as a record of Agent Trace ----------------------------------------------------------------------


_LONGEST_MODEL = 250  # characters, by the specification


def trace_record(
    found: LineTrace, conversation_id: str, updated_ms: int, models: Mapping[str, str], url: str
) -> changes.TraceRecord:
    """`models` are those of the runs, in their order; `url` is the gateway's."""
    url = url.rstrip("/")
    own = f"{url}/v1/conversations/{conversation_id}"
    files = [changes.TraceFile(path=file.path, conversations=_by_run(file, own, models, url)) for file in found.files]
    return changes.TraceRecord(
        version=changes.VERSION,
        id=str(uuid5(NAMESPACE_URL, own + msgspec.json.encode(files).decode())),
        timestamp=datetime.fromtimestamp(updated_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        vcs=changes.TraceVcs(type="git", revision=found.revision) if found.revision else UNSET,
        tool=changes.TraceTool(name="cursor-gateway", version=version("cursor-gateway")),
        files=files,
        metadata={"cursor_gateway.notes": found.notes} if found.notes else UNSET,
    )


def _by_run(
    file: WrittenFile, conversation: str, models: Mapping[str, str], url: str
) -> list[changes.TraceConversation]:
    ranges: dict[str, list[changes.TraceRange]] = {run_id: [] for run_id in models}
    for lines in file.lines:
        own = changes.TraceRange(start_line=lines.start, end_line=lines.end, content_hash=f"sha256:{lines.hash}")
        ranges.setdefault(lines.chat_id, []).append(own)
    return [
        changes.TraceConversation(
            url=conversation,
            contributor=changes.TraceContributor(type="ai", model_id=_model_id(models.get(run_id, ""))),
            ranges=own,
            related=[changes.TraceResource(type="run", url=f"{url}/v1/chat/{run_id}")],
        )
        for run_id, own in ranges.items()
        if own
    ]


def _model_id(model: str) -> str | UnsetType:
    """The provider, and the model's name there."""
    return f"cursor/{'-'.join(model.split())}"[:_LONGEST_MODEL] if model else UNSET
