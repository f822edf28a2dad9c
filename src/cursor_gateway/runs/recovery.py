"""A store in; the runs that a dead gateway left unfinished, ended with their output so far, out."""

from collections.abc import Callable
from contextlib import suppress

from cursor_gateway.errors import GatewayError, GatewayRestarted, HistoryDamaged
from cursor_gateway.runs.handle import run_info
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store.base import Lease, RunEnd, RunRecord, Store, Stored

_WHY = "The gateway was killed during this run; partial output was kept. Send the message again."


async def end_interrupted_runs(store: Store, is_alive: Callable[[str], bool], now_ms: int) -> int:
    """Returns their number. `is_alive` says whether a gateway, given by name, still drives its runs."""
    ended = 0
    for run in await store.unfinished_runs():
        if not is_alive(run.instance):
            with suppress(HistoryDamaged):  # the others are ended all the same
                ended += await end_interrupted_run(store, run, now_ms)
    return ended


async def end_interrupted_run(store: Store, run: RunRecord, now_ms: int) -> bool:
    """False if another process does it, or did. A writer that is not dead after all is fenced from now on."""
    lease = await store.claim_run(run.id, run.epoch)
    return lease is not None and await end_claimed_run(store, lease, run, GatewayRestarted(_WHY), now_ms)


async def end_claimed_run(store: Store, lease: Lease, run: RunRecord, why: GatewayError, now_ms: int) -> bool:
    """False if another process has claimed it since."""
    state = await stored_state(store, run)
    messages = await store.messages(run.conversation_id, run.owner)
    prompt = next((message.text for message in messages if message.run_id == run.id), "")
    first, end = state.count + 1, state.end(run_info(run), prompt, why.failure())
    done, words = state.push_all(end).done, state.words
    assert done is not None
    written = await store.append(
        lease,
        first,
        end,
        RunEnd(
            envelope=done.envelope,
            failure_code=why.code,
            words=words.all,
            tool_uses=words.tool_uses,
            needs_decision=words.needs_decision,
            answer=state.text,
            fingerprint=f"none {run.id}",
            first_event_ms=run.first_event_ms,
            ended_ms=now_ms,
            frees_key=True,
        ),
    )
    return isinstance(written, Stored)


async def stored_state(store: Store, run: RunRecord) -> RunState:
    """Of a run that nobody drives. A damaged history may have lost the beginning of a document."""
    state = RunState()
    while (page := await store.events(run.id, run.owner, after=state.count)).events:
        for event in page.events:
            with suppress(LookupError):
                state.push(event)
        state.count = page.last_number
    return state
