"""The calls of a gateway: the request of each, and how its reply is read."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.client import steps
from cursor_gateway.client.failures import CallFailed
from cursor_gateway.dialects.documents.request import (
    AnswerRequest,
    ChatRequest,
    ChosenTool,
    OfferedTool,
    PermissionAnswer,
    QuestionAnswer,
    ToolAnswer,
)
from cursor_gateway.model import history
from cursor_gateway.model.answers import PermissionList, PlanChoice
from cursor_gateway.model.changes import (
    CommitRequest,
    CommitResult,
    ConversationChanges,
    KeepRequest,
    KeptFiles,
    RevertedFiles,
    RevertRequest,
    TraceRecord,
)
from cursor_gateway.model.documents import ChatResponse, Envelope
from cursor_gateway.model.health import Health
from cursor_gateway.model.requests import RunOptionFields, WhenClientLeaves

T = TypeVar("T")

_PAGE = 100  # conversations; the largest page of a gateway
_JSON = {"content-type": "application/json"}
_STREAM = {"accept": "text/event-stream", "prefer": "terminal-output"}


# --- a message --------------------------------------------------------------------------------------


class ChatFields(RunOptionFields, total=False):
    """The options of a message. By default, the run outlives the connection: `when_client_leaves` is `finish`, and
    `cancel` also stops it if this process is killed."""

    model: str | None
    tools: Iterable[OfferedTool]  # these replace the agent's own
    tool_choice: Literal["auto", "none", "required"] | ChosenTool
    may_ask: bool  # whether an agent that can wait may ask questions; False by default, because the caller must answer


def chat_request(message: str, key: str, images: Iterable[str], fields: ChatFields) -> steps.Request:
    """With a key, so that it may be sent again when its reply was lost; and the run outlives the connection."""
    if not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise ValueError("an idempotency key has 1 to 255 printable ASCII characters")
    options: dict[str, Any] = {"when_client_leaves": "finish", "may_ask": False, **fields}
    options |= {"include": set(fields.get("include") or ()), "tools": list(fields.get("tools") or ())}
    request = ChatRequest(message=message, images=list(images), stream=True, **options)
    headers = {**_JSON, **_STREAM, "idempotency-key": key}
    return steps.Request(method="POST", path=("v1", "chat"), headers=headers, body=msgspec.json.encode(request))


def events_request(id: str, after: int) -> steps.Request:
    headers = {**_STREAM, "last-event-id": str(after)}
    return steps.Request(method="GET", path=("v1", "chat", id, "events"), headers=headers)


def cancel_request(id: str, seconds: float | None = None) -> steps.Request:
    path = ("v1", "chat", id, "cancel")
    return steps.Request(method="POST", path=path, headers=_JSON, body=b"{}", seconds=seconds)


# --- a run ------------------------------------------------------------------------------------------


def start(link: steps.Link, request: steps.Request) -> steps.Call[ChatResponse]:
    """The run's first snapshot, as soon as the gateway has accepted the message."""
    request = replace(request, headers={**request.headers, "prefer": "respond-async"})
    return (yield from _read(link, ChatResponse, request))


def response(link: steps.Link, id: str) -> steps.Call[ChatResponse]:
    """The whole answer, or a snapshot with the status `streaming`."""
    return (yield from _get(link, ChatResponse, "v1", "chat", id))


class AnswerFields(TypedDict, total=False):
    """The answer to a run: one of the first five, and `text` beside `plan`."""

    tool_results: Iterable[ToolAnswer] | None
    answers: Iterable[QuestionAnswer] | None
    plan: PlanChoice | None
    text: str  # beside `plan`: what the agent should know about the decision
    permissions: Iterable[PermissionAnswer] | None
    when_client_leaves: WhenClientLeaves  # from now on; `finish` by default


def answer(link: steps.Link, id: str, **fields: Unpack[AnswerFields]) -> steps.Call[str]:
    """Answers a run: send one of `tool_results`, `answers`, `plan` (and perhaps `text`) and `permissions`.

    Returns the id of the run that continues: the same one, or the next in the conversation.
    """
    body = AnswerRequest(
        tool_results=_listed(fields.get("tool_results")),
        answers=_listed(fields.get("answers")),
        plan=fields.get("plan"),
        text=fields.get("text", ""),
        permissions=_listed(fields.get("permissions")),
        when_client_leaves=fields.get("when_client_leaves", "finish"),
    )
    request = steps.Request(
        method="POST",
        path=("v1", "chat", id, "answer"),
        headers={**_JSON, "prefer": "respond-async"},
        body=msgspec.json.encode(body),
    )
    return (yield from _read(link, ChatResponse, request)).id


def _listed(items: Iterable[T] | None) -> list[T] | None:
    return None if items is None else list(items)


def cancel(link: steps.Link, id: str) -> steps.Call[Envelope]:
    """Stops the run, and returns how it ended."""
    return (yield from _read(link, Envelope, cancel_request(id)))


# --- the history ------------------------------------------------------------------------------------


def conversations(link: steps.Link, query: str | None, limit: int | None) -> steps.BatchCall[history.ConversationEntry]:
    yield from _entries(link, {} if query is None else {"q": query}, limit, "v1", "conversations")


def _entries(
    link: steps.Link, query: dict[str, str], limit: int | None, *path: str
) -> steps.BatchCall[history.ConversationEntry]:
    """Page by page."""
    before: dict[str, str] = {}
    while limit is None or limit > 0:
        size = {"limit": str(_PAGE if limit is None else min(limit, _PAGE))}
        page = yield from _get(link, history.ConversationList, *path, query={**size, **query, **before})
        yield steps.Batch(page.conversations)
        if page.next is None:
            return
        before = {"before": page.next}
        limit = None if limit is None else limit - len(page.conversations)


def conversation(link: steps.Link, id: str) -> steps.Call[history.ConversationDetail]:
    return (yield from _get(link, history.ConversationDetail, "v1", "conversations", id))


def delete_conversation(link: steps.Link, id: str) -> steps.Call[None]:
    """With all its runs. An active run is stopped."""
    yield from _delete(link, "v1", "conversations", id)


# --- read-only links ----------------------------------------------------------------------------------


def links(link: steps.Link) -> steps.BatchCall[history.ConversationEntry]:
    yield from _entries(link, {}, None, "v1", "links")


def create_link(link: steps.Link, id: str) -> steps.Call[str]:
    """The address, which is shown only now. It replaces an earlier link of the conversation."""
    request = steps.Request(method="POST", path=("v1", "conversations", id, "link"))
    return (yield from _read(link, history.ConversationLink, request)).url


def revoke_link(link: steps.Link, id: str) -> steps.Call[None]:
    """The link of this conversation stops working."""
    yield from _delete(link, "v1", "conversations", id, "link")


# --- changed files ----------------------------------------------------------------------------------


def changes(link: steps.Link, id: str, chat_id: str | None = None) -> steps.Call[ConversationChanges]:
    """The files that changed in a conversation, or in one of its runs."""
    query = {"chatId": chat_id} if chat_id is not None else {}
    return (yield from _get(link, ConversationChanges, "v1", "conversations", id, "changes", query=query))


def patch(link: steps.Link, id: str, chat_id: str | None = None, path: str | None = None) -> steps.Call[bytes]:
    """What changed, for `git apply`."""
    wanted = {"dialect": "patch", "chatId": chat_id, "path": path}
    query = {name: value for name, value in wanted.items() if value is not None}
    request = steps.Request(method="GET", path=("v1", "conversations", id, "changes"), query=query)
    return (yield from steps.ask(request, steps.Tries(link))).body


def trace(link: steps.Link, id: str) -> steps.Call[TraceRecord]:
    """The lines that the agent wrote, as a record of Agent Trace."""
    return (yield from _get(link, TraceRecord, "v1", "conversations", id, "trace"))


def revert(link: steps.Link, id: str, request: RevertRequest) -> steps.Call[RevertedFiles]:
    """Restores files, or says what would change."""
    return (yield from _post(link, request, RevertedFiles, "v1", "conversations", id, "revert"))


def keep(link: steps.Link, id: str, request: KeepRequest) -> steps.Call[KeptFiles]:
    """Marks changes as reviewed."""
    return (yield from _post(link, request, KeptFiles, "v1", "conversations", id, "keep"))


def commit(link: steps.Link, id: str, request: CommitRequest) -> steps.Call[CommitResult]:
    """Commits the changed files, or proposes a message."""
    return (yield from _post(link, request, CommitResult, "v1", "conversations", id, "commit"))


# --- the workspace ----------------------------------------------------------------------------------


class _Files(Struct, frozen=True):
    files: list[str]


def files(link: steps.Link, query: str, workspace: str | None = None) -> steps.Call[list[str]]:
    """Files of a workspace whose paths contain the letters of `query`, best match first."""
    parameters = {"q": query} if workspace is None else {"q": query, "workspace": workspace}
    return (yield from _get(link, _Files, "v1", "workspace", "files", query=parameters)).files


# --- permissions ------------------------------------------------------------------------------------


def permissions(link: steps.Link) -> steps.Call[PermissionList]:
    """The caller's decisions and the operator's rules."""
    return (yield from _get(link, PermissionList, "v1", "permissions"))


def revoke_permission(link: steps.Link, id: str) -> steps.Call[None]:
    """Applies from the next run on."""
    yield from _delete(link, "v1", "permissions", id)


# --- devices ---------------------------------------------------------------------------------------


def new_login(link: steps.Link) -> steps.Call[history.LoginLink]:
    """A link with which one device can log in at a gateway that is shared."""
    return (yield from _read(link, history.LoginLink, steps.Request(method="POST", path=("v1", "logins"))))


def devices(link: steps.Link) -> steps.Call[list[history.DeviceEntry]]:
    """Those that are logged in."""
    return (yield from _get(link, history.DeviceList, "v1", "devices")).devices


def forget_device(link: steps.Link, id: str) -> steps.Call[None]:
    """Its key is no longer valid."""
    yield from _delete(link, "v1", "devices", id)


# --- the gateway ------------------------------------------------------------------------------------


class ModelEntry(Struct, frozen=True):
    """A model that a message may name."""

    id: str
    name: str = ""  # for people
    default: bool = False  # used if a request names no model
    alias_of: str = ""  # for another name of a model: which one it selects


class _Models(Struct, frozen=True):
    data: list[ModelEntry]


def models(link: steps.Link) -> steps.Call[list[ModelEntry]]:
    """Without aliases."""
    entries = (yield from _get(link, _Models, "v1", "models")).data
    return [entry for entry in entries if not entry.alias_of]


def health(link: steps.Link) -> steps.Call[Health]:
    """Whatever the reply's status is: without an agent it is 503, and the body says the rest. Raises `CallFailed`."""
    tries = steps.Tries(link)
    while True:
        reply = yield from steps.once(steps.Request(method="GET", path=("health",)))
        if isinstance(reply, steps.Reply):
            with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
                return msgspec.json.decode(reply.body, type=Health)
        yield steps.Close()
        yield steps.Pause(tries.pause_after(reply))


def _get(link: steps.Link, shape: type[T], *path: str, query: dict[str, str] | None = None) -> steps.Call[T]:
    return (yield from _read(link, shape, steps.Request(method="GET", path=path, query=query or {})))


def _post(link: steps.Link, body: Struct, shape: type[T], *path: str) -> steps.Call[T]:
    request = steps.Request(method="POST", path=path, headers=_JSON, body=msgspec.json.encode(body))
    return (yield from _read(link, shape, request))


def _read(link: steps.Link, shape: type[T], request: steps.Request) -> steps.Call[T]:
    return steps.read_value(link, (yield from steps.ask(request, steps.Tries(link))), shape)


def _delete(link: steps.Link, *path: str) -> steps.Call[None]:
    tries = steps.Tries(link)
    try:
        yield from steps.ask(steps.Request(method="DELETE", path=path), tries)
    except CallFailed as error:
        if error.status != 404 or not tries.used:  # otherwise the first try succeeded, and only its reply was lost
            raise
