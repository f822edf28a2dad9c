"""Prepare a gateway for use from other devices: a port for them, the address, and the keys of devices.

Devices use a port of their own, which is on loopback too: Tailscale or a reverse proxy connects to it, and adds HTTPS.
There, a key is always required. Nothing changes for programs on this machine.
"""

import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import click
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.cli.output import Trouble
from cursor_gateway.cli.tailscale import Tailnet, find_tailnet
from cursor_gateway.cli.terminals import wants_plain
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import LOCAL_OWNER
from cursor_gateway.logins import CODE_SECONDS, DEVICE_DAYS, DeviceKeys, LoginCodes
from cursor_gateway.model.history import LoginLink
from cursor_gateway.server.logins import Sharing
from cursor_gateway.settings import Settings

_HOST = "127.0.0.1"


class SharedPort(Struct, frozen=True):
    sharing: Sharing
    bound: socket.socket
    settings: Settings  # of this port


@contextmanager
def shared_port(settings: Settings, port: int) -> Iterator[SharedPort]:
    """For as long as the gateway on `port` is shared. Asks before anything is opened. Raises `Trouble`."""
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


def show_shared(sharing: Sharing) -> None:
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
    from cursor_gateway.server.sockets import bound_socket

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
    _confirm(tailnet, port, target)
    with tailnet.serving(port, target):
        yield f"https://{tailnet.name}" if port == 443 else f"https://{tailnet.name}:{port}"


def _confirm(tailnet: Tailnet, port: int, target: int) -> None:
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
