"""The prompts that were typed before, in a file that only its user can read."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from prompt_toolkit.history import History

_KEPT = 1000  # prompts
_MOST_BYTES = 2_000_000  # of the file, before it is shortened


class PromptHistory(History):
    """One JSON string a line; several sessions may append to it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        prompts = self._read()
        with suppress(OSError):
            if self._file.stat().st_size > _MOST_BYTES:
                self._shorten(prompts)
        return reversed(prompts)

    def store_string(self, string: str) -> None:
        """What cannot be written is only missing in the next session."""
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            written = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(written, "ab") as file:
                file.write(_line(string))

    def _read(self) -> list[str]:
        try:
            lines = self._file.read_bytes().splitlines()[-_KEPT:]
        except OSError:
            return []
        prompts = []
        for line in lines:
            with suppress(msgspec.DecodeError):  # a line that was cut off
                prompts.append(msgspec.json.decode(line, type=str))
        return prompts

    def _shorten(self, prompts: list[str]) -> None:
        """To half of the limit at most."""
        lines, size = list[bytes](), 0
        for prompt in reversed(prompts):
            size += len(line := _line(prompt))
            if size > _MOST_BYTES // 2:
                break
            lines.append(line)
        made = self._file.with_suffix(f".{os.getpid()}")
        made.touch(mode=0o600)
        made.write_bytes(b"".join(reversed(lines)))
        made.replace(self._file)


def _line(prompt: str) -> bytes:
    """A lone surrogate cannot be encoded."""
    return msgspec.json.encode(prompt.encode("utf-8", "replace").decode()) + b"\n"
