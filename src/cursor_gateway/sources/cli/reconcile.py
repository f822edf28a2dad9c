"""Assistant text as the CLI repeats it in, each text once out.

The CLI keeps the text of the current segment and says it again, whole, at the segment's end: with a
`model_call_id` before a tool, with no `timestamp_ms` at the end of the run, and before a query in
exactly the shape of a delta. Without partial output these repetitions are the only copy.
"""


class Reconciler:
    def __init__(self) -> None:
        self.said: list[str] = []  # all of the run's text
        # A delta shorter than this is no repetition and may simply be added to `said`: the segment is at least so
        # long, and nothing is held.
        self.floor = 0
        self._start = 0  # where in `said` the current segment starts
        self._counted = 0  # up to where in `said` the length of the segment is known
        self._length = 0
        self._earlier = ""  # what was said of it before a retry: its repetition may or may not hold this
        self._held: str | None = None  # a delta that may be a repetition: what follows it tells

    @property
    def holds(self) -> bool:
        """A text waits for what follows it."""
        return self._held is not None

    def delta(self, text: str) -> str:
        """A piece of text, or the repetition before a query. What is to be said now."""
        if len(text) < self.floor:
            self.said.append(text)
            return text
        released = self.go_on()
        if self.is_repetition(text):
            self._held, self.floor = text, 0
            return released
        self.floor = 0 if self._earlier else self._segment_length()
        self.said.append(text)
        return released + text

    def deltas(self, texts: list[str]) -> str:
        """Several in a row."""
        longest = len(max(texts, key=len))
        said: list[str] = []
        for number, text in enumerate(texts):
            if longest < self.floor:
                rest = "".join(texts[number:])
                self.said.append(rest)
                said.append(rest)
                break
            said.append(self.delta(text))
        return "".join(said)

    def is_repetition(self, text: str) -> bool:
        """It is all that was said of the segment."""
        length = self._segment_length()
        if not text or len(text) not in (length, length + len(self._earlier)):
            return False
        segment = self._segment()
        return text in (segment, self._earlier + segment)

    def repetition(self, text: str) -> str:
        """The segment's whole text, at its end. What of it has not been said yet."""
        released = self.go_on()
        said = self._segment()
        whole = self._earlier + said
        if text.startswith(whole):
            new = text[len(whole) :]
        elif said and text.startswith(said):
            new = text[len(said) :]
        elif not said:
            new = text  # a retry began the segment anew, and this is its only copy
        else:
            new = ""  # what was streamed stands; the agent's result may still add to it
        self.said.append(new)
        self._end_segment()
        return released + new

    def go_on(self) -> str:
        """Something follows that no repetition is followed by: what was held is text."""
        if self._held is None:
            return ""
        text, self._held = self._held, None
        self.said.append(text)
        return text

    def break_off(self) -> None:
        """A tool or a query: what was held was the repetition, and the segment is over."""
        self._held = None
        self._end_segment()

    def retry(self) -> str:
        """The connection was lost. Whether the segment goes on or starts anew is not known. What was held is text."""
        released = self.go_on()
        self._earlier += self._segment()
        self._start = self._counted = len(self.said)
        self._length = self.floor = 0
        return released

    def finish(self, result: str | None) -> tuple[str, bool]:
        """The run's end and the whole text that the agent claims: what is left to say, and whether the two disagree."""
        self.break_off()
        said = "".join(self.said)
        if result is None or said == result:
            return "", False
        if result.startswith(said):
            return result[len(said) :], False
        return "", True

    def _segment(self) -> str:
        return "".join(self.said[self._start :])

    def _segment_length(self) -> int:
        """Each piece is counted once, however often this is asked."""
        self._length += sum(map(len, self.said[self._counted :]))
        self._counted = len(self.said)
        return self._length

    def _end_segment(self) -> None:
        self._start = self._counted = len(self.said)
        self._length, self._earlier, self.floor = 0, "", 0
