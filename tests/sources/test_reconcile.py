"""Each table is one stream: what the CLI writes, and what of it is said at once."""

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.sources.cli.reconcile import Reconciler

Step: TypeAlias = tuple[str, str, str]  # what comes, its text, what is said then


def run(steps: list[Step]) -> list[Step]:
    reconciler = Reconciler()
    seen: list[Step] = []
    for kind, text, _ in steps:
        said = ""
        match kind:
            case "delta":
                said = reconciler.delta(text)
            case "deltas":
                said = reconciler.deltas(text.split("|"))
            case "flush":
                said = reconciler.repetition(text)
            case "thinking":
                said = reconciler.release()
            case "tool":
                reconciler.end_segment()
            case "background":
                reconciler.begin_turn()
            case "retry":
                said = reconciler.release()  # no repetition is followed by one
                reconciler.retry()
            case "result":
                said, differs = reconciler.finish(text)
                said += " (differs)" if differs else ""
            case _:
                said, _ = reconciler.finish(None)
        seen.append((kind, text, said))
    return seen


STREAMS: dict[str, list[Step]] = {
    "after background work, the result may be of the last turn alone": [
        ("delta", "First.", "First."),
        ("flush", "First.", ""),
        ("background", "", ""),
        ("delta", "Then.", "Then."),
        ("flush", "Then.", ""),
        ("result", "Then.", ""),
    ],
    "after background work, another result still differs": [
        ("delta", "First.", "First."),
        ("background", "", ""),
        ("delta", "Then.", "Then."),
        ("result", "Then. And more.", " (differs)"),
    ],
    "with partial output, the flush before a tool is dropped": [
        ("delta", "Let me ", "Let me "),
        ("delta", "look.", "look."),
        ("flush", "Let me look.", ""),
        ("tool", "", ""),
        ("delta", "Done", "Done"),
        ("flush", "Done", ""),
        ("result", "Let me look.Done", ""),
    ],
    "without partial output, the flush is the only copy": [
        ("flush", "Let me look.", "Let me look."),
        ("tool", "", ""),
        ("flush", "Done", "Done"),
        ("result", "Let me look.Done", ""),
    ],
    "the flush before a query looks like a delta, and is dropped when the query comes": [
        ("delta", "Searching", "Searching"),
        ("delta", ".", "."),
        ("delta", "Searching.", ""),
        ("tool", "", ""),
        ("delta", "Found", "Found"),
        ("result", "Searching.Found", ""),
    ],
    "without partial output, the flush before a query is said": [
        ("delta", "Searching.", "Searching."),
        ("tool", "", ""),
        ("flush", "Found", "Found"),
        ("result", "Searching.Found", ""),
    ],
    "a word that repeats all before it is text when more text follows": [
        ("delta", "ha", "ha"),
        ("delta", "ha", ""),
        ("delta", "!", "ha!"),
        ("flush", "haha!", ""),
        ("result", "haha!", ""),
    ],
    "a word that repeats all before it is text when the flush says so": [
        ("delta", "ha", "ha"),
        ("delta", "ha", ""),
        ("flush", "haha", "ha"),
        ("result", "haha", ""),
    ],
    "a word that repeats all before it is text when thinking follows": [
        ("delta", "ha", "ha"),
        ("delta", "ha", ""),
        ("thinking", "", "ha"),
        ("thinking", "", ""),
        ("result", "haha", ""),
    ],
    "a word that repeats all before it, and then the flush before a query": [
        ("delta", "ha", "ha"),
        ("delta", "ha", ""),
        ("delta", "haha", "ha"),
        ("tool", "", ""),
        ("result", "haha", ""),
    ],
    "a word of the same length is no repetition": [("delta", "ha", "ha"), ("delta", "hi", "hi"), ("flush", "hahi", "")],
    "an empty delta is neither text nor a repetition": [
        ("delta", "", ""),
        ("delta", "a", "a"),
        ("delta", "", ""),
        ("flush", "a", ""),
    ],
    "the same sentence after a tool is a new sentence": [
        ("delta", "Again.", "Again."),
        ("flush", "Again.", ""),
        ("tool", "", ""),
        ("delta", "Again.", "Again."),
        ("flush", "Again.", ""),
        ("result", "Again.Again.", ""),
    ],
    "a segment ends with its flush, whatever follows": [
        ("delta", "Again.", "Again."),
        ("flush", "Again.", ""),
        ("delta", "Again.", "Again."),
        ("result", "Again.Again.", ""),
    ],
    "a flush that says more than the deltas did adds the rest": [
        ("delta", "Let me", "Let me"),
        ("flush", "Let me look.", " look."),
        ("result", "Let me look.", ""),
    ],
    "a flush that disagrees with the deltas says nothing": [
        ("delta", "Let me", "Let me"),
        ("flush", "Something else", ""),
        ("result", "Something else", " (differs)"),
    ],
    "a result that says more than the stream did adds the rest": [
        ("delta", "Let me", "Let me"),
        ("result", "Let me look.", " look."),
    ],
    "a result is all there is": [("result", "Done.", "Done.")],
    "an end without a result leaves nothing to say": [("delta", "Let me", "Let me"), ("end", "", "")],
    "a repetition at the very end is not text": [("delta", "ha", "ha"), ("delta", "ha", ""), ("result", "ha", "")],
    "after a retry the flush may hold what was said before it": [
        ("delta", "One. ", "One. "),
        ("retry", "", ""),
        ("delta", "Two.", "Two."),
        ("flush", "One. Two.", ""),
        ("result", "One. Two.", ""),
    ],
    "after a retry the flush may hold only what was said since": [
        ("delta", "One. ", "One. "),
        ("retry", "", ""),
        ("delta", "Two.", "Two."),
        ("flush", "Two.", ""),
        ("result", "One. Two.", ""),
    ],
    "after a retry the flush may be the only copy of the rest": [
        ("delta", "One. ", "One. "),
        ("retry", "", ""),
        ("flush", "Two.", "Two."),
        ("result", "One. Two.", ""),
    ],
    "after a retry the flush may add to what was said before and since": [
        ("delta", "One. ", "One. "),
        ("retry", "", ""),
        ("delta", "Two", "Two"),
        ("flush", "One. Two.", "."),
    ],
    "after a retry the flush may add to what was said since": [
        ("delta", "One. ", "One. "),
        ("retry", "", ""),
        ("delta", "Two", "Two"),
        ("flush", "Two.", "."),
    ],
    "after a retry the flush before a query may hold what was said before it": [
        ("delta", "One. ", "One. "),
        ("retry", "", ""),
        ("delta", "Two.", "Two."),
        ("delta", "One. Two.", ""),
        ("tool", "", ""),
        ("result", "One. Two.", ""),
    ],
    "after a retry the flush before a query may hold only what was said since": [
        ("delta", "One. ", "One. "),
        ("retry", "", ""),
        ("delta", "Two.", "Two."),
        ("delta", "Two.", ""),
        ("tool", "", ""),
        ("result", "One. Two.", ""),
    ],
    "after two retries all three parts are one segment": [
        ("delta", "One. ", "One. "),
        ("retry", "", ""),
        ("delta", "Two. ", "Two. "),
        ("retry", "", ""),
        ("delta", "Three.", "Three."),
        ("flush", "One. Two. Three.", ""),
        ("result", "One. Two. Three.", ""),
    ],
    "a tool ends what a retry has kept": [
        ("delta", "One.", "One."),
        ("retry", "", ""),
        ("tool", "", ""),
        ("delta", "One.", "One."),
        ("delta", "Two.", "Two."),
        ("flush", "One.Two.", ""),
    ],
    "several deltas in a row are said together": [
        ("delta", "A long beginning", "A long beginning"),
        ("deltas", " of| a|", " of a"),
        ("flush", "A long beginning of a", ""),
    ],
    "a repetition among several deltas is found": [
        ("deltas", "ha|!|ha!", "ha!"),
        ("tool", "", ""),
        ("deltas", "ha|!|ha!|?", "ha!ha!?"),
    ],
    "short deltas do not hide that one is held": [
        ("delta", "haha", "haha"),
        ("delta", "haha", ""),
        ("deltas", "a|b", "hahaab"),
    ],
    "short deltas after a retry may repeat what came before it": [
        ("delta", "ha", "ha"),
        ("retry", "", ""),
        ("delta", "long", "long"),
        ("deltas", "x|y", "xy"),
        ("delta", "halongxy", ""),
        ("tool", "", ""),
        ("result", "halongxy", ""),
    ],
}


@pytest.mark.parametrize("steps", STREAMS.values(), ids=STREAMS)
def test_each_text_is_said_once_and_as_soon_as_it_is_certain(steps: list[Step]) -> None:
    assert run(steps) == steps


def test_a_reconciler_tells_whether_a_text_waits_for_what_follows() -> None:
    reconciler = Reconciler()
    waits = []
    for text in ("ha", "ha", "!"):
        reconciler.delta(text)
        waits.append(reconciler.held is not None)
    assert waits == [False, True, False]


@given(st.lists(st.sampled_from(["ha", "haha", "", " ", "x"]), min_size=1, max_size=8), st.integers(0, 8))
def test_several_at_once_are_said_as_one_by_one(texts: list[str], before: int) -> None:
    one_by_one, together = Reconciler(), Reconciler()
    start = "ha" * before
    said = [one_by_one.delta(start), *[one_by_one.delta(text) for text in texts], one_by_one.release()]
    assert together.delta(start) + together.deltas(texts) + together.release() == "".join(said)
