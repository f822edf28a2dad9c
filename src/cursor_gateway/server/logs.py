"""What happens in, log lines out: for people in a terminal, one JSON object a line otherwise.

Callers choose some of what is logged (models, folders, paths), so no value may look like a line of its own,
move the cursor or fill the disk. What a run is about, its prompt and its texts, is never logged.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, TextIO, TypeAlias

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from cursor_gateway.render.visible import visible, visible_line
from cursor_gateway.runs.run import Run
from cursor_gateway.settings import LogFormat, LogLevel

_LONGEST = 500  # characters of a value
_LONGEST_MESSAGE = 200  # of an exception: some repeat what they were given
_FIRST = ("timestamp", "level", "event")

Outcome: TypeAlias = Literal["completed", "failed", "cancelled"]


def configure(format: LogFormat, level: LogLevel, stream: TextIO) -> None:
    """For the whole process: structlog's lines, and those of libraries that use `logging`."""
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _with_traceback,
            *_renderer(format, stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Libraries()], level=least, force=True)
    for talkative in ("mcp", "httpx", "acp"):  # of every session, every call
        logging.getLogger(talkative).setLevel(max(least, logging.ERROR))


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
        self._of(run).error("mistake of the gateway", request_id=run.request_id, exc_info=error)

    def _of(self, run: Run) -> FilteringBoundLogger:
        log: FilteringBoundLogger = structlog.get_logger()
        return log.bind(run_id=run.id)


# --- lines ----------------------------------------------------------------------------------------------


class _Lines:
    """Where structlog writes. A log that cannot be written must not end a run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a full disk, a closed stream
            self._stream.write(line + "\n")  # in one piece: other threads write, too
            self._stream.flush()

    debug = info = warning = error = critical = msg


class _Libraries(logging.Handler):
    """What libraries log, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (KeyError, TypeError, ValueError):  # words and values that do not fit together
            message = str(record.msg)
        log: FilteringBoundLogger = structlog.get_logger()
        level = min(record.levelno, logging.CRITICAL) // 10 * 10  # some have levels of their own in between
        log.log(level, message, logger=record.name, exc_info=record.exc_info)


def _renderer(format: LogFormat, stream: TextIO) -> list[Processor]:
    is_terminal = stream.isatty()
    match format:
        case "json":
            return [_bounded, structlog.processors.JSONRenderer(json.dumps)]  # which escapes all but ASCII
        case "human":
            colors = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
            plain = structlog.dev.plain_traceback
            return [
                _bounded,
                _in_one_line,
                structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False, exception_formatter=plain),
            ]
        case "auto":
            return _renderer("human" if is_terminal else "json", stream)


def _with_traceback(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    given = event.pop("exc_info", None)
    if given is True:
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event["exception"] = "\n".join(_told(error))
    return event


def _told(error: BaseException) -> Iterator[str]:
    """As Python does it, causes first; but messages are cut."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _told(before)
        yield "which led to:"
    for frame in traceback.format_tb(error.__traceback__):
        yield frame.rstrip("\n")
    yield f"{type(error).__qualname__}: {_cut(str(error), _LONGEST_MESSAGE)}"


def _bounded(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """What is there first, then the rest in its order; long values cut, strange ones as text."""
    first = {name: event.pop(name) for name in _FIRST if name in event}
    return {name: _plain(name, value) for name, value in {**first, **event}.items()}


def _plain(name: str, value: object) -> object:
    if value is None or isinstance(value, bool | int | float) or name == "exception":
        return value
    return _cut(value if isinstance(value, str) else repr(value), _LONGEST)


def _in_one_line(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A traceback has lines, all of them indented."""
    if "exception" in event:
        lines = str(event["exception"]).splitlines()
        event["exception"] = "\n".join(f"    {visible(line)}" for line in lines)
    return {
        visible_line(name): visible_line(value) if isinstance(value, str) and name != "exception" else value
        for name, value in event.items()
    }


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
