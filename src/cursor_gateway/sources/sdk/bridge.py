"""Start the SDK's bridge process, with a home folder of its own, and connect to it. There is one for the whole gateway.

The SDK would start it in the gateway's own process group, with the gateway's whole environment, and never read its
output; so it is started here, and the SDK's client connects to it.
"""

import asyncio
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Struct

from cursor_gateway import errors
from cursor_gateway.sources.cursor.command import environment_for, proxy_in
from cursor_gateway.sources.cursor.configuration import HOOKS, without_proxy
from cursor_gateway.sources.cursor.failures import quoting
from cursor_gateway.sources.cursor.hooks import hooks_file, read_hooks
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.private_files import private_folder, write_private
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.processes import signal_group
from cursor_gateway.sources.sdk.failures import reported

if TYPE_CHECKING:
    import httpx
    from cursor_sdk import AsyncClient

MODULE = "cursor_sdk"
VERSION = "1.1.0"  # a beta: other versions may differ
_HTTP1 = "Cursor.configure({ local: { useHttp1ForAgent: true } });"
_READY = re.compile(r"^cursor-sdk-bridge ready (\{.*\})$", re.MULTILINE)
_FOLDER = "/"  # part of the name under which its agents are stored, so it must never change
_NOTICED_SECONDS = 0.1
_DESCRIPTORS, _WITH_TOOLS = 3, 8  # that it holds for an agent, and for one with the caller's tools
_LOOK_SECONDS = 0.01  # between checks for its ready message: stderr wakes no waiter


Prepare: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]  # before each start: returns variables to set


class BridgeOptions(Struct, frozen=True, kw_only=True):
    command: Sequence[str] = ()  # empty: the bridge of the installed package
    environment: Sequence[str] = ()  # extra variable names to pass on
    http1: bool = False  # instead of HTTP/2
    ready_seconds: float = 30.0
    call_seconds: float = 60.0  # for every call except the stream of a run
    silence_seconds: float = 60.0  # on a run's stream, which has a keep-alive every 15 s
    ping_seconds: float = 5.0
    grace_seconds: float = 2.0
    max_descriptors: int = 600  # after about 200 conversations, when it takes 400 MB of memory


def most_descriptors(hard_limit: int) -> int:
    """How many a bridge may hold for its agents, of those that a process may have. It needs about 100 for itself."""
    most = BridgeOptions().max_descriptors
    return most if hard_limit < 0 else max(_WITH_TOOLS, min(most, (hard_limit - 150) // 2))


class Ready(Struct, rename="camel", frozen=True):
    """Its ready message."""

    url: str = ""
    auth_token: str = ""
    auth_token_file: str = ""


class Bridge:
    """A bridge, running or ended. Created by `start`; `end` must be awaited."""

    def __init__(
        self, process: AgentProcess, client: "AsyncClient", http: "httpx.AsyncClient", options: BridgeOptions
    ) -> None:
        self.client = client
        self.pid = process.pid
        self.users = 0  # runs
        self._process, self._http, self._options = process, http, options
        self._is_ending = False
        self._held: dict[str, int] = {}  # descriptors, by session

    @property
    def is_gone(self) -> bool:
        return self._is_ending or self._process.status is not None

    @property
    def stderr_tail(self) -> str:
        """How it ended, if it has, and the end of its stderr."""
        return f"{self._process.ending}\n{stderr_tail(self._process)}".strip()

    def crash(self) -> errors.AgentError:
        """Why it is gone."""
        stopped = errors.AgentCrashed("The SDK's bridge has stopped. Retry.", details=self.stderr_tail)
        return self._process.system_error or stopped

    @property
    def descriptors(self) -> int:
        """About how many it holds for its agents: it keeps their stores open until it ends."""
        return sum(self._held.values())

    def add_run(self, session: str, *, offers_tools: bool) -> None:
        self.users += 1
        self._held[session] = max(self._held.get(session, 0), _WITH_TOOLS if offers_tools else _DESCRIPTORS)

    async def settle(self) -> None:
        """Waits briefly after a lost connection, so that the end of the process is noticed."""
        await self._process.wait(_NOTICED_SECONDS)

    async def check(self) -> None:
        """Raises `AgentCrashed` if it does not answer, `GatewayFault` if it rejects the gateway's token."""
        try:
            async with asyncio.timeout(self._options.ping_seconds):
                await self.client.ping()
        except TimeoutError as error:
            raise errors.AgentCrashed("The SDK's bridge is not responding. Retry.") from error
        except Exception as error:
            report = reported(error)
            if report.may_be_the_bridge:
                raise errors.GatewayFault("The SDK's bridge rejects the gateway's token. Retry.") from error
            raise errors.AgentCrashed("The SDK's bridge has stopped. Retry.", details=report.message) from error

    def kill(self) -> None:
        """Kills the process. From now on it counts as gone."""
        self._is_ending = True
        if self._process.status is None:
            signal_group(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        self._is_ending = True
        try:
            await self._process.end(self._options.grace_seconds)
        finally:
            await self._http.aclose()
            # In a thread: stopping its server for tool calls blocks for half a second.
            await asyncio.to_thread(asyncio.run, self.client.aclose())


class Bridges:
    """The current bridge: started on first use, and again after it has died."""

    def __init__(self, options: BridgeOptions, environ: Mapping[str, str], ledger: Ledger, prepare: Prepare) -> None:
        self._options, self._environ, self._ledger, self._prepare = options, environ, ledger, prepare
        self._start: asyncio.Task[Bridge] | None = None  # of the current bridge
        self._ends: set[asyncio.Task[None]] = set()
        self._retired: dict[Bridge, asyncio.Task[Bridge]] = {}  # still used, but not for new runs
        self._is_closed = False

    @property
    def current(self) -> Bridge | None:
        """The bridge, if it is running."""
        task = self._start
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return None if task.result().is_gone else task.result()

    async def get(self) -> Bridge:
        """Raises a `GatewayError` if it cannot be started. Concurrent callers wait for the same start."""
        if self._is_closed:
            raise errors.ShuttingDown("The gateway is shutting down; retry when it is back.")
        if (full := self.current) is not None and full.descriptors >= self._options.max_descriptors:
            self._retire(full)
        if self._start is None or (self._start.done() and self.current is None):
            self._discard()
            self._start = self._started()
        return await asyncio.shield(self._start)

    def start(self) -> None:
        """Starts it in advance. If that fails, `get` starts it again."""
        if self._start is None and not self._is_closed:
            self._start = self._started()
            self._start.add_done_callback(lambda start: start.cancelled() or start.exception())

    def _started(self) -> "asyncio.Task[Bridge]":
        starting = start(self._options, self._environ, self._ledger, self._prepare)
        return asyncio.get_running_loop().create_task(starting, name="start of the bridge")

    async def replace_broken(self, bridge: Bridge) -> errors.GatewayError | None:
        """After a call without an answer: ends the bridge unless it answers a ping. Returns the error; None: it is
        fine."""
        if not bridge.is_gone:
            await bridge.settle()
        if bridge.is_gone:
            error: errors.GatewayError = bridge.crash()
        else:
            try:
                await bridge.check()
            except errors.GatewayError as found:
                error = found
            else:
                return None
        if self.current is bridge:
            bridge.kill()
            self._discard()
        return error

    def _retire(self, bridge: Bridge) -> None:
        """Ends the current bridge when its runs are over. The next one is started at once."""
        if self._start is not None and bridge.users:
            self._retired[bridge], self._start = self._start, None
        else:
            self._discard()

    def release(self, bridge: Bridge) -> None:
        """A run in it is over."""
        bridge.users -= 1
        if not bridge.users and (start := self._retired.pop(bridge, None)) is not None:
            self._end(start)

    def _discard(self) -> None:
        """Ends the current bridge in the background."""
        if self._start is not None:
            start, self._start = self._start, None
            self._end(start)

    def _end(self, start: asyncio.Task[Bridge]) -> None:
        task = asyncio.get_running_loop().create_task(_ended(start), name="end of the bridge")
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def close(self) -> None:
        self._is_closed = True
        if self._start is not None:
            self._start.cancel()  # no effect if it has started
            self._discard()
        for start in self._retired.values():
            self._end(start)
        if self._ends:
            await asyncio.wait(self._ends)


async def _ended(start: "asyncio.Task[Bridge]") -> None:
    await asyncio.wait([start])
    if not start.cancelled() and start.exception() is None:
        await start.result().end()


async def start(options: BridgeOptions, environ: Mapping[str, str], ledger: Ledger, prepare: Prepare) -> Bridge:
    """Raises `AgentMissing`, `AgentCrashed` or `AgentTimedOut`, or what `prepare` raises."""
    sdk = await load()
    command = list(options.command) or bundled_command(sdk, http1=options.http1, has_proxy=bool(proxy_in(environ)))
    # The key is sent with each call, so that the agent's own commands cannot read it from the environment.
    environment = without_proxy(environment_for(environ, options.environment, None))
    environment.pop("CURSOR_API_KEY", None)
    environment |= await prepare()
    environment |= {"CURSOR_SDK_CLIENT_LANGUAGE": "python", "CURSOR_SDK_PYTHON_VERSION": VERSION}  # as the SDK does
    process = await AgentProcess.start(
        command,
        folder=_FOLDER,
        environment=environment,
        stdin=None,
        on_gone=ledger.remove,
        cgroup=ledger.new_cgroup(),
    )
    process.is_discarding = True
    try:
        ledger.add(process.pid)
        return _attached(sdk, process, await _wait_until_ready(process, options.ready_seconds), options)
    except BaseException:
        if (ready := ready_in(process.stderr_tail)) is not None:
            take_token(ready)
        await process.end(options.grace_seconds)
        raise


async def _wait_until_ready(process: AgentProcess, seconds: float) -> Ready:
    deadline = asyncio.get_running_loop().time() + seconds
    while (ready := ready_in(process.stderr_tail)) is None:
        if await process.wait(_LOOK_SECONDS):
            stderr = stderr_tail(process)
            message = f"The SDK's bridge ended before it was ready, with status {process.status}. Retry."
            raise errors.AgentCrashed(quoting(message, stderr), details=stderr)
        if asyncio.get_running_loop().time() > deadline:
            raise errors.AgentTimedOut(
                f"The SDK's bridge was not ready within {seconds:g} s. Retry.", details=stderr_tail(process)
            )
    return ready


def _attached(sdk: ModuleType, process: AgentProcess, ready: Ready, options: BridgeOptions) -> Bridge:
    import httpx

    from cursor_gateway.sources.sdk.raw_stream import CopyingTransport

    transport = httpx.AsyncHTTPTransport(
        trust_env=False,  # the bridge is on this machine, where a proxy could not reach it
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # without certificates: reading them all takes 25 ms
        limits=httpx.Limits(max_connections=None),
    )
    http = httpx.AsyncClient(trust_env=False, transport=CopyingTransport(transport), timeout=options.call_seconds)
    client = sdk.AsyncClient(
        base_url=ready.url,
        auth_token=take_token(ready),
        unary_timeout=options.call_seconds,
        stream_timeout=options.silence_seconds,
        http_client=http,
        allow_api_key_env_fallback=True,  # without it the SDK cannot cancel its own runs
    )
    return Bridge(process, client, http, options)


def stderr_tail(process: AgentProcess) -> str:
    """Without the ready message, which may contain the token."""
    return _READY.sub("", process.stderr_tail).strip()


def ready_in(text: str) -> Ready | None:
    found = _READY.search(text)
    if found is None:
        return None
    try:
        ready = msgspec.json.decode(found[1], type=Ready)
    except msgspec.DecodeError:
        return None
    return ready if ready.url else None


def take_token(ready: Ready) -> str:
    """Reads and deletes the token's file and folder, which the bridge never removes."""
    if not ready.auth_token_file:
        return ready.auth_token
    file = Path(ready.auth_token_file)
    token = ready.auth_token
    with suppress(OSError):
        token = token or file.read_text("utf-8").strip()
        file.unlink()
        file.parent.rmdir()  # only if empty
    return token


async def load() -> ModuleType:
    """Raises `AgentMissing`. In a thread: the import takes a third of a second."""
    if find_spec(MODULE) is None:
        raise missing_sdk()
    return await asyncio.to_thread(importlib.import_module, MODULE)


def missing_sdk() -> errors.AgentMissing:
    return errors.AgentMissing(
        "Cursor's SDK is not installed; install it with `pipx install --force '.[sdk]'` in cursor-gateway's folder."
    )


def bundled_command(sdk: ModuleType, *, http1: bool = False, has_proxy: bool = False) -> list[str]:
    """Node itself, not the wrapper script, which would stay its parent and not forward signals.

    The bridge has no option for HTTP/1.1, so the runtime is told before it starts. Node obeys the variables for proxies
    only if it is asked to, and only for HTTP/1.1: the runtime's HTTP/2 would wait for an answer forever.
    """
    folder = Path(os.path.dirname(str(sdk.__file__))) / "_vendor" / "bridge"
    node, script = folder / "bin" / "node", folder / "dist" / "bin" / "cursor-sdk-bridge.js"
    if not node.is_file() or not script.is_file():
        raise errors.AgentMissing(
            "Cursor's SDK is installed without its bridge; install it again with `pipx install --force '.[sdk]'` in "
            "cursor-gateway's folder.",
            details=str(folder),
        )
    flags: list[str] = ["--use-env-proxy"] if has_proxy else []
    if http1 or has_proxy:
        runtime = folder / "node_modules" / "@cursor" / "sdk" / "dist" / "esm" / "index.js"
        told = f"import {{ Cursor }} from {json.dumps(runtime.as_uri())}; {_HTTP1}"
        flags += ["--import", f"data:text/javascript,{quote(told)}"]
    return [str(node), *flags, str(script)]


# --- The home folder: the user's own, with a hook of the gateway in its Cursor configuration -------
# The runtime reads its hooks from the home folder, and the user's own must not change. So it gets a folder of links to
# what is in the user's home, except for `.cursor`, which is a folder of its own: with the gateway's hook, with links to
# the user's settings if they are to be loaded, and with everything that the runtime stores. The commands that it runs
# get the user's home again, from a shell that sets it.

_OWN = frozenset({HOOKS, "projects"})  # in `.cursor`
_NO_NAME = re.compile(r"[^a-zA-Z0-9]+")  # in the name that the runtime gives to a workspace
_USERS_OWN = frozenset({".cursor", ".claude"})  # in a home folder


def make_home(folder: Path, socket: str, environ: Mapping[str, str], *, loads_settings: bool) -> dict[str, str]:
    """Returns the variables of the bridge's environment. Raises `OSError`."""
    user = Path(environ.get("HOME") or os.path.expanduser("~"))
    home = folder / "home"
    with private_folder(folder, home / ".cursor"):
        pass
    skipped = {".cursor"} if loads_settings else _USERS_OWN
    _link(user, home, skipped)
    _link(user / ".cursor" if loads_settings else None, home / ".cursor", _OWN)
    others = read_hooks(user / ".cursor" / HOOKS) if loads_settings else {}
    with private_folder(folder, home / ".cursor") as opened:
        write_private(opened, HOOKS, hooks_file(socket, others))
    return {"HOME": str(home), "SHELL": _shell(folder, user, environ)}


def project_folders(folder: Path, environ: Mapping[str, str], workspace: str) -> list[Path]:
    """Where the runtime keeps its conversations in this workspace, and where it did with the user's own home folder."""
    name = _NO_NAME.sub("-", workspace).strip("-")
    homes = (folder / "home", Path(environ.get("HOME") or os.path.expanduser("~")))
    return [home / ".cursor" / "projects" / name for home in homes]


def write_project_hook(workspace: Path, data: str, socket: str) -> None:
    """For a workspace that is the gateway's own. Raises `OSError`."""
    with private_folder(data, workspace / ".cursor") as opened:
        write_private(opened, HOOKS, hooks_file(socket))


def _link(source: Path | None, target: Path, skipped: frozenset[str] | set[str]) -> None:
    """Makes `target` contain links to what is in `source`, and no others."""
    names = set(os.listdir(source)) - skipped if source is not None and source.is_dir() else set()
    for entry in target.iterdir():
        if entry.is_symlink() and (
            entry.name not in names or source is None or entry.readlink() != source / entry.name
        ):
            entry.unlink()
    for name in names:
        if source is not None and not os.path.lexists(target / name) and source / name != target.parent:
            (target / name).symlink_to(source / name)


def _shell(folder: Path, user: Path, environ: Mapping[str, str]) -> str:
    """A program with the name of the shell that the runtime would use; starts it with the user's home."""
    path, own = environ.get("PATH"), environ.get("SHELL") or ""
    found = own if "zsh" in own or "bash" in own else shutil.which("zsh", path=path) or shutil.which("bash", path=path)
    shell = found or own or "/bin/sh"
    text = f'#!/bin/sh\nHOME={shlex.quote(str(user))} SHELL={shlex.quote(shell)} exec {shlex.quote(shell)} "$@"\n'
    with private_folder(folder, folder / "shell") as opened:
        write_private(opened, os.path.basename(shell), text.encode())
    program = folder / "shell" / os.path.basename(shell)
    program.chmod(0o700)
    return str(program)
