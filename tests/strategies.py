"""What the tests of several modules share: generated text, its chunkings, and what work grows with."""

import gc
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import FrameType
from typing import Any, Protocol, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

Sliced = TypeVar("Sliced", str, bytes)
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
In = TypeVar("In")
Out = TypeVar("Out")

# What decides about lines, fences, lists, quotes and HTML, and enough of anything else between.
MARKDOWN = (
    ["\n"] * 6
    + ["```", "````", "~~~", "~~~~", "`", "``", "```py", "~~~js", "```\n", "1:2:a b.py", "py", "a", "foo"]
    + [" ", "  ", "    ", "\t", "\n  ", "\n    ", "\n- ", "\n> ", "- ", "* ", "+", "-", "*", "_", "1. ", "2) ", "10. "]
    + ["> ", ">", "# ", "---", "===", "***", "<div>", "</div>", "<b>", "<!-- ", "-->", "<script>", "</script>"]
    + ["<?", "?>", "<!X", "<![CDATA[", "]]>", "<a b='c' d=e>", "</a >"]
)

markdown = st.lists(st.sampled_from(MARKDOWN), min_size=1, max_size=16).map("".join)
scalar_text = st.text(st.characters(exclude_categories=["Cs"]))


class Stage(Protocol[In_contra, Out_co]):
    def push(self, item: In_contra, /) -> Iterable[Out_co]: ...

    def flush(self) -> Iterable[Out_co]: ...


def outputs(stage: Stage[In, Out], items: Iterable[In]) -> list[Out]:
    found = [out for item in items for out in stage.push(item)]
    return [*found, *stage.flush()]


def chunks(whole: Sliced, size: int) -> list[Sliced]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def cut(whole: Sliced, places: Iterable[int]) -> list[Sliced]:
    """Cut at these places (taken round the end); the same place twice gives an empty chunk."""
    at = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    return [whole[start:end] for start, end in pairwise(at)]


places = st.lists(st.integers(0, 10_000), max_size=8)


def examples(number: int) -> settings:
    """In proportion: so many where the profile says 100."""
    return settings(max_examples=max(3, number * settings().max_examples // 100))


# Methods of text and bytes that read all of what they are called on.
READ_ALL = {
    "split",
    "rsplit",
    "splitlines",
    "partition",
    "strip",
    "lstrip",
    "rstrip",
    "replace",
    "count",
    "encode",
    "decode",
}


def work(run: Callable[[], object]) -> int:
    """Calls made, and how much text they must read: what a stage costs, without a clock."""
    total = 0

    def count(frame: FrameType, event: str, callee: object) -> None:
        nonlocal total
        if event == "call":
            total += 1
        elif event == "c_call":
            receiver = getattr(callee, "__self__", None)
            total += 1
            if isinstance(receiver, str | bytes | bytearray) and getattr(callee, "__name__", "") in READ_ALL:
                total += len(receiver)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return total


def steps(run: Callable[[], object]) -> int:
    """Lines of Python that are executed: unlike `work`, it sees what a loop does without a call."""
    total = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal total
        total += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        run()
    finally:
        sys.settrace(before)
    return total


def assert_linear(run: Callable[[int], object]) -> None:
    """For work inside a regular expression, which cannot be counted: 16 times the size is about 16 times the work.

    Quadratic work would be 256 times. It is this thread's own CPU time, and the limit is a factor of four from both. A
    busy machine slows some attempts down by more than that, but not all: quadratic work fails every time.
    """
    size = 1000
    while (
        cost := _seconds(run, size)
    ) < 0.001 and size < 50_000:  # larger texts would measure the allocation of memory
        size *= 4
    cost = max(cost, *(_seconds(run, size) for _ in range(4)))
    costs = (_seconds(run, 16 * size) for _ in range(10))
    assert any(larger < 64 * cost + 0.01 for larger in costs), f"{size} characters and 16 times as many"


def _seconds(run: Callable[[int], object], size: int) -> float:
    gc.disable()  # a collection costs by what other tests have left
    try:
        start = time.thread_time()
        run(size)
        return time.thread_time() - start
    finally:
        gc.enable()
