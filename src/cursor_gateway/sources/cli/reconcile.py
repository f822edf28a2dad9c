"""Assistant text with the CLI's repetitions in, each text exactly once out.

The CLI streams a segment of text as deltas and then repeats the whole segment when it ends: with a `model_call_id`
before a tool, without a `timestamp_ms` at the end of the run, and before a query in exactly the shape of a delta.
Without partial output the repetitions are the only copy.

The first two shapes are recognized on arrival (`repetition`). The third is not: a delta that equals the segment so far
may be its repetition, or the model may really have written the same text again. Such a delta is held back until
the next record decides:

- streaming: every delta is emitted at once. A delta that equals the segment moves to holding.
- holding: a tool or a query follows: it was the repetition, dropped (`end_segment`). Anything else follows: it was
  text, emitted first (`release`).

After a retry the CLI may continue the segment or start it over, so text from before the retry (`_earlier`) may or
may not be part of the repetition; both are accepted. At most one delta is held at any time. Emitted text is never
taken back: where the agent's own final text disagrees, `finish` reports that instead of correcting it.
"""


class Reconciler:
    def __init__(self) -> None:
        self.emitted: list[str] = []  # all of the run's text so far
        # A delta shorter than this cannot be a repetition, because the segment is at least this long, and nothing is
        # held: the caller may append it to `emitted` directly.
        self.floor = 0
        self._start = 0  # index in `emitted` where the current segment starts
        self._counted = 0  # index in `emitted` up to which `_length` counts
        self._length = 0
        self._earlier = ""  # the segment's text from before a retry
        self.held: str | None = None  # a delta that may be a repetition, until the next record
        self._turns: list[int] = []  # indices in `emitted` where the agent went on after background work

    def delta(self, text: str) -> str:
        """A piece of text, or the repetition before a query. Returns the text to emit now."""
        if len(text) < self.floor:
            self.emitted.append(text)
            self.floor += len(text)
            return text
        released = "" if self.held is None else self.release()
        if self.is_repetition(text):
            self.held, self.floor = text, 0
            return released
        self.emitted.append(text)
        self.floor = 0 if self._earlier else self._length + len(text)
        return released + text

    def deltas(self, texts: list[str]) -> str:
        """Several deltas in a row, as if passed one by one to `delta`."""
        longest = len(max(texts, key=len))
        emitted: list[str] = []
        for number, text in enumerate(texts):
            if longest < self.floor:  # which is soon so
                rest = "".join(texts[number:])
                self.emitted.append(rest)
                emitted.append(rest)
                break
            emitted.append(self.delta(text))
        return "".join(emitted)

    def is_repetition(self, text: str) -> bool:
        """Whether the text equals the whole segment so far."""
        length = self._segment_length()
        if not text or len(text) not in (length, length + len(self._earlier)):
            return False
        segment = self._segment()
        return text in (segment, self._earlier + segment)

    def repetition(self, text: str) -> str:
        """The segment's whole text, at its end. Returns the part that was not emitted yet."""
        released = "" if self.held is None else self.release()
        segment = self._segment()
        whole = self._earlier + segment
        if text.startswith(whole):
            new = text[len(whole) :]
        elif segment and text.startswith(segment):
            new = text[len(segment) :]
        elif not segment:
            new = text  # a retry started the segment over, and this is its only copy
        else:
            new = ""  # what was streamed stays; the agent's result may still add to it
        self.emitted.append(new)
        self._start_segment()
        return released + new

    def release(self) -> str:
        """A record follows that never follows a repetition: the held delta is text. Returns it."""
        if self.held is None:
            return ""
        text, self.held = self.held, None
        self.emitted.append(text)
        return text

    def end_segment(self) -> None:
        """A tool or a query follows: the held delta was the repetition, and the segment is over."""
        self.held = None
        self._start_segment()

    def retry(self) -> str:
        """The connection was lost; the segment may continue or start over. The held delta is text. Returns it."""
        released = self.release()
        self._earlier += self._segment()
        self._start = self._counted = len(self.emitted)
        self._length = self.floor = 0
        return released

    def begin_turn(self) -> None:
        """Background work has ended; the agent may go on by itself. The final text may be of this turn alone."""
        self._turns.append(len(self.emitted))

    def finish(self, result: str | None) -> tuple[str, bool]:
        """The end of the run. `result` is the agent's own copy of the whole text, if any.

        Returns the text that is still missing, and whether the two copies disagree.
        """
        self.end_segment()
        emitted = "".join(self.emitted)
        if result is None or emitted == result:
            return "", False
        if result.startswith(emitted):
            return result[len(emitted) :], False
        return "", all("".join(self.emitted[start:]) != result for start in self._turns)

    def _segment(self) -> str:
        return "".join(self.emitted[self._start :])

    def _segment_length(self) -> int:
        """Each piece is counted once, however often this is called."""
        self._length += sum(map(len, self.emitted[self._counted :]))
        self._counted = len(self.emitted)
        return self._length

    def _start_segment(self) -> None:
        self._start = self._counted = len(self.emitted)
        self._length, self._earlier, self.floor = 0, "", 0
