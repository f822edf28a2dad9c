"""What the API lists: conversations with their messages and runs, the devices of a shared gateway, its health."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.model.documents import Mode, Usage

RunStatus: TypeAlias = Literal["running", "completed", "error"]


class ConversationEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation without its messages."""

    id: Annotated[str, Meta(description="The id, to send as `conversationId`.")]
    title: Annotated[str, Meta(description="The agent's title for it, or the first sentence of its first message.")]
    created: Annotated[str, Meta(description="When it started.")]
    updated: Annotated[str, Meta(description="When it was last used.")]
    workspace: Annotated[str, Meta(description="Its workspace.")]
    mode: Annotated[Mode, Meta(description="That of its latest run.")]
    model: Annotated[str, Meta(description="That of its latest run.")]
    is_running: Annotated[bool, Meta(description="Whether it has an active run.")]
    is_waiting: Annotated[
        bool | UnsetType,
        Meta(description="Whether it needs a person, to answer its run or to decide about a rejected command."),
    ] = UNSET
    client: Annotated[
        str | UnsetType, Meta(description="The name of the program that began it, if it was not a browser.")
    ] = UNSET
    pinned: Annotated[bool, Meta(description="Whether it is listed at the top.")] = False
    snippet: Annotated[str | UnsetType, Meta(description="The text around the words that a search found.")] = UNSET


class ConversationList(Struct, frozen=True, kw_only=True):
    """A page of conversations."""

    conversations: Annotated[list[ConversationEntry], Meta(description="Newest first.")]
    next: Annotated[str | None, Meta(description="Send this as `before` to get the next page; null on the last page.")]


class ConversationChange(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a conversation. Omitted fields do not change."""

    title: Annotated[Annotated[str, Meta(max_length=200)] | None, Meta(description="Its new title.")] = None
    pinned: Annotated[bool | None, Meta(description="Whether it is listed at the top.")] = None


class RemovalPending(Struct, frozen=True):
    """A conversation that is deleted, except for the copies of some agents."""

    message: Annotated[str, Meta(description="What is left to be deleted, and when.")]


class MessageEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message."""

    role: Annotated[Literal["user", "assistant"], Meta(description="The role.")]
    text: Annotated[str, Meta(description="The text; the documents of an answer are at `/v1/chat/{chatId}`.")]
    images: Annotated[
        list[str] | UnsetType,
        Meta(description="The names of its images, which are at `/v1/conversations/{id}/images/{name}`."),
    ] = UNSET
    note: Annotated[
        str | UnsetType,
        Meta(description="For people: what was allowed or denied, if the message only reports that to the agent."),
    ] = UNSET
    chat_id: Annotated[str, Meta(description="The run it belongs to.")]
    created: Annotated[str, Meta(description="When, in UTC.")]


class RunEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run."""

    id: Annotated[str, Meta(description="Its id, for `/v1/chat/{id}`.")]
    state: Annotated[RunStatus, Meta(description="The state of the run.")]
    model: Annotated[str, Meta(description="The requested model.")]
    mode: Annotated[Mode, Meta(description="The mode of the run.")]
    created: Annotated[str, Meta(description="When, in UTC.")]
    first_event_ms: Annotated[int | None, Meta(description="Time from the start to the first event.")]
    duration_ms: Annotated[int | None, Meta(description="Time from the start to the end.")]
    usage: Annotated[Usage | None, Meta(description="Its tokens; null until it has ended.")]
    error_code: Annotated[str | None, Meta(description="The error code, if it failed.")]


class RecentRun(RunEntry, frozen=True, kw_only=True, rename="camel"):
    """A run with its conversation."""

    conversation_id: Annotated[str, Meta(description="Its conversation.")]
    title: Annotated[str, Meta(description="The conversation's title.")]
    prompt: Annotated[str, Meta(description="The first line of its prompt.")]
    tool_calls: Annotated[
        int | None,
        Meta(description="The number of tool calls, including edits and commands; null until the run has ended."),
    ]
    runner: Annotated[
        str | UnsetType, Meta(description="In a cluster, the process that drives the run, or drove it.")
    ] = UNSET


class RunList(Struct, frozen=True, kw_only=True):
    """The most recent runs of all conversations."""

    runs: Annotated[list[RecentRun], Meta(description="Newest first.")]


class ConversationDetail(ConversationEntry, frozen=True, kw_only=True, rename="camel"):
    """A conversation with all its messages."""

    messages: Annotated[list[MessageEntry], Meta(description="The messages.")]
    runs: Annotated[list[RunEntry], Meta(description="The runs, oldest first.")]


# --- devices that may log in ------------------------------------------------------------------------


class LoginRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A login."""

    code: Annotated[str, Meta(description="The code from the link.", max_length=200)]


class LoginKey(Struct, frozen=True):
    """The key of a device that has logged in."""

    key: Annotated[str, Meta(description="An API key for this device.")]


class LoginLink(Struct, frozen=True):
    """A link with which one device can log in."""

    url: Annotated[str, Meta(description="The link. Open it on the device.")]
    expires_at: Annotated[int, Meta(description="When it expires, in seconds since 1970.")]


class DeviceEntry(Struct, frozen=True):
    """A device that has logged in."""

    id: Annotated[str, Meta(description="Its id.")]
    name: Annotated[str, Meta(description="What it calls itself (`User-Agent`).")]
    created_at: Annotated[int, Meta(description="When it logged in, in seconds since 1970.")]
    expires_at: Annotated[int, Meta(description="When it must log in again, in seconds since 1970.")]


class DeviceList(Struct, frozen=True):
    """The devices that have logged in."""

    devices: Annotated[list[DeviceEntry], Meta(description="The oldest first.")]


# --- the gateway; older ones leave out what has a default ------------------------------------------


class HealthSource(Struct, frozen=True):
    """The backend."""

    name: Annotated[
        str, Meta(description="`cli` for Cursor's agent, `replay` for recordings, `demo` for the built-in one.")
    ]
    detail: Annotated[
        str, Meta(description="The program and version, or the recordings; empty if API keys are configured.")
    ]
    demo: Annotated[bool, Meta(description="Whether the gateway runs as a demo.")] = False


class HealthRuns(Struct, frozen=True):
    """The load."""

    running: Annotated[int, Meta(description="Active runs.")]
    limit: Annotated[int, Meta(description="The maximum; further runs get 429.")]


class Health(Struct, frozen=True, kw_only=True):
    """The state of the gateway."""

    status: Annotated[
        str,  # to readers: a newer gateway may have others
        Meta(
            description="`ok`, `degraded` if the history cannot be used, `unavailable` if no run can be started.",
            extra_json_schema={"enum": ["ok", "degraded", "unavailable"]},
        ),
    ]
    version: Annotated[str, Meta(description="The gateway's version.")]
    source: Annotated[HealthSource, Meta(description="The default backend.")]
    sources: Annotated[list[str], Meta(description="The names of all backends, for `source` in requests.")] = []
    mode: Annotated[Mode, Meta(description="The default mode.")] = "agent"
    model: Annotated[str, Meta(description="The default model.")] = ""
    runs: HealthRuns
    workspace: Annotated[
        str | UnsetType, Meta(description="The default workspace; shown only if no API keys are configured.")
    ] = UNSET
    problem: Annotated[
        str | UnsetType, Meta(description="What is wrong; omitted if nothing is, or if API keys are required.")
    ] = UNSET
