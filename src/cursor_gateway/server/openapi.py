"""Put the OpenAPI 3.1 document of the gateway together, from the descriptions of its dialects and its own paths."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields as fields_of
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.base import Dialect, RunView
from cursor_gateway.dialects.openapi import Description, Json, Sample
from cursor_gateway.errors import GatewayError
from cursor_gateway.model import changes, history
from cursor_gateway.model.answers import PermissionList
from cursor_gateway.model.changes import MEDIA_TYPE as TRACE_MEDIA_TYPE
from cursor_gateway.model.changes import TraceRecord
from cursor_gateway.model.health import (
    Health,
    QueueReport,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.schema import openapi_components
from cursor_gateway.server.changes import ColouredLines, WorkspaceFiles, WorkspaceFolders
from cursor_gateway.server.models import ListedModel, ModelList, ModelPage

_ABOUT = """\
Cursor's agent over HTTP. The agent works in a folder on the gateway's machine. Its answers are ordered lists of typed \
**documents**, or have the form of **OpenAI's** or **Anthropic's API**, whole or streamed.

- Requests are JSON, with `Content-Type: application/json`.
- If the gateway has API keys, every request needs one: `Authorization: Bearer …`.
- Every reply has an `X-Request-Id`, which is also in the log. A request may send its own.
- Errors have OpenAI's form (Anthropic's below `/v1/messages`), a stable `code` and a message that says what to do.
- A streaming reply starts when the agent produces output, so a run that cannot start has its own status. After that, \
an error ends the stream. While the agent is silent, comments keep the connection open; in NDJSON, spaces do.
"""


def openapi_document(version: str, dialects: Sequence[Dialect]) -> dict[str, Any]:
    sample = _sample()
    of_dialects = [import_module(one.description).describe(sample) for one in dialects if one.description]
    described = [*of_dialects, *map(_description, _groups())]
    paths: dict[str, Json] = {}
    for description in described:
        for place, operation in description.operations.items():
            method, _, path = place.partition(" ")
            paths.setdefault(path, {})[method.lower()] = {"tags": [description.tag], **operation}
    tags = {description.tag: description.about for description in described}
    schemas = {name: schema for description in described for name, schema in description.schemas.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cursor-gateway",
            "version": version,
            "summary": "Cursor's agent as typed documents, and over OpenAI's and Anthropic's APIs.",
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"header": []}],
        "tags": [{"name": name, "description": about} for name, about in tags.items()],
        "paths": paths,
        "components": {
            "schemas": {**schemas, **api.shared_schemas(), **openapi_components()["schemas"]},
            "headers": {name: {"description": about, "schema": api.TEXT} for name, about in _HEADERS.items()},
            "parameters": {"X-Request-Id": _REQUEST_ID},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key from `cursor-gateway key`."},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "The same key."},
            },
        },
    }


_HEADERS = {
    "X-Request-Id": "The request's id, as in the log: the one that the client sent, or a new one.",
    "X-Cursor-Gateway-Source": "What answered: `cli`, `acp` or `sdk` for the agent, `replay` or `demo` for "
    "recordings, `history` for a run that has ended.",
    "X-Chat-Id": "The run's id, sent before the answer.",
    "X-Conversation-Id": "The conversation's id. Send it as `conversationId` to continue.",
    "X-Should-Retry": "`false` if the same request would fail again. OpenAI's SDKs obey it.",
    "Retry-After": "Seconds to wait before a retry, if known.",
    "WWW-Authenticate": "`Bearer`, if an API key is missing.",
    "Allow": "The methods that the path supports.",
    "Location": "The URL of the run: `/v1/chat/{id}`.",
}
_REQUEST_ID: Json = {
    **api.header(
        "X-Request-Id",
        "The client's id for this request: up to 128 letters, digits, `.`, `_`, `:` and `-`. An invalid one is "
        "replaced.",
        api.TEXT,
    ),
    "example": "my-request-1",
}


def _sample() -> Sample:
    info = RunInfo(
        id="chat_7f3a2b1c", conversation_id="conv_9e8d7c6b", created="2026-02-23T10:30:00Z", mode="ask", model="auto"
    )
    texts = ("It is a calculator ", "for the terminal.")
    recording: list[Json] = [
        {"type": "system", "subtype": "init", "session_id": "9e8d7c6b", "model": "Auto"},
        *(
            {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}, "timestamp_ms": number}
            for number, text in enumerate(texts, 1)
        ),
        {
            "type": "result",
            "subtype": "success",
            "result": "".join(texts),
            "duration_ms": 2400,
            "usage": {"inputTokens": 310, "outputTokens": 9, "cacheReadTokens": 1200, "cacheWriteTokens": 0},
        },
    ]
    lines = [msgspec.json.encode(line) + b"\n" for line in recording]
    return Sample(RunView(info, 1771842600, prompt="What does this project do?"), list(read_events(lines, info)))


# --- paths that belong to no dialect ----------------------------------------------------------------


class _Path(Struct, frozen=True):
    """One method of a path. Its body and its reply are described by their types."""

    place: str  # the method, and the path
    id: str
    summary: str
    about: str
    reply: type[Struct] | None = None
    other: type[Struct] | None = None  # which some parameter asks for instead
    media_type: str = "application/json"  # of `reply`
    form: Json = {}  # other media types of the reply; with `reply`, beside that
    status: str = "200"  # of the reply
    replies: Json = {}  # instead of one
    body: type[Struct] | None = None
    bodies: dict[str, tuple[str, Json]] = {}  # examples
    errors: Iterable[type[GatewayError]] = ()
    parameters: Sequence[Json] = ()
    envelope: api.ErrorForm = api.OWN_ENVELOPE
    is_open: bool = False


class _Group(Struct, frozen=True):
    tag: str
    about: str
    paths: Sequence[_Path]
    more: Sequence[type[Struct]] = ()  # types of replies beside those of `paths`


def _description(group: _Group) -> Description:
    bodies = [path.body for path in group.paths if path.body is not None]
    replies = [one for path in group.paths for one in (path.reply, path.other) if one is not None]
    schemas = api.read_schemas(bodies) | api.written_schemas([*replies, *group.more])
    return Description(group.tag, group.about, {path.place: _operation(path, schemas) for path in group.paths}, schemas)


def _operation(path: _Path, schemas: dict[str, Json]) -> Json:
    ids = [about for start, about in _IDS.items() if path.place.partition(" ")[2].startswith(start)]
    content: Json = {}
    about = f"{path.summary}."
    if path.reply is not None:
        name, example = path.reply.__name__, _json(_example(path.reply))
        schema = {"anyOf": [api.ref(name), api.ref(path.other.__name__)]} if path.other else api.ref(name)
        about = schemas[name]["description"]
        content = {path.media_type: {"schema": schema, "example": example}}
    return api.operation(
        path.id,
        path.summary,
        path.about,
        body=None if path.body is None else api.json_body(path.body.__name__, **path.bodies),
        replies=path.replies or {path.status: api.ok(about, content | path.form)["200"]},
        errors=(*path.errors, *(api.OF_BODIES if path.body is not None else ()), *(_STORED if ids else ())),
        parameters=[*ids, *path.parameters],
        envelope=path.envelope,
        is_open=path.is_open,
    )


def _groups() -> list[_Group]:
    return [
        _Group("History", "Conversations and runs.", _HISTORY, [history.RemovalPending]),
        _Group("Queue", "Requests that wait to be started, and the processes that start them.", _QUEUE),
        _Group("Links", "Conversations that others may read.", _LINKS),
        _Group("Permissions", "What callers have allowed the agent to do.", _PERMISSIONS),
        _Group("Devices", "Logins of other devices, at a gateway that is shared (`serve --share`).", _DEVICES),
        _Group("Workspace", "The folders that the agent may work in.", _WORKSPACE),
        _Group("Models", "The agent's models, for any client.", _models(), [ModelPage]),
        _Group("Operation", "Monitoring, and the description of this API.", _OPERATION),
    ]


_IDS = {"/v1/conversations/{id}": api.path_id("The conversation's id.", "conv_9e8d7c6b")}
_STORED = api.OF_STORED
_SEARCH: Json = {"type": "string", "maxLength": 1000}
_TEXT: Json = {"schema": api.TEXT}
_BYTES: Json = {"schema": {"type": "string", "format": "binary"}}
_IMAGES: Json = {f"image/{form}": _BYTES for form in ("png", "jpeg", "gif", "webp")}
_OK: Json = {"text/plain": {"schema": api.TEXT, "example": "ok\n"}}
_CHANGING = (errors.ConversationBusy, errors.FileChanged)
_METRICS = """\
# HELP cursor_gateway_runs_running Runs whose agent is there.
# TYPE cursor_gateway_runs_running gauge
cursor_gateway_runs_running 0.0
"""
_HISTORY = [
    _Path(
        "GET /v1/conversations",
        "listConversations",
        "List or search conversations",
        "Newest first. With `q`, only those that contain all its words: in messages, documents, commands and paths.",
        reply=history.ConversationList,
        errors=[errors.StoreUnavailable],
        parameters=[
            api.query("q", "Words to search for; the last one may be a prefix.", _SEARCH),
            api.page_size(20),
            api.query("before", "The `next` of the previous page. Other values are rejected."),
            api.query("client", "The program that began them; `people` for the page and the gateway's own commands."),
            api.query("pinned", "`true` for all pinned conversations, on one page.", {"enum": ["true"]}),
        ],
    ),
    _Path(
        "GET /v1/conversations/{id}",
        "getConversation",
        "Get a conversation",
        "Returns all messages. The documents of the answers are at `/v1/chat/{id}`.",
        reply=history.ConversationDetail,
    ),
    _Path(
        "PATCH /v1/conversations/{id}",
        "changeConversation",
        "Rename or pin a conversation",
        "Omitted fields do not change.",
        reply=history.ConversationEntry,
        body=history.ConversationChange,
        bodies={"rename": ("Rename and pin", {"title": "Login", "pinned": True})},
    ),
    _Path(
        "DELETE /v1/conversations/{id}",
        "deleteConversation",
        "Delete a conversation",
        "Deletes its answers, its images and the agent's own copies on this machine. An active run is stopped. "
        "Recordings (`record_dir`), files that the agent has changed, and data sent to Cursor are not deleted.",
        replies={
            "202": api.reply(
                "The conversation is deleted from the history; the agents' own copies are deleted as soon as possible.",
                api.json_content(api.ref("RemovalPending"), {"message": "The conversation is deleted. …"}),
            ),
            "204": api.reply("Deleted."),
        },
    ),
    _Path(
        "GET /v1/conversations/{id}/export",
        "exportConversation",
        "Export a conversation",
        "Returns the whole conversation as a file.",
        form={"text/markdown": _TEXT, "text/plain": _TEXT, "application/json": {"schema": api.OBJECT}},
        parameters=[api.query("format", "Default: `markdown`.", {"enum": ["markdown", "json", "text"]})],
    ),
    _Path(
        "GET /v1/conversations/{id}/images/{name}",
        "getConversationImage",
        "Get an image that was sent",
        "Messages contain the names of their images.",
        form=_IMAGES,
        parameters=[{**api.path_id("As in the message.", "0123456789abcdef.png"), "name": "name"}],
    ),
    _Path(
        "GET /v1/conversations/{id}/workspace-image",
        "getWorkspaceImage",
        "Get an image in the workspace",
        "For images that an answer mentions. Only PNG, JPEG, GIF and WebP files of up to 10 MB are returned, and "
        "nothing outside of the conversation's workspace.",
        form=_IMAGES,
        parameters=[api.query("path", "The path below the workspace.")],
    ),
    _Path(
        "GET /v1/conversations/{id}/changes",
        "getConversationChanges",
        "List the files that changed",
        "The gateway compares the workspace before and after each turn, so this includes what commands changed. Of "
        "turns that were not compared, it lists the edits that the agent reported.",
        reply=changes.ConversationChanges,
        other=ColouredLines,
        form={"text/x-diff": _TEXT},
        parameters=[
            api.query(
                "dialect",
                "`patch` for a patch that `git apply` accepts, `colours` for a file's lines as coloured HTML.",
                {"enum": ["json", "patch", "colours"]},
            ),
            api.query("chatId", "Only the changes of this run."),
            api.query("path", "Only the patch of this file."),
            api.query("context", "Unchanged lines around each change in a patch. Default: 3.", {"type": "integer"}),
            api.query("open", "`true` for a patch without changes that were kept.", {"enum": ["true"]}),
        ],
    ),
    _Path(
        "GET /v1/conversations/{id}/trace",
        "getConversationTrace",
        "Get the lines that the agent wrote",
        "A record of Agent Trace 0.1: which lines of the workspace's files each run of the conversation wrote, as the "
        "files are now. Lines that somebody has changed since are left out.",
        reply=TraceRecord,
        media_type=TRACE_MEDIA_TYPE,
    ),
    _Path(
        "POST /v1/conversations/{id}/revert",
        "revertChanges",
        "Revert files",
        "Restores the exact content that files had before: of one file, of some of its changes, of all files of a turn "
        "(`chatId`), or of all files before a turn (`before`). Files that did not exist are deleted. With `preview`, "
        "only says what would change. Fails with 409, and changes nothing, if a file is no longer as the agent left "
        "it, unless `token` is that of a preview which showed the file as it is.",
        reply=changes.RevertedFiles,
        body=changes.RevertRequest,
        bodies={
            "file": ("One file", {"path": "src/app.py"}),
            "preview": ("A preview of a checkpoint", {"before": "chat_7f3a2b1c", "preview": True}),
        },
        errors=(*_CHANGING, errors.WorkspaceForbidden),
    ),
    _Path(
        "POST /v1/conversations/{id}/keep",
        "keepChanges",
        "Keep changes",
        "Marks changes as reviewed: they are no longer listed, and reverting the file does not revert them.",
        reply=changes.KeptFiles,
        body=changes.KeepRequest,
        bodies={"file": ("One file", {"path": "src/app.py"})},
        errors=_CHANGING,
    ),
    _Path(
        "POST /v1/conversations/{id}/commit",
        "commitChanges",
        "Commit changed files",
        "Without `message`, proposes one and lists the files. With it, commits them to the branch that is checked out. "
        "No hook, filter or signing program of the repository is run.",
        reply=changes.CommitResult,
        body=changes.CommitRequest,
        bodies={"proposal": ("A proposal", {})},
        errors=(*_CHANGING, errors.WorkspaceForbidden),
    ),
    _Path(
        "GET /v1/runs",
        "listRuns",
        "List recent runs",
        "Of all conversations, newest first.",
        reply=history.RunList,
        errors=[errors.StoreUnavailable],
        parameters=[api.page_size(50)],
    ),
    _Path(
        "GET /v1/usage",
        "getUsage",
        "Get the usage of the API key",
        "The tokens of its runs by the day (UTC) on which they ended and by model, and what it may use. Deleting "
        "conversations does not change it. With the setting `prices`, also what they cost.",
        reply=history.UsageReport,
        errors=[errors.StoreUnavailable],
        parameters=[
            api.query(
                "days", "How many days, with today.", {"type": "integer", "minimum": 1, "maximum": 366, "default": 30}
            )
        ],
    ),
]
_RUNNER = [api.path_id("The process's id.", "worker1-4242-77120-9f3a1c02")]
_QUEUE = [
    _Path(
        "GET /v1/queue",
        "getQueue",
        "Get the queue",
        "The requests that wait to be started: those of the API key, or of all keys for an administrator (setting "
        "`admin_keys`), without their prompts. Cancel one with `POST /v1/chat/{id}/cancel`.",
        reply=QueueReport,
        errors=[errors.StoreUnavailable],
    ),
    _Path(
        "POST /v1/runners/{id}/drain",
        "drainRunner",
        "Drain a process of a cluster",
        "It accepts no new work, and its runs continue. Only for administrators.",
        replies={"204": api.reply("It accepts no new work.")},
        errors=[errors.RequestForbidden, errors.NotFound, errors.StoreUnavailable],
        parameters=_RUNNER,
    ),
    _Path(
        "POST /v1/runners/{id}/undrain",
        "undrainRunner",
        "Let a drained process work again",
        "It accepts new work again. Only for administrators.",
        replies={"204": api.reply("It accepts new work.")},
        errors=[errors.RequestForbidden, errors.NotFound, errors.StoreUnavailable],
        parameters=_RUNNER,
    ),
]
_LINKS = [
    _Path(
        "POST /v1/conversations/{id}/link",
        "createLink",
        "Create a read-only link",
        "Whoever has the link can read the conversation without an API key, until it is revoked. It replaces an "
        "earlier link. Needs the setting `public_links`.",
        reply=history.ConversationLink,
        status="201",
        errors=[errors.RequestForbidden],
    ),
    _Path(
        "DELETE /v1/conversations/{id}/link",
        "revokeLink",
        "Revoke a read-only link",
        "The link stops working.",
        replies={"204": api.reply("Revoked.")},
    ),
    _Path(
        "GET /v1/links",
        "listLinks",
        "List read-only links",
        "The caller's conversations that have one. The links themselves are shown only when they are created.",
        reply=history.LinkList,
        errors=[errors.StoreUnavailable],
        parameters=[
            api.page_size(100),
            api.query("before", "The `next` of the previous page. Other values are rejected."),
        ],
    ),
    _Path(
        "GET /shared/{token}",
        "readLink",
        "Read a shared conversation",
        "A page without scripts: prompts and answers, no images, no files. Needs no API key.",
        replies={
            "200": api.reply("The conversation.", {"text/html": _TEXT}),
            "404": api.reply("There is no such link.", {"text/html": _TEXT}),
        },
        errors=[errors.TooManyRequests, errors.StoreUnavailable],
        parameters=[{**api.path_id("The link's token.", "Zk3vVq0cQ2n1"), "name": "token"}],
        is_open=True,
    ),
]
_PERMISSIONS = [
    _Path(
        "GET /v1/permissions",
        "listPermissions",
        "List permissions",
        "The caller's own decisions, newest first, and the operator's rules.",
        reply=PermissionList,
    ),
    _Path(
        "DELETE /v1/permissions/{id}",
        "revokePermission",
        "Revoke a permission",
        "Applies from the next run on. The document can then be decided again.",
        replies={"204": api.reply("Revoked.")},
        errors=[errors.NotFound],
        parameters=[api.path_id("The permission's id.", "perm_3b1d")],
    ),
]
# The first two are served to devices, the others to the operator; a gateway that is not shared has none.
_DEVICES = [
    _Path(
        "POST /v1/login",
        "logIn",
        "Log a device in",
        "Exchanges the code of a login link for a key. A code can be used once, and expires after ten minutes. Only on "
        "the address for other devices.",
        reply=history.LoginKey,
        status="201",
        body=history.LoginRequest,
        bodies={"code": ("The code of a link", {"code": "9f2c41"})},
        errors=[errors.NotFound, errors.TooManyRequests],
        is_open=True,
    ),
    _Path(
        "DELETE /v1/login",
        "logOut",
        "Log this device out",
        "The key of the request is no longer valid. Only on the address for other devices.",
        replies={"204": api.reply("Logged out.")},
        errors=[errors.NotFound],
    ),
    _Path(
        "POST /v1/logins",
        "createLoginLink",
        "Create a login link",
        "For one device. Only on this machine.",
        reply=history.LoginLink,
        status="201",
        errors=[errors.NotFound, errors.MediaTypeRefused],
    ),
    _Path(
        "GET /v1/devices",
        "listDevices",
        "List devices",
        "Those that have logged in. Only on this machine.",
        reply=history.DeviceList,
        errors=[errors.NotFound],
    ),
    _Path(
        "DELETE /v1/devices/{id}",
        "forgetDevice",
        "Log a device out",
        "Its key is no longer valid. Only on this machine.",
        replies={"204": api.reply("Logged out.")},
        errors=[errors.NotFound],
        parameters=[api.path_id("The device's id.", "dev_4f2a")],
    ),
]
_WORKSPACE = [
    _Path(
        "GET /v1/workspace/files",
        "findFiles",
        "Find files",
        "At most 20 files of a workspace, best match first. Files that git ignores are left out.",
        reply=WorkspaceFiles,
        errors=[errors.WorkspaceForbidden],
        parameters=[
            api.query("q", "Part of a path.", _SEARCH),
            api.query("workspace", "The folder; by default the gateway's."),
        ],
    ),
    _Path(
        "GET /v1/workspace/folders",
        "findFolders",
        "Find folders",
        "At most 20 folders that a conversation may use as its workspace.",
        reply=WorkspaceFolders,
        parameters=[api.query("q", "The beginning of a path.", _SEARCH)],
    ),
]
_OPERATION = [
    _Path(
        "GET /health",
        "getHealth",
        "Health",
        "Shows that the gateway is running, and which agent answers. Returns 503, with the same fields, if the agent "
        "is no longer installed.",
        reply=Health,
        errors=[errors.AgentMissing],
        is_open=True,
    ),
    _Path(
        "GET /livez",
        "getLivez",
        "Liveness",
        "For a supervisor that restarts the process. Needs no API key, and does not ask the database.",
        form=_OK,
        is_open=True,
    ),
    _Path(
        "GET /readyz",
        "getReadyz",
        "Readiness",
        "For a load balancer. Returns 503 while the process shuts down or is drained, and in a cluster while the "
        "database does not answer. Needs no API key.",
        form=_OK,
        is_open=True,
    ),
    _Path(
        "GET /metrics",
        "getMetrics",
        "Metrics",
        "Runs, tokens, failures, requests and times, in Prometheus format.",
        form={"text/plain": {"schema": api.TEXT, "example": _METRICS}},
    ),
    _Path(
        "GET /openapi.json",
        "getOpenapi",
        "OpenAPI document",
        "This API as an OpenAPI document.",
        form={"application/json": {"schema": api.OBJECT}},
        is_open=True,
    ),
    _Path(
        "GET /docs",
        "getDocs",
        "API documentation",
        "This API as a web page.",
        form={"text/html": _TEXT},
        is_open=True,
    ),
]
_ONLY_OF_RUNS = {
    errors.AgentLooped,
    errors.AgentUnconfined,
    errors.AnswerUnfit,
    errors.ModelUnavailable,
    errors.RunCancelled,
    errors.SessionLost,
    errors.ToolNotCalled,
    errors.WorkspaceUntrusted,
}


_MODELS_PAGE: Json = {"type": "integer", "minimum": 1, "maximum": 1000}


def _models() -> list[_Path]:
    failures = api.run_errors(errors.AgentError) - _ONLY_OF_RUNS
    either = {"anyOf": [api.ref("ModelList"), api.ref("ModelPage")]}
    replies = api.ok("The models.", api.json_content(either, _json(_example(ModelList))))
    return [
        _Path(
            "GET /v1/models",
            "listModels",
            "List models",
            "Lists the models of the agent's account. The list is cached for a while. A request with "
            "`anthropic-version` gets a `ModelPage`.",
            replies=replies,
            reply=ModelList,
            errors=failures,
            envelope=replace(api.OWN_ENVELOPE, other="MessagesError"),
            parameters=[
                api.header("anthropic-version", "Any value returns the list, or an error, in Anthropic's form."),
                api.query("limit", "The page size, for Anthropic clients.", _MODELS_PAGE),
                api.query("after_id", "Returns the models after this one, for Anthropic clients."),
                api.query("before_id", "Returns the models before this one, for Anthropic clients."),
            ],
        ),
        _Path(
            "GET /v1/models/{id}",
            "getModel",
            "Get a model",
            "Returns a model of the list. Claude's model names are accepted too.",
            reply=ListedModel,
            errors={*failures, errors.ModelUnavailable},
            parameters=[api.path_id("The model's id.", "auto")],
        ),
    ]


# --- examples of replies ----------------------------------------------------------------------------

# Fields by their values in examples. Others have their default, or the simplest value of their type.
_FIELDS: list[tuple[Any, str]] = [
    ("auto", "id model slug first_id last_id"),
    ("Auto", "name display_name description"),
    ("conv_9e8d7c6b", "conversation_id ConversationEntry.id ConversationDetail.id"),
    ("chat_7f3a2b1c", "chat_id RunEntry.id RecentRun.id QueuedRequest.id"),
    ("perm_3b1d", "PermissionEntry.id"),
    ("doc_002", "document_id"),
    ("completed", "state"),
    ("waiting", "QueuedRequest.state"),
    (3.5, "age_seconds"),
    ("2026-02-24T10:30:00Z", "expires"),
    ("worker1-4242-77120-9f3a1c02", "RunnerEntry.id"),
    ("worker1", "host"),
    ("2026-02-23T10:30:00.000Z", "created created_at updated"),
    (1771842600, "ListedModel.created"),
    ("What does this project do?", "title text prompt"),
    ("/home/me/calculator", "workspace"),
    (["/home/me/calculator"], "folders"),
    ("src/app.py", "path"),
    (["src/app.py"], "files"),
    ("edit", "operation"),
    ("python", "language"),
    ("x = 1", "old_string"),
    ("x = 2", "new_string"),
    (["Shell(npm)"], "rules"),
    (["Shell(git)"], "settings"),
    ("npm test", "subject"),
    ("Fix the failing tests", "message"),
    ("0a1b2c3d4e5f6071", "CommitResult.token FileChange.version"),
    ("undo_5d1e0f7a2b3c4d6e", "RevertedFiles.undo"),
    ("cli", "HealthSource.name"),
    (["cli"], "sources"),
    ("0.2.0", "Health.version RunnerEntry.version"),
    ("ok", "Health.status"),
    ("http://127.0.0.1:8787/shared/Zk3vVq0cQ2n1", "ConversationLink.url"),
    ("cg-…", "LoginKey.key"),
    ("http://127.0.0.1:8788/#/login/9f2c41", "LoginLink.url"),
    (1771843200, "expires_at"),
    ("dev_4f2a", "DeviceEntry.id"),
    ("Mozilla/5.0 (iPhone)", "DeviceEntry.name"),
    (1771842600, "DeviceEntry.created_at"),
    (None, "error_code next"),
]
_VALUES = {name: value for value, names in _FIELDS for name in names.split()}


def _json(value: Struct) -> Json:
    found: Json = msgspec.json.decode(msgspec.json.encode(value))
    return found


def _example(kind: Any, owner: str = "", name: str = "") -> Any:
    """A value of this type, which is that of the field `owner.name`."""
    parts = get_args(kind)
    if get_origin(kind) in (Annotated, Union, UnionType):
        return None if _VALUES.get(name, name) is None else _example(parts[0], owner, name)
    if isinstance(kind, type) and issubclass(kind, Struct):
        fields = [one for one in fields_of(kind) if one.required or f"{kind.__name__}.{one.name}" in _VALUES]
        return kind(**{one.name: _example(one.type, kind.__name__, one.name) for one in fields})
    if get_origin(kind) is list and isinstance(parts[0], type) and issubclass(parts[0], Struct):
        return [_example(parts[0])]
    simplest = {str: "", int: 1, bool: False}.get(kind, [])
    return _VALUES.get(f"{owner}.{name}", _VALUES.get(name, parts[0] if get_origin(kind) is Literal else simplest))
