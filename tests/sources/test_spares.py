"""Agents that were started in advance: when one is used, when another one is started, and that none is left."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cursor_gateway.model.agent_events import AgentEvent, RunStarted
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.sources import processes
from cursor_gateway.sources.base import OfferedTools, Turn
from cursor_gateway.sources.cli import source as module
from cursor_gateway.sources.cli.source import CursorCliSource
from cursor_gateway.sources.cli.spares import SpareOptions
from cursor_gateway.sources.cursor.configuration import agent_files
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.processes import start_of
from tests.agent.install import install
from tests.agent.records import records
from tests.runs.scripted import true
from tests.sources.test_acp_source import Somebody
from tests.sources.test_cli_source import GRACE, Place
from tests.sources.turns import collected, failure, said, session_of

LIMIT = 60.0  # for a red build only


class Life:
    """A source with spare agents, and conversations with numbers."""

    def __init__(self, place: Place, *, most: int = 2, seconds: float = LIMIT, **options: Any) -> None:
        spares = SpareOptions(most=most, seconds=seconds, quiet_seconds=0.0, grace_seconds=GRACE)
        self.place, self.most = place, most
        self.source: CursorCliSource = place.source(spares=spares, **options)
        self.made = 0

    def turn(self, prompt: str = "standin: text", **turn: Any) -> Turn:
        """Of a new conversation, in the folder of a spare agent if there is one for it."""
        self.made += 1
        folders = {name: str(self.place.home / f"{name}{self.made}") for name in ("folder", "next_folder")}
        made = self.place.turn(prompt, **{"owner": "key", **folders, **turn})
        if "folder" not in turn and made.offered is None:
            claimed = self.source.claim_spare(made)
            made = Turn(**{**_fields(made), "folder": claimed or made.folder})
        os.makedirs(made.folder, exist_ok=True)
        return made

    async def answer(self, turn: Turn) -> list[AgentEvent]:
        events = await collected(self.source, turn)
        assert isinstance(events[0], RunStarted)
        return events

    async def next(self, turn: Turn, events: list[AgentEvent], **changed: Any) -> list[AgentEvent]:
        """The next turn of a conversation."""
        return await self.answer(Turn(**{**_fields(turn), "session_id": session_of(events), **changed}))

    async def settled(self) -> None:
        """What is wanted has been started."""
        spares = self.source._spares
        await true(lambda: spares._timer is None and (spares._filling is None or spares._filling.done()))

    async def spares(self, count: int | None = None) -> list[int]:
        await self.settled()
        await true(lambda: len(self.source.spare_pids) == (self.most if count is None else count))
        return self.source.spare_pids


def _fields(turn: Turn) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in turn.__struct_fields__}


def is_warm(events: list[AgentEvent]) -> bool:
    assert isinstance(events[0], RunStarted)
    return events[0].is_warm


@asynccontextmanager
async def living(place: Place, **more: Any) -> AsyncIterator[Life]:
    """And nothing of any agent is left, nor of a folder that no conversation has."""
    life = Life(place, **more)
    try:
        async with asyncio.timeout(LIMIT):
            yield life
    finally:
        pids = life.source.spare_pids
        await life.source.close()
        assert [pid for pid in pids if start_of(pid) is not None] == []
    used = {record["config_dir"] for record in place.log}
    assert {str(found) for found in place.home.glob("next_folder*/cursor")} <= used
    assert not (place.ledger.folder / "compared").exists()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(tmp_path).opened() as place:
        yield place


async def test_the_next_turn_and_a_new_conversation_have_agents_that_wait(place: Place) -> None:
    async with living(place) as life:
        turn, running = life.turn(), processes.running()
        first = await life.answer(turn)
        waiting = set(await life.spares())
        assert processes.running() == running  # they are no runs
        second = await life.next(turn, first, prompt="standin: history")
        assert json.loads(said(second))["turns"] == 1
        await life.spares()
        new = life.turn()
        assert new.folder.endswith("next_folder1")
        third = await life.answer(new)
        assert session_of(third) != session_of(first)
        assert [is_warm(events) for events in (first, second, third)] == [False, True, True]
        log = life.place.log
        assert {log[1]["pid"], log[2]["pid"]} == waiting
        assert [record["source"] for record in log] == ["stdin"] * 3
        assert log[2]["config_dir"] == f"{new.folder}/cursor"


async def test_with_one_agent_what_came_last_is_expected_again(place: Place) -> None:
    async with living(place, most=1) as life:
        turn = life.turn()
        first = await life.answer(turn)
        warm = []
        for _ in range(2):
            await life.spares()
            first = await life.next(turn, first)
            warm.append(is_warm(first))
        await life.spares()
        for _ in range(4):
            warm.append(is_warm(await life.answer(life.turn())))
            await life.spares()
        assert warm == [True, True, False, False, True, True]


CHANGED_TURNS: dict[str, dict[str, Any]] = {
    "model": {"model": "gpt-5-mini"},
    "mode": {"mode": "plan"},
    "allowed command": {"allow": ["Shell(npm)"]},
}
CHANGED_FILES = {
    "rule": "work/.cursor/rules/new.mdc",
    "AGENTS.md": "work/AGENTS.md",
    "hooks": "work/.cursor/hooks.json",
    "settings": ".cursor/cli-config.json",
    "login": ".config/cursor/auth.json",
}


def _change(life: Life, what: str) -> dict[str, Any]:
    """Returns what is different in the turn."""
    if (name := CHANGED_FILES.get(what)) is not None:
        (life.place.home / name).parent.mkdir(parents=True, exist_ok=True)
        (life.place.home / name).write_text("{}")
    elif what == "environment":
        life.source._environment["LC_ALL"] = "C"
    elif what == "program":
        install(life.place.home / "bin", knobs={"log": str(life.place.home / "log")})
    return CHANGED_TURNS.get(what, {})


@pytest.mark.parametrize("what", [*CHANGED_TURNS, *CHANGED_FILES, "environment", "program"])
async def test_with_other_inputs_another_agent_is_started(place: Place, what: str) -> None:
    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        waiting = await life.spares()
        changed = _change(life, what)
        second = await life.next(turn, first, **changed)
        assert not is_warm(second)
        third = await life.answer(life.turn(**changed))
        assert not is_warm(third) or life.place.log[2]["pid"] not in waiting
        assert [record["prompt"] for record in life.place.log] == ["standin: text"] * 3


@pytest.mark.parametrize("whose", [{"owner": "other"}, {"workspace": "other"}])
async def test_what_waits_for_one_is_not_for_another(tmp_path: Path, place: Place, whose: dict[str, str]) -> None:
    async with living(place) as life:
        await life.answer(life.turn())
        await life.spares()
        given = dict(whose)
        if "workspace" in given:
            (tmp_path / "other").mkdir()
            given["workspace"] = str(tmp_path / "other")
        turn = life.turn(**given)
        assert "next_folder" not in turn.folder
        assert not is_warm(await life.answer(turn))


class Runner:
    tools = ()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        raise AssertionError


@pytest.mark.parametrize(
    "tools", [{"offered": OfferedTools(server="caller", url="", runner=Runner())}, {"person": Somebody()}]
)
async def test_none_is_started_or_used_for_an_agent_with_tools_of_its_own(place: Place, tools: dict[str, Any]) -> None:
    """Those of a caller, or the one that asks the user: their address differs for each turn."""

    async with living(place) as life:
        turn = life.turn(**tools)
        first = await life.answer(turn)
        assert not is_warm(await life.next(turn, first))
        await life.spares(0)
        turn = life.turn()
        first = await life.answer(turn)
        await life.spares()
        assert not is_warm(await life.next(turn, first, **tools))
        assert len(life.place.log) == 4


async def test_two_at_once_get_one_that_waits_and_one_of_their_own(place: Place) -> None:
    async with living(place) as life:
        await life.answer(life.turn())
        await life.spares()
        both = await asyncio.gather(*(life.answer(life.turn()) for _ in range(2)))
        assert sorted(map(is_warm, both)) == [False, True]
        assert len({record["session"] for record in life.place.log}) == 3


async def test_one_that_dies_is_replaced(place: Place) -> None:
    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        for pid in await life.spares():
            os.kill(pid, signal.SIGKILL)
        await life.spares(0)
        second = await life.next(turn, first)
        assert not is_warm(second)
        await life.spares()
        assert is_warm(await life.next(turn, second))


async def test_one_that_has_written_something_is_not_used(place: Place) -> None:
    """Such as a warning on stderr."""
    _wrap(place, 'if "--resume" in sys.argv: sys.stderr.write("Update available\\n"); sys.stderr.flush()')

    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        await life.spares()
        (spare,) = (one for one in life.source._spares._spares.values() if one.turn.session_id is not None)
        await true(lambda: not spare.process.is_silent)
        assert not is_warm(await life.next(turn, first))


async def test_agents_that_do_not_wait_in_silence_are_not_started_for_ever(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    _wrap(place, 'if "--resume" in sys.argv: sys.stderr.write("Update available\\n"); sys.stderr.flush()')

    async with living(place, most=1) as life:
        turn = life.turn()
        events = await life.answer(turn)
        for _ in range(3):
            await life.spares()
            (spare,) = life.source._spares._spares.values()
            await _spoken(spare.process)
            events = await life.next(turn, events)
        assert "before it gets its prompt (Update available)" in caplog.text
        await life.spares(0)


async def _spoken(process: AgentProcess) -> None:
    await true(lambda: not process.is_silent)


def _wrap(place: Place, line: str) -> None:
    """Has the stand-in do something else first."""
    words = place.program.read_text().splitlines()
    place.program.write_text("\n".join([words[0], "import os, stat, sys", line, *words[1:], ""]))


@pytest.mark.parametrize("ending", ["os._exit(7)", "os.kill(os.getpid(), 9)"])
async def test_one_that_fails_with_its_prompt_is_the_last_of_its_version(
    place: Place, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    """Here, a build that does not read its prompt from a pipe. The prompt goes to another agent, once."""
    _wrap(place, f'if "-p" in sys.argv and stat.S_ISFIFO(os.fstat(0).st_mode):\n    sys.stdin.read(); {ending}')

    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        await life.spares()
        second = await life.next(turn, first, prompt="standin: history")
        assert not is_warm(second)
        assert json.loads(said(second))["turns"] == 1
        assert "is not started in advance any more" in caplog.text
        await life.answer(life.turn())
        await life.settled()
        assert life.source.spare_pids == []
        assert len(place.log) == 3


async def test_a_failure_that_is_not_the_spare_agents_is_reported_and_costs_it_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        await life.spares()
        more = Turn(**{**_fields(turn), "session_id": session_of(first), "prompt": "standin: fail-auth"})
        assert failure(await collected(life.source, more)).code == "agent_unauthenticated"
        assert "any more" not in caplog.text
        await life.next(turn, first)
        await life.spares()


async def test_one_that_refuses_its_session_is_not_followed_by_another_with_the_same_session(place: Place) -> None:
    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        await life.spares()
        (store,) = Path(turn.folder).glob("cursor/chats/*/*/store.db")
        store.write_bytes(b"SQLite format 3\0 no more")
        more = Turn(**{**_fields(turn), "session_id": session_of(first), "prompt": "more"})
        assert failure(await collected(life.source, more)).code == "session_lost"
        assert [record["prompt"] for record in place.log].count("more") == 1
        assert life.source._spares._off is None


async def test_agents_that_do_not_wait_are_not_started_for_ever(
    tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    _wrap(place, 'if "-p" in sys.argv and stat.S_ISFIFO(os.fstat(0).st_mode): sys.exit("No prompt provided")')

    async with living(place, most=1) as life:
        for _ in range(3):
            await life.answer(life.turn())
            await life.spares(0)
        assert "does not wait for its prompt (No prompt provided)" in caplog.text
        assert len(records(tmp_path / "log")) == len(place.log) + 2  # `--version` and `--help`


async def test_a_build_that_does_not_read_its_prompt_from_stdin_is_not_started_in_advance(place: Place) -> None:
    place.set(version="2026.07.16-899851b")
    async with living(place) as life:
        await life.answer(life.turn())
        await life.settled()
        assert life.source.spare_pids == []


async def test_none_is_started_where_requests_are_refused(place: Place) -> None:
    """The agent reads the hooks of its workspace when it starts, and may have written them in the turn before."""
    refused = [place.turn("").workspace]

    async with living(place, may_prepare=lambda workspace: workspace not in refused) as life:
        turn = life.turn()
        first = await life.answer(turn)
        await life.settled()
        assert life.source.spare_pids == []
        refused.clear()
        assert not is_warm(await life.next(turn, first))
        await life.spares()


async def test_an_agent_that_nobody_needs_ends_and_its_folder_with_it(tmp_path: Path, place: Place) -> None:
    async with living(place, seconds=0.05) as life:
        await life.answer(life.turn())
        await life.settled()
        await life.spares(0)
        await true(lambda: not list(tmp_path.glob("next_folder*")))


async def test_a_conversation_that_is_deleted_has_no_agent_that_waits(place: Place) -> None:
    async with living(place) as life:
        turn = life.turn()
        await life.answer(turn)
        before = await life.spares()
        assert await life.source.forget(turn.folder)
        (left,) = life.source.spare_pids
        assert [start_of(pid) for pid in before if pid != left] == [None]
        assert left in before


async def test_a_gateway_that_is_shutting_down_ends_them_and_starts_no_others(place: Place) -> None:
    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        waiting = await life.spares()
        await life.source.end_spares()
        assert [start_of(pid) for pid in waiting] == [None, None]
        assert not is_warm(await life.next(turn, first))
        await life.settled()
        assert life.source.spare_pids == []


async def test_a_turn_that_is_cancelled_ends_the_agent_that_had_waited(place: Place) -> None:
    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        waiting = await life.spares()
        running = asyncio.ensure_future(life.next(turn, first, prompt="standin: hang"))
        await true(lambda: len(life.place.log) == 2)
        running.cancel()
        await asyncio.wait([running])
        (left,) = life.source.spare_pids
        assert [start_of(pid) for pid in waiting if pid != left] == [None]


async def test_a_long_prompt_arrives(place: Place) -> None:
    """One that no pipe holds."""

    async with living(place) as life:
        turn = life.turn()
        first = await life.answer(turn)
        await life.spares()
        second = await life.next(turn, first, prompt=f"{'é' * 500_000}\nstandin: text")
        assert is_warm(second)
        assert len(life.place.log[1]["prompt"]) > 500_000


async def test_a_turn_that_is_cancelled_before_its_first_word_ends_its_agent_at_once(place: Place) -> None:
    reading = "sys.stdin.read(); __import__('time').sleep(600)"
    _wrap(place, f'if "-p" in sys.argv and stat.S_ISFIFO(os.fstat(0).st_mode): {reading}')

    async with living(place) as life:
        life.source._options = replace(life.source._options, grace_seconds=LIMIT)
        turn = life.turn()
        first = await life.answer(turn)
        await life.spares()
        running = asyncio.ensure_future(life.next(turn, first))
        await true(lambda: len(life.source.spare_pids) == 1)
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.wait([running], timeout=LIMIT / 4)
        assert running.cancelled()


async def test_a_comparison_that_was_cancelled_does_not_disturb_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread continues."""

    async with living(place) as life:
        turn = life.turn(allow=["Shell(git)"])
        expected = await life.source._inputs(turn)
        begun, proceed = threading.Event(), threading.Event()
        folder = life.place.ledger.folder / "compared"

        def slow(*given: Any) -> Any:
            if not begun.is_set():
                begun.set()
                assert proceed.wait(LIMIT)
            else:  # a moment in which the other one might delete the files
                for _ in range(50):
                    time.sleep(0.01 if folder.exists() else 0)
            return agent_files(*given)

        monkeypatch.setattr(module, "agent_files", slow)
        cancelled = asyncio.ensure_future(life.source._inputs(turn))
        await true(begun.is_set)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        other = asyncio.ensure_future(life.source._inputs(turn))
        await asyncio.sleep(0.1)
        proceed.set()
        assert await other == expected
