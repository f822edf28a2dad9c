"""A tree of a folder knows what its files contained, without reading what git or an earlier tree knows."""

import os
import stat
import time
from pathlib import Path

import pytest

from cursor_gateway.workspace import tree
from cursor_gateway.workspace.beneath import OnDisk, read_below
from cursor_gateway.workspace.tree import TreeEntry, is_secret, scan
from tests.workspace.repositories import git


def contents(root: Path) -> dict[str, bytes]:
    found = [path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def aged(root: Path) -> None:
    """Waits until its files are no longer recent."""
    newest = max(os.stat(path).st_ctime_ns for path in root.rglob("*"))
    while time.time_ns() < newest + 2 * tree.COARSE_NS:
        time.sleep(0.005)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, data in (("a.txt", b"a\n"), ("sub/b.bin", b"\0\xff"), ("sub/c", b"")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_contents_are_known_after_the_files_have_changed(root: Path) -> None:
    before, known = contents(root), scan(str(root))
    (root / "a.txt").write_text("changed\n")
    (root / "sub/c").unlink()
    assert {path: known.content(path) for path in known.entries} == before
    assert known.content("nothing") is None


def test_files_are_read_again_only_if_they_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aged(root)
    known = scan(str(root))
    read: list[str] = []

    def note(root: str, path: str, entry: TreeEntry, at_ns: int | None, left: int) -> TreeEntry:
        read.append(path)
        return entry

    monkeypatch.setattr(tree, "_read", note)
    scan(str(root), known)
    assert read == []
    (root / "a.txt").write_text("b\n")
    scan(str(root), known)
    assert read == ["a.txt"]
    scan(str(root.parent), known)  # another folder
    assert len(read) > 1


def test_a_file_that_changed_just_now_is_read_again(root: Path) -> None:
    (root / "a.txt").write_text("1\n")
    known = scan(str(root))
    assert known.entries["a.txt"].is_recent
    assert scan(str(root), known).content("a.txt") == b"1\n"


def test_a_file_that_changed_since_is_not_what_it_was(root: Path) -> None:
    aged(root)
    at_ns = time.time_ns()
    (root / "a.txt").write_text("later\n")
    known = scan(str(root), None, at_ns)
    assert known.content("a.txt") is None
    assert known.content("sub/b.bin") == b"\0\xff"
    assert scan(str(root), known).content("a.txt") == b"later\n"  # the next one reads it


def test_what_git_has_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(root, "init", "-q")
    git(root, "add", "-A")
    aged(root)
    (root / "sub" / "b.bin").write_bytes(b"dirty")
    (root / "new").write_bytes(b"new")
    git(root, "commit", "-qm", "x", "--", "a.txt")
    while time.time_ns() < (root / ".git/index").stat().st_mtime_ns + 2 * tree.COARSE_NS:
        time.sleep(0.005)
    git(root, "update-index", "--force-write-index")
    before = contents(root)
    known = scan(str(root))
    assert {path for path, entry in known.entries.items() if entry.in_git} >= {"a.txt"}
    assert not known.entries["new"].in_git
    assert not known.entries["sub/b.bin"].in_git
    (root / "a.txt").write_text("changed")
    assert {path: known.content(path) for path in known.entries} == before
    below = scan(str(root / "sub"))
    assert below.content("b.bin") == b"dirty"


def test_filters_of_a_repository_are_respected(root: Path) -> None:
    (root / ".gitattributes").write_text("*.txt filter=x\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    aged(root)
    assert not any(entry.in_git for entry in scan(str(root)).entries.values())


def test_ignored_files_and_secrets_are_left_out_and_links_not_followed(root: Path) -> None:
    git(root, "init", "-q")
    (root / ".gitignore").write_text("*.log\n")
    (root / ".cursorignore").write_text("private/\n")
    (root / "private").mkdir()
    for name in ("x.log", "private/x", ".env", "sub/.env.local", "server.pem", "id_rsa"):
        (root / name).write_text("secret\n")
    (root / ".env.example").write_text("no secret\n")
    (root / "link").symlink_to("a.txt")
    (root / "folder").symlink_to("sub")
    found = scan(str(root))
    links = {"link", "folder"}
    assert {*found.entries} == {"a.txt", "sub/b.bin", "sub/c", ".gitignore", ".cursorignore", ".env.example", *links}
    assert all(stat.S_ISLNK(found.entries[link].mode) and found.content(link) is None for link in links)
    for name in ("deep/.env", ".envrc", "production.env", ".git-credentials", "id_ecdsa"):
        assert is_secret(name)
    assert not is_secret("environment.py")


def test_limits_are_kept_and_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST_FILE_BYTES", 1)
    assert scan(str(root)).content("a.txt") is None
    monkeypatch.setattr(tree, "MOST_FILE_BYTES", 100)
    monkeypatch.setattr(tree, "_MOST_BYTES", 2)
    assert sum(scan(str(root)).content(path) is None for path in ("a.txt", "sub/b.bin")) == 1
    monkeypatch.setattr(tree, "_MOST_FILES", 2)
    assert scan(str(root)).problem == "The folder has more than 2 files."
    assert scan(str(root), is_gone=lambda: True).problem == "The folder is too large to be looked at in time."


def test_a_file_that_changes_between_two_looks_has_no_content(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the same size, and was listed before it was changed."""
    aged(root)

    def change_and_read(root: str, path: str, largest: int) -> OnDisk | None:
        if path == "a.txt":
            Path(root, path).write_text("b\n")
        return read_below(root, path, largest)

    monkeypatch.setattr(tree, "read_below", change_and_read)
    known = scan(str(root), None, time.time_ns())
    assert known.content("a.txt") is None
    assert known.content("sub/b.bin") == b"\0\xff"
    monkeypatch.undo()
    assert scan(str(root), known).content("a.txt") == b"b\n"
