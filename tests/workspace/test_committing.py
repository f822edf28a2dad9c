"""Commits are made without running anything that a repository names, and only of what was proposed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cursor_gateway.errors import FileChanged, InvalidRequest, NotFound
from cursor_gateway.model.changes import CommitRequest, CommitResult
from cursor_gateway.workspace import committing
from cursor_gateway.workspace.committing import checked_out, commit, proposed
from tests.workspace.repositories import git


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home, top = tmp_path / "home", tmp_path / "repository"
    home.mkdir()
    (top / "src").mkdir(parents=True)
    (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.com\n")
    monkeypatch.setenv("HOME", str(home))
    git(top, "init", "-q")
    (top / "src" / "a.txt").write_text("1\n")
    (top / "gone.txt").write_text("1\n")
    (top / "staged.txt").write_text("1\n")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "first")
    return top


def committed(workspace: Path, paths: list[str], message: str = "Count on") -> CommitResult:
    proposal = commit(str(workspace), paths, "Count on", CommitRequest())
    assert proposal.token
    return commit(str(workspace), paths, "Count on", CommitRequest(message=message, token=str(proposal.token)))


def test_only_the_changed_files_are_committed(top: Path) -> None:
    (top / "src" / "a.txt").write_bytes(b"2\r\n")
    (top / "src" / "tool").write_text("#!/bin/sh\n")
    (top / "src" / "tool").chmod(0o755)
    (top / "gone.txt").unlink()
    (top / "staged.txt").write_text("2\n")
    git(top, "add", "staged.txt")  # not part of it
    done = committed(top, ["src/a.txt", "src/tool", "gone.txt"])
    assert git(top, "rev-parse", "main").decode().strip() == done.commit
    assert git(top, "log", "-1", "--format=%an %ae %s").decode().strip() == "Ada ada@example.com Count on"
    shown = git(top, "show", "--format=", "--name-status", "HEAD").decode().split()
    assert shown == ["D", "gone.txt", "M", "src/a.txt", "A", "src/tool"]
    assert git(top, "show", "HEAD:src/a.txt") == b"2\r\n"
    assert git(top, "status", "--short") == b"M  staged.txt\n"
    git(top, "fsck", "--strict")
    git(top, "pack-refs", "--all")
    (top / "src" / "a.txt").write_text("3\n")
    committed(top / "src", ["a.txt"])  # a folder inside of the repository
    assert git(top, "rev-list", "--count", "HEAD") == b"3\n"
    assert not list((top / ".git").rglob("*.lock"))


def test_nothing_that_the_repository_names_is_run(top: Path) -> None:
    """Every way that is known to make git start a program."""
    trap, sprung = top.parent / "trap", top.parent / "sprung"
    trap.write_text(f'#!/bin/sh\necho "$0 $@" >> {sprung}\ncat\n')
    trap.chmod(0o755)
    settings = [
        ("core.fsmonitor", trap), ("core.hooksPath", top / "hooks"), ("core.pager", trap), ("core.editor", trap),
        ("core.sshCommand", trap), ("core.askPass", trap), ("credential.helper", f"!{trap}"), ("diff.external", trap),
        ("commit.gpgSign", "true"), ("gpg.program", trap), ("gpg.ssh.program", trap), ("core.gitProxy", trap),
        ("core.alternateRefsCommand", trap), ("diff.x.textconv", trap), ("merge.x.driver", trap),
        ("uploadpack.packObjectsHook", trap), ("extensions.partialClone", "origin"),
        ("remote.origin.uploadpack", trap), ("remote.origin.url", str(top)), ("sequence.editor", trap),
    ]  # fmt: skip
    for key, value in settings:
        subprocess.run(["git", "config", "--file", top / ".git/config", key, str(value)], check=True)
    for folder in (top / "hooks", top / ".git" / "hooks"):
        folder.mkdir(exist_ok=True)
        for hook in ("pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change"):
            (folder / hook).unlink(missing_ok=True)
            (folder / hook).symlink_to(trap)
    (top / ".gitattributes").write_text("*.txt diff=x merge=x\n")
    (top / "src" / "a.txt").write_text("2\n")
    committed(top, ["src/a.txt"])
    assert not sprung.exists()
    subprocess.run(["git", "-C", top, "status"], check=False, capture_output=True)
    assert sprung.exists()  # plain git does run them


def test_what_only_git_itself_may_do_is_refused(top: Path) -> None:
    (top / "src" / "a.txt").write_text("2\n")

    def refusal(workspace: Path = top) -> str:
        with pytest.raises(InvalidRequest) as refused:
            commit(str(workspace), ["src/a.txt"], "", CommitRequest())
        return str(refused.value)

    (top / ".gitattributes").write_text("*.txt filter=x\n")
    assert "filters" in refusal()
    (top / ".gitattributes").unlink()
    (top / ".git/MERGE_HEAD").touch()
    assert "not finished" in refusal()
    (top / ".git/MERGE_HEAD").unlink()
    git(top, "checkout", "-q", "--detach")
    assert "no branch" in refusal()
    git(top, "checkout", "-q", "main")
    (top / ".git/refs/heads/main").write_text("not a hash\n")
    assert "cannot be read" in refusal()
    assert "not in a git repository" in refusal(top.parent / "home")
    tree = top.parent / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {top}/.git\n")
    assert "not a folder" in refusal(tree)
    with pytest.raises(NotFound):
        commit(str(top), [], "", CommitRequest())


def test_links_in_the_repository_are_not_followed(top: Path) -> None:
    outside = top.parent / "outside"
    (top / ".git/refs/heads").rename(outside)
    (top / ".git/refs/heads").symlink_to(outside)
    before = {file.name: file.read_bytes() for file in outside.iterdir()}
    (top / "src" / "a.txt").write_text("2\n")
    with pytest.raises(InvalidRequest):
        commit(str(top), ["src/a.txt"], "", CommitRequest())
    assert {file.name: file.read_bytes() for file in outside.iterdir()} == before


def test_only_what_was_proposed_is_committed(top: Path) -> None:
    (top / "src" / "a.txt").write_text("2\n")
    token = commit(str(top), ["src/a.txt"], "", CommitRequest()).token
    with pytest.raises(FileChanged):
        commit(str(top), ["src/a.txt"], "", CommitRequest(message="x"))
    (top / "src" / "a.txt").write_text("3\n")
    with pytest.raises(FileChanged):
        commit(str(top), ["src/a.txt"], "", CommitRequest(message="x", token=str(token)))
    (top / ".git/index.lock").touch()
    with pytest.raises(FileChanged, match=r"index\.lock"):
        committed(top, ["src/a.txt"])
    (top / ".git/index.lock").unlink()
    (top / "src" / "a.txt").write_text("1\n")
    with pytest.raises(FileChanged, match="the same as in the last commit"):
        committed(top, ["src/a.txt"])
    (top / "src" / "a.txt").write_text("2\n")
    os.environ["HOME"] = str(top)
    with pytest.raises(FileChanged, match=r"git config --global user\.name"):
        committed(top, ["src/a.txt"])
    assert git(top, "rev-list", "--count", "HEAD") == b"1\n"


def test_the_first_commit_of_a_repository(top: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    git(new, "init", "-q")
    (new / "a").write_text("1\n")
    committed(new, ["a"])
    assert git(new, "rev-list", "--count", "HEAD") == b"1\n"


def test_a_message_is_proposed() -> None:
    assert proposed("Fix the\n tests", ["a"]) == "Fix the tests"
    assert proposed("", ["a", "b"]) == "Change a\n\n- a\n- b"
    assert proposed("word " * 30, ["a"]) == ("word " * 14).strip()


def test_a_worktree_is_committed_to_on_its_own_branch(top: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(top, "worktree", "add", "-q", "-b", "side", str(tree))
    (tree / "src" / "a.txt").write_text("2\n")
    done = committed(tree, ["src/a.txt"])
    assert done.branch == "side"
    assert git(tree, "rev-parse", "HEAD").decode().strip() == done.commit
    assert git(tree, "status", "--short") == git(top, "status", "--short") == b""
    assert git(top, "rev-list", "--count", "main") == b"1\n"
    git(top, "fsck", "--strict")
    assert not list((top / ".git").rglob("*.lock"))


def test_a_file_that_names_a_foreign_repository_is_not_believed(top: Path, tmp_path: Path) -> None:
    git(top, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "src").mkdir()
    (evil / "src" / "a.txt").write_text("evil\n")
    for named in (top / ".git", top / ".git" / "worktrees" / "tree", tmp_path / "nowhere"):
        (evil / ".git").write_text(f"gitdir: {named}\n")
        with pytest.raises(InvalidRequest, match="worktree"):
            commit(str(evil), ["src/a.txt"], "", CommitRequest())
    (evil / ".git").unlink()
    (evil / ".git").symlink_to(top / ".git")
    with pytest.raises(InvalidRequest, match="link"):
        commit(str(evil), ["src/a.txt"], "", CommitRequest())


def test_a_repository_that_becomes_a_link_meanwhile_is_not_followed(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something that the agent left running replaces it after it was checked."""
    other = tmp_path / "other"
    shutil.copytree(top, other)
    person = committing._person

    def swapped(program: str) -> dict[str, str]:
        (top / ".git").rename(tmp_path / "gone")
        (top / ".git").symlink_to(other / ".git")
        return person(program)

    (top / "src" / "a.txt").write_text("2\n")
    proposal = commit(str(top), ["src/a.txt"], "", CommitRequest())
    monkeypatch.setattr(committing, "_person", swapped)
    with pytest.raises(FileChanged, match="link"):
        commit(str(top), ["src/a.txt"], "", CommitRequest(message="x", token=str(proposal.token)))
    assert git(other, "rev-list", "--count", "main") == b"1\n"


def test_a_worktree_whose_repository_is_inside_of_it_is_not_believed(top: Path, tmp_path: Path) -> None:
    """The agent can have made it, and can replace any folder on the way to it by a link."""
    git(top, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    evil = tmp_path / "evil"
    shutil.copytree(top / ".git", evil / "within" / ".git")
    named = evil / "within" / ".git" / "worktrees" / "tree"
    (named / "gitdir").write_text(f"{evil}/.git\n")
    (evil / ".git").write_text(f"gitdir: {named}\n")
    (evil / "a.txt").write_text("1\n")
    with pytest.raises(InvalidRequest, match="worktree"):
        commit(str(evil), ["a.txt"], "", CommitRequest())


def test_the_commit_that_is_checked_out(top: Path, tmp_path: Path) -> None:
    head = git(top, "rev-parse", "HEAD").decode().strip()
    (top / "src").mkdir(exist_ok=True)
    assert checked_out(str(top)) == ("", head)
    assert checked_out(str(top / "src")) == ("src/", head)
    git(top, "checkout", "-q", "--detach")
    assert checked_out(str(top)) == ("", head)
    (top / ".git/HEAD").write_text("ref: refs/heads/../../secret\n")
    assert checked_out(str(top)) == ("", "")
    (top / ".git/HEAD").write_text("nonsense\n")
    assert checked_out(str(top)) == ("", "")
    (tmp_path / "none").mkdir()
    assert checked_out(str(tmp_path / "none")) == checked_out("") == ("", "")
    (top / ".git").rename(tmp_path / "elsewhere")
    (top / ".git").symlink_to(tmp_path / "elsewhere")
    assert checked_out(str(top)) == ("", "")
