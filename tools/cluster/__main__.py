"""`make cluster`: a database, two fronts, two runners and a balancer on this machine, until Ctrl-C.

Nothing needs to be installed: PostgreSQL comes from a wheel. Everything is in a temporary folder and is removed in the
end. Without an agent, the runners play the built-in recordings.

A member that ends or is killed is started again, and so is the database: `docs/cluster.md` says what to try. The file
of `--env` has the addresses, for a shell.
"""

import asyncio
import os
import shlex
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
from tools.cluster.supervision import Supervised, Supervisor
from tools.postgres import Server, running

_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.5
_ENV = Path("build/cluster.env")


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
    server: Server | None  # of our own
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
@click.option("--supervise/--no-supervise", default=True, help="Start again what was killed, or leave it dead.")
@click.option(
    "--env",
    default=_ENV,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file for the addresses, as shell variables.",
)
def main(
    port: int, fronts: int, runners: int, source: str, workspace: Path, database: str, supervise: bool, env: Path
) -> None:
    """Start a whole cluster on this machine, and stop it on Ctrl-C."""
    options = Options(port=port, fronts=fronts, runners=runners, source=source, workspace=workspace, database=database)
    try:
        asyncio.run(_serve(options, env, supervise=supervise))
    finally:
        env.unlink(missing_ok=True)


async def _serve(options: Options, env: Path, *, supervise: bool) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    click.echo("Starting PostgreSQL, the fronts and the runners …")
    async with cluster(options) as running:
        click.echo(f"\n{_addresses(running)}\n")
        env.parent.mkdir(parents=True, exist_ok=True)
        env.write_text(_variables(running), encoding="utf-8")
        click.echo(f"In another terminal, `. {env}` sets CLUSTER, URL and the settings of `cursor-gateway`.")
        click.echo(f"Send requests to {running.address}; the fronts answer in turn. Press Ctrl-C to stop.")
        supervisor = Supervisor(_supervised(running), click.echo, restarts=supervise)
        while not ended.is_set():
            await supervisor.look(asyncio.get_running_loop().time())
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
        database, made = options.database, None
        if not database:
            server = running()
            made = await asyncio.to_thread(server.__enter__)
            stack.push_async_callback(asyncio.to_thread, server.__exit__, None, None, None)
            database = await asyncio.to_thread(made.create_database, "gateway")
            (folder / "database").symlink_to(made.folder)
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
        yield Running(f"http://{host}:{port}", members, database, made, folder)


async def _stop(members: list[Member]) -> None:
    await asyncio.gather(*(member.stop(_STOP_SECONDS) for member in members))
    for member in members:  # one that had to be killed could not end its agents
        Ledger(member.folder / "data" / "instances").end_orphans()


def _supervised(running: Running) -> list[Supervised]:
    found = [Supervised(member.name, member.how_ended, member.start) for member in running.members]
    if (server := running.server) is not None:
        found.append(Supervised("database", lambda: "" if server.is_running else "is gone", server.start_again))
    return found


def _variables(running: Running) -> str:
    values = {
        "CLUSTER": str(running.folder),
        "URL": running.address,
        "CURSOR_GATEWAY_STORE": running.database,
        "CURSOR_GATEWAY_URL": running.address,
        "CURSOR_GATEWAY_VERIFY_GATEWAY": "false",  # the balancer cannot prove that it is this user's
    }
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def _addresses(running: Running) -> str:
    rows = [("balancer", running.address)]
    rows += [(member.name, f"{member.url:<24} log: {member.log}") for member in running.members]
    rows.append(("database", running.database))
    return "\n".join(f"  {name:<10} {address}" for name, address in rows)


if __name__ == "__main__":
    main()
