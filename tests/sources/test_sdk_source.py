"""Turns by the SDK with the stand-in bridge: what they do as events, how they fail, and that nothing is left."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cursor_gateway import errors
from cursor_gateway.model import agent_events
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.sources.base import OfferedTools, Turn
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.processes import members, signal_group
from cursor_gateway.sources.sdk import bridge as bridges
from cursor_gateway.sources.sdk.bridge import BridgeOptions
from cursor_gateway.sources.sdk.run import HeldCalls
from cursor_gateway.sources.sdk.source import CursorSdkSource, SdkOptions, unavailable
from tests.agent.bridge_install import install_bridge, set_knobs
from tests.agent.records import records
from tests.runs.scripted import true

WAIT = 60  # for a red build only
NOBODY = "00000000-0000-4000-8000-000000000000"


class Place:
    """A user's home with the stand-in bridge in it."""

    def __init__(self, home: Path, **knobs: object) -> None:
        self.home = home
        for folder in ("work", "conversation", "tmp"):
            (home / folder).mkdir(exist_ok=True)
        self.command = install_bridge(home / "bridge")
        self.set(**knobs)
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "CURSOR_API_KEY": "key",
            "SECRET": "secret",
        }
        self.ledger = Ledger(home / "instances")
        self.sources: list[CursorSdkSource] = []

    def set(self, **knobs: object) -> None:
        set_knobs(self.home / "bridge", **{"log": str(self.home / "log"), **knobs})

    def source(
        self, *, force: bool = False, cancel_seconds: float = 5.0, max_output_bytes: int = 2**28, **options: Any
    ) -> CursorSdkSource:
        bridge = BridgeOptions(**{"command": self.command, "grace_seconds": 0.5, **options})
        made = SdkOptions(
            folder=self.home / "sdk",
            bridge=bridge,
            force=force,
            cancel_seconds=cancel_seconds,
            max_output_bytes=max_output_bytes,
        )
        self.sources.append(CursorSdkSource(made, self.environ, self.ledger, lambda: 0.0))
        return self.sources[-1]

    def turn(self, prompt: str, **turn: Any) -> Turn:
        places = {"workspace": str(self.home / "work"), "folder": str(self.home / "conversation")}
        return Turn(**{"run_id": "chat_1", "prompt": prompt, "model": "auto", **places, **turn})

    @property
    def log(self) -> list[dict[str, Any]]:
        return records(self.home / "log")

    def asked(self, method: str) -> list[dict[str, Any]]:
        return [entry["request"] for entry in self.log if entry["method"] == method]

    @property
    def pids(self) -> list[int]:
        return list(dict.fromkeys(entry["pid"] for entry in self.log))

    @property
    def agents(self) -> list[str]:
        return [entry.name for entry in (self.ledger.folder / "agents").iterdir()]


def lived(place: Place, live: Callable[[], Coroutine[Any, Any, None]], loop: Any = asyncio.run) -> None:
    """Whatever happens: no process, no socket, no file and no token is left."""

    async def bounded() -> None:
        await asyncio.wait_for(live(), WAIT)

    place.ledger.open()
    try:
        loop(bounded())
        assert place.agents == []
        assert [source._hooks._server for source in place.sources] == [None] * len(place.sources)
        assert [members(pid) for pid in place.pids] == [[]] * len(place.pids)
        assert list((place.home / "tmp").iterdir()) == []
    finally:
        for entry in place.agents:  # of a test that has failed before it closed its source
            signal_group(int(entry.partition("-")[0]), signal.SIGKILL)
        place.ledger.close()


def freeze(pid: int) -> None:
    """Returns when all its threads have stopped: those that have not taken the signal yet go on."""
    os.kill(pid, signal.SIGSTOP)
    if sys.platform == "linux":
        end = time.monotonic() + WAIT
        while not all("T (stopped)" in file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/status")):
            assert time.monotonic() < end
            time.sleep(0.001)


async def collected(source: CursorSdkSource, turn: Turn) -> list[agent_events.AgentEvent]:
    async with aclosing(source.events(turn)) as batches:
        return [event async for batch in batches for event in batch]


def played(
    place: Place, *prompts: str, turn: dict[str, Any] | None = None, **options: Any
) -> list[list[agent_events.AgentEvent]]:
    """The events of each turn, one after the other."""
    result: list[list[agent_events.AgentEvent]] = []

    async def live() -> None:
        source = place.source(**options)
        try:
            for prompt in prompts:
                result.append(await collected(source, place.turn(prompt, **(turn or {}))))
        finally:
            await source.close()

    lived(place, live)
    return result


def said(events: Sequence[agent_events.AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, agent_events.TextDelta))


def failure(events: Sequence[agent_events.AgentEvent]) -> errors.Failure:
    last = events[-1]
    assert isinstance(last, agent_events.RunFailed), last
    return last.failure


def turns_known(events: Sequence[agent_events.AgentEvent]) -> int:
    """What `standin: history` says."""
    assert isinstance(events[-1], agent_events.RunFinished), events[-1]
    count = json.loads(said(events))["turns"]
    assert isinstance(count, int)
    return count


def session(events: Sequence[agent_events.AgentEvent]) -> str:
    return next(event.session_id for event in events if isinstance(event, agent_events.RunStarted))


# --- what it does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_a_turn_is_reported_event_by_event(tmp_path: Path, loop: Any) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        assert "not started" in source.state().detail
        batches = []
        async for batch in source.events(place.turn("standin: slow count=3 delay_ms=30")):
            batches.append(batch)
        assert len(batches) > 1  # as it comes, not at once
        events = [event for batch in batches for event in batch]
        assert isinstance(events[0], agent_events.RunStarted)
        assert events[0].model == "auto"
        assert said(events) == "0 1 2 "
        assert isinstance(events[-1], agent_events.RunFinished)
        assert str(place.pids[0]) in source.state().detail
        assert await source.probe() == "1.0.0-standin"
        assert len(place.agents) == 1
        await source.close()

    lived(place, live, loop)
    assert [entry["method"] for entry in place.log] == ["CreateAgent", "Send", "CloseAgent", "GetVersion"]


def test_turns_go_on_at_the_same_time(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        turns = [place.turn(f"standin: say\n---\nNumber {number}") for number in range(12)]
        result = await asyncio.gather(*(collected(source, turn) for turn in turns))
        assert [said(events) for events in result] == [f"Number {number}" for number in range(12)]
        assert len({session(events) for events in result}) == 12
        await source.close()

    lived(place, live)
    assert len(place.pids) == 1


def test_what_the_bridge_is_asked_for(tmp_path: Path) -> None:
    place = Place(tmp_path)
    played(place, "standin: text", turn={"mode": "plan", "model": "grok-4.7-256k[effort=high]"})
    played(place, "standin: text", turn={"mode": "ask"}, force=True)
    planned, asked = [request["options"] for request in place.asked("CreateAgent")]
    assert planned["model"] == {"id": "grok-4.7-256k", "params": [{"id": "effort", "value": "high"}]}
    sources = ["SETTING_SOURCE_PROJECT", "SETTING_SOURCE_USER"]
    assert planned["local"] == {"cwd": [str(tmp_path / "work")], "settingSources": sources}
    assert "tools" not in planned
    assert {"askQuestion", "shell", "task"} <= {*planned["disallowedTools"]}
    assert asked["disallowedTools"] == ["askQuestion"]
    assert "read" in asked["tools"]["names"]
    assert "shell" not in asked["tools"]["names"]
    sent = [request["options"] for request in place.asked("Send")]
    assert [options["mode"] for options in sent] == ["AGENT_MODE_OPTION_PLAN", "AGENT_MODE_OPTION_AGENT"]
    assert all(options["enableDeltas"] for options in sent)
    assert "local" not in sent[0]


def test_the_bridge_is_given_no_secrets(tmp_path: Path) -> None:
    (events,) = played(Place(tmp_path), "standin: echo-env")
    names = json.loads(said(events))["names"]
    assert "HOME" in names
    assert "CURSOR_API_KEY" not in names
    assert "SECRET" not in names


def test_a_proxy_of_the_environments_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        place.environ[name] = "http://127.0.0.1:9"
    runner = Runner()
    (events,) = played(place, 'standin: program\n---\n[{"call": "add", "args": {"a": 1}}]', turn=runner.offered)
    assert said(events) == "Results: add 1"


@pytest.mark.parametrize("knobs", [{}, {"not_ready": "2"}, {"not_ready": "1"}])
def test_the_bridge_is_started_in_advance(tmp_path: Path, knobs: dict[str, object]) -> None:
    place = Place(tmp_path, **knobs)

    async def live() -> None:
        source = place.source()
        source.warm_up("/")
        source.warm_up("/")
        if knobs:  # it never comes, or ends
            while not place.agents:
                await asyncio.sleep(0.001)
        else:
            while "runs as process" not in source.state().detail:
                await asyncio.sleep(0.001)
            (begun, *_) = await collected(source, place.turn("standin: text"))
            assert isinstance(begun, agent_events.RunStarted)
            assert begun.is_warm
        await source.close()
        source.warm_up("/")

    lived(place, live)
    assert len(place.pids) == (0 if knobs else 1)


# --- models and keys --------------------------------------------------------------------------------------


def test_models_are_listed_once_and_known_from_then_on(tmp_path: Path) -> None:
    place = Place(tmp_path, models=["auto - Auto", "gpt-5-mini"])

    async def live() -> None:
        source = place.source()
        source.check_model("whatever")
        assert [(model.id, model.label) for model in await source.models()] == [
            ("auto", "Auto"),
            ("gpt-5-mini", "gpt-5-mini"),
        ]
        await source.models()
        with pytest.raises(errors.ModelUnavailable, match="did you mean gpt-5-mini"):
            source.check_model("gpt-5-min")
        source.check_model("gpt-5-mini")
        unknown = failure(await collected(source, place.turn("x", model="gpt-5-min")))
        assert (unknown.code, unknown.param) == ("model_not_found", "model")
        assert "did you mean gpt-5-mini" in unknown.message
        await source.close()

    lived(place, live)
    assert len(place.asked("ListModels")) == 1


def test_a_missing_list_of_models_is_an_error(tmp_path: Path) -> None:
    place = Place(tmp_path, models_error="resource_exhausted RATE_LIMIT_EXCEEDED 3s slowly")

    async def live() -> None:
        source = place.source()
        with pytest.raises(errors.AgentOverloaded):
            await source.models()
        place.set(version_error="unavailable - - no")
        assert await source.models()
        with pytest.raises(errors.GatewayError, match="lost its connection"):
            await source.probe()
        await source.close()

    lived(place, live)


def test_without_a_key_nothing_is_started(tmp_path: Path) -> None:
    place = Place(tmp_path)
    del place.environ["CURSOR_API_KEY"]

    async def live() -> None:
        source = place.source()
        for asked in (collected(source, place.turn("x")), source.models(), source.probe()):
            with pytest.raises(errors.AgentUnauthenticated, match="CURSOR_API_KEY"):
                await asked
        await source.close()

    lived(place, live)
    assert place.log == []
    assert isinstance(unavailable(place.environ), errors.AgentUnauthenticated)
    assert unavailable({"CURSOR_API_KEY": "key"}) is None


def test_a_key_that_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.environ["CURSOR_API_KEY"] = "bad-key"
    (events,) = played(place, "standin: text")
    assert len(events) == 1
    assert failure(events).code == "agent_unauthenticated"


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    monkeypatch.setattr("cursor_gateway.sources.sdk.source.find_spec", lambda name: None)
    monkeypatch.setattr("cursor_gateway.sources.sdk.bridge.find_spec", lambda name: None)

    async def live() -> None:
        source = place.source()
        with pytest.raises(errors.AgentMissing, match=r"pipx install --force '\.\[sdk\]'"):
            await collected(source, place.turn("x"))
        with pytest.raises(errors.AgentMissing, match=r"pipx install --force '\.\[sdk\]'"):
            await bridges.load()
        await source.close()

    lived(place, live)


# --- failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "code"),
    [
        ("fail-auth", "agent_unauthenticated"),
        ("fail-key", "agent_unauthenticated"),
        ("fail-trust", "agent_misconfigured"),
        ("fail-model", "model_not_found"),
        ("fail-resume", "session_lost"),
        ("fail-force", "agent_misconfigured"),
        ("fail-sandbox", "agent_misconfigured"),
        ("fail-free-plan", "model_not_found"),
        ("fail-quota", "insufficient_quota"),
        ("fail-quota-early", "insufficient_quota"),
        ("fail-capacity", "agent_overloaded"),
        ("fail-network", "agent_unreachable"),
        ("fail-internal", "agent_unreachable"),
        ("fail-result", "agent_failed"),
        ("truncated", "agent_crashed"),
        ("crash", "agent_crashed"),
        ("crash-early", "agent_crashed"),
        ("killed", "agent_crashed"),
        ("sdk-result status=CANCELLED", "cancelled"),
        ("sdk-result status=EXPIRED", "agent_timed_out"),
        ("sdk-result code=plan_required", "agent_misconfigured"),
    ],
)
@pytest.mark.quick_cases(2)
def test_a_failure_says_what_happened_and_the_next_turn_is_served(tmp_path: Path, scenario: str, code: str) -> None:
    events, after = played(Place(tmp_path), f"standin: {scenario}", "standin: text")
    assert failure(events).code == code
    assert sum(isinstance(event, agent_events.RunFailed | agent_events.RunFinished) for event in events) == 1
    assert isinstance(after[-1], agent_events.RunFinished)


def test_too_much_output_ends_the_turn(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source(max_output_bytes=100_000)
        try:
            with pytest.raises(errors.GatewayError, match="more than 100000 bytes"):
                await collected(source, place.turn("standin: text chunks=50 length=200000"))
            assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
        finally:
            await source.close()

    lived(place, live)
    assert place.asked("CancelRun")


ERROR = "unavailable RATE_LIMIT_EXCEEDED 3s too many"


def test_an_error_of_the_stream_may_come_first_or_last(tmp_path: Path) -> None:
    early, late = played(
        Place(tmp_path), f'standin: sdk-error early=1 error="{ERROR}"', f'standin: sdk-error error="{ERROR}"'
    )
    assert len(early) == 1
    assert said(late) == "I was about to say more."
    for events in (early, late):
        assert failure(events).code == "agent_overloaded"
        assert failure(events).retry_after == 3
        assert failure(events).details == "too many"


def test_a_model_that_the_plan_does_not_have_is_not_called_unknown(tmp_path: Path) -> None:
    error = "failed_precondition - - Named models unavailable Free plans can only use Auto."
    (events,) = played(Place(tmp_path), f'standin: sdk-error early=1 error="{error}"')
    assert failure(events).code == "model_not_found"
    assert "can only use the model `auto`" in failure(events).message


@pytest.mark.parametrize("knob", ["create_error", "send_error"])
def test_an_error_before_the_run_is_the_only_event(tmp_path: Path, knob: str) -> None:
    (events,) = played(Place(tmp_path, **{knob: "internal - - Network request failed"}), "standin: text")
    assert len(events) == 1
    assert failure(events).code == "agent_unreachable"


def test_a_bridge_that_does_not_know_us_is_our_own_fault(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        await source.probe()
        place.set(token="another")
        assert failure(await collected(source, place.turn("x"))).code == errors.GatewayFault.code
        with pytest.raises(errors.GatewayFault):
            await source.probe()
        place.set()
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
        await source.close()

    lived(place, live)


def test_a_key_that_is_refused_without_a_word_is_no_fault_of_ours(tmp_path: Path) -> None:
    (events,) = played(Place(tmp_path, create_error="unauthenticated - - no"), "standin: text")
    assert failure(events).code == "agent_unauthenticated"


# --- sessions ---------------------------------------------------------------------------------------------


def test_a_session_goes_on_also_with_another_gateway(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (first,) = played(place, "standin: say\n---\nOne.")
    again = {"session_id": session(first)}
    second, third = played(place, "Two.", "standin: history", turn=again)
    assert session(second) == session(first)
    known = json.loads(said(third))
    assert known["answers"] == ["One.", "You said: Two."]
    assert len(place.pids) == 2
    assert [request["agentId"] for request in place.asked("ResumeAgent")] == [session(first)] * 2


def test_a_session_that_is_gone_is_lost_and_known_to_be(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        turn = place.turn("standin: text", session_id=NOBODY)
        assert source.has_session(turn)
        events = await collected(source, turn)
        assert len(events) == 1
        assert failure(events).code == "session_lost"
        assert not source.has_session(turn)
        assert source.has_session(place.turn("x", session_id="another"))
        await source.close()

    lived(place, live)


def test_a_run_that_somebody_has_left_is_put_aside(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        first = place.turn("standin: hang-mid")
        async with aclosing(source.events(first)) as batches:
            begun = await anext(batches)
            again = await collected(source, place.turn("standin: text", session_id=session(begun)))
            assert isinstance(again[-1], agent_events.RunFinished)
            rest = [event async for batch in batches for event in batch]
            assert failure(rest).code == "agent_timed_out"
        await source.close()

    lived(place, live)
    assert [request["options"].get("local") for request in place.asked("Send")] == [None, None, {"force": True}]


# --- cancelling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("scenario", ["hang-mid", "slow count=1000 delay_ms=20", "hang-after-init"])
def test_who_leaves_ends_the_run(tmp_path: Path, scenario: str, loop: Any) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        async with aclosing(source.events(place.turn(f"standin: {scenario}"))) as batches:
            begun = await anext(batches)
        assert len(place.asked("CancelRun")) == 1
        assert place.asked("CloseAgent") == [{"agentId": session(begun)}]
        after = await collected(source, place.turn("standin: history", session_id=session(begun)))
        assert turns_known(after) == 1
        await source.close()

    lived(place, live, loop)
    assert len(place.pids) == 1


class Following:
    """A turn that goes on beside the test, and what it has told so far."""

    def __init__(self, source: CursorSdkSource, turn: Turn) -> None:
        self.events: list[agent_events.AgentEvent] = []
        self.task = asyncio.create_task(self._follow(source, turn))

    async def _follow(self, source: CursorSdkSource, turn: Turn) -> None:
        async with aclosing(source.events(turn)) as batches:
            async for batch in batches:
                self.events.extend(batch)

    async def ended(self) -> list[agent_events.AgentEvent]:
        await self.task
        return self.events


async def broken_off(source: CursorSdkSource, turn: Turn, when: Callable[[], object]) -> None:
    task = asyncio.create_task(collected(source, turn))
    await true(when)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.parametrize("scenario", ["mute", "hang"])
def test_a_run_that_has_not_said_its_name_is_ended_too(tmp_path: Path, scenario: str) -> None:
    place = Place(tmp_path, keep_alive_seconds=0.05)

    async def live() -> None:
        source = place.source()
        await broken_off(source, place.turn(f"standin: {scenario}"), lambda: place.asked("Send"))
        assert len(place.asked("CancelRun")) == 1
        await source.close()

    lived(place, live)


def test_who_is_cancelled_twice_still_ends_the_run_before_the_next_turn(tmp_path: Path) -> None:
    """A call that is given up may break off the run that is just being ended."""
    place, runner = Place(tmp_path), Runner()

    async def live() -> None:
        source = place.source()
        for number in (1, 2):
            following = Following(source, place.turn(program(call("hold", **{"as": "a"})), **runner.offered))
            await true(lambda: runner.held)
            runner.held.clear()
            following.task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            following.task.cancel()
            await asyncio.wait([following.task])
            assert len(place.asked("CloseAgent")) < 2 * number
            again = place.turn("standin: text", session_id=session(following.events), **runner.offered)
            if number == 1:
                assert isinstance((await collected(source, again))[-1], agent_events.RunFinished)
        await source.close()
        assert len(place.asked("CancelRun")) == 2
        assert len(place.asked("CloseAgent")) == 3
        assert runner.given_up == ["a", "a"]

    lived(place, live)


def test_an_agent_that_nobody_waits_for_is_closed(tmp_path: Path) -> None:
    place = Place(tmp_path, create_seconds=0.1)

    async def live() -> None:
        source = place.source()
        await broken_off(source, place.turn("standin: text"), lambda: place.asked("CreateAgent"))
        await source.close()
        assert len(place.asked("CloseAgent")) == 1
        assert place.asked("Send") == []

    lived(place, live)


def test_nobody_is_left_with_a_failure_that_nobody_waits_for(tmp_path: Path) -> None:
    place = Place(tmp_path, create_seconds=0.1, create_error="internal - - no")

    async def live() -> None:
        source = place.source()
        await broken_off(source, place.turn("standin: text"), lambda: place.asked("CreateAgent"))
        await source.close()
        with pytest.raises(errors.ShuttingDown):
            await collected(source, place.turn("standin: text"))

    lived(place, live)


def test_closing_while_the_bridge_starts_leaves_none(tmp_path: Path) -> None:
    place = Place(tmp_path, not_ready=1)

    async def live() -> None:
        source = place.source()
        task = asyncio.create_task(collected(source, place.turn("standin: text")))
        await true(lambda: place.agents)
        await source.close()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is not None

    lived(place, live)


# --- tools of the caller's --------------------------------------------------------------------------------


class Runner:
    """A caller: `add` answers at once; `hold` when it is told to; others fail in their ways."""

    def __init__(self) -> None:
        self.tools = [
            Tool("add", "", {"type": "object", "properties": {"a": {}}, "required": []}),
            *(Tool(name) for name in ("hold", "error", "refuse", "raise")),
        ]
        self.held: dict[str, asyncio.Future[ToolResult]] = {}
        self.given_up: list[str] = []

    @property
    def offered(self) -> dict[str, Any]:
        return {"offered": OfferedTools(server="caller", url="http://127.0.0.1:9/", runner=self)}

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        match name:
            case "add":
                return ToolResult(text=f"add {arguments['a']}")
            case "error":
                return ToolResult(text="it did not work", is_error=True)
            case "refuse":
                raise errors.InvalidRequest("Not like this.")
            case "raise":
                raise ZeroDivisionError("secret")
            case _:
                future: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
                self.held[str(arguments["as"])] = future
                try:
                    return await future
                except asyncio.CancelledError:
                    self.given_up.append(str(arguments["as"]))
                    raise


def program(*steps: object) -> str:
    return f"standin: program\n---\n{json.dumps(steps)}"


def call(name: str, **args: object) -> dict[str, object]:
    return {"call": name, "args": args}


def test_the_callers_tools_are_offered_and_no_others(tmp_path: Path) -> None:
    place, runner = Place(tmp_path), Runner()
    steps = [{"list": True}, call("add", a=7), {"native": "shell", "args": {"command": "touch x"}}, call("nothing")]
    (events,) = played(place, program(*steps, {"say": " $1 $2 $3"}), turn=runner.offered, force=True)
    (options,) = [request["options"] for request in place.asked("CreateAgent")]
    assert options["tools"] == {"names": ["mcp"]}
    assert options["local"]["cwd"] == [str(tmp_path / "conversation" / "scratch")]
    assert options["local"]["customTools"]["add"] == {
        "description": "The caller's tool add.",
        "inputSchema": {"type": "object", "properties": {"a": {"description": "Anything."}}},
    }
    assert [*options["local"]["customTools"]] == [tool.name for tool in runner.tools]
    assert said(events).endswith(" add 7 Tool is not available no tool nothing")
    (native,) = [event for event in events if isinstance(event, agent_events.ToolEnded)]
    assert isinstance(native.action, agent_events.Command)
    assert native.outcome.state == "failed"
    assert options["local"]["settingSources"] == ["SETTING_SOURCE_PROJECT"]
    scratch = tmp_path / "conversation" / "scratch"
    assert [path.relative_to(scratch) for path in scratch.rglob("*") if path.is_file()] == [Path(".cursor/hooks.json")]


def test_a_call_that_goes_wrong_is_reported_to_the_agent_and_in_the_events(tmp_path: Path) -> None:
    runner = Runner()
    calls = [call(name) for name in ("error", "refuse", "raise")]
    (events,) = played(Place(tmp_path), program(*calls), turn=runner.offered)
    assert said(events) == "Results: it did not work, Not like this., The tool failed: ZeroDivisionError."
    ended = [event for event in events if isinstance(event, agent_events.ToolEnded)]
    assert [(event.action.tool, event.outcome.state) for event in ended] == [
        ("error", "failed"),
        ("refuse", "failed"),
        ("raise", "failed"),
    ]


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_calls_are_held_at_the_same_time_and_answered_in_any_order(tmp_path: Path, loop: Any) -> None:
    place, runner = Place(tmp_path), Runner()

    async def live() -> None:
        source = place.source()
        calls = [call("hold", **{"as": name}) for name in "abc"]
        turn = place.turn(program({"parallel": calls}), **runner.offered)
        task = asyncio.create_task(collected(source, turn))
        await true(lambda: len(runner.held) == 3)
        for name in "cab":
            runner.held[name].set_result(ToolResult(text=name.upper()))
        events = await task
        assert said(events) == "Results: A, B, C"
        assert not any(isinstance(event, agent_events.ToolStarted | agent_events.ToolEnded) for event in events)
        await source.close()

    lived(place, live, loop)
    assert runner.given_up == []


def test_a_call_may_be_held_far_longer_than_the_bridge_may_be_silent(tmp_path: Path) -> None:
    """420 s, with a limit of 60 s and a word every 15 s; here all of it a hundred times as fast."""
    place, runner = Place(tmp_path, keep_alive_seconds=15 / 100), Runner()

    async def live() -> None:
        source = place.source(silence_seconds=60 / 100)
        turn = place.turn(program(call("hold", **{"as": "a"})), **runner.offered)
        task = asyncio.create_task(collected(source, turn))
        await true(lambda: runner.held)
        await asyncio.sleep(420 / 100)
        runner.held["a"].set_result(ToolResult(text="late"))
        assert said(await task) == "Results: late"
        await source.close()

    lived(place, live)


def test_who_leaves_gives_up_the_calls_that_are_held(tmp_path: Path) -> None:
    place, runner = Place(tmp_path), Runner()

    async def live() -> None:
        source = place.source()
        turn = place.turn(program({"parallel": [call("hold", **{"as": name}) for name in "ab"]}), **runner.offered)
        await broken_off(source, turn, lambda: len(runner.held) == 2)
        assert sorted(runner.given_up) == ["a", "b"]
        assert len(place.asked("CancelRun")) == 1
        await source.close()

    lived(place, live)


def test_a_run_that_was_broken_off_goes_on_with_the_results_and_other_tools(tmp_path: Path) -> None:
    place, runner = Place(tmp_path), Runner()
    other = Runner()
    other.tools = [Tool("other", "Another.", {})]

    async def live() -> None:
        source = place.source()
        begun: list[agent_events.AgentEvent] = []

        async def follow() -> None:
            turn = place.turn(program({"say": "Wait."}, call("hold", **{"as": "a"}), {"list": True}), **runner.offered)
            async with aclosing(source.events(turn)) as batches:
                async for batch in batches:
                    begun.extend(batch)

        task = asyncio.create_task(follow())
        await true(lambda: runner.held)
        task.cancel()
        await asyncio.wait([task])
        turn = place.turn("It is 7.", session_id=session(begun), **other.offered)
        events = await collected(source, turn)
        assert [tool["name"] for tool in json.loads(said(events).partition("Results")[0])] == ["other"]
        await source.close()

    lived(place, live)


async def test_a_call_that_comes_too_late_is_refused() -> None:
    held = HeldCalls(Runner())
    held.end()
    assert await held.call("add", {"a": 1}) == {
        "content": [{"type": "text", "text": "The run is over."}],
        "isError": True,
    }


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    place, runner = Place(tmp_path), Runner()
    (tmp_path / "file").write_text("")

    async def live() -> None:
        source = place.source()
        with pytest.raises(errors.AgentMisconfigured):
            await collected(source, place.turn("x", folder=str(tmp_path / "file"), **runner.offered))
        await source.close()

    lived(place, live)


# --- a bridge that dies -----------------------------------------------------------------------------------


def test_a_bridge_that_dies_in_a_run_takes_all_runs_with_it_and_is_replaced(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        runs = [Following(source, place.turn("standin: hang-mid")) for _ in range(3)]
        await true(lambda: all(said(run.events).endswith("more.") for run in runs))
        os.kill(place.pids[0], signal.SIGKILL)
        for run in runs:
            events = await run.ended()
            assert said(events) == "I was about to say more."
            assert failure(events).code == errors.AgentCrashed.code
            assert failure(events).details.endswith("ended by signal 9")
            assert failure(events).retryable
        resumed = place.turn("standin: history", session_id=session(runs[0].events))
        assert turns_known(await collected(source, resumed)) == 1
        await source.close()

    lived(place, live)
    assert len(place.pids) == 2


def test_a_bridge_that_the_system_has_ended_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    monkeypatch.setattr(AgentProcess, "system_error", property(lambda self: errors.AgentOutOfMemory("Too much.")))

    async def live() -> None:
        source = place.source()
        run = Following(source, place.turn("standin: hang-mid"))
        await true(lambda: said(run.events).endswith("more."))
        os.kill(place.pids[0], signal.SIGKILL)
        assert failure(await run.ended()).code == "agent_out_of_memory"
        await source.close()

    lived(place, live)


def test_a_bridge_that_dies_while_a_call_is_held_fails_the_run_and_gives_the_call_up(tmp_path: Path) -> None:
    place, runner = Place(tmp_path), Runner()

    async def live() -> None:
        source = place.source()
        task = asyncio.create_task(
            collected(source, place.turn(program(call("hold", **{"as": "a"})), **runner.offered))
        )
        await true(lambda: runner.held)
        os.kill(place.pids[0], signal.SIGKILL)
        assert failure(await task).code == errors.AgentCrashed.code
        await true(lambda: runner.given_up)
        (events,) = [await collected(source, place.turn(program(call("add", a=1)), **runner.offered))]
        assert said(events) == "Results: add 1"
        await source.close()

    lived(place, live)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_bridge_that_dies_while_nothing_happens_is_not_missed(tmp_path: Path, is_noticed: bool) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        (first,) = [await collected(source, place.turn("standin: text"))]
        os.kill(place.pids[0], signal.SIGKILL)
        if is_noticed:
            await true(lambda: "not started" in source.state().detail)
        else:
            time.sleep(0.05)  # it is dead, and nobody had a chance to notice
        again = await collected(source, place.turn("standin: history", session_id=session(first)))
        assert turns_known(again) == 1
        await source.close()

    lived(place, live)
    assert len(place.pids) == 2


def test_a_bridge_that_falls_silent_is_replaced(tmp_path: Path) -> None:
    place = Place(tmp_path, keep_alive_seconds=0.05)

    async def live() -> None:
        source = place.source(silence_seconds=0.5, ping_seconds=0.2)
        runs = [Following(source, place.turn("standin: hang-mid")) for _ in range(2)]
        await true(lambda: all(said(run.events).endswith("more.") for run in runs))
        freeze(place.pids[0])
        codes = {failure(await run.ended()).code for run in runs}
        assert codes <= {errors.AgentTimedOut.code, errors.AgentCrashed.code}
        assert errors.AgentTimedOut.code in codes
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
        await source.close()

    lived(place, live)
    assert len(place.pids) == 2


def test_a_bridge_that_answers_nothing_is_replaced(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source(call_seconds=1, ping_seconds=0.2)
        await source.probe()
        freeze(place.pids[0])
        (event,) = await collected(source, place.turn("standin: text"))
        assert failure([event]).code == errors.AgentTimedOut.code
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
        await source.close()

    lived(place, live)


def test_a_call_that_is_slow_does_not_cost_the_bridge(tmp_path: Path) -> None:
    place = Place(tmp_path, create_seconds=4)

    async def live() -> None:
        source = place.source(call_seconds=1)
        (event,) = await collected(source, place.turn("standin: text"))
        assert failure([event]).code == errors.AgentTimedOut.code
        place.set()
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
        await source.close()

    lived(place, live)
    assert len(place.pids) == 1


def test_a_bridge_that_falls_silent_is_not_waited_for_by_who_leaves(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source(ping_seconds=0.1, cancel_seconds=0.1)
        async with aclosing(source.events(place.turn("standin: hang-mid"))) as batches:
            await anext(batches)
            freeze(place.pids[0])
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
        await source.close()

    lived(place, live)


# --- a bridge that does not start -------------------------------------------------------------------------


def test_a_bridge_that_cannot_be_started(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        missing = place.source(command=[str(tmp_path / "none")])
        with pytest.raises(errors.AgentMissing):
            await collected(missing, place.turn("x"))
        await missing.close()
        place.set(not_ready=2)
        source = place.source(ready_seconds=10)
        with pytest.raises(errors.AgentCrashed, match="status 2") as crashed:
            await collected(source, place.turn("x"))
        assert "told not to be ready" in crashed.value.details
        await source.close()
        place.set(not_ready=1)
        source = place.source(ready_seconds=0.3)
        with pytest.raises(errors.AgentTimedOut):
            await source.models()
        await source.close()
        place.set(token_in_line=1)
        source = place.source()
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
        await source.close()

    lived(place, live)


def test_a_close_that_is_cancelled_closes_the_hooks_socket(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source()
        await source.probe()
        last = source._run_in_background(asyncio.sleep(WAIT))  # of a turn that takes long to end
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(source.close(), 0.05)
        assert source._hooks._server is None
        last.cancel()
        await source.close()

    lived(place, live)


def test_the_bundled_bridge_is_node_itself() -> None:
    import cursor_sdk

    node, script = bridges.bundled_command(cursor_sdk)
    assert Path(node).name == "node"
    assert Path(script).is_file()
    _, option, told, _ = bridges.bundled_command(cursor_sdk, http1=True)
    assert option == "--import"
    assert "useHttp1ForAgent" in told
    assert bridges.bundled_command(cursor_sdk, has_proxy=True)[1:3] == ["--use-env-proxy", "--import"]
    with pytest.raises(errors.AgentMissing, match="without its bridge"):
        bridges.bundled_command(json)


@pytest.mark.parametrize(
    "line",
    ["", "ready", "cursor-sdk-bridge ready {", 'cursor-sdk-bridge ready {"url": 7}', "cursor-sdk-bridge ready {}"],
)
def test_what_is_no_ready_line_is_none(line: str) -> None:
    assert bridges.ready_in(f"noise\n{line}\n") is None


def test_a_token_is_taken_and_its_folder_removed(tmp_path: Path) -> None:
    folder = tmp_path / "token"
    folder.mkdir()
    (folder / "auth-token").write_text("secret\n")
    ready = bridges.ready_in(
        f'x\ncursor-sdk-bridge ready {{"url": "http://h", "authTokenFile": "{folder}/auth-token", "pid": 1}}\nmore'
    )
    assert ready is not None
    assert bridges.take_token(ready) == "secret"
    assert not folder.exists()
    assert bridges.take_token(ready) == ""


def test_a_bridge_that_holds_many_files_is_replaced(tmp_path: Path) -> None:
    """At once if it is idle, otherwise when its runs are over; runs in it are not disturbed."""
    place = Place(tmp_path)

    async def live() -> None:
        source = place.source(max_descriptors=4)
        try:
            for number in range(3):
                folder = str(tmp_path / f"conversation{number}")
                await collected(source, place.turn("standin: text", folder=folder))
            assert len(place.pids) == 2
            go = tmp_path / "work" / "go"
            async with aclosing(
                source.events(place.turn(f"standin: wait-for file={go}", folder=str(tmp_path / "c3")))
            ) as slow:
                batches = [await anext(slow)]
                await collected(source, place.turn("standin: text", folder=str(tmp_path / "c4")))
                assert len(place.pids) == 3
                go.touch()
                batches += [batch async for batch in slow]
                assert isinstance(batches[-1][-1], agent_events.RunFinished)
            await true(lambda: members(place.pids[1]) == [])
        finally:
            await source.close()

    lived(place, live)


def test_how_many_files_a_bridge_may_hold() -> None:
    assert bridges.most_descriptors(-1) == 600
    assert bridges.most_descriptors(1 << 20) == 600
    assert bridges.most_descriptors(1024) == 437
    assert bridges.most_descriptors(200) == 25
    assert bridges.most_descriptors(64) == 8
