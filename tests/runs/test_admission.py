"""The registry: so many runs and no more, each found by its owner alone, and none left at shutdown."""

import asyncio

import pytest

from cursor_gateway.errors import RunCancelled, ShuttingDown, TooManyRuns
from cursor_gateway.fair_places import Shares
from cursor_gateway.fair_threads import KeyedLocks
from cursor_gateway.runs import admission
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.run import Run
from cursor_gateway.store.base import Idempotency
from tests.runs.scripted import (
    ENDLESS,
    FINISHED,
    LOOPS,
    Loop,
    ScriptedSource,
    Step,
    UnstoredLog,
    Until,
    Watcher,
    forever,
    info,
    new_run,
    say,
    true,
    turn,
    turns_of_the_loop,
)


def start(runs: Runs, id: str = "chat_1", owner: str = "me", ended: list[Run] | None = None) -> Run:
    runs.check_free(owner)
    return start_in(runs, id, owner, ended)


def start_in(runs: Runs, id: str, owner: str, ended: list[Run] | None = None) -> Run:
    run = Run(info(id, f"conv of {id}"), UnstoredLog(owner=owner))
    runs.start(run, turn(run.id), ended=lambda: None if ended is None else ended.append(run))
    return run


async def test_the_latest_run_of_a_conversation_is_known_until_nothing_is_left_of_it() -> None:
    runs = Runs(ScriptedSource([forever()]), ENDLESS, Shares(max_runs=2))
    assert runs.latest("conv_1") is None
    first, second = new_run("chat_1"), new_run("chat_2")
    runs.start(first, turn("chat_1"))
    assert runs.latest("conv_1") is first
    runs.start(second, turn("chat_2"))
    await first.cancel(RunCancelled("Stopped."))
    await first.gone()  # later than the second began
    assert runs.latest("conv_1") is second
    await second.cancel(RunCancelled("Stopped."))
    await second.gone()
    assert runs.latest("conv_1") is None


# --- places ---------------------------------------------------------------------------------------------


async def test_runs_are_counted_until_they_have_answered() -> None:
    goes = asyncio.Event()
    source = ScriptedSource([Until(goes), say("All"), [FINISHED]])
    runs, ended, watcher = Runs(source, ENDLESS, Shares(max_runs=2)), list[Run](), Watcher()
    assert (runs.running, runs.limit) == (0, 2)
    first, second = start(runs, "chat_1", ended=ended), start(runs, "chat_2", ended=ended)
    assert runs.running == 2
    with pytest.raises(TooManyRuns, match="2 runs are active"):
        runs.check_free("me")
    with pytest.raises(TooManyRuns):
        start(runs, "chat_3")
    goes.set()
    await asyncio.gather(first.gone(), second.gone())
    assert (runs.running, ended, watcher.seen) == (0, [first, second], [])
    runs.check_free("me")


async def test_a_place_that_a_greedy_owner_gives_back_goes_to_another() -> None:
    goes = [asyncio.Event() for _ in range(4)]
    scripts: list[list[Step]] = [[Until(go), [FINISHED]] for go in goes]
    source = ScriptedSource(*scripts)
    runs = Runs(source, ENDLESS, Shares(max_runs=2))
    greedy = [start(runs, f"chat_{number}", "greedy") for number in range(2)]
    await turns_of_the_loop()
    order: list[str] = []

    async def ask(owner: str, id: str) -> None:
        place = await runs.reserve(owner)
        order.append(owner)
        start_in(runs, id, owner)
        place.give_back()

    with pytest.raises(TooManyRuns):
        await ask("greedy", "chat_2")
    asking = [asyncio.ensure_future(ask(owner, f"chat_{owner}")) for owner in ("modest", "shy")]
    await turns_of_the_loop()
    assert order == []
    with pytest.raises(TooManyRuns):  # it has its share, and others wait
        await ask("greedy", "chat_3")
    goes[0].set()
    await greedy[0].gone()
    await true(lambda: order == ["modest"])
    with pytest.raises(TooManyRuns):
        await ask("greedy", "chat_4")
    goes[1].set()
    await greedy[1].gone()
    await asyncio.gather(*asking)
    assert order == ["modest", "shy"]
    assert runs.running == 2
    await runs.close(0)


async def test_the_last_place_is_kept_for_an_owner_that_was_active() -> None:
    first: list[Step] = [say("All"), [FINISHED]]
    endless: list[Step] = [forever()]
    runs = Runs(ScriptedSource(first, endless), ENDLESS, Shares(max_runs=2))

    async def ask(owner: str, id: str) -> Run:
        async with asyncio.timeout(60):
            place = await runs.reserve(owner)
        run = start_in(runs, id, owner)
        place.give_back()
        return run

    await (await ask("modest", "chat_1")).gone()
    await ask("greedy", "chat_2")
    waiting = asyncio.ensure_future(ask("greedy", "chat_3"))
    await turns_of_the_loop()
    assert not waiting.done()
    with pytest.raises(TooManyRuns, match="reserved for other API keys"):
        runs.check_free("greedy")
    await ask("modest", "chat_4")  # past the one that waits
    assert not waiting.done()
    waiting.cancel()
    await runs.close(0)


async def test_who_waits_for_a_place_does_not_wait_for_ever() -> None:
    runs = Runs(ScriptedSource([forever()]), ENDLESS, Shares(max_runs=1, queue_seconds=0.01))
    start(runs, "chat_1", "greedy")
    with pytest.raises(TooManyRuns, match="1 runs are active"):
        await runs.reserve("modest")
    leaving = asyncio.ensure_future(runs.reserve("modest"))
    await turns_of_the_loop()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await runs.close(0)
    assert runs.running == 0


async def test_a_client_that_leaves_the_queue_does_not_disturb_the_shutdown() -> None:
    runs = Runs(ScriptedSource([forever()]), ENDLESS, Shares(max_runs=1))
    start(runs, "chat_1", "greedy")
    leaving = asyncio.ensure_future(runs.reserve("modest"))
    await turns_of_the_loop()
    leaving.cancel()  # and it is still in the queue
    await runs.close(0)
    assert runs.running == 0
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_who_waits_for_a_place_is_refused_when_the_gateway_stops() -> None:
    runs = Runs(ScriptedSource([forever()]), ENDLESS, Shares(max_runs=1))
    start(runs, "chat_1", "greedy")
    waiting = asyncio.ensure_future(runs.reserve("modest"))
    await turns_of_the_loop()
    await runs.close(0)
    with pytest.raises(ShuttingDown):
        await waiting


async def test_an_agent_that_lingers_after_its_answer_takes_no_place() -> None:
    runs = Runs(ScriptedSource([say("All"), [FINISHED], forever()]), ENDLESS, Shares(max_runs=1))
    first = start(runs, "chat_1")
    await first.finished()
    second = start(runs, "chat_2")
    await second.finished()
    await asyncio.gather(first.abandon(), second.abandon())


async def test_observers_hear_of_every_run() -> None:
    watcher = Watcher()
    runs = Runs(ScriptedSource([[FINISHED]]), ENDLESS, Shares(max_runs=1), [watcher])
    await start(runs).gone()
    assert watcher.seen == ["started", "first_event", "ended"]


# --- finding --------------------------------------------------------------------------------------------


async def test_a_run_is_found_by_its_owner_and_nobody_else_while_it_goes_on() -> None:
    goes = asyncio.Event()
    runs = Runs(ScriptedSource([say("All"), [FINISHED], Until(goes)]), ENDLESS, Shares(max_runs=1))
    run = start(runs, owner="me")
    assert (runs.find(run.id, "me"), runs.find(run.id, "you"), runs.find("chat_2", "me")) == (run, None, None)
    await run.finished()
    assert runs.find(run.id, "me") is run
    goes.set()
    await run.gone()
    assert runs.find(run.id, "me") is None


async def test_an_idempotency_key_finds_its_owners_run_alone_while_it_goes_on() -> None:
    goes = asyncio.Event()
    runs = Runs(ScriptedSource([Until(goes), [FINISHED]]), ENDLESS, Shares(max_runs=1))
    run = Run(info("chat_1"), UnstoredLog(Idempotency("key", "hash")))
    runs.start(run, turn(run.id))
    assert runs.find_by_idempotency("me", "key") is run
    assert runs.find_by_idempotency("me", "another") is None
    assert runs.find_by_idempotency("you", "key") is None
    goes.set()
    await run.gone()


class LateLog(UnstoredLog):
    """Of a run that the store takes only after so many tries."""

    def __init__(self, tries: int) -> None:
        super().__init__()
        self.tries = tries

    @property
    def is_complete(self) -> bool:
        return self.tries <= 0

    async def try_again(self) -> bool:
        self.tries -= self.done is not None
        return self.is_complete


def unstored(runs: Runs, id: str, tries: int) -> tuple[Run, LateLog]:
    log = LateLog(tries)
    run = Run(info(id), log)
    runs.start(run, turn(run.id))
    return run, log


async def test_a_run_that_the_store_did_not_take_is_offered_again_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "_STORE_SECONDS", 0.001)
    runs = Runs(ScriptedSource([[FINISHED]]), ENDLESS, Shares(max_runs=9))
    (first, late), (second, soon) = unstored(runs, "chat_1", 3), unstored(runs, "chat_2", 1)
    await asyncio.gather(first.gone(), second.gone())
    assert (runs.find("chat_1", "me"), runs.find("chat_2", "me")) == (first, second)
    await true(lambda: runs.find("chat_2", "me") is None)
    assert (late.tries, soon.tries, runs.find("chat_1", "me")) == (0, 0, None)


async def test_only_so_many_runs_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_MOST_UNSTORED", 2)
    runs = Runs(ScriptedSource([[FINISHED]]), ENDLESS, Shares(max_runs=9))
    waiting = [unstored(runs, f"chat_{number}", 1)[0] for number in range(3)]
    await asyncio.gather(*(run.gone() for run in waiting))
    assert [runs.find(run.id, "me") for run in waiting] == [None, *waiting[1:]]
    await runs.close(0)


@pytest.mark.parametrize("tries", [1, 2])
async def test_closing_offers_them_once_more(tries: int) -> None:
    runs = Runs(ScriptedSource([[FINISHED]]), ENDLESS, Shares(max_runs=1))
    run, log = unstored(runs, "chat_1", tries)
    await run.gone()
    await runs.close(0)
    assert log.tries == tries - 1


# --- closing --------------------------------------------------------------------------------------------


async def test_a_closed_registry_starts_nothing() -> None:
    runs = Runs(ScriptedSource([[FINISHED]]), ENDLESS, Shares(max_runs=1))
    await runs.close(1e6)
    await runs.close(0)
    with pytest.raises(ShuttingDown):
        start(runs)


async def test_runs_may_finish_while_the_registry_drains() -> None:
    goes = asyncio.Event()
    runs = Runs(ScriptedSource([Until(goes), say("All"), [FINISHED]]), ENDLESS, Shares(max_runs=2))
    first, second = start(runs, "chat_1"), start(runs, "chat_2")
    closing = asyncio.ensure_future(runs.close(1e6))
    await turns_of_the_loop()
    with pytest.raises(ShuttingDown):
        start(runs, "chat_3")
    goes.set()
    await closing
    for run in (first, second):
        assert run.done is not None
        assert run.done.failure is None
    assert runs.running == 0


@pytest.mark.parametrize("loop", LOOPS)
async def test_runs_that_do_not_finish_in_time_are_ended_and_say_why(loop: Loop) -> None:
    source = ScriptedSource([say("Half"), forever()])
    runs = Runs(source, ENDLESS, Shares(max_runs=3))
    begun = [start(runs, f"chat_{number}") for number in range(2)]
    await turns_of_the_loop()
    unbegun = start(runs, "chat_2")
    await asyncio.gather(runs.close(0), runs.close(0))
    for run in [*begun, unbegun]:
        assert run.done is not None
        assert run.done.failure is not None
        assert run.done.failure.code == "shutting_down"
    assert source.ended == len(source.turns)
    assert runs.running == 0


async def test_an_agent_that_lingers_is_not_waited_for_longer_than_agents_take_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "_LAST_SECONDS", 0.001)
    source = ScriptedSource([say("All"), [FINISHED], forever()])
    runs = Runs(source, ENDLESS, Shares(max_runs=1))
    run = start(runs)
    await run.finished()
    await runs.close(1e6)
    assert run.done is not None
    assert (run.done.failure, source.ended) == (None, 1)


async def test_a_drain_that_is_cut_short_can_be_closed_again() -> None:
    runs = Runs(ScriptedSource([forever()]), ENDLESS, Shares(max_runs=1))
    run = start(runs)
    draining = asyncio.ensure_future(runs.close(1e6))
    await turns_of_the_loop()
    draining.cancel()
    await asyncio.wait([draining])
    assert runs.running == 1
    await runs.close(0)
    assert (runs.running, run.is_ending) == (0, True)


# --- locks ----------------------------------------------------------------------------------------------


async def test_holders_of_a_key_take_turns() -> None:
    locks, inside, most = KeyedLocks(), 0, 0

    async def enter(key: str) -> None:
        nonlocal inside, most
        async with locks.holding(key):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(enter("key") for _ in range(5)))
    assert most == 1
    await asyncio.gather(enter("key"), enter("other"))
    assert most == 2
    assert locks._locks == {}


async def test_one_that_fails_or_is_cancelled_leaves_nothing_behind() -> None:
    locks = KeyedLocks()

    async def hold() -> None:
        async with locks.holding("key"):
            pass

    async def fail() -> None:
        async with locks.holding("key"):
            await asyncio.sleep(0)
            raise ValueError("mistake")

    failing, waiting = asyncio.ensure_future(fail()), asyncio.ensure_future(hold())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(ValueError, match="mistake"):
        await failing
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert locks._locks == {}
    await hold()
