"""The beats of other processes in; those that have stood still for too long out.

No clock of another machine is read. A beat is a number that its process raises; what counts is for how long, by the
watcher's own clock, the same number was seen. A look that fails says nothing about anybody: the database may have been
away, and no beat could have been raised. So it starts all the times again, and so does one that needed a retry, or that
finds that the database has been started again since the last one.
"""

from collections.abc import Mapping


class Liveness:
    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._seen: dict[str, tuple[int | None, float]] = {}  # the beat, and since when it is the same

    def look(self, beats: Mapping[str, int | None], now: float) -> dict[str, int | None]:
        """Those that are dead, with their last beats. None for a beat: it is named somewhere, and is no member."""
        self._seen = {
            id: known if (known := self._seen.get(id)) is not None and known[0] == beat else (beat, now)
            for id, beat in beats.items()
        }
        return {id: beat for id, (beat, since) in self._seen.items() if now - since >= self._lease_seconds}

    def failed(self) -> None:
        """The beats could not be read."""
        self._seen.clear()
