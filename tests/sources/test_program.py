"""The agent's program: found where people have it, told from others of its name, and asked what it can."""

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from cursor_gateway.errors import AgentMissing, AgentTimedOut, AgentUnauthenticated, ShuttingDown
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor import program
from cursor_gateway.sources.cursor.command import Program
from cursor_gateway.sources.cursor.program import (
    ModelCache,
    Ran,
    ask_program,
    candidates,
    find_program,
    is_known,
    nearest,
    parse_models,
    run_to_end,
)
from tests.agent.account import VERSION
from tests.agent.install import install

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def found(wanted: str, environment: Mapping[str, str]) -> Program:
    return asyncio.run(find_program(wanted, environment))


def around(*folders: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])}


# --- where it is ----------------------------------------------------------------------------------------


def test_its_own_name_comes_first_then_the_general_one(tmp_path: Path) -> None:
    general = script(tmp_path / "bin" / "agent", "true")
    assert candidates("", {"PATH": str(tmp_path / "bin")}) == [general]
    own = script(tmp_path / "bin" / "cursor-agent", "true")
    assert candidates("", {"PATH": str(tmp_path / "bin")}) == [own, general]


def test_the_place_of_its_installer_is_looked_at_last(tmp_path: Path) -> None:
    local = script(tmp_path / ".local" / "bin" / "cursor-agent", "true")
    assert candidates("", {"PATH": "/usr/bin", "HOME": str(tmp_path)}) == [local]
    first = script(tmp_path / "bin" / "cursor-agent", "true")
    assert candidates("", {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}) == [first]


def test_without_a_home_no_program_of_the_current_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / ".local" / "bin" / "cursor-agent", "true")
    monkeypatch.chdir(tmp_path)
    assert candidates("", {"PATH": "/usr/bin"}) == []
    assert candidates("", {"PATH": "/usr/bin", "HOME": ""}) == []


def test_a_program_can_be_named_or_pointed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path / "bin" / "my agent", "true")
    assert candidates("my agent", around(tmp_path / "bin")) == [path]
    assert candidates(path, ENVIRONMENT) == [path]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert candidates("~/bin/my agent", ENVIRONMENT) == [path]
    monkeypatch.chdir(tmp_path)
    assert candidates("bin/my agent", ENVIRONMENT) == [path]
    assert candidates("other", around(tmp_path / "bin")) == []


def test_one_program_under_one_name_is_asked_once(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "cursor-agent", "true")
    assert len(candidates("", around(tmp_path / "bin", tmp_path / "bin"))) == 1


# --- whether it is ours ---------------------------------------------------------------------------------


def test_it_is_asked_for_its_version_and_its_flags(tmp_path: Path) -> None:
    path = install(tmp_path / "bin")
    result = found("", around(tmp_path / "bin"))
    assert (result.path, result.version) == (str(path), VERSION)
    assert {"--print", "--mode", "--stream-partial-output"} <= result.flags


def test_another_program_of_its_name_is_passed_over(tmp_path: Path) -> None:
    script(tmp_path / "other" / "cursor-agent", "echo some agent 1.2.3")
    path = install(tmp_path / "bin", names=["agent"])
    assert found("", around(tmp_path / "other", tmp_path / "bin")).path == str(path)


@pytest.mark.parametrize("how", ["exec sleep 600", "#", "kill -9 $$", "exit 1"])
def test_a_program_that_fails_does_not_hide_one_that_works(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = script(tmp_path / "other" / "cursor-agent", how)
    if how == "#":
        Path(broken).write_bytes(b"\x7fELF not a program")
    path = install(tmp_path / "bin", names=["agent"])

    async def ask(path: str, environment: Mapping[str, str], launcher: Sequence[str]) -> Program | None:
        if path == broken and how == "exec sleep 600":  # only this one is not waited for
            await run_to_end([path, "--version"], environment, seconds=0.01)
        return await ask_program(path, environment, launcher)

    monkeypatch.setattr(program, "ask_program", ask)
    assert found("", around(tmp_path / "other", tmp_path / "bin")).path == str(path)


def test_a_version_is_enough_and_so_is_its_name_in_the_help(tmp_path: Path) -> None:
    environment = around(tmp_path)
    silent = script(tmp_path / "silent", 'if [ "$1" = --version ]; then echo 2026.10.01-abc; fi')
    assert asyncio.run(ask_program(silent, environment)) == Program(silent, "2026.10.01-abc", frozenset())
    nameless = script(tmp_path / "nameless", 'if [ "$1" = --help ]; then echo "Cursor Agent --print"; fi')
    assert asyncio.run(ask_program(nameless, environment)) == Program(nameless, "unknown", frozenset({"--print"}))
    warns = script(tmp_path / "warns", "printf 'a warning\\n2026.10.01-abc\\n'")
    result = asyncio.run(ask_program(warns, environment))
    assert result is not None
    assert result.version == "2026.10.01-abc"


def test_what_is_missing_or_not_ours_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentMissing, match=r"^cursor-agent is not installed; install it"):
        found("", {"PATH": str(tmp_path)})
    with pytest.raises(AgentMissing, match=r"^/missing is not installed"):
        found("/missing", ENVIRONMENT)
    path = script(tmp_path / "bin" / "agent", "echo some agent 1.2.3")
    with pytest.raises(AgentMissing, match=f"^{path} is not Cursor's agent"):
        found("", around(tmp_path / "bin"))


def test_a_program_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    path = script(tmp_path / "agent", "")
    Path(path).write_bytes(b"\x7fELF not a program")
    with pytest.raises(AgentMissing, match="Exec format error"):
        found(path, ENVIRONMENT)


# --- short commands -------------------------------------------------------------------------------------


def test_what_a_command_said_and_how_it_ended(tmp_path: Path) -> None:
    path = script(tmp_path / "agent", 'printf "a\\377$1"; printf words >&2; exit 3')
    assert asyncio.run(run_to_end([path, "x"], ENVIRONMENT)) == Ran(3, "a\ufffdx", "words")


def test_a_command_that_does_not_end_is_ended_and_named(tmp_path: Path) -> None:
    path = script(tmp_path / "agent", "echo $$ > pid; exec sleep 600")

    async def live() -> None:
        with pytest.raises(AgentTimedOut, match=r"^`agent --help` did not finish within 0\.01 s"):
            await run_to_end([path, "--help"], ENVIRONMENT, 0.01, str(tmp_path))

    asyncio.run(live())


def test_a_command_that_says_things_for_ever_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path / "agent", "head -c 3000000 /dev/zero | tr '\\0' x")
    monkeypatch.setattr(program, "_MOST", 10)
    assert asyncio.run(run_to_end([path], ENVIRONMENT)).stdout == "x" * 10


# --- Models ----------------------------------------------------------------------------------------

# As captured of version 2026.08.11.
PRINTED = """Available models

auto - Auto (current, default)
gpt-5.3-codex-low - Codex 5.3 Low
claude-sonnet-5-thinking-high - Claude Sonnet 5 1M Thinking
gpt-5.4-nano-none - GPT-5.4 Nano None

Tip: use --model <id> (or /model <id> in interactive mode) to switch. Parameterized models also accept quoted \
overrides, e.g. --model 'claude-opus-4-8[context=1m,effort=high,fast=false]'.
"""
MODELS = [
    Model("auto", "Auto", is_default=True),
    Model("gpt-5.3-codex-low", "Codex 5.3 Low"),
    Model("claude-sonnet-5-thinking-high", "Claude Sonnet 5 1M Thinking"),
    Model("gpt-5.4-nano-none", "GPT-5.4 Nano None"),
]
CAPTURE = Path(__file__).parents[3] / "shared" / "captures" / "2026.08.11-list-models.txt"


# --- what is printed ------------------------------------------------------------------------------------


def test_the_printed_list_is_read() -> None:
    assert parse_models(PRINTED) == MODELS
    assert parse_models(PRINTED.replace("\n", "\r\n")) == MODELS
    assert parse_models("") == []


@pytest.mark.skipif(not CAPTURE.exists(), reason="the captures are not at hand")
def test_the_captured_list_is_read() -> None:
    assert parse_models(CAPTURE.read_text(encoding="utf-8")) == MODELS


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("a - A (default)", Model("a", "A", is_default=True)),
        ("a - A (current)", Model("a", "A")),
        ("a - A (default, current)", Model("a", "A", is_default=True)),
        ("a - A (beta)", Model("a", "A (beta)")),
        ("a - A (default) B", Model("a", "A (default) B")),
        ("a - (default)", Model("a", "a", is_default=True)),
        ("a - One  two\u200b  three", Model("a", "One two three")),
        ("a - One - two", Model("a", "One - two")),
        ("  \x1b[1ma\x1b[0m - \x1b[32mA\x1b[0m  (default)  ", Model("a", "A", is_default=True)),
        ("base[x=1,y=2] - Base", Model("base[x=1,y=2]", "Base")),
    ],
)
def test_a_line_is_an_id_and_a_label(line: str, model: Model) -> None:
    assert parse_models(f"Available models\n\n{line}\n\nTip: …\n") == [model]


def test_unknown_lines_are_skipped_and_an_id_counts_once() -> None:
    text = "Update available!\na - A\n- b\nc -\nd\n - \nLoading models… done\na - Another\ne - E"
    assert parse_models(text) == [Model("a", "A"), Model("e", "E")]


# --- which names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "known"),
    [
        ("gpt-5.3-codex-low", True),
        ("auto", True),
        ("gpt-5.3-codex", True),
        ("claude-sonnet-5", True),
        ("claude-sonnet-5-thinking-high[fast=true]", True),
        ("claude-sonnet-5[effort=high,fast=true]", True),
        ("auto[]", True),
        ("gpt-5.3-codex-l", False),
        ("claude-opus-4-8[context=1m]", False),
        ("gpt-5.3-codex-low[", False),
        ("GPT-5.3-codex-low", False),
        ("[x]", False),
        ("", False),
    ],
)
def test_a_name_is_known_where_the_agent_may_take_it(id: str, known: bool) -> None:
    assert is_known(id, MODELS) is known


def test_auto_is_always_known() -> None:
    assert is_known("auto", [])


def test_the_nearest_are_found_by_id_and_by_label() -> None:
    assert nearest("gpt-5.3-codex-lo", MODELS)[0] == "gpt-5.3-codex-low"
    assert nearest("Claude Sonnet 5 1M", MODELS)[0] == "claude-sonnet-5-thinking-high"
    assert nearest("NANO", MODELS)[0] == "gpt-5.4-nano-none"
    assert nearest("zzz", MODELS) == []


# --- the cache ------------------------------------------------------------------------------------------


class Agent:
    """What fetches: each fetch waits until it is told how it ends."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[list[Model]]] = []
        self.now = 100.0
        self.cache = ModelCache(self.fetch, 60, lambda: self.now)

    async def fetch(self) -> list[Model]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]

    async def first(self) -> None:
        waiting = asyncio.create_task(self.cache.get())
        await settle()
        self.asked[-1].set_result(MODELS)
        assert await waiting == MODELS


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Coroutine[object, object, None]) -> None:
    """What nobody looked at is a failure, too: the loop complains of it."""
    complaints: list[object] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await test

    asyncio.run(watched())
    assert complaints == []


def test_the_first_callers_share_one_fetch() -> None:
    async def test() -> None:
        agent = Agent()
        assert agent.cache.peek() is None
        waiting = [asyncio.create_task(agent.cache.get()) for _ in range(3)]
        await settle()
        assert agent.cache.peek() is None
        agent.asked[0].set_result(MODELS)
        assert await asyncio.gather(*waiting) == [MODELS] * 3
        assert agent.cache.peek() == MODELS
        assert len(agent.asked) == 1

    run(test())


def test_a_caller_that_leaves_does_not_take_the_answer_with_it() -> None:
    async def test() -> None:
        agent = Agent()
        leaving, staying = (asyncio.create_task(agent.cache.get()) for _ in range(2))
        await settle()
        leaving.cancel()
        await settle()
        agent.asked[0].set_result(MODELS)
        assert await staying == MODELS
        with suppress(asyncio.CancelledError):
            await leaving

    run(test())


def test_an_old_list_is_given_at_once_and_fetched_again_behind_it() -> None:
    async def test() -> None:
        agent = Agent()
        await agent.first()
        agent.now += 59
        assert await agent.cache.get() == MODELS
        await settle()
        assert len(agent.asked) == 1
        agent.now += 1
        assert await agent.cache.get() == await agent.cache.get() == MODELS
        await settle()
        assert len(agent.asked) == 2
        agent.asked[1].set_result(MODELS[:1])
        await settle()
        assert await agent.cache.get() == agent.cache.peek() == MODELS[:1]

    run(test())


def test_a_refresh_that_fails_keeps_the_old_list_and_is_not_tried_for_every_request() -> None:
    async def test() -> None:
        agent = Agent()
        await agent.first()
        agent.now += 60
        await agent.cache.get()
        await settle()
        agent.asked[1].set_exception(AgentUnauthenticated("Log in."))
        await settle()
        assert await agent.cache.get() == MODELS
        await settle()
        assert len(agent.asked) == 2
        agent.now += 60
        await agent.cache.get()
        await settle()
        assert len(agent.asked) == 3
        await agent.cache.close()

    run(test())


def test_a_first_fetch_that_fails_fails_for_all_and_is_tried_again_by_the_next() -> None:
    async def test() -> None:
        agent = Agent()
        waiting = [asyncio.create_task(agent.cache.get()) for _ in range(2)]
        await settle()
        agent.asked[0].set_exception(AgentUnauthenticated("Log in."))
        result = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in result] == [AgentUnauthenticated] * 2
        await agent.first()
        assert len(agent.asked) == 2

    run(test())


def test_a_failure_that_nobody_waits_for_any_more_is_no_complaint() -> None:
    async def test() -> None:
        agent = Agent()
        waiting = asyncio.create_task(agent.cache.get())
        await settle()
        waiting.cancel()
        await settle()
        agent.asked[0].set_exception(AgentUnauthenticated("Log in."))
        await settle()
        agent.asked.clear()

    run(test())


def test_closing_ends_what_is_under_way_and_tells_who_waits() -> None:
    async def test() -> None:
        agent = Agent()
        await agent.cache.close()
        waiting = asyncio.create_task(agent.cache.get())
        await settle()
        await agent.cache.close()
        assert agent.asked[0].cancelled()
        with pytest.raises(ShuttingDown):
            await waiting
        await agent.cache.close()

    run(test())
