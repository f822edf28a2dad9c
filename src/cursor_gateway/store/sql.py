"""The calls of a `Store` that every SQL engine answers with the same statements.

The engines have tables and columns of the same names. Values are written as `:name` in the statements here. An engine
adds how its statements are executed, and the parts in which its SQL differs.
"""

import asyncio
import base64
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.structs import asdict

from cursor_gateway.errors import HistoryDamaged, InvalidRequest, StoreUnavailable
from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.model.documents import Usage
from cursor_gateway.store.base import (
    PAGE_BYTES,
    Behind,
    ClaimedNotice,
    ConversationPage,
    ConversationRecord,
    DayUsage,
    EventPage,
    Fenced,
    FoundConversation,
    HistoryLimits,
    IdempotentRun,
    Lease,
    MakeNotices,
    MessageRecord,
    NewRun,
    Outbox,
    RunEnd,
    RunNews,
    RunRecord,
    Store,
    StoreUpkeep,
)
from cursor_gateway.store.texts import made_title, query_words, title_of

# --- conversations as rows, to be copied from one engine to another ---------------------------------

CONVERSATION_COLUMNS = (
    *("id", "owner", "title", "workspace", "mode", "model", "created_ms", "updated_ms", "session_id"),
    *("fingerprint", "pinned", "client"),
)
RUN_COLUMNS = (
    *("id", "instance", "epoch", "state", "model", "mode", "created", "fences", "include", "started_ms"),
    *("first_event_ms", "ended_ms", "prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"),
    *("estimated", "failure_code", "tool_uses", "needs_decision"),
)
MESSAGE_COLUMNS = ("number", "role", "text", "run", "created_ms", "images")
REPLY_COLUMNS = ("owner", "key", "body_hash", "created_ms", "after")
REQUEST_COLUMNS = ("after", "data")

Row: TypeAlias = Sequence[Any]
ArchivedBatch: TypeAlias = tuple[
    int, int, bytes
]  # the number of its first event, their count, and `batches.encode`d events


class ArchivedRun(Struct, frozen=True):
    key: int
    row: Row
    text: str  # the text that a search finds it by
    replies: Sequence[Row]
    requests: Sequence[Row]
    batches: Callable[[], Iterator[ArchivedBatch]]  # may be many megabytes


class ArchivedConversation(Struct, frozen=True):
    row: Row
    messages: Sequence[Row]
    runs: Sequence[ArchivedRun]

    @property
    def is_running(self) -> bool:
        state = RUN_COLUMNS.index("state")
        return any(run.row[state] == "running" for run in self.runs)


# --- places in a list, as opaque cursors ------------------------------------------------------------

MOST = 2**62  # an engine's integers have 64 bits

_Number = Annotated[int, Meta(ge=0, le=MOST)]


class ByTime(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the list: the last conversation of a page."""

    updated_ms: _Number
    id: str


class ByRun(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in search results."""

    top: _Number  # the newest run of the first page, so that later runs do not shift the other pages
    last: _Number  # the last run of this page


START = ByRun(MOST, MOST)

_Place = TypeVar("_Place")


def encode_cursor(place: ByTime | ByRun) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(cursor: str, kind: type[_Place]) -> _Place:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=kind)
    except ValueError as error:
        raise InvalidRequest(
            "This is not a cursor; use `next` of the previous page, or leave `before` out.",
            param="before",
        ) from error


# --- migrations: numbered scripts in an engine's folder `migrations` --------------------------------


class Migration(Struct, frozen=True):
    number: int
    name: str
    script: str


@cache
def migrations_of(package: str) -> tuple[Migration, ...]:
    """Numbered from 1 without a gap, so the last number is their count."""
    files = [file for file in resources.files(package).joinpath("migrations").iterdir() if file.name.endswith(".sql")]
    found = []
    for expected, file in enumerate(sorted(files, key=lambda file: file.name), start=1):
        number, _, name = file.name.removesuffix(".sql").partition("_")
        assert int(number) == expected, file.name
        found.append(Migration(expected, name.replace("_", " "), file.read_text(encoding="utf-8")))
    return tuple(found)


# --- statements -------------------------------------------------------------------------------------

_A = TypeVar("_A")
_T = TypeVar("_T")

DELETED_AT_ONCE = 20  # conversations per transaction

_LAST_NUMBER = 2**31 - 1  # of an event
_SHORT_REQUEST = 64 * 1024  # bytes that are written in less time than passing them to another thread takes

IS_RUNNING = "EXISTS (SELECT 1 FROM runs WHERE runs.conversation = conversations.key AND runs.state = 'running')"
OWN_RUN = """
    SELECT runs.key FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.id = :id AND conversations.owner = :owner
"""
_PROMPT = "(SELECT text FROM messages WHERE run = runs.key AND role = 'user' ORDER BY number DESC LIMIT 1)"
_MESSAGES = """
    SELECT messages.number, messages.role, messages.text, runs.id AS run_id, messages.created_ms, messages.images
    FROM conversations
        JOIN messages ON messages.conversation = conversations.key
        JOIN runs ON runs.key = messages.run
    WHERE conversations.owner = :owner AND conversations.id = :id ORDER BY messages.number
"""
_IDEMPOTENT = """
    SELECT runs.id AS run_id, idempotency.body_hash, idempotency.after
    FROM idempotency JOIN runs ON runs.key = idempotency.run
    WHERE idempotency.owner = :owner AND idempotency.key = :key
"""
_NAME_REPLY = f"""
    INSERT INTO idempotency (owner, key, run, body_hash, created_ms, after)
    SELECT :owner, :key, own.key, :hash, :now, :after FROM ({OWN_RUN}) AS own WHERE true
    ON CONFLICT (owner, key) DO UPDATE SET run = excluded.run, body_hash = excluded.body_hash,
        created_ms = excluded.created_ms, after = excluded.after
"""
_KEEP_REQUEST = f"""
    INSERT INTO requests (run, after, data) SELECT own.key, :after, :data FROM ({OWN_RUN}) AS own WHERE true
    ON CONFLICT (run, after) DO NOTHING
"""
_FORGET_REQUEST = f"DELETE FROM requests WHERE run = ({OWN_RUN}) AND after = :after"
_CHANGE_CONVERSATION = """
    UPDATE conversations SET title = coalesce(:title, title), pinned = coalesce(:is_pinned, pinned),
        fingerprint = coalesce(:fingerprint, fingerprint), link_hash = nullif(coalesce(:link_hash, link_hash), ''),
        linked_ms = CASE WHEN :link_hash = '' THEN NULL ELSE coalesce(:linked_ms, linked_ms) END
    WHERE owner = :owner AND id = :id
"""
_USAGE = """
    SELECT day, model, runs, prompt_tokens, completion_tokens, cached_tokens FROM token_usage
    WHERE owner = :owner AND day >= :since ORDER BY day DESC, model
"""
_PUT_OFF = "UPDATE notices SET due_ms = {now} + :delay WHERE webhook = :webhook AND id = :id AND attempts = :attempts"
_REMOVE_NOTICE = "DELETE FROM notices WHERE webhook = :webhook AND id = :id"
_OLD_NOTICES_MS = 7 * 24 * 3600 * 1000  # nobody has claimed them: their webhook is not in the settings any more
_REMOVE_OLD_NOTICES = "DELETE FROM notices WHERE due_ms < {now} - :age"


def select_runs(event_count: str) -> str:
    """The beginning of a statement whose rows `run_of` takes. `event_count` is an expression."""
    columns = ", ".join(f"runs.{name}" for name in RUN_COLUMNS)
    return f"""
        SELECT {columns}, conversations.id AS conversation_id, conversations.owner, {event_count} AS event_count
        FROM runs JOIN conversations ON conversations.key = runs.conversation
    """


def select_conversations(*more_columns: str) -> str:
    """The beginning of a statement whose rows `conversation_of` takes."""
    return f"""
        SELECT {", ".join(("key", *CONVERSATION_COLUMNS, "linked_ms", *more_columns))}, {IS_RUNNING} AS is_running,
            (
                SELECT needs_decision FROM runs WHERE runs.conversation = conversations.key
                ORDER BY runs.key DESC LIMIT 1
            ) AS needs_decision
        FROM conversations
    """


# --- rows to records: columns are named like the fields, and flags may be numbers --------------------

UNREADABLE_PART = "This part of the history is damaged; restart the gateway to recover what can be read, or delete it."
UNREADABLE = (msgspec.MsgspecError, AssertionError, IndexError, TypeError, ValueError)  # for a damaged row


def run_of(row: dict[str, Any]) -> RunRecord:
    # Reasoning tokens are only in events, and so is the cost.
    figures = {name: row.pop(name, None) for name in Usage.__struct_fields__}
    known = {name: value for name, value in figures.items() if value is not None}
    if "estimated" in known:
        known["estimated"] = bool(known["estimated"])
    if not all(isinstance(value, int) for value in known.values()):
        raise TypeError("tokens are not numbers")
    usage = Usage(**known) if "total_tokens" in known else None
    include = msgspec.json.decode(row.pop("include"))
    datetime.fromisoformat(row["created"])  # raises `ValueError`, or `TypeError`: it is shown as a number, too
    return msgspec.convert({**row, "include": include, "usage": usage}, RunRecord)


def conversation_of(row: dict[str, Any]) -> ConversationRecord:
    flags = {
        "is_running": bool(row["is_running"]),
        "is_pinned": bool(row["pinned"]),
        "needs_decision": bool(row["needs_decision"]),
    }
    return msgspec.convert({**row, **flags}, ConversationRecord)


def message_of(row: dict[str, Any]) -> MessageRecord:
    return msgspec.convert({**row, "images": msgspec.convert(row["images"], str).split()}, MessageRecord)


# --- what every engine writes about a run -----------------------------------------------------------


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


def waiting_news(owner: str, first_number: int, events: Sequence[DocumentEvent]) -> list[RunNews]:
    """Of the `Paused` events."""
    return [
        RunNews(owner=owner, envelope=event.envelope, number=number, goes_on=event.goes_on)
        for number, event in enumerate(events, first_number)
        if isinstance(event, Paused)
    ]


def end_news(owner: str, end: RunEnd) -> RunNews:
    return RunNews(owner=owner, envelope=end.envelope, failure_code=end.failure_code)


def notice_values(make: MakeNotices, news: Iterable[RunNews]) -> list[dict[str, object]]:
    """For `add_notice`."""
    return [
        {**asdict(notice), "owner": one.owner, "run": one.envelope.id, "delay": notice.delay_ms}
        for one in news
        for notice in make(one)
    ]


def add_notice(now_ms: str) -> str:
    """A statement; `now_ms` is an expression."""
    return f"""
        INSERT INTO notices (webhook, id, owner, run, number, body, due_ms)
        VALUES (:webhook, :id, :owner, :run, :number, :body, {now_ms} + :delay)
        ON CONFLICT (webhook, id) DO NOTHING
    """


def day_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


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
        "day": day_of(end.ended_ms),
    }


# --- calls ------------------------------------------------------------------------------------------


class SqlStore(Store, StoreUpkeep, Outbox, ABC):
    _now_ms: str  # an expression
    _locked: str  # what a statement that chooses rows to change ends with, so that no other waits for them
    _runs: str  # as by `select_runs`
    _conversations: str  # as by `select_conversations`
    _is_pinned: str  # a condition that the index of pinned conversations has
    _sizes: str  # a statement: key, owner and bytes of events of all conversations, newest first

    @abstractmethod
    async def _select(
        self, sql: str, values: Mapping[str, object], *, is_short: bool = False
    ) -> list[dict[str, Any]]: ...

    @abstractmethod
    async def _execute(self, sql: str, values: Mapping[str, object], *, is_short: bool = False) -> int:
        """Returns the number of rows. A short statement changes a single small row."""
        ...

    @abstractmethod
    async def _change(self, sql: str, values: Mapping[str, object]) -> list[dict[str, Any]]:
        """Returns the rows that the statement returns."""
        ...

    @abstractmethod
    async def _events(self, run_id: str, owner: str, next: int, max_bytes: int) -> list[DocumentEvent]:
        """The events of whole batches, from the event `next` on."""
        ...

    @abstractmethod
    async def _matches(
        self, owner: str, words: list[str], place: ByRun, limit: int
    ) -> tuple[list[int], list[FoundConversation]]:
        """The keys of the newest runs that match, one for each conversation, and one more than the limit if there are
        more; and the conversations, up to the limit."""
        ...

    @abstractmethod
    async def _delete_row(self, sql: str, values: Mapping[str, object]) -> bool:
        """Whether there was one, also if the answer to a first try was lost."""
        ...

    @abstractmethod
    async def _delete_idle(self, keys: Sequence[int]) -> int:
        """Deletes those of the conversations that have no running run. Returns how many."""
        ...

    @abstractmethod
    async def _delete_oldest(self, until_ms: int) -> int:
        """Deletes some of the oldest conversations that have no running run. Returns how many."""
        ...

    @abstractmethod
    async def _shrink(self, max_bytes: int | None, file_sizes: Mapping[str, int]) -> int:
        """Deletes the oldest conversations until the rest takes no more than that. Returns how many."""
        ...

    # --- damaged rows -------------------------------------------------------------------------------

    def _found_damage(self, error: Exception) -> HistoryDamaged:
        """Tells the operator, and returns what to tell the caller."""
        self.health.failed("damage", StoreUnavailable(UNREADABLE_PART, details=str(error)))
        return HistoryDamaged(UNREADABLE_PART, details=str(error))

    def _all(self, read: Callable[[_A], _T], rows: Iterable[_A]) -> list[_T]:
        """Raises `HistoryDamaged` if one is unreadable."""
        try:
            return [read(row) for row in rows]
        except UNREADABLE as error:
            raise self._found_damage(error) from error

    def _readable(self, read: Callable[[_A], _T], rows: Iterable[_A]) -> list[_T]:
        """For lists: one unreadable row must not hide the others."""
        found = []
        for row in rows:
            with suppress(HistoryDamaged):
                found += self._all(read, [row])
        return found

    # --- runs ---------------------------------------------------------------------------------------

    def _run_of(self, row: dict[str, Any]) -> RunRecord:
        return run_of(row)

    def _titled(self, row: dict[str, Any]) -> tuple[RunRecord, str, str]:
        title, prompt = str(row.pop("title")), str(row.pop("prompt") or "")
        return self._run_of(row), title, title_of(prompt)

    async def run(self, id: str, owner: str) -> RunRecord | None:
        where = "WHERE runs.id = :id AND conversations.owner = :owner"
        found = await self._select(f"{self._runs} {where}", {"id": id, "owner": owner}, is_short=True)
        return self._all(self._run_of, found)[0] if found else None

    async def runs_of(self, conversation_id: str, owner: str) -> list[RunRecord]:
        where = "WHERE conversations.owner = :owner AND conversations.id = :id ORDER BY runs.key"
        values = {"owner": owner, "id": conversation_id}
        return self._all(self._run_of, await self._select(f"{self._runs} {where}", values, is_short=True))

    async def recent_runs(self, owner: str, limit: int) -> list[tuple[RunRecord, str, str]]:
        runs = self._runs.replace("SELECT ", f"SELECT conversations.title, {_PROMPT} AS prompt, ", 1)
        where = "WHERE conversations.owner = :owner ORDER BY runs.key DESC LIMIT :limit"
        rows = await self._select(f"{runs} {where}", {"owner": owner, "limit": limit})
        return self._readable(self._titled, rows)

    async def unfinished_runs(self, instance: str | None = None) -> list[RunRecord]:
        where = "WHERE runs.state = 'running' AND conversations.owner IS NOT NULL"  # in any order: the index is small
        if instance is not None:
            where += " AND runs.instance = :instance"
        return self._readable(self._run_of, await self._select(f"{self._runs} {where}", {"instance": instance}))

    async def find_run_by_idempotency(self, owner: str, key: str) -> IdempotentRun | None:
        found = await self._select(_IDEMPOTENT, {"owner": owner, "key": key}, is_short=True)
        return self._all(lambda row: msgspec.convert(row, IdempotentRun), found)[0] if found else None

    async def name_reply(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        values = {"id": reply.run_id, "owner": owner, "key": key, "hash": reply.body_hash, "after": reply.after}
        await self._execute(_NAME_REPLY, {**values, "now": now_ms}, is_short=True)

    async def keep_request(self, run_id: str, owner: str, after: int, data: bytes | None) -> bool:
        values = {"id": run_id, "owner": owner, "after": after, "data": data}
        if data is None:
            return await self._delete_row(_FORGET_REQUEST, values)
        return await self._execute(_KEEP_REQUEST, values, is_short=len(data) <= _SHORT_REQUEST) > 0

    async def kept_request(self, run_id: str, owner: str, after: int) -> bytes | None:
        kept = f"SELECT data FROM requests WHERE run = ({OWN_RUN}) AND after = :after"
        found = await self._select(kept, {"id": run_id, "owner": owner, "after": after})
        return self._all(lambda row: bytes(row["data"]), found)[0] if found else None

    async def set_decided(self, run_id: str, owner: str) -> None:
        decided = f"UPDATE runs SET needs_decision = false WHERE key = ({OWN_RUN})"
        await self._execute(decided, {"id": run_id, "owner": owner})

    async def events(self, run_id: str, owner: str, *, after: int = 0, max_bytes: int = PAGE_BYTES) -> EventPage:
        next = min(max(after, 0), _LAST_NUMBER - 1) + 1
        try:
            return EventPage(next, await self._events(run_id, owner, next, max_bytes))
        except UNREADABLE as error:
            raise self._found_damage(error) from error

    async def usage(self, owner: str, since: str) -> list[DayUsage]:
        rows = await self._select(_USAGE, {"owner": owner, "since": since}, is_short=True)
        return self._all(lambda row: msgspec.convert(row, DayUsage), rows)

    # --- notices ------------------------------------------------------------------------------------

    async def claim_notices(self, webhook: str, limit: int, lease_ms: int) -> list[ClaimedNotice]:
        claim = f"""
            UPDATE notices SET attempts = attempts + 1, due_ms = {self._now_ms} + :lease
            WHERE webhook = :webhook AND id IN (
                SELECT id FROM notices WHERE webhook = :webhook AND due_ms <= {self._now_ms}
                ORDER BY due_ms LIMIT :limit {self._locked}
            )
            RETURNING id, owner, run, number, body, attempts
        """
        due = f"SELECT 1 FROM notices WHERE webhook = :webhook AND due_ms <= {self._now_ms} LIMIT 1"
        if not await self._select(due, {"webhook": webhook}):  # nearly always: a write would disturb others
            return []
        rows = await self._change(claim, {"webhook": webhook, "limit": limit, "lease": lease_ms})
        return self._all(lambda row: msgspec.convert(row, ClaimedNotice), rows)

    async def put_off_notice(self, webhook: str, notice: ClaimedNotice, delay_ms: int) -> None:
        values = {"webhook": webhook, "id": notice.id, "attempts": notice.attempts, "delay": delay_ms}
        await self._execute(_PUT_OFF.format(now=self._now_ms), values)

    async def remove_notice(self, webhook: str, id: str) -> None:
        await self._execute(_REMOVE_NOTICE, {"webhook": webhook, "id": id})

    # --- conversations ------------------------------------------------------------------------------

    async def conversation(self, id: str, owner: str) -> ConversationRecord | None:
        where = "WHERE owner = :owner AND id = :id"
        found = await self._select(f"{self._conversations} {where}", {"owner": owner, "id": id}, is_short=True)
        return self._all(conversation_of, found)[0] if found else None

    async def messages(self, conversation_id: str, owner: str) -> list[MessageRecord]:
        rows = await self._select(_MESSAGES, {"owner": owner, "id": conversation_id})
        return self._all(message_of, rows)

    async def conversations(
        self,
        owner: str,
        *,
        limit: int = 20,
        before: str | None = None,
        query: str | None = None,
        clients: Sequence[str] | None = None,
        is_pinned: bool = False,
        is_linked: bool = False,
        fingerprint: str | None = None,
    ) -> ConversationPage:
        if query is not None and query.strip():
            words = query_words(query)
            return await self._matching(owner, limit, before, words) if words else ConversationPage([], None)
        wanted = [self._is_pinned] * is_pinned + ["link_hash IS NOT NULL"] * is_linked
        if fingerprint is not None:
            wanted.append(f"fingerprint = :fingerprint AND NOT {IS_RUNNING}")
        where = " AND ".join(("WHERE owner = :owner", *wanted))
        values = dict[str, object](owner=owner, limit=limit + 1, fingerprint=fingerprint)
        if before is not None:
            place = decode_cursor(before, ByTime)
            where += " AND (updated_ms, id) < (:updated_ms, :id)"
            values |= {"updated_ms": place.updated_ms, "id": place.id}
        if clients is not None:
            names = {f"client{number}": name for number, name in enumerate(clients)}
            begun = f"client IN ({', '.join(f':{name}' for name in names)})"
            where += f" AND ({begun} OR key IN (SELECT conversation FROM runs WHERE state = 'running'))"
            values |= names
        order = "ORDER BY updated_ms DESC, id DESC LIMIT :limit"
        rows = await self._select(f"{self._conversations} {where} {order}", values, is_short=fingerprint is not None)
        page = self._readable(conversation_of, rows[:limit])
        next = encode_cursor(ByTime(page[-1].updated_ms, page[-1].id)) if page and len(rows) > limit else None
        return ConversationPage([FoundConversation(conversation) for conversation in page], next)

    async def _matching(self, owner: str, limit: int, before: str | None, words: list[str]) -> ConversationPage:
        """A conversation ranks by its newest matching run."""
        place = START if before is None else decode_cursor(before, ByRun)
        runs, page = await self._matches(owner, words, place, limit)
        if len(runs) <= limit:
            return ConversationPage(page, None)
        top = runs[0] if place is START else place.top
        return ConversationPage(page, encode_cursor(ByRun(top, runs[limit - 1])))

    async def change_conversation(
        self,
        id: str,
        owner: str,
        *,
        title: str | None = None,
        is_pinned: bool | None = None,
        fingerprint: str | None = None,
        link_hash: str | None = None,
        linked_ms: int | None = None,
    ) -> bool:
        values = {"id": id, "owner": owner, "title": title, "is_pinned": is_pinned, "fingerprint": fingerprint}
        links = {"link_hash": link_hash, "linked_ms": linked_ms}
        return await self._execute(_CHANGE_CONVERSATION, {**values, **links}, is_short=True) > 0

    async def find_by_link(self, hash: str) -> ConversationRecord | None:
        where = "WHERE link_hash = :hash AND owner IS NOT NULL"  # without an owner, it is being deleted
        found = await self._select(f"{self._conversations} {where}", {"hash": hash}, is_short=True)
        return self._all(conversation_of, found)[0] if found else None

    # --- deleting -----------------------------------------------------------------------------------

    async def prune(self, limits: HistoryLimits, now_ms: int, file_sizes: Mapping[str, int] | None = None) -> int:
        deleted = 0
        await self._execute(_REMOVE_OLD_NOTICES.format(now=self._now_ms), {"age": _OLD_NOTICES_MS})
        if limits.max_age_seconds is not None:
            while some := await self._delete_oldest(now_ms - int(limits.max_age_seconds * 1000)):
                deleted += some
        if limits.max_bytes_per_owner is not None:
            rows = await self._select(self._sizes, {})
            old = await asyncio.to_thread(_beyond, rows, limits.max_bytes_per_owner)  # there may be many
            for first in range(0, len(old), DELETED_AT_ONCE):
                deleted += await self._delete_idle(old[first : first + DELETED_AT_ONCE])
        return deleted + await self._shrink(limits.max_bytes, file_sizes or {})

    async def _size_of_files(self, file_sizes: Mapping[str, int]) -> int:
        """Without those of conversations that are deleted."""
        deleted = set(await self.unknown_conversations(list(file_sizes)))
        return sum(size for id, size in file_sizes.items() if id not in deleted)


def _beyond(rows: Iterable[Mapping[str, Any]], max_bytes: int) -> list[int]:
    """The keys of the conversations, newest first, with which their owner has more than that."""
    stored: Counter[str] = Counter()
    keys = []
    for row in rows:
        stored[row["owner"]] += row["size"]
        if stored[row["owner"]] > max_bytes:
            keys.append(row["key"])
    return keys
