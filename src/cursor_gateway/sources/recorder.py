"""Record the agent's output in a file that can be replayed. A failure here never fails the run."""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from cursor_gateway.wire.lines import LineSplitter

PROMPT_REMOVED = "[prompt removed]"

_KEPT = frozenset({"type", "subtype", "role", "session_id"})  # in a user record, any other text may be the prompt
_USER = re.compile(rb'\s*\{\s*"type"\s*:\s*"user"')
_SHAPE = b'{"type":"user","message":{"content":[{"type":"text","text":"[prompt removed]"}]}}'
_UNSAFE = re.compile(r"[^\w.-]")
_EVENT_START = re.compile(rb"^\{", re.MULTILINE)


class Recorder:
    def __init__(
        self,
        directory: Path,
        *,
        prompts: bool,
        warn: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`warn` is called at most once per run, with the reason why it is not recorded."""
        self._directory, self._prompts, self._warn, self._now = directory, prompts, warn, now

    def begin(self, run_id: str) -> "RunRecording":
        name = f"{self._now():%Y%m%dT%H%M%SZ}-{_UNSAFE.sub('_', run_id)[:100]}.ndjson"
        return RunRecording(self._directory / name, prompts=self._prompts, warn=self._warn)


class RunRecording:
    """One run's file. Until the run ends its name ends in `.part`, which marks it as incomplete."""

    def __init__(self, path: Path, *, prompts: bool, warn: Callable[[str], None]) -> None:
        self._path, self._warn = path, warn
        self._part = path.with_name(f"{path.name}.part")
        self._lines = None if prompts else LineSplitter()
        self._ends_line = True
        self._file: BinaryIO | None = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = open(self._part, "xb", opener=_private)  # noqa: SIM115 -- `end` closes it
        except OSError as error:
            self._give_up(error)

    def write(self, chunk: bytes, /) -> None:
        if self._lines is not None:
            chunk = b"".join([without_prompt(line) + b"\n" for line in self._lines.push(chunk)])
        self._write(chunk)

    def end(self, stderr: bytes = b"") -> None:
        """Appends a failed agent's stderr after its output, as plain lines."""
        if self._lines is not None:
            self._write(b"".join(map(without_prompt, self._lines.flush())))
        if stderr.strip():
            # An event starts with a brace in the first column, so these lines must not.
            text = _EVENT_START.sub(b" {", stderr.strip(b"\r\n"))
            self._write((b"" if self._ends_line else b"\n") + text + b"\n")
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
                self._part.replace(self._path)
            except OSError as error:
                self._give_up(error)

    def _write(self, data: bytes) -> None:
        if self._file is None or not data:
            return
        try:
            self._file.write(data)
            self._file.flush()  # so that a killed gateway leaves what was recorded so far
        except OSError as error:
            self._give_up(error)
        else:
            self._ends_line = data.endswith(b"\n")

    def _give_up(self, error: OSError) -> None:
        """Deletes the file: a partial recording is worth less than space on a full disk."""
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None:
                file.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)
        self._warn(f"The run is not recorded: {self._part} cannot be written: {error.strerror}.")


def without_prompt(line: bytes) -> bytes:
    """A line of the agent's output. In the record that repeats the prompt, all other text is replaced."""
    if b'"user"' not in line:  # nearly every line; inside a text the quotes would be escaped
        return line
    try:
        record = json.loads(line)
        if isinstance(record, dict) and record.get("type") == "user":
            return json.dumps(_without_texts(record), separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        if _USER.match(line):  # the agent may have been stopped in the middle of it
            return _SHAPE
    return line


def _without_texts(value: Any) -> Any:
    match value:
        case str():
            return PROMPT_REMOVED
        case list(items):
            return [_without_texts(item) for item in items]
        case dict(fields):
            return {
                key: field if key in _KEPT and isinstance(field, str) else _without_texts(field)
                for key, field in fields.items()
            }
        case _:
            return value


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
