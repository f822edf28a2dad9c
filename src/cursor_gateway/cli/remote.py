"""The settings in; the gateway that `chat`, `models` and `conversations` talk to, and what it answers, out."""

import asyncio
import math
import os
import shutil
import sys
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

import click
import msgspec
from msgspec import Struct

from cursor_gateway.cli.serve import url_of
from cursor_gateway.core.document_events import DocumentEvent, Done
from cursor_gateway.dialects.documents_reader import DocumentEventReader
from cursor_gateway.dialects.documents_request import AnswerRequest, ChatRequest
from cursor_gateway.errors import AgentError, GatewayError, KeyRefused
from cursor_gateway.render.visible import visible_line
from cursor_gateway.settings import Settings, is_loopback
from cursor_gateway.sources.base import Model
from cursor_gateway.wire.sse import SseDecoder

if TYPE_CHECKING:
    import httpx2

_Shape = TypeVar("_Shape")

_LOOK_SECONDS = 1.0  # on this machine a gateway answers within milliseconds, or is none
_CONNECT_SECONDS = 10.0
_SHORT_SECONDS = 60.0  # the first list of models has to wait for the agent
_CANCEL_SECONDS = 3.0
_PAUSES = (0.1, 0.3, 1.0, 2.0, 4.0)  # seconds before a connection that broke off is tried again: a restart takes some
_SILENCE_SECONDS = 90.0  # a gateway says something every 15 s, unless it is told otherwise; a dead line never does
_HELD_SECONDS = 10.0
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
            aside(f"Gateway at {self.url}{f': {source.detail or source.name}' if source else ''}")


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
        return msgspec.json.decode(reply.content, type=Health)  # also where it says that its agent is gone
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


async def ask(
    remote: Remote,
    client: "httpx2.AsyncClient",
    path: str,
    params: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
) -> "httpx2.Response":
    """What it replies, whatever the status. Raises `Trouble` when it does not."""
    import httpx2

    try:
        async with asyncio.timeout(_SHORT_SECONDS):
            return await client.request(method, path, params=params)
    except TimeoutError:
        raise Trouble(f"{remote.url} did not answer within {_SHORT_SECONDS:g} s; try again.") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Trouble(f"{remote.url} cannot be reached: {_reason(error)}; {_OTHERWISE}.") from None


def read_reply(remote: Remote, reply: "httpx2.Response", shape: type[_Shape]) -> _Shape:
    """Raises `Trouble` for a refusal, and for what is no reply of a gateway."""
    if reply.status_code != 200:
        raise refusal(remote, reply.status_code, reply.content)
    try:
        return msgspec.json.decode(reply.content, type=shape)
    except (msgspec.DecodeError, UnicodeError):
        raise _stranger(remote, 200) from None


async def remote_models(remote: Remote) -> list[Model]:
    """Raises `Trouble`."""
    async with client_of(remote) as client:
        entries = read_reply(remote, await ask(remote, client, "/v1/models"), _Entries).data
    return [Model(entry.id, entry.name or entry.id, entry.default) for entry in entries]


class _Entry(Struct, frozen=True):
    id: str
    name: str = ""
    default: bool = False


class _Entries(Struct, frozen=True):
    data: list[_Entry]


# --- following a run ------------------------------------------------------------------------------------


async def remote_events(remote: Remote, request: ChatRequest) -> AsyncGenerator[list[DocumentEvent], None]:
    """What each read of the reply meant; the last event is `Done`. Cancelled, it cancels the run there.

    Raises `Trouble`.
    """
    # The run goes on while a broken connection is made anew.
    asked = msgspec.structs.replace(request, stream=True, when_client_leaves="finish")
    async with client_of(remote) as client:
        run = _RemoteRun(remote, client, asked)
        try:
            while not run.is_done:
                yield await run.next()
        except (asyncio.CancelledError, GeneratorExit):
            await run.cancel()
            raise
        finally:
            await run.close()


async def send_answer(remote: Remote, run_id: str, told: AnswerRequest) -> None:
    """What a run waits for. Raises `Trouble`."""
    async with client_of(remote) as client:
        path, headers = f"/v1/chat/{quote(run_id, safe='')}/answer", {"prefer": "respond-async"}
        body = {name: value for name, value in msgspec.to_builtins(told).items() if value is not None}
        reply = await client.post(path, json={**body, "whenClientLeaves": "finish"}, headers=headers)
        if reply.status_code not in (200, 202):
            raise refusal(remote, reply.status_code, reply.content)


class _Broken(Exception):
    """A connection that ended before the answer did."""


class _RemoteRun:
    """One run, over as many connections as it takes."""

    def __init__(self, remote: Remote, client: "httpx2.AsyncClient", asked: ChatRequest) -> None:
        self.is_done = False
        self._remote, self._client, self._asked = remote, client, asked
        self._body = _encoded(asked)
        self._id = ""  # known with the first reply
        self._headers = {"content-type": "application/json", "idempotency-key": f"chat-{uuid4().hex}"}
        self._has_asked = False
        self._has_begun = False
        self._reply: httpx2.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._decoder, self._reader = SseDecoder(), DocumentEventReader()
        self._failures = 0  # one after the other
        self._connected_at = math.inf

    async def next(self) -> list[DocumentEvent]:
        """At least one event."""
        while True:
            try:
                frames = self._decoder.push(await self._chunk())
            except _Broken as error:
                await self._come_back(str(error))
                continue
            events = [event for frame in frames if (event := self._reader.push(frame)) is not None]
            if events:
                self._failures = 0
                self.is_done = isinstance(events[-1], Done)
                return events

    async def cancel(self) -> None:
        """Also where the gateway would let a run finish whose reader has gone."""
        import httpx2

        await self.close()
        with suppress(httpx2.HTTPError, httpx2.InvalidURL, Trouble, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                if self._has_asked and (id := self._id or await self._find()):
                    await self._client.post(f"/v1/chat/{quote(id, safe='')}/cancel", json={})

    async def close(self) -> None:
        self._chunks = None
        if self._reply is not None:
            await self._reply.aclose()
            self._reply = None

    # --- connections --------------------------------------------------------------------------------

    async def _chunk(self) -> bytes:
        """Raises `_Broken`."""
        import httpx2

        try:
            if self._chunks is None:
                self._chunks = await self._connect()
            async with asyncio.timeout(_SILENCE_SECONDS):
                return await anext(self._chunks)
        except StopAsyncIteration:
            raise _Broken("the reply ended without its end") from None
        except TimeoutError:
            raise _Broken(f"it was silent for {_SILENCE_SECONDS:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            if not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.InvalidURL):
                self._has_begun = True  # somebody is there, and may have heard what was asked
            raise _Broken(_reason(error)) from None

    async def _connect(self) -> AsyncIterator[bytes]:
        self._reply = reply = await self._client.send(self._request(), stream=True)
        if reply.status_code != 200:
            body = await reply.aread()
            if self._id and reply.status_code >= 500:  # it is about to stop, or a proxy waits for it to come back
                raise _Broken(f"it answers with {reply.status_code}")
            raise refusal(self._remote, reply.status_code, body)
        if not reply.headers.get("content-type", "").startswith("text/event-stream"):
            raise _stranger(self._remote, 200)
        self._has_begun = True
        self._id = self._id or reply.headers.get("x-chat-id", "")
        self._connected_at = asyncio.get_running_loop().time()
        return reply.aiter_bytes()

    def _request(self) -> "httpx2.Request":
        accept = {"accept": "text/event-stream"}
        if not self._id:
            self._has_asked = True
            headers = {**accept, **self._headers}
            return self._client.build_request("POST", "/v1/chat", content=self._body, headers=headers)
        headers = {**accept, "last-event-id": self._decoder.last_event_id or "0"}
        return self._client.build_request("GET", f"/v1/chat/{quote(self._id, safe='')}/events", headers=headers)

    async def _come_back(self, reason: str) -> None:
        """Waits a little longer each time. Raises `Trouble` when it is no use."""
        await self.close()
        self._decoder.flush()
        if asyncio.get_running_loop().time() > self._connected_at + _HELD_SECONDS:
            self._failures = 0  # silence is normal, and that a connection ends after a while may be a proxy's habit
        self._connected_at = math.inf
        self._id = self._id or await self._found()
        if not self._has_begun and not self._id:
            raise Trouble(f"{self._remote.url} cannot be reached: {reason}; {_OTHERWISE}.")
        if not self._id or self._failures == len(_PAUSES):
            raise _broken_off(self._remote, reason)
        await asyncio.sleep(_PAUSES[self._failures])
        self._failures += 1

    # --- which run it is ----------------------------------------------------------------------------

    async def _found(self) -> str:
        import httpx2

        with suppress(httpx2.HTTPError, httpx2.InvalidURL, Trouble, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                return await self._find()
        return ""

    async def _find(self) -> str:
        """The reply is held back until the agent says something, and with it the run's id.

        The same request with the same key joins the run that it has started, and may ask for no more than its id.
        """
        reply = await self._client.post(
            "/v1/chat", content=self._body, headers={**self._headers, "prefer": "respond-async"}
        )
        return str(reply.headers.get("x-chat-id", ""))


def _encoded(request: ChatRequest) -> bytes:
    try:
        return msgspec.json.encode(request)
    except UnicodeEncodeError:
        raise Trouble("an option is not UTF-8, which is all that a gateway reads; write it anew.") from None


# --- what it does not answer ----------------------------------------------------------------------------


class _Error(Struct, frozen=True):
    message: str
    code: str | None = None


class _Refusal(Struct, frozen=True):
    error: _Error


def _codes(kind: type[GatewayError]) -> set[str]:
    return {code for below in kind.__subclasses__() for code in (below.code, *_codes(below))}


def refusal(remote: Remote, status: int, body: bytes) -> Trouble:
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
    return RunFailed(
        f"the connection to {remote.url} broke off: {reason}; what had arrived is kept. "
        "`cursor-gateway conversations` tells whether the run goes on there."
    )


def _reason(error: BaseException) -> str:
    """The system's own words stand below those of the client, which are about itself."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.errno and below.strerror:
            # asyncio writes an address there instead of what went wrong
            return os.strerror(below.errno) if below.strerror.startswith("Connect call failed") else below.strerror
        below = below.__cause__ or below.__context__
    return str(error) or type(error).__name__
