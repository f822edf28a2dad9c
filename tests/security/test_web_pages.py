"""A web page in the operator's browser, against a gateway without keys on the same machine."""

import httpx2
import pytest

from tests.gateways import RunningGateway
from tests.server.conftest import growing, invocations, standin, unique
from tests.server.test_safety import as_json, assert_nothing_was_started, error_of, exchange, request

# --- names that a page has pointed to this machine ----------------------------------------------------------

OTHER_NAMES = [
    "evil.example",
    "EVIL.example:80",
    "localhost.",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1.",
    "0.0.0.0",  # it leads to loopback, too
    "[::]",
    "0",
    "127.1",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "169.254.169.254",
    "10.0.0.1",
    "[::ffff:10.0.0.1]",
    "[fe80::1]",
    "localhost@evil.example",
    "evil.example@localhost",
    "localhost:80:80",
    "localhost,evil.example",
    "localhost evil.example",
    "localhost/evil.example",
    "localhost%00",
    "xn--lcalhost-24a",
    "lócalhost",
    "",
]
OWN_NAMES = ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8787", "127.9.9.9", "[::1]", "[::1]:80"]


@pytest.mark.quick_cases(9)
@pytest.mark.parametrize("host", OTHER_NAMES)
def test_a_name_that_is_not_the_gateways_reads_and_starts_nothing(
    open_gateway: RunningGateway, anybody: httpx2.Client, host: str
) -> None:
    mark = unique()
    for data in (
        request("GET", "/v1/conversations", host=host),
        request("GET", "/health", host=host),
        request("GET", "/", host=host),
        request("POST", "/v1/chat", f"Origin: http://{host}", body=as_json(message=mark), host=host),
        request("DELETE", f"/v1/conversations/{mark}", host=host),
        request("OPTIONS", "/v1/chat", f"Origin: http://{host}", "Access-Control-Request-Method: POST", host=host),
    ):
        assert exchange(open_gateway, data).status in (400, 403), data
    assert_nothing_was_started(open_gateway, anybody, mark)


@pytest.mark.parametrize("host", OWN_NAMES)
def test_the_gateways_own_names_are_answered(open_gateway: RunningGateway, host: str) -> None:
    assert exchange(open_gateway, request("GET", "/health", host=host)).status == 200


def test_exactly_one_host_is_named_and_it_counts(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    """That of an absolute target, where there is one (RFC 9112, 3.2.2), and never what a proxy may have been told."""
    mark = unique()
    body = as_json(message=mark)
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
    for head in (
        f"POST /v1/chat HTTP/1.1\r\n{length}",
        f"POST /v1/chat HTTP/1.0\r\n{length}",
        f"POST /v1/chat HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n{length}",
        f"POST /v1/chat HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n{length}",
        f"POST /v1/chat HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\n{length}",
        f"POST /v1/chat HTTP/1.1\r\nHost: evil.example\r\nForwarded: host=localhost\r\n{length}",
        f"POST http://evil.example/v1/chat HTTP/1.1\r\nHost: localhost\r\n{length}",
        f"POST http://localhost@evil.example/v1/chat HTTP/1.1\r\nHost: localhost\r\n{length}",
        f"POST http://0.0.0.0/v1/chat HTTP/1.1\r\nHost: localhost\r\n{length}",
        f"POST evil.example:80 HTTP/1.1\r\nHost: localhost\r\n{length}",
        f"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n{length}",
    ):
        assert exchange(open_gateway, f"{head}\r\n\r\n".encode() + body).status in (400, 403), head
    assert_nothing_was_started(open_gateway, anybody, mark)


# --- what a page can send -----------------------------------------------------------------------------------

# A browser sets these itself; no script can change them.
BROWSERS = {
    "a foreign page": {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
    "a foreign page, plainly": {"origin": "https://evil.example"},
    "a sandboxed frame": {"origin": "null", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
    "a file of the machine": {"origin": "null"},
    "another port": {"origin": "http://localhost:3000", "sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    "another port of the address": {"origin": "http://127.0.0.1:3000", "sec-fetch-site": "same-site"},
    "another name of the machine": {"origin": "http://localhost"},
    "an extension": {"origin": "chrome-extension://abcdefghijklmnop", "sec-fetch-site": "none"},
    "a page with our name in its own": {"origin": "http://127.0.0.1.evil.example"},
    "a page that says nothing of itself": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
}

WRITING = [
    ("POST", "/v1/chat"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/chat/chat_1/cancel"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("POST", "/v1/chat/chat_1/answer"),
    ("DELETE", "/v1/conversations/conv_1"),
]


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("browser", BROWSERS)
def test_no_page_can_write(open_gateway: RunningGateway, anybody: httpx2.Client, browser: str) -> None:
    mark = unique()
    for method, path in WRITING:
        for type in ("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            body = as_json(message=mark, messages=[{"role": "user", "content": mark}], model="auto")
            headers = {**BROWSERS[browser], "content-type": type}
            refused = anybody.request(method, path, content=body, headers=headers)
            assert (refused.status_code, error_of(refused.content)["code"]) == (403, "forbidden")
            assert not [name for name in refused.headers if name.startswith("access-control-")]
        empty = anybody.request(method, path, headers=BROWSERS[browser])  # which needs no type
        assert (empty.status_code, error_of(empty.content)["code"]) == (403, "forbidden")
    assert_nothing_was_started(open_gateway, anybody, mark)


READING = ["/v1/conversations", "/v1/runs", "/v1/models", "/metrics", "/v1/chat/chat_1/events", "/openapi.json"]


@pytest.mark.parametrize("browser", BROWSERS)
def test_no_page_can_read(anybody: httpx2.Client, browser: str) -> None:
    for path in READING:
        refused = anybody.get(path, headers=BROWSERS[browser])
        assert refused.status_code == 403
        assert not [name for name in refused.headers if name.startswith("access-control-")]


def test_an_element_of_a_page_on_another_port_cannot_use_what_it_loads(anybody: httpx2.Client) -> None:
    """A browser sends no Origin with `<script src>`, but says that it is another one."""
    for path in ("/v1/conversations", "/v1/runs", "/v1/models", "/metrics", "/health", "/openapi.json"):
        refused = anybody.get(path, headers={"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"})
        assert refused.status_code == 403
        assert not [name for name in refused.headers if name.startswith("access-control-")]


def test_a_link_on_another_site_lists_no_files(anybody: httpx2.Client) -> None:
    link = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document", "sec-fetch-user": "?1"}
    for site in ("cross-site", "same-site"):
        for path in ("/v1/workspace/files", "/v1/workspace/folders", *READING[:-1]):
            assert anybody.get(path, headers={"sec-fetch-site": site, **link}).status_code == 403
        assert anybody.get("/", headers={"sec-fetch-site": site, **link}).status_code == 200
    assert anybody.get("/v1/workspace/files", headers={"sec-fetch-site": "none", **link}).status_code == 200


def test_a_preflight_of_a_foreign_page_allows_nothing(anybody: httpx2.Client) -> None:
    for headers in BROWSERS.values():
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
        asked |= {"access-control-request-private-network": "true"}
        refused = anybody.options("/v1/chat", headers={**asked, **headers})
        assert refused.status_code in (403, 405)
        assert not [name for name in refused.headers if name.startswith("access-control-")]


def test_looking_changes_nothing(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    """What a link, an image or a prefetch can ask for: every path, with whatever it is given."""
    mark = unique()
    with growing(anybody, "documents", standin("hang-mid")) as stream:
        stream.until(b"about")
        id, conversation = stream.response.headers["x-chat-id"], stream.response.headers["x-conversation-id"]
        for method in ("GET", "HEAD"):
            for path in (
                f"/v1/chat?message={mark}",
                f"/v1/chat/completions?message={mark}",
                f"/v1/chat/{id}?_method=DELETE",
                f"/v1/chat/{id}/cancel",
                f"/v1/chat/{id}/answer?plan=accept",
                f"/v1/conversations/{conversation}?method=delete",
                f"/?message={mark}&send=1",
            ):
                anybody.request(method, path, headers={"x-http-method-override": "POST"})
        anybody.head(f"/v1/chat/{id}/events")
        assert anybody.get(f"/v1/chat/{id}").json()["status"] == "streaming"
        assert anybody.get(f"/v1/conversations/{conversation}").status_code == 200
        anybody.post(f"/v1/chat/{id}/cancel", json={})
        stream.rest()
    assert invocations(open_gateway, mark) == []


@pytest.mark.parametrize("path", ["/", "/v1/chat", "/v1/chat/chat_1/events", "/v1/conversations"])
@pytest.mark.parametrize("origin", ["", "Origin: https://evil.example"])
def test_there_are_no_websockets(open_gateway: RunningGateway, path: str, origin: str) -> None:
    """They know no preflight and no same-origin rule."""
    headers = ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: Upgrade", *headers, *([origin] if origin else [])]
    reply = exchange(open_gateway, "\r\n".join([*lines, "", ""]).encode())
    assert reply.status != 101
    assert reply.status in ((403,) if origin else (200, 400, 404, 405))
    assert reply.header("upgrade") is None


# --- what a page can show -----------------------------------------------------------------------------------


def test_no_reply_can_be_framed_guessed_at_or_run(anybody: httpx2.Client) -> None:
    result = anybody.post("/v1/chat", json={"message": standin("say", "<script>alert(1)</script>")}).json()
    run = f"/v1/chat/{result['id']}"
    pages = ["/", "/docs", f"{run}?dialect=html", f"{run}?dialect=page"]
    for path in [*pages, run, f"{run}/events", "/health", "/metrics", "/nowhere", "/page/nowhere.js"]:
        reply = anybody.get(path)
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
    for path in pages:
        reply = anybody.get(path)
        policy = _policy(reply)
        assert policy["default-src"] == "'none'"
        assert policy.get("script-src", "'none'") in ("'none'", "'self'")
        assert policy["base-uri"] == policy["form-action"] == "'none'"
        assert "<script>alert" not in reply.text
    for path in (f"{run}?dialect=html", f"{run}?dialect=page"):  # text of the agent's, as a page of its own
        policy = _policy(anybody.get(path))
        assert policy["sandbox"] == ""
        assert not {"script-src", "connect-src", "img-src"} & set(policy)


def _policy(reply: httpx2.Response) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in reply.headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


def test_errors_are_no_pages(anybody: httpx2.Client) -> None:
    evil = "<script>alert(1)</script>"
    for reply in (
        anybody.get(f"/{evil}"),
        anybody.get(f"/page/{evil}"),
        anybody.get(f"/v1/chat/{evil}"),
        anybody.get(f"/v1/models/{evil}"),
        anybody.get(f"/v1/conversations/{evil}"),
        anybody.get(f"/v1/chat/x?dialect={evil}"),
        anybody.post("/v1/chat", json={evil: evil}),
        anybody.get("/health", headers={"host": "evil.example"}),
    ):
        assert reply.status_code >= 400
        assert reply.headers["content-type"].startswith("application/json")
