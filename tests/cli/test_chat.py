"""`cursor-gateway chat`, as a process of its own: by a real gateway, and with the stand-in agent directly."""

import fcntl
import json
import os
import re
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cursor_gateway.dialects.documents.encoder import SseEncoder
from cursor_gateway.keys import hash_key
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.sources.processes import members, start_of
from tests.agent.install import install
from tests.agent.records import records
from tests.cli.processes import TIMEOUT, arguments_of, finished, on_a_terminal, own_machine, read_until, started
from tests.cli.recordings import delta, init
from tests.gateways import RunningGateway, running_gateway
from tests.preloaded import Process

BROKEN_RUN = init() + delta("Half an ans")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"  # not that of the tests' gateways, so these are not verified
    own_machine(monkeypatch, home, verify_gateway="false", replay_speed="0", grace_seconds="0.5")
    return home


@pytest.fixture
def agent_log(home: Path) -> Path:
    """The stand-in is installed; here is what it was told."""
    log = home / "agent.log"
    install(home / "bin", knobs={"log": str(log)})
    return log


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    settings = {"when_client_leaves": "finish", "drain_seconds": "0.1"}  # runs that hang are left in the end
    with running_gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as gateway:
        yield gateway


def turns(log: Path) -> list[dict[str, Any]]:
    return [record for record in records(log) if record["prompt"] is not None]


def chat(*arguments: str, stdin: bytes = b"", **environment: str) -> tuple[int, str, str]:
    ended = finished("chat", *arguments, stdin=stdin, **environment)
    assert b"Traceback" not in ended.stderr
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


# --- the prompt -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "piped", "prompt"),
    [
        (["Why", "is it", "so?"], b"", "Why is it so?"),
        ([], b"piped\ntext\n", "piped\ntext"),
        (["-"], "från röret\n".encode(), "från röret"),
        (["review this"], b"+ a\n- b\n", "review this\n\n+ a\n- b"),
        (["--", "--model"], b"", "--model"),
        ([], b"caf\xe9", "caf\ufffd"),
    ],
)
def test_the_prompt_is_the_words_and_below_them_what_is_piped(
    words: list[str], piped: bytes, prompt: str, agent_log: Path
) -> None:
    status, out, _ = chat("--text", *words, stdin=piped)
    assert (status, out) == (0, f"You said: {prompt}\n")
    assert turns(agent_log)[-1]["prompt"] == prompt


@pytest.mark.parametrize("words", [(), ("-",), (" ",)])
def test_without_a_prompt_there_is_nothing_to_ask(words: tuple[str, ...]) -> None:
    status, out, error = chat(*words)
    assert (status, out) == (2, "")
    assert "No prompt given" in error
    status, out, error = on_a_terminal("chat", *(words or ["--text"]), stdin=None)
    assert (status, out) == (2, "")


def test_a_standard_input_that_cannot_be_read_is_reported(home: Path) -> None:
    with (home / "file").open("wb") as file:  # for writing
        ended = subprocess.run(
            arguments_of("chat", "hi"), stdin=file, capture_output=True, check=False, timeout=TIMEOUT
        )
    assert ended.returncode == 2
    assert ended.stderr == b"cursor-gateway: standard input cannot be read: Bad file descriptor; pipe some text in.\n"


def test_arguments_that_are_not_utf_8(agent_log: Path, gateway: RunningGateway) -> None:
    broken = os.fsdecode(b"caf\xe9")
    for how in (["--direct"], ["--url", gateway.url]):
        assert chat("--text", *how, broken)[:2] == (0, "You said: caf\ufffd\n")
    status, _, error = chat("--url", gateway.url, "--model", broken, "hi")
    assert status == 2
    assert "is not valid UTF-8" in error


def test_a_forgotten_pipe_is_explained(agent_log: Path) -> None:
    with started("chat", "--text", "hello") as process:
        assert process.stderr is not None
        assert process.stdin is not None
        read_until(process.stderr.fileno(), b"add `< /dev/null`")
        process.stdin.close()
        assert process.wait(TIMEOUT) == 0


# --- directly ---------------------------------------------------------------------------------------


def test_without_a_gateway_the_agent_runs_here(agent_log: Path, home: Path) -> None:
    status, out, error = chat("standin: tools")
    assert status == 0
    assert "\x1b" not in out + error
    assert "$ pytest -q\n  2 passed" in out
    assert "✓ completed" in out.splitlines()[-1]
    first, last = error.splitlines()
    assert first.startswith("cursor-agent 2026")
    assert first.endswith(f"without a gateway, in {home / 'work'}")
    assert re.fullmatch(r'Continue with: cursor-gateway chat --conversation conv_\w+ "…"', last)
    (turn,) = turns(agent_log)
    assert turn["workspace"] == str(home / "work")
    assert list((home / ".local/share/cursor-gateway/instances").iterdir()) == []  # nothing is left behind


def test_what_is_asked_for_reaches_the_agent(agent_log: Path, home: Path) -> None:
    (home / "other").mkdir()
    status, out, _ = chat(
        "--text", "--model", "gpt-5-mini", "--mode", "ask", "--workspace", "../other", "standin: echo-args"
    )
    assert status == 0
    result = json.loads(out)
    assert result["argv"][result["argv"].index("--model") + 1] == "gpt-5-mini"
    assert result["argv"][result["argv"].index("--mode") + 1] == "ask"
    assert result["workspace"] == str(home / "other")


def test_the_current_folder_is_worked_in_whatever_the_settings_say(agent_log: Path, home: Path) -> None:
    status, _, _ = chat("hi", CURSOR_GATEWAY_WORKSPACE=str(home), CURSOR_GATEWAY_WORKSPACE_ROOTS="/nowhere")
    assert status == 0
    assert turns(agent_log)[-1]["workspace"] == str(home / "work")


def test_thinking_is_shown_when_asked_for(agent_log: Path) -> None:
    assert "┊ " not in chat("standin: thinking")[1]
    assert "┊ " in chat("--include", "thinking", "standin: thinking")[1]


def test_json_is_the_response(agent_log: Path) -> None:
    status, out, _ = chat("--json", "standin: tools")
    assert status == 0
    assert out.count("\n") == 1
    response = msgspec.json.decode(out, type=ChatResponse)
    assert response.status == "completed"
    assert len(response.documents) > 8
    status, out, _ = on_a_terminal("chat", "--json", "hello")
    assert status == 0
    assert out.startswith('{\n  "id": "chat_')


def test_an_answer_arrives_as_text_while_it_is_written(agent_log: Path, home: Path) -> None:
    with started("chat", "--text", f"standin: wait-for file={home / 'go'}") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert read_until(process.stdout.fileno(), b"file.") == b"Waiting for the file."
        (home / "go").touch()
        assert read_until(process.stdout.fileno(), b"\n") == b" It is there.\n"
        assert process.wait(TIMEOUT) == 0


CODE = """standin: say size=7
---
Look:

```python
print(1)
```

and

````12:13:a.md
```
b
````

done"""


def test_text_is_the_same_whoever_answers(agent_log: Path, gateway: RunningGateway) -> None:
    """Also for code, whichever way it is told."""
    said = CODE.partition("---\n")[2] + "\n"
    for how in (["--direct"], ["--url", gateway.url]):
        for fences in ([], ["--fences", "inline"], ["--fences", "split"]):
            assert chat("--text", *how, *fences, CODE)[:2] == (0, said)


@pytest.mark.parametrize(
    ("scenario", "message"), [("fail-auth", "cursor-agent login"), ("fail-model model=zzz", "Unknown model")]
)
def test_a_run_that_fails_at_once_is_reported_on_stderr_and_exits_with_1(
    scenario: str, message: str, agent_log: Path
) -> None:
    """Like that of any gateway."""
    for form in ([], ["--text"], ["--json"]):
        status, out, error = chat(*form, f"standin: {scenario}")
        assert (status, out) == (1, "")
        assert error.splitlines()[-1].startswith("cursor-gateway: ")
        assert message in error.splitlines()[-1]
        assert error.count("\n") == 2  # what runs it, and what is wrong


def test_a_folder_with_hooks_of_its_own_is_refused(home: Path, agent_log: Path) -> None:
    (home / "work" / ".mcp.json").touch()
    for form in ([], ["--text"], ["--json"]):
        status, out, error = chat(*form, "standin: text")
        assert (status, out, turns(agent_log)) == (2, "", [])
        assert f'`allow_workspace_hooks = ["{home / "work"}"]` in `config.toml`' in error.splitlines()[-1]


@pytest.mark.parametrize(
    ("scenario", "message"), [("fail-quota", "usage limit"), ("crash", "ended before the agent had finished")]
)
def test_a_run_that_fails_later_is_shown_and_exits_with_1(scenario: str, message: str, agent_log: Path) -> None:
    prompt = f"standin: {scenario}"
    status, out, error = chat(prompt)
    assert status == 1
    assert message in out
    assert "✗ failed" in out
    assert error.count("\n") == 2  # what runs it, and how to go on
    status, out, error = chat("--text", prompt)
    assert status == 1
    assert message not in out
    assert error.splitlines()[-1].startswith("cursor-gateway: the run failed: ")
    assert message in error
    status, out, error = chat("--json", prompt)
    assert status == 1
    assert msgspec.json.decode(out, type=ChatResponse).status == "error"
    assert message in error


@pytest.mark.parametrize("name", ["nowhere", "~nobody-of-this-name/x"])
def test_a_folder_that_is_not_there_is_refused(name: str, agent_log: Path) -> None:
    status, out, error = chat("--workspace", name, "hi")
    assert (status, out) == (2, "")
    assert error == f"cursor-gateway: the folder '{name}' does not exist; name one that does.\n"


def test_a_current_folder_that_is_gone_is_reported(home: Path, agent_log: Path) -> None:
    (home / "work").rmdir()
    status, out, error = chat("hi")
    assert (status, out) == (2, "")
    assert "the current folder no longer exists" in error


def test_text_cannot_draw_on_the_terminal_but_goes_through_a_pipe_as_it_is(agent_log: Path) -> None:
    prompt = "standin: say\n---\none\x1b[2Jtwo"
    assert chat("--text", prompt)[1] == "one\x1b[2Jtwo\n"
    assert "\x1b" not in on_a_terminal("chat", "--text", prompt)[1]


def test_an_agent_that_is_wanted_and_not_there_is_no_demo() -> None:
    status, out, error = chat("hi", CURSOR_GATEWAY_SOURCE="cli")
    assert (status, out) == (2, "")
    assert error.startswith("cursor-gateway: cursor-agent is not installed; ")
    assert error.count("\n") == 1


def test_without_an_agent_the_demo_answers_and_says_so() -> None:
    status, out, error = chat("hello")
    assert status == 0
    assert "built-in demo" in out
    first, why, _ = error.splitlines()
    assert first == "DEMO: answers are built-in recordings. No agent runs, no files change."
    assert why.startswith("cursor-agent is not installed; ")


def test_a_conversation_goes_on_directly(agent_log: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is asked for, it works in its own folder; `--continue` means the one of this folder."""
    _, _, error = chat("the first thing")
    (id,) = re.findall(r"conv_\w+", error)
    (home / "other").mkdir()
    chat("something else", "--workspace", str(home / "other"))
    for how in (["--conversation", id], ["--conversation", id.removeprefix("conv_")[:8]], ["--continue"]):
        status, out, _ = chat(*how, "--text", "standin: history")
        assert status == 0
        assert json.loads(out)["prompts"][0] == "the first thing"
    monkeypatch.chdir(home / "other")
    status, out, _ = chat("--continue", "--text", "standin: history")
    assert (status, json.loads(out)["prompts"]) == (0, ["something else"])
    status, _, error = chat("--conversation", id, "hi")
    assert status == 0
    assert error.splitlines()[0].endswith(f"without a gateway, in {home / 'work'}")
    assert turns(agent_log)[-1]["workspace"] == str(home / "work")
    status, out, error = chat("--conversation", id, "--workspace", ".", "hi")
    assert (status, out) == (2, "")
    assert "start a new one to use another" in error
    (home / "work").rmdir()
    status, out, error = chat("--conversation", id, "hi")
    assert (status, out) == (2, "")
    assert "the folder of this conversation no longer exists" in error


def test_a_gateway_knows_what_was_said_without_it(agent_log: Path, home: Path, tmp_path: Path) -> None:
    _, _, error = chat("the first thing")
    (id,) = re.findall(r"conv_\w+", error)
    data = {"data_dir": str(home / ".local/share/cursor-gateway")}
    with running_gateway(tmp_path / "gateway", settings=data) as gateway:
        for how in (["--conversation", id], ["--continue"]):
            status, out, _ = chat("--url", gateway.url, *how, "--text", "standin: history")
            assert status == 0
            assert json.loads(out)["prompts"][0] == "the first thing"
        status, _, error = chat("--url", gateway.url, "--conversation", "last", "hi")
        assert status == 0
        assert id in error


def test_a_conversation_has_one_run_at_a_time_also_over_processes(agent_log: Path) -> None:
    process, _ = begun("standin: hang-mid", expected=b"more.")
    with process:
        status, out, error = chat("--continue", "hi")
        assert (status, out) == (2, "")
        assert "has an active run in another process" in error
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
    assert chat("--continue", "hi")[0] == 0


def test_without_a_history_nothing_is_promised(agent_log: Path, home: Path) -> None:
    status, _, error = chat("hi", CURSOR_GATEWAY_HISTORY="false")
    assert status == 0
    assert "Continue with" not in error
    assert not list((home / ".local/share/cursor-gateway").glob("history*"))


# --- by a gateway -----------------------------------------------------------------------------------


def port_of(gateway: RunningGateway) -> str:
    return gateway.url.rpartition(":")[2]


def test_a_gateway_is_used_when_it_is_named_or_found(gateway: RunningGateway) -> None:
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["--url", gateway.url], {}),
        (["--url", f"{gateway.url}/v1/"], {}),  # as other clients want it
        ([], {"CURSOR_GATEWAY_URL": gateway.url}),
        ([], {"CURSOR_GATEWAY_PORT": port_of(gateway)}),
        ([], {"CURSOR_GATEWAY_PORT": port_of(gateway), "CURSOR_GATEWAY_HOST": "0.0.0.0"}),
        ([], {"CURSOR_GATEWAY_PORT": port_of(gateway), "HTTP_PROXY": "http://127.0.0.1:1"}),
    ]
    for arguments, environment in ways:
        status, out, error = chat(*arguments, "standin: tools", stdin=b"", **environment)
        assert status == 0
        assert "$ pytest -q\n  2 passed" in out
        first, last = error.splitlines()
        assert first.startswith(f"Gateway at {gateway.url}: cursor-agent 2026")
        assert re.match(r'Continue with: cursor-gateway chat (--url \S+ )?--conversation conv_\w+ "…"$', last)


def test_direct_does_not_look_for_one(gateway: RunningGateway, agent_log: Path) -> None:
    status, _, error = chat("--direct", "hi", CURSOR_GATEWAY_URL=gateway.url, CURSOR_GATEWAY_PORT=port_of(gateway))
    assert status == 0
    assert "without a gateway" in error
    assert len(turns(agent_log)) == 1


def test_a_folder_is_that_of_whoever_names_it(tmp_path: Path, home: Path) -> None:
    roots = {"workspace_roots": str(tmp_path)}
    with running_gateway(tmp_path / "elsewhere", settings=roots) as gateway:
        status, out, _ = chat("--url", gateway.url, "--text", "--workspace", ".", "standin: echo-args")
        assert status == 0
        assert json.loads(out)["workspace"] == str(home / "work")


def test_the_key_is_sent_and_a_wrong_one_is_reported(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "keys", settings={"api_keys": f"me={hash_key('cgw_right')}"}) as gateway:
        assert chat("--url", gateway.url, "hi", CURSOR_GATEWAY_API_KEY="cgw_right")[0] == 0
        for key in ("", "cgw_wrong"):
            status, out, error = chat("--url", gateway.url, "hi", CURSOR_GATEWAY_API_KEY=key)
            assert (status, out) == (2, "")
            assert "API key is required" in error
            assert "CURSOR_GATEWAY_API_KEY" in error
        status, out, error = chat("--url", gateway.url, "hi", CURSOR_GATEWAY_API_KEY="schlüssel\n")
        assert (status, out) == (2, "")
        assert "schlüssel" not in error


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--conversation", "conv_none", "hi"], 2, "Unknown conversation 'conv_none'"),
        (["--workspace", "/", "hi"], 2, "workspace_roots"),
        (["standin: fail-auth"], 1, "cursor-agent login"),
        (["standin: fail-quota-early"], 1, "usage limit"),
    ],
)
def test_what_the_gateway_refuses_is_reported_in_its_words(
    arguments: list[str], status: int, message: str, gateway: RunningGateway
) -> None:
    ended, out, error = chat("--url", gateway.url, *arguments)
    assert (ended, out) == (status, "")
    last = error.splitlines()[-1]
    assert last.startswith("cursor-gateway: ")
    assert message in last


def test_a_demo_is_announced_as_one(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "demo", has_agent=False, settings={"replay_speed": "0"}) as gateway:
        status, _, error = chat("--url", gateway.url, "hello")
        assert status == 0
        assert error.startswith(f"DEMO: answers are built-in recordings at {gateway.url}. No agent runs")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "http://127.0.0.1:1"], "http://127.0.0.1:1 cannot be reached: Connection refused; start one with"),
        (["--url", "http://no-such-host.invalid"], "cannot be reached"),
        (["--url", "127.0.0.1:8787"], "is not the address of a gateway; write it like http://"),
        (["--url", "ftp://x"], "is not the address"),
        (["--url", "http://x:port"], "is not the address"),
        (["--url", "http://[::1"], "is not the address"),
        (["--direct", "--url", "http://x"], "--direct and --url cannot be combined"),
        (["--direct", "--conversation", "conv_1"], "Unknown conversation 'conv_1'"),
        (["--conversation", "conv_1"], "Unknown conversation 'conv_1'"),
        (["--conversation", f"conv_{'0' * 32}"], "Unknown conversation 'conv_0"),
        (["--conversation", "last"], "no conversations yet"),
        (["--continue"], "to continue; omit --continue"),
        (["--continue", "--conversation", "conv_1"], "--conversation cannot be combined"),
    ],
)
@pytest.mark.quick_cases(5)
def test_what_cannot_be_reached_is_reported_in_a_sentence(arguments: list[str], message: str) -> None:
    status, out, error = chat(*arguments, "hi")
    assert (status, out) == (2, "")
    assert message in error


# --- what is no gateway, or one that breaks off ---------------------------------------------------------


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answer: Answer, health: bytes | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if health is not None else 404)
            self.end_headers()
            self.wfile.write(health or b"<html>nothing here</html>")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}"
        finally:
            serving.shutdown()
            thread.join()


def stream_of(recording: bytes, *, whole: bool = True) -> bytes:
    encoder = SseEncoder()
    run = RunInfo(id="chat_1", created="2026-01-01T00:00:00Z", conversation_id="conv_1")
    frames = [encoder.push(event) for event in read_events([recording], run)]
    return b"".join(frames if whole else frames[:-3])  # of one that failed, the last three tell so


def stream(handler: BaseHTTPRequestHandler, data: bytes, length: int | None = None) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("X-Chat-Id", "chat_1")
    if length is not None:
        handler.send_header("Content-Length", str(length))
    handler.end_headers()
    handler.wfile.write(data)


@pytest.mark.parametrize("length", [None, 1_000_000])
def test_a_connection_that_breaks_off_is_reported_and_what_had_arrived_stays(length: int | None) -> None:
    data = stream_of(BROKEN_RUN, whole=False)
    assert b"Half an ans" in data
    assert b"event: done" not in data
    with server(lambda handler: stream(handler, data, length)) as url:
        for form in ([], ["--text"]):
            status, out, error = chat("--url", url, *form, "hi")
            assert status == 1
            assert out == "Half an ans\n"
            assert f"the connection to {url} was lost: " in error
        assert chat("--url", url, "--json", "hi")[:2] == (1, "")


def some_page(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.end_headers()
    handler.wfile.write(b"<html>")


@pytest.mark.quick_cases(1)  # the client tries each of them again for three seconds
@pytest.mark.parametrize(
    "answer",
    [
        some_page,
        lambda handler: handler.send_error(502, "Bad Gateway"),
        lambda handler: stream(handler, b"event: document_start\ndata: {}\n\n"),
    ],
    ids=["a page", "a proxy's error", "a wrong event"],
)
def test_what_is_no_gateway_is_reported(answer: Answer) -> None:
    with server(answer) as url:
        status, out, error = chat("--url", url, "hi")
        assert (status, out) == (2, "")
        assert "gateway" in error.splitlines()[-1].removeprefix("cursor-gateway: ")


def test_a_refusal_cannot_draw_on_the_terminal() -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(400)
        handler.end_headers()
        handler.wfile.write(json.dumps({"error": {"message": "no\x1b[2J\nreally", "code": None}}).encode())

    with server(refuse) as url:
        assert chat("--url", url, "hi")[2].splitlines()[-1] == "cursor-gateway: no really"


def test_another_program_on_the_local_port_is_no_gateway(agent_log: Path) -> None:
    """Nor is there none: whoever meant theirs would find the agent at work in another folder."""
    with server(lambda handler: handler.send_error(500), health=b'{"status": "ok"}') as url:
        status, out, error = chat("hi", CURSOR_GATEWAY_PORT=url.rpartition(":")[2])
        assert (status, out) == (2, "")
        assert "but is not a cursor-gateway" in error
    assert not agent_log.exists()


# --- stopping it ----------------------------------------------------------------------------------------


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def begun(*arguments: str, expected: bytes) -> tuple[Process, bytes]:
    process = started("chat", "--text", *arguments)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    return process, read_until(process.stdout.fileno(), expected)


@pytest.mark.parametrize(
    ("scenario", "sent", "status"),
    [
        ("hang-mid", signal.SIGINT, 130),
        ("ignore-term", signal.SIGINT, 130),
        ("grandchild", signal.SIGINT, 130),
        ("grandchild", signal.SIGTERM, 143),
        ("hang-mid", signal.SIGHUP, 129),
    ],
)
@pytest.mark.quick_cases(2)
def test_when_it_is_stopped_no_process_is_left(
    scenario: str, sent: signal.Signals, status: int, agent_log: Path, home: Path
) -> None:
    expected = b" " if scenario == "grandchild" else b"."
    process, said = begun(f"standin: {scenario}", expected=expected)
    with process:
        (turn,) = turns(agent_log)
        assert members(turn["pgid"])
        process.send_signal(sent)
        assert process.wait(TIMEOUT) == status
        assert members(turn["pgid"]) == []  # before it has ended, not soon after
        if scenario == "grandchild":
            assert start_of(int(said.decode().strip().removeprefix("grandchild="))) is None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == b"\n"
        assert b"Traceback" not in process.stderr.read()
    assert list((home / ".local/share/cursor-gateway/instances").iterdir()) == []


@pytest.mark.parametrize("form", ["--text", "--fences=split"])
def test_a_reader_that_goes_away_ends_the_agent(form: str, agent_log: Path) -> None:
    body = "".join(f"line {number}\n" for number in range(40_000))  # more than a pipe holds
    with started("chat", form) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(f"standin: say size=50\n---\n{body}".encode())
        process.stdin.close()
        read_until(process.stdout.fileno(), b"line 3")
        (turn,) = turns(agent_log)
        process.stdout.close()
        assert process.wait(TIMEOUT) == (-signal.SIGPIPE if form == "--text" else 1)  # rich has its own way
        assert members(turn["pgid"]) == []
        assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_cancels_the_run_of_a_gateway(gateway: RunningGateway) -> None:
    """This gateway would let it finish."""
    process, _ = begun("--url", gateway.url, "standin: hang-mid", expected=b"more.")
    with process:
        turn = turns(gateway.agent_log)[-1]
        assert members(turn["pgid"])
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
        wait_until(lambda: not members(turn["pgid"]))
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("scenario", ["hang", "hang-after-init"])
def test_ctrl_c_cancels_a_run_that_has_said_nothing(scenario: str, gateway: RunningGateway) -> None:
    """Its reply is held back, and with it the id: the history has it."""
    before = len(turns(gateway.agent_log))
    with started("chat", "--url", gateway.url, f"standin: {scenario}") as process:
        assert process.stdin is not None
        process.stdin.close()
        wait_until(lambda: len(turns(gateway.agent_log)) > before)
        turn = turns(gateway.agent_log)[-1]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
        wait_until(lambda: not members(turn["pgid"]))
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_on_a_terminal(agent_log: Path) -> None:
    """As a person does it: the key goes to all that runs in the terminal."""
    ours, theirs = os.openpty()

    def adopt() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        arguments_of("chat", "standin: grandchild"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
        preexec_fn=adopt,
    ) as process:
        os.close(theirs)
        sent = read_until(ours, b"grandchild=")
        (turn,) = turns(agent_log)
        assert b"\x1b[2m" in sent  # what it talks to, dimly
        assert not termios.tcgetattr(ours)[3] & termios.ECHO  # or the key would be written into the view
        os.write(ours, b"\x03")
        assert process.wait(TIMEOUT) == 130
        assert members(turn["pgid"]) == []
        assert termios.tcgetattr(ours)[3] & termios.ECHO
    os.close(ours)


def test_ctrl_c_twice_does_not_wait_for_an_agent_that_does_not_listen(
    agent_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURSOR_GATEWAY_GRACE_SECONDS", str(TIMEOUT * 2))
    process, _ = begun("standin: ignore-term", expected=b"listen.")
    with process:
        (turn,) = turns(agent_log)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
        wait_until(lambda: not members(turn["pgid"]))
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
