"""Agents of gateways that have lost their runs are ended before another agent starts."""

import asyncio
import os
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cursor_gateway.errors import ConversationBusy, StoreUnavailable
from cursor_gateway.sources import lost_agents
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.lost_agents import LostAgents
from cursor_gateway.sources.process_groups import members, start_of
from tests.sources.test_ledger import group, left_behind

OTHER = f"{os.getppid()}-{start_of(os.getppid())}"  # a gateway that lives


@contextmanager
def lost(tmp_path: Path, cluster: str = "") -> Iterator[tuple[LostAgents, "subprocess.Popen[bytes]"]]:
    """And an agent of another gateway, which is alive, and may be a member of a cluster."""
    ledger = Ledger(tmp_path)
    ledger.open()
    try:
        with group() as agent:
            folder = left_behind(tmp_path, f"{agent.pid}-{start_of(agent.pid)}", gateway=OTHER)
            if cluster:
                (folder / "member").write_text(f"{cluster} other")
            yield LostAgents(ledger), agent
    finally:
        ledger.close()


async def gone(ids: Collection[str]) -> Collection[str]:
    return ids


async def present(ids: Collection[str]) -> Collection[str]:
    return ()


async def unknown(ids: Collection[str]) -> Collection[str]:
    raise StoreUnavailable("The database is away; try again.")


def test_those_of_a_dead_gateway_have_ended_afterwards(tmp_path: Path) -> None:
    with lost(tmp_path) as (agents, living), group("trap '' TERM; sleep 600 & exec sleep 600") as orphan:
        left_behind(tmp_path, f"{orphan.pid}-{start_of(orphan.pid)}")
        asyncio.run(agents.end())
        assert members(orphan.pid) == []
        assert living.poll() is None


@pytest.mark.parametrize(
    ("cluster", "absent", "is_ended"), [("ours", gone, True), ("ours", present, False), ("theirs", gone, False)]
)
def test_those_of_a_gateway_that_is_no_member_any_more(
    tmp_path: Path, cluster: str, absent: lost_agents.Absent, is_ended: bool
) -> None:
    with lost(tmp_path, cluster) as (agents, agent):
        agents.join("ours", "own", absent)
        asyncio.run(agents.end())
        assert (members(agent.pid) == []) is is_ended


def test_no_agent_starts_while_nobody_knows_who_is_a_member(tmp_path: Path) -> None:
    with lost(tmp_path, "ours") as (agents, agent):
        agents.join("ours", "own", unknown)
        with pytest.raises(StoreUnavailable):
            asyncio.run(agents.end())
        assert agent.poll() is None


def test_those_of_one_member_that_was_removed(tmp_path: Path) -> None:
    with lost(tmp_path, "ours") as (agents, agent):
        agents.join("ours", "own", present)
        asyncio.run(agents.end_of("another"))
        assert agent.poll() is None
        asyncio.run(agents.end_of("other"))
        assert members(agent.pid) == []


def test_one_that_cannot_be_ended_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_agents, "members", lambda group: [group])
    monkeypatch.setattr(lost_agents, "_GONE_SECONDS", 0.01)
    with lost(tmp_path) as (agents, _), group() as orphan:
        left_behind(tmp_path, f"{orphan.pid}-{start_of(orphan.pid)}")
        with pytest.raises(ConversationBusy):
            asyncio.run(agents.end())


def test_a_gateway_that_rejoins_can_note_agents_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.open()
    (ledger.folder / "agents").rmdir()
    LostAgents(ledger).joined()
    assert (ledger.folder / "agents").is_dir()
    ledger.close()
