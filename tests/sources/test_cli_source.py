"""Turns with the stand-in agent: what it does as events, how it fails, and that nothing of it is left."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.model.agent_events import AgentEvent, RunFinished, RunStarted
from cursor_gateway.sources.base import LONGEST_LINE, AgentUse, SourceState
from cursor_gateway.sources.cli.source import CliOptions, CursorCliSource
from cursor_gateway.sources.cursor.command import CommandOptions
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.processes import start_of
from cursor_gateway.sources.recorder import Recorder
from tests.agent.account import VERSION
from tests.agent.install import install
from tests.sources.turns import Home, collected, failure, said

GRACE = 0.05  # for agents that never end by themselves


class Place(Home):
    """With the stand-in."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.recorder: Recorder | None = None
        self.set()

    def set(self, **knobs: object) -> None:
        self.program = install(self.home / "bin", knobs={"log": str(self.home / "log"), **knobs})

    def source(self, **options: Any) -> CursorCliSource:
        return CursorCliSource(CliOptions(**options), self.environ, self.ledger, lambda: 0.0, self.recorder)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(tmp_path).opened() as place:
        yield place


# --- what it does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
async def test_a_turn_is_reported_event_by_event(tmp_path: Path, place: Place, loop: Any) -> None:
    source = place.source()
    assert source.state() == SourceState(name="cli", detail="cursor-agent, not probed yet")
    events = await collected(source, place.turn("Hello, you."))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert "Hello, you." in said(events)
    assert source.state().detail == f"cursor-agent {VERSION} ({place.program})"
    await source.close()
    (entry,) = place.log
    assert (entry["cwd"], entry["workspace"]) == (str(tmp_path / "work"), str(tmp_path / "work"))
    assert (entry["prompt"], entry["source"]) == ("Hello, you.", "stdin")
    assert entry["config_dir"] == str(tmp_path / "conversation" / "cursor")
    assert entry["pgid"] == entry["pid"]
    assert "SECRET" not in entry["environment"]["names"]


async def test_an_agent_that_was_taken_away_is_missed_until_it_is_back(place: Place) -> None:
    place.program.with_name("agent").unlink()
    source = place.source()
    await source.probe()
    kept = place.program.read_bytes()
    place.program.unlink()
    assert "install it with" in source.state().missing
    place.program.mkdir()
    assert "install it with" in source.state().missing
    place.program.rmdir()
    place.program.write_bytes(kept)
    assert "install it with" in source.state().missing  # it may not be run yet
    place.program.chmod(0o755)
    assert source.state().missing == ""


@pytest.mark.parametrize("prompt", ["logout", "x" * 200_000])
async def test_a_prompt_that_no_argument_can_be_arrives_all_the_same(place: Place, prompt: str) -> None:
    assert isinstance((await collected(place.source(), place.turn(prompt)))[-1], RunFinished)
    assert [(entry["prompt"], entry["source"]) for entry in place.log] == [(prompt, "stdin")]


async def test_the_users_configuration_is_used_and_never_changed(tmp_path: Path, place: Place) -> None:
    config = tmp_path / ".cursor" / "cli-config.json"
    config.write_text('{"permissions":{"allow":["Shell(pwd)"],"deny":[]}}')
    await collected(place.source(), place.turn("standin: text", model="gpt-5-mini"))
    assert config.read_text() == '{"permissions":{"allow":["Shell(pwd)"],"deny":[]}}'
    copied = json.loads((tmp_path / "conversation" / "cursor" / "cli-config.json").read_text())
    assert copied["model"]["modelId"] == "gpt-5-mini"
    assert copied["permissions"]["allow"] == ["Shell(pwd)"]
    assert [path.name for path in (tmp_path / ".cursor").iterdir()] == ["cli-config.json"]


async def test_a_session_is_remembered_where_the_conversation_lives(place: Place) -> None:
    source = place.source()
    first = await collected(source, place.turn("Remember me."))
    assert isinstance(first[0], RunStarted)
    second = await collected(source, place.turn("standin: history", session_id=first[0].session_id))
    assert json.loads(said(second))["prompts"] == ["Remember me."]


async def test_images_of_the_conversation_are_a_folder_of_the_agent(tmp_path: Path, place: Place) -> None:
    (tmp_path / "conversation" / "images").mkdir()
    await collected(place.source(), place.turn("standin: text"))
    (entry,) = place.log
    assert entry["argv"][entry["argv"].index("--add-dir") + 1] == str(tmp_path / "conversation" / "images")


async def test_the_operators_options_reach_the_agent(place: Place) -> None:
    place.environ["MORE"] = "1"
    options = CommandOptions(trust=False, force=True, headers={"X-Team": "a"})
    await collected(place.source(command=options, environment=["MORE"]), place.turn("standin: text"))
    (entry,) = place.log
    assert "--force" in entry["argv"]
    assert "--trust" not in entry["argv"]
    assert "X-Team: a" in entry["argv"]
    assert "MORE" in entry["environment"]["names"]


# --- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "code", "details"),
    [
        ("crash exit=7", "agent_crashed", "exit status 7"),
        ("crash-early", "agent_crashed", "exit status 3"),
        ("killed", "agent_crashed", "ended by signal 9"),
        ("truncated", "agent_crashed", "exit status 0"),
        ("fail-auth", "agent_unauthenticated", "Authentication required"),
        ("fail-quota", "insufficient_quota", "usage limit"),
        ("fail-result", "agent_failed", "could not finish"),
    ],
)
async def test_a_turn_that_fails_says_how(place: Place, scenario: str, code: str, details: str) -> None:
    result = failure(await collected(place.source(), place.turn(f"standin: {scenario}")))
    assert result.code == code
    assert details in result.details


async def test_an_agent_that_the_system_has_ended_says_why_and_what_it_used(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for an agent in a cgroup: see test_cgroups."""
    uses = list[AgentUse]()
    monkeypatch.setattr(AgentProcess, "system_error", property(lambda self: errors.AgentOutOfMemory("Too much.")))
    monkeypatch.setattr(AgentProcess, "use", property(lambda self: AgentUse(1.5, 100, 1)))
    turn = replace(place.turn("standin: killed"), uses=uses)
    result = failure(await collected(place.source(), turn))
    assert (result.code, result.message, result.retryable) == ("agent_out_of_memory", "Too much.", False)
    ended = await collected(place.source(), replace(place.turn("standin: text"), uses=uses))
    assert isinstance(ended[-1], RunFinished)  # only a command was ended
    assert uses == [AgentUse(1.5, 100, 1)] * 2


async def test_an_agent_that_closes_its_output_and_stays_has_failed(place: Place) -> None:
    asked = 'case "$1" in --version) echo 2026.10.01-a; exit;; --help) echo Cursor; exit;; esac'
    place.program.write_text(f"#!/bin/sh\n{asked}\nexec >&-\nexec sleep 600\n")
    result = failure(await collected(place.source(grace_seconds=GRACE), place.turn("Hello")))
    assert (result.code, result.details) == ("agent_crashed", "it closed its output and did not end")


@pytest.mark.parametrize("scenario", ["hang-after-result", "grandchild-pipe group=session"])
async def test_an_agent_that_stays_after_its_result_is_not_waited_for(place: Place, scenario: str) -> None:
    events = await collected(place.source(grace_seconds=GRACE), place.turn(f"standin: {scenario}"))
    assert isinstance(events[-1], RunFinished)
    text = said(events)
    if "grandchild=" in text:
        async with asyncio.timeout(60):  # it was killed, and takes a moment to die
            while start_of(int(text.partition("=")[2])) is not None:
                await asyncio.sleep(0.001)


async def test_too_much_output_ends_the_agent(place: Place) -> None:
    source = place.source(max_output_bytes=100_000, grace_seconds=GRACE)
    with pytest.raises(errors.AgentOutputTooLarge, match="more than 100000 bytes"):
        await collected(source, place.turn("standin: huge-line size=2000000"))


async def test_a_line_without_an_end_ends_the_agent_before_all_else_is_full_of_it(place: Place) -> None:
    source = place.source(grace_seconds=GRACE)
    with pytest.raises(errors.AgentOutputTooLarge, match=f"a line of more than {LONGEST_LINE} bytes"):
        await collected(source, place.turn(f"standin: huge-line size={LONGEST_LINE + 8_000_000}"))


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("scenario", ["hang-mid", "ignore-term", "grandchild"])
@pytest.mark.parametrize("how", ["closed", "cancelled"])
@pytest.mark.quick_cases(5)
async def test_who_goes_ends_the_agent_and_all_that_it_has_started(
    place: Place, scenario: str, how: str, loop: Any
) -> None:
    seen: list[AgentEvent] = []
    reads = asyncio.Event()

    async def read() -> None:
        async with aclosing(place.source(grace_seconds=GRACE).events(place.turn(f"standin: {scenario}"))) as batches:
            async for batch in batches:
                seen.extend(batch)
                if said(seen).endswith((".", " ")) and said(seen).strip():
                    reads.set()
                    if how == "closed":
                        break

    reading = asyncio.ensure_future(read())
    await reads.wait()
    if how == "cancelled":
        reading.cancel()
    await asyncio.wait([reading])
    pids = [entry["pid"] for entry in place.log]
    if scenario == "grandchild":
        pids.append(int(said(seen).partition("=")[2]))
    while any(start_of(pid) is not None for pid in pids):
        pass


async def test_nothing_is_left_when_a_turn_cannot_be_written_down(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:

    def fail(*_: object) -> None:
        raise KeyError("a mistake of ours")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "add", fail)
        with pytest.raises(KeyError):
            await collected(place.source(grace_seconds=GRACE), place.turn("standin: hang"))


async def test_a_workspace_that_is_gone_is_reported(tmp_path: Path, place: Place) -> None:
    with pytest.raises(errors.GatewayError, match="cannot be started: No such file") as caught:
        await collected(place.source(), place.turn("Hello", workspace=str(tmp_path / "gone")))
    assert caught.value.details == str(tmp_path / "gone")


# --- what is recorded -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["text", "crash", "hang-mid", "ignore-term"])
async def test_every_turn_is_recorded_to_its_end(tmp_path: Path, place: Place, scenario: str) -> None:
    place.recorder = Recorder(tmp_path / "recordings", prompts=True)
    reading = asyncio.ensure_future(collected(place.source(grace_seconds=GRACE), place.turn(f"standin: {scenario}")))
    if scenario in ("hang-mid", "ignore-term"):
        while not any(b"assistant" in path.read_bytes() for path in (tmp_path / "recordings").glob("*")):
            await asyncio.sleep(0.001)
        reading.cancel()
        if scenario == "ignore-term":  # again, while the agent is being ended
            await asyncio.sleep(0)
            reading.cancel()
    await asyncio.wait([reading])
    while place.agents:
        await asyncio.sleep(0.001)
    (recording,) = (tmp_path / "recordings").iterdir()
    assert recording.suffix == ".ndjson"
    assert b'"assistant"' in recording.read_bytes()


# --- the program and its models -------------------------------------------------------------------------


async def test_the_program_is_asked_again_only_when_it_has_changed(place: Place) -> None:
    source = place.source()
    first = await source.probe()
    assert await source.probe() is first
    place.program.with_name("standin.json").write_text('{"version":"2026.11.01-new"}')
    assert await source.probe() is first
    os.utime(place.program, ns=(1, 1))
    assert (await source.probe()).version == "2026.11.01-new"
    place.program.unlink()
    place.program.with_name("agent").unlink()
    with pytest.raises(errors.AgentMissing):
        await source.probe()


async def test_many_at_once_ask_once(tmp_path: Path, place: Place) -> None:
    source = place.source()
    programs = await asyncio.gather(*(source.probe() for _ in range(5)))
    assert len({id(program) for program in programs}) == 1
    assert len((tmp_path / "log").read_text().splitlines()) == 2  # --version and --help


async def test_models_are_listed_and_then_known(place: Place) -> None:
    place.set(models=["auto - Auto", "gpt-5-mini - GPT-5 Mini"])
    source = place.source()
    source.check_model("gpt-9")  # not known to be wrong
    assert [model.id for model in await source.models()] == ["auto", "gpt-5-mini"]
    source.check_model("gpt-5-mini")
    with pytest.raises(errors.ModelUnavailable, match="did you mean gpt-5-mini"):
        source.check_model("gpt-5-mimi")
    await source.close()


async def test_a_list_that_fails_says_why(place: Place) -> None:
    place.set(login="none")
    source = place.source()
    with pytest.raises(errors.GatewayError) as caught:
        await source.models()
    assert caught.value.code == "agent_unauthenticated"
    await source.close()


async def test_a_source_that_is_closed_while_it_asks_leaves_no_process(place: Place) -> None:
    place.set(slow_start_seconds=600)
    source = place.source()
    asking = asyncio.ensure_future(source.models())
    while source._models._task is None:
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    await source.close()
    with pytest.raises(errors.GatewayError):
        await asking
