"""A request about the changed files of a conversation in; the list, the patch, or what was written, out.

Nothing is written unless all of it can be, and each file is compared once more right before it is written. A file that
is no longer as the agent left it is written only with the token of a preview that showed exactly that.
"""

import hashlib
from collections.abc import Callable, Sequence
from secrets import token_hex

from msgspec import UNSET, Struct

from cursor_gateway.errors import FileChanged, InvalidRequest, NotFound
from cursor_gateway.model.changes import (
    CommitRequest,
    FileChange,
    KeepRequest,
    KeptFiles,
    LineRange,
    LineTrace,
    ListedChanges,
    ListRequest,
    Patch,
    PatchRequest,
    RevertedFile,
    RevertedFiles,
    RevertRequest,
    ReviewRequest,
    ReviewResult,
    TraceRequest,
    WrittenFile,
)
from cursor_gateway.model.documents import Diff
from cursor_gateway.stages.hunks import FileContent, Hunk, hunks_between, is_binary, lines_of, patch_of, with_hunks
from cursor_gateway.stages.tool_documents import language_of
from cursor_gateway.workspace.beneath import PathRefused, path_below, read_below, remove_below, write_below
from cursor_gateway.workspace.change_log import (
    ChangeLog,
    ChangeStep,
    FileStep,
    FileVersion,
    KeepStep,
    KnownFile,
    RevertStep,
    TurnStep,
    files_of,
    is_same,
    known_files,
    merged,
    version_of,
)
from cursor_gateway.workspace.tree import MOST_FILE_BYTES

_MOST_PATCH = 2_000_000  # bytes of a preview
_MOST_CONTEXT = 10_000_000  # lines: whole files
_NOT_KNOWN = "its earlier content is not known"
_CHANGED = "it is no longer as the agent left it"
_NOT_RESTORABLE = "Its content before or after is unknown, over 1 MB, or was a link: it cannot be restored."
_NO_SUCH = "No file that changed is recorded for this."


class RestoreTarget(Struct, frozen=True):
    """A file as it is, as it was left by what is to be reverted, and as it should be; None does not exist."""

    path: str
    now: FileVersion | None
    left: FileVersion | None
    wanted: FileVersion | None
    data: bytes | None = None  # of `wanted`; None if it is unknown or does not exist
    problem: str = ""

    @property
    def is_changed_since(self) -> bool:
        return not is_same(self.now, self.left)


class Review:
    """The changes of one conversation. For a thread."""

    def __init__(
        self,
        workspace: str,
        log: ChangeLog,
        title: str = "",
        runs: Sequence[str] = (),
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`title` and `runs`, in order, are the conversation's. Files that a list comes to when it `is_over` are not
        compared.
        """
        self._workspace, self._log, self._title, self._is_over = workspace, log, title, is_over
        self._runs = runs
        self._steps = log.steps()
        self._read: dict[str, bytes | None] = {}  # contents of this workspace's files, by hash

    def perform(self, request: ReviewRequest) -> ReviewResult:
        """Raises `FileChanged`, `InvalidRequest`, `NotFound`."""
        match request:
            case ListRequest():
                return self._list(request.chat_id)
            case PatchRequest():
                return Patch(self._patch(request))
            case TraceRequest():
                return self._trace()
            case RevertRequest():
                return self._revert(request)
            case KeepRequest():
                return self._keep(request)
            case CommitRequest():
                from cursor_gateway.workspace.committing import commit

                paths = [file.path for file in known_files(self._steps) if not is_same(file.first, file.last)]
                return commit(self._workspace, paths, self._title, request)

    # --- lists and patches --------------------------------------------------------------------------

    def _list(self, chat_id: str | None) -> ListedChanges:
        turns = [step for step in self._steps if isinstance(step, TurnStep)]
        problems = {step.chat_id: step.problem for step in turns if step.problem}
        known = {step.chat_id: step.unread for step in turns if not step.problem}
        files = self._of_turn(chat_id) if chat_id is not None else known_files(self._steps)
        last = self._steps[-1] if self._steps else None
        undo = last.id if isinstance(last, RevertStep) else ""
        return ListedChanges([self._change(file) for file in files if _is_changed(file)], known, problems, undo)

    def _of_turn(self, chat_id: str) -> list[KnownFile]:
        steps = files_of(self._steps, chat_id) or []
        return [KnownFile(one.path, one.before, one.before, one.after, one.is_edit) for one in steps]

    def _change(self, file: KnownFile) -> FileChange:
        operation = "create" if file.first is None else "delete" if file.last is None else "edit"
        found, note = ([], "There was no time to compare it.") if self._is_over() else self._hunks(file)
        target = self._target(file, file.base)
        is_kept = is_same(file.base, file.last)
        before, after = (self._lines(version) for version in (file.base, file.last))
        return FileChange(
            path=file.path,
            operation=operation,
            language=language_of(file.path),
            diffs=[_diff(hunk, before, after) for hunk in found],
            can_revert=not (is_kept or target.problem or target.is_changed_since),
            hunks=[LineRange(h.old_start + 1, h.removed, h.new_start + 1, h.added) for h in found],
            added=sum(hunk.added for hunk in found) if not note else UNSET,
            removed=sum(hunk.removed for hunk in found) if not note else UNSET,
            version=_token([file.base, file.last]),
            is_kept=is_kept,
            is_edit=file.is_edit,
            note=note,
        )

    def _hunks(self, file: KnownFile) -> tuple[list[Hunk], str]:
        contents = [self._content(version) for version in (file.base, file.last)]
        if any(content is None for content in contents):
            return [], _NOT_RESTORABLE
        if any(is_binary(content or b"") for content in contents):
            return [], "It is a binary file."
        return hunks_between(*(lines_of(content or b"") for content in contents)), ""

    def _patch(self, request: PatchRequest) -> bytes:
        files = self._of_turn(request.chat_id) if request.chat_id is not None else known_files(self._steps)
        if request.path is not None:
            files = [file for file in files if file.path == self._named(request.path)]
        parts = []
        for file in files:
            old, new = (
                self._version(version) for version in (file.base if request.only_open else file.first, file.last)
            )
            if isinstance(old, str) or isinstance(new, str):
                parts.append(f"# {file.path}: its content is not known.\n".encode())
            else:
                parts.append(patch_of(file.path, old, new, min(request.context, _MOST_CONTEXT)))
        return b"".join(parts)

    def _version(self, version: FileVersion | None) -> FileContent | str | None:
        """With its content; a text if that is unknown."""
        if version is None:
            return None
        data = self._content(version)
        return _NOT_KNOWN if data is None else FileContent(data, version.mode)

    def _trace(self) -> LineTrace:
        from cursor_gateway.workspace.committing import checked_out
        from cursor_gateway.workspace.line_authors import changes_by_file, written_lines

        below, revision = checked_out(self._workspace)
        files: list[WrittenFile] = []
        problems = {step.problem for step in self._steps if isinstance(step, TurnStep) and step.problem}
        for path, changes in changes_by_file(self._steps).items():
            if self._is_over():
                problems.add("There was no time to compare all files.")
                break
            if lines := written_lines(changes, self._version_now(path), self._content):
                files.append(WrittenFile(f"{below}{path}", lines))
        return LineTrace(files=files, revision=revision, notes=sorted(problems))

    def _version_now(self, path: str) -> FileVersion | None:
        try:
            return self._now(path)
        except PathRefused:
            return None

    # --- reverting ----------------------------------------------------------------------------------

    def _revert(self, request: RevertRequest) -> RevertedFiles:
        targets = self._targets(request)
        token = _token(
            [version for one in targets for version in (one.now, one.wanted)], *(one.path for one in targets)
        )
        may_skip = request.before is not None or request.token is not None  # as the preview says
        if request.preview:
            files = [self._reverted(target) for target in targets]
            return RevertedFiles(files=files, token=token, patch=self._preview(targets))
        if request.token is not None and request.token != token:
            raise FileChanged("The files have changed since the preview. Look at a new preview.", param="token")
        for target in targets:
            if target.problem and not may_skip:
                raise _refusal(target.path, target.problem)
            if target.is_changed_since and not target.problem and request.token is None:
                raise _refusal(target.path, "it does not exist any more" if target.now is None else _CHANGED)
        # Deletions first: where a file was, there may be a folder to come.
        usable = sorted((one for one in targets if not one.problem), key=lambda one: one.wanted is not None)
        steps = [FileStep(target.path, target.now, target.wanted) for target in usable]
        self._log.keep(
            data for target in usable for data in (target.data, self._content(target.now)) if data is not None
        )
        undo, written = f"undo_{token_hex(8)}", 0
        try:
            for target in usable:
                self._write(target, f" {written} other files were reverted before it." if written else "")
                written += 1
        finally:
            if written:  # also if it is only a part: it can be undone
                self._log.append(RevertStep(undo, steps[:written]))
        return RevertedFiles(files=[self._reverted(target) for target in targets], undo=undo)

    def _targets(self, request: RevertRequest) -> list[RestoreTarget]:
        """What should be written: nothing else is."""
        if request.undo is not None:
            undone = [step for step in self._steps if isinstance(step, RevertStep) and step.id == request.undo]
            wanted = [(one, one.before) for one in merged(undone)]
        elif request.before is not None:
            wanted = [(one, one.before) for one in merged(self._since(request.before))]
        elif request.chat_id is not None:
            wanted = [(one, one.before) for one in files_of(self._steps, request.chat_id) or []]
        else:
            known = [file for file in known_files(self._steps) if not is_same(file.base, file.last)]
            wanted = [(FileStep(file.path, file.base, file.last), file.base) for file in known]
        if request.path is not None:
            path = self._named(request.path)
            wanted = [(one, version) for one, version in wanted if one.path == path]
        if not wanted:
            raise NotFound(_NO_SUCH, param="path")
        if request.hunks is not None:
            return [self._part(one, request) for one, _ in wanted]
        return [self._target(KnownFile(one.path, one.before, one.before, one.after), to) for one, to in wanted]

    def _since(self, chat_id: str) -> Sequence[ChangeStep]:
        """Those of this run and all later ones: it may have changed nothing itself."""
        runs = list(self._runs)
        since = runs[runs.index(chat_id) :] if chat_id in runs else [chat_id]
        for number, step in enumerate(self._steps):
            if isinstance(step, TurnStep) and step.chat_id in since:
                return self._steps[number:]
        raise NotFound(_NO_SUCH, param="before")

    def _part(self, one: FileStep, request: RevertRequest) -> RestoreTarget:
        """The file without some of its changes."""
        if request.path is None or request.version is None:
            raise InvalidRequest("`hunks` also needs `path` and `version`.", param="hunks")
        old, new = self._both(one.before, one.after, request.version)
        chosen = set(range(len(hunks_between(lines_of(old), lines_of(new))))) - set(request.hunks or ())
        data = with_hunks(old, new, chosen)
        mode = (one.after or one.before or FileVersion("", 0)).mode
        is_old = data == old  # then it may not have existed
        wanted = one.before if is_old else version_of(data, len(data), mode)
        known = KnownFile(one.path, one.before, one.before, one.after)
        return self._target(known, wanted, data)

    def _both(self, old: FileVersion | None, new: FileVersion | None, version: str) -> tuple[bytes, bytes]:
        if version != _token([old, new]):
            raise FileChanged("The changes of this file are not those that you saw. Load them again.", param="version")
        before, after = self._content(old), self._content(new)
        if before is None or after is None:
            raise FileChanged("The file's earlier content is not known.", param="hunks")
        return before, after

    def _target(self, file: KnownFile, wanted: FileVersion | None, data: bytes | None = None) -> RestoreTarget:
        try:
            now = self._now(file.path)
        except PathRefused as refused:
            return RestoreTarget(file.path, None, file.last, wanted, problem=str(refused))
        if wanted is not None and data is None:
            data = self._content(wanted)
        problem = _NOT_KNOWN if wanted is not None and data is None else ""
        if now is not None and not now.hash:
            problem = "it is too large"
        return RestoreTarget(file.path, now, file.last, wanted, data if wanted is not None else None, problem)

    def _write(self, target: RestoreTarget, done: str) -> None:
        try:
            if not (
                (target.now is None and self._now(target.path) is None) or is_same(self._now(target.path), target.now)
            ):
                raise PathRefused(_CHANGED)
            if target.wanted is None:
                if target.now is not None:
                    remove_below(self._workspace, target.path)
            elif target.data is not None:
                write_below(self._workspace, target.path, target.data, target.wanted.mode)
        except PathRefused as refused:
            raise _refusal(target.path, str(refused), done) from refused

    def _reverted(self, target: RestoreTarget) -> RevertedFile:
        if target.problem:
            return RevertedFile(path=target.path, action="skipped", reason=target.problem)
        before, after = self._content(target.now), target.data
        found = hunks_between(lines_of(before or b""), lines_of(after or b""))
        return RevertedFile(
            path=target.path,
            action="deleted" if target.wanted is None else "restored",
            added=sum(hunk.added for hunk in found),
            removed=sum(hunk.removed for hunk in found),
            is_changed_since=target.is_changed_since or UNSET,
        )

    def _preview(self, targets: Sequence[RestoreTarget]) -> str:
        parts = []
        for target in targets:
            now, wanted = self._version(target.now), target.wanted
            if target.problem or isinstance(now, str):
                continue
            if is_binary(now.data if now is not None else b"") or is_binary(target.data or b""):
                parts.append(f"{target.path} is a binary file.\n".encode())
                continue
            parts.append(patch_of(target.path, now, FileContent(target.data or b"", wanted.mode) if wanted else None))
        return b"".join(parts)[:_MOST_PATCH].decode("utf-8", "replace")

    # --- keeping ------------------------------------------------------------------------------------

    def _keep(self, request: KeepRequest) -> KeptFiles:
        files = [file for file in known_files(self._steps) if not is_same(file.base, file.last)]
        if request.path is not None:
            files = [file for file in files if file.path == self._named(request.path)]
        if not files:
            raise NotFound(_NO_SUCH, param="path")
        kept = {file.path: file.last for file in files}
        if request.hunks is not None:
            if request.path is None or request.version is None:
                raise InvalidRequest("`hunks` also needs `path` and `version`.", param="hunks")
            file = files[0]
            data = with_hunks(*self._both(file.base, file.last, request.version), set(request.hunks))
            self._log.keep([data])
            mode = (file.last or file.base or FileVersion("", 0)).mode
            version = version_of(data, len(data), mode)
            kept[file.path] = file.last if is_same(version, file.last) else version
        self._log.append(KeepStep(kept))
        return KeptFiles(list(kept))

    # --- files --------------------------------------------------------------------------------------

    def _named(self, path: str) -> str:
        try:
            return path_below(self._workspace, path)
        except PathRefused:
            raise NotFound(_NO_SUCH, param="path") from None

    def _now(self, path: str) -> FileVersion | None:
        """Raises `PathRefused`."""
        file = read_below(self._workspace, path, MOST_FILE_BYTES)
        if file is None:
            return None
        version = version_of(file.data, file.size, file.mode)
        self._read[version.hash] = file.data
        return version

    def _content(self, version: FileVersion | None) -> bytes | None:
        """Of a file that does not exist: nothing."""
        if version is None:
            return b""
        if version.hash not in self._read:
            self._read[version.hash] = self._log.content(version)
        return self._read[version.hash]

    def _lines(self, version: FileVersion | None) -> list[bytes]:
        return lines_of(self._content(version) or b"")


def _is_changed(file: KnownFile) -> bool:
    """Since the beginning, or since it was kept."""
    return not is_same(file.first, file.last) or not is_same(file.base, file.last)


def _diff(hunk: Hunk, before: Sequence[bytes], after: Sequence[bytes]) -> Diff:
    old, new = before[hunk.old_start : hunk.old_end], after[hunk.new_start : hunk.new_end]
    return Diff(
        old_string=b"".join(old).decode("utf-8", "replace").removesuffix("\n"),
        new_string=b"".join(new).decode("utf-8", "replace").removesuffix("\n"),
        start_line=hunk.old_start + 1,
        end_line=max(hunk.old_end, hunk.old_start + 1),
    )


def _token(versions: Sequence[FileVersion | None], *names: str) -> str:
    parts = [f"{one.hash} {one.size} {one.mode & 0o100}" if one is not None else "-" for one in versions]
    return hashlib.sha256("\n".join([*parts, *names]).encode()).hexdigest()[:32]


def _refusal(path: str, why: str, done: str = "") -> FileChanged:
    return FileChanged(
        f"`{path[:300]}` was not reverted: {why}.{done or ' No file was changed.'}",
        param="path",
    )
