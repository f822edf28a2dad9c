"""What a process remembers of the others."""

import asyncio
from typing import cast

from cursor_gateway.cluster.members import Members, Timing
from cursor_gateway.store.base import Store
from cursor_gateway.store.cluster import ClusterStore, Member


class Listed:
    """A database that knows these members."""

    def __init__(self, *members: Member) -> None:
        self.found = list(members)
        self.beat_age = 0.0

    async def members(self) -> list[Member]:
        return self.found


def _member(id: str, *volumes: str) -> Member:
    return Member(id=id, role="runner", host=id, volumes=volumes, version="1")


def test_the_volume_of_a_runner_that_died_stays_known() -> None:
    """So a request that names it is told to retry, not that the folder does not exist."""
    own, other = _member("a", "a"), _member("b", "b", "shared")
    listed = Listed(own, other)
    timing = Timing(beat_seconds=1, lease_seconds=5)
    members = Members(cast(ClusterStore, listed), cast(Store, None), own, timing, lambda: 0)
    left: list[str] = []
    members.left = lambda member: left.append(member.id)
    asyncio.run(members.look())
    listed.found = [own]
    asyncio.run(members.look())
    assert left == ["b"]
    assert members.volumes == {"a", "b", "shared"}
    assert [member.id for member in members.runners("shared")] == []


def test_nobody_is_judged_while_the_database_takes_no_beats() -> None:
    """It can be read, and all beats stand still."""
    own, other = _member("a", "a"), _member("b", "b")
    listed = Listed(own, other)
    timing = Timing(beat_seconds=1, lease_seconds=0)  # a beat that is seen twice is too old
    members = Members(cast(ClusterStore, listed), cast(Store, None), own, timing, lambda: 0)
    asyncio.run(members.look())
    assert members._dead(["c"]) == {"b": 0, "c": None}
    listed.beat_age = 1.1  # the next one is on its way
    assert members._dead(["c"]) == {"b": 0, "c": None}
    listed.beat_age = 2.0
    assert members._dead(["c"]) == {}
