"""Combine the agent's edits of each file in a conversation."""

from collections.abc import Iterable

from msgspec import UNSET, Struct

from cursor_gateway.model.documents import Diff, Document, FileEditDocument


class FileChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes to a file."""

    path: str
    operation: str  # create, edit, delete or rename: the first that counts
    language: str
    # In the order of its lines; if the file was changed in between by other means, those before and those after.
    diffs: list[Diff]
    can_revert: bool = False  # the file is as the agent left it


class _Hunk(Struct):
    """Lines of the first version that lines of the last one replace. Places are line numbers."""

    old_start: int
    old: list[str]
    new_start: int
    new: list[str]

    @property
    def new_end(self) -> int:
        return self.new_start + len(self.new)


def file_changes(documents: Iterable[Document]) -> list[FileChange]:
    """In the order in which the files were first changed. Edits that did not happen do not count."""
    files: dict[str, _File] = {}
    for document in documents:
        if not isinstance(document, FileEditDocument) or document.metadata.state is not UNSET:
            continue
        metadata = document.metadata
        if metadata.operation == "rename" and metadata.old_path and metadata.old_path in files:
            files[metadata.file_path] = files.pop(metadata.old_path)
        file = files.setdefault(metadata.file_path, _File(metadata.operation, metadata.language))
        file.push(document)
    return [file.change(path) for path, file in files.items()]


class _File:
    def __init__(self, operation: str, language: str) -> None:
        self._operation, self._language = operation, language
        self._groups: list[list[_Hunk]] = [[]]

    def push(self, document: FileEditDocument) -> None:
        metadata = document.metadata
        if metadata.operation == "create":
            self._operation = "create" if self._operation in ("create", "delete") else "edit"
            self._groups = [[_Hunk(1, [], 1, _lines(document.content or ""))]]
        elif metadata.operation == "delete":
            self._operation, self._groups = "delete", [[]]
        if metadata.diff is not UNSET:
            old, new = _lines(metadata.diff.old_string), _lines(metadata.diff.new_string)
            if not _merge(self._groups[-1], metadata.diff.start_line, old, new):
                self._groups.append([_Hunk(metadata.diff.start_line, old, metadata.diff.start_line, new)])

    def change(self, path: str) -> FileChange:
        hunks = [hunk for group in self._groups for hunk in group if hunk.old != hunk.new]
        return FileChange(
            path=path, operation=self._operation, language=self._language, diffs=[_diff(hunk) for hunk in hunks]
        )


def _merge(hunks: list[_Hunk], start: int, old: list[str], new: list[str]) -> bool:
    """Merges a change of the latest version into the hunks. False, with nothing done, if it does not apply to that
    version.
    """
    end, shift = start + len(old), len(new) - len(old)
    touched = [hunk for hunk in hunks if hunk.new_start <= end and hunk.new_end >= start]
    first = min([start, *(hunk.new_start for hunk in touched)])
    before, after = [hunk for hunk in hunks if hunk.new_end < start], [hunk for hunk in hunks if hunk.new_start > end]
    was: list[str] = []  # of the first version
    now: list[str] = []  # of the latest one, before this change
    for hunk in touched:
        gap = old[first + len(now) - start : hunk.new_start - start] if hunk.new_start > first + len(now) else []
        was += gap + hunk.old
        now += gap + hunk.new
    rest = old[max(first + len(now) - start, 0) :]
    was, now = was + rest, now + rest
    place = start - first
    if now[place : place + len(old)] != old:
        return False
    now[place : place + len(old)] = new
    moved = sum(len(hunk.new) - len(hunk.old) for hunk in before)
    for hunk in after:
        hunk.new_start += shift
    hunks[:] = [*before, _Hunk(first - moved, was, first, now), *after]
    return True


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _diff(hunk: _Hunk) -> Diff:
    end = hunk.old_start + max(len(hunk.old), 1) - 1
    return Diff(old_string="\n".join(hunk.old), new_string="\n".join(hunk.new), start_line=hunk.old_start, end_line=end)
