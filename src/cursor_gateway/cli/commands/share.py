"""`cursor-gateway share`: log in another device at a shared gateway; list and forget devices."""

import asyncio
import json
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.cli.assembly.remote import open_gateway, url_option
from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.output import Trouble, aside, wants_plain
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import CODE_SECONDS, DEVICE_DAYS, LOCAL_OWNER, DeviceKeys, LoginCodes
from cursor_gateway.model.history import LoginLink
from cursor_gateway.render.visible import visible_line
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.model.history import DeviceEntry
    from cursor_gateway.server.links import Sharing

# --- Tailscale ---------------------------------------------------------------------------------------


_APP = "/Applications/Tailscale.app/Contents/MacOS/Tailscale"
_ANSWER_SECONDS = 10.0
_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_PORTS = (443, 8443, 10443)


class Tailnet(Struct, frozen=True):
    """This machine in a network of Tailscale's."""

    program: str
    name: str  # of this machine

    def free_port(self) -> int:
        """One that Tailscale does not serve yet. Raises `Trouble`."""
        used = self._served()
        for port in _PORTS:
            if port not in used:
                return port
        raise Trouble("Tailscale already serves the ports 443, 8443 and 10443; see `tailscale serve status`.")

    def command(self, port: int, target: int) -> list[str]:
        """Without `--bg`: Tailscale then stops serving when this process ends."""
        return [self.program, "serve", f"--https={port}", f"http://127.0.0.1:{target}"]

    @contextmanager
    def serving(self, port: int, target: int) -> Iterator[None]:
        """Serves until the end of the `with` block. Raises `Trouble`."""
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                self.command(port, target), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                deadline = time.monotonic() + _START_SECONDS
                while port not in self._served():
                    if process.poll() is not None or time.monotonic() > deadline:
                        output.seek(0)
                        raise Trouble(f"Tailscale does not serve this gateway: {_last_lines(output.read())}")
                    time.sleep(0.2)
                yield
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _served(self) -> set[int]:
        found = _answer_of(self.program, "serve", "status", "--json")
        tables = [found, *(found.get("Foreground") or {}).values()]
        return {int(port) for table in tables for port in table.get("TCP") or {}}


def find_tailnet() -> Tailnet | None:
    """None: Tailscale is not installed, not running, or not logged in."""
    program = shutil.which("tailscale") or (_APP if Path(_APP).exists() else None)
    if program is None:
        return None
    found = _answer_of(program, "status", "--json")
    name = str((found.get("Self") or {}).get("DNSName") or "").rstrip(".")
    return Tailnet(program, name) if found.get("BackendState") == "Running" and name else None


def _answer_of(*command: str) -> Mapping[str, Any]:
    """The JSON object that it prints; empty if it prints something else, fails, or does not answer."""
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_SECONDS, check=True
        )
        found = json.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _last_lines(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " ".join(lines[-5:]) or "it did not answer in time; see `tailscale serve status`."


# --- a port for other devices ------------------------------------------------------------------------


_HOST = "127.0.0.1"


class SharedPort(Struct, frozen=True):
    sharing: "Sharing"
    bound: socket.socket
    settings: Settings  # of this port


@contextmanager
def shared_port(settings: Settings, port: int) -> Iterator[SharedPort]:
    """For as long as the gateway on `port` is shared. Asks before anything is opened. Raises `Trouble`."""
    from cursor_gateway.server.links import Sharing

    owner = _owner(settings)
    with ExitStack() as opened:
        bound = opened.enter_context(_bound(port + 1 if settings.port else 0))
        target: int = bound.getsockname()[1]
        url = settings.page_url.rstrip("/") or opened.enter_context(_served_by_tailscale(target))
        host = urlsplit(url).hostname
        if urlsplit(url).scheme != "https" or not host:
            raise SettingsError(
                "`--share` needs HTTPS; set `page_url` to an address with `https://`.", param="page_url"
            )
        data = data_dir(settings)
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        keys = DeviceKeys(settings.api_keys, owner, data / "devices.json")
        own = replace(settings, host=_HOST, allowed_hosts=[*settings.allowed_hosts, host])
        yield SharedPort(Sharing(LoginCodes(), keys, url), bound, own)


def show_shared(sharing: "Sharing") -> None:
    """With a login only on a terminal: the output of a service is a log, which others may be able to read."""
    if sys.stdout.isatty():
        show_login(sharing.new_link())
    else:
        click.echo(f"\n  Other devices  {sharing.url}/\n\nTo log in a device, run `cursor-gateway share`.\n")


def show_login(link: LoginLink) -> None:
    """The link, and on a terminal also as a QR code."""
    click.echo(f"\n  Other devices  {link.url.partition('#')[0]}")
    click.echo(
        f"\nTo log in on a phone, scan this code. It is valid for {CODE_SECONDS // 60} minutes and for one login:\n"
    )
    if sys.stdout.isatty():
        click.echo(qr_text(link.url, in_colour=not wants_plain()))
    click.echo(f"  {link.url}\n")
    click.echo(
        f"A device stays logged in for {DEVICE_DAYS} days. `cursor-gateway share` shows another code, and lists and "
        "logs out devices.\n"
    )


def qr_text(text: str, *, in_colour: bool) -> str:
    """Two rows of the code in each line. Light modules are drawn: most terminals are dark."""
    import segno  # only people who share need it

    rows = [list(row) for row in segno.make_qr(text, error="l").matrix_iter(border=2)]
    rows += [[0] * len(rows[0])] * (len(rows) % 2)
    glyphs = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
    lines = [
        "".join(glyphs[above, below] for above, below in zip(*pair, strict=True))
        for pair in zip(rows[::2], rows[1::2], strict=True)
    ]
    shown = (click.style(line, fg="bright_white", bg="black") if in_colour else line for line in lines)
    return "\n".join(f"  {line}" for line in shown)


def _owner(settings: Settings) -> str:
    """Devices have the conversations of the gateway's user. Raises `SettingsError`."""
    if settings.store:
        raise SettingsError(
            "`--share` is for a gateway of your own; with a database, create a key for each device with "
            "`cursor-gateway key NAME`.",
            param="store",
        )
    if len(settings.api_keys) > 1:
        raise SettingsError(
            "`--share` is for a gateway with one user, but `api_keys` has several; give each their own key.",
            param="api_keys",
        )
    return next(iter(settings.api_keys), LOCAL_OWNER)


@contextmanager
def _bound(port: int) -> Iterator[socket.socket]:
    from cursor_gateway.cli.assembly.local_socket import bound_socket

    try:
        bound = bound_socket(_HOST, port)
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"`--share` uses the port after the gateway's, {port}, which is not available: {error}; choose another "
            "with `--port`.",
            param="port",
        ) from None
    with bound:
        yield bound


@contextmanager
def _served_by_tailscale(target: int) -> Iterator[str]:
    tailnet = find_tailnet()
    if tailnet is None:
        click.echo(proxy_advice(target), err=True)
        raise Trouble("nothing was opened: Tailscale is not running on this machine, and `page_url` is not set.")
    port = tailnet.free_port()
    _confirm_serving(tailnet, port, target)
    with tailnet.serving(port, target):
        yield f"https://{tailnet.name}" if port == 443 else f"https://{tailnet.name}:{port}"


def _confirm_serving(tailnet: Tailnet, port: int, target: int) -> None:
    command = shlex.join(["tailscale", *tailnet.command(port, target)[1:]])
    if not sys.stdin.isatty():
        raise Trouble(
            f"`--share` asks before it opens anything, which needs a terminal. Without one, run `{command}` "
            f"yourself and set `page_url` to https://{tailnet.name}."
        )
    click.echo(
        f"Tailscale is running. Devices in your tailnet can then open https://{tailnet.name}, and must log in.\n"
        f"This runs until the gateway stops:\n\n  {command}\n"
    )
    click.confirm("Run it?", default=True, abort=True)


def proxy_advice(target: int) -> str:
    return (
        "To use the gateway from other devices, install Tailscale and log in (https://tailscale.com/download),\n"
        "or use a reverse proxy with HTTPS. For Caddy:\n\n"
        "  gateway.example.com {\n"
        f"    reverse_proxy {_HOST}:{target} {{\n"
        "      flush_interval -1\n"
        "    }\n"
        "  }\n\n"
        "Then name its address:\n\n"
        "  CURSOR_GATEWAY_PAGE_URL=https://gateway.example.com cursor-gateway serve --share\n"
    )


# --- the command ------------------------------------------------------------------------------------------


_Result = TypeVar("_Result")


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway share                       show a QR code for one more device
      cursor-gateway share --list
      cursor-gateway share --forget dev_1a2b3c4d
      cursor-gateway share --forget all

    \b
    The gateway must run with `cursor-gateway serve --share`.
    Exit status: 0 success; 1 there is no such device; 2 no shared gateway is running.""",
)
@config
@url_option
@click.option("--list", "lists", is_flag=True, help="List the devices that are logged in.")
@click.option("--forget", metavar="ID", help="Log out a device, or `all`.")
def share(config: str | None, url: str | None, lists: bool, forget: str | None) -> int:
    """Log in another device at your gateway."""
    settings = configuration(config).settings

    async def call(work: "Callable[[AsyncClient], Awaitable[_Result]]") -> _Result:
        from cursor_gateway.client.failures import CallFailed

        async with open_gateway(settings, url) as remote:
            if remote is None:
                raise Trouble("no gateway is running; start one with `cursor-gateway serve --share`.")
            try:
                return await work(remote.client)
            except CallFailed as error:
                if error.status != 404:
                    raise
                raise Trouble(
                    "this gateway is not shared; stop it, and start it with `cursor-gateway serve --share`."
                ) from None

    if lists:
        _print(asyncio.run(call(lambda client: client.devices())))
        return 0
    if forget is not None:
        count = asyncio.run(call(lambda client: _forget(client, forget)))
        aside(f"Logged out {count} device{'' if count == 1 else 's'}.")
        return 0 if count else 1

    show_login(asyncio.run(call(lambda client: client.new_login())))
    return 0


async def _forget(client: "AsyncClient", id: str) -> int:
    wanted = [device.id for device in await client.devices() if id in ("all", device.id)]
    for found in wanted:
        await client.forget_device(found)
    return len(wanted)


def _print(devices: "list[DeviceEntry]") -> None:
    if not devices and sys.stdout.isatty():
        aside("No device is logged in.")
    for device in devices:
        since = datetime.fromtimestamp(device.created_at, UTC).strftime("%Y-%m-%d %H:%M")
        click.echo(f"{device.id}\t{since}\t{visible_line(device.name)}")
