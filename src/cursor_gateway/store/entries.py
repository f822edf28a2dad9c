"""Turn stored records into history entries for the API and the command line."""

from datetime import UTC, datetime

import msgspec
from msgspec import UNSET

from cursor_gateway.model.history import ConversationDetail, ConversationEntry, MessageEntry, RecentRun, RunEntry
from cursor_gateway.prompting.replies import decisions_in
from cursor_gateway.store.base import ConversationRecord, FoundConversation, MessageRecord, RunRecord, Store


def entry_of(found: FoundConversation, *, is_waiting: bool = False) -> ConversationEntry:
    of = found.conversation
    return ConversationEntry(
        id=of.id,
        title=of.title,
        created=_time(of.created_ms),
        updated=_time(of.updated_ms),
        workspace=of.workspace,
        mode=of.mode,
        model=of.model,
        is_running=of.is_running,
        is_waiting=is_waiting or UNSET,
        client=of.client or UNSET,
        pinned=of.is_pinned,
        linked=UNSET if of.linked_ms is None else _time(of.linked_ms),
        snippet=UNSET if found.snippet is None else found.snippet,
    )


async def detail_of(store: Store, conversation: ConversationRecord, *, is_waiting: bool = False) -> ConversationDetail:
    id, owner = conversation.id, conversation.owner
    return ConversationDetail(
        **msgspec.structs.asdict(entry_of(FoundConversation(conversation), is_waiting=is_waiting)),
        messages=[_message(message) for message in await store.messages(id, owner)],
        runs=[_run(run) for run in await store.runs_of(id, owner)],
    )


def recent_of(run: RunRecord, title: str, prompt: str, runner: str = "") -> RecentRun:
    return RecentRun(
        **msgspec.structs.asdict(_run(run)),
        conversation_id=run.conversation_id,
        title=title,
        prompt=prompt,
        tool_calls=run.tool_uses,
        runner=runner or UNSET,
    )


def _message(of: MessageRecord) -> MessageEntry:
    note = "\n".join(decisions_in(of.text)) if of.role == "user" else ""
    return MessageEntry(
        role=of.role,
        text=of.text,
        images=list(of.images) or UNSET,
        note=note or UNSET,
        chat_id=of.run_id,
        created=_time(of.created_ms),
    )


def _run(of: RunRecord) -> RunEntry:
    return RunEntry(
        id=of.id,
        state=of.state,
        model=of.model,
        mode=of.mode,
        created=of.created,
        first_event_ms=None if of.first_event_ms is None else of.first_event_ms - of.started_ms,
        duration_ms=None if of.ended_ms is None else of.ended_ms - of.started_ms,
        usage=of.usage,
        error_code=of.failure_code,
    )


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
