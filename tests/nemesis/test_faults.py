"""Plans: repeatable, with every kind of fault, and one fault of a target at a time."""

from itertools import combinations

from nemesis.faults import KINDS, plan


def test_a_seed_always_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan(7, 20, 2) == plan(7, 20, 2)
    assert plan(7, 20, 2) != plan(8, 20, 2)


def test_every_kind_comes_first_in_one_of_as_many_seeds() -> None:
    assert {plan(seed, 20, 2)[0].kind for seed in range(len(KINDS))} == set(KINDS)


def test_each_target_has_one_fault_at_a_time_and_others_overlap() -> None:
    overlaps = 0
    for seed in range(50):
        for one, other in combinations(plan(seed, 20, 2), 2):
            overlapping = one.at < other.at + other.seconds and other.at < one.at + one.seconds
            assert not (overlapping and one.target == other.target), (seed, one, other)
            overlaps += overlapping
    assert overlaps > 100


def test_after_a_failover_no_disk_is_filled() -> None:
    for seed in range(99):
        kinds = [fault.kind for fault in plan(seed, 60, 2, ("fail over", "full disk"))]
        assert "full disk" not in kinds[kinds.index("fail over") :]
