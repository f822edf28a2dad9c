"""Parse and cache the output of `cursor-agent --list-models`."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

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
