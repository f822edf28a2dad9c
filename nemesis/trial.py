"""A seed in; a cluster under load and faults, its history, and the laws that it broke, out."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from nemesis.cluster import LEASE, SHARED, Cluster, Hosts, Options, can_name_hosts, cluster, small_disk
from nemesis.faults import KINDS, Fault, Kind
from nemesis.history import History
from nemesis.injection import inject
from nemesis.laws import Violation, violations
from nemesis.observer import Observer
from nemesis.partition import can_partition
from nemesis.versions import SOURCES, newer
from nemesis.witness import agents, is_alive
from nemesis.workload import Place, Record, Workload

_CONVERSATIONS = 8  # on all volumes together
_SETTLE_SECONDS = 240.0  # for everything to end after the last fault; a busy machine must not come near it
_GONE_SECONDS = 10.0  # for the agents of runs that have ended
_DISK_MEGABYTES = 220


class Verdict(Struct, frozen=True):
    seed: int
    faults: list[Fault]
    violations: list[Violation]
    history: History
    unexpected: list[str]
    seconds: float

    @property
    def is_good(self) -> bool:
        return not self.violations and not self.unexpected and len(self.history.runs) > 0

    @property
    def summary(self) -> str:
        history = self.history
        takeovers = sum(run.epoch > 1 for run in history.runs)
        return (
            f"{len(self.faults)} faults, {len(history.runs)} runs ({takeovers} taken over), "
            f"{len(history.agents)} agents, {len(history.shown):,} events shown, {len(history.accepted)} commands"
        )


def possible() -> tuple[tuple[Kind, ...], dict[Kind, str]]:
    """The kinds of faults that can be provoked on this machine, and why the others cannot."""
    missing: dict[Kind, str] = {}
    if not can_name_hosts():
        missing["full disk"] = "only root can mount a small disk"
    if not can_partition():
        missing["partition runner"] = "it needs root and `ip`, to make a network namespace"
    return tuple(kind for kind in KINDS if kind not in missing), missing


class Trial(Struct, frozen=True, kw_only=True):
    seed: int
    seconds: float
    source: Path | None = None  # a folder with another version of the package
    faults: list[Fault]
    delays: Mapping[str, float] = {}  # of the links of these members, from the beginning

    @property
    def both(self) -> str:
        """In every third seed, one of the fronts runs agents as well."""
        return "front-2" if self.seed % 3 == 2 else ""

    @property
    def is_crowded(self) -> bool:
        """In some seeds there are more conversations than slots, so that requests wait in the queue."""
        return self.seed % 5 == 4

    @property
    def hosts(self) -> Hosts:
        """In every other seed, the runners are on one host."""
        return ("separate", "one", "separate", "one, with one data directory")[self.seed % 4]


async def run(trial: Trial) -> Verdict:
    began = time.monotonic()
    seed, seconds = trial.seed, trial.seconds
    chosen = trial.faults
    record = Record()
    async with _places(any(fault.kind == "full disk" for fault in chosen)) as (folder, disk):
        jumping = frozenset(fault.target for fault in chosen if fault.kind == "clock jump")
        needs_newer = any(fault.kind == "other version" for fault in chosen)
        options = Options(
            source=trial.source,
            newer=newer(folder / "newer", trial.source or SOURCES) if needs_newer else None,
            jumping=jumping,
            partitioned=frozenset(fault.target for fault in chosen if fault.kind == "partition runner"),
            both=trial.both,
            hosts=trial.hosts,
            database_folder=disk,
            settings={"max_runs": "2"} if trial.is_crowded else {},
        )
        async with cluster(folder, options) as running:
            for name, delay in trial.delays.items():
                running.links[name].delay = delay
            observer = Observer(lambda: running.url)
            beside = [asyncio.create_task(observer.watch()), asyncio.create_task(running.supervise())]
            try:
                await _load(running, seed, seconds, chosen, record)
                await _settled(observer)
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
            takeovers, unstarted = await observer.takeovers(), await observer.unstarted()
            runs = [
                replace(run, agents=2) if run.question in record.resumable else run for run in await observer.runs()
            ]
            ended = [pid for member in running.members.values() for pid in member.ended]
            left = await _left(running.witness)
        # On separate hosts, nobody can end the agent of a dead runner on a volume that they share.
        lives = [
            agent for agent in agents(running.witness) if trial.hosts != "separate" or f"/{SHARED}/" not in agent.folder
        ]
        history = History(
            asked=tuple(record.asked),
            accepted=tuple(record.accepted),
            readers=tuple(record.readers),
            shown=tuple(record.shown),
            finished=tuple(record.finished),
            refused=tuple(record.refused),
            snapshots=tuple(observer.snapshots),
            runs=tuple(runs),
            unstarted=unstarted,
            agents=tuple(lives),
            said=record.said,
            is_quiet=not chosen,
            takeovers=tuple(takeovers),
            lease=LEASE,
            ended=frozenset(ended),
            left=frozenset(left),
        )
    return Verdict(seed, chosen, violations(history), history, record.unexpected, time.monotonic() - began)


async def _load(running: Cluster, seed: int, seconds: float, faults: list[Fault], record: Record) -> None:
    places = {}
    for volume in running.volumes:
        for number in range(_CONVERSATIONS // len(running.volumes)):
            name = f"{volume}-{number}"
            (running.folder_of(volume) / name).mkdir()
            places[name] = Place(f"{volume}/{name}")
    workload = Workload(running.address, seed, record)
    working = asyncio.create_task(workload.run(places))
    random = Random(seed)
    async with asyncio.TaskGroup() as group:
        began = time.monotonic()
        for fault in faults:
            await asyncio.sleep(began + fault.at - time.monotonic())
            group.create_task(inject(running, fault, random))
        await asyncio.sleep(began + seconds - time.monotonic())
    workload.stop(_SETTLE_SECONDS)
    await working


async def _settled(observer: Observer) -> None:
    """Until no run is active and every command is done, or the time is over: then the laws say so."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < deadline:
        if not await observer.open():
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)  # for one more snapshot


async def _left(witness: Path) -> list[int]:
    """The agents that are still there when all runs have ended, and some time later."""
    deadline = time.monotonic() + _GONE_SECONDS
    while True:
        left = [agent.pid for agent in agents(witness) if agent.end is None and is_alive(agent.pid, witness)]
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _places(needs_disk: bool) -> AsyncIterator[tuple[Path, Path | None]]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nemesis-", ignore_cleanup_errors=True)))
        disk = await stack.enter_async_context(small_disk(_DISK_MEGABYTES)) if needs_disk else None
        yield folder.resolve(), disk
