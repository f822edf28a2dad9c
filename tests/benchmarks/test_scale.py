"""The projection: arithmetic that grows with its demand and names its first limit; commits share flushes."""

from datetime import date
from math import ceil

from msgspec.structs import replace

from benchmarks.scale import DEMANDS, Check, Costs, Demand, Limits, commits, project, section

_COSTS = Costs(flush=0.002, database_cpu=40e-6, batch_bytes=900, reader_bytes=13_000, reader_cpu=30e-6)


def test_a_small_team_needs_one_cell_and_large_ones_need_more() -> None:
    cells = [project(_COSTS, demand, Limits()).cells for demand in DEMANDS.values()]
    assert cells[0] == 1
    assert cells == sorted(cells)
    assert cells[-1] >= 20


def test_the_first_limit_is_the_one_that_needs_most_cells() -> None:
    demand = Demand(runners=10_000, readers=1000)
    few = project(_COSTS, demand, Limits(connections=100))
    assert few.first_limit == "connections"
    assert few.cells == ceil(max(few.needed.values()))
    slow = project(replace(_COSTS, database_cpu=0.1), demand, Limits())
    assert slow.first_limit == "cores"
    large = project(replace(_COSTS, batch_bytes=1e6), demand, Limits())
    assert large.first_limit == "write-ahead log"


def test_what_a_cell_does_is_a_part_of_the_whole() -> None:
    demand = Demand(runners=10_000, readers=1_000_000)
    found = project(_COSTS, demand, Limits())
    assert round(found.batches * found.cells) == 10_000 * 4 * 8
    assert round(found.commits * found.cells) == 10_000 * 25
    assert round(found.front_cores) == 240
    assert project(_COSTS, replace(demand, flushes=100), Limits()).commits * found.cells == 10_000 * 32


def test_commits_share_flushes_until_the_cores_are_busy() -> None:
    assert round(commits(1, 0.002, 1e-9, 1)) == 333
    assert round(commits(16, 0.002, 0.0002, 2)) == 5000
    assert round(commits(1000, 0.002, 0.0002, 2)) == 10_000


def test_the_page_has_every_demand_and_the_check() -> None:
    text = section(_COSTS, [Check(16, 1764, 2007)], "2 cores", date(2026, 11, 17))
    assert all(name in text for name in DEMANDS)
    assert "| 16 | 1,764 | 2,007 |" in text
