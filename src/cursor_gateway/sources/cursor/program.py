"""Find Cursor's agent on this machine, with its version and flags, and list its models."""

import asyncio
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from cursor_gateway.errors import AgentError, AgentMissing, AgentTimedOut, ShuttingDown, unknown_model
from cursor_gateway.sources.base import Model, Source
from cursor_gateway.sources.cursor.command import INSTALL_ADVICE, Program, flags_of
from cursor_gateway.sources.cursor.failures import nearest_names, plain
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


# --- Models ----------------------------------------------------------------------------------------

_LINE = re.compile(r"(\S+) - (.+)")
_MARKER = re.compile(r"\((?:current|default)(?:, (?:current|default))*\)$")
_INVISIBLE = str.maketrans("", "", "\u200b\u200c\u200d\u2060\ufeff")  # labels have held U+200B


def parse_models(text: str) -> list[Model]:
    """Reads lines of `<id> - <label>`, one marked as the default; skips the header, the tip and unknown lines."""
    models: dict[str, Model] = {}
    for line in plain(text).split("\n"):
        if found := _LINE.fullmatch(" ".join(line.translate(_INVISIBLE).split())):
            id, label = found[1], found[2]
            marker = _MARKER.search(label)
            if marker:
                label = label[: marker.start()].rstrip()
            models.setdefault(id, Model(id, label or id, marker is not None and "default" in marker[0]))
    return list(models.values())


def is_known(id: str, models: Sequence[Model]) -> bool:
    """Whether the agent may accept this name; when in doubt, True, and the agent decides.

    Besides the listed ids it accepts base slugs (`gpt-5.3-codex` of `gpt-5.3-codex-low`) and a base with parameters
    (`claude-opus-4-8[context=1m,effort=high]`).
    """
    if id.endswith("]"):
        id = id.partition("[")[0]
    return id == "auto" or any(model.id == id or (id and model.id.startswith(f"{id}-")) for model in models)


def nearest(id: str, models: Sequence[Model]) -> list[str]:
    """Suggestions for an unknown id, most likely first; empty when nothing is similar."""
    return nearest_names(id, {model.id: (model.label,) for model in models})


class ModelCache:
    """Only the first callers wait, all for the same fetch; later ones get the cached list at once."""

    def __init__(self, fetch: Callable[[], Awaitable[list[Model]]], seconds: float, clock: Callable[[], float]) -> None:
        self._fetch, self._seconds, self._clock = fetch, seconds, clock
        self._models: list[Model] | None = None
        self._fetched_at = 0.0
        self._task: asyncio.Task[list[Model]] | None = None

    async def get(self) -> list[Model]:
        """Raises what the first fetch raises; the next call retries. A failed refresh keeps the old list."""
        if self._models is not None:
            if self._clock() - self._fetched_at >= self._seconds:
                self._begin()
            return self._models
        task = self._begin()
        await asyncio.wait([task])  # cancelling one caller must not cancel the fetch for the others
        if task.cancelled():
            raise ShuttingDown("The gateway is shutting down; retry when it is back.")
        return task.result()

    def check(self, model: str) -> None:
        """Raises `ModelUnavailable` for a name that is not in the cached list."""
        if self._models is not None and not is_known(model, self._models):
            raise unknown_model(model, nearest(model, self._models))

    def peek(self) -> list[Model] | None:
        """The cached list, without fetching."""
        return self._models

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _begin(self) -> "asyncio.Task[list[Model]]":
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._refresh(), name="models")
            self._task.add_done_callback(self._ended)
        return self._task

    async def _refresh(self) -> list[Model]:
        try:
            self._models = await self._fetch()
            return self._models
        finally:
            self._fetched_at = self._clock()  # after a failure, too: a missing program is not started on every request

    def _ended(self, task: "asyncio.Task[list[Model]]") -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it when no caller waits
