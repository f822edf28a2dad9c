"""Everything that is compared answers with the agent's own text, and an answer that is wrong is noticed."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks import served
from benchmarks.failing import BenchmarkFailed
from benchmarks.field import Field
from benchmarks.goals import GOALS

pytestmark = pytest.mark.slow  # `make bench` needs all of it, too


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    with ExitStack() as stack:
        yield Field(tmp_path_factory.mktemp("field"), stack)


@pytest.mark.parametrize("name", ["relay", "plain", "openai", "documents"])
@pytest.mark.parametrize("how", ["", "blocks"])
def test_each_contender_returns_what_the_agent_said(field: Field, name: str, how: str) -> None:
    result = field.ask(getattr(field, name), "100", how, concurrency=2, count=4)
    assert (result.finished, result.failed) == (4, 0)


@pytest.mark.parametrize("name", ["relay", "plain", "openai", "documents"])
def test_stamped_events_all_come(field: Field, name: str) -> None:
    result, _ = field.load.ask(getattr(field, name), "paced 20 1000", count=2, concurrency=2, stamps=40)
    assert result.failed == 0


def test_a_request_that_fails_has_no_figure(field: Field) -> None:
    with pytest.raises(BenchmarkFailed, match="were whole"):
        field.load.ask(field.openai, "replay nothing")


def test_an_agent_whose_client_leaves_is_gone(field: Field) -> None:
    found = dict(served.leaving(field, 1))
    assert found.keys() <= GOALS.keys()
    assert all(one.value > 0 for one in found.values())
