"""Cut an answer at a stop sequence or a token limit.

The position of the cut depends only on the whole text, never on how it was split. Both searches take linear time,
whatever the pieces and the sequences are.
"""

import re
from bisect import bisect_right
from typing import Literal, TypeAlias

from cursor_gateway.stages.tokens import estimate_tokens

CutReason: TypeAlias = Literal["stop", "length"]


class Cutter:
    """`reason` is why the answer was cut; None until then. Text after the cut is dropped."""

    def __init__(self, stop: tuple[str, ...] = (), max_tokens: int | None = None) -> None:
        self.reason: CutReason | None = None
        self.stop_sequence: str | None = None  # the one that was found, if `reason` is "stop"
        self._stop = _StopFinder(stop) if stop else None
        self._limit = None if max_tokens is None else _TokenLimit(max_tokens)

    def push(self, text: str, /) -> str:
        if self.reason is not None:
            return ""
        if self._stop is None:
            return self._within_limit(text)
        kept = self._within_limit(self._stop.push(text))
        if self._stop.found is not None and self.reason is None:
            self.reason, self.stop_sequence = "stop", self._stop.found
        return kept

    def flush(self) -> str:
        """The end of the text: a partial stop sequence that was held back is text."""
        if self._stop is None or self.reason is not None:
            return ""
        return self._within_limit(self._stop.flush())

    def _within_limit(self, text: str) -> str:
        if self._limit is None:
            return text
        kept = self._limit.push(text)
        if len(kept) < len(text):
            self.reason = "length"
        return kept


# --- stop sequences ---------------------------------------------------------------------------------


class _Sequence:
    """How much of a stop sequence the text ends with (Knuth-Morris-Pratt): linear, where trying every possible start
    would be quadratic for a sequence that repeats itself."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._shorter = [0]  # for each matched length: the longest shorter length that matches, too
        for char in text[1:]:
            self._shorter.append(self._next(self._shorter[-1], char))

    def step(self, char: str) -> None:
        self.matched = self._next(self.matched, char)

    def _next(self, matched: int, char: str) -> int:
        while matched and self.text[matched] != char:
            matched = self._shorter[matched - 1]
        return matched + (self.text[matched] == char)


class _StopFinder:
    """Returns the text before the sequence that completes first; holds back only what may be the start of one."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self.found: str | None = None
        self._sequences = [_Sequence(text) for text in stop]
        self._beginning = re.compile("|".join(re.escape(text[0]) for text in stop))

    def push(self, text: str) -> str:
        longest = self._longest()
        held, length = longest.text, longest.matched  # the text held back is a prefix of this sequence
        end = self._end(text)
        return held[: length + min(end, 0)] + text[: max(end, 0)]

    def flush(self) -> str:
        longest = self._longest()
        held = longest.text[: longest.matched]
        for sequence in self._sequences:
            sequence.matched = 0
        return held

    def _end(self, text: str) -> int:
        """How much of the text to return; if negative, how much of the held-back text to drop."""
        taken = 0
        while taken < len(text):
            if not any(sequence.matched for sequence in self._sequences):
                beginning = self._beginning.search(text, taken)
                if beginning is None:
                    break
                taken = beginning.start()
            for sequence in self._sequences:
                sequence.step(text[taken])
            taken += 1
            if complete := [sequence.text for sequence in self._sequences if sequence.matched == len(sequence.text)]:
                self.found = max(complete, key=len)
                return taken - len(self.found)
        return len(text) - self._longest().matched

    def _longest(self) -> _Sequence:
        return max(self._sequences, key=lambda sequence: sequence.matched)


# --- tokens -----------------------------------------------------------------------------------------


class _TokenLimit:
    """Returns the longest prefix of the text whose estimate is within the limit.

    Two properties of the estimate save most of the counting. A character adds at most one token, so as many
    characters as tokens are left fit without counting. And white space is counted separately, so at its edges the
    estimates of both sides add up, and the text before need not be read again.
    """

    def __init__(self, max_tokens: int) -> None:
        self._left = max_tokens  # for `_tail` and all that follows
        self._tail: list[str] = []
        self._unseen = max_tokens  # this many characters fit without counting

    def push(self, text: str) -> str:
        if len(text) <= self._unseen:
            self._unseen -= len(text)
            self._tail.append(text)
            return text
        known = "".join(self._tail)
        whole = known + text
        cost = estimate_tokens(whole)
        if cost > self._left:
            # What is known fits, and the whole does not. In between, a longer text never costs less.
            ends = range(len(known) + 1, len(whole))
            return text[: bisect_right(ends, self._left, key=lambda end: estimate_tokens(whole[:end]))]
        self._settle(whole, cost)
        return text

    def _settle(self, whole: str, cost: int) -> None:
        stripped = whole.rstrip()
        ends_in_space = len(stripped) < len(whole)
        seam = len(stripped) if ends_in_space else max(whole.rfind(" "), whole.rfind("\n")) + 1
        tail = whole[seam:]
        tail_cost = estimate_tokens(tail)
        if ends_in_space and tail_cost:
            tail = "\n"  # costs the same, also when more white space follows
        self._left -= cost - tail_cost
        self._tail = [tail]
        self._unseen = self._left - tail_cost
