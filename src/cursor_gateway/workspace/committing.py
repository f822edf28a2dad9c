"""Files of a workspace in; a commit of them in its repository, made when a person asks for it, out.

Git obeys the configuration of the repository that it runs in, which can name programs, and somebody else may have
written it. So git never runs in the repository. It runs in a new folder with a configuration of its own: it reads the
repository's objects and a copy of its index, and writes to the new folder. The new objects, the index and the branch
are then written here, folder by folder, through no link. No hook, filter, signature or helper is ever run.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from cursor_gateway.errors import FileChanged, InvalidRequest, NotFound
from cursor_gateway.model.changes import CommitRequest, CommitResult
from cursor_gateway.workspace.beneath import PathRefused, make_below, read_below, remove_below, write_below
from cursor_gateway.workspace.files import repository_of
from cursor_gateway.workspace.git_objects import changes_content

_SECONDS = 30
_MOST_BYTES = 100_000_000
_HASH = re.compile(r"[0-9a-f]{40}")
_BRANCH = re.compile(r"ref: (refs/heads/[^\x00-\x20\x7f~^:?*\[\\]+)\n?")
_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
_TITLE = 72  # letters of a message's first line
_CONFIGURATION = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


class _Head(Struct, frozen=True):
    top: str  # the repository's folder
    base: str  # below which no link is followed: `top`, or for a worktree that of the repository it belongs to
    git: str  # below it, with its index and HEAD: `.git`, or a worktree's folder in that
    common: str  # below it, with its objects and branches
    ref: str  # of its branch
    commit: str  # empty: there is none yet


class _File(Struct, frozen=True):
    path: str  # from the top of the repository
    data: bytes | None  # None: it was deleted
    mode: str = "100644"


def commit(workspace: str, paths: Sequence[str], title: str, request: CommitRequest) -> CommitResult:
    """The proposal of a commit, or the commit. Raises a `RequestError`."""
    wanted = [path for path in paths if request.paths is None or path in request.paths]
    if not wanted:
        raise NotFound("No changed file of this conversation is left to commit.", param="paths")
    try:
        head = _head(workspace)
        base = os.path.relpath(os.path.realpath(workspace), head.top)
        files = [_file(head.top, os.path.normpath(f"{base}/{path}")) for path in wanted]
    except PathRefused as refused:
        raise InvalidRequest(f"The changes cannot be committed here: {refused}.", param="paths") from None
    token = _token(head, files)
    branch = head.ref.removeprefix("refs/heads/")
    if request.message is None:
        return CommitResult(message=proposed(title, wanted), files=wanted, token=token, branch=branch)
    if request.token != token:
        raise FileChanged("The files or the branch have changed since the proposal. Ask for a new one.", param="token")
    try:
        return CommitResult(
            message=request.message, files=wanted, commit=_committed(head, files, request.message), branch=branch
        )
    except (PathRefused, OSError, subprocess.SubprocessError) as error:
        why = _last_line(error.stderr) if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise FileChanged(f"Nothing was committed: {why}. Commit with git itself.", param="message") from error


def checked_out(workspace: str) -> tuple[str, str]:
    """The workspace's place below the top of its repository, with a slash at its end, and the commit; both empty if
    there is none, or it cannot be read."""
    with suppress(PathRefused, OSError):
        found = repository_of(os.path.realpath(os.fsencode(workspace))) if workspace else None
        if found is not None:
            top = os.fsdecode(found)
            below = os.path.relpath(os.path.realpath(workspace), top)
            return "" if below == "." else f"{below}/", _checked_out_commit(*_folders(top))
    return "", ""


def proposed(title: str, paths: Sequence[str]) -> str:
    """The conversation's title, cut at a word, and the files if there are several."""
    words = " ".join(title.split()) or f"Change {paths[0]}"
    if len(words) > _TITLE:
        words = words[: _TITLE + 1].rpartition(" ")[0] or words[:_TITLE]
    return words if len(paths) == 1 else "\n".join([words, "", *(f"- {path}" for path in paths[:50])])


# --- the repository, read ---------------------------------------------------------------------------


def _head(workspace: str) -> _Head:
    """Raises `PathRefused`."""
    found = repository_of(os.path.realpath(os.fsencode(workspace)))
    if found is None:
        raise PathRefused("the folder is not in a git repository")
    top = os.fsdecode(found)
    base, git, common = _folders(top)
    if any(os.path.lexists(f"{base}/{git}/{name}") for name in _UNFINISHED):
        raise PathRefused("a merge or rebase is not finished; finish it with git first")
    attributes = (_text(top, ".gitattributes"), _text(base, f"{common}/info/attributes"))
    if any(changes_content(text.encode()) for text in attributes):
        raise PathRefused("the repository uses filters, such as Git LFS; only git itself may run them")
    named = _BRANCH.fullmatch(_text(base, f"{git}/HEAD"))
    if named is None or ".." in named[1]:
        raise PathRefused("no branch is checked out; check one out with `git switch` first")
    hash = _commit_of(base, common, named[1])
    if hash and not _HASH.fullmatch(hash):
        raise PathRefused("its branch cannot be read")
    return _Head(top, base, git, common, named[1], hash)


def _folders(top: str) -> tuple[str, str, str]:
    """The base, and below it where the index is, and where the objects are. A file `.git` can name any folder, and
    anybody may have written it: so the repository that it names must have a worktree here. It must not be in the
    worktree: there, an agent could replace a folder on its path by a link at any moment. Raises `PathRefused`."""
    own = f"{top}/.git"
    if os.path.islink(own):
        raise PathRefused("its .git is a link")
    if os.path.isdir(own):
        return top, ".git", ".git"
    git = os.path.realpath(os.path.join(top, _text(top, ".git").removeprefix("gitdir: ").strip()))
    common = os.path.dirname(os.path.dirname(git))
    is_worktree = os.path.basename(os.path.dirname(git)) == "worktrees" and _text(git, "commondir").strip() == "../.."
    is_here = os.path.realpath(_text(git, "gitdir").strip()) == os.path.realpath(own)
    if not is_worktree or not is_here or f"{git}/".startswith(f"{top}/"):
        raise PathRefused("its .git is not a folder, and it is not a worktree (perhaps a submodule)")
    base = os.path.dirname(common)
    return base, os.path.relpath(git, base), os.path.relpath(common, base)


def _checked_out_commit(base: str, git: str, common: str) -> str:
    """Of a branch, or without one."""
    head = _text(base, f"{git}/HEAD")
    named = _BRANCH.fullmatch(head)
    if named is not None and ".." in named[1]:
        return ""
    hash = _commit_of(base, common, named[1]) if named is not None else head.strip()
    return hash if _HASH.fullmatch(hash) else ""


def _text(folder: str, name: str) -> str:
    file = read_below(folder, name, _MOST_BYTES)
    return (file.data or b"").decode("utf-8", "replace") if file is not None else ""


def _commit_of(base: str, common: str, ref: str) -> str:
    """Empty if the branch has none yet."""
    return _text(base, f"{common}/{ref}").strip() or _packed(_text(base, f"{common}/packed-refs"), ref)


def _packed(refs: str, ref: str) -> str:
    return next((line[:40] for line in refs.split("\n") if line[40:] == f" {ref}"), "")


def _file(top: str, path: str) -> _File:
    try:
        file = read_below(top, path, _MOST_BYTES)
    except PathRefused as refused:
        raise PathRefused(f"`{path}`: {refused}") from refused
    if file is None:
        return _File(path, None)
    if file.data is None:
        raise PathRefused(f"{path} is too large")
    return _File(path, file.data, "100755" if file.mode & 0o100 else "100644")


def _token(head: _Head, files: Sequence[_File]) -> str:
    digest = hashlib.sha256(f"{head.ref} {head.commit}".encode())
    for file in files:
        data = hashlib.sha256(file.data).hexdigest() if file.data is not None else "-"
        digest.update(f"\0{file.path}\0{file.mode}\0{data}".encode())
    return digest.hexdigest()[:32]


# --- the commit, made elsewhere ---------------------------------------------------------------------


def _committed(head: _Head, files: Sequence[_File], message: str) -> str:
    """Raises `PathRefused`, `OSError`, `SubprocessError`."""
    git = shutil.which("git", path=os.pathsep.join(part for part in _path() if os.path.isabs(part)))
    if git is None:
        raise PathRefused("git is not installed")
    person = _person(git)
    with TemporaryDirectory(prefix="cursor-gateway-commit-") as name, _lock(head):
        folder = Path(name)
        for part in ("objects", "refs"):
            (folder / part).mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
        (folder / "config").write_bytes(_CONFIGURATION)
        run = _Git(git, folder, f"{head.base}/{head.common}/objects", person)
        if head.commit:
            run("read-tree", head.commit)
        changed = b"".join(_index_line(run, file) for file in files)
        run("update-index", "-z", "--index-info", given=changed)
        tree = run("write-tree")
        if head.commit and run("rev-parse", f"{head.commit}^{{tree}}") == tree:
            raise PathRefused("the files are the same as in the last commit")
        parents = ["-p", head.commit] if head.commit else []
        made = run("commit-tree", tree, *parents, given=message.encode("utf-8", "replace"))
        index = read_below(head.base, f"{head.git}/index", _MOST_BYTES)
        if index is not None and index.data is not None:  # with what else is staged in it
            (folder / "index").write_bytes(index.data)
            run("update-index", "-z", "--index-info", given=changed)
        _publish(head, folder, made)
    return made


def _path() -> list[str]:
    return os.environ.get("PATH", os.defpath).split(os.pathsep)


def _index_line(run: "_Git", file: _File) -> bytes:
    hash = run("hash-object", "-w", "--no-filters", "--stdin", given=file.data) if file.data is not None else "0" * 40
    return f"{file.mode if file.data is not None else 0} {hash}\t{file.path}\0".encode()


class _Git:
    """Runs git in a folder of our own."""

    def __init__(self, program: str, folder: Path, objects: str, person: Mapping[str, str]) -> None:
        self._program, self._folder = program, folder
        self._environment = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "GIT_DIR": str(folder),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(objects),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            **person,
        }

    def __call__(self, *words: str, given: bytes = b"") -> str:
        done = subprocess.run(
            [self._program, *words],
            input=given,
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            check=True,
            timeout=_SECONDS,
        )
        return done.stdout.decode().strip()


def _quoted(path: str) -> str:
    """In a list of folders, which colons separate."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _person(git: str) -> dict[str, str]:
    """The user's own name and address. Raises `PathRefused`."""
    environment = {"PATH": os.defpath, "HOME": os.path.expanduser("~"), "GIT_CONFIG_NOSYSTEM": "1"}
    found: dict[str, str] = {}
    for key, names in (
        ("user.name", ("AUTHOR_NAME", "COMMITTER_NAME")),
        ("user.email", ("AUTHOR_EMAIL", "COMMITTER_EMAIL")),
    ):
        done = subprocess.run(
            [git, "config", "--global", key],
            env=environment,
            cwd="/",
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        value = done.stdout.decode("utf-8", "replace").strip()
        if not value:
            raise PathRefused(f"git does not know who you are; set it with `git config --global {key}`")
        found |= {f"GIT_{name}": value for name in names}
    return found


# --- the repository, written ------------------------------------------------------------------------


@contextmanager
def _lock(head: _Head) -> Iterator[None]:
    """No other git writes to the index or the branch meanwhile. Raises `PathRefused`."""
    locks: list[str] = []
    try:
        for name in (f"{head.git}/index.lock", f"{head.common}/{head.ref}.lock"):
            make_below(head.base, name)
            locks.append(name)
        yield
    finally:
        for name in locks:
            with suppress(PathRefused):
                remove_below(head.base, name)


def _publish(head: _Head, folder: Path, commit: str) -> None:
    """The objects first: whatever is named later exists by then. Raises `PathRefused`."""
    if _commit_of(head.base, head.common, head.ref) != head.commit:
        raise PathRefused("the branch has changed")
    for file in sorted((folder / "objects").glob("??/*")):
        path = f"{head.common}/objects/{file.parent.name}/{file.name}"
        if read_below(head.base, path, _MOST_BYTES) is None:
            write_below(head.base, path, file.read_bytes(), 0o444)
    write_below(head.base, f"{head.common}/{head.ref}", f"{commit}\n".encode(), 0o644)
    write_below(head.base, f"{head.git}/index", (folder / "index").read_bytes(), 0o644)


def _last_line(stderr: bytes) -> str:
    return (stderr.decode("utf-8", "replace").strip().split("\n")[-1][:300] or "git failed").rstrip(".")
