"""Requests at the same time, with a store that suspends in every call: each has one run, and no turn is lost."""

import asyncio
from pathlib import Path

import pytest

from cursor_gateway.errors import ConversationBusy, IdempotencyMismatch
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.run import Run
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, Until, say
from tests.runs.suspending import suspending
from tests.runs.test_leases import ANSWERS, gateways, said_in

MANY = 8


@pytest.mark.parametrize("has_conversation", [False, True])
async def test_the_same_request_many_times_at_once_is_one_run(tmp_path: Path, has_conversation: bool) -> None:
    goes = asyncio.Event()
    source = ScriptedSource(ANSWERS, [[STARTED], Until(goes), say("All"), [FINISHED]])
    async with gateways(tmp_path, suspending, source) as (one,):
        first = await one.start("first")
        await first.gone()
        conversation = first.info.conversation_id if has_conversation else None
        runs = await asyncio.gather(
            *(one.start("second", conversation, idempotency_key="key", body=b"body") for _ in range(MANY))
        )
        assert all(run is runs[0] for run in runs)
        with pytest.raises(IdempotencyMismatch):
            await one.start("second", conversation, idempotency_key="key", body=b"other")
        goes.set()
        await runs[0].gone()
        assert len(source.turns) == 2
        expected = ["first", "All", "second", "All"]
        assert await said_in(one.store, runs[0]) == (expected if has_conversation else expected[2:])


async def test_the_same_request_to_two_gateways_at_once_is_one_run(tmp_path: Path) -> None:
    sources = [ScriptedSource(ANSWERS), ScriptedSource(ANSWERS)]
    async with gateways(tmp_path, suspending, *sources) as both:
        for number in range(MANY):
            started: list[RunHandle] = await asyncio.gather(
                *(
                    gateway.service.start(gateway.request("Say it.", idempotency_key=f"key{number}"))
                    for gateway in both * 2
                )
            )
            assert len({run.id for run in started}) == 1
            await asyncio.gather(*(run.gone() for run in started if isinstance(run, Run)))
        assert sum(len(source.turns) for source in sources) == MANY


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("gateway_count", [1, 2])
async def test_turns_that_come_at_once_are_taken_one_after_the_other_and_none_is_lost(
    tmp_path: Path, with_keys: bool, gateway_count: int
) -> None:
    sources = [ScriptedSource(ANSWERS) for _ in range(gateway_count)]
    async with gateways(tmp_path, suspending, *sources, when_busy="wait") as made:
        first = await made[0].start("first")
        await first.gone()
        said = [f"turn {number}" for number in range(MANY)]
        runs = await asyncio.gather(
            *(
                made[number % gateway_count].start(
                    text, first.info.conversation_id, idempotency_key=text if with_keys else None
                )
                for number, text in enumerate(said)
            )
        )
        await asyncio.gather(*(run.gone() for run in runs))
        stored = await said_in(made[0].store, first)
        assert stored[::2][0] == "first"
        assert sorted(stored[2::2]) == said
        assert stored[1::2] == ["All"] * (MANY + 1)
        turns = [turn for source in sources for turn in source.turns]
        assert len(turns) == MANY + 1


async def test_of_turns_that_come_at_once_all_but_one_are_refused_if_nobody_may_wait(tmp_path: Path) -> None:
    goes = asyncio.Event()
    source = ScriptedSource(ANSWERS, [[STARTED], Until(goes), say("All"), [FINISHED]])
    async with gateways(tmp_path, suspending, source) as (one,):
        first = await one.start("first")
        await first.gone()
        started = await asyncio.gather(
            *(one.start(f"turn {number}", first.info.conversation_id) for number in range(MANY)), return_exceptions=True
        )
        (run,) = (outcome for outcome in started if isinstance(outcome, Run))
        assert sum(isinstance(outcome, ConversationBusy) for outcome in started) == MANY - 1
        goes.set()
        await run.gone()
        assert len(source.turns) == 2
        assert len(await said_in(one.store, first)) == 4
