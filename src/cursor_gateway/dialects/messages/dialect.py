"""Anthropic's Messages API as a dialect: `POST /v1/messages` and `/v1/messages/count_tokens`."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.dialects.actions import ActionDisplay
from cursor_gateway.dialects.base import (
    SSE,
    Dialect,
    Encoder,
    Replay,
    ReplyStart,
    Route,
    RunView,
    StartRun,
    StreamForm,
)
from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.deltas import ReplyState, TextStyle
from cursor_gateway.dialects.messages.blocks import BlockStep, Composer, Display
from cursor_gateway.dialects.messages.encoder import PING, MessageEncoder, MessageHead, message_of
from cursor_gateway.dialects.messages.request import MessagesRequest, countable, read_request
from cursor_gateway.dialects.messages.shapes import ANTHROPIC_ERRORS, answer_id, message_id
from cursor_gateway.dialects.replies import (
    JsonReply,
    Resumed,
    context_tokens,
)
from cursor_gateway.dialects.requests import numbered_attempt, with_headers
from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.messages import Instructions, Message, UserMessage, without_call_ids
from cursor_gateway.model.requests import run_options
from cursor_gateway.prompting.prompt import quotes_calls
from cursor_gateway.prompting.structured import instructions
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from cursor_gateway.wire.payload import Fields

# --- Claude Code ------------------------------------------------------------------------------------


Side: TypeAlias = Literal["title", "search", "summary"]

CHEAPEST = "claude-haiku"  # the model for side requests that need no judgement
_COMPACTION = "CRITICAL: Respond with TEXT ONLY"
_FOLDER = re.compile(r"(?:Primary working|Working) directory: ([^\n]+)")
_SESSION = "x-claude-code-session-id"
_OLD_SESSION = "_session_"
_WEB = ("web_search_", "web_fetch_")


def is_claude_code(headers: Mapping[str, str]) -> bool:
    return headers.get("user-agent", "").startswith("claude-cli") or _SESSION in headers


def session_of(headers: Mapping[str, str], user_id: str) -> str:
    """Claude Code's own name for the conversation; its subagents have conversations of their own. Empty: none."""
    session = headers.get(_SESSION) or _session_in(user_id)
    agent = headers.get("x-claude-code-agent-id", "")
    return f"{session} {agent}" if session and agent else session


def _session_in(user_id: str) -> str:
    if _OLD_SESSION in user_id:
        return user_id.rpartition(_OLD_SESSION)[2]
    try:
        return Fields(msgspec.json.decode(user_id)).text("session_id")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def side_request(
    tool_types: Sequence[str], *, has_format: bool, last_text: str, names_mode: bool = False
) -> Side | None:
    """What it is, if it is not the next turn of the conversation. `tool_types` are those of the request's tools;
    `names_mode`: it says in which mode the agent works, with the agent's own tools if it has none."""
    if tool_types and all(type.startswith(_WEB) for type in tool_types):
        return "search"
    if last_text.startswith(_COMPACTION):
        return "summary"
    return "title" if has_format or not (tool_types or names_mode) else None


def instructions_for(side: Side) -> str:
    match side:
        case "search":
            return "Search the web for this, then answer with what you found. Do not read or change files."
        case "title" | "summary":
            return "Answer from what is written here alone: use no tools, read no files, and change nothing."


def folder_of(messages: Sequence[Message]) -> str | None:
    """The folder in which Claude Code works, as its instructions say."""
    found = (_FOLDER.search(message.text) for message in messages if isinstance(message, Instructions))
    return next((match[1].strip() for match in found if match), None)


# --- the dialect ----------------------------------------------------------------------------------------


MESSAGE_STREAM = StreamForm(SSE.media_type, PING)


def messages_dialect(max_images: int, actions: ActionDisplay, text: TextStyle = "exact") -> Dialect:
    """`actions`: how the agent's own tools are shown, and `text`: whether the gateway adds to the agent's, unless a
    request says so."""
    read = partial(_read, max_images=max_images, actions=actions, text=text)
    return Dialect(
        routes=[Route("/v1/messages", "messages", read)],
        computed=[Route("/v1/messages/count_tokens", "count_tokens", _count_tokens)],
        replays=[Replay("messages", MESSAGE_STREAM, partial(_resumed, actions=actions))],
        errors=ANTHROPIC_ERRORS,
        header="anthropic-version",
        description="cursor_gateway.dialects.messages.openapi",
        answer_id=answer_id,
    )


# --- replies ----------------------------------------------------------------------------------------


class MessagesReply(JsonReply, Struct, frozen=True, kw_only=True):
    model: str  # as the client calls it
    display: Display
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    form: StreamForm = MESSAGE_STREAM

    def stream(self, run: RunView, start: ReplyStart) -> Encoder:
        return MessageEncoder(_head(run, start, self.model), self.composer(run, start))

    def whole(self, run: RunView, start: ReplyStart) -> "WholeMessage":
        return WholeMessage(self, run, start)

    def composer(self, run: RunView, start: ReplyStart) -> Composer:
        return Composer(run.info.id, self.display, self._cutter(), context_tokens(run, start))

    def _cutter(self) -> Cutter | None:
        return Cutter(self.stop, self.max_tokens) if self.stop or self.max_tokens is not None else None


class WholeMessage(ReplyState):
    def __init__(self, reply: MessagesReply, run: RunView, start: ReplyStart) -> None:
        self.after = start.after
        self._head, self._composer = _head(run, start, reply.model), reply.composer(run, start)
        super().__init__(self._composer.deltas)
        self._steps: list[BlockStep] = []

    def push(self, event: DocumentEvent, /) -> None:
        self._steps += self._composer.push(event)

    def error_body(self, failure: Failure) -> bytes | None:
        return None

    def body(self) -> bytes:
        return msgspec.json.encode(message_of(self._head, self._steps))


def _head(run: RunView, start: ReplyStart, model: str) -> MessageHead:
    return MessageHead(
        id=message_id(run.info.id, start.after),
        model=model,
        signature=run.info.id,
        input_tokens=context_tokens(run, start),
        request_id=start.request_id,
    )


def _resumed(run: RunView, after: int, actions: ActionDisplay) -> tuple[Encoder, int]:
    display = Display(thinking=True, actions=actions)

    def message(pause: int) -> MessageEncoder:
        head = _head(run, ReplyStart(pause), run.info.model or "")
        return MessageEncoder(head, Composer(run.info.id, display))

    return Resumed(message, after), 0


# --- requests ---------------------------------------------------------------------------------------


def _count_tokens(body: bytes, headers: Mapping[str, str]) -> bytes:
    return msgspec.json.encode({"input_tokens": sum(map(estimate_tokens_by_sample, countable(body)))})


def _read(
    body: bytes, headers: Mapping[str, str], max_images: int, actions: ActionDisplay, text: TextStyle
) -> StartRun:
    asked = read_request(body, max_images)
    options = with_headers(asked.cursor, headers)
    messages = asked.conversation.messages
    session = session_of(headers, asked.user_id)
    is_own = is_claude_code(headers)
    side = _side(asked, names_mode=options.mode is not None) if is_own else None
    reply = MessagesReply(
        model=asked.model,
        display=_display(asked, options.actions or actions, side, options.text or text),
        stop=asked.stop,
        max_tokens=asked.max_tokens,
    )
    start = StartRun(
        messages=messages,
        reply=reply,
        check=None if asked.format is None else Check(asked.format, asked.stop, asked.max_tokens),
        stream=asked.stream,
        attempt="unknown" if is_own else numbered_attempt(headers),  # Claude Code gives each attempt the number 0
        images=asked.conversation.images,
        instructions=instructions(asked.format) if asked.format is not None else "",
        clients_retry=True,
        has_full_history=options.conversation_id is None,
        client_session=session,
        offer=asked.offer,
        has_own_tools=bool(session) or quotes_calls(messages),
        model=asked.model,
        workspace_if_allowed=folder_of(messages) if is_own else None,
        **run_options(options),
    )
    return start if side is None else _beside(start, side)


def _side(asked: MessagesRequest, *, names_mode: bool) -> Side | None:
    last = asked.conversation.messages[-1]
    text = last.text if isinstance(last, UserMessage) else ""
    has_format = asked.format is not None
    return side_request(asked.tool_types, has_format=has_format, last_text=text, names_mode=names_mode)


def _beside(start: StartRun, side: Side) -> StartRun:
    """In a conversation of its own, without the caller's tools, and without writing."""
    is_simple = side == "search" or start.check is not None
    return msgspec.structs.replace(
        start,
        messages=without_call_ids(start.messages),
        instructions="\n\n".join(filter(None, [instructions_for(side), start.instructions])),
        has_full_history=False,
        client_session=f"{start.client_session} {side}",
        offer=None,
        model=CHEAPEST if is_simple else start.model,
        mode="ask",
        conversation_id=None,
    )


def _display(asked: MessagesRequest, actions: ActionDisplay, side: Side | None, text: TextStyle) -> Display:
    """Nothing is inserted into an answer that must have a format."""
    is_free = asked.format is None
    if side is not None:
        return Display(actions="search" if side == "search" and is_free else "none")
    is_shown = (actions == "text" or asked.takes_blocks) and (actions == "thinking" or is_free)
    has_notes = text == "readable" and is_free
    return Display(thinking=asked.thinking, actions=actions if is_shown else "none", notes=has_notes)
