"""Which conversation a session is. An editor gets a session's id before the conversation exists, and keeps it.

A conversation that began elsewhere has its own id as a session, too.
"""

import os
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct

_LARGEST = 1_000_000  # bytes: some ten thousand sessions; then the older half is forgotten


class _Entry(Struct, frozen=True):
    session: str
    conversation: str


class SessionIds:
    """In a file that the processes of several editors append to."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def new(self) -> str:
        return f"acp_{uuid4().hex}"

    def note(self, session_id: str, conversation_id: str) -> None:
        """Empty: nothing was sent in it yet. Raises `OSError`."""
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        line = msgspec.json.encode(_Entry(session_id, conversation_id)) + b"\n"
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size > _LARGEST:
            self._shorten()

    def conversation(self, session_id: str) -> str | None:
        """Empty if nothing was sent in the session. None: it is not known."""
        if session_id.startswith("conv_"):
            return session_id
        return next((one.conversation for one in reversed(self._entries()) if one.session == session_id), None)

    def by_conversation(self) -> dict[str, str]:
        """The sessions of conversations that have another id."""
        return {one.conversation: one.session for one in self._entries() if one.conversation}

    def _entries(self) -> list[_Entry]:
        try:
            lines = self._file.read_bytes().splitlines()
        except OSError:
            return []
        return [entry for line in lines if (entry := _read(line)) is not None]

    def _shorten(self) -> None:
        entries = self._entries()
        kept = entries[len(entries) // 2 :]
        temporary = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        temporary.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in kept))
        temporary.chmod(0o600)
        temporary.replace(self._file)


def _read(line: bytes) -> _Entry | None:
    try:
        return msgspec.json.decode(line, type=_Entry)
    except msgspec.DecodeError:
        return None
