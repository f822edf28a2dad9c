"""The soak's judgement: what grows with every request is found, what is warm after a while is not."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from chaos.soak import Sample, Soak

QUIET = Sample(
    seconds=0,
    memory_mb=60,
    descriptors=30,
    threads=10,
    runs=0,
    streams=0,
    agents=0,
    database_mb=3,
    log_mb=1,
    folders=100,
    temporary=0,
)


def with_memory(seconds: float, memory_mb: float) -> Sample:
    return replace(QUIET, seconds=seconds, memory_mb=memory_mb)


def soaked(memory_mb: Callable[[int], float], after: Sample = QUIET, mistakes: tuple[str, ...] = ()) -> Soak:
    during = [with_memory(float(second), memory_mb(second)) for second in range(600)]
    return Soak(10, QUIET, during, after, {"whole answers": 100}, list(mistakes))


@pytest.mark.parametrize(
    "memory_mb",
    [
        lambda second: 60,
        lambda second: 60 + min(second, 200) / 10,  # a cache that is full after a third of the time
        lambda second: 60 + second % 50 / 10,  # what is freed from time to time
        lambda second: 60 + (second % 100 == 7) * 40,  # peaks
    ],
)
def test_what_does_not_grow_for_ever_is_green(memory_mb: Callable[[int], float]) -> None:
    assert soaked(memory_mb).faults() == []


@pytest.mark.parametrize(
    "memory_mb",
    [
        lambda second: 60 + second / 50,
        lambda second: 60 + second / 50 + second % 50 / 10,
        lambda second: 60 + max(0, second - 300) / 30,
    ],
)
def test_a_leak_is_found_between_the_ups_and_downs(memory_mb: Callable[[int], float]) -> None:
    (result,) = soaked(memory_mb).faults()
    assert result.startswith("memory (RSS) grew by")


def test_what_is_left_at_rest_is_found() -> None:
    (result,) = soaked(lambda second: 60, after=with_memory(601, 120)).faults()
    assert "more memory (RSS) at rest" in result


def test_a_wrong_reply_is_enough() -> None:
    (result,) = soaked(lambda second: 60, mistakes=("KeyError",)).faults()
    assert "1 replies were wrong, for example KeyError" in result
