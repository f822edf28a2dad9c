"""`cursor-gateway show` and `demo`, in a terminal and without one."""

from io import StringIO
from pathlib import Path

import pytest

from cursor_gateway.cli.main import run
from cursor_gateway.render.terminal import make_console
from tests.cli.processes import TIMEOUT, finished, on_a_terminal, read_until, started
from tests.cli.recordings import EVERYTHING, HELLO, delta, init
from tests.render.screen import screen

CAPTURES = Path(__file__).parents[2].parent / "shared" / "captures"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "recording.ndjson"
    file.write_bytes(EVERYTHING)
    return file


def test_without_a_terminal_it_is_plain_text(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(recording)]) == 0
    out, error = capsys.readouterr()
    assert "\x1b" not in out
    assert "  41 │ def check(token: str) -> bool:" in out
    assert "I should look at the file first" not in out
    assert out.endswith("✓ completed in 4.2 s · 1,100 tokens in (1,000 cached), 20 out · Opus 4.6\n")
    assert error == ""


def test_thinking_is_shown_when_asked_for(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["show", str(recording), "--include", "thinking"])
    assert "┊ I should look at the file first." in capsys.readouterr().out


def test_mode_and_fences_are_heeded(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(recording), "--mode", "ask", "--fences", "inline"]) == 0
    assert "```python\nreturn hmac" in capsys.readouterr().out


def test_on_a_terminal_it_is_live_and_leaves_a_clean_screen() -> None:
    status, sent, error = on_a_terminal("show", stdin=EVERYTHING, LINES="24", COLUMNS="80")
    assert (status, error) == (0, "")
    assert "\x1b[?25l" in sent
    assert sent.count("\x1b[?25h") == 1  # the cursor is back
    shown = "\n".join(screen(sent, height=24))
    assert shown.startswith("What I found\n\nThe token is checked in auth.py:\n\n • one\n • two\n")
    assert shown.rstrip().endswith("✓ completed in 4.2 s · 1,100 tokens in (1,000 cached), 20 out · Opus 4.6")


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colours_gets_plain_text(environment: dict[str, str]) -> None:
    status, sent, _ = on_a_terminal("show", stdin=EVERYTHING, **environment)
    assert status == 0
    assert "\x1b" not in sent
    assert "$ pytest -q\n  3 passed\n  ✓ exit 0 · 1.8 s\n" in sent


def test_lines_are_shown_as_they_arrive() -> None:
    with started("show") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(init())
        for word in ("one", "two"):
            process.stdin.write(delta(f"{word}\n"))
            process.stdin.write(delta("and "))
            process.stdin.flush()
            read_until(process.stdout.fileno(), word.encode())
        process.stdin.close()
        assert process.wait(TIMEOUT) == 1


def test_exit_statuses_are_those_of_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "recording.ndjson"
    for data, status in ((HELLO, 0), (init() + delta("half"), 1), (b"Not logged in\n", 1), (b"notes\n", 2)):
        file.write_bytes(data)
        assert run(["show", str(file)]) == status
        out, error = capsys.readouterr()
        assert bool(out) == (status != 2)
        assert error.count("\n") == (1 if status == 2 else 0)
    assert run(["show", str(tmp_path / "missing")]) == 2


def test_unusable_input_leaves_nothing_on_a_terminal() -> None:
    status, sent, error = on_a_terminal("show", stdin=b"notes\n")
    assert status == 2
    assert "".join(screen(sent, height=24)) == ""
    assert error.count("\n") == 1


def test_an_encoding_without_our_marks_is_no_error() -> None:
    ended = finished("show", stdin=EVERYTHING, PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert b"? completed in 4.2 s" in ended.stdout


def _is_of_another_kind(name: str) -> bool:
    return "-acp-" in name or name.endswith("-payloads")


def _is_result(line: bytes) -> bool:
    return b'"type":"result"' in line.replace(b" ", b"")


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures are not part of the project")
def test_every_capture_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """0 with a result, 1 without; 2 where the lines are of another protocol, or no more than payloads."""
    for capture in sorted(CAPTURES.glob("*.jsonl")):
        lines = capture.read_bytes().splitlines()
        status = 2 if _is_of_another_kind(capture.stem) else 0 if any(map(_is_result, lines)) else 1
        assert run(["show", str(capture), "--include", "thinking"]) == status, capture.name
        out, error = capsys.readouterr()
        assert "\x1b" not in out
        assert (bool(out), bool(error)) == (status != 2, status == 2), capture.name


# --- demo -------------------------------------------------------------------------------------------


def test_the_demo_says_what_it_is_and_what_to_try_next(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cursor_gateway.cli.commands.answers.time.sleep", lambda _: pytest.fail("a pause, but nobody watches")
    )
    assert run(["demo"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Demo: a built-in recording")
    assert "cursor-gateway convert run.ndjson --to sse" in out
    assert "\x1b" not in out
    for part in ("◆ Plan", "To-dos", "$ ", "✎ create", "✎ edit", "? ", "│ ", "✗ ", "✓ completed"):
        assert part in out


def test_the_demo_is_lively_on_a_terminal_and_short(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("cursor_gateway.cli.commands.answers.time.sleep", pauses.append)
    monkeypatch.setattr("cursor_gateway.cli.commands.answers.terminal", lambda: make_console(StringIO(), plain=False))
    assert run(["demo", "--fast"]) == 0
    assert pauses == []
    assert run(["demo"]) == 0
    assert len(pauses) > 10
    assert sum(pauses) < 10


def test_the_demo_in_a_terminal() -> None:
    status, sent, _ = on_a_terminal("demo", "--fast", LINES="24", COLUMNS="80")
    shown = "\n".join(screen(sent, height=24))
    assert status == 0
    assert shown.startswith("Demo: a built-in recording")
    assert shown.rstrip().endswith("the types")
