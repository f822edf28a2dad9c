"""The agent's program: found where people have it, told from others of its name, and asked what it can."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cursor_gateway.errors import AgentMissing, AgentTimedOut
from cursor_gateway.sources.cursor import program
from cursor_gateway.sources.cursor.command import Program
from cursor_gateway.sources.cursor.program import Ran, ask_program, candidates, find_program, run_to_end
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


async def test_a_command_that_does_not_end_is_ended_and_named(tmp_path: Path) -> None:
    path = script(tmp_path / "agent", "echo $$ > pid; exec sleep 600")
    with pytest.raises(AgentTimedOut, match=r"^`agent --help` did not finish within 0\.01 s"):
        await run_to_end([path, "--help"], ENVIRONMENT, 0.01, str(tmp_path))


def test_a_command_that_says_things_for_ever_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path / "agent", "head -c 3000000 /dev/zero | tr '\\0' x")
    monkeypatch.setattr(program, "_MOST", 10)
    assert asyncio.run(run_to_end([path], ENVIRONMENT)).stdout == "x" * 10
