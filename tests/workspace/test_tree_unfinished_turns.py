"""The tree from before a turn outlives the gateway until the turn is recorded, and is taken over once."""

import asyncio
import os
from pathlib import Path

import pytest

from cursor_gateway.workspace import tree as module
from cursor_gateway.workspace.change_log import ChangeLog
from cursor_gateway.workspace.snapshots import Snapshots, forget_changes
from cursor_gateway.workspace.tree import Tree, TurnName, UnfinishedTurns, scan
from tests.workspace.repositories import git

FIRST, SECOND = TurnName("conv_1", "chat_1"), TurnName("conv_2", "chat_2")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("before\n")
    return tmp_path / "work"


def turns_of(work: Path, instance: str) -> UnfinishedTurns:
    return UnfinishedTurns(str(work.parent / "data"), instance)


def files(work: Path) -> set[str]:
    folder = work.parent / "data" / "turns"
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def nobody(instance: str) -> bool:
    return False


def test_the_turns_of_a_dead_gateway_are_found_with_their_trees(work: Path) -> None:
    git(work, "init", "-q")
    git(work, "add", "notes.txt")
    tree, dead = scan(str(work)), turns_of(work, "dead")
    dead.note(FIRST, tree)
    (work / "notes.txt").write_text("after\n")
    [(turn, found)] = turns_of(work, "next").cut_off(nobody)
    assert turn == FIRST
    assert (found.root, found.entries, found.begun_ns) == (tree.root, tree.entries, tree.begun_ns)
    assert found.content("notes.txt") == b"before\n"


def test_turns_are_in_the_order_in_which_they_began(work: Path) -> None:
    dead = turns_of(work, "dead")
    dead.note(SECOND, scan(str(work), at_ns=2))
    dead.note(FIRST, scan(str(work), at_ns=1))
    assert [turn for turn, _ in turns_of(work, "next").cut_off(nobody)] == [FIRST, SECOND]


def test_a_turn_that_ended_leaves_nothing(work: Path) -> None:
    turns, tree = turns_of(work, "dead"), scan(str(work))
    turns.note(FIRST, tree)
    turns.ended(FIRST, tree)
    assert turns_of(work, "next").cut_off(nobody) == []
    assert files(work) == set()


def test_a_gateway_that_lives_keeps_its_turns(work: Path) -> None:
    living = turns_of(work, "living")
    living.note(FIRST, scan(str(work)))
    assert turns_of(work, "next").cut_off(lambda name: name == "living") == []
    assert living.cut_off(nobody) == []


def test_turns_are_taken_once_and_survive_another_crash(work: Path) -> None:
    turns_of(work, "dead").note(FIRST, scan(str(work)))
    second, third = turns_of(work, "second"), turns_of(work, "third")
    assert len(second.cut_off(nobody)) == 1
    assert third.cut_off(lambda name: name == "second") == []
    assert [turn for turn, _ in third.cut_off(nobody)] == [FIRST]


def test_turns_with_the_same_files_share_one_tree(work: Path) -> None:
    turns, tree = turns_of(work, "one"), scan(str(work))
    assert not turns.note_now(FIRST, tree)
    turns.note(FIRST, tree)
    assert turns.note_now(SECOND, scan(str(work), tree))
    folder = work.parent / "data" / "turns" / "one"
    assert {os.stat(folder / name).st_nlink for name in os.listdir(folder)} == {3}
    (work / "new.txt").write_text("x")
    third, changed = TurnName("conv_3", "chat_3"), scan(str(work), tree)
    assert not turns.note_now(third, changed)
    turns.note(third, changed)
    assert len([name for name in os.listdir(folder) if name.startswith("tree-")]) == 1
    assert len(turns_of(work, "next").cut_off(nobody)) == 3


def test_a_folder_that_could_not_be_looked_at_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    turns = turns_of(tmp_path / "work", "one")
    turns.note(FIRST, scan(str(tmp_path / "work")))
    assert not turns.note_now(SECOND, Tree(str(tmp_path / "work"), {}, problem="It cannot be looked at."))


def test_a_file_system_without_links(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError("no links")

    monkeypatch.setattr(os, "link", link)
    turns, tree = turns_of(work, "dead"), scan(str(work))
    turns.note(FIRST, tree)
    assert not turns.note_now(SECOND, tree)
    turns.note(SECOND, tree)
    assert len(turns_of(work, "next").cut_off(nobody)) == 2


def test_a_tree_that_is_gone_is_written_again(work: Path) -> None:
    turns, tree = turns_of(work, "one"), scan(str(work))
    turns.note(FIRST, tree)
    (work.parent / "data" / "turns" / "one" / "tree-1").unlink()
    assert not turns.note_now(SECOND, tree)


def test_what_cannot_be_read_is_dropped(work: Path) -> None:
    folder = work.parent / "data" / "turns" / "dead"
    folder.mkdir(parents=True)
    (folder / "conv_1.chat_1.5").write_bytes(b"\x93cut off")
    (folder / "something else").write_bytes(b"")
    assert turns_of(work, "next").cut_off(nobody) == []
    assert not folder.exists()


def test_a_tree_that_is_too_large_is_not_written(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST", 10)
    turns_of(work, "dead").note(FIRST, scan(str(work)))
    assert files(work) == set()


def test_only_so_many_workspaces_have_a_tree(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_TREES", 2)
    turns = turns_of(work, "one")
    for number in range(4):
        (folder := work / str(number)).mkdir()
        turns.note(TurnName(f"conv_{number}", "chat"), scan(str(folder)))
    assert {name for name in files(work) if "tree" in name} == {"one/tree-3", "one/tree-4"}


def test_a_deleted_conversation_has_none(work: Path) -> None:
    dead, tree = turns_of(work, "dead"), scan(str(work))
    dead.note(FIRST, tree)
    dead.note(SECOND, tree)
    turns = turns_of(work, "next")
    turns.remove_turns_of("conv_1")
    assert [turn for turn, _ in turns.cut_off(nobody)] == [SECOND]


async def test_a_conversation_that_is_deleted_while_its_turn_is_recovered_stays_deleted(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(work.parent / "data")
    dead = turns_of(work, "dead")
    dead.note(FIRST, scan(str(work)))
    dead.note(SECOND, scan(str(work)))
    (work / "notes.txt").write_text("after\n")
    snapshots = Snapshots(data, "next")

    def scan_slowly(folder: str) -> Tree:
        UnfinishedTurns(data, "other").remove_turns_of("conv_1")  # by another gateway, which shares the folder
        return scan(folder)

    monkeypatch.setattr("cursor_gateway.workspace.snapshots.scan", scan_slowly)
    snapshots.recover(nobody)
    await snapshots.settled("conv_1")
    assert [bool(ChangeLog(data, f"conv_{number}").steps()) for number in (1, 2)] == [False, True]


def test_without_snapshots_a_deleted_conversation_has_none_either(work: Path) -> None:
    turns_of(work, "dead").note(FIRST, scan(str(work)))
    asyncio.run(forget_changes(None, str(work.parent / "data"), "conv_1"))
    assert turns_of(work, "next").cut_off(nobody) == []


def test_a_gateway_that_closes_leaves_nothing(work: Path) -> None:
    turns = turns_of(work, "one")
    turns.close()
    turns.note(FIRST, scan(str(work)))
    turns.close()
    assert files(work) == set()
