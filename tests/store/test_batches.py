"""What is stored comes back as it was, and a tool's result, which may be a file, is stored once. Turns: the first at
once, the others in an interval."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.document_events import ContentDelta, DocumentEnded, DocumentEvent, ToolCallEnded
from cursor_gateway.model.documents import ToolCallMetadata, ToolCallResult, make_document
from cursor_gateway.store import batches
from tests.store.making import EVERY_EVENT

RESULT = ToolCallResult(status="success", data="the whole file")


def ended(result: ToolCallResult = RESULT) -> DocumentEvent:
    metadata = ToolCallMetadata(tool_name="read_file", tool_call_id="c", arguments={}, result=result, duration_ms=1)
    return DocumentEnded(make_document("doc_001", 1, None, metadata))


@given(st.lists(st.sampled_from([*EVERY_EVENT, ToolCallEnded("doc_001", RESULT), ended()])))
def test_whatever_is_stored_comes_back(events: list[DocumentEvent]) -> None:
    assert batches.decode(batches.encode(events)) == events


@given(st.lists(st.sampled_from([*EVERY_EVENT, ToolCallEnded("doc_001", RESULT), ended()])), st.integers(0, 9))
def test_the_first_events_can_be_skipped(events: list[DocumentEvent], skip: int) -> None:
    assert batches.decode(batches.encode(events), skip) == events[skip:]


def test_a_result_that_two_events_share_is_stored_once() -> None:
    events: list[DocumentEvent] = [ToolCallEnded("doc_001", RESULT), ended()]
    assert batches.encode(events).count(b"the whole file") == 1
    assert batches.decode(batches.encode(events)) == events


def test_results_that_only_look_alike_or_lie_apart_are_all_stored() -> None:
    other = ToolCallResult(status="success", data="the whole file, later")
    reply: DocumentEvent = ToolCallEnded("doc_001", RESULT)
    said: DocumentEvent = ContentDelta("doc_001", "said")
    for events, count in (([reply, ended(other)], 2), ([reply, said, ended()], 2), ([reply], 1)):
        assert batches.decode(batches.encode(events)) == events
        assert batches.encode(events).count(b"the whole file") == count


def test_what_is_sent_again_is_compared_event_by_event() -> None:
    """However it was divided into batches."""
    said: list[DocumentEvent] = [ContentDelta("doc_001", str(number)) for number in range(1, 6)]
    stored = [(2, said[1:3]), (4, [*said[3:4], ToolCallEnded("doc_001", RESULT)]), (6, [ended()])]
    batches.check_repeated(3, [said[2], said[3], ToolCallEnded("doc_001", RESULT), ended()], stored)
    with pytest.raises(ValueError, match="event 4 is stored already"):
        batches.check_repeated(3, [said[2], said[4]], stored)


# --- when the next one is due ------------------------------------------------------------------------


async def test_turns_that_are_common_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_PACE_SECONDS", 1000.0)
    one, other = batches.Pace(), batches.Pace()
    await one.turn()
    await asyncio.sleep(0.002)
    await other.turn()
    assert one._next == other._next
