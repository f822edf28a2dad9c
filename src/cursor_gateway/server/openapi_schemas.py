"""The schemas of the server's own replies."""

from msgspec import Struct

from cursor_gateway.dialects.openapi import Json, read_schemas, written_schemas
from cursor_gateway.model.changes import (
    CommitRequest,
    CommitResult,
    ConversationChanges,
    KeepRequest,
    KeptFiles,
    RevertedFiles,
    RevertRequest,
)
from cursor_gateway.model.history import (
    ConversationChange,
    ConversationDetail,
    ConversationLink,
    ConversationList,
    LinkList,
    RemovalPending,
    RunList,
)
from cursor_gateway.model.permissions import PermissionList
from cursor_gateway.server.models import ModelList, ModelPage
from cursor_gateway.server.operations import Health
from cursor_gateway.server.workspace import WorkspaceFiles, WorkspaceFolders


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
    ]
    return read_schemas([ConversationChange, RevertRequest, KeepRequest, CommitRequest], {}) | written_schemas(
        replies, {}, names={"ModelEntry": "Model", "TruncationPolicy": "CodexTruncationPolicy"}
    )
