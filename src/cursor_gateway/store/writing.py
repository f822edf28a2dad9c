"""What every engine writes about a run: the values of its statements, and which events a lease may still add."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.store.base import Behind, Fenced, Lease, NewRun, RunEnd
from cursor_gateway.store.titles import made_title


class RunPosition(NamedTuple):
    """How far a run is."""

    run: int  # keys
    conversation: int
    epoch: int
    state: str
    last: int  # the number of the last event


def check_lease(
    lease: Lease, row: Sequence[Any] | None, first_number: int, events: Sequence[DocumentEvent]
) -> tuple[RunPosition, Sequence[DocumentEvent]] | Fenced | Behind:
    """Where the run is, and the first of the events, which are stored already: they must equal the stored ones, or the
    log would lose its end. `row` has the fields of a `RunPosition`; None: there is no such run."""
    if row is None:
        return Fenced("deleted")
    place = RunPosition._make(row)
    if place.epoch != lease.epoch:
        return Fenced("claimed")
    repeated = place.last + 1 - first_number
    return Behind(place.last) if repeated < 0 else (place, events[:repeated])


def open_calls(events: Sequence[DocumentEvent]) -> list[str]:
    """The ids of the calls that `Paused` events wait for."""
    paused = [event.envelope.metadata for event in events if isinstance(event, Paused)]
    return [call.tool_call_id for one in paused for call in one.waiting_for or ()]


def begin_values(new: NewRun) -> dict[str, Any]:
    """Named like the fields of `NewRun`."""
    return {
        **asdict(new),
        "title": made_title(new.messages),
        "include": msgspec.json.encode(sorted(new.include)).decode(),
        "key": None if new.idempotency is None else new.idempotency.key,
        "hash": "" if new.idempotency is None else new.idempotency.body_hash,
        "now": new.started_ms,
    }


def end_values(end: RunEnd) -> dict[str, Any]:
    """Named like the fields of `RunEnd`, `Envelope`, `Usage` and, with `_title`, `TitleChange`."""
    usage = {name: None if value is UNSET else value for name, value in asdict(end.envelope.usage).items()}
    return {
        **asdict(end),
        **usage,
        "made_title": None if end.title is None else end.title.made,
        "new_title": None if end.title is None else end.title.new,
        "state": "completed" if end.envelope.status == "completed" else "error",
        "model": end.envelope.model,
        "now": end.ended_ms,
    }
