"""What agents keep of a conversation: noted, found, and deleted wherever it is."""

import os
from pathlib import Path

import pytest

from cursor_gateway.sources import leftovers
from cursor_gateway.sources.private_files import SHARED

ONE, TWO = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def kept(folder: Path, id: str) -> list[Path]:
    """As agents keep it."""
    paths = [
        folder / "acp-sessions" / id / "store.db",
        folder / "chats" / "0cc175b9c0f1b6a831c399e269772661" / id / "store.db",
        folder / "projects" / "home-work" / "agent-transcripts" / id / f"{id}.jsonl",
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("what was said")
    return paths


def test_sessions_are_noted_once_and_read_by_source(tmp_path: Path) -> None:
    folder = tmp_path / "conversations" / "conv_1"
    assert leftovers.noted_sessions(folder) == []
    first, second = leftovers.NotedSession("acp", ONE, "/w"), leftovers.NotedSession("sdk", TWO, "/w")
    for session in (first, second, first):
        leftovers.note_session(folder, tmp_path, session)
    assert leftovers.noted_sessions(folder) == [first, second]
    assert leftovers.noted_sessions(folder, "sdk") == [second]
    (folder / leftovers.NOTE).write_text("[{")
    assert leftovers.noted_sessions(folder) == []


def test_the_sessions_of_a_folder_are_known_by_their_places(tmp_path: Path) -> None:
    kept(tmp_path / "cursor", ONE)
    kept(tmp_path / "confined", TWO)
    (tmp_path / "cursor" / "acp-sessions" / "*").mkdir()
    assert leftovers.sessions_in(tmp_path) == {ONE, TWO}


def test_a_session_is_deleted_in_every_place_and_others_stay(tmp_path: Path) -> None:
    gone = [*kept(tmp_path / "a", ONE), *kept(tmp_path / "b", ONE)]
    stays = kept(tmp_path / "a", TWO)
    assert leftovers.delete_sessions([ONE], [tmp_path / "a", tmp_path / "b", tmp_path / "missing"])
    assert not any(path.parent.exists() for path in gone)
    assert all(path.exists() for path in stays)


@pytest.mark.parametrize("id", ["", "*", "../../work", "[0-9]*", "short", "????????-????"])
def test_no_id_is_a_pattern_or_a_path(tmp_path: Path, id: str) -> None:
    stays = [*kept(tmp_path / "agent", ONE), tmp_path / "work"]
    stays[-1].touch()
    leftovers.delete_sessions([id], [tmp_path / "agent"])
    assert all(path.exists() for path in stays)


def test_where_agents_keep_things_of_the_users() -> None:
    environ = {"HOME": "/home/me", "CURSOR_CONFIG_DIR": "/config", "CURSOR_DATA_DIR": "/data"}
    assert leftovers.user_folders(environ) == {Path("/config"), Path("/home/me/.cursor"), Path("/data")}
    assert leftovers.user_folders({"HOME": "/home/me"}) == {Path("/home/me/.cursor")}


def test_without_a_gateway_all_is_deleted_that_needs_none(tmp_path: Path) -> None:
    data, home = tmp_path / "data", tmp_path / "home"
    folder = data / "conversations" / "conv_1"
    leftovers.note_session(folder, data, leftovers.NotedSession("acp", ONE, "/w"))
    gone = [*kept(folder / "cursor", TWO), *kept(data / "acp" / "0", ONE), *kept(home / ".cursor", TWO)]
    leftovers.remove_offline(folder, data, {"HOME": str(home)})
    assert not any(path.exists() for path in gone)
    assert [path.name for path in folder.iterdir()] == [leftovers.NOTE]  # for the next gateway
    leftovers.remove_folder(folder, is_done=True)
    assert not folder.exists()


def test_a_folder_without_a_note_is_removed_whole(tmp_path: Path) -> None:
    folder = tmp_path / "conv_1"
    kept(folder / "cursor", ONE)
    leftovers.remove_offline(folder, tmp_path, {"HOME": str(tmp_path)})
    assert not folder.exists()


def test_sessions_of_the_cli_that_could_not_be_deleted_are_noted(tmp_path: Path) -> None:
    folder = tmp_path / "conversations" / "conv_1"
    kept(folder / "cursor", ONE)
    for _ in range(2):
        leftovers.remove_folder(folder, is_done=False)
        assert [path.name for path in folder.iterdir()] == [leftovers.NOTE]
        assert leftovers.noted_sessions(folder, "cli") == [leftovers.NotedSession("cli", ONE, "")]
    leftovers.remove_folder(folder, is_done=True)
    assert not folder.exists()


def test_without_a_gateway_what_another_user_keeps_is_left_to_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "conversations" / "conv_1"
    kept(folder / "cursor", ONE)
    folder.chmod(SHARED)
    leftovers.remove_offline(folder, tmp_path, {"HOME": str(tmp_path)})
    assert [session.id for session in leftovers.noted_sessions(folder, "cli")] == [ONE]


def test_what_is_kept_of_a_folder_is_the_note_alone(tmp_path: Path) -> None:
    folder = tmp_path / "conversations" / "conv_1"
    leftovers.note_session(folder, tmp_path, leftovers.NotedSession("sdk", ONE, "/w"))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "tools.json").touch()
    leftovers.remove_folder(folder, is_done=False)
    assert [path.name for path in folder.iterdir()] == [leftovers.NOTE]
    assert (tmp_path / "outside" / "kept").exists()


def test_no_link_is_followed_where_sessions_are_deleted(tmp_path: Path) -> None:
    slot, own = tmp_path / "acp" / "0", tmp_path / "own" / ONE
    (slot / "chats").mkdir(parents=True)
    own.mkdir(parents=True)
    (slot / "chats" / "planted").symlink_to(own.parent)
    (slot / "acp-sessions").symlink_to(own.parent)
    assert leftovers.delete_sessions([ONE], [slot])
    assert own.is_dir()


def test_a_conversation_that_became_a_link_is_not_emptied(tmp_path: Path) -> None:
    own, folder = tmp_path / "own", tmp_path / "data" / "conversations" / "conv_1"
    own.mkdir()
    (own / "history.db").write_text("kept")
    (own / "sessions.json").write_text("[]")
    folder.parent.mkdir(parents=True)
    folder.symlink_to(own)
    leftovers.remove_folder(folder, is_done=False)
    leftovers.remove_folder(folder, is_done=True)
    assert (own / "history.db").read_text() == "kept"


def test_a_note_that_is_a_pipe_or_a_link_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "conversations" / "conv_1"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "sessions.json")
    assert leftovers.noted_sessions(folder) == []
    leftovers.note_session(folder, tmp_path / "data", leftovers.NotedSession("acp", ONE, "/w"))
    assert [session.id for session in leftovers.noted_sessions(folder)] == [ONE]
