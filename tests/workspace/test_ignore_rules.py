"""Rules of `.gitignore` files: as git decides, and never slowly."""

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import thread_time

import pytest

from cursor_gateway.workspace.ignore_rules import IgnoreRules

NAMES = [
    "a",
    "b",
    "ab",
    "foo",
    "foobar",
    "fooxbar",
    "bar",
    "a.py",
    "b.o",
    "x y",
    "é",
    "[a]",
    "a-b",
    "A",
    "1",
    "-",
    "a*",
]
NAMES += ["!a", "#a", "a\\b", "a "]
ATOMS = [
    "*",
    "**",
    "**/",
    "/**",
    "***",
    "/",
    "?",
    "[ab]",
    "[!a]",
    "[^a-z]",
    "[a-",
    "[]a]",
    "[[:alpha:]]",
    "[[:digit:]a-c]",
]
ATOMS += [
    "[[:x:]]",
    "[[:a]",
    "[[:]",
    "[[",
    "[[::]]",
    "\\",
    "\\*",
    "\\ ",
    " ",
    "!",
    "#",
    "a",
    "b",
    "foo",
    "bar",
    ".py",
    "é",
    "-",
]
ATOMS += [
    "[a\\]b]",
    "[a-\\c]",
    "[a-\\",
    "[b-a]",
    "[--0]",
    "[",
    "]",
    "**\\/",
    "a/",
    "foo**/bar",
    "/foo",
    "[/]",
    "[!/]",
    "[\\\\]",
    "\r",
]


def verdict(rules: IgnoreRules, path: str, *, is_folder: bool = False) -> bool | None:
    """As for a walk: an ignored folder ignores all that is in it."""
    parts = path.split("/")
    found = None
    for count, part in enumerate(parts, 1):
        mark = "/" if count < len(parts) or is_folder else ""
        found = rules.verdict(os.fsencode(mark + "/".join(parts[:count])), os.fsencode(mark + part))
        if found:
            break
    return found


def rules(*lines: str) -> IgnoreRules:
    return IgnoreRules("\n".join(lines).encode())


@pytest.mark.parametrize(
    ("lines", "ignored", "kept"),
    [
        (["*.log"], ["a.log", "x/a.log", ".log"], ["a.logs", "log"]),
        (["/a"], ["a", "a/b"], ["x/a"]),
        (["x/a"], ["x/a"], ["y/x/a"]),
        (["a/"], ["a/b"], ["a", "x/a"]),
        (["**/a"], ["a", "x/a", "x/y/a"], ["ab"]),
        (["a/**/b"], ["a/b", "a/x/b", "a/x/y/b"], ["ab", "x/a/b"]),
        (["a/**"], ["a/b", "a/b/c"], ["a", "b/a"]),
        (["*.py", "!b.py"], ["a.py"], ["b.py", "x/b.py"]),
        (["a/*", "!a/b"], ["a/c"], ["a/b"]),
        (["# a", "", "\\#b", "\\!c"], ["#b", "!c"], ["# a", "a", "c"]),
        (["a ", "b\\ ", "c\\\\ "], ["a", "b ", "c\\"], ["a ", "b", "c\\ "]),
        (["a\r"], ["a"], ["a\r"]),
        (["\ufeffa"], ["a"], ["\ufeffa"]),
        (["[a-c]x", "[!a-z]y"], ["bx", "1y"], ["dx", "ay"]),
        (["?"], ["a"], ["ab", "é"]),  # one byte
        (["a[", "b\\", "[[:none:]]", "[[:alpha", "/", "//", "!", "x" * 2000], [], ["a[", "a", "b\\", "b", "x" * 2000]),
    ],
)
def test_what_is_ignored(lines: list[str], ignored: list[str], kept: list[str]) -> None:
    for path in ignored:
        assert verdict(rules(*lines), path), path
    for path in kept:
        assert not verdict(rules(*lines), path), path


def test_a_file_without_a_pattern_is_empty() -> None:
    assert not rules("", "# nothing", "!")
    assert rules("a")


def test_many_patterns_keep_their_order() -> None:
    """They are in several expressions: the last one that matches decides all the same."""
    many = [f"name-{number}-*" for number in range(500)]
    assert verdict(rules(*many, "!name-7-x"), "name-7-x") is False
    assert verdict(rules("!name-7-x", *many), "name-7-x") is True
    assert verdict(rules(*many), "name-499-x") is True


HOSTILE = [
    "*a" * 100 + "b",
    "**/" * 100 + "b",
    "**/*a" * 60 + "/b",
    "?*" * 200 + "b",
    "*" * 900 + "b",
    "[a-a]*" * 100 + "b",
    "a*" * 200,
    "**/a/" * 60 + "b",
    "*\\a" * 100 + "b",
    "/a*" * 100 + "/b",
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Some of them take a backtracking matcher longer than the universe has existed; a second is two hundred times
    what any of them takes."""
    found = rules(pattern)
    began = thread_time()
    for path in ("a" * 250, "/".join(["a" * 50] * 20), "/".join(["a"] * 60), "/".join(["a" * 250] * 15)):
        name = path.rpartition("/")[2]
        assert found.verdict(path.encode(), name.encode()) in (None, True)
    assert thread_time() - began < 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.quick_cases(2)
def test_git_decides_the_same(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    paths = tree(chance, tmp_path)
    matched = 0
    for _ in range(25):
        pattern = "".join(chance.choice(ATOMS) for _ in range(chance.randint(1, 5)))
        if chance.random() < 0.3:
            pattern = chance.choice(["foo", "a", "ab", "**"]) + pattern
        (tmp_path / ".git" / "info" / "exclude").write_bytes(pattern.encode() + b"\n")
        expected = checked_by_git(tmp_path, [path for path, _ in paths])
        found = [verdict(rules(pattern), path, is_folder=is_folder) for path, is_folder in paths]
        differing = [
            (path, theirs) for (path, _), theirs, ours in zip(paths, expected, found, strict=True) if theirs != ours
        ]
        assert not differing, (pattern, differing)
        matched += len(expected) - expected.count(None)
    assert matched  # or nothing was compared


def tree(chance: random.Random, root: Path) -> list[tuple[str, bool]]:
    """Files and folders below it, and which of them are folders."""
    for _ in range(150):
        file = root.joinpath(*(chance.choice(NAMES) for _ in range(chance.randint(1, 4))))
        if not file.is_dir() and not any(parent.is_file() for parent in file.parents):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    found = [path.relative_to(root) for path in sorted(root.rglob("*"))]
    return [(str(path), (root / path).is_dir()) for path in found if path.parts[0] != ".git"]


def checked_by_git(root: Path, paths: Sequence[str]) -> list[bool | None]:
    command = ["git", "check-ignore", "--no-index", "-v", "-n", "-z", "--stdin"]
    given = "".join(f"{path}\0" for path in paths).encode()
    fields = subprocess.run(command, cwd=root, input=given, capture_output=True, check=False).stdout.split(b"\0")
    return [None if not fields[at] else not fields[at + 2].startswith(b"!") for at in range(0, 4 * len(paths), 4)]
