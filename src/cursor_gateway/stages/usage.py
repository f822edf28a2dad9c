"""What an agent says, does and reports in; the tokens of its run, and of its last model call, out."""

from collections.abc import Iterable
from typing import TypeGuard

from msgspec import UNSET

from cursor_gateway.model.actions import Action
from cursor_gateway.model.agent_events import TokenCounts
from cursor_gateway.model.documents import Usage
from cursor_gateway.stages.context_size import ContextSize, tool_tokens
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from cursor_gateway.stages.turns import Turns


class RunUsage:
    """Of one run. Estimates are made only where they are needed: a plain answer with figures needs none."""

    def __init__(self, turns: Turns, known_tokens: int) -> None:
        self.said: list[str] = []  # by the model, not counted yet
        self.prompt = ""
        self._turns, self._known_tokens = turns, known_tokens
        self._context = ContextSize()
        self._said_tokens = 0
        self._output_tokens = 0  # said since the last tool ended
        self._given_tokens = 0  # the results of the caller's tools

    def agent_started(self) -> None:
        """The first one, or one that goes on with the run."""
        self._turns.end()
        self._context.grow(self._take_output(), self._turns.count)
        self._context.restart(self._turns.count)

    def tool_ended(self, action: Action) -> None:
        self._context.grow(self._take_output() + tool_tokens(action), self._turns.count)

    def caller_gave(self, text: str) -> None:
        self._given_tokens += estimate_tokens_by_sample(text)

    def in_all(self, counts: TokenCounts | None) -> Usage:
        """All model calls added up. `counts` is what was reported of the run; None where that is not known."""
        return _reported(counts) if _is_sane(counts) else self._estimated()

    def last_call(self, counts: TokenCounts | None, open_calls: Iterable[Action] = ()) -> Usage:
        """`counts` is what the last agent reported of its calls; None when it has not reported anything yet."""
        # Results that nothing was said to were read all the same, by a call that ended the turn.
        calls = self._turns.count + (not self._turns.is_open)
        if _is_sane(counts) and calls == 1:
            return self._context.reported(counts, 0, calls)
        self._count_said()
        output = self._output_tokens + sum(map(tool_tokens, open_calls))
        if _is_sane(counts):
            return self._context.reported(counts, output, calls)
        return self._context.estimated(self._known_tokens + estimate_tokens_by_sample(self.prompt), output, calls)

    def _estimated(self) -> Usage:
        self._count_said()
        prompt, completion = estimate_tokens_by_sample(self.prompt) + self._given_tokens, self._said_tokens
        return Usage(
            prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion, estimated=True
        )

    def _take_output(self) -> int:
        self._count_said()
        taken, self._output_tokens = self._output_tokens, 0
        return taken

    def _count_said(self) -> None:
        if self.said:
            tokens = estimate_tokens_by_sample("".join(self.said))
            self.said.clear()
            self._said_tokens += tokens
            self._output_tokens += tokens


def _is_sane(counts: TokenCounts | None) -> TypeGuard[TokenCounts]:
    return counts is not None and min(counts.prompt, counts.completion, counts.cached) >= 0


def _reported(counts: TokenCounts) -> Usage:
    return Usage(
        prompt_tokens=counts.prompt,
        completion_tokens=counts.completion,
        total_tokens=counts.prompt + counts.completion,
        cached_tokens=counts.cached or UNSET,
    )
