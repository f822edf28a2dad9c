"""A folder in; a PostgreSQL server, two fronts, two runners and a balancer, with a faulty link to each, out."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.sources.ledger import Ledger
from nemesis.agent import install
from nemesis.faults import MEMBERS
from nemesis.link import Link
from nemesis.observer import BEATS, PROMOTED, TRAIL
from nemesis.partition import Network
from tools.cluster.balancer import Balancer
from tools.cluster.member import COMMAND, Member, Role
from tools.postgres import Server, running, standby_of

BEAT, LEASE = 0.3, 2.0  # seconds; much shorter than usual
_SETTINGS = {
    "spare_agents": "0",  # one that waits for a prompt would be an agent without a run to the laws
    "source": "cli",
    "beat_seconds": str(BEAT),
    "lease_seconds": str(LEASE),
    "max_runs": "16",
    "grace_seconds": "1",
    "drain_seconds": "2",
    "keep_alive_seconds": "1",
    "when_client_leaves": "finish",
    "log_format": "json",
    "account_error_seconds": "0",
}
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_CLOCK = Path(__file__).with_name("clock")  # the folder of a module that moves the clock of its process
SHARED = "shared"  # the volume that both runners have
ONE = "host-one"  # where both runners are, in some trials
Hosts: TypeAlias = Literal["separate", "one", "one, with one data directory"]


class Options(Struct, frozen=True, kw_only=True):
    source: Path | None = None  # a folder with the package, in place of the one that is installed
    newer: Path | None = None  # the same of a newer version, which has made the tables
    jumping: frozenset[str] = frozenset()  # members whose clocks can be moved
    partitioned: frozenset[str] = frozenset()  # runners with networks of their own
    both: str = ""  # the front that runs agents as well (`role = "all"`)
    hosts: Hosts = "separate"  # of the runners
    database_folder: Path | None = None
    settings: Mapping[str, str] = {}


_USUAL = Options()


class Cluster:
    def __init__(
        self,
        folder: Path,
        server: Server,
        database: str,
        options: Options,
    ) -> None:
        self.folder, self.server = folder, server
        self.standbys = ExitStack()  # they outlive the primary
        self._standby: Server | None = None
        self._database, self._options = database, options
        self.witness = folder / "witness"
        self.members: dict[str, Member] = {}
        self.links: dict[str, Link] = {}
        self.networks: dict[str, Network] = {}
        self.targets: dict[str, asyncio.Lock] = {}  # each has one fault at a time
        self.balancer = Balancer([])
        self.address = ""

    @property
    def url(self) -> str:
        return self.server.url(self._database)

    def follow(self) -> None:
        """Makes a standby. From then on, every commit waits until the standby has it, and all before it."""
        self._standby = self.standbys.enter_context(standby_of(self.server))
        for statement in ("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"):
            self.server.execute("postgres", statement)
        is_synchronous = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"
        self.server.wait(lambda: self.server.has("postgres", is_synchronous))
        # The process that makes checkpoints tells all others that they have to wait.
        for statement in ("CHECKPOINT", "SELECT pg_logical_emit_message(true, 'nemesis', '')"):
            self.server.execute("postgres", statement)

    def fail_over(self) -> None:
        """The standby takes over from a primary that is dead, and stays so."""
        assert self._standby is not None
        self.server = self._standby
        self.server.promote()
        self.server.execute(self._database, PROMOTED)
        for link in self.links.values():
            link.socket = self.server.socket

    @property
    def volumes(self) -> list[str]:
        """Where conversations may be: on a disk of one host, or on the one that all runners share."""
        return list(dict.fromkeys([*(self._host(name) for name in MEMBERS if self._role(name) != "front"), SHARED]))

    def _host(self, name: str) -> str:
        return f"host-{name}" if self._options.hosts == "separate" else ONE

    def _role(self, name: str) -> Role:
        if name == self._options.both:
            return "all"
        return "front" if name.startswith("front") else "runner"

    def folder_of(self, volume: str) -> Path:
        return self.folder / (SHARED if volume == SHARED else volume.removeprefix("host-") + "/work")

    async def start(self) -> None:
        for folder in (self.folder_of(SHARED), self.folder_of(ONE)):
            folder.mkdir(parents=True)
        for name in MEMBERS:
            link = self.links[name] = Link(self.server.socket)
            if name in self._options.partitioned:
                network = self.networks[name] = await asyncio.to_thread(Network)
                port = await link.start(network.here)
            else:
                port = await link.start()
            self.members[name] = self._member(name, port)
        for member in self.members.values():
            member.start()
        await asyncio.gather(*(member.ready() for member in self.members.values()))
        self.balancer.fronts = [member.address for member in self.members.values() if member.role != "runner"]
        host, port = await self.balancer.start()
        self.address = f"http://{host}:{port}"

    async def supervise(self) -> None:
        """Starts again what has ended by itself, as an init system does: a process does not start without its
        database. Until it is cancelled."""
        while True:
            for member in self.members.values():
                if member.has_failed:
                    member.start()
            await asyncio.sleep(_LOOK_SECONDS)

    def _member(self, name: str, port: int) -> Member:
        role = self._role(name)
        home = self.folder / name
        work, host = self.folder_of(self._host(name)), home
        for folder in (home, work):
            folder.mkdir(parents=True, exist_ok=True)
        network = self.networks.get(name)
        here, there = (network.here, network.there) if network is not None else ("127.0.0.1", "127.0.0.1")
        url = f"postgresql://postgres@{here}:{port}/{self._database}?sslmode=disable&gssencmode=disable"
        settings = {**_SETTINGS, **self._options.settings, "store": url, "workspace": str(work)}
        if role != "front":
            install(home / "bin", self.witness)
            settings["volumes"] = f"{SHARED}={self.folder_of(SHARED)}"
            if self._options.hosts != "separate":
                host = work.parent
            if self._options.hosts == "one, with one data directory":
                settings["data_dir"] = str(host / "data")
            settings["runtime_dir"] = str(host / "runtime")
        environment = {
            "PATH": f"{home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(home),
            **self._python(name, home),
        }
        prefix = network.prefix if network is not None else ()
        command = [*prefix, *_as_host(self._host(name)), *COMMAND]
        return Member(name, role, home, settings, environment, command, there)

    def _python(self, name: str, home: Path) -> dict[str, str]:
        """Which packages it has, and a wall clock that can be moved by writing into a file."""
        path = [str(self._options.source)] if self._options.source else []
        if name not in self._options.jumping:
            return {"PYTHONPATH": os.pathsep.join(path)}
        (home / "clock").write_text("+0")
        return {"PYTHONPATH": os.pathsep.join([*path, str(_CLOCK)]), "NEMESIS_CLOCK": str(home / "clock")}

    def change_version(self, name: str) -> None:
        """From its next start on, to the newer version or back."""
        member, newer = self.members[name], str(self._options.newer)
        path = member.environment["PYTHONPATH"].split(os.pathsep)
        path = path[1:] if path[0] == newer else [newer, *filter(None, path)]
        member.environment["PYTHONPATH"] = os.pathsep.join(path)

    def migrate(self) -> None:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "CURSOR_GATEWAY_STORE": self.url}
        if source := self._options.newer or self._options.source:
            environment["PYTHONPATH"] = str(source)
        command = [*COMMAND[:-1], "migrate"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=self.folder)
        if done.returncode:
            raise RuntimeError(f"`cursor-gateway migrate` failed: {done.stderr}")

    async def stop(self) -> None:
        await self.balancer.close()
        for link in self.links.values():
            link.mend()
        for network in self.networks.values():
            await asyncio.to_thread(network.mend)
        await asyncio.gather(*(member.stop(_STOP_SECONDS) for member in self.members.values()))
        for folder in (*(member.folder for member in self.members.values()), self.folder_of(ONE).parent):
            Ledger(folder / "data" / "instances").end_orphans()
        await asyncio.gather(*(link.close() for link in self.links.values()))
        for network in self.networks.values():
            await asyncio.to_thread(network.close)


@asynccontextmanager
async def cluster(
    folder: Path,
    options: Options = _USUAL,
) -> AsyncIterator[Cluster]:
    """With tables in its database. On leaving, everything ends."""
    async with AsyncExitStack() as stack:
        server = running(options.database_folder)
        made = Cluster(folder, await asyncio.to_thread(server.__enter__), "nemesis", options)
        stack.push_async_callback(asyncio.to_thread, server.__exit__, None, None, None)
        stack.push_async_callback(asyncio.to_thread, made.standbys.close)
        await asyncio.to_thread(made.server.create_database, "nemesis")
        await asyncio.to_thread(made.migrate)
        for logging in (TRAIL, BEATS):
            await asyncio.to_thread(made.server.execute, "nemesis", logging)
        stack.push_async_callback(made.stop)
        await made.start()
        yield made


def can_name_hosts() -> bool:
    return os.geteuid() == 0 and not _run("unshare", "--uts", "true")


def _as_host(name: str) -> list[str]:
    """A command that runs another one on a host of this name; where that is not possible, all are one host."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"] if can_name_hosts() else []


@asynccontextmanager
async def small_disk(megabytes: int) -> AsyncIterator[Path | None]:
    """A file system of its own; None where it cannot be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    mounted = os.geteuid() == 0 and not _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            _run("umount", "--lazy", str(folder))
        with suppress(OSError):
            folder.rmdir()


def _run(*command: str) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode
