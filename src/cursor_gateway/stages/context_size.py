"""Estimate the tokens that the last model call of a turn read, from those that all calls read.

An agent answers one prompt with several model calls: the model calls tools, reads their results, and is called again.
Each call reads the whole context, so the agent's totals, which are sums over all calls, are the cost of the turn and
not the length of the conversation. A client that mistakes the sum for the length believes that its context is full: it
compacts the history, or drops the answer and asks again.

The length is what the last call read, and it can be derived. The context only grows during a turn: each call reads
what the first one read (the base: instructions, tools, history, prompt) plus what was added since: the model's own
output, its calls, and their results. With N calls that read T tokens in all, and S_k tokens added before call k,

    T = Σ (base + S_k),    so    base = (T − Σ S_k) / N    and the last call read    base + S_N.

T and N are exact; S is estimated from the texts. An error in S matters only as far as it is larger for the last call
than on average. The result stays within [S_N, T]: the last call read what was added, and no more than all calls
together. With one call nothing was added, and the result is exactly T.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.model.agent_events import Action, Command, FileEdit, OtherTool, Plan, Question, TodoUpdate
from cursor_gateway.model.document_events import Done, reply_usage
from cursor_gateway.stages.tokens import estimate_tokens_by_sample

_WINDOW = re.compile(r"(?:\bcontext=|(?<![\w.-]))(\d{1,4})([km])\b", re.IGNORECASE)
_THOUSANDS = {"k": 1_000, "m": 1_000_000}
_LONGEST_OUTPUT = 40_000  # characters of a command's output: the agent writes longer output to a file


def last_context(total: int, added: Sequence[int]) -> int:
    """The tokens that the last call read. `total`: read by all calls; `added`: S for each call, the first 0."""
    base = (total - sum(added)) / len(added)
    return min(total, max(added[-1], round(base + added[-1])))


class ContextSize:
    """Tracks how the context grows during a run, and how many model calls there were at each step."""

    def __init__(self) -> None:
        self._size = 0  # what was added since the run began
        self._sizes: list[int] = []  # that size at the start of each call of the current agent
        self._earlier = 0  # calls of agents before it

    def grow(self, tokens: int, calls: int) -> None:
        """Tokens added after `calls` calls, which the next call reads."""
        self._note(calls)
        self._size += tokens

    def restart(self, calls: int) -> None:
        """Another agent continues the run, and will report only its own calls."""
        self._earlier, self._sizes = calls, []

    def estimated(self, prompt: int, calls: int) -> int:
        """What the last call of an agent that has not reported usage read: the prompt and what was added."""
        self._note(calls)
        return prompt + (self._sizes[-1] if self._sizes else self._size)

    def reported(self, total: int, calls: int) -> int:
        """What the last call of an agent read whose calls read `total` tokens."""
        self._note(calls)
        sizes = self._sizes or [self._size]
        return last_context(total, [size - sizes[0] for size in sizes])

    @property
    def is_exact(self) -> bool:
        """The current agent has made one call."""
        return len(self._sizes) <= 1

    def _note(self, calls: int) -> None:
        began = calls - self._earlier - len(self._sizes)
        self._sizes += [self._size] * began


class ContextUse(Struct, frozen=True, rename="camel"):
    """How much of the model's context a conversation takes after a run."""

    tokens: int
    window: int | UnsetType = UNSET  # of the model, if its name says so
    is_estimate: bool | UnsetType = UNSET  # derived from the sum of several calls


def context_use(done: Done) -> ContextUse | None:
    """None: the agent has reported no tokens."""
    used = reply_usage(done)
    if done.envelope.usage.estimated is True or not used.total_tokens:
        return None
    return ContextUse(used.total_tokens, window_of(done.envelope.model) or UNSET, used.estimated)


def window_of(model: str) -> int | None:
    """The size of a model's context, which Cursor tells only in some names: `Sonnet 5 1M`, `opus-4-8[context=200k]`."""
    found = _WINDOW.search(model)
    return int(found[1]) * _THOUSANDS[found[2].lower()] if found else None


def tool_tokens(action: Action) -> tuple[int, int]:
    """The tokens that the model wrote to make a call, and those of its result."""
    arguments, results = _texts(action)
    return sum(map(estimate_tokens_by_sample, arguments)), sum(map(estimate_tokens_by_sample, results))


def _texts(action: Action) -> tuple[list[str], list[str]]:
    """The arguments, and the result."""
    match action:
        case Command(command=command, output=output):
            return [command], [output[:_LONGEST_OUTPUT]]
        case FileEdit(path=path, content=content, diff=diff):
            return [path, content or "", diff.old_string if diff is not None else ""], []
        case Plan(markdown=markdown):
            return [markdown], []
        case Question(questions=questions, answers=answers):
            return [_json(questions)], [_json(answers)]
        case TodoUpdate(todos=todos):
            return [_json(todos)], []
        case OtherTool(arguments=arguments, data=data):
            return [_json(arguments)], [data if isinstance(data, str) else _json(data)]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
