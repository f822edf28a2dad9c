"""Pieces of an answer in, what of them is to be said out: up to a stop sequence, or a number of tokens.

Where the cut is depends on the whole text only, never on how it came in pieces. Neither search reads
a long answer again for each piece, however the pieces and the sequences look.
"""

import re
from typing import Literal, TypeAlias

from cursor_gateway.stages.tokens import estimate_tokens

CutReason: TypeAlias = Literal["stop", "length"]


class Cutter:
    """`reason` is why the answer was cut, None while it is not. What comes after a cut is not said."""

    def __init__(self, stop: tuple[str, ...] = (), max_tokens: int | None = None) -> None:
        self.reason: CutReason | None = None
        self._stop = _StopFinder(stop) if stop else None
        self._limit = None if max_tokens is None else _TokenLimit(max_tokens)

    def push(self, text: str, /) -> str:
        if self.reason is not None:
            return ""
        if self._stop is None:
            return self._within_limit(text)
        said = self._within_limit(self._stop.push(text))
        if self._stop.found and self.reason is None:
            self.reason = "stop"
        return said

    def flush(self) -> str:
        """The end of the text: what may have been the beginning of a stop sequence is none."""
        if self._stop is None or self.reason is not None:
            return ""
        return self._within_limit(self._stop.flush())

    def _within_limit(self, text: str) -> str:
        if self._limit is None:
            return text
        said = self._limit.push(text)
        if len(said) < len(text):
            self.reason = "length"
        return said


# --- stop sequences ---------------------------------------------------------------------------------


class _Sequence:
    """How much of a stop sequence the text ends with (Knuth, Morris and Pratt): each character is looked at about
    once, where trying every possible beginning costs the square of a sequence that repeats itself."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._shorter = [0]  # for each length that matched: the longest shorter one that then matches as well
        for char in text[1:]:
            self._shorter.append(self._next(self._shorter[-1], char))

    def step(self, char: str) -> None:
        self.matched = self._next(self.matched, char)

    @property
    def is_complete(self) -> bool:
        return self.matched == len(self.text)

    def _next(self, matched: int, char: str) -> int:
        while matched and self.text[matched] != char:
            matched = self._shorter[matched - 1]
        return matched + (self.text[matched] == char)


class _StopFinder:
    """Says the text before the sequence that is complete first; holds back only what may be the beginning of one."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self.found = False
        self._sequences = [_Sequence(text) for text in stop]
        self._beginning = re.compile("|".join(re.escape(text[0]) for text in stop))

    def push(self, text: str) -> str:
        longest = self._longest()
        held, length = longest.text, longest.matched  # what is held back is the beginning of a sequence
        end = self._end(text)
        return held[: length + min(end, 0)] + text[: max(end, 0)]

    def flush(self) -> str:
        longest = self._longest()
        held = longest.text[: longest.matched]
        for sequence in self._sequences:
            sequence.matched = 0
        return held

    def _end(self, text: str) -> int:
        """How much of the text can be said; below zero, how much of what was held back cannot."""
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
            if complete := [sequence.matched for sequence in self._sequences if sequence.is_complete]:
                self.found = True
                return taken - max(complete)
        return len(text) - self._longest().matched

    def _longest(self) -> _Sequence:
        return max(self._sequences, key=lambda sequence: sequence.matched)


# --- tokens -----------------------------------------------------------------------------------------


class _TokenLimit:
    """Says the longest beginning of the text whose estimate is within the limit.

    Two properties of the estimate spare most of the counting: a character adds one token or none, so as many
    characters as tokens are left fit unseen; and white space is counted by itself, so where it begins or ends the
    estimates of both sides add up, and what stands before need not be read again.
    """

    def __init__(self, max_tokens: int) -> None:
        self._left = max_tokens  # for `_tail` and all that follows
        self._tail: list[str] = []
        self._unseen = max_tokens  # so many characters fit, whatever they are

    def push(self, text: str) -> str:
        if len(text) <= self._unseen:
            self._unseen -= len(text)
            self._tail.append(text)
            return text
        known = "".join(self._tail)
        whole = known + text
        cost = estimate_tokens(whole)
        if cost > self._left:
            return text[: self._fitting(known, text)]
        self._settle(whole, cost)
        return text

    def _settle(self, whole: str, cost: int) -> None:
        stripped = whole.rstrip()
        ends_in_space = len(stripped) < len(whole)
        seam = len(stripped) if ends_in_space else max(whole.rfind(" "), whole.rfind("\n")) + 1
        tail = whole[seam:]
        tail_cost = estimate_tokens(tail)
        if ends_in_space and tail_cost:
            tail = "\n"  # costs the same, also together with more of it
        self._left -= cost - tail_cost
        self._tail = [tail]
        self._unseen = self._left - tail_cost

    def _fitting(self, known: str, text: str) -> int:
        """How many characters fit: a longer text never costs less, so halving finds it."""
        fits, exceeds = 0, len(text)
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            if estimate_tokens(known + text[:middle]) <= self._left:
                fits = middle
            else:
                exceeds = middle
        return fits
