"""What all model calls of a turn read in; how much the last of them read out.

An agent answers one prompt with several model calls: the model asks for tools, reads their results, and is called
again. Each call reads the whole context anew, so the figures that the agent reports at the end, which are sums over all
calls, say what the turn cost and not how long the conversation is. A client that takes the sum for the length believes
that its context is full: it compacts the history, or drops the answer and asks again.

The length is what the last call read, and it can be derived. The context only grows during a turn: each call reads what
the first one read (the base: instructions, tools, history, prompt) and what was added since: the model's own words, its
calls, and their results. With N calls that read T tokens in all, and S_k tokens that were added before call k,

    T = Σ (base + S_k),    so    base = (T − Σ S_k) / N    and the last call read    base + S_N.

T and N are exact; S is estimated from the texts. What counts of an error in S is only how much larger it is at the last
call than on average. The result stays within [S_N, T]: the last call read what was added, and no more than all calls
did. With one call nothing was added, and the result is T, exactly.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from cursor_gateway.model.actions import Action, Command, FileEdit, OtherTool, Plan, Question, TodoUpdate
from cursor_gateway.model.agent_events import TokenCounts
from cursor_gateway.model.documents import Usage
from cursor_gateway.stages.tokens import estimate_tokens_by_sample

_LONGEST_OUTPUT = 40_000  # characters of a command's output: the agent puts more than that into a file


def last_context(total: int, added: Sequence[int]) -> int:
    """What the last call read, of `total` tokens that all calls read; `added` has S for each call, the first 0."""
    base = (total - sum(added)) / len(added)
    return min(total, max(added[-1], round(base + added[-1])))


class ContextSize:
    """Follows how the context grows during a run. It is told of growth, with the number of model calls until then."""

    def __init__(self) -> None:
        self._size = 0  # what was added since the run began
        self._sizes: list[int] = []  # that size, when each call of the present agent began
        self._earlier = 0  # calls of agents before it

    def grow(self, tokens: int, calls: int) -> None:
        """These were added after `calls` calls: the next one reads them."""
        self._note(calls)
        self._size += tokens

    def restart(self, calls: int) -> None:
        """Another agent goes on with the run, and will report its own calls alone."""
        self._earlier, self._sizes = calls, []

    def estimated(self, prompt: int, output: int, calls: int) -> Usage:
        """The last call of an agent that has not reported anything: it read the prompt and what was added."""
        self._note(calls)
        read = prompt + (self._sizes[-1] if self._sizes else self._size)
        return Usage(prompt_tokens=read, completion_tokens=output, total_tokens=read + output, estimated=True)

    def reported(self, counts: TokenCounts, output: int, calls: int) -> Usage:
        """The last call of an agent that has reported these sums; `output` estimates what that call wrote."""
        self._note(calls)
        sizes = self._sizes or [self._size]
        read = last_context(counts.prompt, [size - sizes[0] for size in sizes])
        wrote = counts.completion if len(sizes) == 1 else min(output, counts.completion)
        # Of one call, the agent's own figure; of several, their common share.
        cached = min(counts.cached * read // counts.prompt, read) if counts.prompt else 0
        return Usage(
            prompt_tokens=read,
            completion_tokens=wrote,
            total_tokens=read + wrote,
            cached_tokens=cached or UNSET,
            estimated=True if len(sizes) > 1 else UNSET,
        )

    def _note(self, calls: int) -> None:
        began = calls - self._earlier - len(self._sizes)
        self._sizes += [self._size] * began


def tool_tokens(action: Action) -> int:
    """What a call that has ended adds: what the model wrote to make it, and what it is given back."""
    return sum(map(estimate_tokens_by_sample, _texts(action)))


def _texts(action: Action) -> list[str]:
    match action:
        case Command(command=command, output=output):
            return [command, output[:_LONGEST_OUTPUT]]
        case FileEdit(path=path, content=content, diff=diff):
            return [path, content or "", diff.old_string if diff is not None else ""]
        case Plan(markdown=markdown):
            return [markdown]
        case Question(questions=questions, answers=answers):
            return [_json(questions), _json(answers)]
        case TodoUpdate(todos=todos):
            return [_json(todos)]
        case OtherTool(arguments=arguments, data=data):
            return [_json(arguments), data if isinstance(data, str) else _json(data)]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
