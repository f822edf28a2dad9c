"""What happens in, log lines out: for people in a terminal, one JSON object a line otherwise.

Callers choose some of the logged values (models, folders, paths), so no value may look like a separate line, move the
cursor or fill the disk. Prompts and answers are never logged.
"""

import json
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Literal, TextIO, TypeAlias

from msgspec import Struct

from cursor_gateway.errors import Failure, RunCancelled
from cursor_gateway.model.documents import ReplayedRecording
from cursor_gateway.model.requests import TraceContext
from cursor_gateway.render.visible import visible, visible_line
from cursor_gateway.runs.run import Run
from cursor_gateway.settings import LogFormat, LogLevel

_LONGEST = 500  # characters of a value
_LONGEST_BY_NAME = {  # of what is bounded already, or made of bounded parts
    "details": 2100,  # the agent's message about its failure
    "source_details": 2100,
    "exception": 1_000_000,
}
_LONGEST_MESSAGE = 200  # of an exception: some repeat what they were given
_QUEUE_SIZE = 1000  # lines that wait to be written
_AT_ONCE = 500  # lines that are written together
_GATHERING_SECONDS = 0.1  # for more lines: with 0.02, a short run would take a thirtieth more CPU time
_FLUSH_SECONDS = 1.0  # for them, at the end
_FLUSH_LOOK_SECONDS = 0.005
_OURS = logging.getLogger("cursor_gateway")
_QUOTED = ("asyncio",)  # libraries whose messages start with a line without user data

_IMMUTABLE = (str, int, float, type(None))  # values that cannot change

_Facts: TypeAlias = Mapping[str, object]
_Form: TypeAlias = Callable[[_Facts], str]

RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled"]

_lines: "_QueuedLines | None" = None  # when the log is configured
_trace_ids: Callable[[object], _Facts] | None = None  # when runs are traced


def configure(format: LogFormat, level: LogLevel, stream: TextIO) -> None:
    """For the whole process: our own lines from this level on, and for libraries only that they warned."""
    global _lines
    least = logging.getLevelNamesMapping()[level.upper()]
    _lines = _QueuedLines(stream, _form(format, stream), least)
    _lines.addFilter(lambda record: _is_ours(record) or record.levelno >= logging.WARNING)
    logging.basicConfig(handlers=[_lines], level=max(least, logging.WARNING), force=True)
    _OURS.setLevel(least)


def carry_trace_ids(find: Callable[[object], _Facts]) -> None:
    """From now on lines have what `find` returns for their `run_id`, or for None."""
    global _trace_ids
    _trace_ids = find


def lost_lines() -> int:
    """Dropped since the start."""
    return sum(handler.lost for handler in logging.getLogger().handlers if isinstance(handler, _QueuedLines))


class StructuredLog:
    """Logs an event with a fixed text and variable fields."""

    def __init__(self, **facts: object) -> None:
        """These are in all of its lines."""
        self._facts = facts

    def info(self, event: str, **facts: object) -> None:
        _write(logging.INFO, event, {**self._facts, **facts})

    def warning(self, event: str, **facts: object) -> None:
        _write(logging.WARNING, event, {**self._facts, **facts})

    def error(self, event: str, error: BaseException, **facts: object) -> None:
        """With its traceback."""
        _write(logging.ERROR, event, {**self._facts, **facts}, error)


def _write(level: int, event: str, facts: dict[str, object], error: BaseException | None = None) -> None:
    if _lines is None:
        _OURS.log(level, event, exc_info=error)
    elif level >= _lines.least:  # not as a record of `logging`, which would take longer than everything else
        if error is not None:
            facts["exception"] = "\n".join(_described(error, with_message=True))
        if _trace_ids is not None:
            facts.update(_trace_ids(facts.get("run_id")))
        _lines.put(time.time(), level, event, facts)


def outcome(run: Run) -> RunOutcome:
    if (done := run.done) is None:
        return "failed"
    if done.failure is None:
        return "completed"
    return "cancelled" if done.failure.code == "cancelled" else "failed"


class RunLog:
    """An observer of runs: all lines about one have its `run_id`."""

    def started(self, run: Run) -> None:
        turn = run.turn
        facts: dict[str, object] = {"run_id": run.id, "request_id": run.plan.request_id, "owner": run.owner}
        facts |= {"model": turn.model, "mode": turn.mode, "workspace": turn.workspace}
        _write(logging.INFO, "run started", facts)

    def first_event(self, run: Run) -> None:
        seconds, start = round(run.first_event_seconds or 0.0, 3), "warm" if run.is_warm else "cold"
        _write(logging.INFO, "first event", {"run_id": run.id, "seconds": seconds, "start": start})

    def ended(self, run: Run) -> None:
        status, seconds = outcome(run), round(run.seconds, 3)
        facts: dict[str, object] = {"run_id": run.id, "status": status, "seconds": seconds}
        if run.machine.source_failure is not None:
            facts |= {"fallback": run.fallback, "source_failed": run.machine.source_failure.message}
            if run.machine.source_failure.details:
                facts["source_details"] = run.machine.source_failure.details
        if (done := run.done) is not None:
            usage = done.envelope.usage
            if done.failure is not None:
                facts |= _why(done.failure)
            facts["prompt_tokens"], facts["completion_tokens"] = usage.prompt_tokens, usage.completion_tokens
            if isinstance(usage.cached_tokens, int):
                facts["cached_tokens"] = usage.cached_tokens
            if isinstance(usage.cost, float):
                facts["cost"] = usage.cost
            if isinstance(recording := done.envelope.metadata.recording, ReplayedRecording):
                facts["recording"], facts["chosen"] = recording.name, recording.reason
        if (use := run.use) is not None:
            facts["cpu_seconds"] = round(use.cpu_seconds, 3)
            if use.memory_bytes is not None:
                facts["memory_bytes"] = use.memory_bytes
        facts["documents"] = run.log.state.sequence - len(run.log.state.open)
        if not (is_stored := run.log.is_stored):
            facts["stored"] = False
        is_odd = status == "failed" or not is_stored
        _write(logging.WARNING if is_odd else logging.INFO, "run ended", facts)

    def fault(self, run: Run, error: Exception) -> None:
        StructuredLog(run_id=run.id).error("mistake of the gateway", error, request_id=run.plan.request_id)

    def repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        StructuredLog().info("failure repeated", request_id=request_id, owner=owner, code=failure.code)

    def asked(self, run_id: str, trace: TraceContext) -> None:
        """The line of a request, if there is one, has the ids."""


def _why(failure: Failure) -> dict[str, object]:
    facts: dict[str, object] = {"code": failure.code}
    if failure.code != RunCancelled.code:
        facts["message"] = failure.message
        if failure.details:
            facts["details"] = failure.details
    return facts


# --- lines ----------------------------------------------------------------------------------------------


class _QueuedLines(logging.Handler):
    """Facts in; lines, written by a thread of their own, out. Logging never waits for the reader of the log.

    A pipe that is not read holds 64 kB. Then the queue fills, and after it lines are dropped and counted.
    """

    def __init__(self, stream: TextIO, form: _Form, least: int) -> None:
        super().__init__()
        self.least = least  # level
        self._writer = _Writer(stream, form)
        self._queued = 0  # lines, altogether
        self._dropped = 0
        self._dropped_before = 0  # since the last that was queued
        self._queue_lock = threading.Lock()
        threading.Thread(target=self._writer.work, name="log", daemon=True).start()

    @property
    def lost(self) -> int:
        return self._dropped + self._writer.lost

    def put(self, when: float, level: int, event: str, facts: _Facts) -> None:
        """Values are copied now, because they may change before they are written."""
        fixed = {name: value if isinstance(value, _IMMUTABLE) else repr(value) for name, value in facts.items()}
        with self._queue_lock:
            if self._writer.queue.qsize() >= _QUEUE_SIZE:
                self._dropped += 1
                self._dropped_before += 1
            else:
                self._writer.queue.put(_Line(when, level, event, fixed, self._dropped_before))
                self._queued += 1
                self._dropped_before = 0
        if level >= logging.WARNING:  # perhaps the last words
            self._writer.hurry.set()

    def emit(self, record: logging.LogRecord) -> None:
        """A library's message may contain prompts and answers, so only the fact is logged."""
        try:
            is_ours = _is_ours(record)
            facts: dict[str, object] = {"logger": record.name, **getattr(record, "facts", {})}
            if record.exc_info and record.exc_info[1] is not None:
                facts["exception"] = "\n".join(_described(record.exc_info[1], with_message=is_ours))
            self.put(record.created, record.levelno, record.getMessage() if is_ours else _first_line(record), facts)
        except Exception:  # noqa: BLE001 -- logging must never fail its caller
            self._dropped += 1

    def flush(self) -> None:
        """Waits until all is written, up to a limit."""
        until = time.monotonic() + _FLUSH_SECONDS
        while self._writer.taken < self._queued and time.monotonic() < until:
            self._writer.hurry.set()
            time.sleep(_FLUSH_LOOK_SECONDS)

    def close(self) -> None:
        super().close()
        self._writer.queue.put(None)  # and does not wait for the thread: the pipe may be full


class _Line(Struct, frozen=True):
    when: float
    level: int
    event: str
    facts: _Facts
    dropped_before: int  # lines since the last that was queued


class _Writer:
    """Writes lines in its own thread; counts those that could not be written to a full disk or a closed stream."""

    def __init__(self, stream: TextIO, form: _Form) -> None:
        self._stream, self._form = stream, form
        self.queue: SimpleQueue[_Line | None] = SimpleQueue()  # None: no more follow
        self.hurry = threading.Event()  # a caller waits until the queue is written
        self.taken = 0  # lines, altogether
        self.lost = 0
        self._lost_before = 0  # since the last that was written
        self._is_cut = False  # that one lacks its end

    def work(self) -> None:
        """Writes several lines at a time, because waking this thread for each line would cost the caller more than
        everything else. So it waits to be woken only if no line has arrived for a moment.
        """
        lines: list[_Line] = []
        while True:
            if self.queue.empty():
                if (line := self.queue.get()) is None:
                    return
                lines.append(line)  # written at once: there was none for a moment
            while len(lines) < _AT_ONCE and not self.queue.empty():
                if (line := self.queue.get()) is None:
                    self._take(lines)
                    return
                lines.append(line)
            self._take(lines)
            lines.clear()
            self._wait_a_moment()

    def _wait_a_moment(self) -> None:
        self.hurry.wait(_GATHERING_SECONDS)
        self.hurry.clear()

    def _take(self, lines: list[_Line]) -> None:
        written: list[str] = []
        for line in lines:
            lost = self._lost_before + line.dropped_before
            try:
                written.append(self._form(_facts(line, lost)))
                self._lost_before = 0
            except Exception:  # noqa: BLE001 -- or the thread would end, and the log with it
                self.lost, self._lost_before = self.lost + 1, self._lost_before + 1
        text = "".join(f"{line}\n" for line in written)
        left = self._write(f"\n{text}" if self._is_cut else text)
        self.lost, self._lost_before = self.lost + left, self._lost_before + left
        self.taken += len(lines)

    def _write(self, text: str) -> int:
        """The number of lines that could not be written. Writes past the stream's buffer, whose lock a thread that
        hangs in a full pipe would hold at the process's exit."""
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):  # no file, or closed
            return self._write_to_stream(text)
        data = memoryview(text.encode(self._stream.encoding, "backslashreplace"))
        try:
            while data:
                data = data[os.write(descriptor, data) :]
                self._is_cut = True
        except OSError:
            return bytes(data).count(b"\n")
        self._is_cut = False
        return 0

    def _write_to_stream(self, text: str) -> int:
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            return text.count("\n")
        return 0


def _facts(line: _Line, lost_before: int) -> dict[str, object]:
    """What is in every line first; long values cut."""
    facts: dict[str, object] = {
        "timestamp": f"{datetime.fromtimestamp(line.when, UTC).isoformat(timespec='microseconds')[:26]}Z",
        # some libraries have levels of their own in between
        "level": logging.getLevelName(min(line.level, logging.CRITICAL) // 10 * 10).lower(),
        "event": _cut(line.event, _LONGEST),
    }
    for name, value in line.facts.items():
        facts[name] = _cut(value, _LONGEST_BY_NAME.get(name, _LONGEST)) if isinstance(value, str) else value
    if lost_before:
        facts["lines_lost_before"] = lost_before
    return facts


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == _OURS.name or record.name.startswith(f"{_OURS.name}.")


def _first_line(record: logging.LogRecord) -> str:
    if record.name not in _QUOTED or not isinstance(record.msg, str):
        return "message of a library"
    return record.msg.partition("\n")[0]


def _described(error: BaseException, *, with_message: bool) -> Iterator[str]:
    """As Python does it, causes first; but messages are cut."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _described(before, with_message=with_message)
        yield "which led to:"
    for frame in traceback.format_tb(error.__traceback__):
        yield frame.rstrip("\n")
    message = f": {_cut(str(error), _LONGEST_MESSAGE)}" if with_message else ""
    yield f"{type(error).__qualname__}{message}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


# --- forms ----------------------------------------------------------------------------------------------


def _form(format: LogFormat, stream: TextIO) -> _Form:
    is_terminal = stream.isatty()
    match format:
        case "json":
            return json.dumps  # which escapes all but ASCII
        case "human" if is_terminal:
            is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
            return lambda facts: _short_line(facts, _unstyled if is_plain else _styled)
        case "human":
            return _full_line
        case "auto":
            return _form("human" if is_terminal else "json", stream)


_Style: TypeAlias = Callable[[str, str], str]

_BOLD, _DIM = "1", "2"
_OF_LEVELS = {"warning": "33", "error": "31", "critical": "31"}
_SHOWN_FIRST = ("timestamp", "level", "event", "exception")
_ONLY_IN_FILES = ("request_id", "owner", "trace_id", "span_id")  # they are there to be searched for
_SHORT_ID = 13  # characters of a run's id: `chat_` and eight


def _styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _unstyled(text: str, _style: str) -> str:
    return text


def _full_line(facts: _Facts) -> str:
    """One line; below it a traceback, all of whose lines are indented."""
    time, level, event = (visible_line(str(facts[name])) for name in _SHOWN_FIRST[:3])
    more = [f"{visible_line(name)}={_value(value)}" for name, value in facts.items() if name not in _SHOWN_FIRST]
    line = f"{time} [{level:9}] {f'{event:30}' if more else event}"
    return "\n".join([" ".join([line, *more]), *_trace(facts)])


def _short_line(facts: _Facts, styled: _Style) -> str:
    """For people who watch: the time of day here, the level if it is a problem, and what fits."""
    time = datetime.fromisoformat(str(facts["timestamp"])).astimezone().strftime("%H:%M:%S")
    level, event = (visible_line(str(facts[name])) for name in ("level", "event"))
    parts = [styled(time, _DIM)]
    if level in _OF_LEVELS:
        parts.append(styled(level, _OF_LEVELS[level]))
    parts.append(styled(event, _BOLD))
    for name, value in facts.items():
        if name not in (*_SHOWN_FIRST, *_ONLY_IN_FILES):
            shown = _value(value)
            parts.append(f"{styled(f'{visible_line(name)}=', _DIM)}{shown[:_SHORT_ID] if name == 'run_id' else shown}")
    return "\n".join([" ".join(parts), *_trace(facts)])


def _trace(facts: _Facts) -> list[str]:
    return [f"    {visible(frame)}" for frame in str(facts.get("exception", "")).splitlines()]


def _value(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    shown = visible_line(value)
    return repr(shown) if set(shown) & set(" ='\"") else shown
