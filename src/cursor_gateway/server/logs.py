"""What happens in, log lines out: for people in a terminal, one JSON object a line otherwise.

Callers choose some of what is logged (models, folders, paths), so no value may look like a line of its own,
move the cursor or fill the disk. What a run is about, its prompt and its texts, is never logged.
"""

import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Literal, TextIO, TypeAlias

from msgspec import Struct

from cursor_gateway.errors import Failure, RunCancelled
from cursor_gateway.model.documents import ReplayedRecording
from cursor_gateway.render.visible import visible, visible_line
from cursor_gateway.runs.run import Run
from cursor_gateway.settings import LogFormat, LogLevel

_LONGEST = 500  # characters of a value
_LONGEST_DETAILS = 2100  # of what an agent said about its failure, which is bounded already
_LONGEST_MESSAGE = 200  # of an exception: some repeat what they were given
_QUEUE_SIZE = 1000  # lines that wait to be written
_FLUSH_SECONDS = 1.0  # for them, at the end
_FLUSH_LOOK_SECONDS = 0.005
_OURS = logging.getLogger("cursor_gateway")
_QUOTED = ("asyncio",)  # libraries whose messages start with a line without user data

_Facts: TypeAlias = Mapping[str, object]
_Form: TypeAlias = Callable[[_Facts], str]

Outcome: TypeAlias = Literal["completed", "failed", "cancelled"]


def configure(format: LogFormat, level: LogLevel, stream: TextIO) -> None:
    """For the whole process: our lines of this level, and that libraries warn, but not of what."""
    least = logging.getLevelNamesMapping()[level.upper()]
    lines = _QueuedLines(stream, _form(format, stream))
    lines.addFilter(lambda record: _is_ours(record) or record.levelno >= logging.WARNING)
    logging.basicConfig(handlers=[lines], level=max(least, logging.WARNING), force=True)
    _OURS.setLevel(least)
    # Computed for each line but never shown: a third of its cost.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # as the library's own guide says


def lost_lines() -> int:
    """Dropped since the start."""
    return sum(handler.lost for handler in logging.getLogger().handlers if isinstance(handler, _QueuedLines))


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
            facts |= {"fallback": run.fallback, "source_failed": run.source_failure.message}
            if run.source_failure.details:
                facts["source_details"] = run.source_failure.details
        if run.done is not None:
            usage = run.done.envelope.usage
            if run.done.failure is not None:
                facts |= _why(run.done.failure)
            facts["prompt_tokens"], facts["completion_tokens"] = usage.prompt_tokens, usage.completion_tokens
            if isinstance(usage.cached_tokens, int):
                facts["cached_tokens"] = usage.cached_tokens
            if isinstance(recording := run.done.envelope.metadata.recording, ReplayedRecording):
                facts["recording"], facts["chosen"] = recording.name, recording.reason
        facts["documents"] = run.documents
        log = self._of(run)
        (log.warning if status == "failed" else log.info)("run ended", **facts)

    def fault(self, run: Run, error: Exception) -> None:
        self._of(run).error("mistake of the gateway", error, request_id=run.request_id)

    def repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        Log().info("account error repeated", request_id=request_id, owner=owner, code=failure.code)

    def _of(self, run: Run) -> Log:
        return Log(run_id=run.id)


def _why(failure: Failure) -> dict[str, object]:
    facts: dict[str, object] = {"code": failure.code}
    if failure.code != RunCancelled.code:
        facts["message"] = failure.message
        if failure.details:
            facts["details"] = failure.details
    return facts


# --- lines ----------------------------------------------------------------------------------------------


class _QueuedLines(QueueHandler):
    """Records in; lines, written by a thread of their own, out. Logging never waits for the reader of the log.

    A pipe that is not read holds 64 kB. Then the queue fills, and after it lines are dropped and counted.
    """

    queue: "SimpleQueue[_Line]"  # records are made into lines before they are queued

    def __init__(self, stream: TextIO, form: _Form) -> None:
        super().__init__(SimpleQueue())
        self._writer = _Writer(stream, form)
        self._queued = 0  # lines, altogether
        self._dropped = 0
        self._dropped_before = 0  # since the last that was queued
        self._listener = QueueListener(self.queue, self._writer)
        self._listener.start()

    @property
    def lost(self) -> int:
        return self._dropped + self._writer.lost

    def emit(self, record: logging.LogRecord) -> None:
        """Values as they are now: they may change before they are written."""
        if self.queue.qsize() >= _QUEUE_SIZE:
            self._dropped += 1
            self._dropped_before += 1
            return
        try:
            self.queue.put(_Line(_facts(record), self._dropped_before))
        except Exception:  # noqa: BLE001 -- logging must never fail its caller
            self.handleError(record)
        else:
            self._queued += 1
            self._dropped_before = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- the library's name
        self._dropped += 1

    def flush(self) -> None:
        """Waits until all is written, up to a limit."""
        until = time.monotonic() + _FLUSH_SECONDS
        while self._writer.taken < self._queued and time.monotonic() < until:
            time.sleep(_FLUSH_LOOK_SECONDS)

    def close(self) -> None:
        super().close()
        self._listener.enqueue_sentinel()  # not `stop`, which waits as long as the pipe is full


class _Line(Struct):
    facts: dict[str, object]
    dropped_before: int  # lines since the last that was queued


class _Writer(logging.Handler):
    """Writes lines, in the listener's thread; counts those that a full disk or a closed stream did not take."""

    def __init__(self, stream: TextIO, form: _Form) -> None:
        super().__init__()
        self._stream, self._form = stream, form
        self.taken = 0  # lines, altogether
        self.lost = 0
        self._lost_before = 0  # since the last that was written
        self._is_cut = False  # that one lacks its end

    def createLock(self) -> None:  # noqa: N802 -- the library's name
        """None: one thread writes, and at the process's exit `logging` would wait for it."""
        self.lock = None

    def handle(self, line: "_Line") -> bool:  # type: ignore[override] # the queue has lines, not records
        facts = line.facts
        if lost := self._lost_before + line.dropped_before:
            facts["lines_lost_before"] = lost
        try:
            self._write(("\n" if self._is_cut else "") + self._form(facts) + "\n")
        except Exception:  # noqa: BLE001 -- or the listener's thread would end, and the log with it
            self.lost, self._lost_before = self.lost + 1, self._lost_before + 1
        else:
            self._lost_before, self._is_cut = 0, False
        self.taken += 1
        return True

    def _write(self, line: str) -> None:
        """Past the stream's buffer, whose lock a thread that hangs in a full pipe would hold at the process's exit."""
        try:
            descriptor = self._stream.fileno()
        except OSError:  # no file
            self._stream.write(line)
            return
        data = memoryview(line.encode(self._stream.encoding, "backslashreplace"))
        while data:
            data = data[os.write(descriptor, data) :]
            self._is_cut = True


def _facts(record: logging.LogRecord) -> dict[str, object]:
    """What is in every line first; long values cut, strange ones as text.

    A library's message may hold what callers and the agent said, so only that there was one is logged.
    """
    is_ours = _is_ours(record)
    facts: dict[str, object] = {
        "timestamp": f"{datetime.fromtimestamp(record.created, UTC).isoformat(timespec='microseconds')[:26]}Z",
        # some libraries have levels of their own in between
        "level": logging.getLevelName(min(record.levelno, logging.CRITICAL) // 10 * 10).lower(),
        "event": _cut(record.getMessage(), _LONGEST) if is_ours else _first_line(record),
    }
    given: _Facts = getattr(record, "facts", {"logger": record.name})
    for name, value in given.items():
        facts[name] = _plain(value, _LONGEST_DETAILS if name in ("details", "source_details") else _LONGEST)
    if record.exc_info and record.exc_info[1] is not None:
        facts["exception"] = "\n".join(_told(record.exc_info[1], with_message=is_ours))
    return facts


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == _OURS.name or record.name.startswith(f"{_OURS.name}.")


def _first_line(record: logging.LogRecord) -> str:
    if record.name not in _QUOTED or not isinstance(record.msg, str):
        return "message of a library"
    return _cut(record.msg.partition("\n")[0], _LONGEST)


def _told(error: BaseException, *, with_message: bool) -> Iterator[str]:
    """As Python does it, causes first; but messages are cut."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _told(before, with_message=with_message)
        yield "which led to:"
    for frame in traceback.format_tb(error.__traceback__):
        yield frame.rstrip("\n")
    message = f": {_cut(str(error), _LONGEST_MESSAGE)}" if with_message else ""
    yield f"{type(error).__qualname__}{message}"


def _plain(value: object, longest: int) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _cut(value if isinstance(value, str) else repr(value), longest)


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
