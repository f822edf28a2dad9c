"""One place of a cluster stays free for API keys that have none, whoever asks for the others."""

from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from cursor_gateway.cluster.members import Members
from cursor_gateway.errors import TooManyRuns
from cursor_gateway.store.base import Store
from cursor_gateway.store.cluster import ClusterStore
from cursor_gateway.store.postgres.keys import KeyLimits, KeyTable
from tests.cluster.nodes import TIMING, Running, asked, front, node, runner
from tests.runs.scripted import STARTED, ScriptedSource, forever


async def add_keys(database: str, *names: str) -> None:
    table = KeyTable(database)
    for name in names:
        assert await table.add(name, f"hash of {name}", KeyLimits(), 1)
    await table.close()


def endless() -> ScriptedSource:
    return ScriptedSource([[STARTED], forever()])


async def start(one: Running, owner: str) -> None:
    await one.node.front.start(replace(asked(), owner=owner))


async def test_the_last_place_is_for_a_key_that_has_none(database: str, tmp_path: Path) -> None:
    await add_keys(database, "greedy", "modest")
    async with (
        node(database, tmp_path, runner("a"), endless()),
        node(database, tmp_path, runner("b"), endless()),
        node(database, tmp_path, front()) as one,
    ):
        for _ in range(7):
            await start(one, "greedy")
        with pytest.raises(TooManyRuns):
            await start(one, "greedy")
        await start(one, "modest")


async def test_without_another_key_every_place_is_used(database: str, tmp_path: Path) -> None:
    await add_keys(database, "greedy", "revoked")
    table = KeyTable(database)
    assert await table.revoke("revoked", 1)
    await table.close()
    async with node(database, tmp_path, runner("a"), endless()), node(database, tmp_path, front()) as one:
        for _ in range(4):
            await start(one, "greedy")


async def test_when_all_keys_have_a_place_the_last_one_is_for_any_of_them(database: str, tmp_path: Path) -> None:
    await add_keys(database, "greedy", "modest")
    async with node(database, tmp_path, runner("a"), endless()), node(database, tmp_path, front()) as one:
        for owner in ("modest", "greedy", "greedy", "greedy"):
            await start(one, owner)


def test_who_keeps_a_place() -> None:
    """The first of all, and the first with each shared volume and each label."""
    kinds = {
        "a": runner("a", "first"),
        "b": runner("b", "first", "second"),
        "c": runner("c", "second", labels=["gpu"]),
        "d": runner("d", labels=["gpu"]),
        "e": runner("e", is_draining=True),
    }
    keeping = []
    for id, own in kinds.items():
        members = Members(cast(ClusterStore, None), cast(Store, None), own, TIMING, lambda: 0)
        members.known = [front("0"), *kinds.values()]
        if members.keeps_last_place:
            keeping.append(id)
    assert keeping == ["a", "b", "c"]
