"""Which conversation a session is."""

import os
from pathlib import Path

import pytest

from cursor_gateway.acp_server import session_ids
from cursor_gateway.acp_server.session_ids import SessionIds


def test_a_session_is_found_again_by_another_process(tmp_path: Path) -> None:
    file = tmp_path / "data" / "sessions.jsonl"
    ids = SessionIds(file)
    one, two = ids.new(), ids.new()
    assert ids.conversation(one) is None
    ids.note(one, "")
    assert ids.conversation(one) == ""
    ids.note(one, "conv_1")
    SessionIds(file).note(two, "conv_2")
    assert [SessionIds(file).conversation(one), ids.conversation(two)] == ["conv_1", "conv_2"]
    assert ids.by_conversation() == {"conv_1": one, "conv_2": two}
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_conversation_is_a_session_of_its_own(tmp_path: Path) -> None:
    assert SessionIds(tmp_path / "no").conversation("conv_7") == "conv_7"


def test_a_damaged_line_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "sessions.jsonl"
    file.write_bytes(b'{"session":"acp_0"\n')
    ids = SessionIds(file)
    ids.note("acp_1", "conv_1")
    assert ids.conversation("acp_1") == "conv_1"


def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_ids, "_LARGEST", 500)
    ids = SessionIds(tmp_path / "sessions.jsonl")
    for number in range(100):
        ids.note(f"acp_{number}", f"conv_{number}")
    assert ids.conversation("acp_99") == "conv_99"
    assert ids.conversation("acp_0") is None
    assert os.listdir(tmp_path) == ["sessions.jsonl"]
