"""Compute the tokens of a run and of its last model call, from the agent's output and its reported figures."""

from collections.abc import Iterable
from typing import TypeGuard

from msgspec.structs import replace

from cursor_gateway.model.actions import Action
from cursor_gateway.model.agent_events import RunFailed, RunFinished, TokenCounts
from cursor_gateway.model.documents import Usage
from cursor_gateway.stages.context_size import ContextSize, tool_tokens, usage
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from cursor_gateway.stages.turns import Turns


class RunUsage:
    """The usage of one run. Estimates only where needed: a plain answer with reported figures needs none."""

    def __init__(self, turns: Turns, known_tokens: int) -> None:
        self.model_output: list[str] = []  # not counted yet
        self.prompt = ""
        self._turns, self.known_tokens = turns, known_tokens
        self._context = ContextSize()
        self._all_output_tokens = 0
        self._output_tokens = 0  # since the last tool ended
        self._given_tokens = 0  # the results of the caller's tools

    def agent_started(self) -> None:
        """The first agent, or another one that continues the run."""
        self._turns.end()
        self._context.grow(self._take_output(), self._turns.count)
        self._context.restart(self._turns.count)

    def tool_ended(self, action: Action) -> None:
        self._context.grow(self._take_output() + tool_tokens(action), self._turns.count)

    def caller_result(self, text: str) -> None:
        self._given_tokens += estimate_tokens_by_sample(text)

    def total(self, counts: TokenCounts | None) -> Usage:
        """The sum of all model calls. `counts` is what the agent reported for the run; None if unknown."""
        if _is_sane(counts):
            return usage(counts.prompt, counts.completion, counts.cached, counts.reasoning)
        self._count_output()
        prompt = estimate_tokens_by_sample(self.prompt) + self._given_tokens
        return usage(prompt, self._all_output_tokens, estimated=True)

    def last_call(self, counts: TokenCounts | None, open_calls: Iterable[Action] = ()) -> Usage:
        """`counts` is what the last agent reported for its calls; None if it has not reported anything yet."""
        # Results without an answer were still read, by a call that ended the turn without output.
        calls = self._turns.count + (not self._turns.is_open)
        if _is_sane(counts) and calls == 1:
            return self._context.reported(counts, 0, calls)
        self._count_output()
        output = self._output_tokens + sum(map(tool_tokens, open_calls))
        if _is_sane(counts):
            return self._context.reported(counts, output, calls)
        return self._context.estimated(self.known_tokens + estimate_tokens_by_sample(self.prompt), output, calls)

    def _take_output(self) -> int:
        self._count_output()
        taken, self._output_tokens = self._output_tokens, 0
        return taken

    def _count_output(self) -> None:
        if self.model_output:
            tokens = estimate_tokens_by_sample("".join(self.model_output))
            self.model_output.clear()
            self._all_output_tokens += tokens
            self._output_tokens += tokens


def _is_sane(counts: TokenCounts | None) -> TypeGuard[TokenCounts]:
    return counts is not None and min(counts.prompt, counts.completion, counts.cached, counts.reasoning) >= 0


class UsageTotal:
    """The sum of an agent's turns: it may be started several times in one run."""

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
                reasoning=self._usage.reasoning + end.usage.reasoning,
            )

    def cut(self) -> None:
        self._is_known = False

    def total(self, end: RunFinished | RunFailed) -> RunFinished | RunFailed:
        usage = self._usage if self._is_known else None
        return replace(end, usage=usage, last_usage=end.usage, duration_ms=self._duration_ms or end.duration_ms)
