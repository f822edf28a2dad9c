"""The models of Cursor's agent: listed and cached; and which of them a client's name stands for."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from cursor_gateway.errors import ShuttingDown, unknown_model
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor.failures import nearest_names, plain

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


# --- Names that clients use ------------------------------------------------------------------------
# Clients of Anthropic's and OpenAI's APIs send names of Claude and GPT models by default, including names that Cursor
# does not have. An alias stands for one of Cursor's models, or for a word: then for the newest model with that word in
# its name.

CLAUDE = "claude-"
FAMILIES = ("opus", "sonnet", "haiku", "fable", "mini", "nano", "gpt")
_SMALL = ("mini", "nano")
# What OpenAI's clients ask for by default; also Azure's `gpt-35-turbo`. Newer names are Cursor's own, and a mistake in
# one of them is an error.
_OPENAI = re.compile(r"(?:chatgpt-|gpt-35|(?:gpt-[34]|o[134])(?![0-9])).*")
_FALLBACK = "auto"
_VERSION = re.compile(r"\d+(?![0-9A-Za-z])")  # without the 1m of a context's size
_DATE = 1000  # larger numbers are dates


def is_alias(name: str, aliases: Mapping[str, str]) -> bool:
    return name in aliases or name.startswith(CLAUDE) or _OPENAI.fullmatch(name) is not None


def resolve(name: str, aliases: Mapping[str, str], models: Sequence[Model]) -> str:
    """Any name that `is_alias` stands for a model; if nothing better is listed, for `auto`."""
    is_own = any(model.id == name for model in models)
    if name not in aliases or (is_own and not _is_listed(aliases[name], models)):  # a word does not replace a model
        for listed in (name, name.removeprefix(CLAUDE)):  # the second: a name under which Claude Code lists it
            if _is_listed(listed, models):
                return listed
    family = max((family for family in (*aliases, *FAMILIES) if family in name), key=len, default="")
    return _meant(aliases.get(name) or aliases.get(family, family), models)


def name_for_claude_code(id: str) -> str:
    """Claude Code shows only models whose names contain `claude`."""
    return id if "claude" in id or "anthropic" in id else f"{CLAUDE}{id}"


def _meant(target: str, models: Sequence[Model]) -> str:
    if _is_listed(target, models):
        return target
    found = [model.id for model in models if target and _has_word(model.id, target)]
    return max(found, key=lambda name: (not _is_small(name), _version(name), -len(name)), default=_FALLBACK)


def _has_word(name: str, word: str) -> bool:
    """Not within another word: `gemini` is no `mini`."""
    return re.search(rf"(?<![0-9A-Za-z]){re.escape(word)}(?![A-Za-z])", name) is not None


def _is_small(name: str) -> bool:
    return any(_has_word(name, word) for word in _SMALL)


def _is_listed(name: str, models: Sequence[Model]) -> bool:
    """By its id; a base name, of which only variants are listed, is one if it has a version."""
    is_listed = any(name.partition("[")[0] == model.id for model in models)
    return is_listed or name == _FALLBACK or (any(map(str.isdigit, name)) and is_known(name, models))


def _version(id: str) -> tuple[int, ...]:
    return tuple(number for found in _VERSION.findall(id) if (number := int(found[:9])) < _DATE)
