"""A fault and a cluster in; the fault, and after its time the cure, out."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from random import Random

from nemesis.cluster import Cluster
from nemesis.faults import Fault
from nemesis.partition import DIRECTIONS

_DELAYS = (0.02, 0.05, 0.2)  # seconds, of a slow link
_JUMPS = ("+3600", "-3600", "+86400", "-86400")  # seconds, of a clock


async def inject(cluster: Cluster, fault: Fault, random: Random) -> None:
    """Returns when it is over. The cure of the last fault may take longer than planned: then it is waited for."""
    async with cluster.targets.setdefault(fault.target, asyncio.Lock()):
        await _inject(cluster, fault, random)


async def _inject(cluster: Cluster, fault: Fault, random: Random) -> None:
    cure = asyncio.create_task(asyncio.sleep(fault.seconds))
    member = cluster.members.get(fault.target)
    link = cluster.links.get(fault.target)
    try:
        if member is None or link is None:
            await _database(cluster, fault, cure)
            return
        match fault.kind:
            case "kill front" | "kill runner":
                member.kill()
                await cure
                member.start()
            case "freeze front" | "freeze runner":
                member.signal(signal.SIGSTOP)
                await cure
                member.signal(signal.SIGCONT)
            case "cut off front" | "cut off runner":
                link.cut()
                await cure
                link.mend()
            case "partition runner":
                network = cluster.networks[fault.target]
                await asyncio.to_thread(network.cut, random.choice(DIRECTIONS))
                await cure
                await asyncio.to_thread(network.mend)
            case "slow link":
                link.delay = random.choice(_DELAYS)
                await cure
                link.delay = 0.0
            case "lost hints":
                link.loses_notifications = True
                await cure
                link.loses_notifications = False
            case "lost beats" | "late beats":
                link.beats.clear()
                await cure
                link.beats.set()
            case "reset connections":
                link.reset()
            case "clock jump":
                clock = member.folder / "clock"
                clock.write_text(random.choice(_JUMPS))
                await cure
                clock.write_text("+0")
            case "restart":
                await member.stop(10)
                await cure
                member.start()
            case "other version":
                await member.stop(10)
                cluster.change_version(fault.target)
                await cure
                member.start()
            case "kill database" | "database away" | "fail over" | "full disk":
                raise AssertionError(fault)
    finally:
        cure.cancel()


async def _database(cluster: Cluster, fault: Fault, cure: "asyncio.Task[None]") -> None:
    server = cluster.server
    match fault.kind:
        case "kill database" | "database away":
            await asyncio.to_thread(server.kill)
            await cure
            await asyncio.to_thread(server.start)
        case "fail over":
            await asyncio.to_thread(cluster.follow)
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(fault.seconds)
            await asyncio.to_thread(cluster.fail_over)
        case "full disk":
            ballast = server.folder / "ballast"
            await asyncio.to_thread(_fill, ballast)
            await cure
            ballast.unlink()
            with suppress(OSError):
                await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
        case _:
            raise AssertionError(fault)


def _fill(file: Path) -> None:
    """Until nothing more fits."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(1 << 20))
