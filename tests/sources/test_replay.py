"""Replaying: which recording a prompt chooses, its pace, and that it says what the recorded run said."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from cursor_gateway import demo
from cursor_gateway.errors import ModelUnavailable, SettingsError
from cursor_gateway.model.agent_events import AgentEvent, PromptEchoed, RunFailed, RunFinished, RunStarted, TextDelta
from cursor_gateway.model.documents import ChatResponse, ReplayedRecording
from cursor_gateway.sources.base import Model, Source, SourceState, Turn
from cursor_gateway.sources.recorder import PROMPT_REMOVED
from cursor_gateway.sources.replay import Recording, ReplaySource, choose, load, paced, recorded_prompt, split_stderr
from tests.laws.laws import RUN, assemble, read, response_of
from tests.scenarios.golden import Scenario, scenarios

DEMO = [Recording(name, data) for name, data in demo.recordings().items()]
TURN = Turn(run_id="chat_1", prompt="Say it.", model="demo", workspace="/w", folder="/f")


def line(**record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def user(prompt: str) -> bytes:
    return line(type="user", message={"role": "user", "content": [{"type": "text", "text": prompt}]})


def delta(text: str, ms: int) -> bytes:
    return line(type="assistant", message={"content": [{"type": "text", "text": text}]}, timestamp_ms=ms)


def result(text: str) -> bytes:
    return line(type="result", subtype="success", result=text, duration_ms=5)


def asked(name: str, prompt: str) -> Recording:
    return Recording(name, line(type="system", subtype="init") + user(prompt) + result(""))


class Sleeps:
    """In place of the clock: what was waited for."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


def replayed(
    recording: Recording, *, speed: float = 0, turn: Turn = TURN, sleeps: Sleeps | None = None
) -> list[Sequence[AgentEvent]]:
    """Without its first batch, which says that it is a replay."""
    source = ReplaySource([recording], speed, is_demo=True, sleep=sleeps or Sleeps())
    (started,), *said = batches_of(source, turn)
    assert isinstance(started, RunStarted)
    assert started.recording
    return said


def batches_of(source: ReplaySource, turn: Turn) -> list[Sequence[AgentEvent]]:
    async def collected() -> list[Sequence[AgentEvent]]:
        return [batch async for batch in source.events(turn)]

    return asyncio.run(collected())


def events_of(recording: Recording, **options: Any) -> list[AgentEvent]:
    return [event for batch in replayed(recording, **options) for event in batch]


# --- which one ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("recording: plan", "plan"),
        ("Fix the failing tests. RECORDING: `question`", "question"),
        ("recording: failing_tests, please", "failing_tests"),
        ("recording: hello\n\nthen another: recording: explain.", "explain"),
        ("recording: plans", "plan"),  # no such name, but a word of it
        ("Fix the failing tests", "failing_tests"),
        ("You are a helper. User: Hello!\nUser: implement jwt authentication!", "jwt_authentication"),
        ("Why is one test failing?", "failing_tests"),
        ("Could you explain the retry to me?", "explain"),
        ("I need a plan", "plan"),
        ("We want the books in a database", "question"),
        ("add tokens with JWT", "jwt_authentication"),
        ("What is the weather in Paris?", "hello"),
        ("", "hello"),
    ],
)
def test_the_prompt_chooses_the_recording(prompt: str, name: str) -> None:
    assert choose(prompt, DEMO).recording.name == name


def test_a_name_wins_over_the_same_prompt_and_the_same_prompt_over_likeness() -> None:
    alike, same = asked("alike", "parse the red blue green file"), asked("same", "green file")
    assert choose("parse the red blue green file now: green file", [alike, same]).recording == same
    assert choose("recording: alike green file", [same, alike]).recording == alike


def test_of_two_names_and_of_two_prompts_the_longer_one_counts() -> None:
    short, long = asked("run", "the file"), asked("run.2", "read the file")
    assert choose("recording: run.2", [short, long]).recording == long
    assert choose("recording: run", [long, short]).recording == short
    assert choose("Read the file.", [short, long]).recording == long


def test_rare_words_weigh_more_than_common_ones() -> None:
    recordings = [asked("a", "red blue apple"), asked("b", "red blue pear"), asked("c", "red blue plum")]
    assert choose("a red, blue or whatever pear", recordings).recording.name == "b"


def test_only_the_last_words_of_a_long_conversation_choose() -> None:
    recordings = [asked("cats", "feed cats"), asked("dogs", "walk dogs")]
    assert choose("feed the cats " * 60 + "x " * 100 + "and the dogs", recordings).recording.name == "dogs"


@pytest.mark.parametrize(
    ("prompt", "name", "reason"),
    [
        ("recording: cats, please", "cats", "named"),
        ("Please walk dogs!", "dogs", "same_prompt"),
        ("What do cats eat?", "cats", "similar_prompt"),
    ],
)
@pytest.mark.parametrize("is_demo", [True, False])
def test_the_answer_says_which_recording_it_is_and_why(prompt: str, name: str, reason: str, is_demo: bool) -> None:
    recordings = [asked("cats", "feed cats"), asked("dogs", "walk dogs")]
    turn = msgspec.structs.replace(TURN, prompt=prompt)
    batches = batches_of(ReplaySource(recordings, 0, is_demo=is_demo), turn)
    recording = response_of(assemble([event for batch in batches for event in batch], RUN)).metadata.recording
    assert recording is not UNSET
    assert (recording.name, recording.reason) == (name, reason)


def test_where_no_recording_fits_only_the_demo_answers() -> None:
    recordings = [asked("cats", "feed cats"), asked("dogs", "walk dogs")]
    turn = msgspec.structs.replace(TURN, prompt="What is the weather in Paris?")
    (failed,) = batches_of(ReplaySource(recordings, 0, is_demo=False), turn)
    assert isinstance(failed[0], RunFailed)
    assert (failed[0].failure.code, failed[0].failure.status) == ("not_found", 404)
    assert "No recording matches this prompt. Select one with `recording: NAME` in the prompt: cats, dogs." in str(
        failed[0].failure.message
    )
    first, *_ = batches_of(ReplaySource(recordings, 0, is_demo=True), turn)
    assert first == [RunStarted("", "", ReplayedRecording(name="cats", reason="default"))]


def test_the_recorded_prompt_is_found_in_any_shape_and_not_where_it_was_removed() -> None:
    assert recorded_prompt(asked("x", "Do it.").data) == "Do it."
    assert recorded_prompt(b'\nstrange\n{"type":"user","message":{"content":"as text"}}') == "as text"
    assert recorded_prompt(user(PROMPT_REMOVED)) == ""
    assert recorded_prompt(result("") + b"Error: it broke") == ""
    assert recorded_prompt(b"x\n" * 30 + user("too late")) == ""


# --- its pace -------------------------------------------------------------------------------------------


def test_pauses_are_the_recorded_ones_divided_by_the_speed() -> None:
    lines = [user("x"), delta("a", 1000), delta("b", 1250), result("ab")]
    data = b"".join(lines)
    assert list(paced(data, 1)) == [(0.0, _bare(lines[:2])), (0.25, _bare(lines[2:]))]
    assert list(paced(data, 2)) == [(0.0, _bare(lines[:2])), (0.125, _bare(lines[2:]))]
    assert list(paced(data, 0)) == [(0.0, _bare(lines))]


def test_long_pauses_are_cut_short_ones_add_up_and_time_does_not_go_back() -> None:
    times = [0, 60_000, 10_000, 10_002, 10_004, 10_006, 10_008, 10_108]
    data = b"".join(delta("x", time) for time in times)
    pauses = [(round(pause, 6), len(lines)) for pause, lines in paced(data, 1)]
    assert pauses == [(0.0, 1), (5.0, 4), (0.006, 2), (0.102, 1)]


def test_lines_without_a_readable_time_follow_at_once() -> None:
    strange = [b"strange", b'{"timestamp_ms":"soon"}', b"[" * 10_000, b"\xff"]
    data = delta("a", 0) + b"\n".join(strange) + b"\n" + delta("b", 100)
    assert [pause for pause, _ in paced(data, 1)] == [0.0, 0.1]


@pytest.mark.parametrize("speed", [0, 1])
def test_a_long_recording_lets_others_have_their_turn(speed: float) -> None:
    lines = [delta("x" * 1000, 0)] * 1000
    sleeps = Sleeps()
    data = b"".join(lines) + result("x" * 1_000_000)
    assert max(sum(map(len, group)) for _, group in list(paced(data, speed))[:-1]) < 70_000
    text = "".join(
        event.text for event in events_of(Recording("x", data), speed=speed, sleeps=sleeps) if type(event) is TextDelta
    )
    assert text == "x" * 1_000_000
    assert len(sleeps.pauses) >= 15
    assert set(sleeps.pauses) == {0.0}


def test_a_pause_at_the_end_of_a_read_is_kept() -> None:
    full = delta("x" * (65_536 - len(delta("", 0))), 0)
    assert [(pause, len(lines)) for pause, lines in paced(full + delta("b", 100), 1)] == [(0.0, 1), (0.1, 1)]


def test_it_waits_before_it_speaks() -> None:
    sleeps = Sleeps()
    data = delta("a", 0) + delta("b", 40) + delta("c", 70) + result("abc")
    batches = replayed(Recording("x", data), speed=1, sleeps=sleeps)
    assert sleeps.pauses == [0.0, 0.04, 0.03]
    assert batches == [[TextDelta("a")], [TextDelta("b")], [TextDelta("c"), RunFinished(duration_ms=5)]]


async def test_a_reader_that_leaves_ends_it() -> None:
    sleeps = Sleeps()
    source = ReplaySource([Recording("x", delta("a", 0) + delta("b", 40))], 1, is_demo=True, sleep=sleeps)
    async with aclosing(source.events(TURN)) as batches:
        await anext(batches)  # what is replayed
        batch = await anext(batches)
    assert sleeps.pauses == [0.0]
    assert batch == [TextDelta("a")]


# --- what it says ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("speed", [0, 3])
def test_a_replay_is_the_run_that_was_recorded(scenario: Scenario, speed: float) -> None:
    data = b"".join(scenario.lines)
    turn = msgspec.structs.replace(TURN, prompt=recorded_prompt(data))
    events = events_of(Recording("x", data), speed=speed, turn=turn)
    assert _plain(response_of(assemble(events, RUN))) == _plain(response_of(read(data)))


@pytest.mark.parametrize("recording", DEMO, ids=lambda recording: recording.name)
def test_the_demo_completes_at_any_speed(recording: Recording) -> None:
    for speed in (0, 1, 1000):
        sleeps = Sleeps()
        response = response_of(assemble(events_of(recording, speed=speed, sleeps=sleeps), RUN))
        assert response == response_of(read(recording.data))
        assert speed != 1 or 2 < sum(sleeps.pauses) < 60


def test_the_prompt_is_the_turns_own() -> None:
    data = line(type="system", subtype="init", session_id="s", model="Auto") + user("recorded") + result("")
    turn = msgspec.structs.replace(TURN, prompt="one two three four five six seven eight")
    events = events_of(Recording("x", data), turn=turn)
    assert events == [RunStarted("s", "Auto"), PromptEchoed(turn.prompt), RunFinished(duration_ms=5)]
    assert response_of(assemble(events)).usage.prompt_tokens >= 8


def test_a_recording_that_stops_short_is_a_failed_run() -> None:
    *_, last = events_of(Recording("x", delta("a", 0)))
    assert isinstance(last, RunFailed)
    assert last.failure.code == "agent_crashed"
    assert isinstance(events_of(Recording("x", b""))[-1], RunFailed)


def test_plain_lines_at_the_end_are_why_it_failed_and_no_strange_events() -> None:
    words = b"\nError: You've hit your usage limit\nspendLimitHit: false\n"
    events = events_of(Recording("x", delta("a", 0) + words))
    assert [type(event) for event in events] == [TextDelta, RunFailed]
    assert isinstance(events[-1], RunFailed)
    assert events[-1].failure.code == "insufficient_quota"
    assert events[-1].failure.details == words.decode().strip()


def test_plain_lines_among_the_events_explain_a_failure_too() -> None:
    *_, last = events_of(Recording("x", b"T: [resource_exhausted] Error\n" + delta("a", 0)))
    assert isinstance(last, RunFailed)
    assert last.failure.code == "agent_overloaded"


@pytest.mark.parametrize(
    ("data", "output", "words"),
    [
        (b"", b"", ""),
        (b"Error", b"", "Error"),
        (b"{}", b"{}", ""),
        (b"{}\n", b"{}\n", ""),
        (b"{}\nError\n {}\n", b"{}\n", "Error\n {}\n"),
        (b'Warning\n{}\n{"cut of', b'Warning\n{}\n{"cut of', ""),
        (b"{}\n\xff", b"{}\n", "\ufffd"),
    ],
)
def test_the_output_ends_where_the_last_event_ends(data: bytes, output: bytes, words: str) -> None:
    assert split_stderr(data) == (output, words)


# --- the source -----------------------------------------------------------------------------------------


def test_the_demo_says_that_it_is_one() -> None:
    source: Source = ReplaySource(DEMO, 1, is_demo=True)
    assert source.state() == SourceState(
        name="demo", detail=f"11 built-in recordings ({', '.join([*demo.recordings()][:8])}, …), no agent", is_demo=True
    )
    assert asyncio.run(source.models()) == [Model("demo", "Demo (built-in recordings)", is_default=True)]
    asyncio.run(source.close())


@pytest.mark.parametrize(("is_demo", "model"), [(True, "demo"), (False, "replay")])
def test_a_recording_does_not_pass_for_the_answer_of_another_model(is_demo: bool, model: str) -> None:
    source: Source = ReplaySource(DEMO, 1, is_demo=is_demo)
    source.check_model(model)
    source.check_model("auto")
    with pytest.raises(ModelUnavailable, match=model):
        source.check_model("gpt-5")


def test_a_folder_of_recordings_is_a_model_of_its_own() -> None:
    source = ReplaySource([asked(str(number), "") for number in range(20)], 1, is_demo=False)
    state = source.state()
    assert (state.name, state.is_demo) == ("replay", False)
    assert state.detail == "20 recordings (0, 1, 2, 3, 4, 5, 6, 7, …), no agent"
    assert [(model.id, model.is_default) for model in asyncio.run(source.models())] == [("replay", True)]


def test_recordings_are_loaded_by_name(tmp_path: Path) -> None:
    for name in ("b.ndjson", "a.jsonl", "c.ndjson.part", "notes.txt"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "folder.ndjson").mkdir()
    assert load(tmp_path) == [Recording("a", b"a.jsonl"), Recording("b", b"b.ndjson")]


def test_a_folder_without_recordings_is_a_setting_to_mend(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No recordings"):
        load(tmp_path)
    with pytest.raises(SettingsError, match="No such file or directory; set `replay_dir`") as caught:
        load(tmp_path / "missing")
    assert caught.value.param == "replay_dir"
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="Not a directory"):
        load(tmp_path / "file")


def _bare(lines: list[bytes]) -> list[bytes]:
    return [line.removesuffix(b"\n") for line in lines]


def _plain(response: ChatResponse) -> ChatResponse:
    """Without the count of strange lines: a replay takes those at the end for what was said on stderr."""
    metadata = msgspec.structs.replace(response.metadata, unrecognized=UNSET)
    return msgspec.structs.replace(response, metadata=metadata)
