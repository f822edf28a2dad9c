"""Who is dead: the same beat for a lease of the watcher's own time, with no failed look in between."""

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.cluster.liveness import Liveness

LEASE = 10.0
LOOKS = st.lists(
    st.one_of(
        st.none(),  # a look that failed
        st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 2)),
    ).flatmap(lambda seen: st.tuples(st.floats(0, 8), st.just(seen))),
    max_size=30,
)


@given(LOOKS)
def test_only_who_stood_still_for_a_lease_of_unbroken_looks_is_dead(
    looks: list[tuple[float, dict[str, int | None] | None]],
) -> None:
    liveness, now = Liveness(LEASE), 0.0
    past: list[tuple[float, dict[str, int | None] | None]] = []
    for pause, beats in looks:
        now += pause
        past.append((now, beats))
        if beats is None:
            liveness.failed()
            continue
        expected = {}
        for id, beat in beats.items():
            since = now
            for when, seen in reversed(past):
                if seen is None or id not in seen or seen[id] != beat:
                    break
                since = when
            if now - since >= LEASE:
                expected[id] = beat
        assert liveness.look(beats, now) == expected


def test_a_database_that_was_away_makes_nobody_dead() -> None:
    liveness = Liveness(LEASE)
    assert liveness.look({"a": 1}, 0) == {}
    for _ in range(100):
        liveness.failed()
    assert liveness.look({"a": 1}, 1000) == {}
    assert liveness.look({"a": 1}, 1009) == {}
    assert liveness.look({"a": 1}, 1010) == {"a": 1}
    assert liveness.look({"a": 2}, 1011) == {}
