"""Several sources in; one that gives each turn to the source that it names, or to the usual one, out."""

from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from cursor_gateway.errors import Failure, InvalidRequest
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.sources.base import Model, Source, SourceState, Turn
from cursor_gateway.sources.leftovers import noted_sessions


class SourceRouter:
    def __init__(
        self,
        sources: Mapping[str, Source],
        usual: str,
        instead: str | None = None,
        refused: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """`instead` is the one for turns that fail elsewhere before they have said anything; `refused` are the names
        of sources that the operator's settings rule out, with the reason; `secrets` are the credentials that the
        agents are given, which an error must not repeat."""
        self._sources, self._usual, self._instead, self._refused = sources, usual, instead, refused or {}
        self._secrets = secrets

    @property
    def names(self) -> list[str]:
        return list(self._sources)

    def named(self, name: str | None) -> Source:
        """Raises `InvalidRequest`."""
        source = self._sources.get(name or self._usual)
        if source is None and (reason := self._refused.get(name or "")):
            raise InvalidRequest(
                f"The source `{name}` cannot be used here: {reason}; leave `source` out.", param="source"
            )
        if source is None:
            raise InvalidRequest(
                f"The source {str(name)[:100]!r} is not set up here; there is {', '.join(self._sources)}.",
                param="source",
            )
        return source

    def fallback_for(self, turn: Turn) -> str | None:
        """Where such a turn may be tried once more."""
        return self._instead if (turn.source or self._usual) != self._instead else None

    def name_of(self, turn: Turn) -> str:
        """What answers the turn, by the name that /health shows."""
        return self.named(turn.source).state().name

    def account_of(self, name: str | None) -> Hashable:
        """Of the source that is named, and of the one that may take its place."""
        name = name or self._usual
        fallback = self._sources.get(self._instead) if self._instead is not None else None
        return name, self.named(name).account(), fallback.account() if fallback is not None else None

    def redacted(self, failure: Failure) -> Failure:
        message, details = failure.message, failure.details
        for secret in self._secrets:
            message, details = message.replace(secret, "[redacted]"), details.replace(secret, "[redacted]")
        return replace(failure, message=message, details=details)

    # --- as a source --------------------------------------------------------------------------------

    def state(self) -> SourceState:
        return self.named(None).state()

    def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        return self.named(turn.source).events(turn)

    async def models(self) -> list[Model]:
        return await self.named(None).models()

    def account(self) -> Hashable:
        return self.account_of(None)

    def check_model(self, model: str) -> None:
        self.named(None).check_model(model)

    def has_session(self, turn: Turn) -> bool:
        return self.named(turn.source).has_session(turn)

    @property
    def holds_questions(self) -> bool:
        return self.named(None).holds_questions

    @property
    def tools_server(self) -> str:
        return self.named(None).tools_server

    @property
    def offers_tools(self) -> bool:
        return self.named(None).offers_tools

    def warm_up(self, workspace: str) -> None:
        self.named(None).warm_up(workspace)

    async def forget(self, folder: str) -> bool:
        """By all of them: a conversation may have been answered by any. What nobody here can delete is left."""
        done = [await source.forget(folder) for source in self._sources.values()]
        nobody = {session.source for session in noted_sessions(Path(folder))} - set(self._sources)
        return all(done) and not nobody

    async def close(self) -> None:
        for source in self._sources.values():
            await source.close()


SourceOrRouter: TypeAlias = Source | SourceRouter


def chosen(source: SourceOrRouter) -> SourceRouter:
    """A source that is the only one, to be chosen from as well."""
    if isinstance(source, SourceRouter):
        return source
    name = source.state().name
    return SourceRouter({name: source}, name)
