"""Decisions about what an agent may do in; the rules for its next run out. One file per owner, in the data directory.

Rules come from documents that the gateway has written, never from a request. No owner sees or changes another's.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec

from cursor_gateway.errors import ApprovalForbidden, InvalidRequest
from cursor_gateway.model.answers import Permission, PermissionEntry
from cursor_gateway.model.documents import PermissionRequest
from cursor_gateway.sources.private_files import private_folder, write_private

_decoder = msgspec.json.Decoder(list[PermissionEntry])

_MOST = 1000  # decisions of one owner; the oldest that are no rules go first


class Permissions:
    def __init__(self, data: Path, now_ms: Callable[[], int], *, can_allow: bool = True) -> None:
        """`can_allow` False: callers may allow nothing, and what they allowed before has no effect."""
        self._data, self._now_ms, self.can_allow = data, now_ms, can_allow
        self._folder = str(data / "permissions")

    def check(self, permissions: Sequence[Permission]) -> None:
        if not self.can_allow and any(permission.is_allowed for permission in permissions):
            raise ApprovalForbidden(
                "This gateway does not let callers allow commands (`permissions` is `deny`); ask its operator to add "
                "a rule to `allow`."
            )

    def rules(self, owner: str, conversation_id: str, workspace: str) -> list[str]:
        """What the owner has allowed there. A file that cannot be read allows nothing."""
        if not self.can_allow:
            return []
        try:
            entries = self._read(_file(owner))
        except OSError:
            return []
        found = dict[str, None]()
        for entry in entries:
            if entry.applies_to(conversation_id, workspace):
                found |= dict.fromkeys(entry.rules)
        return list(found)

    def every(self, owner: str) -> list[PermissionEntry]:
        """The newest first. Raises `OSError`."""
        return self._read(_file(owner))[::-1]

    def known(self, owner: str, asked: tuple[str, str], permission: Permission) -> PermissionEntry | None:
        """The entry of the same decision. Raises `InvalidRequest` if it was decided differently, and `OSError`."""
        found = (entry for entry in self._read(_file(owner)) if (entry.chat_id, entry.document_id) == asked)
        if (known := next(found, None)) is not None and known.decision != permission.decision:
            raise InvalidRequest(
                f"This was already decided: {known.decision}; revoke it with DELETE /v1/permissions/{known.id} to "
                "decide again.",
                param="permissions",
            )
        return known

    def record(
        self,
        owner: str,
        place: tuple[str, str],
        asked: tuple[str, str],
        request: PermissionRequest,
        permission: Permission,
    ) -> PermissionEntry:
        """`place` is a workspace and a conversation, `asked` a run and its document. Repeating a decision returns the
        same entry. Raises what `known` does.
        """
        with self._locked() as folder:
            if (known := self.known(owner, asked, permission)) is not None:
                return known
            new = PermissionEntry(
                id=f"perm_{uuid4().hex}",
                decision=permission.decision,
                rules=request.rules,
                subject=request.subject,
                reason=permission.reason,
                workspace=place[0],
                conversation_id=place[1],
                chat_id=asked[0],
                document_id=asked[1],
                created=datetime.fromtimestamp(self._now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            _write(folder, _file(owner), _bounded([*self._read(_file(owner)), new]))
            return new

    def revoke(self, owner: str, id: str) -> bool:
        """False: there is none. Takes effect with the next run. Raises `OSError`."""
        with self._locked() as folder:
            entries = self._read(_file(owner))
            kept = [entry for entry in entries if entry.id != id]
            if len(kept) < len(entries):
                _write(folder, _file(owner), kept)
            return len(kept) < len(entries)

    def forget_conversation(self, conversation_id: str) -> None:
        """Of a deleted conversation, only rules for the workspace are kept, without its texts. Raises `OSError`."""
        if not (self._data / "permissions").is_dir():
            return
        with self._locked() as folder:
            for path in (self._data / "permissions").glob("*.json"):
                entries = self._read(path.name)
                kept = [_forgotten(entry) if entry.conversation_id == conversation_id else entry for entry in entries]
                if kept != entries:
                    _write(folder, path.name, [entry for entry in kept if entry is not None])

    # --- the file -----------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Another process may use the same directory."""
        with private_folder(self._data, self._folder) as folder:
            lock = os.open(".lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield folder
            finally:
                os.close(lock)

    def _read(self, file: str) -> list[PermissionEntry]:
        try:
            with open(f"{self._folder}/{file}", "rb") as opened:
                return _decoder.decode(opened.read())
        except (FileNotFoundError, msgspec.DecodeError):
            return []


def _write(folder: int, file: str, entries: Sequence[PermissionEntry]) -> None:
    write_private(folder, file, msgspec.json.encode(entries))


def _forgotten(entry: PermissionEntry) -> PermissionEntry | None:
    if entry.decision != "workspace":
        return None
    return msgspec.structs.replace(entry, subject="", conversation_id="", chat_id="", document_id="")


def _file(owner: str) -> str:
    return f"{hashlib.sha256(owner.encode()).hexdigest()[:32]}.json"


def _bounded(entries: list[PermissionEntry]) -> list[PermissionEntry]:
    surplus = len(entries) - _MOST
    kept = []
    for entry in entries:
        if surplus > 0 and entry.decision in ("once", "deny"):
            surplus -= 1
        else:
            kept.append(entry)
    return kept[-_MOST:]
