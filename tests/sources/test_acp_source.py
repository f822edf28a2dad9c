"""Turns with the stand-in over ACP: what it does as events, who is asked, how it fails, and that nothing is left."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cursor_gateway.errors import AgentError, AgentOutOfMemory, GatewayError
from cursor_gateway.model import agent_events
from cursor_gateway.model.answers import Decision, Permission
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.sources.acp.pool import PoolOptions
from cursor_gateway.sources.acp.source import AcpOptions, CursorAcpSource
from cursor_gateway.sources.base import LONGEST_LINE, OfferedTools, Turn
from cursor_gateway.sources.cli.source import CliOptions, CursorCliSource
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.processes import members
from cursor_gateway.sources.tool_endpoint import ToolEndpoint
from tests.agent.install import install
from tests.agent.records import records
from tests.runs.scripted import true
from tests.sources.turns import Home, collected, failure, said, session_of

GRACE = 0.05  # for agents that never end by themselves
LIMIT = 60.0  # for a red build only


class Place(Home):
    """With the stand-in. In the end, nothing of any agent may be left."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.groups: set[int] = set()
        self.set()

    def set(self, **knobs: object) -> None:
        self.program = install(self.home / "bin", knobs={"log": str(self.home / "log"), **knobs})

    def source(self, pool: PoolOptions | None = None, **options: Any) -> CursorAcpSource:
        cli = CursorCliSource(CliOptions(), self.environ, self.ledger, lambda: 0.0)
        made = AcpOptions(**{"grace_seconds": GRACE, "pool": pool or PoolOptions(), **options})
        return CursorAcpSource(made, cli, self.home / "acp", self.environ, self.ledger)

    @asynccontextmanager
    async def living(
        self, pool: PoolOptions | None = None, made: CursorAcpSource | None = None, **options: Any
    ) -> AsyncIterator[CursorAcpSource]:
        source = made or self.source(pool, **options)
        try:
            async with asyncio.timeout(LIMIT):
                yield source
        finally:
            self.groups.update(int(name.partition("-")[0]) for name in self.agents)
            await source.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(tmp_path).opened() as place:
        yield place
    assert [pid for group in place.groups for pid in members(group)] == []


def ends(events: Sequence[agent_events.AgentEvent]) -> list[agent_events.ToolEnded]:
    return [event for event in events if isinstance(event, agent_events.ToolEnded)]


class Somebody:
    """Who answers as told, and remembers what was asked."""

    def __init__(self, answers: list[ClarificationAnswer] | None = None, decision: bool | None = None) -> None:
        self._answers, self._decision = answers, decision
        self.asked: list[tuple[str, agent_events.Question | agent_events.Plan]] = []
        self.waits = asyncio.Event()
        self.is_silent = False
        self.permission: Permission | None = None

    async def answer(self, call_id: str, question: agent_events.Question) -> list[ClarificationAnswer] | None:
        self.asked.append((call_id, question))
        self.waits.set()
        if self.is_silent:
            await asyncio.Event().wait()
        return self._answers

    async def decide(self, call_id: str, plan: agent_events.Plan) -> bool | None:
        self.asked.append((call_id, plan))
        return self._decision

    async def permit(self, call_id: str, question: agent_events.Question) -> Permission | None:
        self.asked.append((call_id, question))
        return self.permission


def chose(*ids: str, question: str = "file") -> list[ClarificationAnswer]:
    return [ClarificationAnswer(question_id=question, selected_option_ids=list(ids))]


# --- what it does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
async def test_a_turn_is_reported_event_by_event(tmp_path: Path, place: Place, loop: Any) -> None:
    async with place.living() as source:
        assert source.state().detail == "cursor-agent acp, not probed yet"
        events = await collected(source, place.turn("Hello, you."))
        assert isinstance(events[0], agent_events.RunStarted)
        assert events[0].model == "Auto"
        assert events[1] == agent_events.PromptEchoed("Hello, you.")
        assert isinstance(events[-1], agent_events.RunFinished)
        assert events[-1].usage is None
        assert said(events) == "You said: Hello, you."
        assert source.state().detail.endswith("acp (" + str(place.program) + "), 1 running")
    (entry,) = place.log
    assert (entry["cwd"], entry["workspace"]) == (str(tmp_path / "work"), str(tmp_path / "work"))
    assert entry["argv"] == ["--trust", "acp"]
    assert entry["config_dir"] == str(tmp_path / "acp" / "0")
    assert entry["pgid"] == entry["pid"]
    assert "SECRET" not in entry["environment"]["names"]


async def test_one_agent_answers_turn_after_turn(tmp_path: Path, place: Place) -> None:
    async with place.living() as source:
        source.warm_up(str(tmp_path / "work"))
        source.warm_up(str(tmp_path / "work"))
        for number in range(3):
            assert said(await collected(source, place.turn(f"Turn {number}."))) == f"You said: Turn {number}."
    assert len({entry["pid"] for entry in place.log}) == 1


async def test_what_a_build_counts_is_reported_by_turn(place: Place) -> None:
    place.set(acp_usage=True)
    async with place.living() as source:
        first = await collected(source, place.turn("standin: text"))
        second = await collected(source, place.turn("standin: text", session_id=session_of(first)))
        assert isinstance(first[-1], agent_events.RunFinished)
        assert isinstance(second[-1], agent_events.RunFinished)
        assert first[-1].usage == agent_events.TokenCounts(prompt=100, completion=7)
        assert second[-1].usage == agent_events.TokenCounts(prompt=100, completion=0)


async def test_a_long_prompt_arrives(place: Place) -> None:
    async with place.living() as source:
        assert isinstance(
            (await collected(source, place.turn("\ud83d" + "x" * 1_000_000)))[-1], agent_events.RunFinished
        )
    (entry,) = place.log
    assert len(entry["prompt"]) == 1_000_001


async def test_images_that_the_prompt_names_are_shown(tmp_path: Path, place: Place) -> None:
    images = tmp_path / "conversation" / "images"
    images.mkdir()
    for name in ("one.png", "two.png"):
        (images / name).write_bytes(b"image")
    (tmp_path / "secret").write_bytes(b"secret")
    (images / "link.png").symlink_to(tmp_path / "secret")  # which an agent may have planted
    async with place.living() as source:
        await collected(source, place.turn(f"Look at {images / 'one.png'} and {images / 'link.png'}."))
    assert [entry["blocks"] for entry in place.log] == [2]


@pytest.mark.parametrize(
    "knobs", [{}, {"acp_one_variant": True}, {"acp_one_variant": True, "acp_no_config_option": True}]
)
async def test_mode_and_model_are_set_where_they_differ(place: Place, knobs: dict[str, object]) -> None:
    place.set(**knobs)
    async with place.living() as source:
        await collected(source, place.turn("standin: text", model="gpt-5.3-codex-low", mode="plan"))
        await collected(source, place.turn("standin: text", model="auto", mode="debug"))
        with pytest.raises(GatewayError, match="Unknown model 'gpt-9'") as caught:
            await collected(source, place.turn("standin: text", model="gpt-9"))
        assert caught.value.code == "model_not_found"
        with pytest.raises(GatewayError, match="Unknown model"):
            await collected(source, place.turn("standin: text", model="gpt-9[effort=high]"))
    assert [(entry["mode"], entry["model"]) for entry in place.log] == [
        ("plan", "gpt-5.3-codex-low"),
        ("agent", "auto"),
    ]
    assert len({entry["pid"] for entry in place.log}) == 2  # one for each model


async def test_the_users_configuration_is_never_changed(tmp_path: Path, place: Place) -> None:
    config = tmp_path / ".cursor" / "cli-config.json"
    config.write_text('{"permissions":{"allow":["Shell(pwd)"],"deny":[]}}')
    async with place.living() as source:
        await collected(source, place.turn("standin: shell command=pwd", model="gpt-5-mini"))
    assert config.read_text() == '{"permissions":{"allow":["Shell(pwd)"],"deny":[]}}'
    assert [path.name for path in (tmp_path / ".cursor").iterdir()] == ["cli-config.json"]


async def test_the_operators_options_reach_the_agent(place: Place) -> None:
    from cursor_gateway.sources.cursor.command import CommandOptions

    place.environ["MORE"] = "1"
    command = CommandOptions(trust=False, force=True, headers={"X-Team": "a"})
    async with place.living(command=command, environment=["MORE"]) as source:
        await collected(source, place.turn("standin: text"))
    (entry,) = place.log
    assert entry["argv"] == ["--force", "--header", "X-Team: a", "acp"]
    assert "MORE" in entry["environment"]["names"]


async def test_models_are_the_clis(place: Place) -> None:
    place.set(models=["auto - Auto", "gpt-5-mini - GPT-5 Mini"])
    async with place.living() as source:
        source.check_model("gpt-9")  # not known to be wrong
        assert [model.id for model in await source.models()] == ["auto", "gpt-5-mini"]
        with pytest.raises(GatewayError, match="did you mean gpt-5-mini"):
            source.check_model("gpt-5-mimi")
        assert source.offers_tools


# --- sessions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["alive", "killed", "another source"])
async def test_a_session_goes_on(place: Place, how: str) -> None:
    async with place.living() as source:
        id = session_of(await collected(source, place.turn("Remember me.")))
        turn = place.turn("standin: history", session_id=id)
        assert source.has_session(turn)
        if how == "killed":
            (pid,) = source.pids
            os.kill(pid, signal.SIGKILL)
            await true(lambda: not source.pids)
        elif how == "another source":
            await source.close()
            source = place.source()
        events = await collected(source, turn)
        assert json.loads(said(events))["prompts"] == ["Remember me."]
        assert session_of(events) == id
        await source.close()


async def test_a_session_that_is_unknown_is_lost(place: Place) -> None:
    async with place.living() as source:
        turn = place.turn("Hello", session_id="00000000-0000-4000-8000-000000000000")
        assert source.has_session(turn)
        (event,) = await collected(source, turn)
        assert failure([event]).code == "session_lost"
        assert not source.has_session(turn)
        assert isinstance((await collected(source, place.turn("Hello")))[-1], agent_events.RunFinished)
    assert len(place.log) == 1


# --- who is asked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("knobs", [{}, {"acp_unannounced": True}])
async def test_a_question_is_answered_in_the_same_run(place: Place, knobs: dict[str, object]) -> None:
    place.set(**knobs)
    async with place.living() as source:
        person = Somebody(chose("other.txt"))
        events = await collected(source, place.turn("standin: question", person=person))
        assert said(events) == "I need to know more.You chose other.txt."
        (asked,) = (event for event in events if isinstance(event, agent_events.ToolStarted))
        ((call_id, question),) = person.asked
        assert (asked.call_id, asked.action, asked.waits) == (call_id, question, True)
        (answered,) = ends(events)
        assert answered.call_id == call_id
        assert isinstance(answered.action, agent_events.Question)
        assert answered.action.answers == chose("other.txt")


@pytest.mark.parametrize("somebody", [True, False])
async def test_a_question_that_nobody_answers_is_skipped(place: Place, somebody: bool) -> None:
    async with place.living() as source:
        events = await collected(source, place.turn("standin: question", person=Somebody() if somebody else None))
        assert said(events) == "I need to know more.Which file is meant: `notes.txt` or `other.txt`?"
        (asked,) = (event for event in events if isinstance(event, agent_events.ToolStarted))
        assert asked.waits is somebody
        assert [event.outcome.state for event in ends(events)] == ["unanswered"]


@pytest.mark.parametrize(
    ("person", "text", "state"),
    [
        (None, "", "completed"),
        (True, "", "completed"),
        (False, "The plan was rejected.", "rejected"),
        ("nobody", "The plan was cancelled.", "rejected"),
    ],
)
async def test_a_plan_is_decided(place: Place, person: object, text: str, state: str) -> None:
    async with place.living() as source:
        decision = person if isinstance(person, bool) else None
        somebody = None if person is None else Somebody(decision=decision)
        events = await collected(source, place.turn("standin: plan", mode="plan", person=somebody))
        assert said(events) == f"I'll make a plan.{text}"
        (ended,) = ends(events)
        assert isinstance(ended.action, agent_events.Plan)
        assert ended.outcome.state == state


async def test_who_goes_while_somebody_is_asked_asks_no_longer(place: Place) -> None:
    async with place.living(grace_seconds=LIMIT) as source:
        person = Somebody()
        person.is_silent = True
        reading = asyncio.ensure_future(collected(source, place.turn("standin: question", person=person)))
        await person.waits.wait()
        reading.cancel()
        await asyncio.wait([reading])
        assert said(await collected(source, place.turn("And now?"))) == "You said: And now?"
    assert len({entry["pid"] for entry in place.log}) == 1  # it answered the cancellation, and goes on


async def test_an_agent_that_dies_while_somebody_is_asked_asks_no_longer(place: Place) -> None:
    async with place.living() as source:
        person = Somebody()
        person.is_silent = True
        reading = asyncio.ensure_future(collected(source, place.turn("standin: question", person=person)))
        await person.waits.wait()
        os.kill(source.pids[0], signal.SIGKILL)
        events = await reading
        assert failure(events).code == "agent_crashed"
        assert said(events) == "I need to know more."


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("options", "answer", "ran"),
    [
        ({}, None, False),
        ({"allow": ["Shell(echo)"]}, None, True),
        ({"allow": ["Shell(git)", "Write(**)"]}, None, False),
        ({"permissions": "ask"}, None, False),
        ({"permissions": "ask"}, "once", True),
        ({"permissions": "ask"}, "workspace", True),
        ({"permissions": "ask"}, "deny", False),
    ],
)
async def test_permission_is_given_by_rules_or_asked_for(
    tmp_path: Path, place: Place, options: dict[str, Any], answer: Decision | None, ran: bool
) -> None:
    async with place.living(**options) as source:
        person = Somebody()
        person.permission = None if answer is None else Permission(answer)
        turn = place.turn('standin: shell command="echo one; echo two"')
        events = await collected(source, Turn(**{**_fields(turn), "person": person, "approver": person}))
        commands = [event for event in ends(events) if isinstance(event.action, agent_events.Command)]
        assert [event.outcome.state for event in commands] == ["completed" if ran else "rejected"]
        assert ("It ended with 0" in said(events)) is ran
        assert len(person.asked) == ("permissions" in options)
    written = tmp_path / "acp" / "0" / "cli-config.json"
    assert not written.exists() or "echo" not in written.read_text()


async def test_the_reason_of_a_denial_is_sent_when_the_answer_is_complete(place: Place) -> None:
    async with place.living(permissions="ask") as source:
        person = Somebody()
        person.permission = Permission("deny", "Use printf.")
        turn = place.turn('standin: shell command="echo one"')
        events = await collected(source, Turn(**{**_fields(turn), "person": person, "approver": person}))
        assert said(events).startswith("Running the command.The command was rejected.\n\nYou said: Do not run this:")
        assert said(events).endswith("    echo one\n\nContinue without it. Use printf.")
        assert isinstance(events[-1], agent_events.RunFinished)
        assert sum(isinstance(event, agent_events.RunFinished) for event in events) == 1


def _fields(turn: Turn) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in turn.__struct_fields__}


async def test_an_mcp_tool_asks_for_leave(place: Place) -> None:
    async with place.living(allow=["Mcp(tracker:*)"]) as source:
        for server, state in (("tracker", "completed"), ("other", "rejected")):
            events = await collected(source, place.turn(f"standin: mcp server={server}"))
            assert [event.outcome.state for event in ends(events)] == [state]


# --- tools of the caller's ------------------------------------------------------------------------------


class Runner:
    def __init__(self) -> None:
        self.tools = [Tool(name="weather", description="", parameters={"type": "object", "properties": {}})]
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        self.calls.append((name, arguments))
        return ToolResult(text="sunny")


PROGRAM = (
    'standin: program\n---\n[{"native": "shell", "args": {"command": "touch ran"}}, '
    '{"call": "weather", "args": {"city": "Oslo"}}, {"say": "It is $2."}]'
)


@pytest.mark.parametrize("knobs", [{}, {"acp_ignores_servers": True}, {"acp_ignores_files": True}])
async def test_the_callers_tools_are_called_and_the_agents_own_denied(
    tmp_path: Path, place: Place, knobs: dict[str, object]
) -> None:
    place.set(**knobs)
    async with place.living(allow=["Shell(*)"]) as source:
        endpoint, runner = ToolEndpoint(), Runner()
        await endpoint.open()
        try:
            offered = OfferedTools(server="caller", url=endpoint.offer(runner), runner=runner)
            turn = place.turn(PROGRAM, offered=offered)
            events = await collected(source, turn)
            assert said(events) == "It is sunny."
            assert runner.calls == [("weather", {"city": "Oslo"})]
            assert [(type(event.action), event.outcome.state) for event in ends(events)] == [
                (agent_events.Command, "rejected")
            ]
            assert source.pids == []  # it was for this run alone
            more = {**_fields(turn), "prompt": "standin: history", "session_id": session_of(events)}
            again = await collected(source, Turn(**more))
            assert json.loads(said(again))["turns"] == 1
        finally:
            await endpoint.close()
    assert not (tmp_path / "work" / "ran").exists()
    assert not (tmp_path / "conversation" / "scratch" / "ran").exists()
    entry = place.log[0]
    assert entry["argv"][:2] == ["--trust", "--approve-mcps"]
    assert "--force" not in entry["argv"]
    assert entry["workspace"] == str(tmp_path / "conversation" / "scratch")


async def test_who_goes_while_the_caller_works_ends_the_agent(place: Place) -> None:
    async with place.living() as source:

        class Waiting(Runner):
            async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
                self.calls.append((name, arguments))
                await asyncio.Event().wait()
                raise AssertionError

        endpoint, runner = ToolEndpoint(), Waiting()
        await endpoint.open()
        try:
            offered = OfferedTools(server="caller", url=endpoint.offer(runner), runner=runner)
            reading = asyncio.ensure_future(collected(source, place.turn(PROGRAM, offered=offered)))
            await true(lambda: runner.calls)
            reading.cancel()
            await asyncio.wait([reading])
            assert place.agents == []
        finally:
            await endpoint.close()


async def test_an_agent_that_cannot_be_confined_is_not_given_tools(place: Place) -> None:
    place.set(version="2026.05.01-old")
    async with place.living() as source:
        offered = OfferedTools(server="caller", url="", runner=Runner())
        with pytest.raises(GatewayError, match="cannot disable its own tools"):
            await collected(source, place.turn("Hello", offered=offered))


# --- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("scenario", "code", "text"),
    [
        ("fail-quota", "insufficient_quota", "I was about to say more."),
        ("fail-quota variant=action", "insufficient_quota", "I was about to say more."),
        ("fail-capacity", "agent_overloaded", ""),
        ("fail-capacity-late", "agent_overloaded", "I was about to say more."),
        ("fail-network kind=ping", "agent_unreachable", ""),
        ("fail-internal class=T", "agent_unreachable", ""),
        ("fail-free-plan", "model_not_found", ""),
        ("crash exit=7", "agent_crashed", "I was about to say more."),
        ("killed", "agent_crashed", "I was about to say more."),
        ("truncated", "agent_crashed", "I was about to say more."),
    ],
)
async def test_a_turn_that_fails_says_how_and_keeps_what_was_said(
    place: Place, scenario: str, code: str, text: str
) -> None:
    async with place.living() as source:
        events = await collected(source, place.turn(f"standin: {scenario}"))
        assert failure(events).code == code
        assert said(events) == text
        assert said(await collected(source, place.turn("And now?"))) == "You said: And now?"


async def test_an_agent_that_the_system_has_ended_says_why(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentProcess, "system_error", property(lambda self: AgentOutOfMemory("Too much.")))
    async with place.living() as source:
        assert failure(await collected(source, place.turn("standin: killed"))).code == "agent_out_of_memory"


@pytest.mark.parametrize(
    ("scenario", "code"),
    [("fail-auth", "agent_unauthenticated"), ("fail-sandbox", "agent_misconfigured"), ("crash-early", "agent_crashed")],
)
async def test_what_fails_before_the_first_event_is_raised(place: Place, scenario: str, code: str) -> None:
    async with place.living() as source:
        with pytest.raises(AgentError) as caught:
            await collected(source, place.turn(f"standin: {scenario}"))
        assert caught.value.code == code
        assert said(await collected(source, place.turn("And now?"))) == "You said: And now?"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("knobs", "environ", "code"),
    [
        ({"login": "none"}, {}, "agent_unauthenticated"),
        ({}, {"CURSOR_API_KEY": "bad"}, "agent_unauthenticated"),
        ({"acp_wedged": "initialize"}, {}, "agent_timed_out"),
        ({"acp_wedged": "session/new"}, {}, "agent_timed_out"),
        ({"acp_wedged": True}, {}, "agent_timed_out"),
    ],
)
async def test_an_agent_that_cannot_begin_fails_before_any_event(
    place: Place, knobs: dict[str, object], environ: dict[str, str], code: str
) -> None:
    place.set(**knobs)
    place.environ |= environ
    async with place.living(start_seconds=4, session_seconds=4) as source:
        with pytest.raises(AgentError) as caught:
            await collected(source, place.turn("Hello"))
        assert caught.value.code == code
        if "acp_wedged" in knobs:
            assert source.pids == []
            place.set()
            assert isinstance((await collected(source, place.turn("Hello")))[-1], agent_events.RunFinished)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("scenario", ["hang-mid", "hang", "ignore-term"])
@pytest.mark.parametrize("how", ["closed", "cancelled", "cancelled twice"])
@pytest.mark.quick_cases(2)
async def test_who_goes_stops_the_turn(tmp_path: Path, place: Place, scenario: str, how: str, loop: Any) -> None:
    if scenario == "hang" and how == "closed":
        return  # nothing is yielded, so nobody can close it
    async with place.living() as source:
        seen: list[agent_events.AgentEvent] = []
        reads = asyncio.Event()

        async def read() -> None:
            async with aclosing(source.events(place.turn(f"standin: {scenario}"))) as batches:
                async for batch in batches:
                    seen.extend(batch)
                    if said(seen).endswith("."):
                        reads.set()
                        if how == "closed":
                            break

        reading = asyncio.ensure_future(read())
        if scenario == "hang":
            await true(lambda: (tmp_path / "log").exists() and place.log)
        else:
            await reads.wait()
        if how != "closed":
            reading.cancel()
        if how == "cancelled twice":
            await asyncio.sleep(0)
            reading.cancel()
        await asyncio.wait([reading])
        assert said(await collected(source, place.turn("And now?"))) == "You said: And now?"
    if how != "cancelled twice":
        assert len({entry["pid"] for entry in place.log}) == (2 if scenario == "ignore-term" else 1)


async def test_one_deaf_turn_does_not_end_the_others(tmp_path: Path, place: Place) -> None:
    file = tmp_path / "go on"

    file = Path(str(file).replace(" ", "-"))
    async with place.living(PoolOptions(max_processes=1)) as source:
        other = asyncio.ensure_future(collected(source, place.turn(f"standin: wait-for file={file}")))
        async with aclosing(source.events(place.turn("standin: ignore-term"))) as batches:
            async for batch in batches:
                if said(batch):
                    break
        assert len(source.pids) == 1
        file.touch()
        assert said(await other) == "Waiting for the file. It is there."
        await true(lambda: not source.pids)


async def test_a_process_that_dies_ends_all_its_turns_and_no_others(place: Place) -> None:
    async with place.living(PoolOptions(max_processes=1)) as source:
        seen: list[list[agent_events.AgentEvent]] = [[] for _ in range(3)]

        async def read(number: int, scenario: str) -> None:
            async with aclosing(source.events(place.turn(f"standin: {scenario}"))) as batches:
                async for batch in batches:
                    seen[number].extend(batch)

        call = 'program\n---\n[{"native": "read", "args": {"path": "notes.txt"}, "takes_ms": 60000}]'
        reading = [asyncio.ensure_future(read(number, text)) for number, text in enumerate(["hang-mid", "slow", call])]
        await true(lambda: all(seen))
        (pid,) = source.pids
        os.kill(pid, signal.SIGKILL)
        await asyncio.wait(reading)
        for events in seen:
            assert failure(events).code == "agent_crashed"
            assert "ended by signal 9" in failure(events).details
        assert said(await collected(source, place.turn("And now?"))) == "You said: And now?"


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_an_agent_that_dies_while_nobody_uses_it_is_replaced(place: Place, is_noticed: bool) -> None:
    async with place.living() as source:
        await collected(source, place.turn("Hello"))
        (pid,) = source.pids
        os.kill(pid, signal.SIGKILL)
        if is_noticed:
            await true(lambda: pid not in source.pids)
        events = await collected(source, place.turn("Hello"))
        assert isinstance(events[-1], agent_events.RunFinished)
    assert len({entry["pid"] for entry in place.log}) == 2


async def test_an_agent_that_answers_no_more_is_found_while_it_is_idle(tmp_path: Path, place: Place) -> None:
    wedge = tmp_path / "wedge"
    place.set(acp_wedged_file=str(wedge))
    pool = PoolOptions(health_seconds=0.05, answer_seconds=3)
    async with place.living(pool) as source:
        await collected(source, place.turn("Hello"))
        pid = place.log[0]["pid"]
        wedge.touch()
        await true(lambda: not source.pids)
        await _ends(pid)
        wedge.unlink()
        assert isinstance((await collected(source, place.turn("Hello")))[-1], agent_events.RunFinished)


async def _ends(pid: int) -> None:
    await true(lambda: not members(pid))


async def test_an_agent_that_nobody_needs_ends(place: Place) -> None:
    async with place.living(PoolOptions(idle_seconds=0.2, health_seconds=0.1)) as source:
        await collected(source, place.turn("Hello"))
        await true(lambda: not source.pids)
        await _ends(place.log[0]["pid"])


async def test_too_much_output_ends_the_turn(place: Place) -> None:
    async with place.living(max_output_bytes=100_000) as source:
        with pytest.raises(GatewayError, match="more than 100000 bytes"):
            await collected(source, place.turn("standin: text chunks=50 length=200000"))
        events = await collected(source, place.turn("standin: huge-line size=2000000"))
        assert failure(events).code == "agent_output_too_large"
        assert isinstance((await collected(source, place.turn("Hello")))[-1], agent_events.RunFinished)


async def test_a_line_without_an_end_ends_the_agent(place: Place) -> None:
    async with place.living() as source:
        events = await collected(source, place.turn(f"standin: huge-line size={LONGEST_LINE + 8_000_000}"))
        assert f"a line of more than {LONGEST_LINE} bytes" in failure(events).message
        assert isinstance((await collected(source, place.turn("Hello")))[-1], agent_events.RunFinished)


# --- many -----------------------------------------------------------------------------------------------


async def test_fifty_sessions_at_once_over_four_processes(place: Place) -> None:
    async with place.living(PoolOptions(max_processes=4, max_sessions=16)) as source:
        prompts = [f"standin: slow count=5 delay_ms=5 x={number}" for number in range(50)]
        all_events = await asyncio.gather(*(collected(source, place.turn(prompt)) for prompt in prompts))
        assert {said(events) for events in all_events} == {"0 1 2 3 4 "}
        assert len({session_of(events) for events in all_events}) == 50
        assert len(source.pids) == 4
    assert len({entry["pid"] for entry in place.log}) == 4


async def test_questions_at_once_in_one_process_find_their_turns(place: Place) -> None:
    async with place.living(PoolOptions(max_processes=1)) as source:
        people = [Somebody(chose(name)) for name in ("notes.txt", "other.txt") * 4]
        turns = [place.turn("standin: question", person=person) for person in people]
        all_events = await asyncio.gather(*(collected(source, turn) for turn in turns))
        answers = [said(events).removeprefix("I need to know more.") for events in all_events]
        assert answers == ["You chose notes.txt.", "You chose other.txt."] * 4


async def test_who_finds_no_place_waits_and_not_for_ever(tmp_path: Path, place: Place) -> None:
    file = tmp_path / "go-on"
    async with place.living(PoolOptions(max_processes=1, max_sessions=1, place_seconds=2)) as source:
        first = asyncio.ensure_future(collected(source, place.turn(f"standin: wait-for file={file}")))
        await true(lambda: (tmp_path / "log").exists() and place.log)
        with pytest.raises(AgentError, match="All agents are busy"):
            await collected(source, place.turn("Hello"))
        second = asyncio.ensure_future(collected(source, place.turn("Hello")))
        file.touch()
        assert isinstance((await first)[-1], agent_events.RunFinished)
        assert isinstance((await second)[-1], agent_events.RunFinished)


async def test_agents_that_wait_for_people_leave_room_for_another_model(tmp_path: Path, place: Place) -> None:
    async with place.living(PoolOptions(max_processes=1, place_seconds=5)) as source:
        silent = Somebody()
        silent.is_silent = True
        asking = place.turn("standin: question", person=silent, is_waiting=silent.waits.is_set, model="auto")
        asked = asyncio.ensure_future(collected(source, asking))
        await true(lambda: source.pids)
        other = place.turn("standin: text", model="gpt-5-mini")
        assert isinstance((await collected(source, other))[-1], agent_events.RunFinished)  # when the first one waits
        assert silent.waits.is_set()
        assert len(source.pids) == 2
        busy = place.turn(f"standin: wait-for file={tmp_path / 'go-on'}", model="gpt-5-mini")
        working = asyncio.ensure_future(collected(source, busy))
        await true(lambda: len(place.log) == 3)
        with pytest.raises(AgentError, match="All agents are busy"):
            await collected(source, place.turn("Hello", model="gpt-5.3-codex-low"))
        (tmp_path / "go-on").touch()
        assert isinstance((await working)[-1], agent_events.RunFinished)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked


async def test_workspaces_have_agents_of_their_own_and_take_turns(tmp_path: Path, place: Place) -> None:
    (tmp_path / "else").mkdir()
    async with place.living(PoolOptions(max_processes=1)) as source:
        for folder in ("work", "else", "work"):
            events = await collected(source, place.turn("Hello", workspace=str(tmp_path / folder)))
            assert isinstance(events[-1], agent_events.RunFinished)
            assert len(source.pids) == 1
    assert [Path(entry["cwd"]).name for entry in place.log] == ["work", "else", "work"]
    assert len({entry["pid"] for entry in place.log}) == 3


async def test_an_agent_that_had_its_number_of_turns_is_replaced(place: Place) -> None:
    async with place.living(PoolOptions(max_turns=2)) as source:
        for _ in range(4):
            await collected(source, place.turn("Hello"))
    assert len({entry["pid"] for entry in place.log}) == 2


async def test_a_source_that_is_closed_while_it_starts_leaves_nothing(place: Place) -> None:
    async with place.living() as source:
        await source._agent.probe()
        place.program.with_name("standin.json").write_text('{"slow_start_seconds": 600}')
        reading = asyncio.ensure_future(collected(source, place.turn("Hello")))
        await true(lambda: place.agents)
        await source.close()
        with pytest.raises(GatewayError):
            await reading
        with pytest.raises(GatewayError, match="shutting down"):
            await collected(source, place.turn("Hello"))


# --- what is wrong from the beginning -------------------------------------------------------------------


async def test_a_workspace_that_is_gone_is_reported(tmp_path: Path, place: Place) -> None:
    async with place.living() as source:
        with pytest.raises(GatewayError, match="cannot be started: No such file"):
            await collected(source, place.turn("Hello", workspace=str(tmp_path / "gone")))


# --- sessions that are opened in advance ------------------------------------------------------------------------


def _preparing(place: Place, seconds: float = LIMIT, **options: Any) -> AbstractAsyncContextManager[CursorAcpSource]:
    place.set(acp_logs_sessions=1)
    return place.living(**{"spare_seconds": seconds, "may_prepare": lambda workspace: True, **options})


def _opened(place: Place) -> list[str]:
    """The sessions, in the order of `session/new`."""
    return [record["session"] for record in records(place.home / "log") if record.get("blocks") == 0]


def _started(events: Sequence[agent_events.AgentEvent]) -> agent_events.RunStarted:
    assert isinstance(events[0], agent_events.RunStarted)
    return events[0]


async def test_a_new_conversation_gets_the_session_that_was_opened_in_advance(place: Place) -> None:

    async with _preparing(place) as source:
        first = await collected(source, place.turn("standin: text"))
        await true(lambda: len(_opened(place)) == 2)
        second = await collected(source, place.turn("standin: text"))
        assert [_started(first).is_warm, _started(second).is_warm] == [False, True]
        assert [session_of(first), session_of(second)] == _opened(place)[:2]
        await true(lambda: len(_opened(place)) == 3)  # for the next one
        again = await collected(source, place.turn("standin: history", session_id=session_of(second)))
        assert _started(again).is_warm
        assert json.loads(said(again))["turns"] == 1
        assert len(_opened(place)) == 3  # which is still there
        assert len({record["pid"] for record in records(place.home / "log") if "acp" in record["argv"]}) == 1


async def test_no_session_is_opened_in_advance_where_requests_are_refused(place: Place) -> None:

    async with _preparing(place, may_prepare=lambda workspace: False) as source:
        first = await collected(source, place.turn("standin: text"))
        await true(lambda: not source._preparing)
        assert _opened(place) == [session_of(first)]


@pytest.mark.parametrize("what", ["owner", "mode", "model", "person", "rule", "login", "age"])
async def test_a_session_that_was_opened_for_something_else_is_not_used(place: Place, what: str) -> None:
    async with _preparing(place, 0.001 if what == "age" else LIMIT) as source:
        await collected(source, place.turn("standin: text"))
        await true(lambda: len(_opened(place)) == 2)
        changed: dict[str, Any] = {}
        match what:
            case "owner":
                changed = {"owner": "another"}
            case "mode":
                changed = {"mode": "plan"}
            case "model":
                changed = {"model": "gpt-5-mini"}
            case "person":
                changed = {"person": Somebody()}
            case "rule":
                (place.home / "work" / "AGENTS.md").write_text("Be brief.")
            case "login":
                (place.home / ".cursor" / "auth.json").write_text("{}")
            case _:
                await asyncio.sleep(0.002)
        second = await collected(source, place.turn("standin: text", **changed))
        assert not _started(second).is_warm
        assert session_of(second) != _opened(place)[1]


async def test_two_conversations_at_once_do_not_share_a_prepared_session(place: Place) -> None:

    async with _preparing(place) as source:
        await collected(source, place.turn("standin: text"))
        await true(lambda: len(_opened(place)) == 2)
        both = await asyncio.gather(*(collected(source, place.turn("standin: text")) for _ in range(2)))
        assert any(_started(events).is_warm for events in both)  # both, if another one is ready by then
        assert len({session_of(events) for events in both}) == 2
        assert [record["prompt"] for record in place.log] == ["standin: text"] * 3


async def test_no_session_is_prepared_for_the_callers_tools_or_if_that_is_turned_off(place: Place) -> None:
    off = place.source()

    async with _preparing(place) as source:
        offered = OfferedTools(server="caller", url="", runner=Runner())
        await collected(source, place.turn("standin: text", offered=offered))
        await collected(off, place.turn("standin: text"))
        await off.close()
        assert len(_opened(place)) == 2


async def test_the_user_can_be_asked_in_a_prepared_session(place: Place) -> None:
    """It has its own server for questions, whose calls reach the conversation that took the session."""
    place.set(acp_logs_sessions=1)
    cli = CursorCliSource(CliOptions(), place.environ, place.ledger, lambda: 0.0)
    options = AcpOptions(grace_seconds=GRACE, spare_seconds=LIMIT)
    source = CursorAcpSource(options, cli, place.home / "acp", place.environ, place.ledger, ToolEndpoint())
    ask = 'standin: program\n---\n[{"call": "ask_user", "args": {"question": "Why?"}}, {"say": "So: $1"}]'

    async with place.living(made=source):
        first, second = (
            Somebody(),
            Somebody([ClarificationAnswer(question_id="ask_1_1", selected_option_ids=[], text="So.")]),
        )
        await collected(source, place.turn("standin: text", person=first))
        await true(lambda: len(_opened(place)) == 2)
        events = await collected(source, place.turn(ask, person=second))
        assert _started(events).is_warm
        assert [type(asked) for _, asked in second.asked] == [agent_events.Question]
        assert first.asked == []
        assert said(events) == "So: Why?\n- So."


async def test_a_session_that_cannot_be_prepared_fails_nothing(place: Place) -> None:

    async with _preparing(place) as source:
        assert failure(await collected(source, place.turn("standin: crash"))).code == "agent_crashed"
        assert said(await collected(source, place.turn("standin: text")))
        assert [record["prompt"] for record in place.log] == ["standin: crash", "standin: text"]


async def test_what_was_prepared_and_never_used_leaves_no_files(place: Place) -> None:

    async with _preparing(place) as source:
        await collected(source, place.turn("standin: text"))
        await true(lambda: len(_opened(place)) == 2)
        for folder in (place.home / "acp").iterdir():
            (folder / "acp-sessions" / _opened(place)[1]).mkdir(parents=True)  # as the real agent may
        await source.close()
        assert [found.name for found in place.home.glob("acp/*/acp-sessions/*")] == _opened(place)[:1]
