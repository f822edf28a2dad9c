"""Serving this API is running programs on the machine: each rule against that, on a gateway with the stand-in agent."""

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
    standin,
    text_of,
    unique,
)

ALICE, BOB = new_key(), new_key()
CURSOR_KEY = "key_of_the_cursor_account_0123456789"
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
    settings = {"host": "0.0.0.0", "api_keys": f"alice={hash_key(ALICE)},bob={hash_key(BOB)}", "log_level": "debug"}
    environment = {"CURSOR_API_KEY": CURSOR_KEY}
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


# --- bodies ---------------------------------------------------------------------------------------------


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


# --- what is sent back ----------------------------------------------------------------------------------


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
