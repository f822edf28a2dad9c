"""The compiled agent writes what a prompt says: to the byte, with a write for each line, and in its own time."""

import asyncio
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.compiling import compile_program
from benchmarks.failing import BenchmarkFailed
from benchmarks.sessions import session
from cursor_gateway import RunInfo, read_response
from cursor_gateway.sources.cursor.models import parse_models
from cursor_gateway.sources.cursor.program import ask_program

pytestmark = pytest.mark.slow  # tests of a tool

RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z")
TOLD = session(300, tools=2, smallest_result=500, largest_result=900)


@pytest.fixture
def agent(programs: Path) -> Path:
    (programs / "small.ndjson").write_bytes(TOLD.data)
    return programs / "cursor-agent"


def _output(agent: Path, *words: str) -> bytes:
    return subprocess.run([agent, *words], stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("prompt", ["replay small", "replay small blocks"])
def test_a_session_is_replayed_to_the_byte(agent: Path, prompt: str) -> None:
    assert _output(agent, "-p", "--model", "auto", prompt) == TOLD.data


@pytest.mark.parametrize(("prompt", "writes"), [("replay small", 300), ("replay small blocks", 1)])
def test_each_line_is_a_write_of_its_own(agent: Path, prompt: str, writes: int) -> None:
    ours, theirs = os.pipe2(os.O_DIRECT)  # a pipe that keeps writes of up to a page apart
    with open(ours, "rb", buffering=0) as reader, subprocess.Popen([agent, prompt], stdout=theirs) as process:
        os.close(theirs)
        packets = list(iter(lambda: reader.read(1 << 20), b""))
    assert process.returncode == 0
    assert b"".join(packets) == TOLD.data
    if writes > 1:
        assert packets == [line + b"\n" for line in TOLD.lines]
    else:
        assert len(packets) == -(-len(TOLD.data) // os.sysconf("SC_PAGE_SIZE"))


def test_paced_events_tell_when_they_were_written(agent: Path) -> None:
    before = time.monotonic_ns()
    response = read_response([_output(agent, "paced 20 1000")], RUN)
    stamps = [int(stamp) for stamp in re.findall("@([0-9]+)@", response.documents[0].content or "")]
    assert len(stamps) == 20
    assert stamps == sorted(stamps)
    assert before < stamps[0]
    assert stamps[-1] - before >= 19 * 1_000_000  # never earlier than they are due
    assert response.status == "completed"


def test_a_silent_agent_says_one_thing_and_ends_when_it_is_told_to(agent: Path) -> None:
    with subprocess.Popen([agent, "silent"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b'"init"' in process.stdout.readline()
        assert b"Wait." in process.stdout.readline()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def test_the_gateway_takes_it_for_cursors_agent(agent: Path) -> None:

    program = asyncio.run(ask_program(str(agent), dict(os.environ)))
    assert program is not None
    assert program.version.startswith("2026.")
    assert {"--stream-partial-output", "--workspace", "--trust"} <= program.flags
    assert [model.id for model in parse_models(_output(agent, "--list-models").decode())] == ["auto", "opus-4.6"]
    assert b"Logged in" in _output(agent, "status")


@pytest.mark.parametrize("prompt", ["Hello", "replay nothing", "paced 0 100"])
def test_a_prompt_that_it_does_not_know_fails(agent: Path, prompt: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        _output(agent, prompt)


def test_without_a_compiler_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BenchmarkFailed, match="install gcc or clang"):
        compile_program("agent.c", tmp_path / "agent")
