"""Rendering outside the loop: the same HTML, killed at its limit, shared fairly, dropped when nobody waits."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from cursor_gateway.demo import recordings
from cursor_gateway.model import documents
from cursor_gateway.render.html.work import (
    Article,
    Blocks,
    CodePart,
    Job,
    Lines,
    OpenText,
    perform,
    render_answer,
    render_page,
)
from cursor_gateway.server.rendering import Renderings
from tests.laws.laws import response_of
from tests.render.views import events_of

# Go's lexer looks for the end of each comment, and there is none.
SLOW_CODE = "/*\n" * 60_000


def document(content: str = "*x*") -> documents.Document:
    return documents.make_document("doc_001", 1, content, documents.TextMetadata())


def slow_edit() -> documents.Document:
    diff = documents.Diff(old_string=SLOW_CODE, new_string="", start_line=1, end_line=60_000)
    metadata = documents.FileEditMetadata(file_path="a.go", operation="edit", language="go", diff=diff)
    return documents.make_document("doc_001", 1, None, metadata)


@pytest.fixture
def renderings() -> Iterator[Renderings]:
    with closing(Renderings(job_seconds=1.0)) as found:
        yield found


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 300))


# --- what comes back ----------------------------------------------------------------------------------

CODE = documents.make_document(
    "doc_001", 1, "def f(): pass", documents.CodeBlockMetadata(language="python", purpose="example")
)
JOBS: list[Job] = [
    Article(document("# a\n\n> b\n\n```py\nx = 1\n```")),
    Article(CODE, answerable=False),
    CodePart(CODE),  # type: ignore[arg-type] # it is code
    Lines(["*a*", "`b`"]),
    Blocks("[a]: http://b\n\n[a]"),
    OpenText("one\n\n- two\n- thr"),
]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: type(job).__name__)
def test_a_worker_renders_what_would_be_rendered_here(renderings: Renderings, job: Job) -> None:
    assert run(renderings.run("a", lambda: renderings.do(job))) == perform(job)


def test_every_demo_is_the_same_page(renderings: Renderings) -> None:
    responses = [response_of(events_of(data)) for data in recordings().values()]

    async def pages() -> list[str]:
        return [
            await renderings.run("a", lambda response=response: render_page(response, do=renderings.do))  # type: ignore[misc]
            for response in responses
        ]

    assert run(pages()) == [render_page(response) for response in responses]
    assert renderings.started <= 2


# --- the limit of CPU time ----------------------------------------------------------------------------


def test_what_takes_too_long_is_killed_and_shown_as_plain_text(renderings: Renderings) -> None:
    hostile, harmless = slow_edit(), document("**bold**")

    async def both() -> tuple[str, str]:
        slow = await renderings.run("a", lambda: render_answer([hostile], renderings.do))
        return slow, await renderings.run("a", lambda: render_answer([harmless], renderings.do))

    slow, fast = run(both())
    assert "Shown as plain text" in slow
    assert slow.count("/*\n") == 60_000
    assert fast == render_answer([harmless])


def test_a_job_that_was_killed_is_not_tried_again(renderings: Renderings) -> None:
    job = Article(slow_edit())

    async def twice() -> list[object]:
        return [await renderings.run("a", lambda: renderings.do(job)) for _ in range(2)]

    assert run(twice()) == [None, None]
    assert renderings.started == 1


def test_a_job_that_fails_has_no_result_and_costs_no_process(renderings: Renderings) -> None:
    class Unknown(Lines, tag="unknown"):  # type: ignore[misc]
        pass

    async def several() -> list[object]:
        jobs = [Lines(["a"]), *(Unknown(["a"]) for _ in range(6)), Lines(["a"])]
        return [await renderings.run("a", lambda job=job: renderings.do(job)) for job in jobs]  # type: ignore[misc]

    first, *failed, last = run(several())
    assert failed == [None] * 6
    assert first == last == perform(Lines(["a"]))
    assert renderings.started <= 2  # as many as there are workers


def test_all_jobs_of_a_reply_together_have_a_limit() -> None:
    with closing(Renderings(reply_seconds=0.0)) as renderings:
        assert run(renderings.run("a", lambda: renderings.do(Lines(["a"])))) is None
        assert renderings.started == 0


def test_a_worker_that_dies_is_replaced(renderings: Renderings) -> None:
    def work() -> list[object]:
        found: list[object] = [renderings.do(Lines(["a"]))]
        (worker,) = [worker for worker in renderings._workers if worker.started]
        assert worker._popen is not None
        worker._popen.kill()
        worker._popen.wait()
        return [*found, renderings.do(Lines(["b"])), renderings.do(Lines(["b"]))]

    first, lost, again = run(renderings.run("a", work))
    assert (first, lost, again) == (perform(Lines(["a"])), None, perform(Lines(["b"])))


# --- fair shares --------------------------------------------------------------------------------------


async def test_owners_take_turns() -> None:
    order: list[str] = []
    has_begun, all_are_there = threading.Event(), threading.Event()

    def begin() -> None:
        has_begun.set()
        all_are_there.wait()

    with closing(Renderings(workers=1)) as renderings:
        first = asyncio.ensure_future(renderings.run("greedy", begin))
        await asyncio.to_thread(has_begun.wait)
        names = ["greedy 1", "greedy 2", "greedy 3", "modest 1", "third 1", "modest 2"]
        asked = [renderings.run(name.split()[0], lambda name=name: order.append(name)) for name in names]  # type: ignore[misc]
        rest = asyncio.gather(*asked)
        await asyncio.sleep(0)
        all_are_there.set()
        await asyncio.gather(first, rest)

    assert order == ["greedy 1", "modest 1", "third 1", "greedy 2", "modest 2", "greedy 3"]


def test_no_owner_has_all_threads() -> None:
    async def ask() -> str:
        may_end = threading.Event()
        with closing(Renderings(workers=2)) as renderings:
            greedy = [asyncio.ensure_future(renderings.run("greedy", may_end.wait)) for _ in range(8)]
            found = await renderings.run("modest", lambda: "at once")
            assert not any(task.done() for task in greedy)
            may_end.set()
            await asyncio.gather(*greedy)
            return found

    assert run(ask()) == "at once"


# --- nobody waits -------------------------------------------------------------------------------------


async def test_what_nobody_waits_for_is_not_begun() -> None:
    begun: list[str] = []
    may_end = threading.Event()

    with closing(Renderings(workers=1)) as renderings:
        first = asyncio.ensure_future(renderings.run("a", may_end.wait))
        cancelled = asyncio.ensure_future(renderings.run("a", lambda: begun.append("cancelled")))
        gone = asyncio.ensure_future(renderings.run("a", lambda: begun.append("gone"), lambda: True))
        await asyncio.sleep(0)
        cancelled.cancel()
        may_end.set()
        await first
        with pytest.raises(ClientDisconnect):
            await gone

    assert begun == []


def test_work_ends_at_its_next_job_when_the_client_has_gone(renderings: Renderings) -> None:
    done: list[object] = []

    def work() -> None:
        for _ in range(3):
            done.append(renderings.do(Lines(["a"])))

    with pytest.raises(ClientDisconnect):
        run(renderings.run("a", work, lambda: bool(done)))
    assert len(done) == 1


def test_a_mistake_in_the_work_is_raised_for_who_waits(renderings: Renderings) -> None:
    def work() -> None:
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        run(renderings.run("a", work))


# --- the end ------------------------------------------------------------------------------------------


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not holds() and time.monotonic() < until:
        time.sleep(0.05)
    return holds()


def test_closing_ends_the_processes() -> None:
    renderings = Renderings()

    def work() -> int:
        renderings.do(Lines(["a"]))
        (pid,) = [worker._popen.pid for worker in renderings._workers if worker._popen is not None]
        return pid

    pid = run(renderings.run("a", work))
    assert is_there(pid)
    renderings.close()
    assert eventually(lambda: not is_there(pid))
    with pytest.raises(ClientDisconnect):
        run(renderings.run("a", lambda: "never"))


PARENT = """
import asyncio, os, sys
from cursor_gateway.render.html.work import Lines
from cursor_gateway.server.rendering import Renderings

renderings = Renderings()

def work():
    renderings.do(Lines(["a"]))
    print(*[worker._popen.pid for worker in renderings._workers if worker._popen is not None], flush=True)
    os._exit(1)

asyncio.run(renderings.run("a", work))
"""


def test_a_worker_does_not_outlive_a_gateway_that_was_killed() -> None:
    parent = subprocess.run([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, check=False)
    pid = int(parent.stdout)
    assert eventually(lambda: not is_there(pid))
