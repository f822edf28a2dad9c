"""`cursor-gateway export`: a recording or an answer of the history as one file."""

import json
import subprocess
from pathlib import Path

import pytest

from cursor_gateway.demo import recordings
from tests.cli.processes import TIMEOUT
from tests.gateways import running_gateway
from tests.preloaded import run
from tests.server.conftest import chat, http_client


def export(home: Path, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "CURSOR_GATEWAY_DATA_DIR": str(home / "data")}
    return run(["export", *arguments], environment, home, input=stdin, timeout=TIMEOUT)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "run.ndjson"
    file.write_bytes(recordings()["jwt_authentication"])
    return file


def test_a_recording_becomes_one_page(tmp_path: Path, recording: Path) -> None:
    done = export(tmp_path, str(recording), "-o", "run.html")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    page = (tmp_path / "run.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "Content-Security-Policy" in page
    assert "<script" not in page
    for kind in ("text", "file_edit", "terminal_command", "plan", "tool_call"):
        assert f'class="document {kind}' in page, kind
    piped = export(tmp_path, "-", "--to", "json", stdin=recording.read_bytes())
    assert json.loads(piped.stdout)["status"] == "completed"


def test_what_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "noise").write_text("hello\n")
    for target in ("noise", "chat_none", "conv_none", "last"):
        done = export(tmp_path, target)
        assert done.returncode == 2, target
        assert done.stdout == b""
        assert done.stderr
    missing = export(tmp_path, "noise", "-o", str(tmp_path / "no" / "file.html"))
    assert missing.returncode == 2


def test_an_answer_of_the_history(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, http_client(gateway) as client:
        result = chat(client, "standin: say size=100\n---\nOnce upon a time.")
        over_http = export(tmp_path, result["id"], "--url", gateway.url)
    for name in (result["id"], result["conversationId"], "last"):
        direct = export(tmp_path, name, "--direct")
        assert direct.returncode == 0, direct.stderr
        assert b"Once upon a time." in direct.stdout
        assert b"standin: say" in direct.stdout  # what was asked
        assert direct.stdout == over_http.stdout
