"""`cursor-gateway convert`: every form, every option, every exit status."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cursor_gateway import ChatResponse, SseDecoder
from cursor_gateway.cli.commands import answers
from cursor_gateway.cli.main import run
from tests.cli.processes import TIMEOUT, arguments_of, finished, on_a_terminal, read_until, started
from tests.cli.recordings import EVERYTHING, HELLO, delta, init, line, result, thought, tool, user
from tests.preloaded import start

FORMS = ["documents", "sse", "ndjson", "openai", "openai-sse", "text"]
NOT_LOGGED_IN = b"Error: Authentication required. Please run 'cursor-agent login' first.\n"


@pytest.fixture
def convert(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> "Convert":
    return Convert(tmp_path, capfdbinary)


class Convert:
    """Runs the command in this process."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[bytes]) -> None:
        self._file = folder / "recording.ndjson"
        self._capture = capture
        self.status = -1
        self.error = ""

    def __call__(self, recording: bytes, *arguments: str) -> bytes:
        self._file.write_bytes(recording)
        self.status = run(["convert", str(self._file), *arguments])
        out, error = self._capture.readouterr()
        self.error = error.decode()
        return out

    def response(self, recording: bytes, *arguments: str) -> ChatResponse:
        return msgspec.json.decode(self(recording, *arguments), type=ChatResponse)


# --- forms ------------------------------------------------------------------------------------------


def test_documents_is_the_default_and_one_line_of_json(convert: Convert) -> None:
    out = convert(HELLO)
    assert out.count(b"\n") == 1
    assert out.endswith(b"}\n")
    response = msgspec.json.decode(out, type=ChatResponse)
    assert [document.content for document in response.documents] == ["Hello world!"]
    assert (convert.status, convert.error) == (0, "")


def test_ids_are_fresh_and_the_time_is_utc(convert: Convert) -> None:
    first, second = convert.response(HELLO), convert.response(HELLO)
    assert re.fullmatch(r"chat_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first.id)
    assert first.id != second.id
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first.created)


def test_sse_is_the_specifications_events(convert: Convert) -> None:
    decoder = SseDecoder()
    events = [*decoder.push(convert(HELLO, "--to", "sse")), *decoder.flush()]
    assert (events[0].event, events[-1].event) == ("document_start", "done")


def test_ndjson_is_one_event_a_line(convert: Convert) -> None:
    events = [json.loads(line) for line in convert(HELLO, "--to", "ndjson").splitlines()]
    assert events[0]["type"] == "document_start"
    assert events[-1]["data"]["status"] == "completed"


def test_openai_is_one_completion(convert: Convert) -> None:
    completion = json.loads(convert(HELLO, "--to", "openai"))
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{32}", completion["id"])
    assert completion["model"] == "Opus 4.6"
    assert completion["choices"][0]["message"]["content"] == "Hello world!"
    assert completion["created"] > 1_700_000_000


def test_openai_sse_is_chunks_with_usage(convert: Convert) -> None:
    frames = convert(HELLO, "--to", "openai-sse").decode().split("\n\n")
    assert frames[-1] == ""
    data = [frame.partition("data: ")[2] for frame in frames[:-1]]
    assert data[-1] == "[DONE]"
    chunks: list[dict[str, Any]] = [json.loads(chunk) for chunk in data[:-1]]
    assert {chunk["model"] for chunk in chunks} == {"Opus 4.6"}
    assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 1000


def test_text_is_the_answer_and_nothing_else(convert: Convert) -> None:
    assert convert(HELLO, "--to", "text") == b"Hello world!"
    assert convert(EVERYTHING, "--to", "text").decode().endswith("```\nAll done.\n")


# --- options ----------------------------------------------------------------------------------------


def test_the_model_can_be_named(convert: Convert) -> None:
    assert convert.response(HELLO).model == "Opus 4.6"
    assert convert.response(HELLO, "--model", "mine").model == "mine"
    assert json.loads(convert(HELLO, "--to", "openai", "--model", "mine"))["model"] == "mine"


def test_the_mode_is_given_and_decides_what_code_is_for(convert: Convert) -> None:
    response = convert.response(EVERYTHING, "--mode", "plan")
    assert response.mode == "plan"
    purposes = [getattr(document.metadata, "purpose", None) for document in response.documents]
    assert "suggestion" in purposes


def test_fences_are_split_or_stay_in_the_text(convert: Convert) -> None:
    def types(*arguments: str) -> list[str]:
        return [document["type"] for document in json.loads(convert(EVERYTHING, *arguments))["documents"]]

    assert "code_block" in types()
    assert "code_block" in types("--fences", "split")
    assert "code_block" not in types("--fences", "inline")


def test_thinking_and_payloads_come_when_asked_for(convert: Convert) -> None:
    bare = convert(EVERYTHING)
    assert b'"thinking"' not in bare
    assert b'"raw"' not in bare
    both = convert(EVERYTHING, "--include", "thinking", "--include", "raw")
    assert b'"type":"thinking"' in both
    assert b'"raw":{"readToolCall"' in both


def test_an_unknown_option_or_value_is_refused(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["convert", "--to", "xml"]) == 2
    assert b"openai-sse" in capfdbinary.readouterr().err


def test_on_a_terminal_json_is_indented() -> None:
    for form in ("documents", "openai"):
        status, sent, _ = on_a_terminal("convert", "--to", form, stdin=HELLO)
        assert status == 0
        assert sent.startswith('{\n  "id": ')


HOSTILE = "red\x1b[31m \x1b]52;c;aGk=\x07 nul\x00 c1\x9b2J bidi\u202e del\x7f end"
DRAWING = {chr(code) for code in (*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F)) if chr(code) not in "\t\n"}


@pytest.mark.parametrize("form", ["text", "documents", "sse", "ndjson", "openai", "openai-sse"])
def test_on_a_terminal_nothing_that_was_said_can_draw(form: str) -> None:
    recording = init() + delta(HOSTILE) + result(HOSTILE)
    status, sent, _ = on_a_terminal("convert", "--to", form, stdin=recording)
    assert status == 0
    assert "end" in sent
    assert not DRAWING & set(sent)


def test_text_is_exact_in_a_pipe_and_where_that_is_asked_for(convert: Convert) -> None:
    recording = init() + delta(HOSTILE) + result(HOSTILE)
    assert convert(recording, "--to", "text").decode().rstrip("\n") == HOSTILE
    assert HOSTILE in on_a_terminal("convert", "--to", "text", "--raw", stdin=recording)[1]


def test_json_has_the_same_value_and_nothing_that_is_hidden(convert: Convert) -> None:
    recording = init() + delta(HOSTILE) + result(HOSTILE)
    for form in ("documents", "openai", "ndjson", "sse", "openai-sse"):
        assert not DRAWING & set(convert(recording, "--to", form).decode())
    assert convert.response(recording).documents[0].content == HOSTILE


def test_an_error_cannot_draw_on_the_terminal(convert: Convert) -> None:
    failed = init() + result(f"I give up: {HOSTILE}", subtype="error", is_error=True)
    ended = finished("convert", stdin=failed)
    assert ended.returncode == 1
    assert b"I give up" in ended.stderr
    assert not DRAWING & set(ended.stderr.decode())


def test_on_a_terminal_it_says_what_it_waits_for() -> None:
    status, sent, reply = on_a_terminal("convert", stdin=None)
    assert status == 2
    assert "cursor-agent -p --output-format stream-json" in reply.split("\n")[0]
    assert sent.strip("\x04\b^D") == ""


# --- how it ended -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_run_that_failed_exits_with_1_after_what_arrived(convert: Convert, form: str) -> None:
    out = convert(init() + delta("So far so "), "--to", form)
    assert convert.status == 1
    assert b"So far so" in out
    assert convert.error.count("\n") == 1
    assert convert.error.startswith("cursor-gateway: the run failed: The agent's output ended")


def test_a_result_that_is_an_error_exits_with_1(convert: Convert) -> None:
    convert(init() + delta("x") + result("[unavailable] gone", subtype="error", is_error=True))
    assert convert.status == 1
    assert "lost its connection" in convert.error


def test_a_tool_that_failed_is_no_failed_run(convert: Convert) -> None:
    convert(init() + tool("grep", {"pattern": "x"}, {"error": {"error": "no"}}) + delta("ok") + result("ok"))
    assert convert.status == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_agents_last_words_alone_are_a_failed_run(convert: Convert, form: str) -> None:
    out = convert(NOT_LOGGED_IN, "--to", form)
    assert convert.status == 1
    assert "cursor-agent login" in convert.error
    assert (out == b"") == (form == "text")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("data", [b"", b"\n\n", b"just some notes\n", b'{"a": 1}\n[]\n', b"\xff\xfe\x00", b"{"])
def test_input_without_a_run_exits_with_2_and_prints_nothing(convert: Convert, form: str, data: bytes) -> None:
    assert convert(data, "--to", form) == b""
    assert convert.status == 2
    assert convert.error.count("\n") == 1
    assert "contains no cursor-agent output" in convert.error
    assert "--output-format stream-json" in convert.error


def test_a_file_that_cannot_be_read_exits_with_2(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("missing.ndjson", "folder", "a\x1b[31m\nb"):
        assert run(["convert", str(tmp_path / name)]) == 2
        out, error = capfdbinary.readouterr()
        assert out == b""
        assert error.count(b"\n") == 1
        assert b"cannot be read: " in error
        assert b"\x1b" not in error


def test_standard_input_that_is_closed_exits_with_2() -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *arguments_of("convert")]
    ended = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"standard input cannot be read: " in ended.stderr
    assert ended.stderr.count(b"\n") == 1


def test_a_read_that_fails_in_the_middle_ends_the_run_in_an_error(
    convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if piece := super().read(size):
                return piece
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(answers, "open", lambda *_, **__: Failing(init() + delta("so far") + b"\n"), raising=False)
    assert convert(b"", "--to", "text") == b"so far"
    assert convert.status == 1
    assert "cannot be read: Input/output error" in convert.error


def test_strange_lines_around_a_run_do_not_matter(convert: Convert) -> None:
    assert convert(b"npm warn\n" + HELLO + b"{}\n", "--to", "text") == b"Hello world!"
    assert convert.status == 0


# --- as it arrives ----------------------------------------------------------------------------------


def test_standard_input_is_the_default_and_a_dash_names_it() -> None:
    for arguments in (["--to", "text"], ["-", "--to", "text"]):
        ended = finished("convert", *arguments, stdin=HELLO)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"Hello world!", b"")


@pytest.mark.parametrize(
    ("form", "piece"),
    [
        ("text", b"%s"),
        ("sse", b'"delta":"%s"}\n\n'),
        ("ndjson", b'"delta":"%s"}}\n'),
        ("openai-sse", b'{"content":"%s"},"finish_reason":null}]}\n\n'),
    ],
)
def test_each_line_is_answered_before_the_next_is_written(form: str, piece: bytes) -> None:
    with started("convert", "--to", form) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(init() + user())
        for word in (b"one", b"two", b"three"):
            process.stdin.write(delta(word.decode()))
            process.stdin.flush()
            read_until(process.stdout.fileno(), piece % word)
        process.stdin.write(result("onetwothree"))
        process.stdin.close()
        assert process.wait(TIMEOUT) == 0


@pytest.mark.parametrize("arguments", [["convert", "--to", "sse"], ["show"]])
def test_a_reader_that_leaves_ends_the_command_quietly(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "long.ndjson"
    file.write_bytes(init() + b"".join(delta(f"word {number}\n") for number in range(20_000)))
    with start([*arguments, str(file)], os.environ, tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(TIMEOUT) == -signal.SIGPIPE  # 141, says the shell
        assert process.stderr.read() == b""


def test_a_stream_that_ctrl_c_ends_says_that_it_was_cancelled() -> None:
    with started("convert", "--to", "sse") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(init() + delta("so far"))
        process.stdin.flush()
        read_until(process.stdout.fileno(), b"so far")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(TIMEOUT) == 130
    assert b"CANCELLED" in rest
    assert rest.rstrip().splitlines()[-2] == b"event: done"


@pytest.mark.parametrize("command", ["convert", "show"])
def test_an_output_that_cannot_be_written_is_one_clear_line(command: str, tmp_path: Path) -> None:
    recording = tmp_path / "run.ndjson"
    recording.write_bytes(init() + delta("so far"))
    for redirection in (">&-", "> /dev/full"):
        ended = subprocess.run(
            ["sh", "-c", f'"$0" -m cursor_gateway {command} "$1" {redirection}', sys.executable, recording],
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert ended.returncode == 2
        (line,) = ended.stderr.splitlines()
        assert b"cannot write the output" in line


# --- what it costs ----------------------------------------------------------------------------------


def test_converting_needs_no_rich() -> None:
    program = (
        "import sys; from cursor_gateway.cli.main import run; run(['convert', '--to', 'text']); "
        "sys.exit(bool({'rich', 'pygments', 'markdown_it'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], input=HELLO, timeout=TIMEOUT, check=False)
    assert ended.returncode == 0


@pytest.mark.quick_cases(2)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak there")
@pytest.mark.parametrize("form", FORMS)
def test_a_long_stream_needs_little_memory(form: str, tmp_path: Path) -> None:
    blob = "".join(f"{number:5d}  def function_{number}(self) -> str: …\n" for number in range(2500))
    with (tmp_path / "long.ndjson").open("wb") as file:
        file.write(init() + user())
        for _ in range(30):
            file.write(thought("hm ") + b"".join(delta(f"word {number} ") for number in range(800)))
            file.write(tool("read", {"path": "a.py"}, {"success": {"content": blob}}))
        file.write(line({"type": "result", "subtype": "success", "is_error": False, "duration_ms": 1}))
    program = (
        "import sys; from cursor_gateway.cli.main import run; "
        f"status = run(['convert', {str(tmp_path / 'long.ndjson')!r}, '--to', {form!r}]); "
        "print(open('/proc/self/status').read(), file=sys.stderr); sys.exit(status)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=TIMEOUT, check=True
    )
    peak = re.search(rb"VmHWM:\s*(\d+) kB", ended.stderr)  # ru_maxrss would be that of this test's own process
    assert peak
    assert int(peak[1]) < 60 * 1024
