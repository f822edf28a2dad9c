"""Combine the agent's edits of each file in a conversation."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import UNSET, Struct

from cursor_gateway.model.changes import FileChange
from cursor_gateway.model.documents import Diff, Document, FileEditDocument
from cursor_gateway.stages.diffs import diff_lines, split_lines
from cursor_gateway.stages.hunks import hunks_between

_LAST_LINE = 1_000_000  # whose edits are combined


class EditedFile(Struct, frozen=True, tag="edited"):
    """A file, by its last name, and its edits in their order."""

    path: str
    edits: list[FileEditDocument]


def edited_files(documents: Iterable[Document]) -> list[EditedFile]:
    """In the order in which the files were first changed. Edits that did not happen do not count."""
    files: dict[str, list[FileEditDocument]] = {}
    for document in documents:
        if not isinstance(document, FileEditDocument) or document.metadata.state is not UNSET:
            continue
        metadata = document.metadata
        if metadata.operation == "rename" and metadata.old_path and metadata.old_path in files:
            files[metadata.file_path] = files.pop(metadata.old_path)
        files.setdefault(metadata.file_path, []).append(document)
    return [EditedFile(path, edits) for path, edits in files.items()]


def combined(file: EditedFile) -> FileChange:
    """Those of a file with more lines than anybody writes are listed."""
    groups = [_Versions()]
    for edit in file.edits:
        metadata = edit.metadata
        if metadata.operation == "create":
            groups = [_Versions(split_lines(edit.content or ""))]
        elif metadata.operation == "delete":
            groups = [_Versions()]
        if metadata.diff is not UNSET:
            diff = metadata.diff
            if not 0 < diff.start_line <= _LAST_LINE:
                return listed(file)
            change = diff.start_line - 1, *diff_lines(diff, diff.old_string, diff.new_string)
            if not groups[-1].edit(*change):
                groups.append(_Versions())
                groups[-1].edit(*change)
    return _change(file, [part for group in groups for part in group.differences()])


def listed(file: EditedFile) -> FileChange:
    """Its edits as they are, for those that would take too long to combine."""
    diffs = [edit.metadata.diff for edit in file.edits if edit.metadata.diff is not UNSET]
    return _change(file, diffs)


def _change(file: EditedFile, diffs: list[Diff]) -> FileChange:
    operation = file.edits[0].metadata.operation
    for edit in file.edits[1:]:
        if edit.metadata.operation == "create":
            operation = "create" if operation in ("create", "delete") else "edit"
        elif edit.metadata.operation == "delete":
            operation = "delete"
    return FileChange(path=file.path, operation=operation, language=file.edits[0].metadata.language, diffs=diffs)


class _Versions:
    """The first version of a file and the last one, as far as edits show them."""

    def __init__(self, created: Sequence[str] = ()) -> None:
        self._replaced: dict[int, str] = {}  # lines of the first version, by their numbers from 0
        self._last: list[int | str] = [*created]  # its lines: new ones, and the numbers of those of the first version
        self._next = 0  # the number of the first version's line that follows them

    def edit(self, start: int, old: list[str], new: list[str]) -> bool:
        """A change of the last version. False, with nothing done, if it does not apply to that version."""
        end = start + len(old)
        if (missing := end - len(self._last)) > 0:
            self._last += range(self._next, self._next + missing)
            self._next += missing
        there = self._last[start:end]
        if any(isinstance(line, str) and line != known for line, known in zip(there, old, strict=True)):
            return False
        self._replaced |= {line: known for line, known in zip(there, old, strict=True) if isinstance(line, int)}
        self._last[start:end] = new
        return True

    def differences(self) -> Iterator[Diff]:
        at, new = 0, list[str]()
        for line in (*self._last, self._next):
            if isinstance(line, str):
                new.append(line)
                continue
            if new or at < line:
                yield from _parts(at, [self._replaced[number] for number in range(at, line)], new)
            at, new = line + 1, []


def _parts(at: int, old: list[str], new: list[str]) -> Iterator[Diff]:
    """Without the lines that are equal. The old ones begin after `at` lines."""
    for part in hunks_between(old, new):
        yield Diff(
            old_string="\n".join(old[part.old_start : part.old_end]),
            new_string="\n".join(new[part.new_start : part.new_end]),
            start_line=at + part.old_start + 1,
            end_line=at + part.old_start + max(part.removed, 1),
        )
