"""A volume has one name on one disk: a runner with another disk of that name does not start."""

import asyncio
import os
from pathlib import Path

import pytest

from cursor_gateway.cluster.volumes import MARK, check_volumes
from cursor_gateway.errors import SettingsError
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore


def checked(database: str, **volumes: Path) -> list[str]:
    """What a runner with these volumes says."""
    said: list[str] = []

    async def live() -> None:
        store = PostgresStore(database)
        try:
            await check_volumes(volumes, PostgresCluster(store), said.append)
        finally:
            await store.close()

    asyncio.run(live())
    return said


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


def test_the_first_runner_marks_a_volume_and_the_others_find_the_mark(database: str, tmp_path: Path) -> None:
    shared, other = folder(tmp_path, "shared"), folder(tmp_path, "other")
    assert checked(database, shared=shared, more=other) == []
    mark = (shared / MARK).read_text()
    assert mark != (other / MARK).read_text()
    assert checked(database, shared=shared, more=other) == []
    assert (shared / MARK).read_text() == mark


def test_another_disk_of_the_same_name_is_refused(database: str, tmp_path: Path) -> None:
    shared, own = folder(tmp_path, "shared"), folder(tmp_path, "own")
    checked(database, shared=shared)
    with pytest.raises(SettingsError, match="it has no mark") as refused:
        checked(database, shared=own)
    assert "ReadWriteMany" in str(refused.value)
    assert refused.value.param == "volumes"
    assert not (own / MARK).exists()
    (own / MARK).write_text("another\n")
    with pytest.raises(SettingsError, match="it has the mark another"):
        checked(database, shared=own)
    (own / MARK).write_text((shared / MARK).read_text())  # as the message says
    assert checked(database, shared=own) == []


def test_a_volume_that_was_marked_before_keeps_its_mark(database: str, tmp_path: Path) -> None:
    """The database is new, the volume is not."""
    shared = folder(tmp_path, "shared")
    (shared / MARK).write_text("kept\n")
    assert checked(database, shared=shared) == []
    with pytest.raises(SettingsError, match="expects kept"):
        checked(database, shared=folder(tmp_path, "own"))


def test_what_cannot_be_written_to_is_not_refused(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, missing = folder(tmp_path, "shared"), tmp_path / "missing"
    (said,) = checked(database, shared=missing)
    assert "cannot be marked" in said
    checked(database, shared=shared)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (said,) = checked(database, shared=folder(tmp_path, "read-only"))
    assert "is read-only" in said


def test_no_link_of_an_agent_is_followed(database: str, tmp_path: Path) -> None:
    shared, secret = folder(tmp_path, "shared"), tmp_path / "secret"
    secret.write_text("secret")
    (shared / MARK).symlink_to(secret)
    assert checked(database, shared=shared) == []  # nobody has marked it, and it cannot be
    (shared / MARK).unlink()
    (shared / MARK).mkdir()
    checked(database, shared=shared)
    (shared / MARK).rmdir()
    (shared / MARK).write_bytes(b"\x1b[2J")
    checked(database, shared=shared)
    (shared / MARK).unlink()
    assert checked(database, shared=shared) == []
    assert len((shared / MARK).read_text()) == 37


def test_two_runners_that_start_at_once_find_one_mark(tmp_path: Path) -> None:
    """The second looks for the mark before the first has written it, and asks the database after that."""
    shared, said = folder(tmp_path, "shared"), list[str]()

    class MarkedMeanwhile:
        async def volume_mark(self, name: str, mark: str) -> str:
            (shared / MARK).write_text("first\n")
            return "first"

    asyncio.run(check_volumes({"shared": shared}, MarkedMeanwhile(), said.append))
    assert said == []
