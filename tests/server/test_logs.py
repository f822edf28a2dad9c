"""Log lines: one a fact, in either form; whatever a value holds, it forges none; a run's own words never appear."""

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from io import StringIO
from typing import Any, TextIO

import pytest

from cursor_gateway.core.agent_events import RunFinished, RunStarted, TextDelta, TokenCounts
from cursor_gateway.errors import AgentOverloaded, RunCancelled
from cursor_gateway.runs.run import Observer
from cursor_gateway.server.logs import Log, RunLog, configure, lost_lines, outcome
from cursor_gateway.settings import LogFormat, LogLevel
from tests.server.observed import PROMPT, new_run, observed

FINISHED = RunFinished(usage=TokenCounts(prompt=100, completion=20, cached=70), duration_ms=5)
NASTY = "x\n2026-01-01T00:00:00Z [info     ] forged\r\x1b[2J\x1b]0;title\x07\x85\u2028\u202e\x00\ud800"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def logging_to(stream: TextIO, format: LogFormat = "json", level: LogLevel = "info") -> Log:
    configure(format, level, stream)
    return Log()


def objects(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# --- forms ------------------------------------------------------------------------------------------


def test_json_is_one_object_a_line_with_the_time_in_utc() -> None:
    logging_to(stream := StringIO()).info("said", number=1, flag=True, nothing=None, other={"a": [1]})
    (line,) = objects(stream)
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert line["timestamp"].endswith("Z")
    del line["timestamp"]
    assert line == {
        "level": "info",
        "event": "said",
        "number": 1,
        "flag": True,
        "nothing": None,
        "other": "{'a': [1]}",
    }


def test_auto_is_human_on_a_terminal_and_json_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    logging_to(stream := StringIO(), "auto").info("said")
    assert objects(stream)
    logging_to(terminal := Terminal(), "auto").info("said", a=1)
    assert "\x1b[" in terminal.getvalue()
    assert "{" not in terminal.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_gets_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    logging_to(terminal := Terminal(), "auto").info("said", a=1)
    assert "\x1b" not in terminal.getvalue()
    assert terminal.getvalue().rstrip().endswith("a=1")


def test_human_lines_in_a_file_have_no_colours() -> None:
    logging_to(stream := StringIO(), "human").warning("said", a="b c")
    assert "\x1b" not in stream.getvalue()
    assert "[warning  ] said" in stream.getvalue()
    assert "a='b c'" in stream.getvalue()


def test_less_important_lines_are_left_out() -> None:
    log = logging_to(stream := StringIO(), level="warning")
    log.info("no")
    logging.getLogger("library").info("no")
    log.warning("yes")
    logging.getLogger("library").error("yes")
    assert [line["event"] for line in objects(stream)] == ["yes", "yes"]


def test_what_a_log_is_made_with_is_in_all_of_its_lines() -> None:
    logging_to(stream := StringIO())
    log = Log(run_id="chat_1")
    log.info("said", a=1)
    log.warning("said")
    Log().info("said")
    assert [line.get("run_id") for line in objects(stream)] == ["chat_1", "chat_1", None]


def test_words_are_taken_as_they_are() -> None:
    logging_to(stream := StringIO()).info("100 % of %s")
    assert objects(stream)[0]["event"] == "100 % of %s"


# --- what cannot be forged --------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["human", "json"])
def test_no_value_makes_a_line_of_its_own(format: LogFormat) -> None:
    log = logging_to(stream := StringIO(), format)
    log.info(NASTY, value=NASTY, other=[NASTY], **{NASTY: 1})
    logging.getLogger("library").info("%s", NASTY)
    logging.getLogger(NASTY).info("said")
    text = stream.getvalue()
    assert len(text.splitlines()) == 3
    assert not [character for character in text if ord(character) < 32 and character != "\n"]
    assert not set(text) & set("\x7f\x85\x9b\u2028\u202e\ud800")


def test_a_traceback_has_lines_but_all_are_indented() -> None:
    log = logging_to(stream := StringIO(), "human")
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        log.error("failed", error)
    first, *rest = stream.getvalue().splitlines()
    assert "failed" in first
    assert len(rest) > 3
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in stream.getvalue()


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
    assert len(stream.getvalue()) < 1500


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


def test_libraries_log_in_the_same_form() -> None:
    logging_to(stream := StringIO())
    logging.getLogger("some.library").info("Started %s", "it")
    logging.getLogger("odd").log(25, "a level in between")
    logging.getLogger("odd").log(99, "a level above")
    logging.getLogger("odd").info("%d", "no number")
    logging.getLogger("odd").info("without", exc_info=(None, None, None))
    lines = objects(stream)
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "Started it"),
        ("info", "a level in between"),
        ("critical", "a level above"),
        ("info", "%d"),
        ("info", "without"),
    ]
    assert lines[0]["logger"] == "some.library"
    assert not [line for line in lines if "exception" in line or "exc_info" in line]


def test_a_librarys_traceback_is_kept() -> None:
    logging_to(stream := StringIO())
    try:
        asyncio.run(_fails())
    except RuntimeError:
        logging.getLogger("asyncio").exception("a task failed")
    assert "RuntimeError: why" in objects(stream)[0]["exception"]


async def _fails() -> None:
    raise RuntimeError("why")


# --- runs -------------------------------------------------------------------------------------------


def test_a_run_is_told_from_start_to_end_under_its_id() -> None:
    logging_to(stream := StringIO())
    log: Observer = RunLog()
    run = observed(RunStarted("s", "m"), TextDelta("the secret answer"), FINISHED, observer=log, model="opus")
    started, first, ended = objects(stream)
    assert {line["run_id"] for line in (started, first, ended)} == {run.id}
    facts = {"owner": "laptop", "request_id": "req_1", "model": "opus", "mode": "agent", "workspace": "/w"}
    assert started.items() >= {"event": "run started", "level": "info", **facts}.items()
    assert first["event"] == "first event"
    assert 0 <= first["seconds"] <= ended["seconds"]
    tokens = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 70}
    assert ended.items() >= {"event": "run ended", "status": "completed", "documents": 1, **tokens}.items()
    assert "code" not in ended
    assert outcome(run) == "completed"


def test_a_run_that_failed_is_a_warning_with_its_code() -> None:
    logging_to(stream := StringIO())
    observed(TextDelta("a"), observer=RunLog(), error=AgentOverloaded("the secret reason"))
    ended = objects(stream)[-1]
    assert (ended["level"], ended["status"], ended["code"]) == ("warning", "failed", "agent_overloaded")
    assert ended["documents"] == 2  # the text, and the error
    assert "cached_tokens" not in ended


def test_a_run_that_was_stopped_is_cancelled() -> None:
    logging_to(stream := StringIO())
    run = observed(TextDelta("a"), observer=RunLog(), stopped=RunCancelled("stopped"))
    ended = objects(stream)[-1]
    assert (ended["level"], ended["status"], ended["code"]) == ("info", "cancelled", "cancelled")
    assert outcome(run) == "cancelled"


def test_a_mistake_of_ours_is_told_with_its_traceback() -> None:
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
    observed(TextDelta("the secret answer"), observer=RunLog(), error=AgentOverloaded("the secret reason"))
    observed(TextDelta("the secret answer"), observer=RunLog(), stopped=RunCancelled("the secret reason"))
    assert "run ended" in stream.getvalue()
    assert PROMPT not in stream.getvalue()
    assert "secret" not in stream.getvalue()


def test_a_run_that_is_not_done_counts_as_failed() -> None:
    logging_to(stream := StringIO())
    run = new_run()
    assert outcome(run) == "failed"
    RunLog().ended(run)
    assert objects(stream)[0]["status"] == "failed"


# --- nobody reads ---------------------------------------------------------------------------------------


def lines_of(pipe: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in os.read(pipe, 1 << 20).decode().splitlines() if line.endswith("}")]


@pytest.mark.parametrize("size", [10, 3000])
def test_a_pipe_that_nobody_reads_costs_lines_and_holds_nobody_up(size: int) -> None:
    ours, theirs = os.pipe()
    with open(theirs, "w") as stream, open(ours, "rb"):
        logging_to(stream)
        for number in range(2000):  # far more than a pipe takes
            Log().info("x" * 400, number=number, **{f"more{nth}": "y" * 400 for nth in range(size // 400)})
        kept = [line["number"] for line in lines_of(ours)]
        assert kept == list(range(len(kept)))
        assert 1 <= len(kept) < 2000
        assert lost_lines() == 2000 - len(kept)
        Log().info("read again")
        Log().info("as before")
        told, after = lines_of(ours)
        assert (told["event"], told["lines_lost_before"]) == ("read again", 2000 - len(kept))
        assert "lines_lost_before" not in after


def test_a_line_that_fails_halfway_is_counted_and_spoils_no_other() -> None:
    class Full(StringIO):
        room = 1

        def write(self, text: str) -> int:
            if not self.room:
                raise OSError(28, "No space left on device")
            self.room -= 1
            return super().write(text)

    log = logging_to(stream := Full())
    log.info("long", **{f"text{number}": "x" * 500 for number in range(10)})
    stream.room = 100
    log.info("next")
    _, whole = stream.getvalue().splitlines()
    assert (json.loads(whole)["event"], json.loads(whole)["lines_lost_before"], lost_lines()) == ("next", 1, 1)
