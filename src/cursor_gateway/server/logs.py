"""What happens in, log lines out: for people in a terminal, one JSON object a line otherwise.

Callers choose some of what is logged (models, folders, paths), so no value may look like a line of its own,
move the cursor or fill the disk. What a run is about, its prompt and its texts, is never logged.
"""

import json
import logging
import os
import select
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO, TypeAlias

from cursor_gateway.render.visible import visible, visible_line
from cursor_gateway.runs.run import Run
from cursor_gateway.settings import LogFormat, LogLevel

_LONGEST = 500  # characters of a value
_LONGEST_MESSAGE = 200  # of an exception: some repeat what they were given
_AT_ONCE = select.PIPE_BUF // 4 if hasattr(select, "PIPE_BUF") else 128  # characters that a pipe takes, or none
_PATIENCE = 0.1  # seconds
_OURS = logging.getLogger("cursor_gateway")

_Facts: TypeAlias = Mapping[str, object]
_Form: TypeAlias = Callable[[_Facts], str]

Outcome: TypeAlias = Literal["completed", "failed", "cancelled"]


def configure(format: LogFormat, level: LogLevel, stream: TextIO) -> None:
    """For the whole process: our lines, and those of libraries that use `logging`."""
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(handlers=[_Lines(stream, _form(format, stream))], level=least, force=True)
    for talkative in ("mcp", "httpx", "acp"):  # of every session, every call
        logging.getLogger(talkative).setLevel(max(least, logging.ERROR))
    # Found out for each line, and told in none: a third of its cost.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # as the library's own guide says


def lost_lines() -> int:
    """That nobody took, since the start."""
    return sum(handler.lost for handler in logging.getLogger().handlers if isinstance(handler, _Lines))


class Log:
    """What happened, in words that never change, with its facts."""

    def __init__(self, **facts: object) -> None:
        """These are in all of its lines."""
        self._facts = facts

    def info(self, event: str, **facts: object) -> None:
        self._write(logging.INFO, event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self._write(logging.WARNING, event, facts)

    def error(self, event: str, error: BaseException, **facts: object) -> None:
        """With its traceback."""
        self._write(logging.ERROR, event, facts, error)

    def _write(self, level: int, event: str, facts: _Facts, error: BaseException | None = None) -> None:
        _OURS.log(level, event, exc_info=error, extra={"facts": {**self._facts, **facts}})


def outcome(run: Run) -> Outcome:
    failure = run.done.failure if run.done is not None else None
    if run.done is not None and failure is None:
        return "completed"
    return "cancelled" if failure is not None and failure.code == "cancelled" else "failed"


class RunLog:
    """An observer of runs: all lines about one have its `run_id`."""

    def started(self, run: Run) -> None:
        turn = run.turn
        self._of(run).info(
            "run started",
            request_id=run.request_id,
            owner=run.owner,
            model=turn.model,
            mode=turn.mode,
            workspace=turn.workspace,
        )

    def first_event(self, run: Run) -> None:
        self._of(run).info("first event", seconds=round(run.first_event_at - run.started_at, 3))

    def ended(self, run: Run) -> None:
        status = outcome(run)
        facts: dict[str, object] = {"status": status, "seconds": round(run.ended_at - run.started_at, 3)}
        if run.source_failure is not None:
            facts |= {"fallback": run.fell_back_to, "source_failed": run.source_failure.message}
        if run.done is not None:
            usage = run.done.envelope.usage
            if run.done.failure is not None:
                facts["code"] = run.done.failure.code
            facts["prompt_tokens"], facts["completion_tokens"] = usage.prompt_tokens, usage.completion_tokens
            if isinstance(usage.cached_tokens, int):
                facts["cached_tokens"] = usage.cached_tokens
        facts["documents"] = run.documents
        log = self._of(run)
        (log.warning if status == "failed" else log.info)("run ended", **facts)

    def fault(self, run: Run, error: Exception) -> None:
        self._of(run).error("mistake of the gateway", error, request_id=run.request_id)

    def _of(self, run: Run) -> Log:
        return Log(run_id=run.id)


# --- lines ----------------------------------------------------------------------------------------------


class _Lines(logging.Handler):
    """All records, ours and those of libraries, in one form. A log that cannot be written must not end a run.

    Nor hold one up: a pipe that nobody reads takes so much and no more. Then lines are lost, and counted.
    """

    def __init__(self, stream: TextIO, form: _Form) -> None:
        super().__init__()
        self._stream, self._form = stream, form
        self.lost = 0  # lines, altogether
        self._lost = 0  # since the last that was written
        self._is_cut = False  # that one lacks its end

    def emit(self, record: logging.LogRecord) -> None:
        facts = _facts(record)
        if self._lost:
            facts["lines_lost_before"] = self._lost
        line = ("\n" if self._is_cut else "") + self._form(facts) + "\n"
        at = 0
        try:
            while at < len(line) and self._takes_more():
                self._stream.write(line[at : at + _AT_ONCE])
                self._stream.flush()
                at += _AT_ONCE
        except (OSError, ValueError):  # a full disk, a closed stream
            at = min(at, len(line) - 1)
        if at < len(line):
            self.lost, self._lost, self._is_cut = self.lost + 1, self._lost + 1, self._is_cut or at > 0
        else:
            self._lost, self._is_cut = 0, False

    def _takes_more(self) -> bool:
        """Whoever was refused does not wait again until it was let in: the event loop waits with it."""
        try:
            return bool(select.select([], [self._stream.fileno()], [], 0 if self._lost else _PATIENCE)[1])
        except (OSError, ValueError):  # no file, or a system that cannot tell: it is written as it is
            return True


def _facts(record: logging.LogRecord) -> dict[str, object]:
    """What is in every line first; long values cut, strange ones as text."""
    try:
        message = record.getMessage()
    except (KeyError, TypeError, ValueError):  # words and values that do not fit together
        message = str(record.msg)
    facts: dict[str, object] = {
        "timestamp": f"{datetime.fromtimestamp(record.created, UTC).isoformat(timespec='microseconds')[:26]}Z",
        # some libraries have levels of their own in between
        "level": logging.getLevelName(min(record.levelno, logging.CRITICAL) // 10 * 10).lower(),
        "event": _cut(message, _LONGEST),
    }
    told: _Facts = getattr(record, "facts", {"logger": record.name})
    facts |= {name: _plain(value) for name, value in told.items()}
    if record.exc_info and record.exc_info[1] is not None:
        facts["exception"] = "\n".join(_told(record.exc_info[1]))
    return facts


def _told(error: BaseException) -> Iterator[str]:
    """As Python does it, causes first; but messages are cut."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _told(before)
        yield "which led to:"
    for frame in traceback.format_tb(error.__traceback__):
        yield frame.rstrip("\n")
    yield f"{type(error).__qualname__}: {_cut(str(error), _LONGEST_MESSAGE)}"


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _cut(value if isinstance(value, str) else repr(value), _LONGEST)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


# --- forms ----------------------------------------------------------------------------------------------


def _form(format: LogFormat, stream: TextIO) -> _Form:
    is_terminal = stream.isatty()
    match format:
        case "json":
            return json.dumps  # which escapes all but ASCII
        case "human":
            is_plain = not is_terminal or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
            return _plain_line if is_plain else _coloured_line
        case "auto":
            return _form("human" if is_terminal else "json", stream)


_BOLD, _DIM, _CYAN, _MAGENTA = "1", "2", "36", "35"
_OF_LEVELS = {"debug": "32", "info": "32", "warning": "33", "error": "31", "critical": "31"}


def _plain_line(facts: _Facts) -> str:
    return _line(facts, lambda text, _: text)


def _coloured_line(facts: _Facts) -> str:
    return _line(facts, lambda text, style: f"\x1b[{style}m{text}\x1b[0m")


def _line(facts: _Facts, styled: Callable[[str, str], str]) -> str:
    """One line; below it a traceback, all of whose lines are indented."""
    time, level, event = (visible_line(str(facts[name])) for name in ("timestamp", "level", "event"))
    more = [
        f"{styled(visible_line(name), _CYAN)}={styled(_value(value), _MAGENTA)}"
        for name, value in facts.items()
        if name not in ("timestamp", "level", "event", "exception")
    ]
    head = f"{styled(time, _DIM)} [{styled(f'{level:9}', _OF_LEVELS.get(level, _BOLD))}] "
    line = head + styled(f"{event:30}" if more else event, _BOLD)
    trace = str(facts.get("exception", "")).splitlines()
    return "\n".join([" ".join([line, *more]), *(f"    {visible(frame)}" for frame in trace)])


def _value(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    shown = visible_line(value)
    return repr(shown) if set(shown) & set(" ='\"") else shown
