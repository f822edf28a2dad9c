"""What the API lists: conversations with their messages and runs, and the devices of a shared gateway."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.model.documents import Mode, Usage

RunStatus: TypeAlias = Literal["running", "completed", "error"]


class ConversationEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation without its messages."""

    id: Annotated[str, "The id, to send as `conversationId`."]
    title: Annotated[str, "The agent's title for it, or the first sentence of its first message."]
    created: Annotated[str, "When it started."]
    updated: Annotated[str, "When it was last used."]
    workspace: Annotated[str, "Its workspace."]
    mode: Annotated[Mode, "That of its latest run."]
    model: Annotated[str, "That of its latest run."]
    is_running: Annotated[bool, "Whether it has an active run."]
    is_waiting: Annotated[
        bool | UnsetType, "Whether it needs a person, to answer its run or to decide about a rejected command."
    ] = UNSET
    client: Annotated[str | UnsetType, "The name of the program that began it, if it was not a browser."] = UNSET
    pinned: Annotated[bool, "Whether it is listed at the top."] = False
    linked: Annotated[str | UnsetType, "Since when it has a read-only link."] = UNSET
    snippet: Annotated[str | UnsetType, "The text around the words that a search found."] = UNSET


class ConversationList(Struct, frozen=True, kw_only=True):
    """A page of conversations."""

    conversations: Annotated[list[ConversationEntry], "Newest first."]
    next: Annotated[str | None, "Send this as `before` to get the next page; null on the last page."]


class ConversationChange(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a conversation. Omitted fields do not change."""

    title: Annotated[Annotated[str, Meta(max_length=200)] | None, "Its new title."] = None
    pinned: Annotated[bool | None, "Whether it is listed at the top."] = None


class ConversationLink(Struct, frozen=True, kw_only=True):
    """A read-only link to a conversation. It is shown once: the gateway keeps only its hash."""

    url: Annotated[str, "Whoever has it can read the conversation, also what is added later."]


class LinkList(Struct, frozen=True, kw_only=True, rename="camel"):
    """The caller's conversations that have a read-only link."""

    conversations: Annotated[list[ConversationEntry], "Those that were used last come first."]
    next: Annotated[str | None, "Send this as `before` to get the next page; null on the last page."]
    can_create: Annotated[bool, "False if `public_links` is off; links then do not work."]


class RemovalPending(Struct, frozen=True):
    """A conversation that is deleted, except for the copies of some agents."""

    message: Annotated[str, "What is left to be deleted, and when."]


class MessageEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message."""

    role: Annotated[Literal["user", "assistant"], "The role."]
    text: Annotated[str, "The text; the documents of an answer are at `/v1/chat/{chatId}`."]
    images: Annotated[
        list[str] | UnsetType, "The names of its images, which are at `/v1/conversations/{id}/images/{name}`."
    ] = UNSET
    note: Annotated[
        str | UnsetType, "For people: what was allowed or denied, if the message only reports that to the agent."
    ] = UNSET
    chat_id: Annotated[str, "The run it belongs to."]
    created: Annotated[str, "When, in UTC."]


class RunEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run."""

    id: Annotated[str, "Its id, for `/v1/chat/{id}`."]
    state: Annotated[RunStatus, "The state of the run."]
    model: Annotated[str, "The requested model."]
    mode: Annotated[Mode, "The mode of the run."]
    created: Annotated[str, "When, in UTC."]
    first_event_ms: Annotated[int | None, "Time from the start to the first event."]
    duration_ms: Annotated[int | None, "Time from the start to the end."]
    usage: Annotated[Usage | None, "Its tokens; null until it has ended."]
    error_code: Annotated[str | None, "The error code, if it failed."]


class RecentRun(RunEntry, frozen=True, kw_only=True, rename="camel"):
    """A run with its conversation."""

    conversation_id: Annotated[str, "Its conversation."]
    title: Annotated[str, "The conversation's title."]
    prompt: Annotated[str, "The first line of its prompt."]
    tool_calls: Annotated[
        int | None, "The number of tool calls, including edits and commands; null until the run has ended."
    ]
    runner: Annotated[str | UnsetType, "In a cluster, the process that drives the run, or drove it."] = UNSET


class RunList(Struct, frozen=True, kw_only=True):
    """The most recent runs of all conversations."""

    runs: Annotated[list[RecentRun], "Newest first."]


class ConversationDetail(ConversationEntry, frozen=True, kw_only=True, rename="camel"):
    """A conversation with all its messages."""

    messages: Annotated[list[MessageEntry], "The messages."]
    runs: Annotated[list[RunEntry], "The runs, oldest first."]


# --- what an API key has used -------------------------------------------------------------------------


class UsedTokens(Struct, frozen=True, kw_only=True, rename="camel"):
    """What several runs used."""

    runs: Annotated[int, "How many runs ended."]
    prompt_tokens: Annotated[int, "Tokens read, including those from the cache."]
    completion_tokens: Annotated[int, "Tokens written."]
    total_tokens: Annotated[int, "The sum of both."]
    cached_tokens: Annotated[int, "The part of `promptTokens` that came from the cache."]
    cost: Annotated[
        float | UnsetType,
        "In US dollars, by the setting `prices`, of the models that have a price; omitted if none has.",
    ] = UNSET


class UsedByModel(UsedTokens, frozen=True, kw_only=True, rename="camel"):
    """The same of one model."""

    model: Annotated[str, "The model."]


class UsedOnDay(UsedTokens, frozen=True, kw_only=True, rename="camel"):
    """What the runs used that ended on one day."""

    day: Annotated[str, "The day (UTC), as YYYY-MM-DD."]
    models: Annotated[list[UsedByModel], "The same by model."]


class UsedInPeriod(UsedTokens, frozen=True, kw_only=True, rename="camel"):
    """What was used since the beginning of a day or a month, and what may be."""

    resets: Annotated[str, "When the next one begins, in UTC."]
    max_cost: Annotated[float | UnsetType, "How much may be spent in US dollars (setting `budgets`)."] = UNSET
    max_tokens: Annotated[int | UnsetType, "How many tokens may be used (setting `budgets`)."] = UNSET


class UsageReport(Struct, frozen=True, kw_only=True):
    """What the runs of an API key have used."""

    key: Annotated[str, "The name of the key; `local` without keys."]
    today: Annotated[UsedInPeriod, "Today (UTC)."]
    month: Annotated[UsedInPeriod, "This month (UTC)."]
    days: Annotated[list[UsedOnDay], "The days on which runs ended, the newest first."]


# --- devices that may log in ------------------------------------------------------------------------


class LoginRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A login."""

    code: Annotated[str, Meta(max_length=200), "The code from the link."]


class LoginKey(Struct, frozen=True):
    """The key of a device that has logged in."""

    key: Annotated[str, "An API key for this device."]


class LoginLink(Struct, frozen=True):
    """A link with which one device can log in."""

    url: Annotated[str, "The link. Open it on the device."]
    expires_at: Annotated[int, "When it expires, in seconds since 1970."]


class DeviceEntry(Struct, frozen=True):
    """A device that has logged in."""

    id: Annotated[str, "Its id."]
    name: Annotated[str, "What it calls itself (`User-Agent`)."]
    created_at: Annotated[int, "When it logged in, in seconds since 1970."]
    expires_at: Annotated[int, "When it must log in again, in seconds since 1970."]


class DeviceList(Struct, frozen=True):
    """The devices that have logged in."""

    devices: Annotated[list[DeviceEntry], "The oldest first."]
