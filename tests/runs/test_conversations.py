"""Conversations: whose they are, one turn at a time, a folder for as long as they live, and an end to their number."""

import stat
from pathlib import Path

import pytest

from cursor_gateway.core.agent_events import RunFinished
from cursor_gateway.core.assembler import Assembler
from cursor_gateway.core.document_events import Done
from cursor_gateway.errors import ConversationBusy, InvalidRequest, NotFound
from cursor_gateway.runs.conversations import Conversation, Conversations
from cursor_gateway.runs.run import Run
from tests.runs.scripted import info, new_run


def conversations(tmp_path: Path, limit: int = 10) -> Conversations:
    return Conversations(tmp_path / "conversations", limit)


def began(known: Conversations, owner: str = "me") -> Conversation:
    """One whose first turn is over."""
    conversation = known.new(owner, "/w")
    conversation.run = run("session-1")
    known.release(conversation)
    return conversation


def run(session_id: str | None = None, *, is_done: bool = True) -> Run:
    made = new_run(session_id=session_id)
    if is_done:
        done = Assembler(info()).push(RunFinished())[-1]
        assert isinstance(done, Done)
        made.done = done
    return made


def test_a_new_one_has_a_folder_that_is_nobody_elses(tmp_path: Path) -> None:
    conversation = conversations(tmp_path).new("me", "/w")
    assert conversation.folder.is_dir()
    assert stat.S_IMODE(conversation.folder.stat().st_mode) == 0o700
    assert (conversation.is_busy, conversation.session_id, conversation.workspace) == (True, None, "/w")


def test_it_goes_on_with_its_latest_session(tmp_path: Path) -> None:
    known = conversations(tmp_path)
    conversation = began(known)
    assert (conversation.is_busy, conversation.run, conversation.session_id) == (False, None, "session-1")
    assert known.resume(conversation.id, "me", None) is conversation
    assert conversation.is_busy
    conversation.run = run(None)  # a turn that failed before it had one
    known.release(conversation)
    assert conversation.session_id == "session-1"
    known.resume(conversation.id, "me", "/w")
    conversation.run = run("session-2")
    known.release(conversation)
    assert conversation.session_id == "session-2"


def test_nobody_elses_can_be_told_from_none_at_all(tmp_path: Path) -> None:
    known = conversations(tmp_path)
    conversation = began(known, owner="me")
    for id, owner in ((conversation.id, "you"), ("conv_0", "me"), ("", "me"), ("../../etc", "me")):
        with pytest.raises(NotFound) as caught:
            known.resume(id, owner, None)
        assert caught.value.param == "conversationId"


def test_it_does_not_move(tmp_path: Path) -> None:
    known = conversations(tmp_path)
    conversation = began(known)
    with pytest.raises(InvalidRequest, match="works in '/w'") as caught:
        known.resume(conversation.id, "me", "/elsewhere")
    assert caught.value.param == "workspace"
    assert not conversation.is_busy


def test_one_turn_at_a_time(tmp_path: Path) -> None:
    known = conversations(tmp_path)
    conversation = began(known)
    known.resume(conversation.id, "me", None)
    with pytest.raises(ConversationBusy):
        known.resume(conversation.id, "me", None)
    conversation.run = run("session-1", is_done=False)
    with pytest.raises(ConversationBusy):
        known.resume(conversation.id, "me", None)


def test_who_has_the_answer_may_go_on_before_the_agent_has_gone(tmp_path: Path) -> None:
    known = conversations(tmp_path)
    conversation = known.new("me", "/w")
    conversation.run = run("session-1")
    assert known.resume(conversation.id, "me", None).session_id == "session-1"


def test_one_whose_agent_never_had_a_session_cannot_be_gone_on_with(tmp_path: Path) -> None:
    known = conversations(tmp_path)
    conversation = known.new("me", "/w")
    conversation.run = run(None)
    with pytest.raises(NotFound):
        known.resume(conversation.id, "me", None)


def test_the_longest_unused_go_first_with_their_folders(tmp_path: Path) -> None:
    known = conversations(tmp_path, limit=3)
    first, second, third = began(known), began(known), began(known)
    known.release(known.resume(first.id, "me", None))
    fourth = began(known)
    assert not second.folder.exists()
    with pytest.raises(NotFound):
        known.resume(second.id, "me", None)
    for kept in (first, third, fourth):
        assert kept.folder.is_dir()
        known.release(known.resume(kept.id, "me", None))


def test_a_long_turn_counts_as_use_to_its_end(tmp_path: Path) -> None:
    known = conversations(tmp_path, limit=2)
    long = known.new("me", "/w")
    other = began(known)
    long.run = run("session-1")
    known.release(long)
    known.new("me", "/w")
    assert (long.folder.exists(), other.folder.exists()) == (True, False)


def test_one_at_work_stays_whatever_the_limit(tmp_path: Path) -> None:
    known = conversations(tmp_path, limit=1)
    busy = [known.new("me", "/w") for _ in range(3)]
    assert all(conversation.folder.is_dir() for conversation in busy)


def test_what_is_removed_is_gone(tmp_path: Path) -> None:
    known = conversations(tmp_path)
    conversation = began(known)
    (conversation.folder / "cursor").mkdir()
    (conversation.folder / "cursor" / "auth.json").write_text("secret")
    known.remove(conversation)
    known.remove(conversation)
    known.release(conversation)
    assert not conversation.folder.exists()
    with pytest.raises(NotFound):
        known.resume(conversation.id, "me", None)


def test_closing_removes_all(tmp_path: Path) -> None:
    known = conversations(tmp_path)
    folders = [began(known).folder, known.new("me", "/w").folder]
    known.close()
    known.close()
    assert not any(folder.exists() for folder in folders)
