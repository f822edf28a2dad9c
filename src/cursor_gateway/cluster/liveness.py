"""The beats of other processes in; the processes whose beat has not changed for too long out.

No clock of another machine is read. A beat is a number that its process increments; what counts is how long the
watcher, by its own clock, has seen the same number. A failed read says nothing about any process: the database may have
been unavailable, so that nobody could send a beat. It therefore restarts all the intervals, and so does a read that
needed a retry, or that finds that the database was restarted since the last one.
"""

from collections.abc import Mapping


class Liveness:
    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._seen: dict[str, tuple[int | None, float]] = {}  # the beat, and since when it is the same

    def look(self, beats: Mapping[str, int | None], now: float) -> dict[str, int | None]:
        """The dead processes with their last beats. A beat of None: the process is referenced somewhere but is not a
        member.
        """
        self._seen = {
            id: known if (known := self._seen.get(id)) is not None and known[0] == beat else (beat, now)
            for id, beat in beats.items()
        }
        return {id: beat for id, (beat, since) in self._seen.items() if now - since >= self._lease_seconds}

    def failed(self) -> None:
        """The beats could not be read."""
        self._seen.clear()
