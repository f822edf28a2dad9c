"""Put the OpenAPI 3.1 document of the gateway together, from the descriptions of its dialects and its own paths."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from cursor_gateway import errors
from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.base import Description, Dialect, RunView, Sample
from cursor_gateway.dialects.openapi import Json, read_schemas, written_schemas
from cursor_gateway.model.answers import PermissionList
from cursor_gateway.model.changes import (
    CommitRequest,
    CommitResult,
    ConversationChanges,
    KeepRequest,
    KeptFiles,
    RevertedFiles,
    RevertRequest,
)
from cursor_gateway.model.health import Health
from cursor_gateway.model.history import (
    ConversationChange,
    ConversationDetail,
    ConversationLink,
    ConversationList,
    DeviceList,
    LinkList,
    LoginKey,
    LoginLink,
    LoginRequest,
    RemovalPending,
    RunList,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.schema import openapi_components
from cursor_gateway.server.changes import WorkspaceFiles, WorkspaceFolders
from cursor_gateway.server.models import CodexModel, ListedModel, ModelList, ModelPage

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
    of_dialects = [found for dialect in dialects if (found := dialect.describe(sample)) is not None]
    described = [*of_dialects, *own_paths()]
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


# --- schemas ----------------------------------------------------------------------------------------


def own_schemas() -> dict[str, Json]:
    replies: list[type[Struct]] = [
        ModelList,
        ModelPage,
        Health,
        ConversationList,
        ConversationDetail,
        ConversationLink,
        LinkList,
        RemovalPending,
        ConversationChanges,
        RevertedFiles,
        KeptFiles,
        CommitResult,
        WorkspaceFiles,
        WorkspaceFolders,
        RunList,
        PermissionList,
        LoginKey,
        LoginLink,
        DeviceList,
    ]
    return read_schemas(
        [ConversationChange, RevertRequest, KeepRequest, CommitRequest, LoginRequest], {}
    ) | written_schemas(replies, {}, names={"ListedModel": "Model", "TruncationPolicy": "CodexTruncationPolicy"})


# --- paths that belong to no dialect ----------------------------------------------------------------


_BYTES: Json = {"schema": {"type": "string", "format": "binary"}}
_IMAGES: Json = dict.fromkeys(("image/png", "image/jpeg", "image/gif", "image/webp"), _BYTES)


def own_paths() -> list[Description]:
    return [
        Description("History", "Conversations and runs.", _history(), own_schemas()),
        Description("Links", "Conversations that others may read.", _links()),
        Description("Permissions", "What callers have allowed the agent to do.", _permissions()),
        Description("Devices", "Logins of other devices, at a gateway that is shared (`serve --share`).", _devices()),
        Description("Workspace", "The folders that the agent may work in.", _workspace()),
        Description("Models", "The agent's models, for any client.", _models()),
        Description("Operation", "Monitoring, and the description of this API.", _monitoring()),
    ]


def _history() -> dict[str, Json]:
    id = api.path_id("The conversation's id.", "conv_9e8d7c6b")
    return {
        "GET /v1/conversations": api.operation(
            "listConversations",
            "List or search conversations",
            "Newest first. With `q`, only those that contain all its words: in messages, documents, commands and "
            "paths.",
            replies=api.json_ok("A page.", "ConversationList", {"conversations": [_CONVERSATION], "next": None}),
            errors=[errors.StoreUnavailable],
            parameters=[
                api.query("q", "Words to search for; the last one may be a prefix.", _SEARCH),
                api.page_size(20),
                api.query("before", "The `next` of the previous page. Other values are rejected."),
                api.query(
                    "client", "The program that began them; `people` for the page and the gateway's own commands."
                ),
                api.query("pinned", "`true` for all pinned conversations, on one page.", {"enum": ["true"]}),
            ],
        ),
        "GET /v1/conversations/{id}": api.operation(
            "getConversation",
            "Get a conversation",
            "Returns all messages. The documents of the answers are at `/v1/chat/{id}`.",
            replies=api.json_ok("The conversation.", "ConversationDetail", _DETAIL),
            errors=api.OF_STORED,
            parameters=[id],
        ),
        "PATCH /v1/conversations/{id}": api.operation(
            "changeConversation",
            "Rename or pin a conversation",
            "Omitted fields do not change.",
            body=api.json_body("ConversationChange", rename=("Rename and pin", {"title": "Login", "pinned": True})),
            replies=api.json_ok("The changed conversation.", "ConversationEntry", _CONVERSATION),
            errors=(*api.OF_STORED, *api.OF_BODIES),
            parameters=[id],
        ),
        "DELETE /v1/conversations/{id}": api.operation(
            "deleteConversation",
            "Delete a conversation",
            "Deletes its answers, its images and the agent's own copies on this machine. An active run is stopped. "
            "Recordings (`record_dir`), files that the agent has changed, and data sent to Cursor are not deleted.",
            replies={
                "202": api.reply(
                    "The conversation is deleted from the history; the agents' own copies are deleted as soon as "
                    "possible.",
                    api.json_content(api.ref("RemovalPending"), {"message": "The conversation is deleted. …"}),
                ),
                "204": api.reply("Deleted."),
            },
            errors=api.OF_STORED,
            parameters=[id],
        ),
        "GET /v1/conversations/{id}/export": api.operation(
            "exportConversation",
            "Export a conversation",
            "Returns the whole conversation as a file.",
            replies=api.ok(
                "The conversation.",
                {
                    "text/markdown": {"schema": api.TEXT},
                    "text/plain": {"schema": api.TEXT},
                    "application/json": {"schema": api.OBJECT},
                },
            ),
            errors=api.OF_STORED,
            parameters=[id, api.query("format", "Default: `markdown`.", {"enum": ["markdown", "json", "text"]})],
        ),
        "GET /v1/conversations/{id}/images/{name}": api.operation(
            "getConversationImage",
            "Get an image that was sent",
            "Messages contain the names of their images.",
            replies=api.ok("The image.", _IMAGES),
            errors=api.OF_STORED,
            parameters=[id, {**api.path_id("As in the message.", "0123456789abcdef.png"), "name": "name"}],
        ),
        "GET /v1/conversations/{id}/workspace-image": api.operation(
            "getWorkspaceImage",
            "Get an image in the workspace",
            "For images that an answer mentions. Only PNG, JPEG, GIF and WebP files of up to 10 MB are returned, and "
            "nothing outside of the conversation's workspace.",
            replies=api.ok("The image.", _IMAGES),
            errors=api.OF_STORED,
            parameters=[id, api.query("path", "The path below the workspace.")],
        ),
        "GET /v1/conversations/{id}/changes": api.operation(
            "getConversationChanges",
            "List the files that changed",
            "The gateway compares the workspace before and after each turn, so this includes what commands changed. "
            "Of turns that were not compared, it lists the edits that the agent reported.",
            replies=api.ok(
                "The files, or a patch that `git apply` accepts.",
                {**api.json_content(api.ref("ConversationChanges"), _CHANGES), "text/x-diff": {"schema": api.TEXT}},
            ),
            errors=api.OF_STORED,
            parameters=[
                id,
                api.query("dialect", "`patch` for a patch.", {"enum": ["json", "patch"]}),
                api.query("chatId", "Only the changes of this run."),
                api.query("path", "Only the patch of this file."),
                api.query("context", "Unchanged lines around each change in a patch. Default: 3.", {"type": "integer"}),
                api.query("open", "`true` for a patch without changes that were kept.", {"enum": ["true"]}),
            ],
        ),
        "POST /v1/conversations/{id}/revert": api.operation(
            "revertChanges",
            "Revert files",
            "Restores the exact content that files had before: of one file, of some of its changes, of all files of a "
            "turn (`chatId`), or of all files before a turn (`before`). Files that did not exist are deleted. With "
            "`preview`, only says what would change. Fails with 409, and changes nothing, if a file is no longer as "
            "the agent left it, unless `token` is that of a preview which showed the file as it is.",
            body=api.json_body(
                "RevertRequest",
                file=("One file", {"path": "src/app.py"}),
                preview=("A preview of a checkpoint", {"before": "chat_7f3a2b1c", "preview": True}),
            ),
            replies=api.json_ok("The reverted files.", "RevertedFiles", _REVERTED),
            errors=(
                *api.OF_STORED,
                *api.OF_BODIES,
                errors.ConversationBusy,
                errors.FileChanged,
                errors.WorkspaceForbidden,
            ),
            parameters=[id],
        ),
        "POST /v1/conversations/{id}/keep": api.operation(
            "keepChanges",
            "Keep changes",
            "Marks changes as reviewed: they are no longer listed, and reverting the file does not revert them.",
            body=api.json_body("KeepRequest", file=("One file", {"path": "src/app.py"})),
            replies=api.json_ok("The files.", "KeptFiles", {"files": ["src/app.py"]}),
            errors=(*api.OF_STORED, *api.OF_BODIES, errors.ConversationBusy, errors.FileChanged),
            parameters=[id],
        ),
        "POST /v1/conversations/{id}/commit": api.operation(
            "commitChanges",
            "Commit changed files",
            "Without `message`, proposes one and lists the files. With it, commits them to the branch that is checked "
            "out. No hook, filter or signing program of the repository is run.",
            body=api.json_body("CommitRequest", proposal=("A proposal", {})),
            replies=api.json_ok("The commit, or its proposal.", "CommitResult", _COMMIT),
            errors=(
                *api.OF_STORED,
                *api.OF_BODIES,
                errors.ConversationBusy,
                errors.FileChanged,
                errors.WorkspaceForbidden,
            ),
            parameters=[id],
        ),
        "GET /v1/runs": api.operation(
            "listRuns",
            "List recent runs",
            "Of all conversations, newest first.",
            replies=api.json_ok("The runs.", "RunList", {"runs": [_RECENT]}),
            errors=[errors.StoreUnavailable],
            parameters=[api.page_size(50)],
        ),
    }


def _devices() -> dict[str, Json]:
    """Two of them are served to devices, the others to the operator; a gateway that is not shared has none."""
    link = {"url": "http://127.0.0.1:8788/#/login/9f2c41", "expires_at": 1771843200}
    device = {"id": "dev_4f2a", "name": "Mozilla/5.0 (iPhone)", "created_at": 1771842600, "expires_at": 1779618600}
    return {
        "POST /v1/login": api.operation(
            "logIn",
            "Log a device in",
            "Exchanges the code of a login link for a key. A code can be used once, and expires after ten minutes. "
            "Only on the address for other devices.",
            body=api.json_body("LoginRequest", code=("The code of a link", {"code": "9f2c41"})),
            replies={"201": _created("The key of this device.", "LoginKey", {"key": "cg-…"})},
            errors=(*api.OF_BODIES, errors.TooManyRequests),
            is_open=True,
        ),
        "DELETE /v1/login": api.operation(
            "logOut",
            "Log this device out",
            "The key of the request is no longer valid. Only on the address for other devices.",
            replies={"204": api.reply("Logged out.")},
        ),
        "POST /v1/logins": api.operation(
            "createLoginLink",
            "Create a login link",
            "For one device. Only on this machine.",
            replies={"201": _created("The link.", "LoginLink", link)},
            errors=[errors.MediaTypeRefused],
        ),
        "GET /v1/devices": api.operation(
            "listDevices",
            "List devices",
            "Those that have logged in. Only on this machine.",
            replies=api.json_ok("The devices.", "DeviceList", {"devices": [device]}),
        ),
        "DELETE /v1/devices/{id}": api.operation(
            "forgetDevice",
            "Log a device out",
            "Its key is no longer valid. Only on this machine.",
            replies={"204": api.reply("Logged out.")},
            errors=[errors.NotFound],
            parameters=[api.path_id("The device's id.", "dev_4f2a")],
        ),
    }


def _created(about: str, schema: str, example: Json) -> Json:
    return api.reply(about, api.json_content(api.ref(schema), example))


def _links() -> dict[str, Json]:
    id = api.path_id("The conversation's id.", "conv_9e8d7c6b")
    return {
        "POST /v1/conversations/{id}/link": api.operation(
            "createLink",
            "Create a read-only link",
            "Whoever has the link can read the conversation without an API key, until it is revoked. It replaces an "
            "earlier link. Needs the setting `public_links`.",
            replies={"201": api.json_ok("The link.", "ConversationLink", _LINK)["200"]},
            errors=[errors.NotFound, errors.RequestForbidden, errors.StoreUnavailable],
            parameters=[id],
        ),
        "DELETE /v1/conversations/{id}/link": api.operation(
            "revokeLink",
            "Revoke a read-only link",
            "The link leads nowhere from then on.",
            replies={"204": api.reply("Revoked.")},
            errors=[errors.NotFound, errors.StoreUnavailable],
            parameters=[id],
        ),
        "GET /v1/links": api.operation(
            "listLinks",
            "List read-only links",
            "The caller's conversations that have one. The links themselves are shown only when they are created.",
            replies=api.json_ok("The list.", "LinkList", {"conversations": [_CONVERSATION], "canCreate": True}),
            errors=[errors.StoreUnavailable],
        ),
        "GET /shared/{token}": api.operation(
            "readLink",
            "Read a shared conversation",
            "A page without scripts: prompts and answers, no images, no files. Needs no API key.",
            replies={
                "200": api.reply("The conversation.", {"text/html": {"schema": api.TEXT}}),
                "404": api.reply("There is no such link.", {"text/html": {"schema": api.TEXT}}),
            },
            errors=[errors.TooManyRequests, errors.StoreUnavailable],
            parameters=[{**api.path_id("The link's token.", "Zk3vVq0cQ2n1"), "name": "token"}],
            is_open=True,
        ),
    }


def _permissions() -> dict[str, Json]:
    return {
        "GET /v1/permissions": api.operation(
            "listPermissions",
            "List permissions",
            "The caller's own decisions, newest first, and the operator's rules.",
            replies=api.json_ok("The permissions.", "PermissionList", _PERMISSIONS),
        ),
        "DELETE /v1/permissions/{id}": api.operation(
            "revokePermission",
            "Revoke a permission",
            "Applies from the next run on. The document can then be decided again.",
            replies={"204": api.reply("Revoked.")},
            errors=[errors.NotFound],
            parameters=[api.path_id("The permission's id.", "perm_3b1d")],
        ),
    }


def _workspace() -> dict[str, Json]:
    return {
        "GET /v1/workspace/files": api.operation(
            "findFiles",
            "Find files",
            "At most 20 files of a workspace, best match first. Files that git ignores are left out.",
            replies=api.json_ok("The files.", "WorkspaceFiles", {"files": ["src/app.py"]}),
            errors=[errors.WorkspaceForbidden],
            parameters=[
                api.query("q", "Part of a path.", _SEARCH),
                api.query("workspace", "The folder; by default the gateway's."),
            ],
        ),
        "GET /v1/workspace/folders": api.operation(
            "findFolders",
            "Find folders",
            "At most 20 folders that a conversation may use as its workspace.",
            replies=api.json_ok("The folders.", "WorkspaceFolders", {"folders": ["/home/me/calculator"]}),
            parameters=[api.query("q", "The beginning of a path.", _SEARCH)],
        ),
    }


def _models() -> dict[str, Json]:
    model: Json = msgspec.to_builtins(
        ListedModel(id="auto", created=1771842600, name="Auto", display_name="Auto", created_at="2026-02-23T10:30:00Z")
    )
    codex = CodexModel(slug="auto", display_name="Auto", description="Auto, by Cursor", priority=0)
    models = {
        "object": "list",
        "data": [model],
        "models": [msgspec.json.decode(msgspec.json.encode(codex))],
        "has_more": False,
        "first_id": "auto",
        "last_id": "auto",
    }
    failures = api.run_errors(errors.AgentError) - _ONLY_OF_RUNS
    return {
        "GET /v1/models": api.operation(
            "listModels",
            "List models",
            "Lists the models of the agent's account. The list is cached for a while. A request with "
            "`anthropic-version` gets a `ModelPage`.",
            replies=api.ok(
                "The models.", api.json_content({"anyOf": [api.ref("ModelList"), api.ref("ModelPage")]}, models)
            ),
            errors=failures,
            envelope=api.Envelope(api.OWN_ENVELOPE.schema, api.OWN_ENVELOPE.example, "MessagesError"),
            parameters=[
                api.header("anthropic-version", "Any value returns the list, or an error, in Anthropic's form."),
                api.query(
                    "limit",
                    "The page size, for Anthropic clients.",
                    {"type": "integer", "minimum": 1, "maximum": 1000},
                ),
                api.query("after_id", "Returns the models after this one, for Anthropic clients."),
                api.query("before_id", "Returns the models before this one, for Anthropic clients."),
            ],
        ),
        "GET /v1/models/{id}": api.operation(
            "getModel",
            "Get a model",
            "Returns a model of the list. Claude's model names are accepted too.",
            replies=api.json_ok("The model.", "Model", model),
            errors={*failures, errors.ModelUnavailable},
            parameters=[api.path_id("The model's id.", "auto")],
        ),
    }


def _monitoring() -> dict[str, Json]:
    return {
        "GET /health": api.operation(
            "getHealth",
            "Health",
            "Shows that the gateway is running, and which agent answers. Returns 503, with the same fields, if the "
            "agent is no longer installed.",
            replies=api.json_ok("The gateway is running.", "Health", _HEALTH),
            errors=[errors.AgentMissing],
            is_open=True,
        ),
        "GET /livez": api.operation(
            "getLivez",
            "Liveness",
            "For a supervisor that restarts the process. Needs no API key, and does not ask the database.",
            replies=api.ok("The process is alive.", {"text/plain": {"schema": api.TEXT, "example": "ok\n"}}),
            is_open=True,
        ),
        "GET /readyz": api.operation(
            "getReadyz",
            "Readiness",
            "For a load balancer. Returns 503 while the process shuts down or is drained, and in a cluster while the "
            "database does not answer. Needs no API key.",
            replies=api.ok("The process accepts requests.", {"text/plain": {"schema": api.TEXT, "example": "ok\n"}}),
            is_open=True,
        ),
        "GET /metrics": api.operation(
            "getMetrics",
            "Metrics",
            "Runs, tokens, failures, requests and times, in Prometheus format.",
            replies=api.ok("The metrics.", {"text/plain": {"schema": api.TEXT, "example": _METRICS}}),
        ),
        "GET /openapi.json": api.operation(
            "getOpenapi",
            "OpenAPI document",
            "This API as an OpenAPI document.",
            replies=api.ok("An OpenAPI 3.1 document.", {"application/json": {"schema": api.OBJECT}}),
            is_open=True,
        ),
        "GET /docs": api.operation(
            "getDocs",
            "API documentation",
            "This API as a web page.",
            replies=api.ok("A page.", {"text/html": {"schema": api.TEXT}}),
            is_open=True,
        ),
    }


# --- examples ---------------------------------------------------------------------------------------

_SEARCH: Json = {"type": "string", "maxLength": 1000}
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
_HEALTH: Json = {
    "status": "ok",
    "version": "0.2.0",
    "source": {"name": "cli", "detail": "cursor-agent 2026.02.20", "demo": False},
    "sources": ["cli"],
    "mode": "agent",
    "model": "auto",
    "runs": {"running": 0, "limit": 8},
}
_CONVERSATION: Json = {
    "id": "conv_9e8d7c6b",
    "title": "What does this project do?",
    "created": "2026-02-23T10:30:00.000Z",
    "updated": "2026-02-23T10:30:02.400Z",
    "workspace": "/home/me/calculator",
    "mode": "ask",
    "model": "auto",
    "isRunning": False,
    "pinned": False,
}
_CHANGES: Json = {
    "files": [
        {
            "path": "src/app.py",
            "operation": "edit",
            "language": "python",
            "diffs": [{"oldString": "x = 1", "newString": "x = 2", "startLine": 3, "endLine": 3}],
            "canRevert": True,
            "hunks": [{"oldStart": 3, "oldLines": 1, "newStart": 3, "newLines": 1}],
            "added": 1,
            "removed": 1,
            "version": "9f2c6a1d0e4b8c37",
            "isKept": False,
            "isEdit": True,
            "note": "",
        }
    ],
    "notes": [],
    "workspace": "/home/ada/shop",
}
_REVERTED: Json = {
    "files": [{"path": "src/app.py", "action": "restored", "added": 1, "removed": 1}],
    "undo": "undo_5d1e0f7a2b3c4d6e",
}
_COMMIT: Json = {
    "message": "Fix the failing tests",
    "files": ["src/app.py"],
    "token": "0a1b2c3d4e5f6071",
    "branch": "main",
}
_RUN_ENTRY: Json = {
    "id": "chat_7f3a2b1c",
    "state": "completed",
    "model": "auto",
    "mode": "ask",
    "created": "2026-02-23T10:30:00Z",
    "firstEventMs": 900,
    "durationMs": 2400,
    "usage": {"promptTokens": 1510, "completionTokens": 9, "totalTokens": 1519, "cachedTokens": 1200},
    "errorCode": None,
}
_DETAIL: Json = {
    **_CONVERSATION,
    "messages": [
        {
            "role": "user",
            "text": "What does this project do?",
            "chatId": "chat_7f3a2b1c",
            "created": "2026-02-23T10:30:00.000Z",
        },
        {
            "role": "assistant",
            "text": "It is a calculator for the terminal.",
            "chatId": "chat_7f3a2b1c",
            "created": "2026-02-23T10:30:02.400Z",
        },
    ],
    "runs": [_RUN_ENTRY],
}
_LINK: Json = {"url": "https://gateway.example/shared/Zk3vVq0cQ2n1"}
_PERMISSIONS: Json = {
    "permissions": [
        {
            "id": "perm_3b1d",
            "decision": "workspace",
            "rules": ["Shell(npm)"],
            "subject": "npm test",
            "reason": "",
            "workspace": "/home/ada/shop",
            "conversationId": "conv_9e8d7c6b",
            "chatId": "chat_7f3a2b1c",
            "documentId": "doc_002",
            "created": "2026-10-01T12:00:00Z",
        }
    ],
    "settings": ["Shell(git)"],
    "canAllow": True,
    "allowsEverything": False,
}
_RECENT: Json = {
    **_RUN_ENTRY,
    "conversationId": "conv_9e8d7c6b",
    "title": "What does this project do?",
    "prompt": "What does this project do?",
    "toolCalls": 0,
}
_METRICS = """\
# HELP cursor_gateway_runs_running Runs whose agent is there.
# TYPE cursor_gateway_runs_running gauge
cursor_gateway_runs_running 0.0
"""
