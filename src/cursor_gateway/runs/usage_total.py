"""The usage of each of an agent's turns in; the total out."""

from msgspec.structs import replace

from cursor_gateway.model.agent_events import RunFailed, RunFinished, TokenCounts


class UsageTotal:
    """Of one run, whose agent may be started several times."""

    def __init__(self) -> None:
        self._usage = TokenCounts(prompt=0, completion=0)
        self._is_known = True  # an agent that is broken off reports nothing
        self._duration_ms = 0

    def add(self, end: RunFinished | RunFailed) -> None:
        self._duration_ms += end.duration_ms or 0
        if end.usage is None:
            self._is_known = False
        else:
            self._usage = TokenCounts(
                prompt=self._usage.prompt + end.usage.prompt,
                completion=self._usage.completion + end.usage.completion,
                cached=self._usage.cached + end.usage.cached,
            )

    def cut(self) -> None:
        self._is_known = False

    def total(self, end: RunFinished | RunFailed) -> RunFinished | RunFailed:
        usage = self._usage if self._is_known else None
        return replace(end, usage=usage, last_usage=end.usage, duration_ms=self._duration_ms or end.duration_ms)
