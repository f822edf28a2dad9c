"""The settings in; the gateway that `chat` and `models` talk to, and what it answers, out."""

import asyncio
import os
import shutil
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import msgspec
from msgspec import Struct

from cursor_gateway.cli.serve import url_of
from cursor_gateway.core.document_events import DocumentEvent, Done
from cursor_gateway.dialects.documents_reader import DocumentEventReader
from cursor_gateway.dialects.documents_request import ChatRequest
from cursor_gateway.errors import AgentError, GatewayError, KeyRefused
from cursor_gateway.render.visible import visible_line
from cursor_gateway.settings import Settings, is_loopback
from cursor_gateway.sources.base import Model
from cursor_gateway.wire.sse import SseDecoder

if TYPE_CHECKING:
    import httpx2

_LOOK_SECONDS = 1.0  # on this machine a gateway answers within milliseconds, or is none
_CONNECT_SECONDS = 10.0
_SHORT_SECONDS = 60.0  # the first list of models has to wait for the agent
_CANCEL_SECONDS = 3.0
_OTHERWISE = "start one with `cursor-gateway serve`, correct the address, or run the agent here with --direct"

url_option = click.option(
    "--url", metavar="URL", help="The gateway to talk to; without one the local gateway, if it answers."
)
direct_option = click.option("--direct", is_flag=True, help="Do not look for a gateway: use the agent here.")


class Trouble(click.ClickException):
    """Told in one line, like everything that goes wrong in this command. This one: it could not begin."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"cursor-gateway: {visible_line(self.message)}", err=True)


class RunFailed(Trouble):
    exit_code = 1


def aside(text: str = "", **style: bool) -> None:
    """A line for people, never in the pipe that wants the answer; without text, an empty one for their eyes."""
    if sys.stderr is None or not (text or sys.stderr.isatty()):
        return
    text = visible_line(text)
    if sys.stderr.isatty() and os.environ.get("TERM") not in (None, "dumb"):
        text = textwrap.fill(text, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)
        if not os.environ.get("NO_COLOR"):
            text = click.style(text, **(style or {"dim": True}))
    click.echo(text, err=True)


def aside_demo(where: str = "") -> None:
    aside(f"DEMO: built-in recordings answer{where}. No agent runs, no file changes.", bold=True, reverse=True)


# --- which gateway ------------------------------------------------------------------------------------


class _Source(Struct, frozen=True):
    name: str
    detail: str
    demo: bool = False


class Health(Struct, frozen=True):
    """What `GET /health` tells."""

    version: str
    source: _Source


class Remote(Struct, frozen=True, kw_only=True):
    url: str
    key: str = ""
    health: Health | None = None  # None: it does not tell, as behind some proxies

    @property
    def is_local(self) -> bool:
        return is_loopback(urlsplit(self.url).hostname or "")

    def announce(self) -> None:
        source = self.health and self.health.source
        if source and source.demo:
            aside_demo(f" at {self.url}")
        else:
            aside(f"Gateway at {self.url}{f': {source.detail}' if source else ''}")


async def find_gateway(settings: Settings, url: str | None) -> Remote | None:
    """The one that is named, else the local one, if there is one. Raises `Trouble` when a named one does not answer."""
    if named := url or settings.url:
        remote = Remote(url=_checked(named), key=settings.api_key)
        try:
            return msgspec.structs.replace(remote, health=await ask_health(remote, _CONNECT_SECONDS))
        except OSError as error:
            raise Trouble(f"{remote.url} cannot be reached: {error}; {_OTHERWISE}.") from None
    if settings.port == 0:  # nobody knows which one was free then
        return None
    remote = Remote(url=local_url(settings), key=settings.api_key)
    with suppress(OSError):
        if health := await ask_health(remote, _LOOK_SECONDS):
            return msgspec.structs.replace(remote, health=health)
    return None


def local_url(settings: Settings) -> str:
    return url_of(settings.host.removeprefix("[").removesuffix("]"), settings.port)


async def ask_health(remote: Remote, seconds: float) -> Health | None:
    """None when it is no gateway that answers. Raises `OSError`, with the reason, when nothing does."""
    import httpx2

    try:
        async with asyncio.timeout(seconds), client_of(remote) as client:
            reply = await client.get("/health")
    except TimeoutError:
        raise OSError(f"no answer within {seconds:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OSError(_reason(error)) from None
    try:
        return msgspec.json.decode(reply.content, type=Health) if reply.is_success else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def _checked(url: str) -> str:
    """Without what people add to it because other clients want it."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise Trouble(f"{url!r} is not the address of a gateway; write it like http://127.0.0.1:8787.")
    return url.rstrip("/").removesuffix("/v1")


# --- asking it ------------------------------------------------------------------------------------------


def client_of(remote: Remote) -> "httpx2.AsyncClient":
    import httpx2

    if not (remote.key.isascii() and remote.key.isprintable()):
        raise Trouble("the setting `api_key` holds characters that no key has; set it to the key alone.")
    return httpx2.AsyncClient(
        base_url=remote.url,
        headers={"authorization": f"Bearer {remote.key}"} if remote.key else {},
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),  # a run may be silent for as long as it likes
        trust_env=not remote.is_local,  # a proxy of the company does not lead to this machine
        verify=remote.url.startswith("https:"),  # reading all certificates takes a tenth of a second
    )


async def remote_models(remote: Remote) -> list[Model]:
    """Raises `Trouble`."""
    import httpx2

    try:
        async with asyncio.timeout(_SHORT_SECONDS), client_of(remote) as client:
            reply = await client.get("/v1/models")
    except TimeoutError:
        raise Trouble(f"{remote.url} did not tell its models within {_SHORT_SECONDS:g} s; try again.") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Trouble(f"{remote.url} cannot be reached: {_reason(error)}; {_OTHERWISE}.") from None
    if reply.status_code != 200:
        raise _refusal(remote, reply.status_code, reply.content)
    try:
        entries = msgspec.json.decode(reply.content, type=_Entries).data
    except (msgspec.DecodeError, UnicodeError):
        raise _stranger(remote, 200) from None
    return [Model(entry.id, entry.name or entry.id, entry.default) for entry in entries]


class _Entry(Struct, frozen=True):
    id: str
    name: str = ""
    default: bool = False


class _Entries(Struct, frozen=True):
    data: list[_Entry]


async def remote_events(remote: Remote, request: ChatRequest) -> AsyncGenerator[list[DocumentEvent], None]:
    """What each read of the reply meant; the last event is `Done`. Cancelled, it cancels the run there.

    Raises `Trouble`.
    """
    import httpx2

    try:
        asked = msgspec.json.encode(msgspec.structs.replace(request, stream=True))
    except UnicodeEncodeError:
        raise Trouble("an option is not UTF-8, which is all that a gateway reads; write it anew.") from None
    has_begun = False
    async with client_of(remote) as client:
        try:
            headers = {"content-type": "application/json", "accept": "text/event-stream"}
            async with client.stream("POST", "/v1/chat", content=asked, headers=headers) as reply:
                if reply.status_code != 200:
                    raise _refusal(remote, reply.status_code, await reply.aread())
                if not reply.headers.get("content-type", "").startswith("text/event-stream"):
                    raise _stranger(remote, 200)
                has_begun = True
                decoder, reader = SseDecoder(), DocumentEventReader()
                try:
                    async for chunk in reply.aiter_bytes():
                        frames = decoder.push(chunk)
                        events = [event for frame in frames if (event := reader.push(frame)) is not None]
                        if events:
                            yield events
                        if events and isinstance(events[-1], Done):
                            return
                except (asyncio.CancelledError, GeneratorExit):
                    await _cancel(client, reply.headers.get("x-chat-id", ""))
                    raise
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            if not has_begun:
                raise Trouble(f"{remote.url} cannot be reached: {_reason(error)}; {_OTHERWISE}.") from None
            raise _broken_off(remote, _reason(error)) from None
    raise _broken_off(remote, "the reply ended without its end")


async def _cancel(client: "httpx2.AsyncClient", id: str) -> None:
    """Also where the gateway would let a run finish whose reader has gone."""
    import httpx2

    with suppress(httpx2.HTTPError, httpx2.InvalidURL):
        if id:
            await client.post(f"/v1/chat/{id}/cancel", json={}, timeout=_CANCEL_SECONDS)


# --- what it does not answer ----------------------------------------------------------------------------


class _Error(Struct, frozen=True):
    message: str
    code: str | None = None


class _Refusal(Struct, frozen=True):
    error: _Error


def _codes(kind: type[GatewayError]) -> set[str]:
    return {code for below in kind.__subclasses__() for code in (below.code, *_codes(below))}


def _refusal(remote: Remote, status: int, body: bytes) -> Trouble:
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeError):
        return _stranger(remote, status)
    if error.code == KeyRefused.code:
        return Trouble(f"{error.message} Here it is the setting `api_key` (CURSOR_GATEWAY_API_KEY).")
    # A run that the agent could not even begin has failed like any other.
    return RunFailed(error.message) if error.code in _codes(AgentError) else Trouble(error.message)


def _stranger(remote: Remote, status: int) -> Trouble:
    return Trouble(f"{remote.url} answers ({status}), but not as a gateway does; {_OTHERWISE}.")


def _broken_off(remote: Remote, reason: str) -> Trouble:
    return RunFailed(f"the connection to {remote.url} broke off: {reason}; what had arrived is kept. Ask again.")


def _reason(error: BaseException) -> str:
    """The system's own words stand below those of the client, which are about itself."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.errno and below.strerror:
            # asyncio writes an address there instead of what went wrong
            return os.strerror(below.errno) if below.strerror.startswith("Connect call failed") else below.strerror
        below = below.__cause__ or below.__context__
    return str(error) or type(error).__name__
