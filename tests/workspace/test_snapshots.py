"""A turn's record has what the turn changed, and nothing that was there before, ignored or out of reach."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.model.agent_events import AgentEvent, Command, FileEdit, Outcome, ToolEnded, ToolStarted
from cursor_gateway.model.documents import Diff
from cursor_gateway.workspace import snapshots as module
from cursor_gateway.workspace.change_log import ChangeLog, TurnStep
from cursor_gateway.workspace.snapshots import Snapshots
from cursor_gateway.workspace.tree import Tree
from tests.workspace.repositories import git
from tests.workspace.test_tree import aged

_GONE, _NEW, _CHANGED = (True, False), (False, True), (True, True)
_COMMAND = ToolStarted("call_1", Command(tool="shell", command="make"))


@pytest.fixture(params=["unknown", "known", "grown"])
def work(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is looked at in a thread, in the event loop, or in the event loop for too long."""
    monkeypatch.setattr(module, "_QUICK_SECONDS", -1 if request.param == "unknown" else 10)
    monkeypatch.setattr(module, "_STOP_SECONDS", 0 if request.param == "grown" else 10)
    (tmp_path / "data").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def seen(work: Path, change: Callable[[], object], event: AgentEvent = _COMMAND) -> Sequence[AgentEvent]:
    """The event of a turn in which files are changed, as the turn passes it on."""
    aged(work)

    async def live() -> Sequence[AgentEvent]:
        snapshots = Snapshots(str(work.parent / "data"))
        await snapshots.turn("conv_0", "chat_0", str(work)).begin()
        turn = snapshots.turn("conv_1", "chat_1", str(work))
        await turn.begin()
        await turn.tree()
        change()
        found = await turn.seen([event])
        turn.end()
        await snapshots.close()
        return found

    return asyncio.run(live())


def recorded(work: Path, change: Callable[[], object]) -> dict[str, tuple[bool, bool]]:
    """The files that the turn changed, and whether they existed before and after."""
    seen(work, change)
    turns = [step for step in ChangeLog(str(work.parent / "data"), "conv_1").steps() if isinstance(step, TurnStep)]
    return {file.path: (file.before is not None, file.after is not None) for turn in turns for file in turn.files}


def test_a_file_that_is_no_longer_ignored_was_not_created(work: Path) -> None:
    git(work, "init", "-q")
    (work / ".gitignore").write_text("local/\n")
    (work / "local").mkdir()
    (work / "local/settings").write_text("mine\n")

    def change() -> None:
        (work / ".gitignore").write_text("")
        (work / "local/new").write_text("new\n")

    assert recorded(work, change) == {".gitignore": _CHANGED, "local/new": _NEW}


def test_a_file_that_is_ignored_now_was_not_deleted(work: Path) -> None:
    git(work, "init", "-q")
    (work / "a.log").write_text("a\n")
    (work / "b.log").write_text("b\n")

    def change() -> None:
        (work / ".gitignore").write_text("*.log\n")
        (work / "b.log").unlink()

    assert recorded(work, change) == {".gitignore": _NEW, "b.log": _GONE}


def test_a_folder_that_becomes_a_repository_has_no_new_files(work: Path) -> None:
    (work / "dist").mkdir()
    (work / "dist/site").write_text("mine\n")
    assert recorded(work, lambda: git(work, "init", "-q")) == {}


def test_files_that_are_moved_with_their_folder_are_recorded(work: Path) -> None:
    (work / "old").mkdir()
    (work / "old/a").write_text("a\n")

    def change() -> None:
        (work / "old").rename(work / "new")
        (work / "old").symlink_to("new")

    assert recorded(work, change) == {"new/a": _NEW, "old/a": _GONE}


@pytest.mark.parametrize("is_before", [True, False])
def test_files_in_a_folder_that_cannot_be_read_are_left_alone(
    work: Path, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    """Root may read every folder, so that the system's refusal is imitated."""
    (work / "closed").mkdir()
    (work / "closed/a").write_text("mine\n")
    is_closed = is_before

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(path: Any, *values: Any, **named: Any) -> Any:
            if is_closed and not isinstance(path, int) and b"closed" in os.fsencode(path):
                raise PermissionError(13, "Permission denied")
            return call(path, *values, **named)

        return checked

    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr(os, "open", refusing(os.open))

    def change() -> None:
        nonlocal is_closed
        is_closed = not is_closed

    assert recorded(work, change) == {}


def test_an_edit_of_an_ignored_file_does_not_show_the_rest_of_it(work: Path) -> None:
    git(work, "init", "-q")
    (work / ".gitignore").write_text("local.toml\n")
    (work / "local.toml").write_text('password = "secret"\nport = 1\n')
    diff = Diff(old_string="port = 1", new_string="port = 2", start_line=2, end_line=2)
    edit = FileEdit(tool="edit_file", path="local.toml", operation="edit", content="port = 2", diff=diff)
    ended = ToolEnded("call_2", edit, Outcome(state="completed"))
    assert seen(work, lambda: (work / "local.toml").write_text('password = "secret"\nport = 2\n'), ended) == [ended]


def test_a_run_continues_whatever_is_wrong_with_its_folder(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "a").write_text("1\n")
    ended = ToolEnded("call_1", FileEdit(tool="edit_file", path="a", operation="edit"), Outcome(state="completed"))

    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(module, "_before", fail)
    assert seen(work, lambda: (work / "a").write_text("2\n"), ended) == [ended]


def test_an_edited_file_that_is_ignored_now_was_not_deleted(work: Path) -> None:
    git(work, "init", "-q")
    (work / "a.log").write_text("1\n")
    edit = FileEdit(tool="edit_file", path="a.log", operation="edit", content="2\n")

    def change() -> None:
        (work / "a.log").write_text("2\n")
        (work / ".gitignore").write_text("*.log\n")

    seen(work, change, ToolEnded("call_1", edit, Outcome(state="completed")))
    (step,) = ChangeLog(str(work.parent / "data"), "conv_1").steps()
    assert isinstance(step, TurnStep)
    assert ([file.path for file in step.files], step.unread) == ([".gitignore"], ["a.log"])


async def test_a_small_folder_is_looked_at_in_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a turn that changed nothing is over at once."""
    monkeypatch.setattr(module, "_QUICK_SECONDS", 10)
    monkeypatch.setattr(module, "_STOP_SECONDS", 10)
    (tmp_path / "a").write_text("1\n")
    aged(tmp_path)
    snapshots = Snapshots(str(tmp_path / "data"))
    turns = [snapshots.turn("conv_1", f"chat_{number}", str(tmp_path)) for number in range(3)]
    await turns[0].begin()
    await turns[0].tree()
    monkeypatch.setattr(asyncio, "to_thread", None)
    for turn in turns[1:]:
        await turn.begin()
        assert (await turn.tree()).content("a") == b"1\n"
        await turn.seen([_COMMAND])
        assert turn.end() is None


def test_a_slow_disk_keeps_the_event_loop_waiting_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single delay has little effect: the machine may have been busy."""
    now, delay, waited = 100.0, 0.0, 0.0

    def look(*values: object) -> Tree:
        nonlocal now, waited
        now += delay
        waited += delay
        return Tree(str(tmp_path), {})

    monkeypatch.setattr(module, "scan", look)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    snapshots = Snapshots(str(tmp_path))
    snapshots._keep("work", look())

    def looks(seconds: float) -> int:
        """How often the event loop looks, of a hundred times a second."""
        nonlocal now, waited
        until, count = now + seconds, 0
        while now < until:
            before = waited
            snapshots._scan_now("work", 0)
            count += waited > before
            now += 0.01
        return count

    delay = 0.006
    assert looks(0.01) + looks(0.01) == 2, "the first delay has no effect"
    assert looks(1) <= 6
    assert looks(100) <= 13
    assert looks(1000) <= 20
    delay = 0.001
    looks(61)
    assert looks(1) > 80
