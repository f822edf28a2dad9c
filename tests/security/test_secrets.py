"""What must stay with the operator: keys, the agent's login, the tools' address, and what was said."""

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.keys import hash_key
from cursor_gateway.sources.processes import AGENT
from tests.cli.processes import finished
from tests.gateways import RunningGateway, running_gateway
from tests.security.conftest import ALICE, BOB, CURSOR_KEY, OPERATORS, with_key
from tests.server.conftest import chat, eventually, growing, http_client, invocation, question, standin, text_of, unique
from tests.server.test_caller_tools import PNG, WEATHER, Caller, call, only_call, program, say

OURS = [ALICE, BOB, hash_key(ALICE), hash_key(ALICE).removeprefix("sha256:"), OPERATORS]


def _of_process(pid: int, file: str) -> bytes:
    return Path(f"/proc/{pid}/{file}").read_bytes()


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc here")


# --- processes --------------------------------------------------------------------------------------------


@needs_proc
def test_neither_a_secret_nor_a_prompt_stands_in_the_list_of_processes(
    keyed_gateway: RunningGateway, alice: httpx2.Client
) -> None:
    """Everybody on the machine can read it."""
    mark = unique()
    with growing(alice, "documents", f"{standin('hang-mid')} {mark}") as stream:
        stream.until(b"about")
        agent = invocation(keyed_gateway, mark)["pid"]
        listed = [_of_process(pid, "cmdline") for pid in (agent, keyed_gateway.process.pid)]
        assert b"stream-json" in listed[0]  # it is the right one
        for secret in [*OURS, CURSOR_KEY, mark]:
            assert all(secret.encode() not in line for line in listed)


@needs_proc
def test_the_agents_environment_has_its_own_secret_and_none_of_ours(
    keyed_gateway: RunningGateway, alice: httpx2.Client
) -> None:
    """What the kernel says, not what the agent tells of itself."""
    mark = unique()
    with growing(alice, "documents", f"{standin('hang-mid')} {mark}") as stream:
        stream.until(b"about")
        given = _of_process(invocation(keyed_gateway, mark)["pid"], "environ")
        names = {entry.partition(b"=")[0].decode() for entry in given.split(b"\0") if entry}
        assert f"CURSOR_API_KEY={CURSOR_KEY}".encode() in given.split(b"\0")
        assert [name for name in names if name.startswith("CURSOR_GATEWAY_")] == [AGENT]
        assert "OPERATORS_SECRET" not in names
        assert all(secret.encode() not in given for secret in OURS)
        opened = [os.readlink(entry) for entry in Path(f"/proc/{invocation(keyed_gateway, mark)['pid']}/fd").iterdir()]
        assert not [name for name in opened if "history.db" in name]
        assert not [name for name in opened if name.startswith("socket:")]  # no connection of anybody's is handed down


@needs_proc
def test_the_tools_address_is_given_to_the_agent_alone(keyed_gateway: RunningGateway, alice: httpx2.Client) -> None:
    mark = unique()
    caller = Caller(alice, f"{mark} {program(call('weather', city='A'), say('It is $1.'))}", [WEATHER])
    reply = caller.ask()
    started = invocation(keyed_gateway, mark)
    file = Path(started["workspace"]) / ".cursor" / "mcp.json"
    secret = json.loads(file.read_text())["mcpServers"]["caller"]["url"].rpartition("/")[2]
    assert len(secret) >= 43
    assert _is_private(file)
    assert secret.encode() not in _of_process(started["pid"], "cmdline")
    assert secret.encode() not in _of_process(started["pid"], "environ")
    caller.give((only_call(reply)["id"], "sunny"))
    caller.ask()
    run = f"/v1/chat/{caller.chat_id}"
    result = [alice.get(path).text for path in (run, f"{run}/events", "/metrics", "/health", "/v1/runs")]
    assert all(secret not in text for text in [*result, json.dumps(caller.completions), keyed_gateway.log.read_text()])
    data = keyed_gateway.home / "new" / "data"
    for stored in data.glob("history.db*"):
        assert secret.encode() not in stored.read_bytes()


# --- what is written --------------------------------------------------------------------------------------


def _is_private(path: Path, below: Path | None = None) -> bool:
    """Nobody else can read or change it: by its own mode, or by that of a folder above it."""
    places = [path, *path.parents]
    if below is not None:
        places = places[: places.index(below) + 1]
    return any(not stat.S_IMODE(place.lstat().st_mode) & 0o077 for place in places)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if not path.is_symlink() and path.is_file())


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_what_is_kept_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    """Whatever the umask is, and also where the operator's own folder is open to all."""
    for data in (tmp_path / "there", tmp_path / "new" / "data"):
        is_ours = data.name == "data"
        if not is_ours:
            data.mkdir()
            data.chmod(0o755)
        home = tmp_path / f"home-{data.name}"
        settings = {"data_dir": str(data), "record_dir": str(home / "recordings")}
        before = os.umask(umask)
        try:
            with running_gateway(home, settings=settings) as gateway, http_client(gateway) as client:
                (home / ".cursor" / "cli-config.json").write_text('{"version": 1}')
                chat(client, standin("text"), images=[PNG])
                Caller(client, program(call("weather", city="A"), say("It is $1.")), [WEATHER]).ask()
                kept = list(_files(data))
                assert {"history.db", "cli-config.json", "mcp.json"} <= {path.name for path in kept}
                assert any(path.suffix == ".png" for path in kept)
                assert [path for path in kept if not _is_private(path, below=data)] == []
                assert [path for path in _files(home / "recordings") if not _is_private(path)] == []
                shown = data if is_ours else data / "conversations"  # names of conversations are nobody's business
                assert stat.S_IMODE(shown.stat().st_mode) == 0o700
        finally:
            os.umask(before)


def test_keys_are_kept_as_hashes_and_shown_once(tmp_path: Path) -> None:
    made = finished("key", "laptop", HOME=str(tmp_path), XDG_CONFIG_HOME="", XDG_DATA_HOME="")
    (key,) = set(re.findall(r"cgw_[\w-]{43}", made.stdout.decode() + made.stderr.decode()))
    assert hash_key(key) in made.stdout.decode() + made.stderr.decode()
    assert not [path for path in _files(tmp_path) if key.encode() in path.read_bytes()]
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "CURSOR_GATEWAY_API_KEY": key}
    shown = finished("settings", CURSOR_GATEWAY_API_KEYS=f"laptop={hash_key(key)}", **environment)
    assert shown.returncode == 0
    assert key.encode() not in shown.stdout + shown.stderr
    assert hash_key(key).encode() not in shown.stdout + shown.stderr


# --- what is told -----------------------------------------------------------------------------------------


def test_secrets_are_in_no_log_figure_error_record_or_history(
    keyed_gateway: RunningGateway, alice: httpx2.Client
) -> None:
    """Also where a caller puts them where they do not belong."""
    stray = f"cgw_stray_{unique()}"
    replies = [
        alice.get(f"/v1/chat/{stray}"),
        alice.get(f"/v1/conversations?api_key={stray}"),
        alice.get("/v1/conversations", headers={"authorization": f"Bearer {stray}"}),
        alice.get("/v1/conversations", headers={"x-api-key": stray}),
        alice.post("/v1/chat", content=b"{", headers={"content-type": "application/json"}),
        alice.post("/v1/chat", json={"message": standin("text")}, headers={"x-session-id": stray}),
        alice.post("/v1/chat", json={"message": standin("fail-key")}),
        alice.get("/metrics"),
        alice.get("/health"),
        alice.get("/v1/runs"),
    ]
    eventually(lambda: "run ended" in keyed_gateway.log.read_text())
    logged = keyed_gateway.log.read_text()
    assert stray not in logged
    assert stray not in replies[-3].text
    kept = b"".join(path.read_bytes() for path in _files(keyed_gateway.home / "new"))
    kept += b"".join(path.read_bytes() for path in _files(keyed_gateway.home / "recordings"))
    assert b"standin" in kept
    for secret in [*OURS, CURSOR_KEY]:
        assert secret not in logged
        assert secret.encode() not in kept
        assert all(secret not in f"{reply.text}{reply.headers}" for reply in replies)


def test_an_agent_that_tells_its_environment_tells_nothing_of_ours(
    keyed_gateway: RunningGateway, alice: httpx2.Client
) -> None:
    """A prompt can make it say what it knows."""
    result = text_of(chat(alice, standin("echo-env")))
    assert "PATH" in result
    assert all(secret not in result for secret in OURS)
    assert re.findall(r"CURSOR_GATEWAY\w*", result) == [AGENT, AGENT]  # its name, and its name with the value


def test_the_value_that_marks_an_agents_processes_is_no_key(
    keyed_gateway: RunningGateway, alice: httpx2.Client
) -> None:
    """An agent tells it to whoever asks."""
    value = json.loads(text_of(chat(alice, standin("echo-env"))))["values"][AGENT]
    for key in (value, value.partition(".")[0]):
        with with_key(keyed_gateway, key) as client:
            assert client.get("/v1/conversations").status_code == 401


def test_a_fault_tells_the_caller_an_id_and_the_log_the_rest(tmp_path: Path) -> None:
    """A folder that vanishes under the gateway."""
    with running_gateway(tmp_path) as gateway, http_client(gateway) as client:
        (tmp_path / "data" / "conversations").write_text("a file in the place of a folder")
        reply = client.post("/v1/chat", json={"message": "hello"})
        assert reply.status_code >= 500
        assert str(tmp_path) not in reply.text
        assert "Traceback" not in reply.text
        assert client.get("/health").status_code == 200


# --- what libraries would log -----------------------------------------------------------------------------


def test_no_prompt_answer_or_tool_result_is_in_the_log_at_its_most_talkative(tmp_path: Path) -> None:
    """The libraries that carry them log them at this level: the MCP server, its streams, the parser of Markdown."""
    asked, given, answered = unique(), unique(), unique()
    with running_gateway(tmp_path / "home", "--log-level", "debug") as gateway, http_client(gateway) as http:
        steps = program(call("weather", city=asked), say(f"# It is {answered}\n\n- [x](http://example.org)\n"))
        caller = Caller(http, f"{asked} {steps}", [WEATHER])
        assert caller.converse(lambda name, arguments: given).startswith("# It is")
        id = caller.chat_id
        assert answered in http.get(f"/v1/chat/{id}", params={"dialect": "page"}).text
        assert answered in http.get(f"/v1/chat/{id}/events", params={"dialect": "html"}).text
        for scenario in ("crash", "crash-early", "garbage", "bad-utf8", "fail-auth", "fail-network"):
            assert asked not in http.post("/v1/chat/completions", json=question(f"{asked} {standin(scenario)}")).text
        refused = [
            http.post("/v1/chat", json={"message": [asked]}),
            http.post("/v1/chat/completions", json=question(asked, n=2)),
            http.post("/v1/chat", content=f'{{"message": "{asked}', headers={"content-type": "application/json"}),
        ]
        assert all(reply.status_code == 400 and asked not in reply.text for reply in refused)
    logged = gateway.log.read_text()
    assert "run ended" in logged
    for secret in (asked, given, answered):
        assert secret not in logged
