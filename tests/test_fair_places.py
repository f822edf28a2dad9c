"""Shares of the places: nobody is starved, nobody waits in vain, and one owner alone may have all."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway import fair_places

FOUR = fair_places.Shares(max_runs=4)
EIGHT = fair_places.Shares(max_runs=8)


@pytest.mark.parametrize(
    ("places", "owners", "share"), [(4, ["a"], 4), (4, ["a", "b"], 2), (4, ["a", "b", "c"], 2), (1, ["a", "b"], 1)]
)
def test_a_share_is_what_each_can_have(places: int, owners: list[str], share: int) -> None:
    assert fair_places.fair_share(places, owners) == share


@pytest.mark.parametrize(
    ("held", "queued", "verdict"),
    [
        ({}, [], "start"),
        ({"me": 3}, [], "start"),
        ({"me": 4}, [], "all taken"),  # alone, with all of them
        ({"you": 4}, [], "wait"),
        ({"you": 3, "me": 1}, [], "wait"),
        ({"you": 2, "me": 2}, [], "all taken"),
        ({"you": 4}, ["me"], "wait"),
        ({"you": 4}, ["me", "me"], "all taken"),
        ({"you": 3}, ["me"], "wait"),  # others wait already: not before them
        ({"me": 3}, ["you"], "kept for others"),
    ],
)
def test_who_starts_waits_and_is_refused(held: dict[str, int], queued: list[str], verdict: fair_places.Verdict) -> None:
    assert fair_places.decide("me", held, queued, FOUR) == verdict


@pytest.mark.parametrize(
    ("held", "recent", "verdict"),
    [
        ({"me": 6}, {"me", "you"}, "start"),
        ({"me": 7}, {"me", "you"}, "wait"),  # the last one is yours
        ({"me": 7}, {"me"}, "start"),
        ({"me": 6, "you": 1}, {"me", "you"}, "kept for others"),  # you may have four, so the next one is yours, too
        ({"me": 3, "you": 4}, {"me", "you"}, "start"),
        ({"me": 5, "you": 2}, {"me", "you"}, "kept for others"),
        ({"you": 7}, {"me", "you"}, "start"),
        ({"you": 7}, {"you"}, "start"),  # whoever has less than its share may take what is kept for others
        ({"you": 8}, {"me", "you"}, "wait"),
        ({"me": 5}, {"me", "a", "b"}, "start"),
        ({"me": 5}, {"me", "a", "b", "c", "d", "e"}, "start"),  # no more than a quarter is kept
        ({"me": 6}, {"me", "a", "b", "c", "d", "e"}, "wait"),
        ({"me": 7}, {"me", *"abcdefgh"}, "start"),  # more owners than places: nothing can be kept for each
    ],
)
def test_the_last_places_are_kept_for_owners_that_were_active(
    held: dict[str, int], recent: set[str], verdict: fair_places.Verdict
) -> None:
    assert fair_places.decide("me", held, [], EIGHT, recent) == verdict


def test_the_only_place_is_kept_for_nobody() -> None:
    assert fair_places.decide("me", {}, [], fair_places.Shares(max_runs=1), {"you"}) == "start"
    assert fair_places.decide("me", {"me": 1}, [], fair_places.Shares(max_runs=2), {"you"}) == "wait"


def test_a_kept_place_goes_to_who_it_is_kept_for() -> None:
    assert fair_places.next_in_queue({"greedy": 7}, ["greedy"], EIGHT, {"modest"}) is None
    assert fair_places.next_in_queue({"greedy": 7}, ["greedy", "modest"], EIGHT, {"modest"}) == 1
    assert fair_places.next_in_queue({"greedy": 6}, ["greedy"], EIGHT, {"modest"}) == 0
    assert fair_places.next_in_queue({"greedy": 7}, ["greedy"], EIGHT) == 0


@given(st.integers(2, 12), st.lists(st.sampled_from(["ask", "greedy run ends", "modest run ends"]), max_size=200))
def test_who_sends_one_request_after_the_other_never_waits(places: int, steps: list[str]) -> None:
    shares, recent = fair_places.Shares(max_runs=places), {"greedy", "modest"}
    held = Counter(greedy=0, modest=1)
    for step in steps:
        match step:
            case "ask" if fair_places.decide("greedy", held, [], shares, recent) == "start":
                held["greedy"] += 1
            case "greedy run ends" if held["greedy"]:
                held["greedy"] -= 1
            case "modest run ends":
                held["modest"] = 0
            case _:
                pass
        if not held["modest"]:
            while fair_places.decide("greedy", held, [], shares, recent) == "start":
                held["greedy"] += 1
            assert fair_places.decide("modest", held, [], shares, recent) == "start"
            held["modest"] = 1
        assert sum(held.values()) <= places


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ({"me": 2}, "start"),
        ({"me": 3}, "kept for others"),
        ({"me": 1, "you": 2}, "start"),  # each key has a place
        ({"you": 3}, "start"),
        ({"you": 4}, "wait"),
    ],
)
def test_the_last_place_is_kept_for_a_key_that_has_none(held: dict[str, int], verdict: fair_places.Verdict) -> None:
    assert fair_places.decide("me", held, [], fair_places.Shares(max_runs=4, api_keys=("me", "you"))) == verdict


def test_a_key_below_its_share_leaves_the_last_place_too() -> None:
    shares = fair_places.Shares(max_runs=8, api_keys=("me", "you", "other"))
    assert fair_places.decide("me", {"me": 1, "you": 6}, [], shares) == "wait"
    assert fair_places.next_in_queue({"me": 1, "you": 6}, ["me", "other"], shares) == 1
    assert fair_places.decide("me", {"me": 1, "you": 5, "other": 1}, [], shares) == "start"


def test_the_only_place_is_for_any_key() -> None:
    shares = fair_places.Shares(max_runs=1, api_keys=("me", "you"))
    assert fair_places.decide("me", {}, [], shares) == "start"
    assert fair_places.decide("me", {"you": 1}, [], shares) == "wait"
    assert fair_places.decide("me", {"me": 1}, [], shares) == "all taken"


def test_a_single_key_can_use_all_places() -> None:
    assert fair_places.decide("me", {"me": 3}, [], fair_places.Shares(max_runs=4, api_keys=("me",))) == "start"


@given(st.integers(2, 9), st.integers(2, 5), st.data())
def test_a_key_whose_runs_never_end_locks_nobody_out(places: int, keys: int, data: st.DataObject) -> None:
    """`a` is that key. Others come, go, and are forgotten: whenever only `a` has runs, each of them starts at once."""
    names = "abcde"[:keys]
    shares = fair_places.Shares(max_runs=places, api_keys=names, max_runs_per_key=data.draw(st.sampled_from([0, 0, 3])))
    held: Counter[str] = Counter()
    queue: list[str] = []
    recent: set[str] = set()
    arrivals = st.sampled_from(names)
    for step in data.draw(st.lists(st.one_of(arrivals, st.tuples(st.just("ends"), arrivals), st.none()), max_size=60)):
        match step:
            case str() as owner:
                recent.add(owner)
                match fair_places.decide(owner, held, queue, shares, recent):
                    case "start":
                        held[owner] += 1
                    case "wait":
                        queue.append(owner)
                    case _:
                        pass
            case ("ends", owner) if owner != "a" and held[owner]:
                held[owner] -= 1
            case None:
                recent = {owner for owner in names if held[owner]}
            case _:
                pass
        while (place := fair_places.next_in_queue(held, queue, shares, recent)) is not None:
            held[queue.pop(place)] += 1
        assert sum(held.values()) <= places
        for other in names[1:]:
            assert fair_places.decide(other, {"a": held["a"]}, [], shares, recent) == "start"
            assert fair_places.next_in_queue({"a": held["a"]}, ["a", other], shares, recent) is not None


def test_owners_are_recent_for_a_while() -> None:
    recent = fair_places.Recent()
    recent.note("me", 0)
    recent.note("you", 10)
    assert recent.owners(fair_places.RECENT_SECONDS) == {"me", "you"}
    assert recent.owners(fair_places.RECENT_SECONDS + 1) == {"you"}
    recent.note("me", 70)
    assert recent.owners(fair_places.RECENT_SECONDS + 11) == {"me"}


def test_a_key_may_have_a_limit_of_its_own() -> None:
    shares = fair_places.Shares(max_runs=4, max_runs_per_key=2)
    assert fair_places.decide("me", {"me": 2}, [], shares) == "own limit"
    assert fair_places.decide("me", {"me": 1}, [], shares) == "start"
    assert fair_places.next_in_queue({"me": 2, "you": 1}, ["me", "me"], shares) is None
    assert fair_places.next_in_queue({"me": 2, "you": 1}, ["me", "you"], shares) == 1


def test_the_next_place_is_for_who_holds_the_fewest() -> None:
    assert fair_places.next_in_queue({"a": 4}, ["b"], FOUR) is None
    assert fair_places.next_in_queue({"a": 3}, [], FOUR) is None
    assert fair_places.next_in_queue({"a": 3}, ["b", "c"], FOUR) == 0
    assert fair_places.next_in_queue({"a": 2, "b": 1}, ["b", "c", "b"], FOUR) == 1


@given(
    st.lists(st.sampled_from(["greedy", "greedy", "greedy", "b", "c"]), min_size=50, max_size=200), st.integers(1, 6)
)
def test_whoever_waits_is_served_while_runs_end(arrivals: list[str], places: int) -> None:
    """Each arrival is a request; then a run of who holds the most ends. Nobody in the queue is passed over for ever."""
    shares = fair_places.Shares(max_runs=places)
    held: Counter[str] = Counter()
    queue: list[tuple[str, int]] = []
    for now, owner in enumerate(arrivals):
        match fair_places.decide(owner, held, [name for name, _ in queue], shares):
            case "start":
                held[owner] += 1
            case "wait":
                queue.append((owner, now))
            case _:
                pass
        if held:
            held[max(held, key=lambda name: held[name])] -= 1
            held = +held
        while (place := fair_places.next_in_queue(held, [name for name, _ in queue], shares)) is not None:
            held[queue.pop(place)[0]] += 1
        assert sum(held.values()) <= places
        assert all(now - since <= 3 * places + 3 for _, since in queue)


@pytest.mark.parametrize(
    ("waiting", "gives"),
    [
        ([], None),
        (["you"] * 3, None),
        (["you"] * 4, 0),
        (["you", "me", "you", "you"], 0),
        (["me", "you", "you", "me"], 0),  # as many as the other has, with the new one: one's own
        (["you", "you", "me", "me"], 2),
        (["a", "b", "c", "d"], 0),
    ],
)
def test_the_one_with_the_most_waiting_runs_gives_one_up(waiting: list[str], gives: int | None) -> None:
    assert fair_places.gives_way("me", waiting, FOUR) == gives


def test_waiting_runs_of_a_key_may_have_a_limit() -> None:
    assert fair_places.gives_way("me", ["you", "me"], fair_places.Shares(max_runs=4, max_waiting_per_key=1)) == 1
    assert fair_places.gives_way("me", ["you"], fair_places.Shares(max_runs=4, max_waiting_per_key=1)) is None


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 12)),
    st.integers(1, 40),
    st.sets(st.sampled_from("abcdefgh")),
    st.sampled_from([0, 1, 3]),
)
def test_where_there_is_plenty_everybody_starts(
    held: dict[str, int], places: int, recent: set[str], per_key: int
) -> None:
    shares = fair_places.Shares(max_runs=places, max_runs_per_key=per_key)
    if fair_places.has_plenty(sum(held.values()), shares):
        assert {fair_places.decide(owner, held, [], shares, recent) for owner in "ae"} == {"start"}


def test_there_is_plenty_while_more_is_free_than_is_kept() -> None:
    assert [fair_places.has_plenty(busy, EIGHT) for busy in (0, 5, 6, 8)] == [True, True, False, False]
    assert [fair_places.has_plenty(busy, fair_places.Shares(max_runs=1)) for busy in (0, 1)] == [False, False]
    assert not fair_places.has_plenty(0, fair_places.Shares(max_runs=8, max_runs_per_key=8))
