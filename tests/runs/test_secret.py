"""The gateway's secret: made once, kept for later starts, readable by nobody else."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cursor_gateway.runs.secret import secret_in


def test_it_is_made_once_and_private(tmp_path: Path) -> None:
    secret = secret_in(tmp_path)
    assert len(secret) == 32
    assert secret_in(tmp_path) == secret
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["secret"]
    (tmp_path / "other").mkdir()
    assert secret_in(tmp_path / "other") != secret


def test_one_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"short")
    assert len(secret_in(tmp_path)) == 32


def test_gateways_that_start_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(secret_in, [tmp_path] * 40))) == 1


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    assert secret_in(tmp_path) == secret_in(tmp_path)
    assert os.listdir(tmp_path) == ["secret"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"0" * 32)
    (tmp_path / "secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        secret_in(tmp_path)
