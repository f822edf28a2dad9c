"""Contents that git stores are read without git: loose, packed, as differences; nothing else is believed."""

import random
import shutil
import zlib
from pathlib import Path

import pytest

from cursor_gateway.workspace import git_objects as module
from cursor_gateway.workspace.git_objects import Repository, _inflated, _patched, changes_content
from tests.workspace.repositories import git


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """With versions of a file that are stored as differences from each other."""
    git(tmp_path, "init", "-q")
    chance = random.Random(1)
    lines = [f"line {number} {chance.random()}\n" for number in range(2000)]
    for turn in range(12):
        lines[turn * 50 : turn * 50 + 3] = [f"new {turn} {chance.random()}\n"]
        (tmp_path / "big.txt").write_text("".join(lines))
        (tmp_path / f"{turn}.bin").write_bytes(chance.randbytes(1000))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", str(turn))
    return tmp_path


def every_blob(top: Path) -> dict[bytes, bytes]:
    listed = git(top, "cat-file", "--batch-all-objects", "--batch-check").decode().split("\n")
    hashes = [line.split()[0] for line in listed if " blob " in line]
    return {bytes.fromhex(hash): git(top, "cat-file", "blob", hash) for hash in hashes}


@pytest.mark.parametrize("how", ["loose", "packed", "by hash", "twice"])
def test_every_object_is_read(top: Path, how: str) -> None:
    blobs = every_blob(top)
    assert len(blobs) == 24
    if how == "packed":
        git(top, "repack", "-adfq", "--depth=50")
    elif how == "by hash":
        git(top, "-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq")
    elif how == "twice":
        git(top, "repack", "-dq")
        (top / "more").write_text("more\n")
        git(top, "add", "-A")
        git(top, "commit", "-qm", "more")
        git(top, "repack", "-dq")
    repository = Repository(f"{top}/.git")
    assert {hash: repository.blob(hash) for hash in blobs} == blobs
    assert repository.blob(b"\0" * 20) is None
    head = bytes.fromhex(git(top, "rev-parse", "HEAD").decode().strip())
    assert repository.blob(head) is None  # a commit is no file


def test_damaged_or_hostile_objects_are_unknown(top: Path) -> None:
    hashes = list(every_blob(top))
    git(top, "repack", "-adfq", "--depth=50")
    (pack,) = (top / ".git/objects/pack").glob("*.pack")
    (index,) = (top / ".git/objects/pack").glob("*.idx")
    chance, whole, names = random.Random(2), pack.read_bytes(), index.read_bytes()
    repository = Repository(f"{top}/.git")
    good = {hash: repository.blob(hash) for hash in hashes}
    pack.chmod(0o644)
    index.chmod(0o644)
    for _ in range(40):
        for file, data in ((pack, bytearray(whole)), (index, bytearray(names))):
            for _ in range(20):
                data[chance.randrange(len(data))] = chance.randrange(256)
            file.write_bytes(data)
        for hash in hashes:
            assert repository.blob(hash) in (None, good[hash])
    pack.write_bytes(whole[:100])
    index.write_bytes(names)
    assert {repository.blob(hash) for hash in hashes} == {None}
    index.write_bytes(b"not an index")
    assert repository.blob(hashes[0]) is None


def test_an_object_under_the_name_of_another_is_unknown(top: Path) -> None:
    (top / "a").write_bytes(b"one\n")
    hash = git(top, "hash-object", "-w", "a").decode().strip()
    stored = top / ".git/objects" / hash[:2] / hash[2:]
    assert Repository(f"{top}/.git").blob(bytes.fromhex(hash)) == b"one\n"
    stored.chmod(0o644)
    stored.write_bytes(zlib.compress(b"blob 4\0two\n"))
    assert Repository(f"{top}/.git").blob(bytes.fromhex(hash)) is None


@pytest.mark.parametrize("commands", [b"\0" * 9, b"\xb0\xff\xff", b"\x91\x05\x09"])
def test_a_difference_of_unknown_commands_or_beyond_its_base_is_refused(commands: bytes) -> None:
    with pytest.raises(ValueError, match="not"):
        _patched(b"base", b"\x04\x04" + commands)


def test_what_is_cut_off_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pack").write_bytes(zlib.compress(b"content " * 10)[:-4])
    monkeypatch.setattr(module, "_MOST_BYTES", 50)
    with (tmp_path / "pack").open("rb") as file, pytest.raises(ValueError, match="too large"):
        _inflated(file.fileno(), 0)
    with pytest.raises(ValueError, match="too large"):
        _patched(b"x" * 40, b"\x28\x50" + b"\x90\x28" * 2)
    monkeypatch.undo()
    with (tmp_path / "pack").open("rb") as file, pytest.raises(ValueError, match="too early"):
        _inflated(file.fileno(), 0)


def test_an_object_behind_too_many_differences_is_unknown(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = list(every_blob(top))
    git(top, "repack", "-adfq", "--depth=50")
    monkeypatch.setattr(module, "_MOST_DEPTH", 1)
    found = [Repository(f"{top}/.git").blob(hash) for hash in hashes]
    assert None in found
    assert any(found)


def test_an_object_that_differs_from_a_missing_one_is_unknown(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = list(every_blob(top))
    git(top, "-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq")
    repository = Repository(f"{top}/.git")
    found, depth = repository._packed, module._MOST_DEPTH
    monkeypatch.setattr(repository, "_packed", lambda name, left: found(name, left) if left == depth else None)
    assert None in [repository.blob(hash) for hash in hashes]


def test_there_may_be_no_packs(top: Path) -> None:
    (hash, *_) = every_blob(top)
    shutil.rmtree(top / ".git/objects/pack")
    assert Repository(f"{top}/.git").blob(hash) is not None
    assert Repository(f"{top}/.git").blob(b"\0" * 20) is None


def test_links_lead_nowhere(top: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    hashes = list(every_blob(top))
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    (other / ".git/objects").rename(other / "unused")
    (other / ".git/objects").symlink_to(top / ".git/objects")
    assert Repository(f"{other}/.git").blob(hashes[0]) is None


def test_a_repository_whose_objects_are_elsewhere_is_not_used(top: Path) -> None:
    repository = Repository(f"{top}/.git")
    files, written_ns = repository.files()
    assert len(files) == 13
    assert written_ns == (top / ".git/index").stat().st_mtime_ns
    (top / ".git/objects/info").mkdir(exist_ok=True)
    (top / ".git/objects/info/alternates").write_text("/elsewhere\n")
    assert len(repository.files()[0]) == 13  # it is read again only when the index changes
    assert Repository(f"{top}/.git").files()[0] == {}
    (top / ".git/objects/info/alternates").unlink()
    git(top, "repack", "-adfq")
    (pack,) = (top / ".git/objects/pack").glob("*.pack")
    pack.with_suffix(".promisor").touch()
    assert Repository(f"{top}/.git").files()[0] == {}
    assert Repository("/nonexistent").files() == ({}, 0)


def test_filters_are_noticed() -> None:
    assert changes_content(b"*.psd filter=lfs diff=lfs\n")
    assert changes_content(b"*.c ident\n")
    assert not changes_content(b"*.py text eol=lf\n")
