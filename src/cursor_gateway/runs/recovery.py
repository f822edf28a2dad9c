"""A store in; the runs that a dead gateway left unfinished, ended with their output so far, out."""

from collections.abc import Callable

from cursor_gateway.errors import GatewayError, GatewayRestarted
from cursor_gateway.model.document_events import DocumentEnded, DocumentEvent, Done, source_text
from cursor_gateway.model.run_info import RunInfo
from cursor_gateway.stages.partial_run import PartialRun
from cursor_gateway.store.base import Lease, RunEnd, RunRecord, Store, Stored
from cursor_gateway.store.search import Words

_WHY = "The gateway was killed during this run; partial output was kept. Send the message again."


async def end_interrupted_runs(store: Store, is_alive: Callable[[str], bool], now_ms: int) -> int:
    """Returns their number. `is_alive` says whether a gateway, given by name, still drives its runs."""
    interrupted = [run for run in await store.unfinished_runs() if not is_alive(run.instance)]
    return sum([await end_interrupted_run(store, run, now_ms) for run in interrupted])


async def end_interrupted_run(store: Store, run: RunRecord, now_ms: int) -> bool:
    """False if another process does it, or did. A writer that is not dead after all is fenced from now on."""
    lease = await store.claim_run(run.id, run.epoch)
    return lease is not None and await end_claimed_run(store, lease, run, GatewayRestarted(_WHY), now_ms)


async def end_claimed_run(store: Store, lease: Lease, run: RunRecord, why: GatewayError, now_ms: int) -> bool:
    """False if another process has claimed it since."""
    partial, words, said, last = PartialRun(), Words(), list[str](), 0
    while (page := await store.events(run.id, run.owner, after=last)).events:
        for event in page.events:
            partial.push(event)
            _note(words, event)
            said.append(source_text(event))
        last = page.last_number
    messages = await store.messages(run.conversation_id, run.owner)
    prompt = next((message.text for message in messages if message.run_id == run.id), "")
    end = partial.end(run_info(run), prompt, why.failure())
    for event in end:
        _note(words, event)
    done = end[-1]
    assert isinstance(done, Done)
    written = await store.end_run(
        lease,
        last + 1,
        end,
        RunEnd(
            envelope=done.envelope,
            failure_code=why.code,
            words=words.all,
            tool_uses=words.tool_uses,
            needs_decision=words.needs_decision,
            answer="".join(said),
            fingerprint=f"none {run.id}",
            first_event_ms=run.first_event_ms,
            ended_ms=now_ms,
            frees_key=True,
        ),
    )
    return isinstance(written, Stored)


def run_info(run: RunRecord) -> RunInfo:
    return RunInfo(
        id=run.id,
        created=run.created,
        mode=run.mode,
        model=run.model,
        conversation_id=run.conversation_id,
        fences=run.fences,
        include=run.include,
    )


async def all_events(store: Store, run: RunRecord) -> list[DocumentEvent]:
    events: list[DocumentEvent] = []
    while found := (await store.events(run.id, run.owner, after=len(events))).events:
        events += found
    return events


def _note(words: Words, event: DocumentEvent) -> None:
    if isinstance(event, DocumentEnded):
        words.push(event.document)
