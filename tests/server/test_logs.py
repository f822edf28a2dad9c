"""Log lines: one a fact, in either form; whatever a value holds, it forges none; a run's own words never appear."""

import asyncio
import json
import logging
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import pytest

from cursor_gateway.errors import AgentOverloaded, RunCancelled
from cursor_gateway.model.agent_events import RunFinished, RunStarted, TextDelta, TokenCounts
from cursor_gateway.runs.run import Observer
from cursor_gateway.server import logs
from cursor_gateway.server.logs import RunLog, StructuredLog, carry_trace_ids, configure, lost_lines, outcome
from cursor_gateway.settings import LogFormat, LogLevel
from cursor_gateway.sources.base import AgentUse
from tests.server.conftest import eventually
from tests.server.observed import PROMPT, new_run, observed

FINISHED = RunFinished(usage=TokenCounts(prompt=100, completion=20, cached=70), duration_ms=5)
NASTY = "x\n2026-01-01T00:00:00Z [info     ] forged\r\x1b[2J\x1b]0;title\x07\x85\u2028\u202e\x00\ud800"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def logging_to(stream: TextIO, format: LogFormat = "json", level: LogLevel = "info") -> StructuredLog:
    configure(format, level, stream)
    return StructuredLog()


def objects(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(stream).splitlines()]


def text_of(stream: StringIO) -> str:
    written()
    return stream.getvalue()


def written() -> None:
    for handler in logging.root.handlers:
        handler.flush()


# --- forms ------------------------------------------------------------------------------------------


def test_json_is_one_object_a_line_with_the_time_in_utc() -> None:
    logging_to(stream := StringIO()).info("said", number=1, flag=True, nothing=None, other={"a": [1]})
    (line,) = objects(stream)
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert line["timestamp"].endswith("Z")
    del line["timestamp"]
    assert line == {"level": "info", "event": "said", "number": 1, "flag": True, "nothing": None, "other": "{'a': [1]}"}


def test_auto_is_human_on_a_terminal_and_json_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    logging_to(stream := StringIO(), "auto").info("said")
    assert objects(stream)
    logging_to(terminal := Terminal(), "auto").info("said", a=1)
    assert "\x1b[" in text_of(terminal)
    assert "{" not in text_of(terminal)


def test_lines_on_a_terminal_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    log = logging_to(terminal := Terminal(), "auto")
    log.info("run started", run_id="chat_0123456789abcdef", request_id="req_1", owner="local", model="auto")
    log.warning("disk full", reason="no space")
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        log.error("failed", error)
    started, full, failed, *trace = text_of(terminal).splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d run started run_id=chat_01234567 model=auto", started)
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning disk full reason='no space'", full)
    assert re.fullmatch(r"\d\d:\d\d:\d\d error failed", failed)
    assert all(line.startswith("    ") for line in trace)
    assert "\x1b" not in text_of(terminal)


def test_lines_have_the_ids_of_traces_which_a_terminal_does_not_show() -> None:
    carry_trace_ids(lambda run_id: {"trace_id": "abc", "span_id": f"of {run_id}"})
    logging_to(stream := StringIO(), "auto").info("said", run_id="chat_1")
    (line,) = objects(stream)
    assert (line["trace_id"], line["span_id"]) == ("abc", "of chat_1")
    logging_to(terminal := Terminal(), "auto").info("said", run_id="chat_1")
    assert "chat_1" in text_of(terminal)
    assert "abc" not in text_of(terminal)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_gets_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    logging_to(terminal := Terminal(), "auto").info("said", a=1)
    assert "\x1b" not in text_of(terminal)
    assert text_of(terminal).rstrip().endswith("a=1")


def test_human_lines_in_a_file_have_no_colours() -> None:
    logging_to(stream := StringIO(), "human").warning("said", a="b c")
    assert "\x1b" not in text_of(stream)
    assert "[warning  ] said" in text_of(stream)
    assert "a='b c'" in text_of(stream)


def test_less_important_lines_are_left_out() -> None:
    log = logging_to(stream := StringIO(), level="warning")
    log.info("no")
    logging.getLogger("library").info("no")
    log.warning("yes")
    logging.getLogger("library").error("yes")
    assert [line["level"] for line in objects(stream)] == ["warning", "error"]


def test_what_a_log_is_made_with_is_in_all_of_its_lines() -> None:
    logging_to(stream := StringIO())
    log = StructuredLog(run_id="chat_1")
    log.info("said", a=1)
    log.warning("said")
    StructuredLog().info("said")
    assert [line.get("run_id") for line in objects(stream)] == ["chat_1", "chat_1", None]


def test_words_are_taken_as_they_are() -> None:
    logging_to(stream := StringIO()).info("100 % of %s")
    assert objects(stream)[0]["event"] == "100 % of %s"


# --- what cannot be forged --------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["human", "json"])
def test_no_value_makes_a_line_of_its_own(format: LogFormat) -> None:
    log = logging_to(stream := StringIO(), format)
    log.info(NASTY, value=NASTY, other=[NASTY], **{NASTY: 1})
    logging.getLogger("library").warning("%s", NASTY)
    logging.getLogger(NASTY).warning("said")
    text = text_of(stream)
    assert len(text.splitlines()) == 3
    assert not [character for character in text if ord(character) < 32 and character != "\n"]
    assert not set(text) & set("\x7f\x85\x9b\u2028\u202e\ud800")


def test_a_traceback_has_lines_but_all_are_indented() -> None:
    log = logging_to(stream := StringIO(), "human")
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        log.error("failed", error)
    first, *rest = text_of(stream).splitlines()
    assert "failed" in first
    assert len(rest) > 3
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in text_of(stream)


def test_a_traceback_in_json_is_a_value() -> None:
    log = logging_to(stream := StringIO())
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        log.error("failed", error)
    (line,) = objects(stream)
    assert "test_logs.py" in line["exception"]
    assert "ValueError: x\n2026" in line["exception"]


def test_long_values_and_messages_are_cut() -> None:
    log = logging_to(stream := StringIO())
    log.error("e" * 10_000, ValueError("m" * 10_000), value="v" * 10_000)
    assert len(text_of(stream)) < 1500


def test_a_traceback_tells_what_led_to_it() -> None:
    log = logging_to(stream := StringIO())

    def fail(*, hide: bool) -> None:
        try:
            raise KeyError("missing")
        except KeyError as error:
            if hide:
                raise ValueError("hidden") from None
            raise ValueError("shown") from error

    for hide in (False, True):
        try:
            fail(hide=hide)
        except ValueError as error:
            log.error("failed", error)
    shown, hidden = (line["exception"] for line in objects(stream))
    assert shown.index("KeyError: 'missing'\nwhich led to:") < shown.index("ValueError: shown")
    assert "KeyError" not in hidden


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    class Full(StringIO):
        def write(self, text: str, /) -> int:
            raise OSError(28, "No space left on device")

    logging_to(Full()).info("said")
    log = logging_to(closed := StringIO())
    closed.close()
    log.info("said")


# --- libraries --------------------------------------------------------------------------------------


def test_of_what_a_library_logs_only_the_fact_is_logged() -> None:
    """Its message may hold a prompt, or what a tool gave."""
    logging_to(stream := StringIO(), level="debug")
    chatty = logging.getLogger("some.library")
    chatty.setLevel(logging.DEBUG)  # as a library may do by itself
    for level in (logging.DEBUG, logging.INFO, 25):
        chatty.log(level, "secret %s", "secret")
    chatty.warning("secret %s", "secret")
    logging.getLogger("odd").log(99, "secret")
    logging.getLogger("odd").warning("%d", "secret", exc_info=(None, None, None))
    logging.getLogger("asyncio").error("A task failed\nfuture: <Task exception=ValueError('secret')>")
    lines = objects(stream)
    assert [(line["level"], line["event"], line["logger"]) for line in lines] == [
        ("warning", "message of a library", "some.library"),
        ("critical", "message of a library", "odd"),
        ("warning", "message of a library", "odd"),
        ("error", "A task failed", "asyncio"),
    ]
    assert "secret" not in text_of(stream)
    assert not [line for line in lines if "exception" in line or "exc_info" in line]


def test_our_own_modules_may_log_without_facts() -> None:
    logging_to(stream := StringIO())
    logging.getLogger("cursor_gateway.store").info("%d rows", 3)
    logging.getLogger("cursor_gateways").warning("secret")
    ours, other = objects(stream)
    assert (ours["event"], ours["logger"]) == ("3 rows", "cursor_gateway.store")
    assert other["event"] == "message of a library"


def test_a_librarys_traceback_is_kept_without_its_message() -> None:
    logging_to(stream := StringIO())
    try:
        asyncio.run(_fails())
    except RuntimeError:
        logging.getLogger("asyncio").exception("a task failed")
    exception = objects(stream)[0]["exception"]
    assert exception.endswith("\nRuntimeError")
    assert "in _fails" in exception


async def _fails() -> None:
    raise RuntimeError("why")


# --- runs -------------------------------------------------------------------------------------------


def test_a_run_whose_agent_was_ready_is_logged_as_warm() -> None:
    logging_to(stream := StringIO())
    observed(RunStarted("s", "m", is_warm=True), TextDelta("x"), FINISHED, observer=RunLog())
    assert [line["start"] for line in objects(stream) if line["event"] == "first event"] == ["warm"]


def test_a_run_is_logged_from_start_to_end_under_its_id() -> None:
    logging_to(stream := StringIO())
    log: Observer = RunLog()
    run = observed(RunStarted("s", "m"), TextDelta("the secret answer"), FINISHED, observer=log, model="opus")
    started, first, ended = objects(stream)
    assert {line["run_id"] for line in (started, first, ended)} == {run.id}
    facts = {"owner": "laptop", "request_id": "req_1", "model": "opus", "mode": "agent", "workspace": "/w"}
    assert started.items() >= {"event": "run started", "level": "info", **facts}.items()
    assert (first["event"], first["start"]) == ("first event", "cold")
    assert 0 <= first["seconds"] <= ended["seconds"]
    tokens = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 70}
    assert ended.items() >= {"event": "run ended", "status": "completed", "documents": 1, **tokens}.items()
    assert "code" not in ended
    assert "cpu_seconds" not in ended
    assert outcome(run) == "completed"


def test_a_run_whose_use_is_known_says_it() -> None:
    logging_to(stream := StringIO())
    observed(FINISHED, observer=RunLog(), uses=[AgentUse(1.23456, 2**20)])
    assert objects(stream)[-1].items() >= {"cpu_seconds": 1.235, "memory_bytes": 2**20}.items()
    observed(FINISHED, observer=RunLog(), uses=[AgentUse(1.0)])
    assert "memory_bytes" not in objects(stream)[-1]


def test_a_run_that_failed_is_a_warning_with_its_code() -> None:
    logging_to(stream := StringIO())
    why = AgentOverloaded("try again", details=f"one\x1b[2J\n{'two ' * 450}")
    observed(TextDelta("a"), observer=RunLog(), error=why)
    ended = objects(stream)[-1]
    assert (ended["level"], ended["status"], ended["code"]) == ("warning", "failed", "agent_overloaded")
    assert (ended["message"], ended["details"]) == ("try again", why.failure().details)
    assert len(ended["details"]) > 1800  # more than other values have
    assert ended["documents"] == 2  # the text, and the error
    assert "cached_tokens" not in ended


def test_a_run_that_was_stopped_is_cancelled() -> None:
    logging_to(stream := StringIO())
    run = observed(TextDelta("a"), observer=RunLog(), stopped=RunCancelled("stopped"))
    ended = objects(stream)[-1]
    assert (ended["level"], ended["status"], ended["code"]) == ("info", "cancelled", "cancelled")
    assert outcome(run) == "cancelled"


def test_a_mistake_of_ours_is_logged_with_its_traceback() -> None:
    logging_to(stream := StringIO())
    observed(observer=RunLog(), error=ZeroDivisionError("why"))
    started, fault, ended = objects(stream)
    assert (fault["level"], fault["run_id"], fault["request_id"]) == ("error", started["run_id"], "req_1")
    assert "ZeroDivisionError: why" in fault["exception"]
    assert "observed.py" in fault["exception"]
    assert ended["code"] == "internal_error"


@pytest.mark.parametrize("format", ["human", "json"])
def test_prompts_and_texts_are_never_logged(format: LogFormat) -> None:
    logging_to(stream := StringIO(), format)
    observed(TextDelta("the secret answer"), FINISHED, observer=RunLog())
    observed(TextDelta("the secret answer"), observer=RunLog(), error=AgentOverloaded("try again"))
    observed(TextDelta("the secret answer"), observer=RunLog(), stopped=RunCancelled("the secret reason"))
    assert "run ended" in text_of(stream)
    assert PROMPT not in text_of(stream)
    assert "secret" not in text_of(stream)


async def test_a_run_that_is_not_done_counts_as_failed() -> None:
    logging_to(stream := StringIO())
    run = new_run()
    assert outcome(run) == "failed"
    RunLog().ended(run)
    assert objects(stream)[0]["status"] == "failed"


def test_a_warning_does_not_wait_for_more_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_GATHERING_SECONDS", 1000.0)
    ours, theirs = os.pipe()
    with open(theirs, "w") as stream, open(ours) as reader:
        logging_to(stream)
        StructuredLog().info("one")
        StructuredLog().warning("two")
        assert select.select([ours], [], [], 30)[0]
        assert json.loads(reader.readline())["event"] == "one"


# --- nobody reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 3000])
def test_a_pipe_that_nobody_reads_costs_lines_and_holds_nobody_up(size: int) -> None:
    """First the pipe is full, then the queue. When somebody reads again, the next line says how many were lost."""
    ours, theirs = os.pipe()
    with open(theirs, "w") as stream, open(ours) as reader:
        logging_to(stream)
        count = lost = before = 0
        # Far more than a pipe and the queue take; and the last one is lost, whatever the thread did meanwhile.
        while count < 3000 or lost == before:
            before = lost
            StructuredLog().info("x" * 400, number=count, **{f"more{nth}": "y" * 400 for nth in range(size // 400)})
            count, lost = count + 1, lost_lines()
        assert 0 < lost < count
        kept = [json.loads(reader.readline())["number"] for _ in range(count - lost)]
        assert kept == sorted(kept)
        assert kept[: logs._QUEUE_SIZE] == list(range(logs._QUEUE_SIZE))
        StructuredLog().info("read again")
        StructuredLog().info("as before")
        result, after = (json.loads(reader.readline()) for _ in range(2))
        assert result["event"] == "read again"
        assert result["lines_lost_before"] == count - 1 - kept[-1]
        assert "lines_lost_before" not in after


def test_who_leaves_does_not_wait_for_a_pipe_that_nobody_reads() -> None:
    """Neither for the lines in the queue nor for the thread that hangs in the pipe."""
    program = (
        "import sys; from cursor_gateway.server.logs import StructuredLog, configure;"
        "configure('json', 'info', sys.stderr);"
        "[StructuredLog().info('x' * 400, number=number) for number in range(3000)]; print('left', flush=True)"
    )
    ours, theirs = os.pipe()
    try:
        ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (ended.returncode, ended.stdout) == (0, b"left\n")


def test_after_a_quiet_moment_a_line_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that follow it are gathered."""
    monkeypatch.setattr(logs, "_GATHERING_SECONDS", 1000.0)
    log = logging_to(stream := StringIO())
    log.info("first")
    eventually(stream.getvalue)
    log.info("second")
    assert [line["event"] for line in map(json.loads, stream.getvalue().splitlines())] == ["first"]
    assert [line["event"] for line in objects(stream)] == ["first", "second"]


def test_what_was_logged_last_is_written_before_the_process_ends() -> None:
    program = (
        "import sys; from cursor_gateway.server.logs import StructuredLog, configure;"
        "configure('json', 'info', sys.stderr);"
        "[StructuredLog().info('said', number=number) for number in range(500)]"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert [json.loads(line)["number"] for line in ended.stderr.splitlines()] == list(range(500))


def test_a_line_that_fails_halfway_is_counted_and_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "log"
    room = [100]

    def write(descriptor: int, data: memoryview, real: Callable[[int, bytes], int] = os.write) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        size = min(room[0], len(data))
        room[0] -= size
        return real(descriptor, bytes(data[:size]))

    with file.open("w") as stream:
        log = logging_to(stream)
        monkeypatch.setattr("cursor_gateway.server.logs.os.write", write)
        log.info("long", text="x" * 400)
        written()
        room[0] = 100_000
        log.info("next")
        written()
    _, whole = file.read_text().splitlines()
    assert (json.loads(whole)["event"], json.loads(whole)["lines_lost_before"], lost_lines()) == ("next", 1, 1)
