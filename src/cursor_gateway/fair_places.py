"""Who holds places and who waits, in; whose turn it is, out. For runs, and whatever else owners (API keys) share.

The places are shared between the owners (API keys) that want any at the moment. Each owner's fair share is the number
of places divided by the number of such owners, rounded up. When others were active recently, the last free places are
kept for them: one for each of them that has less than its share, and at most a quarter of all. An owner that has less
than its share itself may take these too. The very last one is only for an owner that has none, as long as there is
another API key that has none: whose runs never end can have all places but one. When no place is left for an owner:

- if it holds its share or more, it is refused at once, with `Retry-After`;
- if it holds less, it waits, for a bounded time, for the next place that becomes free;
- the next place goes to the request with the highest priority, among equals to the owner that holds the fewest, and
  among these to the one that has waited longest.

So an owner that sends one request after the other finds a place at once, however greedy another one is. One that has
been away gets the last place, or waits for the next run to end: a greedy owner keeps what it has, but every place that
it gives back goes to others until they have their shares. As long as the runs of all but one key end, no key starves.
No active run is stopped for this.

Runs that wait for their callers' tool results hold no place, but they hold memory and a process, so their number is
limited as well. Over the limit, the owner with the most of them gives up the one that has waited longest.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from math import ceil
from typing import Literal, TypeAlias

from msgspec import Struct

Verdict: TypeAlias = Literal["start", "wait", "own limit", "all taken", "kept for others"]

RECENT_SECONDS = 60.0  # places are kept for owners that were active so long ago


class Shares(Struct, frozen=True, kw_only=True):
    """The operator's limits; 0 for one key means no limit of its own."""

    max_runs: int
    max_runs_per_key: int = 0
    max_waiting_per_key: int = 0
    queue_seconds: float = 30.0
    api_keys: Collection[str] = ()  # the owners that may come at any time


def fair_share(places: int, owners: Collection[str]) -> int:
    return ceil(places / max(1, len(set(owners))))


def has_place(owner: str, held: Mapping[str, int], recent: Set[str], shares: Shares) -> bool:
    """Whether there is a free place that is not kept for other owners. `recent` are those that were active recently."""
    own, free = held.get(owner, 0), shares.max_runs - sum(held.values())
    active = {name for name, count in held.items() if count} | recent | {owner}
    share = shares.max_runs // len(active)  # rounded down: all of them can have it at the same time
    if own < share:
        return free > (own > 0 and _others_have_none(owner, held, shares))
    wanting = sum(held.get(other, 0) < share for other in active - {owner})
    kept = min(wanting, max(1, shares.max_runs // 4))
    return free > max(kept, own > 0 and _others_have_none(owner, held, shares))


def _others_have_none(owner: str, held: Mapping[str, int], shares: Shares) -> bool:
    return any(not held.get(key) for key in shares.api_keys if key != owner)


def has_plenty(busy: int, shares: Shares) -> bool:
    """Whether any owner gets a place at once, no matter who holds the `busy` ones: more are free than are reserved."""
    return not shares.max_runs_per_key and shares.max_runs - busy > max(1, shares.max_runs // 4)


def decide(
    owner: str, held: Mapping[str, int], queued: Sequence[str], shares: Shares, recent: Set[str] = frozenset()
) -> Verdict:
    """For one more run. `held` is how many places each owner has, `queued` who waits, in the order of arrival."""
    own = held.get(owner, 0)
    if shares.max_runs_per_key and own >= shares.max_runs_per_key:
        return "own limit"
    if not queued and has_place(owner, held, recent, shares):
        return "start"
    owners = {name for name, count in held.items() if count} | {*queued, owner}
    places = shares.max_runs - _others_have_none(owner, held, shares)
    if own + queued.count(owner) >= max(1, min(places, fair_share(shares.max_runs, owners))):
        return "all taken" if sum(held.values()) >= shares.max_runs else "kept for others"
    return "wait"


def next_in_queue(
    held: Mapping[str, int],
    queued: Sequence[str],
    shares: Shares,
    recent: Set[str] = frozenset(),
    priorities: Sequence[int] = (),
) -> int | None:
    """Whose turn it is, as a place in the queue; None while there is no place for anybody in it. `priorities` are those
    of the queued requests; without any, all are equal."""
    limit = shares.max_runs_per_key or shares.max_runs
    free = [
        place
        for place, owner in enumerate(queued)
        if held.get(owner, 0) < limit and has_place(owner, held, recent, shares)
    ]
    urgency = [-priority for priority in priorities] or [0] * len(queued)
    return min(free, key=lambda place: (urgency[place], held.get(queued[place], 0), place), default=None)


def gives_way(owner: str, waiting: Sequence[str], shares: Shares) -> int | None:
    """Which of the waiting runs, given by their owners and the longest waiting first, must make room for one more of
    this owner's; None if there is room."""
    own_limit = shares.max_waiting_per_key or shares.max_runs
    counts = Counter(waiting)
    if counts[owner] >= own_limit:
        return waiting.index(owner)
    if len(waiting) < shares.max_runs:
        return None
    counts[owner] += 1
    most = max(counts.values())
    if counts[owner] == most and owner in waiting:
        return waiting.index(owner)
    return next(place for place, name in enumerate(waiting) if counts[name] == most)


class Recent:
    """The owners that were active within the last `RECENT_SECONDS`."""

    def __init__(self) -> None:
        self._latest: dict[str, float] = {}

    def note(self, owner: str, now: float) -> None:
        self._latest[owner] = now

    def owners(self, now: float) -> Set[str]:
        self._latest = {owner: when for owner, when in self._latest.items() if now - when <= RECENT_SECONDS}
        return self._latest.keys()
