"""`make cluster`: a database, two fronts, two runners and a balancer on this machine, until Ctrl-C.

Nothing needs to be installed: PostgreSQL comes from a wheel. Everything is in a temporary folder and is removed in the
end. Without an agent, the runners play the built-in recordings.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import click
from msgspec import Struct

from cursor_gateway.sources.ledger import Ledger
from tools.cluster.balancer import Balancer
from tools.cluster.member import COMMAND, Member, Role
from tools.postgres import running

_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.5


class Options(Struct, frozen=True, kw_only=True):
    port: int
    fronts: int
    runners: int
    source: str
    workspace: Path
    database: str  # its URL; empty: a server of our own


class Running(Struct, frozen=True):
    address: str  # of the balancer
    members: list[Member]
    database: str
    folder: Path


@click.command()
@click.option("--port", default=8787, help="Of the balancer; 0 chooses a free one.")
@click.option("--fronts", default=2, type=click.IntRange(1, 16))
@click.option("--runners", default=2, type=click.IntRange(1, 16))
@click.option("--source", default="auto", help="The backend of the runners: auto, cli, acp, sdk or replay.")
@click.option(
    "--workspace",
    default=".",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="The folder that agents work in.",
)
@click.option("--database", default="", metavar="URL", help="An empty PostgreSQL database in place of a new server.")
def main(port: int, fronts: int, runners: int, source: str, workspace: Path, database: str) -> None:
    """Start a whole cluster on this machine, and stop it on Ctrl-C."""
    options = Options(port=port, fronts=fronts, runners=runners, source=source, workspace=workspace, database=database)
    asyncio.run(_serve(options))


async def _serve(options: Options) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    click.echo("Starting PostgreSQL, the fronts and the runners …")
    async with cluster(options) as running:
        click.echo(f"\n{_addresses(running)}\n")
        click.echo(f"Send requests to {running.address}; the fronts answer in turn. Press Ctrl-C to stop.")
        while not ended.is_set():
            for member in running.members:
                if member.exit_status is not None:
                    click.echo(f"{member.name} ended with status {member.exit_status}:\n{member.log_tail()}", err=True)
                    ended.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await ended.wait()
        click.echo("Stopping …")
    click.echo("Everything has stopped.")


@asynccontextmanager
async def cluster(options: Options) -> AsyncIterator[Running]:
    """On leaving, all processes have ended."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-", ignore_cleanup_errors=True)))
        database = options.database
        if not database:
            server = running()
            made = await asyncio.to_thread(server.__enter__)
            stack.push_async_callback(asyncio.to_thread, server.__exit__, None, None, None)
            database = await asyncio.to_thread(made.create_database, "gateway")
        environment = {**os.environ, "CURSOR_GATEWAY_STORE": database}
        await asyncio.to_thread(
            subprocess.run, [*COMMAND[:-1], "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        settings = {"store": database, "source": options.source, "workspace": str(options.workspace)}
        counts: dict[Role, int] = {"front": options.fronts, "runner": options.runners}
        members = [
            Member(f"{role}-{number}", role, folder / f"{role}-{number}", settings, os.environ)
            for role, count in counts.items()
            for number in range(1, count + 1)
        ]
        stack.push_async_callback(_stop, members)
        for member in members:
            member.start()
        await asyncio.gather(*(member.ready() for member in members))
        balancer = Balancer([member.address for member in members if member.role == "front"])
        host, port = await balancer.start(port=options.port)
        stack.push_async_callback(balancer.close)
        yield Running(f"http://{host}:{port}", members, database, folder)


async def _stop(members: list[Member]) -> None:
    await asyncio.gather(*(member.stop(_STOP_SECONDS) for member in members))
    for member in members:  # one that had to be killed could not end its agents
        Ledger(member.folder / "data" / "instances").end_orphans()


def _addresses(running: Running) -> str:
    rows = [("balancer", running.address)]
    rows += [(member.name, f"{member.url:<24} log: {member.log}") for member in running.members]
    rows.append(("database", running.database))
    return "\n".join(f"  {name:<10} {address}" for name, address in rows)


if __name__ == "__main__":
    main()
