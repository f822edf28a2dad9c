"""The hub looks by itself at every run, however many hints come for others, and knows what clients were shown."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec import Raw

from cursor_gateway.cluster import hub as module
from cursor_gateway.cluster.hub import Hub, RemoteRun
from cursor_gateway.errors import HistoryDamaged, StoreUnavailable
from cursor_gateway.model.document_events import Done
from cursor_gateway.store import batches
from cursor_gateway.store.base import RunRecord, Store
from cursor_gateway.store.cluster import ClusterStore, Hint, LogHead, NewEvents, Watchers
from tests.store.making import ME, deltas, envelope

_DONE = Done(envelope())


class _Cluster:
    """So many events of each run."""

    def __init__(self) -> None:
        self.hints = self
        self.events: dict[str, int] = {}
        self.is_away = False

    async def heads(self, after: Mapping[str, int]) -> dict[str, LogHead]:
        if self.is_away:
            raise StoreUnavailable("away")
        return {
            id: LogHead(self.events[id], True, deltas(*range(known + 1, self.events[id] + 1)))
            for id, known in after.items()
        }

    async def watch(self, watchers: object) -> None: ...

    def send(self, to: str, hint: object) -> None: ...


def _told(*numbers: int, id: str = "run") -> Hint:
    return Hint("run", [id], [NewEvents(id, numbers[0], Raw(batches.encode(deltas(*numbers))))])


def _record(id: str) -> RunRecord:
    return RunRecord(
        id=id,
        conversation_id="conv",
        owner=ME,
        instance="other",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        fences="split",
        include=frozenset(),
        started_ms=0,
    )


async def test_a_lost_hint_is_made_up_for_while_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.1)

    cluster = _Cluster()
    cluster.events = {"busy": 0, "quiet": 0}
    hub = Hub(cast(ClusterStore, cluster), cast(Store, None), "me")
    busy, quiet = hub.watch(_record("busy")), hub.watch(_record("quiet"))
    hub.start()
    await asyncio.sleep(0.05)
    cluster.events["quiet"] = 3  # and no hint says so
    while quiet.count < 3:
        cluster.events["busy"] += 1
        hub.hinted(Hint("run", ["busy"]))
        await asyncio.sleep(0.01)
    assert busy.count > 0
    await hub.close()


async def test_who_comes_back_finds_what_it_was_shown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REPORT_SECONDS", 0.01)
    monkeypatch.setattr(module, "_CATCH_UP_SECONDS", 0.2)

    cluster = _Cluster()
    cluster.events = {"run": 0}
    hub = Hub(cast(ClusterStore, cluster), cast(Store, None), "me")
    watched = hub.watch(_record("run"))
    hub.start()
    cluster.events["run"] = 7
    await hub.catch_up(watched, 7)
    run = RemoteRun(watched, lambda *_: None, cast(Any, None))
    assert (run.count, run.added) == (7, 7)  # or the client would be refused
    cluster.is_away = True
    with pytest.raises(StoreUnavailable):
        await hub.catch_up(watched, 8)
    await hub.close()


async def test_one_whose_end_is_damaged_does_not_keep_others_from_being_read() -> None:
    class Ended(_Cluster):
        async def heads(self, after: Mapping[str, int]) -> dict[str, LogHead]:
            return {**await super().heads(after), **{id: LogHead(5, False, []) for id in after if id == "damaged"}}

    class Damaged:
        async def events(self, id: str, owner: str, *, after: int) -> object:
            raise HistoryDamaged("damaged")

    cluster = Ended()
    cluster.events = {"damaged": 5, "plain": 3}
    hub = Hub(cast(ClusterStore, cluster), cast(Store, Damaged()), "me")
    damaged, plain = hub.watch(_record("damaged")), hub.watch(_record("plain"))
    await hub._look([damaged, plain])
    assert (damaged.is_deleted, plain.count) == (True, 3)


async def test_it_can_be_closed_although_a_hint_comes_at_the_same_moment() -> None:
    hub = Hub(cast(ClusterStore, _Cluster()), cast(Store, None), "me")
    hub.start()
    await asyncio.sleep(0.01)
    hub._wanted.set()
    await hub.close()


async def test_a_reader_that_leaves_when_it_has_just_been_reported_is_reported_again() -> None:
    class Watched(_Cluster):
        async def watch(self, watchers: object) -> None:
            reported.append(cast(Watchers, watchers).readers)

    reported = list[int]()
    hub = Hub(cast(ClusterStore, Watched()), cast(Store, None), "me")
    log = hub.watch(_record("run"))
    log.joined()
    asyncio.get_running_loop().call_soon(log.left, 0)  # in the turn in which the report ends
    for _ in range(5):
        await asyncio.sleep(0)
    assert reported == [1, 0]
    await hub.close()


async def test_events_that_come_with_a_hint_are_not_read_again() -> None:
    cluster = _Cluster()
    hub = Hub(cast(ClusterStore, cluster), cast(Store, None), "me")
    cluster.is_away = True
    with hub.expecting("run"):  # before the front knows that it has begun
        hub.hinted(_told(1, 2))
        hub.hinted(_told(3))
        log = hub.watch(_record("run"))
    hub.hinted(_told(2, 3, 4))  # some of them again
    hub.hinted(_told(3, 4))
    assert (log.events, log.count, hub._hinted) == (deltas(1, 2, 3, 4), 4, set())


@pytest.mark.parametrize(
    "hint", [_told(3), Hint("run", ["run"]), Hint("run", ["run"], [NewEvents("run", 1, Raw(b'[{"event":"new"}]'))])]
)
async def test_what_a_hint_does_not_say_is_read(hint: Hint) -> None:
    """Events before these; all; those that a newer version wrote."""
    hub = Hub(cast(ClusterStore, _Cluster()), cast(Store, None), "me")
    with hub.expecting("run"):
        log = hub.watch(_record("run"))
    assert hub._hinted == set()
    hub.hinted(hint)
    assert (log.count, hub._hinted) == (0, {"run"})


async def test_events_that_are_heard_of_while_they_are_read_are_there_once() -> None:
    class Slow(_Cluster):
        async def heads(self, after: Mapping[str, int]) -> dict[str, LogHead]:
            hub.hinted(_told(2, 3))
            hub.hinted(Hint("run", ["done"], [NewEvents("done", 1, Raw(batches.encode([_DONE])))]))
            return {**await super().heads({"run": after["run"]}), "done": LogHead(1, False, [])}

    cluster = Slow()
    cluster.events = {"run": 4}
    hub = Hub(cast(ClusterStore, cluster), cast(Store, None), "me")
    log, ended = hub.watch(_record("run")), hub.watch(_record("done"))
    hub.hinted(_told(1))
    await hub._look([log, ended])
    assert (log.events, ended.done, ended.is_deleted) == (deltas(1, 2, 3, 4), _DONE, False)
