"""Requests that arrive together begin one after the other, so that the event loop gets to other work in between."""

import asyncio
import json
from pathlib import Path

import pytest

from cursor_gateway.errors import GatewayFault
from cursor_gateway.runs.run_service import Continued, RunRequest
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.server import bodies
from tests.runs.scripted import LOOPS, Loop, turns_of_the_loop
from tests.server.test_stalls import QUIET, Asked, served


class Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.now = 0
        self._next()

    def _next(self) -> None:
        self.now += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.mark.parametrize("loop", LOOPS)
async def test_each_has_a_turn_of_its_own_in_their_order(loop: Loop) -> None:
    starts, turns, begun = bodies.Starts(lambda: 0.0), Turns(), list[tuple[int, int]]()

    async def one(number: int) -> None:
        await starts.turn()
        begun.append((turns.now, number))

    await asyncio.gather(*map(one, range(20)))
    turns.stop()
    assert [number for _, number in begun] == list(range(20))
    assert len({turn for turn, _ in begun}) == 20
    assert begun[-1][0] - begun[1][0] == 18  # no turn is left out, except before the second


@pytest.mark.parametrize("loop", LOOPS)
def test_a_long_turn_is_followed_by_several(loop: Loop) -> None:
    """Or under a load that fills the loop, nobody could begin any more."""
    now = 0.0

    async def start() -> None:
        nonlocal now
        starts = bodies.Starts(lambda: now)
        waiting = [asyncio.ensure_future(starts.turn()) for _ in range(10)]
        await asyncio.sleep(0)
        begun = []
        for seconds in (0.001, 0.02, 0.001, 0.001):
            now += seconds
            await asyncio.sleep(0)
            begun.append(len(waiting) - len(starts._waiting))
        await asyncio.gather(*waiting)
        assert begun == [2, 5, 6, 7]

    loop(start())


@pytest.mark.parametrize("loop", LOOPS)
async def test_one_that_is_alone_does_not_wait(loop: Loop) -> None:
    starts = bodies.Starts()
    for _ in range(3):
        with pytest.raises(StopIteration):
            starts.turn().send(None)
        await turns_of_the_loop()


@pytest.mark.parametrize("loop", LOOPS)
async def test_one_whose_client_has_left_holds_up_nobody(loop: Loop) -> None:
    starts = bodies.Starts()
    waiting = [asyncio.ensure_future(starts.turn()) for _ in range(6)]
    await asyncio.sleep(0)
    for left in (waiting[1], waiting[3], waiting[5]):
        left.cancel()
    await asyncio.gather(waiting[0], waiting[2], waiting[4])


async def test_runs_that_are_asked_for_together_start_in_different_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    async def take(service: LocalRunService, request: RunRequest) -> Continued:
        taken.append(turns.now)
        raise GatewayFault("There is no agent.")

    monkeypatch.setattr(bodies, "_SECONDS_FOR_START", 3600.0)  # however long a turn takes
    monkeypatch.setattr(LocalRunService, "take", take)
    async with served(tmp_path, QUIET) as app:
        turns = Turns()
        body = json.dumps({"message": "hello", "stream": True}).encode()
        await asyncio.gather(*(Asked(app, "POST", "/v1/chat", body)() for _ in range(30)))
        turns.stop()
    assert len(set(taken)) == len(taken) == 30
