"""Everything that is compared answers with the agent's own text, and an answer that is wrong is noticed."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks import served
from benchmarks.failing import BenchmarkFailed
from benchmarks.fairness import shared_places
from benchmarks.field import Field, median, ratio, rotated
from benchmarks.goals import GOALS
from benchmarks.processes import children, cpu_seconds, listens, own_kilobytes, peak_megabytes
from benchmarks.sessions import session

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


@pytest.mark.parametrize("name", ["relay", "plain", "openai", "documents"])
def test_another_text_than_the_agents_is_noticed(field: Field, name: str) -> None:
    (field.agent.parent / "wrong.ndjson").write_bytes(session(60, tools=1, seed=2).data)
    field.sessions["wrong"] = session(60, tools=1, seed=3)
    with pytest.raises(BenchmarkFailed, match="something else than the agent"):
        field.ask(getattr(field, name), "wrong")


def test_a_request_that_fails_has_no_figure(field: Field) -> None:
    with pytest.raises(BenchmarkFailed, match="were whole"):
        field.load.ask(field.openai, "replay nothing")


def test_the_servers_are_their_own_listeners(field: Field) -> None:
    assert listens(field.gateway.pid, field.gateway.port)
    assert not listens(field.gateway.pid, field.relay.server.port)


def test_what_a_server_uses_is_read(field: Field) -> None:
    pid = field.gateway.pid
    before = cpu_seconds(pid)
    field.ask(field.openai, "2k")
    assert cpu_seconds(pid) > before
    assert peak_megabytes(pid) * 1024 >= own_kilobytes(pid) > 0
    assert isinstance(children(pid), list)


def test_the_other_dialects_tell_the_same_and_are_timed(field: Field) -> None:
    found = dict(served.other_dialects(field, 1, session="2k", count=20))
    assert found.keys() == {f"{size} {who}" for size in ("50k", "many") for who in ("responses", "messages")}
    assert found.keys() <= GOALS.keys()
    assert all(one.value > 0 for one in found.values())


def test_short_replies_are_counted_with_the_time_of_their_server(field: Field) -> None:
    found = dict(served.many_replies(field, 1, count=20))
    assert found.keys() <= GOALS.keys()
    assert {"many openai", "cpu openai", "cpu relay"} <= found.keys()
    assert all(one.value > 0 for one in found.values())


def test_an_agent_whose_client_leaves_is_gone(field: Field) -> None:
    found = dict(served.leaving(field, 1))
    assert found.keys() <= GOALS.keys()
    assert all(one.value > 0 for one in found.values())


def test_open_streams_are_held_and_their_memory_is_reported(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "IDLE", 150)
    found = dict(served.idle_streams(field, 1))
    assert found.keys() == {"idle"}
    assert "150 readers" in found["idle"].details


def test_a_modest_key_is_measured_beside_a_greedy_one(field: Field) -> None:
    found = dict(shared_places(field, 1, requests=5))
    assert found.keys() == {"fair first content", "fair whole answer"}
    for one in found.values():
        assert one.value > 0
        result = re.search(r"had \d+\.\d of 8 runs; ([\d,]+) of its requests were refused", one.details)
        assert result is not None
        assert result[1] != "0"


def test_the_pipe_is_timed_and_must_work(field: Field) -> None:
    assert field.pipe("100") > 0
    with pytest.raises(BenchmarkFailed):
        field.pipe("nothing")


def test_whoever_was_first_is_last_in_the_next_round() -> None:
    order: list[str] = []

    def noted(name: str, value: float) -> float:
        order.append(name)
        return value

    actions = {name: lambda name=name: noted(name, 2.0) for name in ("a", "b")}
    rounds = rotated(actions, 4, {"c": lambda: noted("c", 6.0)})
    assert "".join(order) == "abc" + "ba" + "ab" + "abc"
    assert [sorted(turn) for turn in rounds] == [["a", "b", "c"], ["a", "b"], ["a", "b"], ["a", "b", "c"]]
    assert ratio(rounds, "c", "a", "b") == 1.5
    assert median(rounds, "c") == 6.0
