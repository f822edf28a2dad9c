"""Turns by the SDK with the stand-in bridge: what they do as events, how they fail, and that nothing is left."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cursor_gateway import errors
from cursor_gateway.model import agent_events
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.sources.base import OfferedTools, Turn
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.processes import members, signal_group
from cursor_gateway.sources.sdk import bridge as bridges
from cursor_gateway.sources.sdk.bridge import BridgeOptions
from cursor_gateway.sources.sdk.source import CursorSdkSource, HeldCalls, SdkOptions, unavailable
from tests.agent.bridge_install import install_bridge, set_knobs
from tests.agent.records import records
from tests.runs.scripted import true
from tests.sources.turns import Home, collected, failure, said, session_of

WAIT = 60  # for a red build only
NOBODY = "00000000-0000-4000-8000-000000000000"


class Place(Home):
    """With the stand-in bridge. In the end no process, no socket, no file and no token may be left."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.command = install_bridge(home / "bridge")
        self.set()
        self.environ |= {"PATH": "/usr/bin:/bin", "TMPDIR": str(home / "tmp"), "CURSOR_API_KEY": "key"}
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

    @asynccontextmanager
    async def living(self, **options: Any) -> AsyncIterator[CursorSdkSource]:
        source = self.source(**options)
        try:
            async with asyncio.timeout(WAIT):
                yield source
        finally:
            await source.close()

    async def played(
        self, *prompts: str, turn: dict[str, Any] | None = None, **options: Any
    ) -> list[list[agent_events.AgentEvent]]:
        """The events of each turn, one after the other."""
        async with self.living(**options) as source:
            return [await collected(source, self.turn(prompt, **(turn or {}))) for prompt in prompts]

    @property
    def log(self) -> list[dict[str, Any]]:
        return records(self.home / "log")

    def asked(self, method: str) -> list[dict[str, Any]]:
        return [entry["request"] for entry in self.log if entry["method"] == method]

    @property
    def pids(self) -> list[int]:
        return list(dict.fromkeys(entry["pid"] for entry in self.log))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(tmp_path).opened() as place:
        try:
            yield place
            assert [source._hooks._server for source in place.sources] == [None] * len(place.sources)
            assert [members(pid) for pid in place.pids] == [[]] * len(place.pids)
            assert list((place.home / "tmp").iterdir()) == []
        finally:
            for entry in place.agents:  # of a test that has failed before it closed its source
                signal_group(int(entry.partition("-")[0]), signal.SIGKILL)


def freeze(pid: int) -> None:
    """Returns when all its threads have stopped: those that have not taken the signal yet go on."""
    os.kill(pid, signal.SIGSTOP)
    if sys.platform == "linux":
        end = time.monotonic() + WAIT
        while not all("T (stopped)" in file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/status")):
            assert time.monotonic() < end
            time.sleep(0.001)


def turns_known(events: Sequence[agent_events.AgentEvent]) -> int:
    """What `standin: history` says."""
    assert isinstance(events[-1], agent_events.RunFinished), events[-1]
    count = json.loads(said(events))["turns"]
    assert isinstance(count, int)
    return count


# --- what it does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
async def test_a_turn_is_reported_event_by_event(place: Place, loop: Any) -> None:
    async with place.living() as source:
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
    assert [entry["method"] for entry in place.log] == ["CreateAgent", "Send", "CloseAgent", "GetVersion"]


async def test_turns_go_on_at_the_same_time(place: Place) -> None:
    async with place.living() as source:
        turns = [place.turn(f"standin: say\n---\nNumber {number}") for number in range(12)]
        result = await asyncio.gather(*(collected(source, turn) for turn in turns))
        assert [said(events) for events in result] == [f"Number {number}" for number in range(12)]
        assert len({session_of(events) for events in result}) == 12
    assert len(place.pids) == 1


async def test_what_the_bridge_is_asked_for(tmp_path: Path, place: Place) -> None:
    await place.played("standin: text", turn={"mode": "plan", "model": "grok-4.7-256k[effort=high]"})
    await place.played("standin: text", turn={"mode": "ask"}, force=True)
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


async def test_the_bridge_is_given_no_secrets(place: Place) -> None:
    (events,) = await place.played("standin: echo-env")
    names = json.loads(said(events))["names"]
    assert "HOME" in names
    assert "CURSOR_API_KEY" not in names
    assert "SECRET" not in names


async def test_a_proxy_of_the_environments_is_not_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        place.environ[name] = "http://127.0.0.1:9"
    runner = Runner()
    (events,) = await place.played('standin: program\n---\n[{"call": "add", "args": {"a": 1}}]', turn=runner.offered)
    assert said(events) == "Results: add 1"


@pytest.mark.parametrize("knobs", [{}, {"not_ready": "2"}, {"not_ready": "1"}])
async def test_the_bridge_is_started_in_advance(place: Place, knobs: dict[str, object]) -> None:
    place.set(**knobs)
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
    assert len(place.pids) == (0 if knobs else 1)


# --- models and keys --------------------------------------------------------------------------------------


async def test_models_are_listed_once_and_known_from_then_on(place: Place) -> None:
    place.set(models=["auto - Auto", "gpt-5-mini"])
    async with place.living() as source:
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
    assert len(place.asked("ListModels")) == 1


async def test_a_missing_list_of_models_is_an_error(place: Place) -> None:
    place.set(models_error="resource_exhausted RATE_LIMIT_EXCEEDED 3s slowly")
    async with place.living() as source:
        with pytest.raises(errors.AgentOverloaded):
            await source.models()
        place.set(version_error="unavailable - - no")
        assert await source.models()
        with pytest.raises(errors.GatewayError, match="lost its connection"):
            await source.probe()


async def test_without_a_key_nothing_is_started(place: Place) -> None:
    del place.environ["CURSOR_API_KEY"]
    async with place.living() as source:
        for asked in (collected(source, place.turn("x")), source.models(), source.probe()):
            with pytest.raises(errors.AgentUnauthenticated, match="CURSOR_API_KEY"):
                await asked
    assert place.log == []
    assert isinstance(unavailable(place.environ), errors.AgentUnauthenticated)
    assert unavailable({"CURSOR_API_KEY": "key"}) is None


async def test_a_key_that_is_refused(place: Place) -> None:
    place.environ["CURSOR_API_KEY"] = "bad-key"
    (events,) = await place.played("standin: text")
    assert len(events) == 1
    assert failure(events).code == "agent_unauthenticated"


async def test_a_package_that_is_not_installed_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cursor_gateway.sources.sdk.source.find_spec", lambda name: None)
    monkeypatch.setattr("cursor_gateway.sources.sdk.bridge.find_spec", lambda name: None)
    async with place.living() as source:
        with pytest.raises(errors.AgentMissing, match=r"pipx install --force '\.\[sdk\]'"):
            await collected(source, place.turn("x"))
        with pytest.raises(errors.AgentMissing, match=r"pipx install --force '\.\[sdk\]'"):
            await bridges.load()


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
async def test_a_failure_says_what_happened_and_the_next_turn_is_served(place: Place, scenario: str, code: str) -> None:
    events, after = await place.played(f"standin: {scenario}", "standin: text")
    assert failure(events).code == code
    assert sum(isinstance(event, agent_events.RunFailed | agent_events.RunFinished) for event in events) == 1
    assert isinstance(after[-1], agent_events.RunFinished)


async def test_too_much_output_ends_the_turn(place: Place) -> None:
    async with place.living(max_output_bytes=100_000) as source:
        with pytest.raises(errors.GatewayError, match="more than 100000 bytes"):
            await collected(source, place.turn("standin: text chunks=50 length=200000"))
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
    assert place.asked("CancelRun")


ERROR = "unavailable RATE_LIMIT_EXCEEDED 3s too many"


async def test_an_error_of_the_stream_may_come_first_or_last(place: Place) -> None:
    early, late = await place.played(
        f'standin: sdk-error early=1 error="{ERROR}"', f'standin: sdk-error error="{ERROR}"'
    )
    assert len(early) == 1
    assert said(late) == "I was about to say more."
    for events in (early, late):
        assert failure(events).code == "agent_overloaded"
        assert failure(events).retry_after == 3
        assert failure(events).details == "too many"


async def test_a_model_that_the_plan_does_not_have_is_not_called_unknown(place: Place) -> None:
    error = "failed_precondition - - Named models unavailable Free plans can only use Auto."
    (events,) = await place.played(f'standin: sdk-error early=1 error="{error}"')
    assert failure(events).code == "model_not_found"
    assert "can only use the model `auto`" in failure(events).message


@pytest.mark.parametrize("knob", ["create_error", "send_error"])
async def test_an_error_before_the_run_is_the_only_event(place: Place, knob: str) -> None:
    place.set(**{knob: "internal - - Network request failed"})
    (events,) = await place.played("standin: text")
    assert len(events) == 1
    assert failure(events).code == "agent_unreachable"


async def test_a_bridge_that_does_not_know_us_is_our_own_fault(place: Place) -> None:
    async with place.living() as source:
        await source.probe()
        place.set(token="another")
        assert failure(await collected(source, place.turn("x"))).code == errors.GatewayFault.code
        with pytest.raises(errors.GatewayFault):
            await source.probe()
        place.set()
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)


async def test_a_key_that_is_refused_without_a_word_is_no_fault_of_ours(place: Place) -> None:
    place.set(create_error="unauthenticated - - no")
    (events,) = await place.played("standin: text")
    assert failure(events).code == "agent_unauthenticated"


# --- sessions ---------------------------------------------------------------------------------------------


async def test_a_session_goes_on_also_with_another_gateway(place: Place) -> None:
    (first,) = await place.played("standin: say\n---\nOne.")
    again = {"session_id": session_of(first)}
    second, third = await place.played("Two.", "standin: history", turn=again)
    assert session_of(second) == session_of(first)
    known = json.loads(said(third))
    assert known["answers"] == ["One.", "You said: Two."]
    assert len(place.pids) == 2
    assert [request["agentId"] for request in place.asked("ResumeAgent")] == [session_of(first)] * 2


async def test_a_session_that_is_gone_is_lost_and_known_to_be(place: Place) -> None:
    async with place.living() as source:
        turn = place.turn("standin: text", session_id=NOBODY)
        assert source.has_session(turn)
        events = await collected(source, turn)
        assert len(events) == 1
        assert failure(events).code == "session_lost"
        assert not source.has_session(turn)
        assert source.has_session(place.turn("x", session_id="another"))


async def test_a_run_that_somebody_has_left_is_put_aside(place: Place) -> None:
    async with place.living() as source:
        first = place.turn("standin: hang-mid")
        async with aclosing(source.events(first)) as batches:
            begun = await anext(batches)
            again = await collected(source, place.turn("standin: text", session_id=session_of(begun)))
            assert isinstance(again[-1], agent_events.RunFinished)
            rest = [event async for batch in batches for event in batch]
            assert failure(rest).code == "agent_timed_out"
    assert [request["options"].get("local") for request in place.asked("Send")] == [None, None, {"force": True}]


# --- cancelling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("scenario", ["hang-mid", "slow count=1000 delay_ms=20", "hang-after-init"])
async def test_who_leaves_ends_the_run(place: Place, scenario: str, loop: Any) -> None:
    async with place.living() as source:
        async with aclosing(source.events(place.turn(f"standin: {scenario}"))) as batches:
            begun = await anext(batches)
        assert len(place.asked("CancelRun")) == 1
        assert place.asked("CloseAgent") == [{"agentId": session_of(begun)}]
        after = await collected(source, place.turn("standin: history", session_id=session_of(begun)))
        assert turns_known(after) == 1
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
async def test_a_run_that_has_not_said_its_name_is_ended_too(place: Place, scenario: str) -> None:
    place.set(keep_alive_seconds=0.05)
    async with place.living() as source:
        await broken_off(source, place.turn(f"standin: {scenario}"), lambda: place.asked("Send"))
        assert len(place.asked("CancelRun")) == 1


async def test_who_is_cancelled_twice_still_ends_the_run_before_the_next_turn(place: Place) -> None:
    """A call that is given up may break off the run that is just being ended."""
    runner = Runner()
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
        again = place.turn("standin: text", session_id=session_of(following.events), **runner.offered)
        if number == 1:
            assert isinstance((await collected(source, again))[-1], agent_events.RunFinished)
    await source.close()
    assert len(place.asked("CancelRun")) == 2
    assert len(place.asked("CloseAgent")) == 3
    assert runner.given_up == ["a", "a"]


async def test_an_agent_that_nobody_waits_for_is_closed(place: Place) -> None:
    place.set(create_seconds=0.1)
    source = place.source()
    await broken_off(source, place.turn("standin: text"), lambda: place.asked("CreateAgent"))
    await source.close()
    assert len(place.asked("CloseAgent")) == 1
    assert place.asked("Send") == []


async def test_nobody_is_left_with_a_failure_that_nobody_waits_for(place: Place) -> None:
    place.set(create_seconds=0.1, create_error="internal - - no")
    source = place.source()
    await broken_off(source, place.turn("standin: text"), lambda: place.asked("CreateAgent"))
    await source.close()
    with pytest.raises(errors.ShuttingDown):
        await collected(source, place.turn("standin: text"))


async def test_closing_while_the_bridge_starts_leaves_none(place: Place) -> None:
    place.set(not_ready=1)
    source = place.source()
    task = asyncio.create_task(collected(source, place.turn("standin: text")))
    await true(lambda: place.agents)
    await source.close()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is not None


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


async def test_the_callers_tools_are_offered_and_no_others(tmp_path: Path, place: Place) -> None:
    runner = Runner()
    steps = [{"list": True}, call("add", a=7), {"native": "shell", "args": {"command": "touch x"}}, call("nothing")]
    (events,) = await place.played(program(*steps, {"say": " $1 $2 $3"}), turn=runner.offered, force=True)
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


async def test_a_call_that_goes_wrong_is_reported_to_the_agent_and_in_the_events(place: Place) -> None:
    runner = Runner()
    calls = [call(name) for name in ("error", "refuse", "raise")]
    (events,) = await place.played(program(*calls), turn=runner.offered)
    assert said(events) == "Results: it did not work, Not like this., The tool failed: ZeroDivisionError."
    ended = [event for event in events if isinstance(event, agent_events.ToolEnded)]
    assert [(event.action.tool, event.outcome.state) for event in ended] == [
        ("error", "failed"),
        ("refuse", "failed"),
        ("raise", "failed"),
    ]


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
async def test_calls_are_held_at_the_same_time_and_answered_in_any_order(place: Place, loop: Any) -> None:
    runner = Runner()
    async with place.living() as source:
        calls = [call("hold", **{"as": name}) for name in "abc"]
        turn = place.turn(program({"parallel": calls}), **runner.offered)
        task = asyncio.create_task(collected(source, turn))
        await true(lambda: len(runner.held) == 3)
        for name in "cab":
            runner.held[name].set_result(ToolResult(text=name.upper()))
        events = await task
        assert said(events) == "Results: A, B, C"
        assert not any(isinstance(event, agent_events.ToolStarted | agent_events.ToolEnded) for event in events)
    assert runner.given_up == []


async def test_a_call_may_be_held_far_longer_than_the_bridge_may_be_silent(place: Place) -> None:
    """420 s, with a limit of 60 s and a word every 15 s; here all of it a hundred times as fast."""
    place.set(keep_alive_seconds=15 / 100)
    runner = Runner()
    async with place.living(silence_seconds=60 / 100) as source:
        turn = place.turn(program(call("hold", **{"as": "a"})), **runner.offered)
        task = asyncio.create_task(collected(source, turn))
        await true(lambda: runner.held)
        await asyncio.sleep(420 / 100)
        runner.held["a"].set_result(ToolResult(text="late"))
        assert said(await task) == "Results: late"


async def test_who_leaves_gives_up_the_calls_that_are_held(place: Place) -> None:
    runner = Runner()
    async with place.living() as source:
        turn = place.turn(program({"parallel": [call("hold", **{"as": name}) for name in "ab"]}), **runner.offered)
        await broken_off(source, turn, lambda: len(runner.held) == 2)
        assert sorted(runner.given_up) == ["a", "b"]
        assert len(place.asked("CancelRun")) == 1


async def test_a_run_that_was_broken_off_goes_on_with_the_results_and_other_tools(place: Place) -> None:
    runner = Runner()
    other = Runner()
    other.tools = [Tool("other", "Another.", {})]
    async with place.living() as source:
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
        turn = place.turn("It is 7.", session_id=session_of(begun), **other.offered)
        events = await collected(source, turn)
        assert [tool["name"] for tool in json.loads(said(events).partition("Results")[0])] == ["other"]


async def test_a_call_that_comes_too_late_is_refused() -> None:
    held = HeldCalls(Runner())
    held.end()
    assert await held.call("add", {"a": 1}) == {
        "content": [{"type": "text", "text": "The run is over."}],
        "isError": True,
    }


async def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path, place: Place) -> None:
    runner = Runner()
    (tmp_path / "file").write_text("")
    async with place.living() as source:
        with pytest.raises(errors.AgentMisconfigured):
            await collected(source, place.turn("x", folder=str(tmp_path / "file"), **runner.offered))


# --- a bridge that dies -----------------------------------------------------------------------------------


async def test_a_bridge_that_dies_in_a_run_takes_all_runs_with_it_and_is_replaced(place: Place) -> None:
    async with place.living() as source:
        runs = [Following(source, place.turn("standin: hang-mid")) for _ in range(3)]
        await true(lambda: all(said(run.events).endswith("more.") for run in runs))
        os.kill(place.pids[0], signal.SIGKILL)
        for run in runs:
            events = await run.ended()
            assert said(events) == "I was about to say more."
            assert failure(events).code == errors.AgentCrashed.code
            assert failure(events).details.endswith("ended by signal 9")
            assert failure(events).retryable
        resumed = place.turn("standin: history", session_id=session_of(runs[0].events))
        assert turns_known(await collected(source, resumed)) == 1
    assert len(place.pids) == 2


async def test_a_bridge_that_the_system_has_ended_says_why(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentProcess, "system_error", property(lambda self: errors.AgentOutOfMemory("Too much.")))
    async with place.living() as source:
        run = Following(source, place.turn("standin: hang-mid"))
        await true(lambda: said(run.events).endswith("more."))
        os.kill(place.pids[0], signal.SIGKILL)
        assert failure(await run.ended()).code == "agent_out_of_memory"


async def test_a_bridge_that_dies_while_a_call_is_held_fails_the_run_and_gives_the_call_up(place: Place) -> None:
    runner = Runner()
    async with place.living() as source:
        task = asyncio.create_task(
            collected(source, place.turn(program(call("hold", **{"as": "a"})), **runner.offered))
        )
        await true(lambda: runner.held)
        os.kill(place.pids[0], signal.SIGKILL)
        assert failure(await task).code == errors.AgentCrashed.code
        await true(lambda: runner.given_up)
        (events,) = [await collected(source, place.turn(program(call("add", a=1)), **runner.offered))]
        assert said(events) == "Results: add 1"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("is_noticed", [True, False])
async def test_a_bridge_that_dies_while_nothing_happens_is_not_missed(place: Place, is_noticed: bool) -> None:
    async with place.living() as source:
        (first,) = [await collected(source, place.turn("standin: text"))]
        os.kill(place.pids[0], signal.SIGKILL)
        if is_noticed:
            await true(lambda: "not started" in source.state().detail)
        else:
            time.sleep(0.05)  # it is dead, and nobody had a chance to notice
        again = await collected(source, place.turn("standin: history", session_id=session_of(first)))
        assert turns_known(again) == 1
    assert len(place.pids) == 2


async def test_a_bridge_that_falls_silent_is_replaced(place: Place) -> None:
    place.set(keep_alive_seconds=0.05)
    async with place.living(silence_seconds=0.5, ping_seconds=0.2) as source:
        runs = [Following(source, place.turn("standin: hang-mid")) for _ in range(2)]
        await true(lambda: all(said(run.events).endswith("more.") for run in runs))
        freeze(place.pids[0])
        codes = {failure(await run.ended()).code for run in runs}
        assert codes <= {errors.AgentTimedOut.code, errors.AgentCrashed.code}
        assert errors.AgentTimedOut.code in codes
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
    assert len(place.pids) == 2


async def test_a_bridge_that_answers_nothing_is_replaced(place: Place) -> None:
    async with place.living(call_seconds=1, ping_seconds=0.2) as source:
        await source.probe()
        freeze(place.pids[0])
        (event,) = await collected(source, place.turn("standin: text"))
        assert failure([event]).code == errors.AgentTimedOut.code
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)


async def test_a_call_that_is_slow_does_not_cost_the_bridge(place: Place) -> None:
    place.set(create_seconds=4)
    async with place.living(call_seconds=1) as source:
        (event,) = await collected(source, place.turn("standin: text"))
        assert failure([event]).code == errors.AgentTimedOut.code
        place.set()
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)
    assert len(place.pids) == 1


async def test_a_bridge_that_falls_silent_is_not_waited_for_by_who_leaves(place: Place) -> None:
    async with place.living(ping_seconds=0.1, cancel_seconds=0.1) as source:
        async with aclosing(source.events(place.turn("standin: hang-mid"))) as batches:
            await anext(batches)
            freeze(place.pids[0])
        assert isinstance((await collected(source, place.turn("standin: text")))[-1], agent_events.RunFinished)


# --- a bridge that does not start -------------------------------------------------------------------------


async def test_a_bridge_that_cannot_be_started(tmp_path: Path, place: Place) -> None:
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


async def test_a_close_that_is_cancelled_closes_the_hooks_socket(place: Place) -> None:
    source = place.source()
    await source.probe()
    last = source._run_in_background(asyncio.sleep(WAIT))  # of a turn that takes long to end
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.close(), 0.05)
    assert source._hooks._server is None
    last.cancel()
    await source.close()


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


async def test_a_bridge_that_holds_many_files_is_replaced(tmp_path: Path, place: Place) -> None:
    """At once if it is idle, otherwise when its runs are over; runs in it are not disturbed."""
    async with place.living(max_descriptors=4) as source:
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


def test_how_many_files_a_bridge_may_hold() -> None:
    assert bridges.most_descriptors(-1) == 600
    assert bridges.most_descriptors(1 << 20) == 600
    assert bridges.most_descriptors(1024) == 437
    assert bridges.most_descriptors(200) == 25
    assert bridges.most_descriptors(64) == 8
