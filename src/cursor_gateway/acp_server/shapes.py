"""The messages of the Agent Client Protocol, version 1, as far as this agent reads and sends them."""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

ToolKind: TypeAlias = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"]
ToolStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]
EntryStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
OptionKind: TypeAlias = Literal["allow_once", "allow_always", "reject_once"]
PromptEnd: TypeAlias = Literal["end_turn", "cancelled"]


class _Wire(Struct, frozen=True, kw_only=True, rename="camel"):
    pass


# --- content -----------------------------------------------------------------------------------------


class TextContent(_Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class ImageContent(_Wire, frozen=True, kw_only=True, tag_field="type", tag="image"):
    data: str  # base64
    mime_type: str


class ResourceLinkBlock(_Wire, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    uri: str
    name: str = ""


class ResourceContents(_Wire, frozen=True, kw_only=True):
    uri: str
    text: str | UnsetType = UNSET  # unset: it is binary
    mime_type: str | None = None
    blob: str = ""  # base64


class ResourceBlock(_Wire, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    resource: ResourceContents


class AudioBlock(_Wire, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    pass


PromptBlock: TypeAlias = TextContent | ImageContent | ResourceLinkBlock | ResourceBlock | AudioBlock


class ToolText(_Wire, frozen=True, kw_only=True, tag_field="type", tag="content"):
    content: TextContent


class ToolDiff(_Wire, frozen=True, kw_only=True, tag_field="type", tag="diff"):
    path: str  # absolute
    old_text: str | None  # None: a new file
    new_text: str


ToolContent: TypeAlias = ToolText | ToolDiff


class Location(_Wire, frozen=True, kw_only=True):
    path: str  # absolute
    line: int | UnsetType = UNSET  # from 1


# --- session updates ---------------------------------------------------------------------------------


class _Update(_Wire, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    pass


class UserMessageChunk(_Update, frozen=True, kw_only=True, tag="user_message_chunk"):
    content: TextContent | ImageContent
    message_id: str


class AgentMessageChunk(_Update, frozen=True, kw_only=True, tag="agent_message_chunk"):
    content: TextContent
    message_id: str


class AgentThoughtChunk(_Update, frozen=True, kw_only=True, tag="agent_thought_chunk"):
    content: TextContent
    message_id: str


class ToolCallDetails(_Wire, frozen=True, kw_only=True):
    """What is known of a tool call; in an update, what has changed."""

    tool_call_id: str
    title: str | UnsetType = UNSET
    kind: ToolKind | UnsetType = UNSET
    status: ToolStatus | UnsetType = UNSET
    content: list[ToolContent] | UnsetType = UNSET
    locations: list[Location] | UnsetType = UNSET
    raw_input: Any = UNSET
    raw_output: Any = UNSET


class ToolCallStart(ToolCallDetails, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call"):
    pass


class ToolCallUpdate(ToolCallDetails, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"):
    pass


class PlanEntry(_Wire, frozen=True, kw_only=True):
    content: str
    status: EntryStatus
    priority: Literal["medium"] = "medium"  # Cursor's to-dos have none


class PlanUpdate(_Update, frozen=True, kw_only=True, tag="plan"):
    entries: list[PlanEntry]


class ModeUpdate(_Update, frozen=True, kw_only=True, tag="current_mode_update"):
    current_mode_id: str


class ConfigUpdate(_Update, frozen=True, kw_only=True, tag="config_option_update"):
    config_options: "list[ConfigOption]"


class SessionInfoUpdate(_Update, frozen=True, kw_only=True, tag="session_info_update"):
    title: str
    updated_at: str


class UsageUpdate(_Update, frozen=True, kw_only=True, tag="usage_update"):
    used: int
    size: int


class NoticeUpdate(_Update, frozen=True, kw_only=True, tag="notice"):
    severity: Literal["warning"]
    title: str
    description: str


SessionUpdate: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallUpdate
    | PlanUpdate
    | ModeUpdate
    | ConfigUpdate
    | SessionInfoUpdate
    | UsageUpdate
    | NoticeUpdate
)


# --- what the client sends ---------------------------------------------------------------------------


class ElicitationModes(_Wire, frozen=True, kw_only=True):
    form: dict[str, Any] | None = None


class ClientSessionCapabilities(_Wire, frozen=True, kw_only=True):
    notices: dict[str, Any] | None = None


class ClientCapabilities(_Wire, frozen=True, kw_only=True):
    elicitation: ElicitationModes | None = None
    session: ClientSessionCapabilities | None = None

    @property
    def has_forms(self) -> bool:
        return self.elicitation is not None and self.elicitation.form is not None

    @property
    def has_notices(self) -> bool:
        return self.session is not None and self.session.notices is not None


class InitializeParams(_Wire, frozen=True, kw_only=True):
    protocol_version: int
    client_capabilities: ClientCapabilities = ClientCapabilities()


class EditorMcpServer(_Wire, frozen=True, kw_only=True):
    name: str = ""


class NewSessionParams(_Wire, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: list[EditorMcpServer] = []


class OpenSessionParams(NewSessionParams, frozen=True, kw_only=True):
    """Of `session/load` and `session/resume`."""

    session_id: str


class SessionParams(_Wire, frozen=True, kw_only=True):
    """Of `session/cancel`, `session/close` and `session/delete`."""

    session_id: str


class ListParams(_Wire, frozen=True, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class PromptParams(_Wire, frozen=True, kw_only=True):
    session_id: str
    prompt: list[PromptBlock]


class SetModeParams(_Wire, frozen=True, kw_only=True):
    session_id: str
    mode_id: str


class SetConfigParams(_Wire, frozen=True, kw_only=True):
    session_id: str
    config_id: str
    value: str


# --- answers to the client ---------------------------------------------------------------------------


class ModeEntry(_Wire, frozen=True, kw_only=True):
    id: str
    name: str
    description: str


class ModeState(_Wire, frozen=True, kw_only=True):
    current_mode_id: str
    available_modes: list[ModeEntry]


class ConfigValue(_Wire, frozen=True, kw_only=True):
    value: str
    name: str
    description: str | UnsetType = UNSET


class ConfigOption(_Wire, frozen=True, kw_only=True, tag_field="type", tag="select"):
    id: str
    name: str
    category: Literal["mode", "model"]
    current_value: str
    options: list[ConfigValue]


class SessionState(_Wire, frozen=True, kw_only=True):
    """The result of `session/load` and `session/resume`."""

    modes: ModeState
    config_options: list[ConfigOption]


class NewSession(SessionState, frozen=True, kw_only=True):
    session_id: str


class SessionEntry(_Wire, frozen=True, kw_only=True):
    session_id: str
    cwd: str
    title: str
    updated_at: str


class SessionList(_Wire, frozen=True, kw_only=True):
    sessions: list[SessionEntry]
    next_cursor: str | UnsetType = UNSET


class ConfigResult(_Wire, frozen=True, kw_only=True):
    config_options: list[ConfigOption]


class TokenUsage(_Wire, frozen=True, kw_only=True):
    total_tokens: int
    input_tokens: int
    output_tokens: int
    cached_read_tokens: int | UnsetType = UNSET
    thought_tokens: int | UnsetType = UNSET


class PromptResult(_Wire, frozen=True, kw_only=True):
    stop_reason: PromptEnd
    usage: TokenUsage | UnsetType = UNSET  # a draft of the protocol; clients that do not know it ignore it


# --- what the client is asked ------------------------------------------------------------------------


class PermissionOption(_Wire, frozen=True, kw_only=True):
    option_id: str
    name: str
    kind: OptionKind


class PermissionParams(_Wire, frozen=True, kw_only=True):
    session_id: str
    tool_call: ToolCallDetails
    options: list[PermissionOption]


class FormParams(_Wire, frozen=True, kw_only=True):
    """Of `elicitation/create`."""

    session_id: str
    tool_call_id: str
    message: str
    requested_schema: dict[str, Any]  # a JSON Schema
    mode: Literal["form"] = "form"


class Selection(_Wire, frozen=True, kw_only=True):
    outcome: str = ""
    option_id: str = ""


class PermissionResult(_Wire, frozen=True, kw_only=True):
    outcome: Selection = Selection()


class FormResult(_Wire, frozen=True, kw_only=True):
    action: str = ""
    content: dict[str, Any] | None = None
