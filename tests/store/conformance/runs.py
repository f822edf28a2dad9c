"""Laws of runs: their events, their ends, the keys by which they are found."""

import asyncio
from typing import get_args

import msgspec
import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.model.documents import ResponseMetadata, Usage, WaitingCall
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.store.base import (
    CONTINUATION,
    Behind,
    ConversationRecord,
    Fenced,
    HistoryLimits,
    Idempotency,
    IdempotentRun,
    KeyTaken,
    Lease,
    RunRecord,
    Stored,
)
from cursor_gateway.store.sql import SqlStore
from tests.laws.strategies import agent_events
from tests.store.conformance.law import (
    everything,
    for_all,
    ids,
    law,
    law_of_two,
    texts,
    the_conversation,
    the_run,
    whole_run,
)
from tests.store.making import EVERY_DOCUMENT, EVERY_EVENT, ME, YOU, deltas, envelope, lease, new_run, run_end

# --- events -----------------------------------------------------------------------------------------


@law
async def every_kind_of_event_comes_back_as_it_was(store: SqlStore) -> None:
    assert {type(event) for event in EVERY_EVENT} == set(get_args(DocumentEvent))
    await store.begin_run(new_run())
    assert isinstance(await store.append(lease("run"), 1, EVERY_EVENT), Stored)
    back = await everything(store)
    assert back == EVERY_EVENT
    assert [type(event) for event in back] == [type(event) for event in EVERY_EVENT]


@law
async def whatever_an_agent_does_comes_back_as_it_was(store: SqlStore) -> None:
    tried = 0

    async def try_it(did: list[AgentEvent], size: int) -> None:
        nonlocal tried
        tried += 1
        id = f"run{tried}"
        assembler = Assembler(RunInfo(id=id, created="2026-02-23T10:30:00Z", include=frozenset({"thinking", "raw"})))
        events = [out for event in did for out in assembler.push(event)]
        await store.begin_run(new_run(id, id))
        for start in range(0, len(events), size):
            assert isinstance(await store.append(lease(id), start + 1, events[start : start + size]), Stored)
        assert await everything(store, id) == events
        for after in range(len(events) + 2):
            assert (await store.events(id, ME, after=after)).events == events[after:]

    await for_all(try_it, 40, agent_events, st.integers(1, 5))


@law
async def events_come_in_pages_that_join_without_a_gap(store: SqlStore) -> None:
    await store.begin_run(new_run())
    for first in range(1, 100, 7):
        await store.append(lease("run"), first, deltas(*range(first, first + 7)))
    for max_bytes in (1, 100, 10_000):
        for after in (0, 1, 6, 7, 8, 50):
            found, place = list[DocumentEvent](), after
            while (page := await store.events("run", ME, after=place, max_bytes=max_bytes)).events:
                assert page.first_number == place + 1
                found += page.events
                place = page.last_number
            assert found == deltas(*range(after + 1, 106))


@law
async def a_page_of_events_has_about_so_many_bytes(store: SqlStore) -> None:
    await store.begin_run(new_run())
    for number in range(1, 101):
        await store.append(lease("run"), number, deltas(number))
    assert len((await store.events("run", ME, max_bytes=1)).events) == 1
    assert 1 < len((await store.events("run", ME, max_bytes=1000)).events) < 100
    assert len((await store.events("run", ME)).events) == 100


@law
async def after_the_last_event_there_is_none(store: SqlStore) -> None:
    await store.begin_run(new_run())
    await store.append(lease("run"), 1, deltas(1, 2, 3))
    for after in (3, 4, 2**31, 2**63, 10**30):
        assert (await store.events("run", ME, after=after)).events == []
    for after in (0, -1, -(10**30)):
        assert (await store.events("run", ME, after=after)).events == deltas(1, 2, 3)


@law
async def of_a_batch_whose_beginning_is_stored_only_the_rest_is(store: SqlStore) -> None:
    await store.begin_run(new_run())
    assert isinstance(await store.append(lease("run"), 1, deltas(1, 2)), Stored)
    assert isinstance(await store.append(lease("run"), 1, deltas(1, 2)), Stored)
    assert isinstance(await store.append(lease("run"), 1, deltas(1, 2, 3, 4)), Stored)
    assert isinstance(await store.append(lease("run"), 4, deltas(4, 5)), Stored)
    assert isinstance(await store.append(lease("run"), 6, []), Stored)
    assert await everything(store) == deltas(1, 2, 3, 4, 5)
    assert (await the_run(store)).event_count == 5


@law
async def what_is_sent_again_must_be_what_is_stored(store: SqlStore) -> None:
    """Or events would be left out as if they were stored: the log would lose its end."""
    await store.begin_run(new_run())
    await store.append(lease("run"), 1, deltas(1, 2))
    await store.append(lease("run"), 3, deltas(3))
    for first, other in ((3, deltas(4, 5)), (2, deltas(2, 9)), (1, deltas(1, 2, 9, 4))):
        with pytest.raises(ValueError, match=r"event \d is stored already, and is not the one that was sent now"):
            await store.append(lease("run"), first, other)
        with pytest.raises(ValueError, match=r"event \d is stored already, and is not the one that was sent now"):
            await store.append(lease("run"), first, other, run_end())
    assert await everything(store) == deltas(1, 2, 3)
    assert (await the_run(store)).state == "running"


@law
async def a_store_that_has_forgotten_events_says_which(store: SqlStore) -> None:
    await store.begin_run(new_run())
    await store.append(lease("run"), 1, deltas(1))
    assert await store.append(lease("run"), 4, deltas(4)) == Behind(1)
    assert await store.append(lease("run"), 4, deltas(4), run_end()) == Behind(1)
    assert await everything(store) == deltas(1)
    assert (await the_run(store)).state == "running"


@law
async def events_of_a_run_that_is_not_there_are_not_stored(store: SqlStore) -> None:
    assert isinstance(await store.append(lease("run"), 1, deltas(1)), Fenced)
    assert isinstance(await store.append(lease("run"), 1, []), Fenced)
    assert isinstance(await store.append(lease("run"), 1, deltas(1), run_end()), Fenced)
    assert await everything(store) == []


@law_of_two
async def the_same_batches_from_two_at_once_are_stored_once(store: SqlStore, other: SqlStore) -> None:
    await store.begin_run(new_run())
    for first in range(1, 60, 3):
        batch = deltas(first, first + 1, first + 2)
        both = await asyncio.gather(*(of.append(lease("run"), first, batch) for of in (store, other)))
        assert all(isinstance(written, Stored) for written in both)
    assert await everything(store) == deltas(*range(1, 61))


@law_of_two
async def readers_see_each_event_once_and_in_order_while_one_writes(store: SqlStore, other: SqlStore) -> None:
    await store.begin_run(new_run())
    is_written = False

    async def read(of: SqlStore) -> list[DocumentEvent]:
        found: list[DocumentEvent] = []
        while True:
            was_written = is_written
            new = (await of.events("run", ME, after=len(found))).events
            found += new
            if was_written and not new:
                return found

    readers = [asyncio.ensure_future(read(of)) for of in [store, other] * 3]
    for number in range(1, 201):
        await store.append(lease("run"), number, deltas(number))
        await asyncio.sleep(0)
    is_written = True
    for reader in readers:
        assert await reader == deltas(*range(1, 201))


# --- runs -------------------------------------------------------------------------------------------


@law
async def a_run_is_kept_as_it_began(store: SqlStore) -> None:
    assert isinstance(await store.begin_run(new_run()), Stored)
    await store.append(lease("run"), 1, deltas(1, 2))
    expected = RunRecord(
        id="run",
        conversation_id="conv",
        owner=ME,
        instance="host:1",
        epoch=1,
        state="running",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        fences="split",
        include=frozenset({"raw", "thinking"}),
        started_ms=1000,
        first_event_ms=None,
        ended_ms=None,
        usage=None,
        failure_code=None,
        event_count=2,
    )
    assert await store.run("run", ME) == expected
    assert await store.runs_of("conv", ME) == [expected]
    assert await store.unfinished_runs() == [expected]
    assert await store.recent_runs(ME, 10) == [(expected, "Hello", "Hello")]
    assert await store.conversation("conv", ME) == ConversationRecord(
        id="conv",
        owner=ME,
        title="Hello",
        workspace="/w",
        mode="agent",
        model="auto",
        created_ms=1000,
        updated_ms=1000,
        session_id=None,
        fingerprint=None,
        is_running=True,
    )


@law
async def a_run_is_kept_as_it_ended(store: SqlStore) -> None:
    await store.begin_run(new_run())
    await store.append(lease("run"), 1, deltas(1, 2))
    end = run_end(documents=EVERY_DOCUMENT, session_id="s1", fingerprint="f1")
    assert isinstance(await store.append(lease("run"), 3, [Done(envelope())], end), Stored)
    run, conversation = await the_run(store), await the_conversation(store)
    assert (run.state, run.model, run.event_count, run.failure_code) == ("completed", "opus", 3, None)
    assert (run.started_ms, run.first_event_ms, run.ended_ms) == (1000, 1500, 2000)
    assert (run.usage, run.tool_uses) == (end.envelope.usage, end.tool_uses)
    assert (conversation.session_id, conversation.fingerprint) == ("s1", "f1")
    assert (conversation.created_ms, conversation.updated_ms) == (1000, 2000)
    assert (conversation.model, conversation.is_running) == ("opus", False)
    assert await store.unfinished_runs() == []
    assert await everything(store) == [*deltas(1, 2), Done(envelope())]


@law
async def usage_comes_back_with_what_was_given_and_nothing_more(store: SqlStore) -> None:
    usage = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0, estimated=True)
    await store.begin_run(new_run())
    end = run_end(status="error")
    end = msgspec.structs.replace(end, envelope=msgspec.structs.replace(end.envelope, usage=usage))
    assert isinstance(await store.append(lease("run"), 1, [], end), Stored)
    run = await the_run(store)
    assert run.usage == usage
    assert (run.state, run.failure_code) == ("error", "agent_crashed")


@law
async def what_is_done_twice_is_done_once(store: SqlStore) -> None:
    for _ in range(2):
        assert isinstance(await store.begin_run(new_run("run", "conv", "one", "two")), Stored)
    for _ in range(2):
        assert isinstance(await store.append(lease("run"), 1, [*deltas(1), Done(envelope())], run_end()), Stored)
    assert isinstance(await store.begin_run(new_run("run", "conv", "one", "two")), Stored)  # and does not begin again
    assert await texts(store) == ["one", "two", "Hi"]
    assert await everything(store) == [*deltas(1), Done(envelope())]
    assert await ids(store, query="one") == ["conv"]
    assert await store.unfinished_runs() == []


@law
async def what_comes_after_the_end_is_not_stored(store: SqlStore) -> None:
    """Somebody else has ended it: whoever thought that its process was dead."""
    await store.begin_run(new_run())
    await store.append(lease("run"), 1, deltas(1), run_end())
    assert isinstance(await store.append(lease("run"), 1, deltas(1)), Stored)
    assert isinstance(await store.append(lease("run"), 1, deltas(1, 2)), Fenced)
    assert isinstance(await store.append(lease("run"), 2, deltas(2)), Fenced)
    assert isinstance(await store.append(lease("run"), 1, deltas(1, 2), run_end(status="error")), Fenced)
    assert isinstance(await store.append(lease("run"), 1, deltas(1), run_end(status="error")), Stored)
    assert await everything(store) == deltas(1)
    assert (await the_run(store)).state == "completed"
    assert await texts(store) == ["Hello", "Hi"]


@law_of_two
async def a_run_that_two_end_at_once_has_one_end(store: SqlStore, other: SqlStore) -> None:
    await store.begin_run(new_run())
    ends = (
        store.append(lease("run"), 1, deltas(1), run_end(answer="one")),
        other.append(lease("run"), 1, deltas(1), run_end(answer="two", status="error")),
    )
    assert all(isinstance(written, Stored) for written in await asyncio.gather(*ends))
    run, said = await the_run(store), await texts(store)
    assert (run.state, said) in (("completed", ["Hello", "one"]), ("error", ["Hello", "two"]))
    assert await everything(store) == deltas(1)


@law
async def unfinished_runs_are_everybodys(store: SqlStore) -> None:
    for id, owner in (("mine", ME), ("yours", YOU), ("deleted", ME)):
        await store.begin_run(new_run(id, f"conv_{id}", owner=owner))
    await whole_run(store, "ended", "conv_ended")
    await store.delete_conversation("conv_deleted", ME)
    assert {(run.id, run.owner) for run in await store.unfinished_runs()} == {("mine", ME), ("yours", YOU)}


@law
async def recent_runs_are_the_newest_of_all_conversations(store: SqlStore) -> None:
    for number in range(5):
        await whole_run(store, f"run{number}", f"conv{number % 2}", f"Title {number}", at=1000 + number)
    await whole_run(store, "yours", "yours", owner=YOU, at=5000)
    found = await store.recent_runs(ME, 3)
    assert [(run.id, title) for run, title, _ in found] == [
        ("run4", "Title 0"),
        ("run3", "Title 1"),
        ("run2", "Title 0"),
    ]
    await store.delete_conversation("conv0", ME)
    assert [run.id for run, _, _ in await store.recent_runs(ME, 10)] == ["run3", "run1"]


# --- leases -----------------------------------------------------------------------------------------


@law
async def a_writer_whose_run_was_claimed_is_fenced_and_stores_nothing(store: SqlStore) -> None:
    old = lease("run", 1)
    assert isinstance(await store.begin_run(new_run()), Stored)
    await store.append(old, 1, deltas(1))
    new = await store.claim_run("run", 1)
    assert new == lease("run", 2)
    assert (await the_run(store)).epoch == 2
    for first, events in ((2, deltas(2)), (1, deltas(1)), (2, [])):
        assert await store.append(old, first, events) == Fenced("claimed")
        assert await store.append(old, first, events, run_end(answer="old")) == Fenced("claimed")
    assert isinstance(await store.begin_run(new_run()), Stored)  # who begins it again is fenced as well
    assert isinstance(await store.append(new, 2, deltas(2)), Stored)
    assert isinstance(await store.append(new, 3, deltas(3), run_end(answer="new")), Stored)
    assert await store.append(old, 3, deltas(3), run_end(answer="old")) == Fenced("claimed")
    assert await everything(store) == deltas(1, 2, 3)
    assert await texts(store) == ["Hello", "new"]


@law
async def only_a_running_run_of_that_epoch_can_be_claimed(store: SqlStore) -> None:
    assert await store.claim_run("run", 1) is None
    await store.begin_run(new_run())
    for epoch in (-1, 0, 2, 10**18):
        assert await store.claim_run("run", epoch) is None
    assert await store.claim_run("run", 1) == lease("run", 2)
    assert await store.claim_run("run", 1) is None
    assert await store.claim_run("run", 2) == lease("run", 3)
    await store.append(lease("run", 3), 1, [], run_end())
    assert await store.claim_run("run", 3) is None
    assert (await the_run(store)).state == "completed"


@law_of_two
async def of_two_who_claim_a_run_at_once_one_gets_it(store: SqlStore, other: SqlStore) -> None:
    await store.begin_run(new_run())
    for epoch in range(1, 20):
        claims = await asyncio.gather(store.claim_run("run", epoch), other.claim_run("run", epoch))
        assert sorted(claim is None for claim in claims) == [False, True]


@law
async def each_refusal_says_why(store: SqlStore) -> None:
    assert await store.append(lease("run"), 1, deltas(1)) == Fenced("deleted")
    await store.begin_run(new_run())
    await store.append(lease("run"), 1, deltas(1), run_end())
    assert await store.append(lease("run"), 2, deltas(2)) == Fenced("ended")
    assert await store.append(lease("run"), 2, deltas(2), run_end()) == Fenced("ended")
    assert await store.append(lease("run", 2), 2, deltas(2)) == Fenced("claimed")


@law_of_two
async def whoever_writes_and_claims_there_is_one_log_by_one_writer_at_a_time(store: SqlStore, other: SqlStore) -> None:
    """Writers that know no more than what they were told: their lease, and how far they have written."""
    tried = 0

    async def try_it(steps: list[tuple[int, bool]]) -> None:
        nonlocal tried
        tried += 1
        id, stores = f"run{tried}", (store, other, store)
        assert isinstance(await store.begin_run(new_run(id, id)), Stored)
        leases: list[Lease] = [lease(id)] * 3
        log, epoch = list[DocumentEvent](), 1
        for writer, claims in steps:
            if claims:
                got = await stores[writer].claim_run(id, leases[writer].epoch)
                assert (got is not None) == (leases[writer].epoch == epoch)
                run = await stores[writer].run(id, ME)
                assert run is not None
                epoch = run.epoch
                leases[writer] = got or Lease(id, run.epoch)
            else:
                said = deltas(100 * writer + len(log))
                written = await stores[writer].append(leases[writer], len(log) + 1, said)
                assert isinstance(written, Stored) == (leases[writer].epoch == epoch)
                log += said if isinstance(written, Stored) else []
            assert await everything(store, id) == log

    await for_all(try_it, 40, st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12))


# --- open calls -------------------------------------------------------------------------------------


def _paused(*call_ids: str) -> Paused:
    calls = [WaitingCall(tool_call_id=id, tool_name="t", arguments={}, document_id="doc_001") for id in call_ids]
    metadata = ResponseMetadata(duration_ms=0, tool_call_count=0, turn_count=1, waiting_for=calls)
    return Paused(msgspec.structs.replace(envelope(), metadata=metadata))


@law_of_two
async def a_run_is_found_by_the_calls_it_has_made_until_it_ends(store: SqlStore, other: SqlStore) -> None:
    await store.begin_run(new_run())
    assert await other.find_run_by_calls(ME, ["a", "b"]) is None
    written = await store.append(lease("run"), 1, [*deltas(1), _paused("a", "b"), *deltas(3)])
    assert isinstance(written, Stored)
    for calls in (["a"], ["b"], ["x", "\ud800", "b"]):
        assert await other.find_run_by_calls(ME, calls) == await the_run(store)
    assert await other.find_run_by_calls(ME, ["x"]) is None
    assert await other.find_run_by_calls(ME, []) is None
    assert await other.find_run_by_calls(YOU, ["a"]) is None
    await store.append(lease("run"), 4, [_paused("c")])
    assert await other.find_run_by_calls(ME, ["c"]) == await other.find_run_by_calls(ME, ["a"]) == await the_run(store)
    await store.append(lease("run"), 5, [], run_end())
    for call in "abc":
        assert await other.find_run_by_calls(ME, [call]) is None


@law
async def two_owners_may_have_calls_of_the_same_name_and_deleted_ones_are_nobodys(store: SqlStore) -> None:
    for id, owner in (("mine", ME), ("yours", YOU)):
        await store.begin_run(new_run(id, id, owner=owner))
        await store.append(lease(id), 1, [_paused("call")])
    assert [run.id for owner in (ME, YOU) if (run := await store.find_run_by_calls(owner, ["call"]))] == [
        "mine",
        "yours",
    ]
    assert await store.delete_conversation("mine", ME)
    assert await store.find_run_by_calls(ME, ["call"]) is None
    assert await store.find_run_by_calls(YOU, ["call"]) is not None
    await store.prune(HistoryLimits(), 0)
    assert await store.find_run_by_calls(ME, ["call"]) is None


# --- keys -------------------------------------------------------------------------------------------


@law
async def an_idempotency_key_is_one_runs(store: SqlStore) -> None:
    key = Idempotency("key", "hash")
    assert await store.find_run_by_idempotency(ME, "key") is None
    assert isinstance(await store.begin_run(new_run("run", idempotency=key)), Stored)
    assert isinstance(await store.begin_run(new_run("run", idempotency=key)), Stored)
    assert await store.begin_run(new_run("other", "another", idempotency=key)) == KeyTaken()
    assert await store.run("other", ME) is None
    assert await store.conversation("another", ME) is None
    assert await store.find_run_by_idempotency(ME, "key") == IdempotentRun("run", "hash")
    await store.append(lease("run"), 1, [], run_end())
    assert await store.find_run_by_idempotency(ME, "key") == IdempotentRun("run", "hash")


@law_of_two
async def of_two_runs_that_begin_at_once_one_gets_the_key(store: SqlStore, other: SqlStore) -> None:
    for number in range(20):
        key = Idempotency(f"key{number}", "hash")
        names = [f"{number}.{side}" for side in range(2)]
        begun = await asyncio.gather(
            *(of.begin_run(new_run(id, id, idempotency=key)) for of, id in zip((store, other), names, strict=True))
        )
        assert sorted(type(one).__name__ for one in begun) == ["KeyTaken", "Stored"]
        winner = names[begun.index(KeyTaken()) - 1]
        assert await store.find_run_by_idempotency(ME, key.key) == IdempotentRun(winner, "hash")
        assert [await store.run(id, ME) is not None for id in names] == [id == winner for id in names]


@law
async def a_run_that_failed_frees_its_key_if_another_try_may_help(store: SqlStore) -> None:
    key = Idempotency("key", "hash")
    await store.begin_run(new_run("run", idempotency=key))
    await store.append(lease("run"), 1, [], msgspec.structs.replace(run_end(status="error"), frees_key=True))
    assert await store.find_run_by_idempotency(ME, "key") is None
    assert isinstance(await store.begin_run(new_run("again", idempotency=key)), Stored)
    assert await store.find_run_by_idempotency(ME, "key") == IdempotentRun("again", "hash")


@law
async def a_key_can_name_a_reply_of_a_run(store: SqlStore) -> None:
    for run in ("run", "other"):
        await store.begin_run(new_run(run, run))
    for reply in (IdempotentRun("run", "hash", 7), IdempotentRun("other", "", 9)):
        await store.name_reply(ME, "key", reply, 1000)
        assert await store.find_run_by_idempotency(ME, "key") == reply
    await store.name_reply(YOU, "key", IdempotentRun("run", "hash", 7), 1000)  # not this owner's run
    await store.name_reply(ME, "none", IdempotentRun("nowhere", "hash", 7), 1000)
    assert await store.find_run_by_idempotency(YOU, "key") is None
    assert await store.find_run_by_idempotency(ME, "none") is None
    assert await store.delete_conversation("other", ME)
    assert await store.find_run_by_idempotency(ME, "key") is None


@law
async def a_question_keeps_its_key_when_its_run_fails(store: SqlStore) -> None:
    """An `Idempotency-Key`, which has a hash, is free again for another try."""
    await store.begin_run(new_run("run", "run"))
    for key, hashed in (("question", ""), ("named", "hash")):
        await store.name_reply(ME, key, IdempotentRun("run", hashed), 1000)
    await store.append(lease("run"), 1, deltas(1), replace(run_end(), frees_key=True))
    assert await store.find_run_by_idempotency(ME, "question") == IdempotentRun("run", "")
    assert await store.find_run_by_idempotency(ME, "named") is None


@law
async def a_request_can_be_kept_with_its_run(store: SqlStore) -> None:
    await store.begin_run(replace(new_run("run", "run"), request=b"of the run"))
    await store.begin_run(replace(new_run("run", "run"), request=b"of the run"))  # its result was lost
    await store.begin_run(replace(new_run("short", "short"), request=b"of the short one"), deltas(1), run_end("short"))
    await store.keep_request("run", ME, 0, b"the first one stays")
    assert await store.kept_request("run", ME, 0) == b"of the run"
    assert await store.kept_request("short", ME, 0) == b"of the short one"
    assert await store.kept_request("run", YOU, 0) is None
    assert await store.keep_request("run", ME, 0, None)
    assert await store.kept_request("run", ME, 0) is None


@law
async def what_a_run_needs_to_continue_is_kept_until_it_has_completed(store: SqlStore) -> None:
    for id in ("completed", "failed"):
        await store.begin_run(replace(new_run(id, id), request=b"of the run", continuation=b"its tools"))
        assert await store.kept_request(id, ME, CONTINUATION) == b"its tools"
        assert await store.kept_request(id, YOU, CONTINUATION) is None
    await store.append(lease("completed"), 1, deltas(1), run_end("completed"))
    failed = run_end("failed")
    await store.append(
        lease("failed"), 1, deltas(1), replace(failed, envelope=replace(failed.envelope, status="error"))
    )
    short = replace(new_run("short", "short"), continuation=b"its tools")
    await store.begin_run(short, deltas(1), run_end("short"))
    found = [await store.kept_request(id, ME, CONTINUATION) for id in ("completed", "failed", "short")]
    assert found == [None, b"its tools", None]
    assert await store.kept_request("completed", ME, 0) == b"of the run"


@law
async def what_is_kept_of_a_request_is_found_until_it_is_forgotten(store: SqlStore) -> None:
    for run in ("run", "other"):
        await store.begin_run(new_run(run, run))
        for after in (0, 7):
            await store.keep_request(run, ME, after, f"{run} {after}".encode())
    await store.keep_request("run", ME, 0, b"the first one stays")
    await store.keep_request("run", YOU, 9, b"not this owner's run")
    await store.keep_request("nowhere", ME, 0, b"no run")
    assert await store.kept_request("run", ME, 7) == b"run 7"
    assert await store.kept_request("run", ME, 0) == b"run 0"
    for run, owner, after in (("run", YOU, 0), ("run", YOU, 9), ("run", ME, 9), ("nowhere", ME, 0)):
        assert await store.kept_request(run, owner, after) is None
        assert not await store.keep_request(run, owner, after, None)
    assert await store.keep_request("run", ME, 0, None)
    assert await store.kept_request("run", ME, 0) is None
    assert await store.kept_request("run", ME, 7) == b"run 7"
    assert await store.delete_conversation("other", ME)
    assert await store.kept_request("other", ME, 0) is None
