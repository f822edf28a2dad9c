"""Pass each turn to the source that it names, or to the default."""

from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from cursor_gateway.errors import Failure, InvalidRequest
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.sources.base import Model, Source, SourceState, Turn
from cursor_gateway.sources.leftovers import noted_sessions

AgentBatches: TypeAlias = AsyncGenerator[Sequence[AgentEvent], None]


class SourceRouter:
    def __init__(
        self,
        sources: Mapping[str, Source],
        default: str,
        fallback: str | None = None,
        refused: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        interactive: str | None = None,
    ) -> None:
        """`fallback` takes turns that fail elsewhere before producing output; `refused` maps sources that the
        operator's settings rule out to the reason; `secrets` are the agents' credentials, redacted from errors;
        `interactive` is for requests of people, where that is not the default."""
        self._sources, self._default, self._fallback, self._refused = sources, default, fallback, refused or {}
        self._secrets, self.interactive = secrets, interactive
        # Where runs are traced: what is told of each turn, and of the source that takes it.
        self.observed: Callable[[Turn, str, AgentBatches], AgentBatches] | None = None

    @property
    def names(self) -> list[str]:
        return list(self._sources)

    def named(self, name: str | None) -> Source:
        """Raises `InvalidRequest`."""
        source = self._sources.get(name or self._default)
        if source is None and (reason := self._refused.get(name or "")):
            raise InvalidRequest(f"The backend `{name}` cannot be used: {reason}; omit `source`.", param="source")
        if source is None:
            raise InvalidRequest(
                f"The source {str(name)[:100]!r} is not set up here; use one of: {', '.join(self._sources)}.",
                param="source",
            )
        return source

    def may_ask(self, name: str | None, may_be_asked: bool | None) -> bool:
        """Whether an agent of the named source may ask its caller, and waits. None: the caller does not say."""
        source = self.named(name)
        return source.holds_questions and (source.asks_by_default if may_be_asked is None else may_be_asked)

    def fallback_for(self, turn: Turn) -> str | None:
        """The source on which the turn may be retried."""
        return self._fallback if (turn.source or self._default) != self._fallback else None

    def name_of(self, turn: Turn) -> str:
        """The name, as in /health, of the source that answers the turn."""
        return turn.source or self._default

    def account_of(self, name: str | None) -> Hashable:
        """Combines the account of the named source with that of its fallback."""
        name = name or self._default
        fallback = self._sources.get(self._fallback) if self._fallback is not None else None
        return name, self.named(name).account(), fallback.account() if fallback is not None else None

    def redacted(self, failure: Failure) -> Failure:
        message, details = failure.message, failure.details
        for secret in self._secrets:
            message, details = message.replace(secret, "[redacted]"), details.replace(secret, "[redacted]")
        return replace(failure, message=message, details=details)

    # --- the default source, or that of a turn ------------------------------------------------------

    def state(self) -> SourceState:
        return self.named(None).state()

    def events(self, turn: Turn) -> AgentBatches:
        batches = self.named(turn.source).events(turn)
        return batches if self.observed is None else self.observed(turn, self.name_of(turn), batches)

    async def models(self) -> list[Model]:
        return await self.named(None).models()

    def check_model(self, model: str) -> None:
        self.named(None).check_model(model)

    def has_session(self, turn: Turn) -> bool:
        return self.named(turn.source).has_session(turn)

    def warm_up(self, workspace: str) -> None:
        self.named(None).warm_up(workspace)

    async def end_spares(self) -> None:
        for source in self._sources.values():
            await source.end_spares()

    async def forget(self, folder: str) -> bool:
        """Asks every source: any of them may have answered. Sessions of sources that are not set up here stay."""
        done = [await source.forget(folder) for source in self._sources.values()]
        missing = {session.source for session in noted_sessions(Path(folder))} - set(self._sources)
        return all(done) and not missing

    async def close(self) -> None:
        for source in self._sources.values():
            await source.close()


SourceOrRouter: TypeAlias = Source | SourceRouter


def routed(source: SourceOrRouter) -> SourceRouter:
    """Wraps a single source in a router."""
    if isinstance(source, SourceRouter):
        return source
    name = source.state().name
    return SourceRouter({name: source}, name)
