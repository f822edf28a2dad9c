"""What the tests of the store put into it."""

from collections.abc import Sequence

from cursor_gateway.errors import AgentCrashed, StoreUnavailable
from cursor_gateway.model import document_events
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Diff,
    Document,
    Envelope,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    PermissionRequest,
    PlanMetadata,
    PlanTodo,
    ResponseMetadata,
    Status,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    TodoChange,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    Usage,
    make_document,
)
from cursor_gateway.stages.search_tokens import Words
from cursor_gateway.store.base import Idempotency, Lease, NewMessage, NewRun, RunEnd, Stored
from cursor_gateway.store.sql import SqlStore
from tests.store.blocking import Database

ME, YOU = "me", "you"
DAY_MS = 24 * 3600 * 1000


def new_run(
    id: str = "run",
    conversation: str = "conv",
    *said: str,
    owner: str = ME,
    at: int = 1000,
    idempotency: Idempotency | None = None,
) -> NewRun:
    return NewRun(
        id=id,
        conversation_id=conversation,
        owner=owner,
        instance="host:1",
        workspace="/w",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        include=frozenset({"raw", "thinking"}),
        messages=[NewMessage("user", text) for text in said or ("Hello",)],
        started_ms=at,
        idempotency=idempotency,
    )


def lease(run: str = "run", epoch: int = 1) -> Lease:
    """As `begin_run` gives it."""
    return Lease(run, epoch)


def envelope(run: str = "run", status: Status = "completed") -> Envelope:
    return Envelope(
        id=run,
        conversation_id="conv",
        model="opus",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status=status,
        usage=Usage(prompt_tokens=5, completion_tokens=6, total_tokens=11, cached_tokens=2),
        metadata=ResponseMetadata(duration_ms=3, tool_call_count=0, turn_count=1),
    )


def words_of(documents: Sequence[Document]) -> Words:
    words = Words()
    for document in documents:
        words.push(document)
    return words


def run_end(
    run: str = "run",
    *,
    documents: Sequence[Document] = (),
    answer: str = "Hi",
    at: int = 2000,
    status: Status = "completed",
    session_id: str | None = None,
    fingerprint: str | None = None,
) -> RunEnd:
    words = words_of(documents)
    return RunEnd(
        envelope=envelope(run, status),
        failure_code=None if status == "completed" else "agent_crashed",
        words=words.all,
        tool_uses=words.tool_uses,
        needs_decision=words.needs_decision,
        answer=answer,
        session_id=session_id,
        fingerprint=fingerprint,
        first_event_ms=at - 500,
        ended_ms=at,
    )


async def by_fingerprint(store: SqlStore, owner: str, fingerprint: str) -> list[str]:
    return [found.conversation.id for found in (await store.conversations(owner, fingerprint=fingerprint)).found]


def deltas(*numbers: int) -> list[document_events.DocumentEvent]:
    """Events that say their numbers."""
    return [document_events.ContentDelta("doc_001", str(number)) for number in numbers]


def append_patiently(store: Database, run: str, number: int) -> None:
    """As a caller does while others write: again, when it was not let in."""
    for _ in range(100):
        try:
            assert isinstance(store.append(lease(run), number, deltas(number)), Stored)
            return
        except StoreUnavailable:
            continue
    raise AssertionError("it was never let in")


def text_document(text: str) -> Document:
    return make_document("doc_001", 1, text, TextMetadata())


def rejected_command() -> Document:
    permission = PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    metadata = TerminalCommandMetadata(
        command="npm test",
        exit_code=0,
        output="",
        duration_ms=0,
        permissions=[],
        state="rejected",
        permission=permission,
    )
    return make_document("doc_001", 1, None, metadata)


def whole_run(
    store: Database,
    id: str,
    conversation: str,
    *said: str,
    owner: str = ME,
    at: int = 1000,
    documents: Sequence[Document] = (),
    session_id: str | None = None,
    fingerprint: str | None = None,
) -> None:
    assert isinstance(store.begin_run(new_run(id, conversation, *said, owner=owner, at=at)), Stored)
    assert isinstance(store.append(lease(id), 1, deltas(1, 2, 3)), Stored)
    end = run_end(id, documents=documents, at=at, session_id=session_id, fingerprint=fingerprint)
    assert isinstance(store.append(lease(id), 4, [document_events.Done(envelope(id))], end), Stored)


# --- every kind of event ----------------------------------------------------------------------------

_RESULT = ToolCallResult(status="success", data={"hits": [1, 2.5, None, True, 10**25, {"a": "é\u2028\0"}]})
_QUESTION = ClarificationQuestion(
    id="q", text="Which one?", options=[ClarificationOption(id="o", label="The red")], allow_multiple=True
)
_METADATA: list[tuple[str | None, Metadata]] = [
    ("Some prose", TextMetadata()),
    ("x = 1", CodeReferenceMetadata(file_path="src/main.py", start_line=1, end_line=2, language="python", indent=2)),
    ("y = 2", CodeBlockMetadata(language="python", purpose="example")),
    (
        "new",
        FileEditMetadata(
            file_path="src/new_name.py",
            operation="rename",
            language="python",
            diff=Diff(old_string="a", new_string="b", start_line=1, end_line=1),
            old_path="src/old_name.py",
            state="failed",
            reason="why",
            raw={"any": ["thing", 1]},
        ),
    ),
    (None, FileEditMetadata(file_path="gone.py", operation="delete", language="python")),
    (
        None,
        ToolCallMetadata(
            tool_name="grep",
            tool_call_id="call_1",
            arguments={"pattern": "needle", "paths": ["lib/deep"], "depth": 3},
            result=_RESULT,
            duration_ms=4,
            agent_call_id="a\nb",
            raw=None,
        ),
    ),
    (
        None,
        TerminalCommandMetadata(
            command="pytest -k login", exit_code=1, output="a lot", duration_ms=9, permissions=["network"]
        ),
    ),
    (
        "# The plan",
        PlanMetadata(
            title="Mend it",
            overview="Step by step",
            todos=[PlanTodo(id="1", content="look closely", status="pending", dependencies=[])],
        ),
    ),
    (
        None,
        ClarificationMetadata(
            questions=[_QUESTION], answers=[ClarificationAnswer(question_id="q", selected_option_ids=["o"], text="t")]
        ),
    ),
    ("It broke", ErrorMetadata(error_code="TOOL_ERROR", source="grep", details="")),
    (None, TodoUpdateMetadata(todos=[TodoChange(id="1", status="completed", content="sweep up")], merge=False)),
    ("Hm", ThinkingMetadata(format="plain")),
]
EVERY_DOCUMENT: list[Document] = [
    make_document(f"doc_{number:03}", number, content, metadata)
    for number, (content, metadata) in enumerate(_METADATA, start=1)
]
EVERY_EVENT: list[document_events.DocumentEvent] = [
    document_events.DocumentStarted("doc_001", "text", 1),
    document_events.DocumentStarted(
        "doc_002",
        "code_block",
        2,
        document_events.KnownMetadata(language="py", questions=[_QUESTION], indent=0),
        "```\n",
    ),
    document_events.ContentDelta("doc_001", "é\u2028\0\U0001f600"),
    document_events.ContentDelta("doc_001", "x", raw=""),
    document_events.TerminalOutput("doc_004", "50%\r60%\n\x1b[0m"),
    document_events.ToolCallStarted("doc_003", "grep", "call_1"),
    document_events.ToolCallArguments("doc_003", {"a": [{}, [], None, -1, 0.1, "…"]}),
    document_events.ToolCallEnded("doc_003", _RESULT),
    *(document_events.DocumentEnded(document, raw="\n") for document in EVERY_DOCUMENT),
    document_events.Reasoning("hm", opens=True),
    document_events.Paused(envelope(), raw="\n"),
    document_events.Done(envelope(), AgentCrashed(details="d", param="p").failure(), raw="\n"),
]
