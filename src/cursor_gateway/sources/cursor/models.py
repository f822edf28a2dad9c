"""What `cursor-agent --list-models` prints in, models out; and the list, fetched once and kept fresh."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

from cursor_gateway.errors import ShuttingDown
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor.failures import nearest_names, plain

_LINE = re.compile(r"(\S+) - (.+)")
_MARKER = re.compile(r"\((?:current|default)(?:, (?:current|default))*\)$")
_INVISIBLE = str.maketrans("", "", "\u200b\u200c\u200d\u2060\ufeff")  # labels have held U+200B


def parse_models(text: str) -> list[Model]:
    """Lines of `<id> - <label>`, with a mark at the default one; the header, the tip and what is new are skipped."""
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
    """Whether the agent may take this name: what only it can decide is left to it.

    Beside the listed ids it takes base slugs (`gpt-5.3-codex` of `gpt-5.3-codex-low`) and a base with parameters
    (`claude-opus-4-8[context=1m,effort=high]`).
    """
    if id.endswith("]"):
        id = id.partition("[")[0]
    return id == "auto" or any(model.id == id or (id and model.id.startswith(f"{id}-")) for model in models)


def nearest(id: str, models: Sequence[Model], count: int = 3) -> list[str]:
    """Ids that somebody may have meant, the likeliest first; none when nothing looks like it."""
    return nearest_names(id, {model.id: (model.label,) for model in models}, count)


class ModelCache:
    """Only the first call waits, and everybody waits for the same fetch; later ones get what is known at once."""

    def __init__(self, fetch: Callable[[], Awaitable[list[Model]]], seconds: float, clock: Callable[[], float]) -> None:
        self._fetch, self._seconds, self._clock = fetch, seconds, clock
        self._models: list[Model] | None = None
        self._asked_at = 0.0
        self._task: asyncio.Task[list[Model]] | None = None

    async def get(self) -> list[Model]:
        """Raises what the first fetch raises; the next call tries again. A refresh that fails keeps the old list."""
        if self._models is not None:
            if self._clock() - self._asked_at >= self._seconds:
                self._begin()
            return self._models
        task = self._begin()
        await asyncio.wait([task])  # a caller that is cancelled does not take the others' answer with it
        if task.cancelled():
            raise ShuttingDown("The gateway is about to stop; ask again when it is back.")
        return task.result()

    def peek(self) -> list[Model] | None:
        """What is known now."""
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
            self._asked_at = self._clock()  # of a failure, too: a program that is gone is not asked for every request

    def _ended(self, task: "asyncio.Task[list[Model]]") -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # looked at, so that the loop does not complain when nobody waits
