"""The schemas of the server's own replies."""

from msgspec import Struct

from cursor_gateway.dialects.openapi import Json, read_schemas, written_schemas
from cursor_gateway.model.history import (
    ConversationChange,
    ConversationDetail,
    ConversationList,
    RemovalPending,
    RevertRequest,
    RunList,
)
from cursor_gateway.model.permissions import PermissionList
from cursor_gateway.server.changes import ConversationChanges, RevertedFiles
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
        RemovalPending,
        ConversationChanges,
        RevertedFiles,
        WorkspaceFiles,
        WorkspaceFolders,
        RunList,
        PermissionList,
    ]
    return read_schemas([ConversationChange, RevertRequest], {}) | written_schemas(
        replies, {}, names={"ModelEntry": "Model", "TruncationPolicy": "CodexTruncationPolicy"}
    )
