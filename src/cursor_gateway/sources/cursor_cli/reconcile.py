"""Assistant text as the CLI repeats it in, each text once out.

The CLI keeps the text of the current segment and says it again, whole, at the segment's end: with a
`model_call_id` before a tool, with no `timestamp_ms` at the end of the run, and before a query in
exactly the shape of a delta. Without partial output these repetitions are the only copy.
"""


class Reconciler:
    def __init__(self) -> None:
        self._segment: list[str] = []  # what was said of the current segment
        self._length = 0
        self._whole_length = 0  # with what was said before a retry
        self._earlier = ""  # what was said of it before a retry: its repetition may or may not hold this
        self._held: str | None = None  # a delta that may be a repetition: what follows it tells
        self._all: list[str] = []

    def delta(self, text: str) -> str:
        """A piece of text, or the repetition before a query. What is to be said now."""
        released = "" if self._held is None else self.go_on()
        if len(text) in (self._length, self._whole_length) and self._is_repetition(text):
            self._held = text
            return released
        self._say(text)
        return released + text

    def _is_repetition(self, text: str) -> bool:
        said = "".join(self._segment)
        return bool(text) and text in (said, self._earlier + said)

    def repetition(self, text: str) -> str:
        """The segment's whole text, at its end. What of it has not been said yet."""
        released = self.go_on()
        said = "".join(self._segment)
        whole = self._earlier + said
        if text.startswith(whole):
            new = text[len(whole) :]
        elif text.startswith(said) and said:
            new = text[len(said) :]
        elif not said:
            new = text  # a retry began the segment anew, and this is its only copy
        else:
            new = ""  # what was streamed stands; the agent's result may still add to it
        self._say(new)
        self._end_segment()
        return released + new

    def go_on(self) -> str:
        """Something follows that no repetition is followed by: what was held is text."""
        if self._held is None:
            return ""
        text, self._held = self._held, None
        self._say(text)
        return text

    def break_off(self) -> None:
        """A tool or a query: what was held was the repetition, and the segment is over."""
        self._held = None
        self._end_segment()

    def retry(self) -> None:
        """The connection was lost. Whether the segment goes on or starts anew is not known."""
        self._earlier += "".join(self._segment)
        self._segment, self._length = [], 0

    def finish(self, result: str | None) -> tuple[str, bool]:
        """The run's end and the whole text that the agent claims: what is left to say, and whether the two disagree."""
        self.break_off()
        said = "".join(self._all)
        if result is None or said == result:
            return "", False
        if result.startswith(said):
            return result[len(said) :], False
        return "", True

    def _say(self, text: str) -> None:
        self._segment.append(text)
        self._length += len(text)
        self._whole_length += len(text)
        self._all.append(text)

    def _end_segment(self) -> None:
        self._segment, self._length, self._whole_length, self._earlier = [], 0, 0, ""
