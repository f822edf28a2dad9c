"""Several sources in; one that gives each turn to the source that it names, or to the usual one, out.

A source that keeps its agents alive may fail where starting one anew does not. So a turn that fails there before it
has said anything is given to another source, once, and a notice says so.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from cursor_gateway.core.agent_events import AgentEvent, Notice, PromptEchoed, RunFailed, RunStarted, Unrecognized
from cursor_gateway.errors import (
    AgentCrashed,
    AgentError,
    AgentMisconfigured,
    AgentMissing,
    AgentTimedOut,
    AgentUnreachable,
    Failure,
    InvalidRequest,
)
from cursor_gateway.sources.base import Model, Source, SourceState, Turn


class ChosenSource:
    def __init__(self, sources: Mapping[str, Source], usual: str, instead: str | None = None) -> None:
        """`instead` is for what fails before its first event elsewhere."""
        self._sources, self._usual, self._instead = sources, usual, instead

    @property
    def names(self) -> list[str]:
        return list(self._sources)

    def state(self) -> SourceState:
        return self._sources[self._usual].state()

    def named(self, name: str | None) -> Source:
        """Raises `InvalidRequest`."""
        source = self._sources.get(name or self._usual)
        if source is None:
            raise InvalidRequest(
                f"The source {name!r} is not set up here; there are {', '.join(self._sources)}.", param="source"
            )
        return source

    @property
    def holds_questions(self) -> bool:
        return self._sources[self._usual].holds_questions

    @property
    def offers_tools(self) -> bool:
        return self._sources[self._usual].offers_tools

    async def models(self) -> list[Model]:
        return await self._sources[self._usual].models()

    def check_model(self, model: str) -> None:
        self._sources[self._usual].check_model(model)

    def has_session(self, turn: Turn) -> bool:
        return self.named(turn.source).has_session(turn)

    async def close(self) -> None:
        for source in self._sources.values():
            await source.close()

    def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        name = turn.source or self._usual
        source = self.named(name)
        if self._instead is None or name == self._instead:
            return source.events(turn)
        return _with_fallback(source, self._sources[self._instead], turn)


async def _with_fallback(source: Source, instead: Source, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
    held: list[AgentEvent] = []
    try:
        async with aclosing(source.events(turn)) as batches:
            async for batch in batches:
                held += batch
                if any(isinstance(event, RunFailed) and _may_do_better(event.failure) for event in held):
                    break
                if not all(isinstance(event, _UNSAID) for event in held):
                    yield held
                    async for later in batches:
                        yield later
                    return
    except AgentError as error:
        if not _may_do_better(error.failure()):
            raise
    yield [Notice("fallback")]
    # A session of the one is none of the other's, so that one is told all of it.
    async with aclosing(instead.events(turn)) as batches:
        async for batch in batches:
            yield batch


_UNSAID = (RunStarted, PromptEchoed, Notice, Unrecognized)
_OF_THE_SOURCE = frozenset(
    error.code for error in (AgentCrashed, AgentMisconfigured, AgentMissing, AgentTimedOut, AgentUnreachable)
)


def _may_do_better(failure: Failure) -> bool:
    """It was not the account, the model, the request or a session that is gone."""
    return failure.code in _OF_THE_SOURCE
