"""Whoever may not ask is refused before anything is read or started; and every reply has its headers.

The guard alone, with an application behind it that only notes that it was reached: what a browser or a parser in
between would never let through must be tried, too.
"""

import asyncio
import errno
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.keys import KeyRing, hash_key, new_key
from cursor_gateway.server import serving
from cursor_gateway.server.app import Routes
from cursor_gateway.server.guard import Guard
from cursor_gateway.server.logs import StructuredLog
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.settings import Settings
from cursor_gateway.store.base import OWNER

HOST = ("host", "localhost:8787")
JSON = ("content-type", "application/json")
PAGE = "https://app.example"
OURS = "http://localhost:8787"


class Reply(Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes
    owner: str | None  # of the request, when it came through

    @property
    def error(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.body)
        assert set(result) == {"error"}
        assert set(result["error"]) == {"message", "type", "param", "code"}
        error: dict[str, Any] = result["error"]
        return error


class Reached:
    def __init__(self) -> None:
        self.owner: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.owner = scope["state"]["owner"]
        assert OWNER.get() == self.owner, "what it has done in threads is done for its key"
        await Response(b"{}")(scope, receive, send)

    async def endpoint(self, request: Request) -> ASGIApp:
        return self


def ask(
    *headers: tuple[str, str],
    method: str = "GET",
    path: str = "/v1/models",
    settings: Settings | None = None,
    app: ASGIApp | None = None,
    keys: KeyRing | None = None,
) -> Reply:
    reached = Reached()
    guard = Guard(
        app or Routes({path: {method: reached.endpoint}}),
        settings or Settings(),
        Metrics(),
        {"x-cursor-gateway-source": "cli"},
        keys or KeyRing((settings or Settings()).api_keys),
    )
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": raw, "query_string": b""}
    asyncio.run(guard(scope, receive, send))
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1, sent
    body = b"".join(message["body"] for message in sent if message["type"] == "http.response.body")
    return Reply(starts[0]["status"], Headers(raw=starts[0]["headers"]), body, reached.owner)


def post(*headers: tuple[str, str], settings: Settings | None = None) -> Reply:
    return ask(*headers, method="POST", path="/v1/chat", settings=settings)


def assert_refused(reply: Reply, status: int, code: str) -> None:
    assert (reply.status, reply.error["code"], reply.owner) == (status, code, None)


# --- Host: a name that a web page has pointed to this machine -------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8787", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8787", "127.8.8.8", "[::1]", "[::1]:8787"],
)
def test_loopback_is_answered(host: str) -> None:
    assert ask(("host", host)).owner == "local"


FOREIGN = [
    "evil.example",
    "evil.example:8787",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.localhost",
    "192.0.2.7",
    "0.0.0.0:8787",  # which reaches loopback on Linux and macOS
    "[2001:db8::1]:8787",
    "2130706433",  # 127.0.0.1 as one number, which browsers write out before they ask
    "",
    " ",
    ":8787",
    "localhost:evil.example",
    'localhost:"><script>alert(1)</script>',
    "localhost@evil.example",
    "evil.example@localhost:80",
    "localhost, evil.example",
    "localhost/evil.example",
    "localhost:8787:8787",
    "[::1].evil.example",
    "[localhost]",
    "[",
    "[]",
    "localhost\x01",
    "localhost\xa0",
    "a" * 70_000,
]


@pytest.mark.parametrize("host", FOREIGN, ids=[host[:30] or "empty" for host in FOREIGN])
def test_any_other_name_is_refused(host: str) -> None:
    for reply in (ask(("host", host)), ask(("host", host), path="/health"), post(("host", host), JSON)):
        assert_refused(reply, 403, "forbidden")
        assert len(reply.body) < 2000


def test_a_request_names_exactly_one_host() -> None:
    assert_refused(ask(), 400, "invalid_request")
    assert_refused(ask(HOST, ("host", "evil.example")), 400, "invalid_request")
    assert_refused(ask(("host", "evil.example"), HOST), 400, "invalid_request")
    assert_refused(ask(HOST, HOST), 400, "invalid_request")


def test_names_that_the_operator_allows_are_answered_however_they_are_written() -> None:
    settings = Settings(allowed_hosts=["MyBox.local", "agents"])
    for host in ("mybox.local", "MYBOX.LOCAL:8787", "agents:80", "localhost"):
        assert ask(("host", host), settings=settings).owner == "local"
    for host in ("other.local", "x.mybox.local", "mybox.local.evil.example"):
        assert_refused(ask(("host", host), settings=settings), 403, "forbidden")


def test_an_exposed_gateway_answers_to_addresses_and_its_own_name_but_not_to_other_names() -> None:
    key = new_key()
    mine = ("authorization", f"Bearer {key}")
    everywhere = Settings(host="0.0.0.0", api_keys={"laptop": hash_key(key)})
    for host in ("192.0.2.7:8787", "[2001:db8::1]", "127.0.0.1", "localhost"):
        assert ask(("host", host), mine, settings=everywhere).owner == "laptop"
    assert_refused(ask(("host", "evil.example"), mine, settings=everywhere), 403, "forbidden")
    named = Settings(host="Box.Local", api_keys={"laptop": hash_key(key)})
    assert ask(("host", "box.local:8787"), mine, settings=named).owner == "laptop"
    six = Settings(host="[::1]")
    assert ask(("host", "[::1]:8787"), settings=six).owner == "local"


# --- Origin and Sec-Fetch-Site: a web page --------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:8787",
        "https://evil.example, http://localhost:8787",
        "http://localhost:8787.evil.example",
        "http://localhost:8787@evil.example",
        "http://localhost:8787/",
        "null",
        "",
        "file://",
        "chrome-extension://localhost:8787",
        "http://[",
        "http://[::1",
        "//localhost:8787",
        "*",
    ],
)
def test_a_foreign_page_is_refused(origin: str) -> None:
    given = ("origin", origin)
    for reply in (post(HOST, JSON, given), ask(HOST, given), ask(HOST, given, method="OPTIONS", path="/v1/chat")):
        assert_refused(reply, 403, "forbidden")
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_our_own_page_and_programs_are_answered() -> None:
    assert post(HOST, JSON).owner == "local"
    assert post(HOST, JSON, ("origin", OURS)).owner == "local"
    assert post(HOST, JSON, ("origin", "https://localhost:8787")).owner == "local"  # behind something that ends TLS
    for site in ("same-origin", "none"):
        assert post(HOST, JSON, ("origin", OURS), ("sec-fetch-site", site)).owner == "local"


def test_a_page_of_another_site_is_refused_also_where_it_sends_no_origin() -> None:
    foreign = ("sec-fetch-site", "cross-site")
    assert_refused(post(HOST, JSON, foreign), 403, "forbidden")
    assert_refused(ask(HOST, foreign), 403, "forbidden")
    assert_refused(ask(HOST, foreign, ("sec-fetch-mode", "no-cors")), 403, "forbidden")
    assert_refused(post(HOST, JSON, foreign, ("sec-fetch-mode", "navigate")), 403, "forbidden")  # a form
    assert_refused(post(HOST, JSON, foreign, ("origin", "https://evil.example")), 403, "forbidden")


LINKS = {
    "another site": [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")],
    "another port": [("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")],
    "an early browser": [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
    "an old browser": [("referer", "https://evil.example/")],
}
LINKED = ["/", "/docs", "/page/page.js", "/health", "/v1/conversations/conv_1/export"]
NOT_LINKED = [
    "/v1/workspace/files",
    "/v1/conversations",
    "/v1/conversations/conv_1",
    "/v1/conversations/conv_1/changes",
    "/v1/conversations//export",
    "/v1/conversations/a/b/export",
    "/v1/conversations/conv_1/export/x",
    "/v1/chat/chat_1",
    "/metrics",
    "/docs/x",
]


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_a_link_on_another_site_may_lead_to_the_page_and_to_exports_only(link: list[tuple[str, str]]) -> None:
    for path in LINKED:
        assert ask(HOST, *link, path=path).owner == "local", path
        assert_refused(ask(HOST, JSON, *link, path=path, method="POST"), 403, "forbidden")
    for path in NOT_LINKED:
        for method in ("GET", "HEAD"):
            assert_refused(ask(HOST, *link, path=path, method=method), 403, "forbidden")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something-new"])
@pytest.mark.parametrize(
    "element",
    [
        [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
        [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "embed")],
        [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "object")],
        [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")],
        [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "empty"), ("sec-purpose", "prefetch")],
        [("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")],
        [("sec-fetch-mode", "websocket")],
    ],
)
def test_no_element_of_another_site_is_answered(site: str, element: list[tuple[str, str]]) -> None:
    for path in (*LINKED, *NOT_LINKED):
        assert_refused(ask(HOST, ("sec-fetch-site", site), *element, path=path), 403, "forbidden")


def test_a_foreign_referer_counts_where_a_browser_sends_nothing_else() -> None:
    for referer in ("https://evil.example/", "http://localhost:8787.evil.example/", "http://localhost:3000/", "x", ""):
        assert_refused(ask(HOST, ("referer", referer)), 403, "forbidden")
        for key in (("authorization", "Bearer x"), ("x-api-key", "x")):  # no link has one: it is a program
            assert ask(HOST, ("referer", referer), key).owner == "local"
    for own in (OURS, f"{OURS}/", f"{OURS}/docs?x=1"):
        assert ask(HOST, ("referer", own)).owner == "local"
    assert ask(HOST, ("referer", f"{PAGE}/x"), settings=ALLOWED).owner == "local"
    assert ask(HOST, ("referer", "https://evil.example/"), ("sec-fetch-site", "none")).owner == "local"


def test_another_port_of_this_machine_is_the_same_site_but_another_origin() -> None:
    neighbour = (("sec-fetch-site", "same-site"), ("origin", "http://localhost:3000"))
    assert_refused(post(HOST, JSON, *neighbour), 403, "forbidden")
    assert_refused(ask(HOST, ("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")), 403, "forbidden")


def test_without_the_setting_nobody_hears_of_cors() -> None:
    for reply in (ask(HOST), post(HOST, JSON, ("origin", OURS))):
        assert not [name for name in reply.headers if name.startswith("access-control")]


ALLOWED = Settings(allowed_origins=[PAGE])


def test_an_allowed_page_may_ask_and_read_the_answer() -> None:
    reply = post(HOST, JSON, ("origin", PAGE), ("sec-fetch-site", "cross-site"), settings=ALLOWED)
    assert reply.owner == "local"
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["vary"] == "origin"
    assert "access-control-allow-credentials" not in reply.headers
    for other in ("https://evil.example", f"{PAGE}.evil.example", "http://app.example", f"{PAGE}:8443", "null", "*"):
        refused = post(HOST, JSON, ("origin", other), settings=ALLOWED)
        assert_refused(refused, 403, "forbidden")
        assert "access-control-allow-origin" not in refused.headers


def test_an_allowed_page_can_read_why_it_is_refused() -> None:
    keyed = Settings(allowed_origins=[PAGE], api_keys={"laptop": hash_key(new_key())})
    reply = post(HOST, JSON, ("origin", PAGE), settings=keyed)
    assert_refused(reply, 401, "invalid_api_key")
    assert reply.headers["access-control-allow-origin"] == PAGE


def test_a_preflight_needs_no_key_and_starts_nothing() -> None:
    keyed = Settings(allowed_origins=[PAGE], api_keys={"laptop": hash_key(new_key())})
    wanted = (
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    )
    reply = ask(HOST, ("origin", PAGE), *wanted, method="OPTIONS", path="/v1/chat", settings=keyed)
    assert (reply.status, reply.owner) == (204, None)
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in reply.headers["access-control-allow-methods"]


def test_an_allowed_origin_does_not_open_other_hosts() -> None:
    rebound = ask(("host", "evil.example"), ("origin", PAGE), settings=ALLOWED)
    assert_refused(rebound, 403, "forbidden")


# --- forms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type",
    [
        None,
        "",
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "application/json-seq",
        "application/jsonp",
        "text/json",
        "x application/json",
        "application/json, text/plain",
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_what_a_form_can_post_is_refused(type: str | None, method: str) -> None:
    given = () if type is None else (("content-type", type),)
    for body in (("content-length", "2"), ("content-length", "10"), ("transfer-encoding", "chunked")):
        assert_refused(ask(HOST, *given, body, method=method, path="/v1/chat"), 415, "unsupported_media_type")


@pytest.mark.parametrize("type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
@pytest.mark.parametrize("length", [(), (("content-length", "0"),)])
def test_an_empty_form_is_refused_too(type: str, length: tuple[tuple[str, str], ...]) -> None:
    assert_refused(post(HOST, ("content-type", type), *length), 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "headers", [(), (("content-length", "0"),), (("content-length", "00"),), (("content-type", ""),)]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_request_without_a_body_needs_no_type(method: str, headers: tuple[tuple[str, str], ...]) -> None:
    assert ask(HOST, *headers, method=method, path="/v1/chat").owner == "local"


@pytest.mark.parametrize(
    "headers",
    [
        (("origin", "https://evil.example"),),
        (("origin", "null"),),  # from a page that sends no referrer, a frame, or a file
        (("origin", "http://localhost:3000"), ("sec-fetch-site", "same-site")),
        (("sec-fetch-site", "cross-site"),),
        (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")),
        (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")),
    ],
)
def test_an_empty_post_of_a_foreign_page_is_refused(headers: tuple[tuple[str, str], ...]) -> None:
    for length in ((), (("content-length", "0"),)):
        assert_refused(post(("host", "localhost:8787"), *headers, *length), 403, "forbidden")


@pytest.mark.parametrize(
    "type", ["application/json", "application/json; charset=utf-8", "Application/JSON ;charset=utf-8"]
)
def test_json_is_json_however_it_is_written(type: str) -> None:
    assert post(HOST, ("content-type", type)).owner == "local"


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip", "x"])
def test_a_compressed_body_is_refused(encoding: str) -> None:
    """A few bytes could become any number."""
    assert_refused(post(HOST, JSON, ("content-encoding", encoding)), 415, "unsupported_media_type")
    assert post(HOST, JSON, ("content-encoding", "identity")).owner == "local"


# --- keys -----------------------------------------------------------------------------------------------

ALICE, BOB = new_key(), new_key()
KEYED = Settings(api_keys={"alice": hash_key(ALICE), "bob": hash_key(BOB)})


def test_every_key_has_its_owner_in_either_header() -> None:
    for key, owner in ((ALICE, "alice"), (BOB, "bob")):
        for header in (("authorization", f"Bearer {key}"), ("authorization", f"bearer  {key} "), ("x-api-key", key)):
            assert ask(HOST, header, settings=KEYED).owner == owner


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer cgw_wrong")],
        [("authorization", f"Bearer {ALICE[:-1]}")],
        [("authorization", f"Bearer {ALICE} {ALICE}")],
        [("authorization", f"Bearer {ALICE.upper()}")],
        [("authorization", f"Bearer {hash_key(ALICE)}")],  # who has stolen the settings has no key
        [("authorization", ALICE)],
        [("authorization", f"Basic {ALICE}")],
        [("authorization", "Bearer \xff\xfe")],
        [("x-api-key", "")],
        [("x-api-key", "cgw_wrong")],
        [("x-api-key", "alice")],
        [("authorization", "Bearer cgw_wrong"), ("x-api-key", ALICE)],
        [("cookie", f"key={ALICE}")],
    ],
)
def test_without_a_known_key_nothing_is_reached(headers: list[tuple[str, str]]) -> None:
    for reply in (
        ask(HOST, *headers, settings=KEYED),
        ask(HOST, *headers, path="/metrics", settings=KEYED),
        post(HOST, JSON, *headers, settings=KEYED),
        post(HOST, *headers, settings=KEYED),  # nor told what would be wrong besides
    ):
        assert_refused(reply, 401, "invalid_api_key")
        assert reply.headers["www-authenticate"] == "Bearer"
        assert ALICE.encode() not in reply.body


def test_no_key_is_nobodys_even_where_its_hash_is_configured() -> None:
    careless = Settings(api_keys={"laptop": hash_key("")})
    assert_refused(ask(HOST, settings=careless), 401, "invalid_api_key")
    assert_refused(ask(HOST, ("authorization", "Bearer "), settings=careless), 401, "invalid_api_key")


def test_only_what_tells_nothing_needs_no_key() -> None:
    for path in ("/health", "/openapi.json", "/docs", "/docs.css", "/", "/page/page.js", "/shared/token"):
        assert ask(HOST, path=path, settings=KEYED).owner == "local"
    for path in (
        "/metrics",
        "/v1/models",
        "/v1/chat",
        "/health/",
        "/docs/..",
        "//",
        "/docs/../v1/models",
        "/nowhere",
        "/shared",
    ):
        assert_refused(ask(HOST, path=path, settings=KEYED), 401, "invalid_api_key")


def test_keys_are_compared_in_constant_time_and_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By counting, not by a clock: whichever key it is, each hash is looked at, by the function made for it."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, stored: bytes, real: Callable[[bytes, bytes], bool] = hmac.compare_digest) -> bool:
        compared.append((given, stored))
        return real(given, stored)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for key in (ALICE, BOB, "cgw_wrong"):
        compared.clear()
        ask(HOST, ("x-api-key", key), settings=KEYED)
        given = hash_key(key).encode()
        assert compared == [(given, stored.encode()) for stored in KEYED.api_keys.values()]


# --- what every reply has -------------------------------------------------------------------------------


def test_every_reply_has_the_headers_that_keep_browsers_careful() -> None:
    replies = [ask(HOST), ask(("host", "evil.example")), post(HOST, ("content-length", "2"))]
    replies += [ask(HOST, settings=KEYED), ask(HOST, app=failing)]
    assert [reply.status for reply in replies] == [200, 403, 415, 401, 500]
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert reply.headers["cross-origin-opener-policy"] == "same-origin"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["x-cursor-gateway-source"] == "cli"
        assert reply.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("given", ["a", "req_1", "01-ab.CD:ef_9", "x" * 128])
def test_a_sane_request_id_comes_back(given: str) -> None:
    assert ask(HOST, ("x-request-id", given)).headers["x-request-id"] == given


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "x" * 129,
        "a b",
        "a\tb",
        "a\r\nset-cookie: x=1",
        "a\nb",
        "a\n",
        "é",
        "\x00",
        "a;b",
        '"a"',
        "<a>",
        "../a",
    ],
)
def test_any_other_request_id_is_replaced(given: str) -> None:
    for settings in (Settings(), KEYED):
        result = ask(HOST, ("x-request-id", given), settings=settings).headers["x-request-id"]
        assert result.startswith("req_")
        assert len(result) == 36


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("secret-of-the-inside")


def test_a_mistake_of_ours_is_reported_without_its_details() -> None:
    reply = ask(HOST, app=failing)
    assert (reply.status, reply.error["code"]) == (500, "internal_error")
    assert b"secret-of-the-inside" not in reply.body
    assert reply.headers["x-request-id"] in reply.error["message"]


async def exhausted(scope: Scope, receive: Receive, send: Send) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def test_what_the_system_refuses_for_now_is_no_mistake_of_ours() -> None:
    reply = ask(HOST, app=exhausted)
    assert (reply.status, reply.error["code"]) == (503, "host_exhausted")
    assert "Too many open files" in reply.error["message"]
    assert int(reply.headers["retry-after"]) > 0


async def nothing(request: object) -> Response:
    return Response()


def test_a_path_that_does_not_exist_is_reported_in_one_line_of_bounded_length() -> None:
    routes = Routes({"/v1/models": {"GET": nothing}})
    for path in ("/\n\r\x00\x1b[31m\x7f\x85\u2028", "/" + "a" * 60_000, "/é<script>"):
        for method in ("GET", "DELETE"):
            reply = ask(HOST, path=path, method=method, app=routes)
            assert (reply.status, reply.error["code"]) == (404, "not_found")
            assert_presentable(reply.error["message"])
            assert reply.error["message"].endswith("see /docs for the list.")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("headers", [(), (JSON,), (("content-type", "text/plain"),)])
def test_a_method_that_a_path_does_not_know_is_refused_with_those_it_knows(
    method: str, headers: tuple[tuple[str, str], ...]
) -> None:
    """Whatever the body is said to be: nobody would read it."""
    reply = ask(HOST, *headers, method=method, app=Routes({"/v1/models": {"GET": nothing}}))
    assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
    assert "GET" in reply.headers["allow"]


def test_an_error_repeats_little_of_what_was_sent_and_still_says_what_to_do() -> None:
    async def strict(scope: Scope, receive: Receive, send: Send) -> None:
        sent = "x" * 100_000 + "\x1b[2J\r\n\x00"
        raise InvalidRequest(f"Unknown field `{sent}`; leave it out.", param=sent)

    error = ask(HOST, app=strict).error
    assert_presentable(error["message"])
    assert_presentable(error["param"])
    assert error["message"].startswith("Unknown field `xxx")
    assert error["message"].endswith("leave it out.")


def assert_presentable(text: str) -> None:
    assert len(text) < 1500
    assert text.isprintable(), text


def test_while_the_keys_of_the_database_are_unknown_a_client_is_told_to_retry() -> None:
    ring = KeyRing({"alice": hash_key("a")}, has_database=True)
    host = ("host", "localhost")
    assert ask(host, ("x-api-key", "a"), keys=ring).status == 200
    assert ask(host, ("x-api-key", "b"), keys=ring).status == 503
    ring.replace_stored({}, has_any=False)
    assert ask(host, ("x-api-key", "b"), keys=ring).status == 401


def test_a_fault_names_no_token_of_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(StructuredLog, "error", lambda *_, **fields: logged.append(fields["path"]))
    for path in ("/shared/secret-token", "/v1/models"):
        assert ask(HOST, path=path, app=failing).status == 500
    guard = Guard(failing, Settings(), Metrics(), {}, KeyRing({}))
    serving._server(guard, Settings(), 1).fault(ValueError(), "/shared/secret-token")
    assert logged == ["/shared/…", "/v1/models", "/shared/…"]


# --- the log of a front ---------------------------------------------------------------------------------


def test_a_front_logs_one_line_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[object, ...]] = []

    def note(_: StructuredLog, event: str, **fields: object) -> None:
        assert (event, fields["request_id"]) == ("request", "req_1")
        assert isinstance(fields["seconds"], float)
        logged.append(tuple(fields[name] for name in ("method", "path", "status", "owner", "run_id")))

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"{}", headers={"x-chat-id": "chat_1"})(scope, receive, send)

    monkeypatch.setattr(StructuredLog, "info", note)
    monkeypatch.setattr(StructuredLog, "warning", note)
    monkeypatch.setattr(StructuredLog, "error", lambda *_, **__: None)
    id = ("x-request-id", "req_1")
    front = Settings(store="postgresql://db/gateway", role="front", api_keys={"laptop": hash_key("key")})
    key = ("x-api-key", "key")
    ask(HOST, id, key, method="POST", path="/v1/chat", settings=front, app=run)
    ask(HOST, id, settings=front)
    ask(HOST, id, key, path="/shared/secret-token", settings=front, app=failing)
    assert logged == [
        ("POST", "/v1/chat", 200, "laptop", "chat_1"),
        ("GET", "/v1/models", 401, None, None),
        ("GET", "/shared/…", 500, "local", None),
    ]
    for path in ("/health", "/livez", "/readyz", "/metrics"):
        ask(HOST, id, key, path=path, settings=front)
    ask(HOST, id, settings=Settings())
    ask(HOST, id, settings=Settings(store=front.store, role="runner"))
    assert len(logged) == 3
