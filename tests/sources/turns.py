"""A user's home with a stand-in in it, for the tests of a source; and what the events of a turn say."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from cursor_gateway.errors import Failure
from cursor_gateway.model.agent_events import AgentEvent, RunFailed, RunStarted, TextDelta
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.ledger import Ledger
from tests.agent.records import records


class Home:
    """Opened, it must have no agents left in the end."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for folder in ("work", "conversation", ".cursor", "tmp"):
            (home / folder).mkdir(exist_ok=True)
        self.environ = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(home), "SECRET": "secret"}
        self.ledger = Ledger(home / "instances")

    def turn(self, prompt: str, **turn: Any) -> Turn:
        places = {"workspace": str(self.home / "work"), "folder": str(self.home / "conversation")}
        return Turn(**{"run_id": "chat_1", "prompt": prompt, "model": "auto", **places, **turn})

    @property
    def log(self) -> list[dict[str, Any]]:
        """Of turns alone."""
        return [record for record in records(self.home / "log") if record["prompt"] is not None]

    @property
    def agents(self) -> list[str]:
        return [entry.name for entry in (self.ledger.folder / "agents").iterdir()]

    @contextmanager
    def opened(self) -> Iterator[Self]:
        self.ledger.open()
        try:
            yield self
            assert self.agents == []
        finally:
            self.ledger.close()


class Played(Protocol):
    def events(self, turn: Turn, /) -> AsyncGenerator[Sequence[AgentEvent], None]: ...


async def collected(source: Played, turn: Turn) -> list[AgentEvent]:
    async with aclosing(source.events(turn)) as batches:
        return [event async for batch in batches for event in batch]


def said(events: Sequence[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def failure(events: Sequence[AgentEvent]) -> Failure:
    last = events[-1]
    assert isinstance(last, RunFailed), last
    return last.failure


def session_of(events: Sequence[AgentEvent]) -> str:
    return next(event.session_id for event in events if isinstance(event, RunStarted))
