"""Serving this API is running programs on the machine: each rule against that, on a gateway with the stand-in agent."""

import gzip
import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from msgspec import Struct

from cursor_gateway.keys import hash_key, new_key
from tests.cli.processes import finished_process
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import (
    TIMEOUT,
    Json,
    chat,
    eventually,
    growing,
    http_client,
    invocation,
    invocations,
    question,
    sse,
    standin,
    text_of,
    unique,
)

ALICE, BOB = new_key(), new_key()
CURSOR_KEY = "key_of_the_cursor_account_0123456789"
PAGE = "https://app.example"
MAX_BODY = 4096


@pytest.fixture(scope="module")
def open_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Without keys; small limits."""
    settings = {"max_body_bytes": str(MAX_BODY), "body_seconds": "0.5", "log_level": "debug"}
    with running_gateway(tmp_path_factory.mktemp("open"), settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def keyed_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """With two keys, on all addresses, and with a secret for the agent."""
    settings = {
        "host": "0.0.0.0",
        "api_keys": f"alice={hash_key(ALICE)},bob={hash_key(BOB)}",
        "allowed_hosts": "box.local",
        "allowed_origins": PAGE,
        "log_level": "debug",
    }
    environment = {"CURSOR_API_KEY": CURSOR_KEY, "SECRET_OF_THE_OPERATOR": "hunter2"}
    with running_gateway(
        tmp_path_factory.mktemp("keyed"), settings=settings, environment=environment, knobs={"login": "none"}
    ) as running:
        yield running


@pytest.fixture
def client(open_gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(open_gateway) as made:
        yield made


@pytest.fixture
def alice(keyed_gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with _with_key(keyed_gateway, ALICE) as made:
        yield made


@pytest.fixture
def bob(keyed_gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with _with_key(keyed_gateway, BOB) as made:
        yield made


def _with_key(gateway: RunningGateway, key: str) -> httpx2.Client:
    made = http_client(gateway)
    made.headers["authorization"] = f"Bearer {key}"
    return made


# --- bytes over a socket: what no client library would send ---------------------------------------------


class Reply(Struct, frozen=True):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The only one of its name."""
        found = [value for given, value in self.headers if given.lower() == name]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def error(self) -> Json:
        return error_of(self.body)


def error_of(body: bytes) -> Json:
    """Of a reply that has nothing but its error, in its four keys."""
    output: Json = json.loads(body)
    assert set(output) == {"error"}
    error: Json = output["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].isprintable()
    assert len(body) < 5000
    return error


def connected(gateway: RunningGateway) -> socket.socket:
    address = urlsplit(gateway.url)
    assert address.hostname is not None
    assert address.port is not None
    return socket.create_connection((address.hostname, address.port), timeout=TIMEOUT)


def exchange(gateway: RunningGateway, data: bytes) -> Reply:
    """What is answered first."""
    with connected(gateway) as sock:
        with suppress(ConnectionError):  # it may have read enough
            sock.sendall(data)
        response = http.client.HTTPResponse(sock)
        try:
            response.begin()
            return Reply(response.status, response.getheaders(), response.read())
        finally:
            response.close()


def request(method: str, path: str, *headers: str, body: bytes | None = None, host: str = "localhost") -> bytes:
    length = [] if body is None else ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *length, *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


def as_json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def assert_nothing_was_started(gateway: RunningGateway, client: httpx2.Client, mark: str) -> None:
    """A run that was asked for later has ended, and of the others there is no trace."""
    after = unique()
    chat(client, f"{standin('text')} {after}")
    invocation(gateway, after)
    assert invocations(gateway, mark) == []


# --- where it listens, and to whom ----------------------------------------------------------------------


def test_it_listens_on_loopback_alone(open_gateway: RunningGateway) -> None:
    assert open_gateway.url.startswith("http://127.0.0.1:")
    port = urlsplit(open_gateway.url).port
    with pytest.raises(OSError, match=r"refused|assign|unreachable|timed out"):
        socket.create_connection(("127.0.0.2", port), timeout=5)  # another address of this machine


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.local", "localhost.example", "*"])
def test_it_refuses_to_listen_elsewhere_without_keys(host: str, tmp_path: Path) -> None:
    ran = finished_process(
        "serve", "--host", host, "--port", "0", HOME=str(tmp_path), XDG_DATA_HOME="", XDG_CONFIG_HOME=""
    )
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert re.fullmatch(
        rb"cursor-gateway: the gateway refuses to listen on '.*' without API keys: .* `cursor-gateway key NAME`.*\n",
        ran.stderr,
    )
    assert list(tmp_path.iterdir()) == []


def test_with_keys_it_listens_elsewhere_and_only_they_open_it(keyed_gateway: RunningGateway) -> None:
    mark = unique()
    with http_client(keyed_gateway) as anybody, _with_key(keyed_gateway, ALICE) as alice:
        for headers in ({}, {"authorization": "Bearer"}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}):
            for path, body in (("/v1/chat", {"message": mark}), ("/v1/chat/completions", question(mark))):
                refused = anybody.post(path, json=body, headers=headers)
                assert (refused.status_code, error_of(refused.content)["code"]) == (401, "invalid_api_key")
                assert refused.headers["www-authenticate"] == "Bearer"
            assert anybody.get("/v1/models", headers=headers).status_code == 401
            assert anybody.get("/metrics", headers=headers).status_code == 401
        assert anybody.get("/health").status_code == 200
        assert anybody.get("/v1/models", headers={"x-api-key": BOB}).status_code == 200
        assert_nothing_was_started(keyed_gateway, alice, mark)


def test_nobody_reaches_what_belongs_to_another_owner(
    keyed_gateway: RunningGateway, alice: httpx2.Client, bob: httpx2.Client
) -> None:
    output = chat(alice, standin("text"))
    conversation = output["conversationId"]

    def as_bob(id: str) -> list[tuple[int, Json]]:
        replies = [
            bob.post("/v1/chat", json={"message": "go on", "conversationId": id}),
            bob.post("/v1/chat", json={"message": "go on", "conversationId": id, "stream": True}),
            bob.post("/v1/chat/completions", json=question("go on", cursor={"conversationId": id})),
            bob.post("/v1/chat/completions", json=question("go on"), headers={"x-cursor-conversation-id": id}),
            bob.post(f"/v1/chat/{id}/cancel", json={}),
        ]
        without_the_id = [reply.content.replace(id.encode(), b"ID") for reply in replies]
        return [(reply.status_code, error_of(body)) for reply, body in zip(replies, without_the_id, strict=True)]

    refused = as_bob(conversation)
    assert {status for status, _ in refused} == {404}
    assert refused == as_bob("conv_" + 32 * "0")  # as if there were none
    assert chat(alice, standin("text"), conversationId=conversation)["conversationId"] == conversation


def test_nobody_cancels_the_run_of_another_owner(alice: httpx2.Client, bob: httpx2.Client) -> None:
    with growing(alice, "documents", standin("hang-mid")) as stream:
        stream.until(b"about")
        id = stream.response.headers["x-chat-id"]
        refused = bob.post(f"/v1/chat/{id}/cancel", json={})
        assert (refused.status_code, error_of(refused.content)["code"]) == (404, "not_found")
        assert bob.get("/health").json()["runs"]["running"] >= 1
        cancelled = alice.post(f"/v1/chat/{id}/cancel", json={})
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "error")
        assert b"event: done" in stream.rest()


# --- web pages ------------------------------------------------------------------------------------------

FORMS = {
    "text/plain": b'{"message": "MARK", "ignored": "="}',
    "application/x-www-form-urlencoded": b"message=MARK",
    "multipart/form-data; boundary=x": b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nMARK\r\n--x--\r\n',
    "": b'{"message": "MARK"}',
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("type", FORMS)
@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions", "/v1/chat/chat_1/cancel"])
def test_a_form_on_a_web_page_starts_nothing(
    open_gateway: RunningGateway, client: httpx2.Client, path: str, type: str
) -> None:
    mark = unique()
    body = FORMS[type].replace(b"MARK", mark.encode())
    refused = client.post(path, content=body, headers={"content-type": type} if type else {})
    assert (refused.status_code, error_of(refused.content)["code"]) == (415, "unsupported_media_type")
    assert_nothing_was_started(open_gateway, client, mark)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost:3000"},
    ],
)
def test_a_script_on_a_web_page_starts_nothing(
    open_gateway: RunningGateway, client: httpx2.Client, headers: dict[str, str]
) -> None:
    mark = unique()
    refused = client.post("/v1/chat", json={"message": mark}, headers=headers)
    assert (refused.status_code, error_of(refused.content)["code"]) == (403, "forbidden")
    assert_nothing_was_started(open_gateway, client, mark)


def test_a_page_that_the_operator_trusts_may_ask_with_a_key(keyed_gateway: RunningGateway) -> None:
    with http_client(keyed_gateway) as page:
        page.headers["origin"] = PAGE
        preflight = page.options("/v1/chat", headers={"access-control-request-method": "POST"})
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, PAGE)
        body = {"message": standin("text")}
        refused = page.post("/v1/chat", json=body)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)
        answered = page.post("/v1/chat", json=body, headers={"authorization": f"Bearer {ALICE}"})
        assert (answered.status_code, answered.headers["access-control-allow-origin"]) == (200, PAGE)


def test_hosts_are_checked_on_the_wire(keyed_gateway: RunningGateway) -> None:
    def status(*headers: str) -> int:
        return exchange(keyed_gateway, "\r\n".join(["GET /health HTTP/1.1", *headers, "", ""]).encode()).status

    for host in ("box.local", "BOX.local:80", "localhost", "127.0.0.1:1", "[::1]", "192.0.2.1"):
        assert status(f"Host: {host}") == 200
    for headers in (["Host: evil.example"], ["Host:"], ["Host: localhost", "Host: evil.example"], []):
        assert status(*headers) in (400, 403)
    assert exchange(keyed_gateway, b"GET /health HTTP/1.0\r\n\r\n").status in (400, 403)


# --- bodies ---------------------------------------------------------------------------------------------


def test_a_compressed_body_is_refused(open_gateway: RunningGateway, client: httpx2.Client) -> None:
    mark = unique()
    body = gzip.compress(as_json(message=mark))
    refused = client.post(
        "/v1/chat", content=body, headers={"content-type": "application/json", "content-encoding": "gzip"}
    )
    assert (refused.status_code, error_of(refused.content)["code"]) == (415, "unsupported_media_type")
    assert_nothing_was_started(open_gateway, client, mark)


def _padded(size: int, mark: str = "") -> bytes:
    start, end = b'{"message":"' + mark.encode(), b'"}'
    return start + b"x" * (size - len(start) - len(end)) + end


def _chunked(body: bytes, size: int = 1000) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


CHUNKED = ("Content-Type: application/json", "Transfer-Encoding: chunked")


@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions"])
def test_a_body_over_the_limit_is_refused_before_it_is_there(open_gateway: RunningGateway, path: str) -> None:
    for length in (str(MAX_BODY + 1), "9" * 18):
        head = request("POST", path, "Content-Type: application/json", f"Content-Length: {length}")
        reply = exchange(open_gateway, head)
        assert (reply.status, reply.error["code"]) == (413, "request_too_large")
        assert str(MAX_BODY) in reply.error["message"]


@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions"])
def test_a_chunked_body_is_counted(open_gateway: RunningGateway, client: httpx2.Client, path: str) -> None:
    mark = unique()
    reply = exchange(open_gateway, request("POST", path, *CHUNKED) + _chunked(_padded(MAX_BODY + 1, mark)))
    assert (reply.status, reply.error["code"]) == (413, "request_too_large")
    assert_nothing_was_started(open_gateway, client, mark)


def test_a_body_at_the_limit_is_read(open_gateway: RunningGateway) -> None:
    body = _padded(MAX_BODY)
    assert exchange(open_gateway, request("POST", "/v1/chat", body=body)).status == 200
    assert exchange(open_gateway, request("POST", "/v1/chat", *CHUNKED) + _chunked(body)).status == 200


@pytest.mark.parametrize("length", ["-1", "ten", "1e3", "0x10", "+5", "5 5", "5, 5", "\xb2", "9" * 400, "1.0"])
def test_a_length_that_is_none_is_refused(open_gateway: RunningGateway, client: httpx2.Client, length: str) -> None:
    mark = unique()
    head = request("POST", "/v1/chat", "Content-Type: application/json", f"Content-Length: {length}")
    assert exchange(open_gateway, head + as_json(message=mark)).status in (400, 413)
    assert_nothing_was_started(open_gateway, client, mark)


def test_two_lengths_are_refused(open_gateway: RunningGateway, client: httpx2.Client) -> None:
    """Who disagree about where a request ends can be made to take its body for the next one."""
    mark = unique()
    body = as_json(message=mark)
    for second in ("Content-Length: 5", "Transfer-Encoding: chunked"):
        assert exchange(open_gateway, request("POST", "/v1/chat", second, body=body)).status == 400
    assert_nothing_was_started(open_gateway, client, mark)


def test_a_body_that_does_not_come_is_not_waited_for(open_gateway: RunningGateway, client: httpx2.Client) -> None:
    mark = unique()
    body = as_json(message=mark)
    head = request("POST", "/v1/chat", "Content-Type: application/json", f"Content-Length: {len(body) + 1}")
    for data in (
        head,
        head + body,  # one byte less than was announced
        request("POST", "/v1/chat", *CHUNKED),
        request("POST", "/v1/chat", *CHUNKED) + b"5\r\nab",
    ):
        reply = exchange(open_gateway, data)
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
    assert_nothing_was_started(open_gateway, client, mark)


def test_a_body_that_trickles_is_not_waited_for(open_gateway: RunningGateway) -> None:
    with connected(open_gateway) as sock:
        sock.sendall(request("POST", "/v1/chat", "Content-Type: application/json", "Content-Length: 1000"))
        sock.setblocking(False)
        answer = b""

        def trickled() -> bytes:
            nonlocal answer
            with suppress(BlockingIOError):
                sock.send(b" ")  # each byte comes well within the limit, the body does not
            with suppress(BlockingIOError):
                answer += sock.recv(65536)
            return answer

        assert eventually(trickled).startswith(b"HTTP/1.1 408 ")


def test_more_than_was_announced_is_not_part_of_the_request(
    open_gateway: RunningGateway, client: httpx2.Client
) -> None:
    mark = unique()
    body = as_json(message=standin("text"))
    smuggled = request("POST", "/v1/chat", "Content-Type: text/plain", "Content-Length: 60") + as_json(message=mark)
    reply = exchange(open_gateway, request("POST", "/v1/chat", body=body) + smuggled)
    assert reply.status == 200
    assert_nothing_was_started(open_gateway, client, mark)


# --- workspaces -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rooted_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Two allowed roots, and many ways out of them."""
    home = tmp_path_factory.mktemp("rooted")
    for folder in ("work/inner/deep", "projects/one", "secret/folder", "projects-evil"):
        (home / folder).mkdir(parents=True)
    (home / "work" / "file").write_text("")
    links = {"out": home / "secret", "up": Path(".."), "loop": Path("loop"), "gone": home / "nowhere"}
    links |= {"etc": Path("/etc"), "chain": Path("out/folder"), "within": Path("inner/deep")}
    for name, target in links.items():
        (home / "work" / name).symlink_to(target)
    settings = {"workspace_roots": f"{home / 'work'},{home / 'projects'}"}
    with running_gateway(home, settings=settings) as running:
        yield running


INSIDE = {
    "inner": "work/inner",
    "inner/deep": "work/inner/deep",
    "inner/../inner/./deep": "work/inner/deep",
    "within": "work/inner/deep",
    "{home}/work": "work",
    "{home}/projects/one": "projects/one",
    "../projects/one": "projects/one",
    "out/../projects/one": "projects/one",  # as the system reads it: up from where the link leads
    ".": "work",
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", INSIDE)
def test_a_workspace_below_a_root_is_used(rooted_gateway: RunningGateway, name: str) -> None:
    home = rooted_gateway.home
    mark = unique()
    with http_client(rooted_gateway) as client:
        chat(client, f"{standin('text')} {mark}", workspace=name.format(home=home))
    started = invocation(rooted_gateway, mark)
    assert started["cwd"] == started["workspace"] == str((home / INSIDE[name]).resolve())


OUTSIDE = [
    "..",
    "../secret",
    "../secret/folder",
    "../nowhere",  # what does not exist out there is told as what does
    "../projects-evil",  # begins like a root
    "inner/../../secret",
    "out",
    "out/folder",
    "out/nothing-there",
    "chain",
    "up",
    "up/up",
    "etc",
    "gone",
    "/",
    "/etc",
    "/nowhere",
    "/etc/passwd",
    "/proc/self/cwd",
    "/proc/self/root/etc",
    "{home}",
    "{home}/secret",
    "{home}/projects/../secret",
    "~",
    "~/secret",
    "~root",
    "~nobody-of-this-name",
    "//etc",
    "/" + "a/" * 5000,
]


def test_what_lies_outside_is_refused_and_looks_all_the_same(rooted_gateway: RunningGateway) -> None:
    mark = unique()
    output = set()
    with http_client(rooted_gateway) as client:
        for name in OUTSIDE:
            folder = name.format(home=rooted_gateway.home)
            refused = client.post("/v1/chat", json={"message": mark, "workspace": folder})
            assert refused.status_code == 403, name
            output.add(_without_asked(refused, rooted_gateway.workspace, folder))
        refused = client.post("/v1/chat/completions", json=question(mark, cursor={"workspace": "../secret"}))
        output.add(_without_asked(refused, rooted_gateway.workspace, "../secret"))
        refused = client.post("/v1/chat/completions", json=question(mark), headers={"x-cursor-workspace": "../secret"})
        output.add(_without_asked(refused, rooted_gateway.workspace, "../secret"))
        assert_nothing_was_started(rooted_gateway, client, mark)
    assert len(output) == 1


def _without_asked(refused: httpx2.Response, workspace: Path, folder: str) -> str:
    """The error, which names the folder only as the client wrote it, to be allowed."""
    error = error_of(refused.content)
    assert error["code"] == "workspace_forbidden"
    before, line, after = re.split(r"workspace_roots = (\[.*\])`", error["message"])
    *roots, asked = json.loads(line)
    assert asked[:100] == str(workspace / folder)[:100]
    return f"{before} {roots} {after}"


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "name", ["", "\0", "inner\0", "file", "file/x", "nothing-there", "a" * 300, "a" * 3000, "loop", "loop/x", "a\nb"]
)
def test_what_is_no_folder_is_refused(rooted_gateway: RunningGateway, name: str) -> None:
    mark = unique()
    with http_client(rooted_gateway) as client:
        refused = client.post("/v1/chat", json={"message": mark, "workspace": name})
        assert refused.status_code in (400, 403)  # of a circle of links, Python's versions think differently
        assert error_of(refused.content)["param"] == "workspace"
        assert_nothing_was_started(rooted_gateway, client, mark)


def test_a_conversation_stays_where_it_began(rooted_gateway: RunningGateway) -> None:
    with http_client(rooted_gateway) as client:
        conversation = chat(client, standin("text"), workspace="inner")["conversationId"]
        again = {"message": standin("text"), "conversationId": conversation}
        assert client.post("/v1/chat", json={**again, "workspace": "inner/deep"}).status_code == 400
        assert client.post("/v1/chat", json={**again, "workspace": "../secret"}).status_code == 403
        mark = unique()
        chat(client, f"{standin('text')} {mark}", conversationId=conversation)
        assert invocation(rooted_gateway, mark)["cwd"] == str((rooted_gateway.workspace / "inner").resolve())


# --- the agent ------------------------------------------------------------------------------------------


def test_the_agent_is_forced_only_where_the_operator_says_so(
    open_gateway: RunningGateway, client: httpx2.Client, tmp_path: Path
) -> None:
    mark = unique()
    chat(client, f"{standin('text')} {mark}")
    assert not {"--force", "-f", "--yolo"} & set(invocation(open_gateway, mark)["argv"])
    with running_gateway(tmp_path, settings={"force": "true"}) as forced, http_client(forced) as other:
        chat(other, f"{standin('text')} {mark}")
        assert "--force" in invocation(forced, mark)["argv"]


@pytest.fixture(scope="module")
def unlisting_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """The agent does not tell its models, so no name is known to be wrong."""
    with running_gateway(tmp_path_factory.mktemp("unlisting"), knobs={"models_fail": "1"}) as running:
        yield running


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("model", ["--force", "-f", "auto\n--force", "auto\0", "m" * 201, "\x1b[2J", "a\u2028b"])
@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions"])
def test_what_can_be_no_model_starts_nothing(unlisting_gateway: RunningGateway, model: str, path: str) -> None:
    mark = unique()
    body = {"message": mark, "model": model} if path == "/v1/chat" else {**question(mark), "model": model}
    with http_client(unlisting_gateway) as client:
        refused = client.post(path, json=body)
        assert (refused.status_code, error_of(refused.content)["code"]) == (404, "model_not_found")
        assert_nothing_was_started(unlisting_gateway, client, mark)


@pytest.mark.parametrize("prompt", ["--force", "-f", "--help", "logout", "--workspace=/etc"])
def test_a_prompt_is_never_an_option_nor_a_command(
    open_gateway: RunningGateway, client: httpx2.Client, prompt: str
) -> None:
    assert text_of(chat(client, prompt)) == f"You said: {prompt}"


def test_the_agent_is_given_an_allow_list_of_the_environment(
    keyed_gateway: RunningGateway, alice: httpx2.Client
) -> None:
    given = json.loads(text_of(chat(alice, standin("echo-env"))))
    assert [name for name in given["names"] if name.startswith("CURSOR_GATEWAY_")] == ["CURSOR_GATEWAY_AGENT"]
    assert "SECRET_OF_THE_OPERATOR" not in given["names"]
    assert given["values"]["CURSOR_API_KEY"] == CURSOR_KEY  # its own is its own


def test_a_place_is_free_again_when_its_run_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "go"
    settings = {"max_runs": "2"}
    with running_gateway(tmp_path / "home", settings=settings) as gateway, http_client(gateway) as client:
        waiting = standin(f"wait-for file={file}")
        mark = unique()
        with growing(client, "documents", waiting) as one, growing(client, "openai", waiting) as two:
            one.until(b"file.")
            two.until(b"file.")
            for path, body in (("/v1/chat", {"message": mark}), ("/v1/chat/completions", question(mark))):
                for stream in (False, True):
                    refused = client.post(path, json={**body, "stream": stream})
                    assert (refused.status_code, error_of(refused.content)["code"]) == (429, "too_many_runs")
                    assert int(refused.headers["retry-after"]) >= 1
            file.touch()
            one.rest()
            two.rest()
        eventually(lambda: client.get("/health").json()["runs"]["running"] == 0)
        assert_nothing_was_started(gateway, client, mark)
        for scenario in ("text", "crash", "fail-auth", "killed"):  # however they end
            for _ in range(3):
                eventually(lambda: client.get("/health").json()["runs"]["running"] < 2)
                assert client.post("/v1/chat", json={"message": standin(scenario)}).status_code != 429


# --- secrets --------------------------------------------------------------------------------------------


def test_secrets_and_prompts_are_disclosed_to_nobody(keyed_gateway: RunningGateway, alice: httpx2.Client) -> None:
    """The prompt itself is an argument of the agent, as its program wants it; no secret is."""
    prompt = unique()
    wrong = f"cgw_wrong_{unique()}"
    replies = []
    for scenario in ("text", "crash", "crash-early", "fail-auth", "fail-key", "garbage", "fail-network", "bad-utf8"):
        for body in ({"message": f"{prompt}\n{standin(scenario)}"}, {"message": f"{standin(scenario)} {prompt}"}):
            replies.append(alice.post("/v1/chat", json=body))
            replies.append(alice.post("/v1/chat", json={**body, "stream": True}))
            replies.append(alice.post("/v1/chat/completions", json=question(body["message"])))
    replies += [
        alice.post("/v1/chat", json={"message": prompt, "model": "none-such"}),
        alice.post("/v1/chat", json={"message": [prompt]}),
        alice.post(
            "/v1/chat", content=f'{{"message": "{prompt}'.encode(), headers={"content-type": "application/json"}
        ),
        alice.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": {"text": prompt}}]}),
        alice.post("/v1/chat", json={"message": prompt}, headers={"authorization": f"Bearer {wrong}"}),
        alice.post("/v1/chat", json={"message": prompt}, headers={"host": "evil.example"}),
        alice.get("/metrics"),
        alice.get("/health"),
        alice.get("/v1/models"),
    ]
    secrets = [ALICE, BOB, hash_key(ALICE), hash_key(ALICE).removeprefix("sha256:"), CURSOR_KEY, wrong]
    eventually(lambda: "run ended" in keyed_gateway.log.read_text())
    logged = keyed_gateway.log.read_text()
    arguments = [json.loads(line)["argv"] for line in keyed_gateway.agent_log.read_text().splitlines()]
    for secret in secrets:
        assert secret not in logged
        assert secret not in json.dumps(arguments)
        for reply in replies:
            assert secret not in reply.text
            assert secret not in str(reply.headers)
    assert prompt not in logged
    for reply in replies:
        assert prompt not in reply.text


# --- what is sent back ----------------------------------------------------------------------------------


def test_headers_cannot_be_smuggled_into_the_reply(open_gateway: RunningGateway) -> None:
    """Line ends in a request's headers either end it for the parser or are no part of what is echoed."""
    for given in ("a\r\n b", "a\r\n\tb", "a\rset-cookie: x=1", "a\nset-cookie: x=1", "a\x00b", "é", "x" * 200, "a b"):
        data = request("GET", "/health", f"X-Request-Id: {given}")
        reply = exchange(open_gateway, data)
        assert reply.status in (200, 400)
        assert reply.header("set-cookie") is None
        if reply.status == 200:
            assert re.fullmatch("req_[0-9a-f]{32}|a", reply.header("x-request-id") or "")
    assert exchange(open_gateway, request("GET", "/health", "X-Request-Id: mine-1")).header("x-request-id") == "mine-1"


STRANGE = ["x\r\nset-cookie: y=1", "x\nX-Forged: 1", "é\u2028", "\0", "a" * 3000, "\x1b[2J", "<script>"]


@pytest.mark.parametrize("value", STRANGE, ids=[repr(value)[:30] for value in STRANGE])
def test_names_and_ids_of_a_request_reach_no_header(client: httpx2.Client, value: str) -> None:
    bodies: list[Json] = [
        {"message": "x", "conversationId": value},
        {"message": "x", "model": value},
        {"message": "x", "workspace": value},
        {"message": "x", "mode": value},
        {"message": "x", value: 1},
        {"message": "x", "include": [value]},
    ]
    assert client.get("/v1/models").status_code == 200  # from now on unknown ones are refused without an agent
    for body in bodies:
        reply = client.post("/v1/chat", json=body)
        assert 400 <= reply.status_code < 500
        error_of(reply.content)  # bounded, and in one line
        assert not {"set-cookie", "x-forged"} & set(reply.headers)
    quoted = "".join(f"%{byte:02x}" for byte in value.encode())
    for path in (f"/{quoted}", f"/v1/models/{quoted}", f"/v1/chat/{quoted}/cancel"):
        for method in ("GET", "POST"):
            reply = client.request(method, path, json={} if method == "POST" else None)
            assert 400 <= reply.status_code < 500
            error_of(reply.content)
            assert not {"set-cookie", "x-forged"} & set(reply.headers)


def test_the_page_runs_no_script_and_shows_no_foreign_name(open_gateway: RunningGateway, client: httpx2.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "script-src" not in policy  # so default-src counts
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert not re.search(r'\son\w+=|\sstyle=|javascript:|(?:src|href)="(?:https?:)?//(?!127\.0\.0\.1)', page.text)
    for path in ("/docs", "/docs.css", "/openapi.json", "/health", "/metrics", "/", "/nowhere"):
        reply = client.get(path)
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert "server" not in reply.headers
    forged = exchange(open_gateway, request("GET", "/docs", host='localhost:"><script>alert(1)</script>'))
    assert (forged.status, b"<script>alert" in forged.body) == (403, False)


HOSTILE = [
    "one\r\n\r\ndata: forged\r\n\r\nevent: done\r\ndata: {}\r\n\r\ntwo",
    "one\n\ndata: [DONE]\n\nevent: error\ndata: forged\nid: 99\nretry: 1\n\ntwo",
    "one\rdata: forged\r\revent: done\rtwo",
    "\u2028data: forged\u2029\u0085\v\f\x1c\x1d\x1e two",
    "nul \0 esc \x1b[2J del \x7f bom \ufeff end",
    '","forged":true,"x":"',
    "data: forged",
    ": comment\n: keep-alive\n\n",
]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("size", [1, 1000])
def test_what_the_agent_says_cannot_end_an_event(client: httpx2.Client, text: str, size: int) -> None:
    prompt = standin(f"say size={size}", f"<{text}>")  # brackets: white space at the ends has its own rules
    said = f"<{text}>".replace("\0", "\ufffd")  # a prompt is given to a program, so it holds no NUL
    documents = client.post("/v1/chat", json={"message": prompt, "stream": True})
    assert {line.split(":")[0] for line in _lines(documents.content)} <= {"", "event", "data", "id"}
    events = sse(documents.content)
    assert [event.event for event in events].count("done") == 1
    output = [json.loads(event.data) for event in events]
    assert "".join(data["delta"] for data in output if "delta" in data) == said

    completion = client.post("/v1/chat/completions", json=question(prompt, stream=True))
    assert {line.split(":")[0] for line in _lines(completion.content)} <= {"", "data", "id"}
    chunks = [event.data for event in sse(completion.content)]
    assert chunks.index("[DONE]") == len(chunks) - 1
    choices = [choice for chunk in chunks[:-1] for choice in json.loads(chunk)["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == said

    accept = {"accept": "application/x-ndjson"}
    ndjson = client.post("/v1/chat", json={"message": prompt, "stream": True}, headers=accept).content
    assert b"\r" not in ndjson
    assert ndjson.endswith(b"\n")
    lines = [json.loads(line) for line in ndjson.split(b"\n")[:-1]]
    assert [line["type"] for line in lines].count("done") == 1
    assert {name for line in lines for name in line} == {"id", "type", "documentId", "data"}
    assert "".join(line["data"].get("delta", "") for line in lines) == said


def test_what_a_tool_has_read_cannot_end_an_event(open_gateway: RunningGateway, client: httpx2.Client) -> None:
    content = "\n".join(HOSTILE).replace(
        "\r", "\n"
    )  # a carriage return is none to the stand-in, which reads it as text
    (open_gateway.workspace / "hostile").write_bytes(content.encode())
    body = {"message": standin("read path=hostile"), "stream": True}
    reply = client.post("/v1/chat", json=body)
    assert {line.split(":")[0] for line in _lines(reply.content)} <= {"", "event", "data", "id"}
    results = [json.loads(event.data)["result"] for event in sse(reply.content) if event.event == "tool_result"]
    assert [result["data"] for result in results] == [content]
    ndjson = client.post("/v1/chat", json=body, headers={"accept": "application/x-ndjson"}).content
    lines = [json.loads(line) for line in ndjson.split(b"\n")[:-1]]
    assert [line["data"]["result"]["data"] for line in lines if line["type"] == "tool_result"] == [content]
    assert "\0" in content


def _lines(body: bytes) -> list[str]:
    """As the specification of event streams cuts them, and no more."""
    return re.split("\r\n|\r|\n", body.decode())


# --- logs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["json", "human"])
def test_a_line_of_the_log_cannot_be_forged(tmp_path: Path, format: str) -> None:
    forged = '{"event": "forged", "level": "error"}'
    evil = f"evil\n{forged}\r\x1b[2K\x1b[31m forged\u2028{forged}\x85"
    settings = {"log_format": format, "log_level": "debug"}
    with running_gateway(tmp_path, settings=settings) as gateway, http_client(gateway) as client:
        (gateway.workspace / evil).mkdir()
        chat(client, standin("text"), workspace=evil)
        quoted = "".join(f"%{byte:02x}" for byte in evil.encode())
        for model in (evil, "auto " + forged):
            assert client.post("/v1/chat", json={"message": "x", "model": model}).status_code == 404
        client.post("/v1/chat", json={"message": "x", "workspace": evil + "x"})
        client.get(f"/{quoted}")
        client.get(f"/v1/models/{quoted}?{quoted}")
        client.post(f"/v1/chat/{quoted}/cancel", json={})
        for header in ("User-Agent", "X-Request-Id", "Origin", "Referer", "X-Forwarded-For", "Host"):
            exchange(gateway, request("GET", "/health", f"{header}: {forged}\r\x1b[2K"))
            exchange(gateway, request("GET", "/health", f"{header}: x\r\n {forged}"))
        exchange(gateway, f"{forged}\r\n\r\n".encode())
    logged = gateway.log.read_text()
    lines = logged.removesuffix("\n").split("\n")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", logged)
    started = [line for line in lines if "run started" in line]
    assert len([line for line in started if "evil" in line]) == 1  # it is told, in its one line
    if format == "json":
        assert all(json.loads(line)["event"] != "forged" for line in lines)
    else:
        assert all(re.match(r"\d{4}-\d{2}-\d{2}T|    ", line) for line in lines), logged
