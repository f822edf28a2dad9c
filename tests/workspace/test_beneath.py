"""Files of a workspace are read and written below it only, whatever is in the way."""

import os
from pathlib import Path

import pytest

from cursor_gateway.workspace.beneath import PathRefused, make_below, path_below, read_below, remove_below, write_below


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", ".", "a\0b"])
def test_no_path_leads_out_of_the_workspace(tmp_path: Path, path: str) -> None:
    with pytest.raises(PathRefused):
        path_below(str(tmp_path), path)
    with pytest.raises(PathRefused):
        read_below(str(tmp_path), path, 9)
    with pytest.raises(PathRefused):
        write_below(str(tmp_path), path, b"", 0o644)


def test_a_path_may_be_absolute_or_pass_a_link_to_the_workspace(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    assert path_below(str(real), f"{real}/a/b") == "a/b"
    assert path_below(str(link), f"{real}/a") == "a"


def test_links_are_refused(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    outside.mkdir()
    work.mkdir()
    (outside / "secret").write_text("secret")
    (work / "file").symlink_to(outside / "secret")
    (work / "folder").symlink_to(outside)
    os.mkfifo(work / "pipe")
    for path in ("file", "folder/secret", "pipe"):
        with pytest.raises(PathRefused):
            read_below(str(work), path, 99)
    with pytest.raises(PathRefused):
        write_below(str(work), "folder/new", b"x", 0o644)
    with pytest.raises(PathRefused):
        remove_below(str(work), "folder/secret")
    with pytest.raises(PathRefused):
        make_below(str(work), "folder/new")
    write_below(str(work), "file", b"x", 0o640)  # replaces the link, not its target
    assert (outside / "secret").read_text() == "secret"
    assert list(outside.iterdir()) == [outside / "secret"]
    assert not (work / "file").is_symlink()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_below(str(tmp_path), "new/folder/file", b"x" * 10, 0o4750)
    found = read_below(str(tmp_path), "new/folder/file", 10)
    assert found is not None
    assert (found.data, found.size, found.mode) == (b"x" * 10, 10, 0o750)
    long = read_below(str(tmp_path), "new/folder/file", 9)
    assert long is not None
    assert (long.data, long.size) == (None, 10)
    remove_below(str(tmp_path), "new/folder/file")
    assert read_below(str(tmp_path), "new/folder/file", 9) is None
    assert read_below(str(tmp_path), "no/such/folder", 9) is None
    with pytest.raises(PathRefused):
        remove_below(str(tmp_path), "new/folder/file")
    make_below(str(tmp_path), "lock")
    with pytest.raises(PathRefused):
        make_below(str(tmp_path), "lock")
    make_below(str(tmp_path), "new/folder/kept")
    with pytest.raises(PathRefused):
        write_below(str(tmp_path), "new/folder", b"", 0o644)
    assert (tmp_path / "new/folder/kept").exists()
    remove_below(str(tmp_path), "new/folder/kept")
    assert read_below(str(tmp_path), "new/folder", 9) is None
    write_below(str(tmp_path), "new/folder", b"", 0o644)  # in the place of an empty folder
    assert read_below(str(tmp_path), "new/folder/kept", 9) is None
