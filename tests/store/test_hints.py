"""When hints go out: at once, and those of the pause after that together."""

import asyncio

import pytest

from cursor_gateway.store.cluster import Hint
from cursor_gateway.store.postgres import hints
from cursor_gateway.store.postgres.hints import HintSender, pause_after


class _Sender(HintSender):
    """Its statements wait until they may end."""

    def __init__(self) -> None:
        super().__init__("")
        self.sent: list[list[str]] = []
        self.may_end = asyncio.Event()

    async def _send(self, payloads: list[tuple[str, str]]) -> None:
        self.sent.append([text for _, text in payloads])
        await self.may_end.wait()


def test_the_first_goes_out_at_once_and_the_others_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "_SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(hints, "_LONGEST_SECONDS", 0.0)

    async def live() -> None:
        sender = _Sender()
        sender.send("front", Hint("run", ["one"]))
        await asyncio.sleep(0)
        assert sender.sent == [['{"kind":"run","values":["one"]}']]
        for run in ("two", "three", "two"):
            sender.send("front", Hint("run", [run]))
        sender.send("front", Hint("outcome", ["command"]))
        sender.may_end.set()
        await sender.close()
        assert sender.sent[1:] == [
            ['{"kind":"run","values":["two","three"]}', '{"kind":"outcome","values":["command"]}']
        ]

    asyncio.run(live())


def test_a_slow_database_is_asked_less_often() -> None:
    assert [pause_after(seconds) for seconds in (0.0, 0.0002, 0.001, 1.0)] == [0.002, 0.002, 0.004, 0.05]
