"""Recording: a file that replays as the run was, without prompts where they are not wanted, and never in the way."""

import asyncio
import errno
import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given

from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.sources.cursor.failures import failure_of
from cursor_gateway.sources.recorder import PROMPT_REMOVED, Recorder, RunRecording, without_prompt
from cursor_gateway.sources.replay import ReplaySource, load, recorded_prompt, split_stderr
from tests.laws.laws import assemble, joined, response_of
from tests.scenarios.golden import Scenario, scenarios
from tests.strategies import cut, places

NOW = datetime(2026, 10, 4, 9, 5, 7, tzinfo=UTC)
PROMPT = "Tell nobody: the cake is for Saturday.\nReally \U0001f600"
INIT = b'{"type":"system","subtype":"init","session_id":"s","model":"Auto"}\n'
USER = b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":%b}]},"session_id":"s"}\n' % (
    json.dumps(PROMPT, ensure_ascii=False).encode()
)
REMOVED = USER.replace(json.dumps(PROMPT, ensure_ascii=False).encode(), b'"[prompt removed]"')
SAID = '{"type":"assistant","message":{"content":[{"text":"é \\"user\\" {\\"role\\": \\"user\\"}"}]}}\n'.encode()
NESTED = b'{"type":"tool_call","tool_call":{"role":"user", "text":"kept as it is"}}\n'
RESULT = b'{"type":"result","subtype":"success","result":"x"}\n'


def begin(folder: Path, warnings: list[str] | None = None, *, prompts: bool = True) -> RunRecording:
    return Recorder(
        folder, prompts=prompts, warn=(warnings if warnings is not None else []).append, now=lambda: NOW
    ).begin("chat_1")


def written(folder: Path) -> bytes:
    (file,) = folder.iterdir()
    return file.read_bytes()


def live(data: bytes, stderr: bytes) -> list[DocumentEvent]:
    """The run as its readers saw it, with stderr on a pipe of its own."""
    decoder = CursorDecoder()
    events = decoder.push(data.split(b"\n"))
    words = "\n".join(text for text in (stderr.decode().strip(), decoder.stray_text) if text)
    return assemble(events + decoder.flush(failure_of(words).failure()))


def replay(folder: Path, prompt: str) -> list[DocumentEvent]:
    """Without what says that it is a replay."""

    async def events() -> list[DocumentEvent]:
        source = ReplaySource(load(folder), 0, is_demo=True)  # which answers whatever the prompt is
        turn = Turn(run_id="chat_2", prompt=prompt, model="replay", workspace="/w", folder="/f")
        _, *said = [batch async for batch in source.events(turn)]
        return assemble([event for batch in said for event in batch])

    return asyncio.run(events())


def test_the_file_is_the_output_byte_for_byte_and_only_the_owners(tmp_path: Path) -> None:
    recording = begin(tmp_path)
    recording.write(INIT + USER[:20])
    (part,) = tmp_path.iterdir()
    assert part.name == "20261004T090507Z-chat_1.ndjson.part"
    assert part.read_bytes() == INIT + USER[:20]
    recording.write(USER[20:])
    recording.write(b'{"no end of line"')
    recording.end()
    (file,) = tmp_path.iterdir()
    assert file.name == "20261004T090507Z-chat_1.ndjson"
    assert file.read_bytes() == INIT + USER + b'{"no end of line"'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_folder_is_made_and_a_runs_id_cannot_leave_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "new" / "folder", prompts=True)
    recorder.begin("../../x y").end()
    (file,) = (tmp_path / "new" / "folder").iterdir()
    assert file.name.endswith("Z-.._.._x_y.ndjson")
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("found", scenarios(), ids=lambda found: found.name)
def test_a_recorded_run_is_replayed_with_the_same_events(found: Scenario, tmp_path: Path) -> None:
    data, words = split_stderr(b"".join(found.lines))
    begin_and_end(tmp_path, [data], words.encode())
    assert joined(replay(tmp_path, recorded_prompt(data))) == joined(live(data, words.encode()))


@pytest.mark.parametrize(
    "stderr",
    [
        b"Error: You've hit your usage limit\nspendLimitHit: false\n",
        b"\x1b[33mWarning: The provided API key is invalid.\x1b[0m",
        b"T: [internal] Failed to run step, exceeded max retries\n\n at x\n",
        b"Segmentation fault\n",
        b"",
    ],
)
@pytest.mark.parametrize("data", [b"", INIT + USER, INIT + USER + SAID + SAID[:30]], ids=["nothing", "lines", "a cut"])
def test_a_failed_run_fails_the_same_way_when_it_is_replayed(data: bytes, stderr: bytes, tmp_path: Path) -> None:
    begin_and_end(tmp_path, [data], stderr)
    assert joined(replay(tmp_path, PROMPT)) == joined(live(data, stderr))


def test_what_looks_like_an_event_on_stderr_is_none(tmp_path: Path) -> None:
    begin_and_end(tmp_path, [INIT + USER], SAID + b"PING timed out")
    response = response_of(replay(tmp_path, PROMPT))
    assert [document.content for document in response.documents][:-1] == []
    assert written(tmp_path) == INIT + USER + b" " + SAID + b"PING timed out\n"


# --- prompts --------------------------------------------------------------------------------------------


@given(places)
def test_without_prompts_only_the_prompt_is_missing_however_it_arrives(
    tmp_path_factory: pytest.TempPathFactory, at: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("recordings")
    begin_and_end(folder, cut(INIT + USER + SAID + NESTED + RESULT, at), b"", prompts=False)
    assert written(folder) == INIT + REMOVED + SAID + NESTED + RESULT


def test_without_prompts_a_replay_is_the_same(tmp_path: Path) -> None:
    data = INIT + USER + SAID + RESULT
    begin_and_end(tmp_path, [data], b"", prompts=False)
    assert joined(replay(tmp_path, PROMPT)) == joined(live(data, b""))


def test_without_prompts_a_last_line_that_is_cut_off_is_kept_as_it_is(tmp_path: Path) -> None:
    begin_and_end(tmp_path, [INIT + SAID[:40]], b"Error\n", prompts=False)
    assert written(tmp_path) == INIT + SAID[:40] + b"\nError\n"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b'{"type":"user","message":"secret"}', b'{"type":"user","message":"[prompt removed]"}'),
        (
            b'{"session_id":"s","type":"user","message":{"role":"user","content":"secret"},"echo":["secret",7,null]}',
            b'{"session_id":"s","type":"user","message":{"role":"user","content":"[prompt removed]"},'
            b'"echo":["[prompt removed]",7,null]}',
        ),
        (b'{"type":"user","role":{"secret":"secret"}}', b'{"type":"user","role":{"secret":"[prompt removed]"}}'),
        (b'{"type":"user","message":"\\ud83d"}', b'{"type":"user","message":"[prompt removed]"}'),
        (b'["user","secret"]', b'["user","secret"]'),
        (b'a line that says "user"', b'a line that says "user"'),
    ],
)
def test_whatever_its_shape_the_record_of_the_prompt_keeps_no_text(line: bytes, kept: bytes) -> None:
    assert without_prompt(line) == kept


@pytest.mark.parametrize(
    "line", [USER[:60], b' { "type": "user", "message": "secret', b'{"type":"user","message":%b"x"' % (b"[" * 100_000)]
)
def test_half_a_record_of_the_prompt_keeps_nothing(line: bytes) -> None:
    record = json.loads(without_prompt(line))
    assert record["type"] == "user"
    assert record["message"]["content"][0]["text"] == PROMPT_REMOVED


def test_a_record_nested_absurdly_keeps_nothing() -> None:
    line = b'{"type":"user","message":%b"secret"%b}' % (b"[" * 700, b"]" * 700)
    assert b"secret" not in without_prompt(line)


# --- what goes wrong ------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_used_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    recording = begin(tmp_path / "file", warnings)
    recording.write(INIT)
    recording.end(b"Error\n")
    assert len(warnings) == 1
    assert "File exists" in warnings[0] or "Not a directory" in warnings[0]


def test_a_folder_that_goes_away_stops_the_recording_and_not_the_run(tmp_path: Path) -> None:
    warnings: list[str] = []
    folder = tmp_path / "folder"
    recording = begin(folder, warnings)
    recording.write(INIT)
    (part,) = folder.iterdir()
    part.unlink()
    folder.rmdir()
    recording.write(USER)
    recording.end(b"Error\n")
    assert len(warnings) == 1
    assert "No such file or directory" in warnings[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full is Linux's")
def test_a_full_disk_stops_the_recording_and_takes_it_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, mode: real("/dev/full", os.O_WRONLY))
    recording = begin(tmp_path, warnings)
    (tmp_path / "20261004T090507Z-chat_1.ndjson.part").touch()
    recording.write(INIT)
    recording.write(USER)
    recording.end(b"Error\n")
    assert len(warnings) == 1
    assert os.strerror(errno.ENOSPC) in warnings[0]
    assert list(tmp_path.iterdir()) == []


def test_the_end_may_be_said_twice(tmp_path: Path) -> None:
    warnings: list[str] = []
    recording = begin(tmp_path, warnings)
    recording.end(b" \n")
    recording.end(b"Error\n")
    recording.write(INIT)
    assert written(tmp_path) == b""
    assert warnings == []


def begin_and_end(folder: Path, chunks: list[bytes], stderr: bytes, *, prompts: bool = True) -> None:
    recording = begin(folder, prompts=prompts)
    for chunk in chunks:
        recording.write(chunk)
    recording.end(stderr)
