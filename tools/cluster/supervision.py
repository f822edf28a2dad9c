"""What has ended in; the same started again, after a while that grows with each time, out."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

_FIRST_SECONDS, _MOST_SECONDS = 1.0, 30.0
_STABLE_SECONDS = 20.0  # after which it counts as started for good


class Supervised(Struct, frozen=True, eq=False):
    name: str
    end: Callable[[], str]  # how it ended; empty while it runs
    start: Callable[[], None]


class _State:
    def __init__(self) -> None:
        self.seconds = _FIRST_SECONDS  # until it is started the next time
        self.due: float | None = None  # it has ended, and is started then
        self.started_at = 0.0
        self.is_reported = False


class Supervisor:
    def __init__(self, all: Sequence[Supervised], say: Callable[[str], None], *, restarts: bool = True) -> None:
        self._all, self._say, self._restarts = all, say, restarts
        self._states = {one.name: _State() for one in all}

    async def look(self, now: float) -> None:
        """By a clock that never goes back."""
        for one in self._all:
            state, end = self._states[one.name], one.end()
            if not end:
                if now - state.started_at > _STABLE_SECONDS:
                    state.seconds = _FIRST_SECONDS
            elif not self._restarts:
                if not state.is_reported:
                    self._say(f"{one.name} {end}, and stays dead.")
                    state.is_reported = True
            elif state.due is None:
                self._say(f"{one.name} {end}; it is started again in {state.seconds:g} s.")
                state.due = now + state.seconds
                state.seconds = min(2 * state.seconds, _MOST_SECONDS)
            elif now >= state.due:
                state.due, state.started_at = None, now
                await self._start(one)

    async def _start(self, one: Supervised) -> None:
        try:
            await asyncio.to_thread(one.start)
        except (OSError, RuntimeError) as error:  # it is still dead, which the next look sees
            self._say(f"{one.name} cannot be started: {error}")
        else:
            self._say(f"{one.name} was started again.")
