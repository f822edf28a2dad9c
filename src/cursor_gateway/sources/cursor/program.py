"""Find Cursor's agent on this machine, with its version and flags."""

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from cursor_gateway.errors import AgentError, AgentMissing, AgentTimedOut
from cursor_gateway.sources.base import Source
from cursor_gateway.sources.cursor.command import INSTALL_ADVICE, Program, flags_of
from cursor_gateway.sources.process import AgentProcess

_NAMES = ("cursor-agent", "agent")
_VERSION = re.compile(r"^\d{4}\.\d{2}\.\d{2}-[0-9a-z]+", re.MULTILINE)
_PROBE_SECONDS = 30.0
_MOST = 1024 * 1024  # bytes of output kept; a program that prints forever is not Cursor's


class InstalledAgent(Source, Protocol):
    """The source that finds Cursor's agent on this machine, for others that use the same program."""

    @property
    def missing(self) -> str:
        """Why it cannot be started; empty if it can, as far as is known without trying."""
        ...

    async def probe(self) -> Program:
        """Raises an `AgentError`."""
        ...


class Ran(Struct, frozen=True):
    status: int | None
    stdout: str
    stderr: str


async def run_to_end(
    arguments: Sequence[str], environment: Mapping[str, str], seconds: float = _PROBE_SECONDS, folder: str = "/"
) -> Ran:
    """Runs one of the agent's short commands. Raises `AgentMissing`, `AgentTimedOut`."""
    process = await AgentProcess.start(arguments, folder=folder, environment=environment, stdin=None)
    output = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while piece := await process.read():
                output += piece[: _MOST - len(output)]
            await process.wait(seconds)
    except TimeoutError:
        raise AgentTimedOut(
            f"`{' '.join([os.path.basename(arguments[0]), *arguments[1:]])}` did not finish within {seconds:g} s; "
            "run it in a terminal to see why."
        ) from None
    finally:
        await process.end(0.2)
    return Ran(process.status, output.decode("utf-8", "replace"), process.stderr_tail)


async def find_program(wanted: str, environment: Mapping[str, str], launcher: Sequence[str] = ()) -> Program:
    """The first that is Cursor's: other programs are named `agent`, too. Raises `AgentMissing`, `AgentTimedOut`."""
    tried, failures = [], []
    for path in candidates(wanted, environment):
        try:
            program = await ask_program(path, environment, launcher)
        except AgentError as error:
            failures.append(error)
            continue
        if program is not None:
            return program
        tried.append(path)
    if failures:
        raise failures[0]
    if tried:
        raise AgentMissing(f"{', '.join(tried)} is not Cursor's agent; {INSTALL_ADVICE}.")
    raise AgentMissing(f"{wanted or 'cursor-agent'} is not installed; {INSTALL_ADVICE}.")


def candidates(wanted: str, environment: Mapping[str, str]) -> list[str]:
    folders = [environment.get("PATH", os.defpath)]
    if home := environment.get("HOME"):
        folders.append(os.path.join(home, ".local", "bin"))
    names = [os.path.expanduser(wanted)] if wanted else list(_NAMES)
    found = [shutil.which(name, path=os.pathsep.join(folders)) for name in names]
    return list(dict.fromkeys(os.path.abspath(path) for path in found if path))


async def ask_program(path: str, environment: Mapping[str, str], launcher: Sequence[str] = ()) -> Program | None:
    """None when it is not Cursor's."""
    command = [*launcher, path]
    try:
        async with asyncio.TaskGroup() as both:  # in parallel: each takes a full start of the agent
            version_run = both.create_task(run_to_end([*command, "--version"], environment))
            help_run = both.create_task(run_to_end([*command, "--help"], environment))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    help_text = help_run.result().stdout
    version = _VERSION.search(version_run.result().stdout)
    if version is None and "Cursor" not in help_text:
        return None
    return Program(path, version[0] if version else "unknown", flags_of(help_text), launcher)
