"""Listing the files of a folder: as git does it, without starting git, within limits."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from cursor_gateway.workspace import files as workspace_files
from cursor_gateway.workspace.files import find_files

PATTERNS = [
    "*.log",
    "a",
    "b/",
    "/c",
    "!keep.log",
    "d/**",
    "**/e",
    "!d/",
    "*",
    "!*/",
    "!*.py",
    "a/*",
    "!a/b",
    "f?",
    "[a-c]*",
]
NAMES = ["a", "b", "c", "d", "e", "fg", "x.log", "keep.log", "m.py", "n.txt"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def listed(folder: Path, query: str = "") -> list[str]:
    return sorted(find_files(str(folder), query, 10_000, seconds=600))


def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


def listed_by_git(folder: Path) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout
    return sorted(filter(None, out.decode().split("\0")))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.quick_cases(4)
def test_the_list_is_gits(seed: int, work: Path, home: Path) -> None:
    chance = random.Random(seed)
    repository(work)
    folders = {work}
    for _ in range(120):
        file = work.joinpath(*(chance.choice(NAMES) for _ in range(chance.randint(1, 4))))
        if not file.is_dir() and not any(parent.is_file() for parent in file.parents):
            write(file.parent, **{file.name: ""})
            folders.add(file.parent)
    for folder in sorted(folders):
        if folder == work or chance.random() < 0.2:
            write(folder, **{".gitignore": "\n".join(chance.choices(PATTERNS, k=chance.randint(1, 5)))})
    write(work / ".git", **{"info/exclude": chance.choice(PATTERNS)})
    write(home, **{".config/git/ignore": chance.choice(PATTERNS)})
    assert listed(work) == listed_by_git(work)
    for folder in chance.sample(sorted(folders), 3):
        if listed_by_git(folder):  # what git ignores as a whole is listed, if it is itself the workspace
            assert listed(folder) == listed_by_git(folder)


def test_outside_of_a_repository_hidden_and_built_folders_are_left_out(work: Path) -> None:
    write(work, **{"a.py": "", ".env": "", ".gitignore": "a.py", ".cache/x": "", "node_modules/x": "", "src/b.py": ""})
    assert listed(work) == [".env", ".gitignore", "a.py", "src/b.py"]


def test_rules_of_folders_above_count_up_to_the_repository(work: Path) -> None:
    write(work.parent, **{".gitignore": "b.py"})  # not part of it
    write(repository(work), **{".gitignore": "*.log\n/sub/a.py", "sub/a.py": "", "sub/b.py": "", "sub/x.log": ""})
    assert listed(work / "sub") == ["b.py"]


def test_a_repository_inside_has_its_own_rules(work: Path) -> None:
    """With a `.git` that is a folder, or a file, as in a submodule."""
    write(repository(work), **{".gitignore": "*.log", "a.py": ""})
    write(repository(work / "inner"), **{".gitignore": "*.tmp", "b.log": "", "b.tmp": ""})
    write(work / "module", **{".git": "gitdir: ../.git/modules/module", "c.log": ""})
    assert listed(work) == [".gitignore", "a.py", "inner/.gitignore", "inner/b.log", "module/c.log"]
    assert "inner/" in listed_by_git(work)  # where git says no more


def test_an_ignored_folder_is_not_entered_even_if_it_is_a_repository(work: Path) -> None:
    write(repository(work), **{".gitignore": "inner/"})
    write(repository(work / "inner"), **{"b.py": ""})
    assert listed(work) == [".gitignore"]


def test_links_are_not_followed(work: Path, tmp_path: Path) -> None:
    write(tmp_path, **{"rules": "*.py", "outside/secret": ""})
    write(repository(work), **{"a.py": ""})
    (work / ".gitignore").symlink_to(tmp_path / "rules")
    (work / "folder").symlink_to(tmp_path / "outside")
    (work / "file").symlink_to(tmp_path / "rules")
    (work / "nothing").symlink_to(work / "gone")
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "pipe")
    assert listed(work) == [".gitignore", "a.py", "file"]


@pytest.mark.parametrize("kind", ["folder", "fifo", "binary", "large"])
def test_what_is_no_proper_ignore_file_does_no_harm(work: Path, kind: str) -> None:
    write(repository(work), **{"a.py": "", "b.log": ""})
    file = work / ".gitignore"
    match kind:
        case "folder":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
        case "binary":
            file.write_bytes(b"\xff\0\x80*.log\n\n*.log\n")
        case _:
            file.write_bytes(b"*.log\n" + b"x\n" * 40_000 + b"*.py\n")
    assert "a.py" in listed(work)
    assert ("b.log" in listed(work)) == (kind in ("folder", "fifo"))


def test_names_that_are_not_utf8_are_left_out(work: Path) -> None:
    write(work, **{"a.py": ""})
    (Path(os.fsdecode(os.fsencode(work) + b"/b\xff.py"))).touch()
    assert listed(work) == ["a.py"]


def test_the_number_of_entries_and_the_depth_are_limited(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(work, **{f"{number}.py": "" for number in range(30)}, **{"d/" * 10 + "deep.py": ""})
    assert "d/" * 10 + "deep.py" in listed(work)
    monkeypatch.setattr(workspace_files, "_MOST_DEPTH", 9)
    assert "d/" * 10 + "deep.py" not in listed(work)
    monkeypatch.setattr(workspace_files, "_MOST_ENTRIES", 10)
    assert len(listed(work)) in (9, 10)


def test_it_ends_in_time_or_when_nobody_waits(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(work, **{f"{number}.py": "" for number in range(30)})
    clock = iter(range(1000))
    monkeypatch.setattr("cursor_gateway.workspace.files.time.monotonic", lambda: next(clock))
    assert len(find_files(str(work), "", 100, seconds=10)) == 10
    left = iter([False] * 5 + [True] * 100)
    assert len(find_files(str(work), "", 100, seconds=1000, is_gone=lambda: next(left))) == 5


def test_a_folder_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert listed(tmp_path / "none") == []


def test_the_best_match_comes_first(work: Path) -> None:
    write(work, **{"app/z.py": "", "x/y/app.py": "", "my_app.py": "", "x/app.py": ""})
    assert find_files(str(work), "APP", 3) == ["x/app.py", "x/y/app.py", "my_app.py"]
    assert find_files(str(work), "app", 9)[-1] == "app/z.py"
