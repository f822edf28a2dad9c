"""How a gateway is put together: folders it refuses, and parts that are closed if the rest cannot be made."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from cursor_gateway.cli.assembly.composition import compose
from cursor_gateway.cli.assembly.sources import may_prepare
from cursor_gateway.errors import SettingsError
from cursor_gateway.settings import Settings
from cursor_gateway.sources.router import SourceRouter


def test_a_path_that_can_be_none_is_reported_as_a_folder_that_is_not_there(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path / "data"), workspace="a\0b", source="replay")
    with pytest.raises(SettingsError, match="does not exist"):
        asyncio.run(compose(settings))


@pytest.mark.parametrize("setting", ["workspace", "workspace_roots", "data_dir"])
def test_a_folder_whose_path_is_not_utf_8_is_refused(tmp_path: Path, setting: str) -> None:
    """Agents could not open it, and neither JSON nor the history can contain its name."""
    odd = str(tmp_path / "caf\udce9")
    given = {"data_dir": str(tmp_path / "data"), setting: [odd] if setting == "workspace_roots" else odd}
    with pytest.raises(SettingsError, match=f"\\(`{setting}`\\) is not valid UTF-8"):
        asyncio.run(compose(msgspec.convert(given, Settings)))


def test_the_source_is_closed_when_there_is_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[SourceRouter] = []
    close = SourceRouter.close

    async def note(router: SourceRouter) -> None:
        closed.append(router)
        await close(router)

    monkeypatch.setattr(SourceRouter, "close", note)
    settings = Settings(data_dir=str(tmp_path / "data"), workspace=str(tmp_path / "none"), source="replay")
    with pytest.raises(SettingsError, match="does not exist"):
        asyncio.run(compose(settings, environ={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}))
    assert len(closed) == 1
    assert not list((tmp_path / "data" / "instances").iterdir())


def test_limits_need_cgroups(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path), source="replay", agent_cgroups=False, agent_memory_bytes=2**30)
    with pytest.raises(SettingsError, match="limits of agents need cgroups"):
        asyncio.run(compose(settings))
    assert not list((tmp_path / "instances").iterdir())


def test_no_agent_is_started_in_advance_where_requests_are_refused(tmp_path: Path) -> None:
    """In the turn before, an agent may have written the hooks and servers that the next one would start."""
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"stranger": {"command": "true"}}}')
    (tmp_path / "other").mkdir()
    allowing = {"refuse_workspace_hooks": False}, {"allow_workspace_hooks": [str(tmp_path)]}
    for given, may in (({}, False), *((settings, True) for settings in allowing)):
        prepares = may_prepare(msgspec.convert(given, Settings))
        assert [prepares(str(tmp_path)), prepares(str(tmp_path / "other"))] == [may, True]
