"""Replay a recording of cursor-agent, chosen by the prompt, at its own pace.

A recording is the agent's output, one event per line; plain text after the last event is its stderr.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from cursor_gateway.errors import NotFound, SettingsError, unknown_model
from cursor_gateway.model.agent_events import AgentEvent, PromptEchoed, RunFailed, RunStarted
from cursor_gateway.model.documents import RecordingReason, ReplayedRecording
from cursor_gateway.sources.base import TOOLS_SERVER, Model, Source, SourceState, Turn
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.sources.cursor.failures import failure_of
from cursor_gateway.sources.cursor.records import REFUSED, AnyRecord, User, decode, read_again
from cursor_gateway.sources.recorder import PROMPT_REMOVED
from cursor_gateway.wire.lines import LineSplitter
from cursor_gateway.wire.payload import clamped

_READ_BYTES = 64 * 1024  # as much as one read of a pipe; the event loop runs other tasks in between
_LONGEST_PAUSE = 5.0  # seconds: no need to wait through a build
_SHORTEST_PAUSE = 0.005  # shorter ones are added up, since timers are no finer
_LAST_WORD_COUNT = 100  # of a prompt: the whole conversation may come before them
_LAST_CHARACTERS = 20_000  # the same
_LONGEST_PROMPT_LINE = 8 * _LAST_CHARACTERS  # bytes: no longer prompt can match
_PROMPT_LINES = 20  # the prompt is in the second line, after at most a few unknown ones
_NAMES = 8  # recordings named in a message
_NAMED = re.compile(r"\brecording:\s*[\"'`]?", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    _WORD.findall(
        "a about all also an and any are as at be but by can could did do does for from get give had has have "
        "how i if in into is it its just like make me more my need no not now of on one or our out over "
        "please see should show so some tell than that the their them then there these they this to up us use "
        "used using want was we were what when where which who why will with without would you your"
    )
)


class Recording(Struct, frozen=True):
    name: str
    data: bytes


def load(directory: Path) -> list[Recording]:
    """The folder's recordings, sorted by name. Raises `SettingsError` if there are none."""
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix in (".ndjson", ".jsonl") and file.is_file())
        recordings = [Recording(file.stem, file.read_bytes()) for file in files]
    except OSError as error:
        message = f"The recordings in {directory} cannot be read: {error.strerror}; set `replay_dir` to another folder."
        raise SettingsError(message, param="replay_dir") from None
    if not recordings:
        message = f"No recordings (*.ndjson, *.jsonl) in {directory}; make some with `record_dir`."
        raise SettingsError(message, param="replay_dir")
    return recordings


# --- choosing -------------------------------------------------------------------------------------------


class ChosenRecording(Struct, frozen=True):
    recording: Recording
    reason: RecordingReason


def choose(prompt: str, recordings: Sequence[Recording]) -> ChosenRecording:
    """The one named in the prompt; else one with the same prompt; else the most similar one; else the first."""
    prompt = prompt[-_LAST_CHARACTERS:]
    if named := _named(prompt, recordings):
        return ChosenRecording(named, "named")
    words = _words(prompt)
    prompts = [_words(recorded_prompt(recording.data)) for recording in recordings]
    same = [number for number, recorded in enumerate(prompts) if recorded and words[-len(recorded) :] == recorded]
    if same:
        return ChosenRecording(recordings[max(same, key=lambda number: len(prompts[number]))], "same_prompt")
    subjects = [
        _subjects([*recorded, *_words(recording.name.replace("_", " "))])
        for recorded, recording in zip(prompts, recordings, strict=True)
    ]
    counts = Counter(word for subject in subjects for word in subject)
    shared = [subject & _subjects(words[-_LAST_WORD_COUNT:]) for subject in subjects]
    alike = [sum(1 / counts[word] for word in common) for common in shared]
    best = max(alike)
    return ChosenRecording(recordings[alike.index(best)], "similar_prompt" if best else "default")


def _named(prompt: str, recordings: Sequence[Recording]) -> Recording | None:
    """`recording: NAME`. The last one in a conversation wins, and of two matching names the longer."""
    found: Recording | None = None
    names = [re.compile(rf"{re.escape(recording.name)}(?![\w-])", re.IGNORECASE) for recording in recordings]
    for place in _NAMED.finditer(prompt):
        matching = [
            recording for recording, name in zip(recordings, names, strict=True) if name.match(prompt, place.end())
        ]
        found = max(matching, key=lambda recording: len(recording.name), default=found)
    return found


def recorded_prompt(data: bytes) -> str:
    """The prompt in a recording; empty if it was not recorded."""
    for line in islice(BytesIO(data), _PROMPT_LINES):
        if len(line) > _LONGEST_PROMPT_LINE:  # decoding it would block all threads
            continue
        record: AnyRecord | None
        try:
            record = decode(line)
        except REFUSED:
            record = read_again(line)
        if isinstance(record, User):
            text = record.message.text
            return "" if text == PROMPT_REMOVED else text
    return ""


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _subjects(words: Sequence[str]) -> set[str]:
    """Keywords: `tests` and `test` are the same one, `the` is none."""
    return {word.removesuffix("s") for word in words if word not in _COMMON}


# --- pacing ---------------------------------------------------------------------------------------------


class _Timed(Struct):
    timestamp_ms: int | float | None = None


_decode_time = msgspec.json.Decoder(_Timed).decode


def paced(data: bytes, speed: float) -> Iterator[tuple[float, list[bytes]]]:
    """Yields a pause in seconds and the lines to send after it; a speed of 0 never pauses."""
    last: float | None = None
    pause = owed = 0.0
    for lines in _reads(data):
        together: list[bytes] = []
        for line in lines:
            time = _time_of(line) if speed else None
            if time is not None:
                if last is not None:
                    owed += min(max(0.0, time - last) / 1000 / speed, _LONGEST_PAUSE)
                last = time
            if owed >= _SHORTEST_PAUSE:
                if together:
                    yield pause, together
                pause, owed, together = owed, 0.0, []
            together.append(line)
        if together:
            yield pause, together
            pause = 0.0


def _reads(data: bytes) -> Iterator[list[bytes]]:
    splitter = LineSplitter()
    for start in range(0, len(data), _READ_BYTES):
        yield splitter.push(data[start : start + _READ_BYTES])
    yield splitter.flush()


def _time_of(line: bytes) -> float | None:
    try:
        time = _decode_time(line).timestamp_ms
    except REFUSED:
        return None
    return None if time is None else clamped(time)


def split_stderr(data: bytes) -> tuple[bytes, str]:
    """The agent's output, and its stderr: the lines after the last one that starts like an event."""
    last = data.rfind(b"\n{") + 1  # else the first line
    if not data.startswith(b"{", last):
        return b"", data.decode("utf-8", "replace")
    end = data.find(b"\n", last) + 1 or len(data)
    return data[:end], data[end:].decode("utf-8", "replace")


# --- the source -----------------------------------------------------------------------------------------


class ReplaySource(Source):
    holds_questions = False
    offers_tools = False  # recordings run no tools
    tools_server = TOOLS_SERVER

    def __init__(
        self,
        recordings: Sequence[Recording],
        speed: float,
        *,
        is_demo: bool,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._recordings, self._speed, self._is_demo, self._sleep = recordings, speed, is_demo, sleep
        id, label = ("demo", "Demo (built-in recordings)") if is_demo else ("replay", "Replay (recordings)")
        self._model = Model(id, label, is_default=True)

    def _names(self) -> str:
        names = ", ".join(recording.name for recording in self._recordings[:_NAMES])
        return f"{names}, …" if len(self._recordings) > _NAMES else names

    def state(self) -> SourceState:
        kind = "built-in recordings" if self._is_demo else "recording" if len(self._recordings) == 1 else "recordings"
        return SourceState(
            name=self._model.id,
            detail=f"{len(self._recordings)} {kind} ({self._names()}), no agent",
            is_demo=self._is_demo,
        )

    async def models(self) -> list[Model]:
        return [self._model]

    def has_session(self, turn: Turn) -> bool:
        return True  # a recording has no memory, so the history need not be sent again

    def account(self) -> None:
        """Recordings need no account."""

    def check_model(self, model: str) -> None:
        """A recording must not be mistaken for another model's answer; `auto` is always accepted."""
        if model not in ("auto", self._model.id):
            raise unknown_model(model, [self._model.id])

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        choice = await asyncio.to_thread(choose, turn.prompt, self._recordings)  # it reads the recorded prompts
        if choice.reason == "default" and not self._is_demo:  # fail, so that tests with recordings notice
            missing = NotFound(
                f"No recording matches this prompt. Select one with `recording: NAME` in the prompt: {self._names()}.",
                param="message",
            )
            yield [RunFailed(failure=missing.failure())]
            return
        recording = ReplayedRecording(name=choice.recording.name, reason=choice.reason)
        yield [RunStarted("", "", recording)]
        output, stderr_tail = split_stderr(choice.recording.data)
        decoder = CursorDecoder()
        for pause, lines in paced(output, self._speed):
            await self._sleep(pause)  # also for 0 seconds, to yield to other tasks
            if events := decoder.push(lines):
                yield [PromptEchoed(turn.prompt) if isinstance(event, PromptEchoed) else event for event in events]
        stray = "\n".join(text for text in (stderr_tail.strip(), decoder.stray_text) if text)
        if events := decoder.flush(failure_of(stray).failure()):
            yield events
