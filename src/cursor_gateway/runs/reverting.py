"""The files that a conversation changed in; the same files as they were before, on disk, out.

Nothing is written unless all of it fits. Paths come from documents, which an agent has written: they are opened folder
by folder below the workspace, and a link among them is refused.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct

from cursor_gateway.errors import FileChanged
from cursor_gateway.model.documents import ChatResponse, FileEditDocument
from cursor_gateway.stages.reverting import Before, Misfit, before

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES = 20_000_000
_SECONDS = 5.0
_REASONS = {
    "changed": "it is no longer as the agent left it",
    "gone": "it does not exist any more",
    "unrecorded": "its earlier text was not recorded",
    "large": "it is too large, or has too many edits",
}


class FileEdits(Struct, frozen=True):
    """All edits of one file, by documents, and when the last of them had ended."""

    path: str  # as in the documents
    edits: list[FileEditDocument]
    ended_ms: int


class RevertedFile(Struct, frozen=True):
    """A reverted file."""

    path: Annotated[str, Meta(description="Its path.")]
    action: Annotated[
        Literal["restored", "deleted"], Meta(description="`restored`, or `deleted` if the agent had created it.")
    ]


class _File(Struct, frozen=True):
    text: str | None
    mode: int = 0o644
    modified_ms: int = 0


def edits_of(responses: Sequence[tuple[ChatResponse, int]]) -> list[FileEdits]:
    """The edits by file. Each response comes with the time of its end; replayed edits never happened, so they are
    skipped.
    """
    found: dict[str, FileEdits] = {}
    for response, ended_ms in responses:
        if response.metadata.recording is not UNSET:
            continue
        for document in response.documents:
            if isinstance(document, FileEditDocument) and document.metadata.state is UNSET:
                path = document.metadata.file_path
                known = found[path].edits if path in found else []
                known.append(document)
                found[path] = FileEdits(path, known, ended_ms)
    return list(found.values())


def fitting(workspace: str, files: Sequence[FileEdits], is_gone: Callable[[], bool]) -> set[str]:
    """The paths of those that can be reverted now. What cannot be found out in time is not one of them."""
    until = time.monotonic() + _SECONDS

    def is_over() -> bool:
        return is_gone() or time.monotonic() > until

    return {file.path for file in files if not is_over() and _fits(workspace, file, is_over)}


def _fits(workspace: str, file: FileEdits, is_over: Callable[[], bool]) -> bool:
    try:
        _before(workspace, file, is_over)
    except FileChanged:
        return False
    return True


def revert(workspace: str, files: Sequence[FileEdits]) -> list[RevertedFile]:
    """Raises `FileChanged`, with nothing written, if one of them does not fit."""
    planned = [(file, *_before(workspace, file)) for file in files]
    return [_written(workspace, file, now, was) for file, now, was in planned]


def _before(workspace: str, file: FileEdits, is_over: Callable[[], bool] = lambda: False) -> tuple[_File, Before]:
    with _folder_of(workspace, file.path) as (folder, name):
        now = _read(folder, name, file.path)
    was = before(now.text, file.edits, is_untouched=now.modified_ms <= file.ended_ms, is_over=is_over)
    if isinstance(was, Misfit):
        raise _refusal(file.path, _REASONS[was.reason])
    return now, was


def _written(workspace: str, file: FileEdits, now: _File, was: Before) -> RevertedFile:
    with _folder_of(workspace, file.path) as (folder, name):
        if _read(folder, name, file.path) != now:
            raise _refusal(file.path, _REASONS["changed"])
        try:
            if was.text is None:
                os.unlink(name, dir_fd=folder)
                return RevertedFile(file.path, "deleted")
            _replace(folder, name, was.text.encode("utf-8", "surrogateescape"), now.mode)
        except OSError as error:
            raise _refusal(file.path, f"it cannot be written ({error.strerror})") from error
    return RevertedFile(file.path, "restored")


# --- the file system --------------------------------------------------------------------------------


@contextmanager
def _folder_of(workspace: str, path: str) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that the file is in, and the file's name."""
    parts = _parts(workspace, path)
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            try:
                below = os.open(part, _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                raise _refusal(path, _REASONS["gone"]) from None
            except OSError as error:
                raise _refusal(path, "a folder on its path is a link, or cannot be read") from error
            os.close(folder)
            folder = below
        yield folder, parts[-1]
    finally:
        os.close(folder)


def _parts(workspace: str, path: str) -> tuple[str, ...]:
    """Below the workspace; the path may be absolute."""
    whole = PurePosixPath(workspace) / path
    for root in (PurePosixPath(workspace), PurePosixPath(Path(workspace).resolve())):
        if whole.is_relative_to(root):
            parts = whole.relative_to(root).parts
            if parts and ".." not in parts and "\0" not in path:
                return parts
    raise _refusal(path, "it is not in the conversation's folder")


def _read(folder: int, name: str, path: str) -> _File:
    try:
        file = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        return _File(None)
    except OSError as error:
        raise _refusal(path, "it is a link, or cannot be read") from error
    with open(file, "rb") as opened:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST_BYTES:
            raise _refusal(path, "it is not a text file, or too large")
        text = opened.read().decode("utf-8", "surrogateescape")
    return _File(text, stat.S_IMODE(facts.st_mode), facts.st_mtime_ns // 1_000_000)


def _replace(folder: int, name: str, data: bytes, mode: int) -> None:
    """Under a new name first, so that readers see one version or the other."""
    temporary = f".{name[:100]}.{token_hex(8)}"
    file = os.open(temporary, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        with open(file, "wb") as opened:
            opened.write(data)
            os.fchmod(file, mode)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _refusal(path: str, why: str) -> FileChanged:
    return FileChanged(f"`{path[:300]}` was not reverted: {why}. No file was changed.", param="path")
