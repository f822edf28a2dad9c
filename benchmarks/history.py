"""Is a large history dearer to ask than a hundredth of it? `python -m benchmarks.history`

What is asked of a history must not cost more because there is more of it. The rounds of both are
interleaved and a ratio is taken within each, so that a noisy machine moves both sides.
"""

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.found import Found, Part
from benchmarks.report import report
from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import ContentDelta, DocumentEnded, DocumentEvent, DocumentStarted, Done
from cursor_gateway.model.documents import (
    Document,
    Envelope,
    ResponseMetadata,
    TerminalCommandMetadata,
    TextMetadata,
    Usage,
    make_document,
)
from cursor_gateway.stages.search_tokens import Words
from cursor_gateway.store.base import Lease, NewMessage, NewRun, RunEnd
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.store.blocking import Database

_T = TypeVar("_T")

CONVERSATIONS, EVENTS = 10_000, 1_000_000
SMALLER = 100
ROUNDS = 41
OWNER = "bench"  # whose key the requests carry that are sent to a gateway with this history
BATCH = 10  # events of one read
_TRIES = 100

_COMMON = [
    "the", "gateway", "reads", "each", "line", "once", "and", "says", "what", "it", "means", "while", "the", "agent",
    "still", "writes", "its", "answer",
]  # fmt: skip
_START_MS = 1_790_000_000_000


def fill(store: Database, conversations: int, events: int) -> None:
    """Conversations of one run each; the words of a run are common ones, some rarer, and one that is its own."""
    dice = random.Random(1)
    for number in range(conversations):
        _add_run(store, dice, number, events // conversations)


def _add_run(store: Database, dice: random.Random, number: int, events: int) -> None:
    run, conversation, now = f"chat_{number}", f"conv_{number}", _START_MS + 1000 * number
    words = [dice.choice(_COMMON) if dice.random() < 0.7 else f"word{int(dice.expovariate(0.002))}" for _ in range(150)]
    new = NewRun(
        id=run,
        conversation_id=conversation,
        owner=OWNER,
        instance="benchmark",
        workspace="/w",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        messages=[NewMessage("user", f"Mend unique{number}: {' '.join(words[:20])}")],
        started_ms=now,
    )
    _patiently(partial(store.begin_run, new))
    lease = Lease(run, 1)
    envelope = Envelope(
        id=run,
        conversation_id=conversation,
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status="completed",
        usage=Usage(prompt_tokens=10, completion_tokens=20, total_tokens=30),
        metadata=ResponseMetadata(duration_ms=5, tool_call_count=0, turn_count=1),
    )
    documents = _documents(" ".join(words), number)
    said: list[DocumentEvent] = [DocumentStarted("doc_001", "text", 1)]
    said += [ContentDelta("doc_001", f"{words[place % len(words)]} ") for place in range(events - 4)]
    said += [*(DocumentEnded(document) for document in documents), Done(envelope)]
    last = len(said) - len(said) % BATCH or len(said) - BATCH
    for place in range(0, last, BATCH):
        _patiently(partial(store.append, lease, place + 1, said[place : place + BATCH]))
    found_by = Words()
    for document in documents:
        found_by.push(document)
    end = RunEnd(envelope=envelope, words=found_by.all, answer=" ".join(words), ended_ms=now)
    _patiently(partial(store.append, lease, last + 1, said[last:], end))


def _patiently(write: Callable[[], object]) -> None:
    """A store that has its index to write refuses whoever cannot wait; on a busy machine that happens."""
    for _ in range(_TRIES):
        try:
            write()
            return
        except StoreUnavailable:
            time.sleep(0.05)
    write()


def _documents(text: str, number: int) -> list[Document]:
    command = f"pytest tests/test_part{number}.py"
    ran = TerminalCommandMetadata(command=command, exit_code=0, output="", duration_ms=1, permissions=[])
    return [make_document("doc_001", 1, text, TextMetadata()), make_document("doc_002", 2, None, ran)]


class Ask(Protocol):
    """Waits for what a store answers."""

    def __call__(self, answer: Coroutine[Any, Any, _T], /) -> _T: ...


def questions(store: SqliteStore, conversations: int, ask: Ask) -> dict[str, Callable[[], object]]:
    middle = conversations // 2
    page = ask(store.conversations(OWNER, limit=conversations // 2)).next
    return {
        "first page": lambda: ask(store.conversations(OWNER)),
        "a page in the middle": lambda: ask(store.conversations(OWNER, before=page)),
        "search, a word in every run": lambda: ask(store.conversations(OWNER, query="gateway")),
        "search, two words": lambda: ask(store.conversations(OWNER, query="agent answer")),
        "search, two letters": lambda: ask(store.conversations(OWNER, query="wo")),
        "search, a word in one run": lambda: ask(store.conversations(OWNER, query=f"unique{middle}")),
        "search, a command": lambda: ask(store.conversations(OWNER, query=f"pytest tests/test_part{middle}.py")),
        "resume a run": lambda: ask(store.events(f"chat_{middle}", OWNER, after=50)),
        "a run": lambda: ask(store.run(f"chat_{middle}", OWNER)),
    }


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def ratios(
    small: dict[str, Callable[[], object]], large: dict[str, Callable[[], object]]
) -> dict[str, tuple[float, float]]:
    """Of each question: the median of the large store's seconds, and of the ratio to the small one's."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in small}
    for turn in range(ROUNDS):
        for name, times in found.items():
            if turn % 2:  # whoever is asked second finds the code warm
                times.append((seconds(small[name]), seconds(large[name])))
            else:
                times.append((seconds(large[name]), seconds(small[name]))[::-1])
    return {
        name: (statistics.median(b for _, b in times), statistics.median(b / a for a, b in times))
        for name, times in found.items()
    }


def filled(folder: Path) -> tuple[Database, Database]:
    """The large history, and a hundredth of it."""
    large, small = Database(folder / "large"), Database(folder / "small")
    fill(large, CONVERSATIONS, EVENTS)
    fill(small, CONVERSATIONS // SMALLER, EVENTS // SMALLER)
    return large, small


def questions_asked(large: Database, small: Database) -> Part:
    with asyncio.Runner() as runner:
        few = questions(small.store, CONVERSATIONS // SMALLER, runner.run)
        asked = ratios(few, questions(large.store, CONVERSATIONS, runner.run))
    for name, (cost, ratio) in asked.items():
        yield f"history {name}", Found(ratio, f"{cost * 1e6:,.0f} µs")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        large, small = filled(Path(folder))
        found = dict(questions_asked(large, small))
        large.close()
        small.close()
    sys.exit(report(found))


if __name__ == "__main__":
    main()
