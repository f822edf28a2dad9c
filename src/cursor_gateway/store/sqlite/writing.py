"""The writes about runs, each within a transaction that its caller commits."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.store import batches
from cursor_gateway.store.base import (
    CONTINUATION,
    FIRST_EPOCH,
    Behind,
    Busy,
    Claim,
    Fenced,
    KeyTaken,
    Lease,
    MakeNotices,
    NewRun,
    RunEnd,
    Stored,
    Superseded,
    Written,
)
from cursor_gateway.store.sql import (
    RunPosition,
    add_notice,
    begin_values,
    check_lease,
    day_of,
    end_news,
    end_values,
    notice_values,
    open_calls,
    waiting_news,
)
from cursor_gateway.store.sqlite.indexing import Note
from cursor_gateway.store.sqlite.run_files import EventBatch
from cursor_gateway.store.texts import made_title, searchable
from cursor_gateway.wire.surrogates import repair

# How many events of a run are stored. A batch's place combines its run's key and the number of its first event.
EVENT_COUNT = """coalesce((
    SELECT (place & 0xffffffff) + count - 1 FROM events
    WHERE place BETWEEN runs.key << 32 AND runs.key << 32 | 0xffffffff ORDER BY place DESC LIMIT 1
), 0)"""
_PLACE = f"SELECT key, conversation, epoch, state, {EVENT_COUNT} FROM runs WHERE id = ?"
_STORED_FROM = """
    SELECT place & 0xffffffff, data FROM events
    WHERE place BETWEEN :run << 32 AND :run << 32 | 0xffffffff AND (place & 0xffffffff) + count > :first ORDER BY place
"""
_ADD_EVENTS = "INSERT INTO events (place, count, data) VALUES (? << 32 | ?, ?, ?)"
_ADD_CALL = """
    INSERT OR REPLACE INTO calls (owner, id, run)
    SELECT owner, ?, ? FROM conversations WHERE key = ? AND owner IS NOT NULL
"""
_CLAIM = "UPDATE runs SET epoch = ? WHERE id = ? AND epoch = ? AND state = 'running'"
_HAS_KEY = "SELECT 1 FROM idempotency WHERE owner = :owner AND key = :key"
_IS_QUEUED = """
    SELECT 1 FROM queue WHERE owner = :owner AND dedupe = :key AND state IN ('waiting', 'claimed') AND id <> :id
"""
_HOLDS = "SELECT 1 FROM queue WHERE id = ? AND epoch = ? AND state IN ('claimed', 'begun')"
_LEAVE_QUEUE = "UPDATE queue SET state = 'begun', about = x'', kept = x'', body = x'', ended_ms = ? WHERE id = ?"
_ADD_KEY = "INSERT INTO idempotency (owner, key, run, body_hash, created_ms) VALUES (?, ?, ?, ?, ?)"
# A conversation, and the run that is running in it.
_CONVERSATION = """
    SELECT conversations.key, runs.id
    FROM conversations LEFT JOIN runs ON runs.conversation = conversations.key AND runs.state = 'running'
    WHERE conversations.owner = ? AND conversations.id = ? LIMIT 1
"""
_ADD_CONVERSATION = """
    INSERT INTO conversations (id, owner, title, workspace, client, mode, model, created_ms, updated_ms)
    VALUES (:conversation_id, :owner, :title, :workspace, :client, :mode, :model, :now, :now)
"""
_CONTINUE_CONVERSATION = """
    UPDATE conversations SET mode = :mode, model = :model, updated_ms = max(updated_ms, :now) WHERE key = :conversation
"""
_ADD_RUN = """
    INSERT INTO runs (id, conversation, instance, state, model, mode, created, fences, include, started_ms)
    VALUES (:id, :conversation, :instance, 'running', :model, :mode, :created, :fences, :include, :now)
"""
_ADD_MESSAGE = """
    INSERT INTO messages (conversation, number, role, text, run, created_ms)
    SELECT :conversation, coalesce(max(number), 0) + 1, :role, :text, :run, :now
    FROM messages WHERE conversation = :conversation
"""
_LAST_MESSAGE = "SELECT coalesce(max(number), 0) FROM messages WHERE conversation = ?"
_ADD_MESSAGES = """
    INSERT INTO messages (conversation, number, role, text, run, created_ms, images) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_END_RUN = """
    UPDATE runs SET state = :state, model = :model, first_event_ms = :first_event_ms, ended_ms = :now,
        prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens, total_tokens = :total_tokens,
        cached_tokens = :cached_tokens, estimated = :estimated, failure_code = :failure_code, tool_uses = :tool_uses,
        needs_decision = :needs_decision
    WHERE key = :run
"""
_USE = """
    INSERT INTO token_usage (owner, day, model, runs, prompt_tokens, completion_tokens, cached_tokens)
    SELECT owner, :day, :model, 1, :prompt_tokens, :completion_tokens, coalesce(:cached_tokens, 0)
    FROM conversations WHERE key = :conversation AND owner IS NOT NULL
    ON CONFLICT (owner, day, model) DO UPDATE SET runs = runs + 1,
        prompt_tokens = prompt_tokens + excluded.prompt_tokens,
        completion_tokens = completion_tokens + excluded.completion_tokens,
        cached_tokens = cached_tokens + excluded.cached_tokens
"""
NOW_MS = "CAST(strftime('%s', 'now') AS INTEGER) * 1000"
_ADD_NOTICE = add_notice(NOW_MS)
_OWNER = "SELECT owner FROM conversations WHERE key = ? AND owner IS NOT NULL"
_END_TURN = """
    UPDATE conversations SET model = :model, updated_ms = max(updated_ms, :now),
        session_id = coalesce(:session_id, session_id), fingerprint = coalesce(:fingerprint, fingerprint),
        title = CASE WHEN title = :made_title THEN :new_title ELSE title END
    WHERE key = :conversation
"""

T_co = TypeVar("T_co", covariant=True)


class Change(Struct, Generic[T_co], frozen=True):
    """What a write did, and what follows when it is committed."""

    result: T_co
    size: int = 0  # bytes that were written
    run: int = 0  # the key of a run that is to be indexed anew
    note: Note | None = None


Write: TypeAlias = Callable[[sqlite3.Connection], Change[T_co]]


# --- the writes -------------------------------------------------------------------------------------


def begin(connection: sqlite3.Connection, new: NewRun) -> Change[Lease | KeyTaken | Busy | Superseded]:
    """The change has a note unless the store has the run already."""
    if new.claim is not None and not _holds(connection, new.claim):
        return Change(Superseded())
    begun = _begin(connection, new)
    if isinstance(begun, KeyTaken | Busy):
        return Change(begun)
    if new.claim is not None:
        connection.execute(_LEAVE_QUEUE, (new.started_ms, new.id))
    lease = Lease(new.id, FIRST_EPOCH)
    if begun is None:  # stored by a call whose result was lost
        return Change(lease)
    place, texts = begun
    note = Note(new.id, searchable(texts).encode(), is_whole=False)
    return Change(lease, sum(map(len, texts)) + len(new.request), place.run, note)


def append(
    connection: sqlite3.Connection,
    lease: Lease,
    first_number: int,
    events: Sequence[DocumentEvent],
    run_end: RunEnd | None,
    make_notices: MakeNotices | None = None,
) -> Change[Written]:
    found = _rest(connection, lease, first_number, events)
    if isinstance(found, Fenced | Behind):
        return Change(found)
    place, rest = found
    if place.state != "running" and (rest or run_end is not None):
        return Change(Fenced("ended") if rest else Stored(0))
    size = _add_events(connection, place, rest)
    if run_end is None:
        _add_calls(connection, place, rest)
        _add_waiting_notices(connection, place, place.last + 1, rest, make_notices)
        return Change(Stored(size), size)
    connection.execute("DELETE FROM calls WHERE run = ?", (place.run,))
    prompts = _prompts(connection, place)
    _end(connection, place, run_end, make_notices)
    note = Note(lease.run_id, searchable([*prompts, *run_end.words]).encode(), is_whole=True)
    return Change(Stored(size), size, place.run, note)


def move(
    connection: sqlite3.Connection,
    new: NewRun,
    rows: Iterable[EventBatch],
    run_end: RunEnd | None,
    make_notices: MakeNotices | None = None,
) -> Change[KeyTaken | Busy | Written]:
    """Enters a run that is in a file, if it is not entered yet, and with its end also its events. `Fenced`: its file
    does not count, and nothing was changed."""
    if new.claim is not None and connection.execute(_PLACE, (new.id,)).fetchone() is None:
        return Change(Fenced("claimed"))  # its process died before it had left the queue, so it has not begun
    begun = _begin(connection, new)
    if isinstance(begun, KeyTaken | Busy):
        return Change(begun)
    if begun is None:
        place = RunPosition._make(connection.execute(_PLACE, (new.id,)).fetchone())
        if place.epoch != FIRST_EPOCH or place.state != "running" or place.last:
            return Change(Fenced("claimed" if place.epoch != FIRST_EPOCH else "ended"))
        if run_end is None:
            return Change(Stored(0))
        prompts = _prompts(connection, place)
    else:
        place, prompts = begun
    size = _add_rows(connection, place, rows)
    if run_end is not None:
        if begun is None:
            connection.execute("DELETE FROM calls WHERE run = ?", (place.run,))
        may_have_continuation = begun is None or bool(new.continuation)
        _end(connection, place, run_end, make_notices, may_have_continuation=may_have_continuation)
    words = () if run_end is None else run_end.words
    note = Note(new.id, searchable([*prompts, *words]).encode(), is_whole=run_end is not None)
    return Change(Stored(size), size + sum(map(len, prompts)) + len(new.request), place.run, note)


def claim(connection: sqlite3.Connection, lease: Lease) -> bool:
    """Whether the run is running with the epoch before that of the lease, which it has then."""
    return connection.execute(_CLAIM, (lease.epoch, lease.run_id, lease.epoch - 1)).rowcount > 0


def take_over(connection: sqlite3.Connection, run_id: str, rows: Iterable[EventBatch]) -> None:
    """Adds the events in the file of a run, unless the database has some."""
    row = connection.execute(_PLACE, (run_id,)).fetchone()
    if row is not None and not (place := RunPosition._make(row)).last:
        _add_rows(connection, place, rows)


def add_calls(
    connection: sqlite3.Connection,
    lease: Lease,
    first_number: int,
    events: Sequence[DocumentEvent],
    make_notices: MakeNotices | None = None,
) -> Change[Fenced | None]:
    """The open calls of a run that is in a file."""
    row = connection.execute(_PLACE, (lease.run_id,)).fetchone()
    checked = check_lease(lease, row, 1, ())
    if isinstance(checked, Fenced | Behind):
        return Change(checked if isinstance(checked, Fenced) else None)
    _add_calls(connection, checked[0], events)
    _add_waiting_notices(connection, checked[0], first_number, events, make_notices)
    return Change(None)


# --- their parts ------------------------------------------------------------------------------------


def _holds(connection: sqlite3.Connection, claim: Claim) -> bool:
    return connection.execute(_HOLDS, (claim.command_id, claim.epoch)).fetchone() is not None


def _begin(connection: sqlite3.Connection, new: NewRun) -> tuple[RunPosition, list[str]] | KeyTaken | Busy | None:
    """Where the run is, and the texts of its messages. None if the store has the run already."""
    if connection.execute("SELECT 1 FROM runs WHERE id = ?", (new.id,)).fetchone():
        return None
    if new.idempotency:
        named = {"owner": new.owner, "key": new.idempotency.key, "id": new.id}
        if connection.execute(_HAS_KEY, named).fetchone() or connection.execute(_IS_QUEUED, named).fetchone():
            return KeyTaken()
    values = begin_values(new)
    found = connection.execute(_CONVERSATION, (new.owner, new.conversation_id)).fetchone()
    if found is None:
        conversation = _added(connection, _ADD_CONVERSATION, values)
    else:
        conversation, running = found
        if running is not None:
            return Busy(running)
        connection.execute(_CONTINUE_CONVERSATION, {**values, "conversation": conversation})
    run = _added(connection, _ADD_RUN, {**values, "conversation": conversation})
    texts = [repair(message.text) for message in new.messages]
    if new.messages:  # numbered here: thousands of look-ups of the last number could take seconds
        (last,) = (0,) if found is None else connection.execute(_LAST_MESSAGE, (conversation,)).fetchone()
        rows = enumerate(zip(new.messages, texts, strict=True), last + 1)
        connection.executemany(
            _ADD_MESSAGES,
            (
                (conversation, number, one.role, text, run, new.started_ms, " ".join(one.images))
                for number, (one, text) in rows
            ),
        )
    if new.idempotency:
        key = new.idempotency
        connection.execute(_ADD_KEY, (new.owner, key.key, run, key.body_hash, new.started_ms))
    kept = [(run, after, data) for after, data in ((0, new.request), (CONTINUATION, new.continuation)) if data]
    if kept:
        connection.executemany("INSERT INTO requests (run, after, data) VALUES (?, ?, ?)", kept)
    return RunPosition(run, conversation, FIRST_EPOCH, "running", 0), texts


def _rest(
    connection: sqlite3.Connection, lease: Lease, first_number: int, events: Sequence[DocumentEvent]
) -> tuple[RunPosition, Sequence[DocumentEvent]] | Fenced | Behind:
    """Where the run is, and the events that are not stored yet."""
    row = connection.execute(_PLACE, (lease.run_id,)).fetchone()
    checked = check_lease(lease, row, first_number, events)
    if isinstance(checked, Fenced | Behind):
        return checked
    place, known = checked
    if known:
        found = connection.execute(_STORED_FROM, {"run": place.run, "first": first_number})
        batches.check_repeated(first_number, known, [(first, batches.decode(data)) for first, data in found])
    return place, events[len(known) :]


def _add_events(connection: sqlite3.Connection, place: RunPosition, events: Sequence[DocumentEvent]) -> int:
    if not events:
        return 0
    data = batches.encode(events)
    connection.execute(_ADD_EVENTS, (place.run, place.last + 1, len(events), data))
    return len(data)


def _add_rows(connection: sqlite3.Connection, place: RunPosition, rows: Iterable[EventBatch]) -> int:
    size = 0
    for row in rows:
        connection.execute(_ADD_EVENTS, (place.run, row.first, row.count, row.data))
        size += len(row.data)
    return size


def _prompts(connection: sqlite3.Connection, place: RunPosition) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM messages WHERE run = ?", (place.run,))]


def _add_calls(connection: sqlite3.Connection, place: RunPosition, events: Sequence[DocumentEvent]) -> None:
    connection.executemany(_ADD_CALL, [(id, place.run, place.conversation) for id in open_calls(events)])


def _add_waiting_notices(
    connection: sqlite3.Connection,
    place: RunPosition,
    first_number: int,
    events: Sequence[DocumentEvent],
    make_notices: MakeNotices | None,
) -> None:
    if make_notices is not None and Paused in map(type, events):
        for (owner,) in connection.execute(_OWNER, (place.conversation,)):
            connection.executemany(_ADD_NOTICE, notice_values(make_notices, waiting_news(owner, first_number, events)))


def _added(connection: sqlite3.Connection, insert: str, values: dict[str, Any]) -> int:
    """The key of the new row."""
    key = connection.execute(insert, values).lastrowid
    assert key is not None
    return key


def _end(
    connection: sqlite3.Connection,
    place: RunPosition,
    end: RunEnd,
    make_notices: MakeNotices | None,
    *,
    may_have_continuation: bool = True,
) -> None:
    values = {**end_values(end), "run": place.run, "conversation": place.conversation}
    connection.execute(_END_RUN, values)
    connection.execute("INSERT OR IGNORE INTO unindexed (run) VALUES (?)", (place.run,))
    if values["state"] == "completed" and may_have_continuation:
        connection.execute("DELETE FROM requests WHERE run = ? AND after = ?", (place.run, CONTINUATION))
    if end.frees_key:
        # A key without a hash names a question, whose next repetition decides for itself; see `runs.repeats`.
        connection.execute("DELETE FROM idempotency WHERE run = ? AND body_hash != ''", (place.run,))
    connection.execute(_END_TURN, values)
    connection.execute(_USE, values)
    if make_notices is not None:
        for (owner,) in connection.execute(_OWNER, (place.conversation,)):
            connection.executemany(_ADD_NOTICE, notice_values(make_notices, [end_news(owner, end)]))
    if end.answer:
        connection.execute(_ADD_MESSAGE, {**values, "role": "assistant", "text": repair(end.answer)})


# --- many whole runs --------------------------------------------------------------------------------
# A thread loses the interpreter to the event loop in every call of SQLite, and has to take it back, which costs both of
# them more than the call. So whole runs, the usual case, are added together with a few statements, which do what `move`
# does for each by itself.

_LAST_KEYS = "SELECT (SELECT coalesce(max(key), 0) FROM conversations), (SELECT coalesce(max(key), 0) FROM runs)"
_ADD_CONVERSATIONS = """
    INSERT INTO conversations (key, id, owner, title, workspace, client, mode, model, created_ms, updated_ms,
        session_id, fingerprint)
"""
_ADD_RUNS = """
    INSERT INTO runs (key, id, conversation, instance, state, model, mode, created, fences, include, epoch, started_ms,
        first_event_ms, ended_ms, prompt_tokens, completion_tokens, total_tokens, cached_tokens, estimated,
        failure_code, tool_uses, needs_decision)
"""
_ADD_WHOLE_MESSAGES = "INSERT INTO messages (conversation, run, number, role, text, images, created_ms)"
_ADD_REQUESTS = "INSERT INTO requests (run, after, data)"
_ADD_WHOLE_EVENTS = "INSERT INTO events (place, count, data)"
_ADD_UNINDEXED = "INSERT OR IGNORE INTO unindexed (run)"
_ADD_USED = """
    INSERT INTO token_usage (owner, day, model, runs, prompt_tokens, completion_tokens, cached_tokens)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, day, model) DO UPDATE SET runs = runs + excluded.runs,
        prompt_tokens = prompt_tokens + excluded.prompt_tokens,
        completion_tokens = completion_tokens + excluded.completion_tokens,
        cached_tokens = cached_tokens + excluded.cached_tokens
"""


class WholeRun(Struct, frozen=True):
    """A run that began its conversation, and has ended."""

    new: NewRun
    events: EventBatch  # all of them
    end: RunEnd


def add_whole(
    connection: sqlite3.Connection, runs: Sequence[WholeRun], make_notices: MakeNotices | None = None
) -> dict[str, Change[object]]:
    """By the runs' ids. Those that the database has already are left out."""
    marks = ", ".join("?" * len(runs))
    found = connection.execute(f"SELECT id FROM runs WHERE id IN ({marks})", [whole.new.id for whole in runs])
    known = {id for (id,) in found}
    runs = [whole for whole in runs if whole.new.id not in known]
    last_conversation, last_run = connection.execute(_LAST_KEYS).fetchone()
    placed = [_Placed(whole, last_conversation + number, last_run + number) for number, whole in enumerate(runs, 1)]
    _insert(connection, _ADD_CONVERSATIONS, [_conversation_row(one) for one in placed])
    _insert(connection, _ADD_RUNS, [_run_row(one) for one in placed])
    _insert(connection, _ADD_WHOLE_MESSAGES, [row for one in placed for row in _message_rows(one)])
    _insert(connection, _ADD_REQUESTS, [row for one in placed for row in _request_rows(one)])
    _insert(connection, _ADD_WHOLE_EVENTS, [_events_row(one) for one in placed])
    _insert(connection, _ADD_UNINDEXED, [(one.run,) for one in placed])
    connection.executemany(_ADD_USED, _used(runs))
    if make_notices is not None:
        news = [end_news(whole.new.owner, whole.end) for whole in runs]
        connection.executemany(_ADD_NOTICE, notice_values(make_notices, news))
    return {one.whole.new.id: _change_of(one) for one in placed}


class _Placed(Struct, frozen=True):
    """With the keys of its rows."""

    whole: WholeRun
    conversation: int
    run: int


def _conversation_row(one: _Placed) -> Sequence[object]:
    new, end = one.whole.new, one.whole.end
    title = made_title(new.messages)
    if end.title is not None and end.title.made == title:
        title = end.title.new
    about = title, new.workspace, new.client, new.mode, end.envelope.model
    times = new.started_ms, max(new.started_ms, end.ended_ms)
    return one.conversation, new.conversation_id, new.owner, *about, *times, end.session_id, end.fingerprint


def _run_row(one: _Placed) -> Sequence[object]:
    new, end, usage = one.whole.new, one.whole.end, one.whole.end.envelope.usage
    about = end.envelope.model, new.mode, new.created, new.fences, msgspec.json.encode(sorted(new.include)).decode()
    times = new.started_ms, end.first_event_ms, end.ended_ms
    used = usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, usage.cached_tokens, usage.estimated
    known = (None if value is UNSET else value for value in used)
    said = end.failure_code, end.tool_uses, end.needs_decision
    return one.run, new.id, one.conversation, new.instance, _state_of(end), *about, FIRST_EPOCH, *times, *known, *said


def _message_rows(one: _Placed) -> list[Sequence[object]]:
    new, end = one.whole.new, one.whole.end
    said = [(message.role, repair(message.text), " ".join(message.images), new.started_ms) for message in new.messages]
    if end.answer:
        said.append(("assistant", repair(end.answer), "", end.ended_ms))
    return [(one.conversation, one.run, number, *message) for number, message in enumerate(said, 1)]


def _request_rows(one: _Placed) -> list[Sequence[object]]:
    new = one.whole.new
    continuation = b"" if _state_of(one.whole.end) == "completed" else new.continuation
    return [(one.run, after, data) for after, data in ((0, new.request), (CONTINUATION, continuation)) if data]


def _events_row(one: _Placed) -> Sequence[object]:
    events = one.whole.events
    return one.run << 32 | events.first, events.count, events.data


def _change_of(one: _Placed) -> Change[object]:
    new, end = one.whole.new, one.whole.end
    texts = [repair(message.text) for message in new.messages]
    note = Note(new.id, searchable([*texts, *end.words]).encode(), is_whole=True)
    stored = Stored(len(one.whole.events.data))
    return Change(stored, stored.size + sum(map(len, texts)) + len(new.request), one.run, note)


def _state_of(end: RunEnd) -> str:
    return "completed" if end.envelope.status == "completed" else "error"


def _insert(connection: sqlite3.Connection, into: str, rows: Sequence[Sequence[object]]) -> None:
    """In groups of 256, 128, 64 and so on: few different statements, which stay prepared. SQLite may limit the values
    of one to 32766."""
    place = 0
    while count := len(rows) - place:
        some = min(256, 1 << (count.bit_length() - 1))
        marks = f"({', '.join('?' * len(rows[0]))})"
        values = list(chain.from_iterable(rows[place : place + some]))
        connection.execute(f"{into} VALUES {', '.join([marks] * some)}", values)
        place += some


def _used(runs: Sequence[WholeRun]) -> list[tuple[object, ...]]:
    found: dict[tuple[str, str, str], tuple[int, ...]] = {}
    for whole in runs:
        usage = whole.end.envelope.usage
        place = whole.new.owner, day_of(whole.end.ended_ms), whole.end.envelope.model
        figures = 1, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens or 0
        found[place] = tuple(map(sum, zip(found.get(place, (0, 0, 0, 0)), figures, strict=True)))
    return [(*place, *figures) for place, figures in found.items()]
