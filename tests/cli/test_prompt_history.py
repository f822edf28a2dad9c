"""Prompts in; the same prompts in the next session, newest first, out."""

import os
from pathlib import Path

import pytest

from cursor_gateway.cli.terminal import line_editor as prompt_history
from cursor_gateway.cli.terminal.line_editor import PromptHistory


def test_prompts_come_back_newest_first_whatever_they_contain(tmp_path: Path) -> None:
    file = tmp_path / "data" / "prompts.jsonl"
    history = PromptHistory(file)
    assert list(history.load_history_strings()) == []
    for prompt in ("one", "two\nlines", "\x1b[31m", "caf\udce9"):
        history.store_string(prompt)
    with file.open("ab") as cut:
        cut.write(b'"cut of')
    assert list(PromptHistory(file).load_history_strings()) == ["caf?", "\x1b[31m", "two\nlines", "one"]


def test_the_file_is_private_and_does_not_grow_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_history, "_MOST_BYTES", 1000)
    file = tmp_path / "prompts.jsonl"
    for number in range(200):
        PromptHistory(file).store_string(f"prompt {number}")
    prompts = list(PromptHistory(file).load_history_strings())
    assert prompts[0] == "prompt 199"
    kept = list(PromptHistory(file).load_history_strings())
    assert kept == prompts[: len(kept)]
    assert 20 < len(kept) < 50
    assert file.stat().st_size <= 500
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["prompts.jsonl"]


def test_a_file_that_cannot_be_used_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for file in (tmp_path, tmp_path / "link", Path(os.devnull) / "prompts"):
        PromptHistory(file).store_string("lost")
        assert list(PromptHistory(file).load_history_strings()) == []
    assert not (tmp_path / "elsewhere").exists()
