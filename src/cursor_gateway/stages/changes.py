"""Combine the agent's edits of each file in a conversation."""

from collections.abc import Iterable, Iterator

from msgspec import UNSET, Struct

from cursor_gateway.model.changes import FileChange
from cursor_gateway.model.documents import Diff, Document, FileEditDocument
from cursor_gateway.stages.diffs import diff_lines, split_lines
from cursor_gateway.stages.hunks import hunks_between

_BLOCK = 200  # hunks


class _Hunk(Struct):
    """Lines of the first version that lines of the last one replace."""

    old_start: int
    old: list[str]
    new: list[str]

    @property
    def shift(self) -> int:
        """How far it moves everything after it."""
        return len(self.new) - len(self.old)


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
    """Takes little more than linear time, unless most of a large file is changed again and again."""
    groups = [_Hunks()]
    for edit in file.edits:
        metadata = edit.metadata
        if metadata.operation == "create":
            groups = [_Hunks(split_lines(edit.content or ""))]
        elif metadata.operation == "delete":
            groups = [_Hunks()]
        if metadata.diff is not UNSET:
            diff = metadata.diff
            change = diff.start_line, *diff_lines(diff, diff.old_string, diff.new_string)
            if not groups[-1].merge(*change):
                groups.append(_Hunks())
                groups[-1].merge(*change)
    return _change(file, [part for group in groups for hunk in group for part in _parts(hunk)])


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


class _Hunks:
    """The changes between two versions: sorted, with unchanged lines between them.

    A hunk's place in the latest version is that in the first one, moved by all hunks before it. They are in blocks that
    know how far they move what follows, so that no change has to walk all of them.
    """

    def __init__(self, created: list[str] | None = None) -> None:
        self._blocks: list[list[_Hunk]] = [[] if created is None else [_Hunk(1, [], created)]]
        self._shifts = [len(created or ())]

    def __iter__(self) -> Iterator[_Hunk]:
        return (hunk for block in self._blocks for hunk in block)

    def merge(self, start: int, old: list[str], new: list[str]) -> bool:
        """A change of the latest version. False, with nothing done, if it does not apply to that version."""
        at, index, moved = self._find(start)
        touched = list(self._touched(at, index, moved, start + len(old)))
        if not all(_agrees(hunk, place, start, old) for hunk, place in touched):
            return False
        if not touched:
            self._blocks[at].insert(index, _Hunk(start - moved, old, new))
            self._shifts[at] += len(new) - len(old)
            self._split(at)
            return True
        base, place = touched[0]
        before = base.shift
        lead = old[: max(place - start, 0)]
        base.old[:0], base.new[:0] = lead, lead
        base.old_start, place = base.old_start - len(lead), place - len(lead)
        for hunk, hunk_place in touched[1:]:
            gap = old[place + len(base.new) - start : hunk_place - start]
            base.old += gap + hunk.old
            base.new += gap + hunk.new
        rest = old[max(place + len(base.new) - start, 0) :]
        base.old += rest
        base.new += rest
        base.new[start - place : start - place + len(old)] = new
        self._shifts[at] += base.shift - before
        self._remove(at, index + 1, len(touched) - 1)
        return True

    def _find(self, start: int) -> tuple[int, int, int]:
        """The first hunk that does not end before this line, and how far those before it move it."""
        at = moved = 0
        while at < len(self._blocks) - 1 and self._end(at) + moved < start:
            moved += self._shifts[at]
            at += 1
        for index, hunk in enumerate(self._blocks[at]):
            size = len(hunk.new)
            if hunk.old_start + size + moved >= start:
                return at, index, moved
            moved += size - len(hunk.old)
        return at, len(self._blocks[at]), moved

    def _end(self, at: int) -> int:
        """Of the last hunk of a block, in the version in which the hunks before the block are not applied."""
        last = self._blocks[at][-1]
        return last.old_start + len(last.old) + self._shifts[at]

    def _touched(self, at: int, index: int, moved: int, end: int) -> Iterator[tuple[_Hunk, int]]:
        """Hunks from this one on that begin before the end, or there, and where they begin."""
        for block in self._blocks[at:]:
            for hunk in block[index:]:
                if hunk.old_start + moved > end:
                    return
                yield hunk, hunk.old_start + moved
                moved += hunk.shift
            index = 0

    def _remove(self, at: int, index: int, count: int) -> None:
        while count:
            gone = self._blocks[at][index : index + count]
            del self._blocks[at][index : index + count]
            self._shifts[at] -= sum(hunk.shift for hunk in gone)
            count -= len(gone)
            if self._blocks[at]:
                at += 1
            else:
                del self._blocks[at], self._shifts[at]
            index = 0

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        if len(block) > _BLOCK:
            halves = block[: _BLOCK // 2], block[_BLOCK // 2 :]
            self._blocks[at : at + 1] = halves
            self._shifts[at : at + 1] = [sum(hunk.shift for hunk in half) for half in halves]


def _agrees(hunk: _Hunk, place: int, start: int, old: list[str]) -> bool:
    """Whether the lines that both know are the same."""
    first, last = max(start, place), min(start + len(old), place + len(hunk.new))
    return first >= last or hunk.new[first - place : last - place] == old[first - start : last - start]


def _parts(hunk: _Hunk) -> Iterator[Diff]:
    """Without the lines in it that are equal."""
    for part in hunks_between(hunk.old, hunk.new):
        start = hunk.old_start + part.old_start
        yield Diff(
            old_string="\n".join(hunk.old[part.old_start : part.old_end]),
            new_string="\n".join(hunk.new[part.new_start : part.new_end]),
            start_line=start,
            end_line=start + max(part.removed, 1) - 1,
        )
