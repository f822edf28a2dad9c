"""Turns: the first at once, the others in an interval, and no waiting for who is in a hurry."""

import asyncio

import pytest

from cursor_gateway.store import pace
from cursor_gateway.store.pace import Pace

_SHORT, _LONG = 0.05, 1000.0


async def test_the_first_turn_is_at_once_and_so_is_one_after_a_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_SECONDS", _LONG)

    one = Pace()
    await one.turn()
    waiting = asyncio.create_task(one.turn())
    await asyncio.sleep(_SHORT)
    assert not waiting.done()
    waiting.cancel()
    one._next = asyncio.get_running_loop().time()  # as if the interval had passed
    await one.turn()


async def test_the_other_turns_take_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_SECONDS", _SHORT)
    loop, one = asyncio.get_running_loop(), Pace()
    await one.turn()
    began = loop.time()
    for _ in range(3):
        await one.turn()
    assert loop.time() - began >= 3 * _SHORT - 0.01  # clocks of event loops count milliseconds


async def test_nobody_in_a_hurry_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_SECONDS", _LONG)

    one = Pace()
    await one.turn()
    waiting = asyncio.create_task(one.turn())
    await asyncio.sleep(0)
    one.hurry()
    await waiting
    again = asyncio.create_task(one.turn())
    await asyncio.sleep(0)
    assert not again.done()
    one.hurry()
    await again


async def test_turns_that_are_common_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_SECONDS", _LONG)
    one, other = Pace(is_common=True), Pace(is_common=True)
    await one.turn()
    await asyncio.sleep(0.002)
    await other.turn()
    assert one._next == other._next
