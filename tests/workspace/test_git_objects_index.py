"""The index of real repositories is read as git reads it; anything else has no files."""

import hashlib
from pathlib import Path

import pytest

from cursor_gateway.workspace import git_objects
from cursor_gateway.workspace.git_objects import read_index
from tests.workspace.repositories import git


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_version_lists_what_git_lists(tmp_path: Path, version: str) -> None:
    git(tmp_path, "init", "-q")
    for number in range(40):
        file = tmp_path / ("folder" * (number % 5 + 1)) / f"{'x' * number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{number}\n" * 100)
    (tmp_path / ("long" * 50)).write_text("long\n")  # version 4 leaves out what a path shares with the one before
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    git(tmp_path, "add", "-A")
    (tmp_path / "later").write_text("later\n")
    if version == "3":
        git(tmp_path, "add", "-N", "later")  # only its name: such an entry makes the index extended
    git(tmp_path, "update-index", "--index-version", version)
    found = read_index((tmp_path / ".git" / "index").read_bytes())
    listed = git(tmp_path, "ls-files", "-s", "-z").rstrip(b"\0").split(b"\0")
    expected = {line.partition(b"\t")[2]: line.split()[1].decode() for line in listed if not line.startswith(b"120000")}
    expected.pop(b"later", None)
    assert {path: entry.hash.hex() for path, entry in found.items()} == expected
    status = (tmp_path / "tool").stat()
    entry = found[b"tool"]
    assert (entry.size, entry.modified_ns, entry.changed_ns) == (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    assert entry.inode == status.st_ino & 0xFFFFFFFF


def test_files_that_git_does_not_compare_are_left_out(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    git(tmp_path, "add", "-A")
    git(tmp_path, "update-index", "--assume-unchanged", "a")
    assert list(read_index((tmp_path / ".git" / "index").read_bytes())) == [b"b"]


def test_anything_else_has_no_files(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("a")
    git(tmp_path, "add", "-A")
    data = (tmp_path / ".git" / "index").read_bytes()
    assert read_index(b"") == {}
    assert read_index(data[:-1] + b"x") == {}

    def summed(body: bytes) -> bytes:
        return body + hashlib.sha1(body).digest()

    assert read_index(summed(b"DIRX" + data[4:-20])) == {}
    assert read_index(summed(data[:4] + b"\0\0\0\x09" + data[8:-20])) == {}
    assert read_index(summed(data[:11] + b"\xff" + data[12:-20])) == {}  # fewer entries than it says
    for end in range(12, len(data) - 20, 7):
        read_index(summed(data[:end]))


def test_a_small_index_cannot_name_many_long_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """In version 4 a path shares its beginning with the one before."""
    monkeypatch.setattr(git_objects, "_MOST_PATHS", 3000)
    entry = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(34)

    def index(*names: bytes) -> bytes:
        body = b"DIRC\0\0\0\x04" + len(names).to_bytes(4, "big") + b"".join(entry + name + b"\0" for name in names)
        return body + hashlib.sha1(body).digest()

    first = b"\0" + b"x" * 1000
    assert len(read_index(index(first, b"\0a"))) == 2
    assert read_index(index(first, b"\0a", b"\0b")) == {}
    assert read_index(index(first, b"\xff" * 1_000_000 + b"\0a")) == {}  # a number without a limit takes hours
