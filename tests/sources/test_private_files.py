"""Files in the gateway's own directory: private, and written through no link that an agent has planted."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cursor_gateway.sources.private_files import private_folder, read_private, remove_entry, secret_in, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_folders_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    base = tmp_path / "new" / "data"
    before = os.umask(0)
    try:
        with private_folder(base, base / "a" / "b") as folder:
            write_private(folder, "x", b"one")
    finally:
        os.umask(before)
    assert (base / "a" / "b" / "x").read_bytes() == b"one"
    assert [mode(path) for path in (base, base / "a", base / "a" / "b")] == [0o700] * 3
    assert mode(base / "a" / "b" / "x") == 0o600
    assert [path.name for path in (base / "a" / "b").iterdir()] == ["x"]


def test_a_file_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "x").chmod(0o666)
    with private_folder(tmp_path, tmp_path) as folder:
        write_private(folder, "x", b"new")
    assert ((tmp_path / "x").read_text(), mode(tmp_path / "x")) == ("new", 0o600)


def test_a_link_in_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "target"
    data.mkdir()
    target.write_text("untouched")
    (data / "x").symlink_to(target)
    (data / "dangling").symlink_to(tmp_path / "missing")
    with private_folder(data, data) as folder:
        write_private(folder, "x", b"new")
        write_private(folder, "dangling", b"new")
    assert target.read_text() == "untouched"
    assert not (tmp_path / "missing").exists()
    assert not (data / "x").is_symlink()


@pytest.mark.parametrize("level", ["a", "a/b", "a/b/c"])
def test_a_link_in_place_of_a_folder_is_an_error(tmp_path: Path, level: str) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    (outside / "b" / "c").mkdir(parents=True)
    (data / level).parent.mkdir(parents=True)
    (data / level).symlink_to(outside)
    with pytest.raises(OSError, match="a link to one"), private_folder(data, data / "a" / "b" / "c"):
        pass
    assert sorted(path.name for path in outside.rglob("*")) == ["b", "c"]


def test_the_operator_may_reach_the_directory_itself_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    with private_folder(tmp_path / "data", tmp_path / "data" / "a") as folder:
        write_private(folder, "x", b"")
    assert (tmp_path / "disk" / "a" / "x").exists()


def test_a_folder_that_is_opened_stays_the_one_it_was(tmp_path: Path) -> None:
    """Whoever swaps it for a link meanwhile gains nothing."""
    with private_folder(tmp_path, tmp_path / "a") as folder:
        (tmp_path / "a").rename(tmp_path / "moved")
        (tmp_path / "outside").mkdir()
        (tmp_path / "a").symlink_to(tmp_path / "outside")
        write_private(folder, "x", b"")
    assert (tmp_path / "moved" / "x").exists()
    assert list((tmp_path / "outside").iterdir()) == []


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with private_folder(tmp_path, tmp_path) as folder, pytest.raises(OSError, match="directory"):
        write_private(folder, "x", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_entry_is_removed_whatever_it_is(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    (data / "folder" / "below").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").touch()
    (data / "file").touch()
    (data / "link").symlink_to(outside)
    (data / "folder" / "link").symlink_to(outside)
    with private_folder(data, data) as folder:
        for name in ("folder", "file", "link", "missing"):
            remove_entry(folder, name)
    assert list(data.iterdir()) == []
    assert (outside / "kept").exists()


def test_a_folder_elsewhere_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not below"), private_folder(tmp_path / "a", tmp_path / "ab"):
        pass


def test_what_an_agent_has_put_there_is_read_only_if_it_is_an_ordinary_file(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    (data / "a").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (data / "a" / "x").write_bytes(b"one")
    assert read_private(data, data / "a" / "x") == b"one"
    (data / "a" / "link").symlink_to(outside / "secret")
    (data / "b").symlink_to(outside)
    os.mkfifo(data / "a" / "pipe")  # nobody writes to it
    for path in (data / "a" / "link", data / "b" / "secret", data / "a" / "pipe", data / "a", data / "missing"):
        with pytest.raises(OSError):  # noqa: PT011 -- of several kinds
            read_private(data, path)
    with pytest.raises(OSError, match="too large"):
        read_private(data, data / "a" / "x", largest=2)


# --- the gateway's secret ---------------------------------------------------------------------------


def test_a_secret_is_made_once_and_private(tmp_path: Path) -> None:
    secret = secret_in(tmp_path)
    assert len(secret) == 32
    assert secret_in(tmp_path) == secret
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["secret"]
    (tmp_path / "other").mkdir()
    assert secret_in(tmp_path / "other") != secret


def test_a_secret_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"short")
    assert len(secret_in(tmp_path)) == 32


def test_gateways_that_start_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(secret_in, [tmp_path] * 40))) == 1


def test_a_secret_on_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    assert secret_in(tmp_path) == secret_in(tmp_path)
    assert os.listdir(tmp_path) == ["secret"]


def test_a_link_in_place_of_the_secret_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"0" * 32)
    (tmp_path / "secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        secret_in(tmp_path)
