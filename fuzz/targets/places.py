"""What somebody configures, looks for, or names in a request line."""

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.types import Message

from cursor_gateway.cli.assembly.composition import compose
from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.cli.configuration import configuration
from cursor_gateway.errors import InvalidRequest, SettingsError
from cursor_gateway.keys import hash_key, is_hash, is_name, owner_of
from cursor_gateway.server.app import build_app
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.settings import Settings, every_setting, load
from cursor_gateway.store.texts import query_words, snippet
from fuzz.target import Target, text_of
from tests.store.blocking import Database
from tests.store.making import ME, new_run

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


_open = ExitStack()


def close() -> None:
    """All that was opened here. Who goes on begins afresh."""
    _open.close()
    for opened in (_folder, _store, _served):
        opened.cache_clear()


@cache
def _folder() -> Path:
    return Path(_open.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-")))


# --- settings and keys ------------------------------------------------------------------------------

_KEY = "cgw_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


class _Layers(msgspec.Struct):
    file: dict[str, Any] = {}
    environ: dict[str, str] = {}
    flags: dict[str, Any] = {}


def settings(data: bytes) -> None:
    """Three layers as JSON; what is none is a configuration file."""
    try:
        layers = msgspec.json.decode(data, type=_Layers)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        path = _folder() / "config.toml"
        path.write_bytes(data)
        _assert_read(lambda: configuration(str(path), environ={}).settings, text_of(data))
        return
    _assert_read(lambda: load(layers.file, layers.environ, layers.flags).settings, text_of(data))
    for value in layers.environ.values():
        is_name(value), is_hash(value)
        assert owner_of(value, {"me": hash_key(value), "you": hash_key(value + "x")}) == "me"
        assert owner_of(value + "x", {"me": hash_key(value)}) is None


def _assert_read(read: Callable[[], Settings], given: str) -> None:
    try:
        found = read()
    except SettingsError as error:
        failure = error.failure()
    else:
        for setting in every_setting():
            setting.masked(getattr(found, setting.name))
        return
    msgspec.json.encode(failure)
    as_value = re.search(rf"api_?keys?[^a-z]*[\w.-]{{0,64}}\W{{1,6}}{_KEY}", given, re.IGNORECASE)
    assert not as_value or _KEY not in failure.message, "a key is told"


def _settings_seeds() -> Iterator[bytes]:
    hashed = hash_key(_KEY)
    yield b'port = 8080\nhost = "127.0.0.1"\nallowed_hosts = ["a.example"]\nmax_runs = 2\n'
    yield f'log_format = "json"\n[api_keys]\nme = "{hashed}"\n[agent_headers]\na = "b"\n'.encode()
    yield f'[api_keys]\nme = "{_KEY}"\nport = 1\n'.encode()
    yield b"\xef\xbb\xbfport = '8080'\nunknown = 1979-05-27T07:32:00Z\n[a.b]\n[[c]]\n"
    yield _json(file={"port": 1, "grace_seconds": 0.5}, environ={"CURSOR_GATEWAY_PORT": "80"}, flags={"host": "x"})
    yield _json(environ={"CURSOR_GATEWAY_API_KEYS": f"me={hashed},you=x", "CURSOR_GATEWAY_FORCE": "yes"})
    yield _json(environ={"CURSOR_GATEWAY_PORT": "tcp://1.2.3.4:80", "CURSOR_GATEWAY_SERVICE_HOST": "x"})
    for setting in every_setting():
        yield _json(file={setting.name: setting.default}, environ={setting.variable: "1"})


# --- the history ------------------------------------------------------------------------------------


@cache
def _store() -> Database:
    store = Database(_folder())
    _open.callback(store.close)
    store.open(0)
    texts = ["Hello world", 'a "quoted" NEAR(b) OR c*', "größe ﬁ 漢字 \U0001f600 ª x", "foo-bar foo_bar foo.bar"]
    for number, text in enumerate(texts * 3):
        store.begin_run(new_run(f"run_{number}", f"conv_{number}", text, at=number))
    return store


def search(data: bytes) -> None:
    """The first line is a place in the list, the rest what is looked for."""
    before, _, query = text_of(data).partition("\n")
    store = _store()
    for asked in (query, None):
        for place in (before or None, None):
            page = None
            with suppress(InvalidRequest):
                page = store.conversations(ME, limit=2, before=place, query=asked)
            assert page is not None or place is not None, "a list from its start cannot be refused"
            if page is not None and page.next is not None:
                msgspec.json.encode(page)
                store.conversations(ME, limit=2, before=page.next, query=asked)
    words = query_words(query)
    if words:
        assert "\n" not in snippet(query, words)
    assert store.conversation(query, ME) is None or query.startswith("conv_")
    store.run(before, query)
    store.events(before, ME)
    store.find_run_by_idempotency(ME, query)


def _search_seeds() -> Iterator[bytes]:
    store = _store()
    by_time = store.conversations(ME, limit=2, query=None).next or ""
    by_run = store.conversations(ME, limit=2, query="hello").next or ""
    yield f"{by_time}\nhello wor".encode()
    yield f'{by_run}\n"quoted" NEAR(b) OR c* AND NOT -x ^y : {{z}}'.encode()
    yield b'\nx"( "y "" *'
    yield "W10\nGRÖSSE ﬁ 漢 \U0001f600 ª".encode()
    yield b'\nfoo-bar* \0 """ (unclosed'


# --- paths, queries and headers -----------------------------------------------------------------------


class _Served:
    """The whole application, without a socket; its agent is the built-in recordings."""

    def __init__(self) -> None:
        home = _folder() / "home"
        home.mkdir()
        chosen = Settings(source="replay", replay_speed=0, data_dir=str(home), workspace=str(home))
        self.loop = asyncio.new_event_loop()
        self._gateway = self.loop.run_until_complete(compose(chosen, environ={}))
        self.app = build_app(self._gateway.service, chosen, Metrics(), dialects_of(chosen))

    def close(self) -> None:
        self.loop.run_until_complete(self._gateway.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def ask(self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> list[Message]:
        return self.loop.run_until_complete(self._ask(method, target, headers, body))

    async def _ask(self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> list[Message]:
        async with asyncio.timeout(20):
            return await self._answered(method, target, headers, body)

    async def _answered(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> list[Message]:
        raw, _, query = target.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw.decode("latin-1")),
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        sent: list[Message] = []
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await asyncio.sleep(0.01)
                return {"type": "http.disconnect"}
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent


@cache
def _served() -> _Served:
    served = _Served()
    _open.callback(served.close)
    return served


def paths(data: bytes) -> None:
    """A request as it is on the wire: a line, headers, a blank line, a body."""
    head, _, body = data.partition(b"\n\n")
    first, *rest = head.split(b"\n")
    method, _, target = first.partition(b" ")
    if not re.fullmatch(rb"[A-Z]{1,10}", method) or not re.fullmatch(rb"/[!-~]*", target):
        return  # the HTTP parser refuses it
    headers = [(b"host", b"localhost"), (b"content-length", b"%d" % len(body))]
    for line in rest:
        name, colon, value = line.partition(b": ")
        if colon and re.fullmatch(rb"[a-z-]+", name) and re.fullmatch(rb"[\t -~\x80-\xff]*", value):
            headers.append((name, value))
    sent = _served().ask(method.decode(), target, headers, body)
    if not sent:
        return  # the client had left
    start, pieces = sent[0], b"".join(message.get("body", b"") for message in sent[1:])
    assert start["status"] != 500, pieces  # a mistake of ours; what the agent did wrong has another one
    for name, value in start["headers"]:
        assert not _CONTROL.search(name.decode("latin-1") + value.decode("latin-1")), (name, value)
    if start["status"] >= 400 and method != b"HEAD":
        error = json.loads(pieces)["error"]
        assert isinstance(error["message"], str)
        assert not _CONTROL.search(error["message"])


def _path_seeds() -> Iterator[bytes]:
    yield b"GET /v1/chat/chat_1/events?after=7&dialect=html\nlast-event-id: 12\n"
    yield b"GET /v1/chat/%2e%2e%2f%00%ff?dialect=page\naccept: application/x-ndjson\n"
    yield b"GET /v1/conversations?limit=3&before=WzEsImEiXQ&q=%22a*%20OR\n"
    yield b"DELETE /v1/conversations/conv_1\norigin: http://localhost\n"
    yield b"GET /v1/runs?limit=100\nx-request-id: a b\n"
    yield b"GET /v1/models/auto%5Ba=b%5D\nauthorization: Bearer x\n"
    yield b"POST /v1/chat/chat_1/cancel\ncontent-type: application/json\n\n{}"
    yield b'POST /v1/chat/x/answer\ncontent-type: application/json\nprefer: respond-async\n\n{"plan":"accept"}'
    yield b"OPTIONS /v1/chat\norigin: http://evil.example\naccess-control-request-method: POST\n"
    yield b'POST /v1/chat\ncontent-type: application/json\nidempotency-key: k\n\n{"message":"","images":["x"]}'
    yield (
        b"POST /v1/chat/completions\ncontent-type: application/json\nx-cursor-mode: plan\nx-cursor-workspace: ..\n"
        b'x-cursor-conversation-id: \xff\n\n{"messages":[{"role":"user","content":"x"}],"model":"none"}'
    )
    yield b"HEAD /page/style.css\nsec-fetch-site: cross-site\nhost: evil.example\n"
    yield b"GET /docs\n"
    yield b"GET /metrics\n"


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


TARGETS = [
    Target(
        "settings",
        "Any configuration is accepted or rejected with `SettingsError`, and no key is shown.",
        settings,
        _settings_seeds,
        "json",
        1024,
    ),
    Target(
        "search",
        "No search text or page cursor causes a database error.",
        search,
        _search_seeds,
        "text",
        512,
    ),
    Target(
        "paths",
        "Any request line, headers and body get an answer or an error in the JSON envelope, with clean headers.",
        paths,
        _path_seeds,
        "text",
        1024,
    ),
]
