"""Conversations that were deleted: their folders go, and what their sources keep, now or later."""

import asyncio
from pathlib import Path

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.runs.conversations import Conversations, Removals
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.leftovers import NOTE, NotedSession, note_session
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.workspace.change_log import ChangeLog, TurnStep
from cursor_gateway.workspace.permissions import Permissions
from tests.runs.scripted import ScriptedSource


class Forgetting(ScriptedSource):
    def __init__(self, *answers: bool | Exception) -> None:
        super().__init__()
        self._answers = list(answers)
        self.forgotten: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    @property
    def has_spares(self) -> bool:
        return False

    def claim_spare(self, turn: Turn) -> str | None:
        return None

    async def end_spares(self) -> None:
        return

    async def forget(self, folder: str) -> bool:
        self.forgotten.append(Path(folder).name)
        await self.may_end.wait()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def place(tmp_path: Path, source: Forgetting) -> tuple[Conversations, Removals, Path]:
    conversations = Conversations(SqliteStore(tmp_path), tmp_path / "conversations")
    folder = conversations.folder("conv_1")
    (folder / "cursor" / "chats").mkdir(parents=True)
    (folder / "tools.json").write_text("[]")
    note_session(folder, tmp_path, NotedSession("acp", "0123456789", "/w"))
    return (
        conversations,
        Removals(SourceRouter({"acp": source}, "acp"), conversations, Permissions(tmp_path, lambda: 0)),
        folder,
    )


async def test_a_folder_goes_when_the_source_has_forgotten(tmp_path: Path) -> None:
    source = Forgetting(True)
    _, removals, folder = place(tmp_path, source)
    assert await removals.remove("conv_1")
    assert not folder.exists()
    assert source.forgotten == ["conv_1"]


async def test_recorded_changes_go_although_none_are_recorded_any_more(tmp_path: Path) -> None:
    log = ChangeLog(str(tmp_path), "conv_1")
    log.keep([b"what a file contained"])
    log.append(TurnStep("chat_1", []))
    _, removals, _ = place(tmp_path, Forgetting(True))
    assert await removals.remove("conv_1")
    assert list((tmp_path / "changes").iterdir()) == []


async def test_what_is_left_is_noted_and_tried_again(tmp_path: Path) -> None:
    source = Forgetting(False, AgentCrashed("gone"), True)
    _, removals, folder = place(tmp_path, source)
    for _ in range(2):
        assert not await removals.remove("conv_1")
        assert [path.name for path in folder.iterdir()] == [NOTE]  # nothing that was said
    await removals.remove_strays(SqliteStore(tmp_path), folder.stat().st_mtime + 60)
    assert folder.exists()
    await removals.remove_strays(SqliteStore(tmp_path), folder.stat().st_mtime + 7200)
    assert not folder.exists()


async def test_nobody_waits_for_long_and_the_removal_goes_on(tmp_path: Path) -> None:
    source = Forgetting(True)
    source.may_end.clear()
    _, removals, folder = place(tmp_path, source)
    assert not await removals.remove("conv_1", 0.01)
    assert not await removals.remove("conv_1", 0.01)  # the same one
    assert source.forgotten == ["conv_1"]
    assert folder.exists()
    source.may_end.set()
    await removals.close()
    assert not folder.exists()


async def test_what_another_source_keeps_is_left_to_a_gateway_that_has_it(tmp_path: Path) -> None:
    conversations, _, folder = place(tmp_path, Forgetting())
    removals = Removals(SourceRouter({"cli": Forgetting(True)}, "cli"), conversations, Permissions(tmp_path, lambda: 0))
    assert not await removals.remove("conv_1")
    assert [path.name for path in folder.iterdir()] == [NOTE]
