"""Run a gateway within this process, on a free port, for as long as it is needed."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from cursor_gateway.cli.assembly.local_socket import url_of
from cursor_gateway.cli.assembly.remote import Remote, current_or_none, open_gateway
from cursor_gateway.cli.assembly.serving import local_socket, serve_gateway
from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.cli.output import aside, aside_demo
from cursor_gateway.keys import LOCAL_OWNER, hash_key, new_key, owner_of
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.cli.assembly.composition import Gateway

HOST = "127.0.0.1"
_LOG = "launch.log"  # in the data directory: the terminal belongs to the client


class OwnGateway(Remote, frozen=True, kw_only=True):
    gateway: "Gateway"

    def announce_until(self, client: str, folder: str) -> None:
        state = self.gateway.service.source.state()
        if state.is_demo:
            aside_demo()
            aside(self.gateway.why_demo)
        detail = "demo" if state.is_demo else state.detail
        aside(f"Gateway at {self.url}: {detail}, in {folder}; it stops when {client} exits")


@asynccontextmanager
async def running_gateway(
    settings: Settings, url: str | None, folder: str, *, direct: bool = False
) -> AsyncIterator[Remote | None]:
    """The gateway that is named, or the user's own if it may work in this folder. None: there is no such gateway."""
    async with open_gateway(settings, url, direct=direct, folder=folder) as remote:
        if remote is None or remote.works_in(folder) or url or settings.url:
            yield remote
            return
        shown = "this folder" if Path(folder).resolve() == current_or_none() else folder
        aside(f"The gateway at {remote.url} is not allowed to work in {shown}; starting another one.")
    yield None


@asynccontextmanager
async def gateway_in(
    settings: Settings, url: str | None, folder: str, client: str, *, direct: bool = False
) -> AsyncIterator[Remote]:
    """The gateway that runs; otherwise one that is started here, and stops when `client` exits. Announces which one
    it is."""
    async with running_gateway(settings, url, folder, direct=direct) as remote:
        if remote is not None:
            remote.announce(folder if remote.works_in(folder) else "")
            yield remote
            return
    async with own_gateway(settings, folder) as own:
        own.announce_until(client, folder)
        yield own


def own_settings(settings: Settings, folder: str) -> tuple[Settings, str]:
    """And the key for it. The local user may work in any folder; the roots are for other callers."""
    keys, key = settings.api_keys, settings.api_key
    if not (keys or settings.store):
        key = ""
    elif owner_of(key, keys) is None and not (key and settings.store):  # whose keys are not known here
        key = new_key()
        keys = {**keys, LOCAL_OWNER: hash_key(key)}
    own = msgspec.structs.replace(
        settings,
        host=HOST,
        port=0,
        role="all",
        workspace=folder,
        workspace_roots=[],
        api_keys=keys,
        requests_per_minute=0,
    )
    return own, key


@asynccontextmanager
async def own_gateway(
    settings: Settings, folder: str, warn: Callable[[str], None] | None = None
) -> AsyncIterator[OwnGateway]:
    """Raises the same errors as a gateway that cannot start. `warn`: instead of its log."""
    from cursor_gateway.cli.assembly.local_socket import bound_socket
    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.server.logs import configure

    own, key = own_settings(settings, folder)
    ready: asyncio.Future[Gateway] = asyncio.get_running_loop().create_future()
    with bound_socket(HOST, 0) as bound, _log(data_dir(own)) as log:
        configure("json", "warning", log)
        port: int = bound.getsockname()[1]
        with local_socket(own, port, is_temporary=True) as local:
            serving = asyncio.ensure_future(
                serve_gateway(own, [bound, *local], ready.set_result, is_temporary=True, warn=warn)
            )
            try:
                serving.add_done_callback(lambda _: ready.cancel())
                try:
                    gateway = await ready
                except asyncio.CancelledError:
                    if serving.done():
                        serving.result()  # raises, unless it was cancelled
                    raise
                url = url_of(HOST, port)
                async with AsyncClient(url, key or None) as client:
                    yield OwnGateway(
                        client=client,
                        url=url,
                        key=key,
                        health=await client.health(),
                        is_own=True,
                        folders=[os.path.realpath(folder)],
                        gateway=gateway,
                    )
            finally:
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving


def _log(data: Path) -> TextIO:
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open(data / _LOG, "a", encoding="utf-8")
    except OSError:  # the gateway itself says what is wrong with it
        return open(os.devnull, "w", encoding="utf-8")
