"""Which runner takes a request: by its labels; and which processes work together: by their levels."""

import asyncio
from pathlib import Path
from typing import cast

import psycopg
import pytest

from cursor_gateway.cluster import members as module
from cursor_gateway.errors import InvalidRequest, NoRunner, SettingsError
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.store.cluster import LEVEL
from cursor_gateway.store.postgres import schema
from cursor_gateway.store.postgres.store import PostgresStore
from tests.cluster.nodes import ME, asked, front, live, node, runner
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, say

SAYS = [[STARTED, *say("Hello"), FINISHED]]


async def test_a_request_goes_to_a_runner_with_its_labels(database: str, tmp_path: Path) -> None:
    plain, able = ScriptedSource(SAYS), ScriptedSource(SAYS)
    async with (
        node(database, tmp_path, runner("plain", "shared"), plain),
        node(database, tmp_path, runner("able", "shared", labels=["gpu", "linux"]), able),
        node(database, tmp_path, front()) as one,
    ):
        for _ in range(3):
            run = await one.node.front.start(asked(needs=["gpu"]))
            stored = await one.store.run(run.id, ME)
            assert stored is not None
            assert stored.instance == "able"
        assert (len(plain.turns), len(able.turns)) == (0, 3)
        with pytest.raises(InvalidRequest) as refused:  # a typing error: trying again would not help
            await one.node.front.start(asked(needs=["gpu", "mac"]))
        assert str(refused.value) == (
            "No runner has the label 'gpu' and the label 'mac', and none has had it so far; check how `needs` is "
            "spelled, or start such a runner. The runners have these labels: gpu, linux."
        )
        await one.cluster.set_member("able", is_draining=True)
        await one.node.members.look()
        with pytest.raises(NoRunner) as away:
            await one.node.front.start(asked(needs=["gpu"]))
        assert str(away.value).startswith("No runner has the label 'gpu'; start one with role `runner`, or try again")


def test_a_gateway_without_a_cluster_has_no_labels() -> None:
    with pytest.raises(InvalidRequest, match="`needs` chooses a runner of a cluster"):
        asyncio.run(LocalRunService.start(cast(LocalRunService, None), asked(needs=["gpu"])))


async def test_a_process_is_not_ready_while_one_is_too_old_for_it(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        node(database, tmp_path, front("new", level=LEVEL + 1)) as new,
        node(database, tmp_path, runner("old"), ScriptedSource(SAYS)) as old,
    ):
        await new.node.members.look()
        assert new.node.members.level == LEVEL
        assert new.node.front.not_ready() == ""
        assert await new.node.front.start(asked())  # old and new work together
        monkeypatch.setattr(module, "OLDEST", LEVEL + 1)
        why = "old has version 1, which is too old for this one; upgrade or stop it first."
        assert new.node.front.not_ready() == why
        assert old.node.members.level == LEVEL
        await new.cluster.leave("old")
        await new.node.members.look()
        assert new.node.front.not_ready() == ""


def test_an_older_version_uses_a_newer_database_unless_it_was_changed_too_much(database: str) -> None:
    async def opened() -> None:
        store = PostgresStore(database)
        try:
            await store.open(0)
        finally:
            await store.close()

    with psycopg.connect(database, autocommit=True) as beside:
        beside.execute("INSERT INTO cursor_gateway_migrations VALUES (99, 'something new')")
        live(opened())
        assert asyncio.run(schema.missing(database)) == []
        beside.execute("UPDATE cluster SET level = %s", [LEVEL + 1])
        with pytest.raises(SettingsError, match=r"migrated by a newer cursor-gateway .* upgrade again"):
            live(opened())
