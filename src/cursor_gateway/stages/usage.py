"""Compute the tokens of a run, and of one reply of it, from the agent's output and its reported figures.

One run can take many model calls, and each of them reads the whole context. The total of a run is the sum of all calls.
The usage of a reply is what clients of OpenAI's and Anthropic's APIs expect, for which one request is one model call:

    completion    all that the model wrote in this reply
    total         the size of the context after the last model call, see below
    prompt        the difference: what the context has besides that output
"""

import re
from collections.abc import Iterable, Sequence
from typing import TypeGuard

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from cursor_gateway.model.agent_events import (
    Action,
    Command,
    FileEdit,
    OtherTool,
    Plan,
    Question,
    RunFailed,
    RunFinished,
    TodoUpdate,
    TokenCounts,
)
from cursor_gateway.model.document_events import Done, reply_usage
from cursor_gateway.model.documents import Usage
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


# --- the size of the context ----------------------------------------------------------------------
# An estimate of the tokens that the last model call of a turn read, from those that all calls read.
#
# An agent answers one prompt with several model calls: the model calls tools, reads their results, and is called again.
# Each call reads the whole context, so the agent's totals, which are sums over all calls, are the cost of the turn and
# not the length of the conversation. A client that mistakes the sum for the length believes that its context is full:
# it compacts the history, or drops the answer and asks again.
#
# The length is what the last call read, and it can be derived. The context only grows during a turn: each call reads
# what the first one read (the base: instructions, tools, history, prompt) plus what was added since: the model's own
# output, its calls, and their results. With N calls that read T tokens in all, and S_k tokens added before call k,
#
#     T = Σ (base + S_k),    so    base = (T − Σ S_k) / N    and the last call read    base + S_N.
#
# T and N are exact; S is estimated from the texts. An error in S matters only as far as it is larger for the last call
# than on average. The result stays within [S_N, T]: the last call read what was added, and no more than all calls
# together. With one call nothing was added, and the result is exactly T.


# --- turns ------------------------------------------------------------------------------------------


class Turns(Struct):
    """A turn is the model's output and the calls it makes, up to their results."""

    _count: int = 0
    is_open: bool = False  # the model has written or called something since the last results
    _unnamed: bool = False  # a call is open, and it is not known yet whether it belongs to a new turn
    _model_call: str | None = None

    @property
    def count(self) -> int:
        return self._count + self._unnamed

    def output(self) -> None:
        if not self.is_open:
            self.is_open = True
            self._count += 1

    def tool(self, model_call: str | None) -> None:
        """A call may end before the next one of the same turn starts; `model_call`, the turn's id, decides."""
        if model_call is None:
            self._unnamed = self._unnamed or not self.is_open
        else:
            is_new = model_call != self._model_call
            if is_new and (self._unnamed or not self.is_open):
                self._count += 1
            self._unnamed = False
            self._model_call = model_call
        self.is_open = True

    def end(self) -> None:
        """A call has ended, or the agent that made it."""
        self._count += self._unnamed
        self.is_open = self._unnamed = False


class RunUsage:
    """The usage of one run. Estimates only where needed: a plain answer with reported figures needs none."""

    def __init__(self, turns: Turns, known_tokens: int) -> None:
        self.model_output: list[str] = []  # not counted yet
        self.prompt = ""
        self._turns, self.known_tokens = turns, known_tokens
        self._context = ContextSize()
        self._run_output = 0  # what the model wrote in the run: text, thinking, and the arguments of calls
        self._call_output = 0  # since the last tool ended, without arguments
        self._agent_output = 0  # of the current agent in this reply
        self._earlier_output = 0  # of the agents before it in this reply
        self._is_whole = True  # the current agent has worked for this reply alone
        self._given_tokens = 0  # the results of the caller's tools
        self._read_before = 0  # what the replies before this one read, by estimate: the context only grows

    def agent_started(self) -> None:
        """The first agent, or another one that continues the run."""
        self._turns.end()
        self._context.grow(self._take_output(), self._turns.count)
        self._context.restart(self._turns.count)
        self._earlier_output += self._agent_output
        self._agent_output, self._is_whole = 0, True

    def tool_ended(self, action: Action) -> None:
        arguments, result = tool_tokens(action)
        self._context.grow(self._take_output() + arguments + result, self._turns.count)
        self._run_output += arguments
        self._agent_output += arguments

    def caller_result(self, text: str) -> None:
        self._given_tokens += estimate_tokens_by_sample(text)

    def total(self, counts: TokenCounts | None) -> Usage:
        """The sum of all model calls. `counts` is what the agent reported for the run; None if unknown."""
        if is_sane(counts) and counts.completion:
            return _usage(counts.prompt, counts.completion, counts.cached, counts.reasoning)
        self._count_output()
        if is_sane(counts):
            return _usage(counts.prompt, self._run_output, counts.cached, is_estimate=self._run_output > 0)
        prompt = estimate_tokens_by_sample(self.prompt) + self._given_tokens
        return _usage(prompt, self._run_output, is_estimate=True)

    def paused(self, open_calls: Iterable[Action], *, ends_reply: bool) -> Usage:
        """Of the reply so far, which contains the arguments of the open calls."""
        asked = sum(tool_tokens(action)[0] for action in open_calls)
        used = self._estimated_reply(asked)
        if ends_reply:
            # The arguments are added when the calls end; but they are part of this reply, not of the next.
            self._agent_output, self._earlier_output, self._is_whole = -asked, 0, False
            self._read_before = used.prompt_tokens
        return used

    def reply(self, counts: TokenCounts | None, total: TokenCounts | None = None) -> Usage:
        """Of the reply with which the run ends.

        `counts` is what the last agent reported, `total` what is reported for the run; None if nothing.
        """
        if not is_sane(counts):
            return self._estimated_reply(0)
        calls = self._calls()
        if calls == 1 and counts.completion:
            return _usage(counts.prompt, counts.completion, counts.cached, counts.reasoning)
        self._count_output()
        read = self._context.reported(counts.prompt, calls)
        wrote = max(0, self._agent_output)
        if counts.completion:
            wrote = counts.completion if self._is_whole else min(wrote, counts.completion)
        last = wrote if self._context.is_exact else min(self._call_output, wrote)
        completion = self._earlier_output + wrote
        if is_sane(total) and total.completion:
            completion = min(completion, total.completion)
        completion = max(last, completion)
        prompt = max(0, read + last - completion)
        # Exact for one call; for several, in proportion.
        cached = min(counts.cached * read // counts.prompt, prompt) if counts.prompt else 0
        thought = counts.reasoning * wrote // counts.completion if counts.completion else 0
        is_reported = self._context.is_exact and completion == counts.completion
        return _usage(prompt, completion, cached, thought, is_estimate=not is_reported)

    def _estimated_reply(self, asked: int) -> Usage:
        self._count_output()
        read = self._context.estimated(self.known_tokens + estimate_tokens_by_sample(self.prompt), self._calls())
        last = self._call_output + asked
        completion = max(last, self._earlier_output + self._agent_output + asked)
        return _usage(max(self._read_before, read + last - completion), completion, is_estimate=True)

    def _calls(self) -> int:
        # Results without an answer were still read, by a call that ended the turn without output.
        return self._turns.count + (not self._turns.is_open)

    def _take_output(self) -> int:
        self._count_output()
        taken, self._call_output = self._call_output, 0
        return taken

    def _count_output(self) -> None:
        if self.model_output:
            tokens = estimate_tokens_by_sample("".join(self.model_output))
            self.model_output.clear()
            self._run_output += tokens
            self._call_output += tokens
            self._agent_output += tokens


def _usage(prompt: int, completion: int, cached: int = 0, reasoning: int = 0, *, is_estimate: bool = False) -> Usage:
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        cached_tokens=cached or UNSET,
        reasoning_tokens=min(reasoning, completion) or UNSET,
        estimated=is_estimate or UNSET,
    )


def is_sane(counts: TokenCounts | None) -> TypeGuard[TokenCounts]:
    """Whether the agent reported figures that can be true."""
    return counts is not None and min(counts.prompt, counts.completion, counts.cached, counts.reasoning) >= 0


class UsageTotal:
    """The sum of an agent's turns: it may be started several times in one run."""

    def __init__(self) -> None:
        self._usage: TokenCounts | None = TokenCounts(prompt=0, completion=0)  # None: one did not report its own
        self._duration_ms = 0

    def add(self, end: RunFinished | RunFailed) -> None:
        self._duration_ms += end.duration_ms or 0
        self._usage = None if end.usage is None or self._usage is None else self._usage.plus(end.usage)

    def cut(self) -> None:
        """An agent that is broken off reports nothing."""
        self._usage = None

    def total(self, end: RunFinished | RunFailed) -> RunFinished | RunFailed:
        return replace(end, usage=self._usage, last_usage=end.usage, duration_ms=self._duration_ms or end.duration_ms)
