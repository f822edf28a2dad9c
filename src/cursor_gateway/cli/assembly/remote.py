"""Find the gateway that the commands use, and connect to it.

Without an address, it is one of the user's own on this machine, on any port; of several, the one that works in the
current folder. Which gateway it is does not depend on how fast it answers: only a refused connection means that there
is none. A gateway on this machine is reached through its socket (see `local_socket`). What listens on a port, without a
socket, could belong to another user: it is sent nothing, neither a key nor a prompt, unless `verify_gateway` is off.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click
from msgspec import Struct

from cursor_gateway.cli.assembly import local_socket
from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.output import FailedRun, Trouble, aside, aside_demo
from cursor_gateway.errors import AgentError, KeyRefused, errors_by_code
from cursor_gateway.settings import Settings, is_loopback

if TYPE_CHECKING:
    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.client.failures import CallFailed
    from cursor_gateway.model.health import Health

_Result = TypeVar("_Result")

_ANSWER_SECONDS = 60.0  # for its health; a machine under load takes a while
_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 90.0  # a gateway sends something every 15 s by default; a dead connection never does
_PAUSES = (0.1, 0.3, 1.0, 2.0, 4.0)  # seconds before a connection that broke off is tried again: a restart takes some
_OTHERWISE = "start one with `cursor-gateway serve`, correct the address, or use --direct"

url_option = click.option(
    "--url",
    metavar="URL",
    help="The gateway to use; it receives the prompt and the key. Default: your own on this machine, if it is running.",
)
direct_option = click.option("--direct", is_flag=True, help="Do not use a gateway; start the agent directly.")


class GatewayChoice(Struct, frozen=True):
    """Where a command works, as its options say."""

    config: str | None
    url: str | None
    direct: bool  # without a gateway

    def __post_init__(self) -> None:
        if self.direct and self.url:
            raise click.UsageError("--direct and --url cannot be combined.")

    @property
    def settings(self) -> Settings:
        """Raises `SettingsError`."""
        return configuration(self.config).settings

    @property
    def flags(self) -> str:
        """With which another command finds it again."""
        return f" --url {self.url}" if self.url else " --direct" if self.direct else ""


def place_options(
    direct_option: Callable[[Callable[..., int]], Callable[..., int]],
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Adds --config, --url and --direct to a command, which gets them as its `place`."""

    def added(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def placed(config: str | None, url: str | None, direct: bool, **others: Any) -> int:
            return command(place=GatewayChoice(config, url, direct), **others)

        return config(url_option(direct_option(placed)))

    return added


def passed_on(context: click.Context) -> bool:
    """Options before the name of a subcommand are the subcommand's. False: there is no subcommand."""
    if (name := context.invoked_subcommand) is None:
        return False
    context.default_map = {name: {one: value for one, value in context.params.items() if value not in (None, False)}}
    return True


class Remote(Struct, frozen=True, kw_only=True):
    client: "AsyncClient"
    url: str
    key: str = ""  # that is sent; empty: none
    health: "Health | None"  # None if unknown, as behind some proxies
    is_own: bool  # a process of this user's on this machine
    folders: Sequence[str] = ()  # of this machine, where it may work

    @property
    def is_local(self) -> bool:
        return self.is_own or is_loopback(urlsplit(self.url).hostname or "")

    def works_in(self, folder: str) -> bool:
        """Whether this folder of this machine is one that it may work in. Elsewhere it may not even exist."""
        return local_socket.depth(self.folders, Path(folder).resolve()) > 0

    def announce(self, folder: str = "") -> None:
        source = self.health and self.health.source
        if source and source.demo:
            aside_demo(f" at {self.url}")
            return
        backend = f": {source.detail or source.name}" if source else ""
        aside(f"Gateway at {self.url}{backend}{f', in {folder}' if folder else ''}")


@asynccontextmanager
async def open_gateway(
    settings: Settings, url: str | None, *, direct: bool = False, folder: str | None = None
) -> AsyncIterator[Remote | None]:
    """The one that is named, else the local one for this folder, by default the current one, if it runs; `direct`:
    none. Errors become `Trouble`."""
    from cursor_gateway.client.asynchronous import AsyncClient

    found = None if direct else await _locate(settings, url, folder)
    if found is None:
        yield None
        return
    async with AsyncExitStack() as opened:
        socket = opened.enter_context(
            nullcontext() if found.local is None else local_socket.short_path(found.local.socket)
        )
        try:
            client = AsyncClient(found.url, settings.api_key, timeout=_SILENCE_SECONDS, pauses=_PAUSES, socket=socket)
        except ValueError:  # the address is known to be one
            raise Trouble("the setting `api_key` contains invalid characters; set it to the key only.") from None
        await opened.enter_async_context(client)
        with reported(found.url):
            yield Remote(
                client=client,
                url=found.url,
                key=settings.api_key,
                health=await _health(client, found),
                is_own=found.local is not None,
                folders=found.local.description.folders if found.local else (),
            )


def at_gateway(
    settings: Settings, url: str | None, use: "Callable[[AsyncClient], Awaitable[_Result]]", otherwise: Trouble
) -> _Result:
    """What only a gateway can do. Raises `otherwise` if none runs."""

    async def used() -> _Result:
        async with open_gateway(settings, url) as remote:
            if remote is None:
                raise otherwise
            return await use(remote.client)

    return asyncio.run(used())


# --- where it is ----------------------------------------------------------------------------------------


class _Address(Struct, frozen=True, kw_only=True):
    url: str
    is_named: bool
    local: local_socket.LocalGateway | None = None


def local_gateway(settings: Settings, folder: str | None = None) -> local_socket.LocalGateway | None:
    """The user's own that works in this folder, by default the current one; else the one on the usual port, or any."""
    here = Path(folder).resolve() if folder else current_or_none()
    return local_socket.nearest(local_socket.find_gateways(data_dir(settings)), here, settings.port)


async def _locate(settings: Settings, url: str | None, folder: str | None) -> _Address | None:
    from cursor_gateway.client.connection import checked, reason_of

    named = url or settings.url
    if not named and (local := local_gateway(settings, folder)) is not None:
        return _Address(url=local.url, is_named=False, local=local)
    try:
        address = checked(named) if named else local_url(settings)
    except ValueError as error:
        raise Trouble(f"{error}.") from None
    if not named and settings.port == 0:  # it is not known which one was free
        return None
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if named and (parts.scheme == "https" or not is_loopback(parts.hostname or "")):
        return _Address(url=address, is_named=True)  # the user who names it trusts it
    data = data_dir(settings)
    if (local := local_socket.find_gateway(data, port)) is not None:
        return _Address(url=address, is_named=bool(named), local=local)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):  # whether anything listens there; nothing is sent
            _, writer = await asyncio.open_connection(parts.hostname or "", port)
        writer.transport.abort()
    except TimeoutError:
        raise Trouble(_no_answer(address, _CONNECT_SECONDS)) from None
    except OSError as error:
        if not named:
            return None
        raise _unreachable(address, reason_of(error)) from None
    if settings.verify_gateway:
        raise Trouble(
            f"{address} is in use by something that is not your gateway, so nothing was sent to it; use --direct to "
            "run the agent here. If it is your gateway, restart it: it may be older, or have another `data_dir` than "
            f"{data}. If you trust it (a container, a tunnel, another user's), set CURSOR_GATEWAY_VERIFY_GATEWAY=false."
        )
    return _Address(url=address, is_named=bool(named))


def current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise Trouble("the current folder no longer exists; change to another.") from None


def current_or_none() -> Path | None:
    """None: the current folder is gone."""
    try:
        return Path.cwd().resolve()
    except OSError:
        return None


def local_url(settings: Settings) -> str:
    return local_socket.url_of(settings.host.removeprefix("[").removesuffix("]"), settings.port)


# --- how it is ------------------------------------------------------------------------------------------


async def _health(client: "AsyncClient", address: _Address) -> "Health | None":
    """None if a named gateway does not report it, as behind some proxies. Raises `CallFailed`, `Trouble`."""
    from cursor_gateway.client.failures import CallFailed, CannotReach

    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await client.health()
    except TimeoutError:
        raise Trouble(_no_answer(address.url, _ANSWER_SECONDS)) from None
    except CannotReach as error:
        raise _unreachable(address.url, error.reason) from None
    except CallFailed:
        if address.is_named and address.local is None:
            return None
        raise


async def ask_health(url: str, seconds: float) -> "Health | None":
    """None when it is no gateway that answers. Raises `OSError`, with the reason, when nothing does. Sends no key."""
    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.client.failures import CallFailed, CannotReach

    try:
        async with AsyncClient(url, pauses=()) as client, asyncio.timeout(seconds):
            return await client.health()
    except TimeoutError:
        raise OSError(f"no answer within {seconds:g} s") from None
    except ValueError as error:
        raise OSError(str(error)) from None
    except CannotReach as error:
        raise OSError(error.reason) from None
    except CallFailed:
        return None


# --- what goes wrong ------------------------------------------------------------------------------------


@contextmanager
def reported(url: str) -> Iterator[None]:
    """What a gateway refuses, and what is wrong with the connection, becomes `Trouble`."""
    from cursor_gateway.client.failures import CallFailed

    try:
        yield
    except CallFailed as error:
        raise _trouble(url, error) from None


def _trouble(url: str, error: "CallFailed") -> Trouble:
    from cursor_gateway.client.failures import NOT_A_GATEWAY, CannotReach

    if isinstance(error, CannotReach):
        has_begun = error.was_connected or bool(error.chat_id)
        return _broken_off(url, error.reason) if has_begun else _unreachable(url, error.reason)
    if error.code == NOT_A_GATEWAY:
        if error.chat_id and error.status != 200:  # something else answers now
            return _broken_off(url, f"it answered with {error.status}")
        return Trouble(f"{url} answered with {error.status}, but is not a cursor-gateway; {_OTHERWISE}.")
    if error.code == KeyRefused.code:
        return Trouble(f"{error.message} For this command, set `api_key` (CURSOR_GATEWAY_API_KEY).")
    # A run that the agent could not even begin has failed like any other.
    return FailedRun(error.message) if error.code in errors_by_code(AgentError) else Trouble(error.message)


def _unreachable(url: str, reason: str) -> Trouble:
    return Trouble(f"{url} cannot be reached: {reason}; {_OTHERWISE}.")


def _no_answer(url: str, seconds: float) -> str:
    return (
        f"{url} did not answer within {seconds:g} s; it may be overloaded or stopped. "
        "Try again, restart it, or use --direct."
    )


def _broken_off(url: str, reason: str) -> Trouble:
    return FailedRun(
        f"the connection to {url} was lost: {reason}. `cursor-gateway conversations` shows whether the run is still "
        "active."
    )
