"""Two versions of a file as hunks and as a patch: exact for any bytes, and accepted by git."""

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.stages import hunks
from cursor_gateway.stages.hunks import FileContent, Hunk, hunks_between, is_binary, lines_of, patch_of, with_hunks

_LINES = st.sampled_from(
    [b"a", b"b", b"c", b"", b"\r", b"\xef\xbb\xbfx", b"\xff\xfe", b"+plus", b"-minus", b"@@ -1 +1 @@"]
)
_TEXTS = st.builds(
    lambda lines, end: b"\n".join(lines) + (b"\n" if end and lines else b""),
    st.lists(_LINES, max_size=30),
    st.booleans(),
)


@given(old=_TEXTS, new=_TEXTS, data=st.data())
def test_any_subset_of_hunks_is_applied_exactly(old: bytes, new: bytes, data: st.DataObject) -> None:
    before, after = lines_of(old), lines_of(new)
    assert b"".join(before) == old
    found = hunks_between(before, after)
    assert with_hunks(old, new, ()) == old
    assert with_hunks(old, new, range(len(found))) == new
    chosen = data.draw(st.sets(st.integers(0, max(len(found) - 1, 0))))
    mixed = with_hunks(old, new, chosen)
    # What the hunks say, written out once more: equal lines outside of them, and one side of each.
    expected, at = b"", 0
    for number, hunk in enumerate(found):
        assert before[at : hunk.old_start] == after[hunk.new_start - (hunk.old_start - at) : hunk.new_start]
        expected += b"".join(before[at : hunk.old_start])
        side = after[hunk.new_start : hunk.new_end] if number in chosen else before[hunk.old_start : hunk.old_end]
        expected += b"".join(side)
        at = hunk.old_end
    assert mixed == expected + b"".join(before[at:])
    for one, later in pairwise(found):
        assert one.old_end < later.old_start
        assert one.new_end < later.new_start


def test_numbers_are_those_of_the_changed_lines() -> None:
    old = [f"line {number}" for number in range(3000)]
    new = [f"changed {number}" if number % 2 else line for number, line in enumerate(old)]
    found = hunks_between(old, new)
    assert len(found) == 1500
    assert sum(hunk.added for hunk in found) == sum(hunk.removed for hunk in found) == 1500
    assert found[0] == Hunk(1, 2, 1, 2)


def test_lines_that_repeat_are_compared_too() -> None:
    old, new = ["x", "y"] * 50, ["x", "y"] * 20 + ["new"] + ["x", "y"] * 30
    assert hunks_between(old, new) == [Hunk(40, 40, 40, 41)]
    assert [(hunk.removed, hunk.added) for hunk in hunks_between(list("abcabba"), list("cbabac"))] != [(7, 6)]


def test_work_is_limited_and_the_result_still_correct() -> None:
    old, new = b"a\nb\n" * 30_000, b"b\nc\na\n" * 20_000
    assert with_hunks(old, new, range(len(hunks_between(lines_of(old), lines_of(new))))) == new
    assert hunks_between(["a", "b"] * 400, ["b", "b", "c"] * 400)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def applied(repository: Path, path: str, old: bytes | None, patch: bytes) -> bytes | None:
    file = repository / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    if old is not None:
        file.write_bytes(old)
    subprocess.run(["git", "-C", repository, "apply", "--whitespace=nowarn", "-"], input=patch, check=True)
    return file.read_bytes() if file.exists() else None


_CASES: list[tuple[bytes | None, bytes | None]] = [
    (b"alpha\nbeta\n", b"alpha\nbeta\none more line\n"),
    (b"alpha\nbeta", b"alpha\nbeta\n"),
    (b"a\r\nb\r\n", b"a\r\nB\r\n"),
    (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n"),
    (b"\xff\xfea\n", b"\xff\xfeb\n"),
    (None, b"new\n"),
    (None, b"no end"),
    (b"old\n", None),
    (b"", b"a\n"),
    (b"a\n", b""),
    (None, b""),
    (b"", None),
    (b"a\0b\n", b"a\0c\n"),
    (None, bytes(range(256)) * 9),
    (bytes(range(200)), None),
    (b"text\n", b"\0"),
    (b"".join(b"%d\n" % n for n in range(100)), b"".join(b"%d\n" % (n * 2 if n % 30 == 1 else n) for n in range(100))),
]


@pytest.mark.parametrize("path", ["a.txt", "with space/ü ñ.txt", 'quo"te\\x.txt', "tab\tfile.txt"])
def test_git_applies_the_patch(repository: Path, path: str) -> None:
    for old, new in _CASES:
        patch = patch_of(
            path, FileContent(old) if old is not None else None, FileContent(new) if new is not None else None
        )
        assert applied(repository, path, old, patch) == new


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(20))
def test_git_applies_any_patch(repository: Path, seed: int) -> None:
    from random import Random

    random = Random(seed)
    for _ in range(20):
        lines = [bytes([random.choice(b"abc\r\xff ")]) * random.randint(0, 3) for _ in range(random.randint(1, 40))]
        old = b"\n".join(lines) + random.choice([b"", b"\n"])
        for _ in range(random.randint(1, 5)):
            at = random.randrange(len(lines) + 1)
            lines[at : at + random.randint(0, 3)] = [b"new"] * random.randint(0, 3)
        new = b"\n".join(lines) + random.choice([b"", b"\n"])
        patch = patch_of("f", FileContent(old), FileContent(new), random.randint(0, 4) or 1)
        if old != new:
            assert applied(repository, "f", old, patch) == new


def test_modes_are_named(repository: Path) -> None:
    patch = patch_of("run", FileContent(b"x\n", 0o644), FileContent(b"x\n", 0o755))
    assert applied(repository, "run", b"x\n", patch) == b"x\n"
    assert (repository / "run").stat().st_mode & 0o100
    assert b"new file mode 100755" in patch_of("run", None, FileContent(b"x\n", 0o755))
    assert patch_of("x", FileContent(b"a"), FileContent(b"a")) == b""
    assert patch_of("x", FileContent(b"a", 0o644), FileContent(b"a", 0o600)) == b""
    assert is_binary(b"a\0")
    assert not is_binary(b"a" * 9000 + b"\0")


def test_a_comparison_that_takes_too_long_is_less_fine_but_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = b"a\nb\n" * 50, b"b\nc\na\n" * 50
    fine = hunks_between(lines_of(old), lines_of(new))
    monkeypatch.setattr(hunks, "_MOST_WORK", 10)
    coarse = hunks_between(lines_of(old), lines_of(new))
    assert len(coarse) < len(fine)
    assert with_hunks(old, new, range(len(coarse))) == new
