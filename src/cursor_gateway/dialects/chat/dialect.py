"""OpenAI's chat completions as a dialect: `POST /v1/chat/completions`; answers as chunks or one completion."""

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.dialects.base import (
    SSE,
    Dialect,
    Encoder,
    Replay,
    ReplyStart,
    Route,
    RunView,
    StartRun,
)
from cursor_gateway.dialects.chat.encoder import ChunkEncoder, CompletionFold, CompletionHead
from cursor_gateway.dialects.chat.request import CompletionRequest, read_request
from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.deltas import AgentTools, TextStyle
from cursor_gateway.dialects.errors import OPENAI_ERRORS
from cursor_gateway.dialects.replies import (
    JsonReply,
    Resumed,
    context_tokens,
)
from cursor_gateway.dialects.requests import numbered_attempt, with_headers
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import (
    AnswerId,
)
from cursor_gateway.model.messages import Message, ToolMessage
from cursor_gateway.model.requests import Attempt, run_options
from cursor_gateway.prompting.fingerprints import answered
from cursor_gateway.prompting.prompt import quotes_calls
from cursor_gateway.prompting.structured import instructions
from cursor_gateway.stages.cutting import Cutter

_PREFIX = "chatcmpl-"
_RUN_PREFIX = "chat_"


def chat_dialect(max_images: int, agent_tools: AgentTools, text: TextStyle = "exact") -> Dialect:
    """`text` is the default of requests that do not say how they want it, and what those who resume a run get."""
    shown = ChatReply(agent_tools=agent_tools, include_usage=True, text=text)
    return Dialect(
        routes=[Route("/v1/chat/completions", "completions", partial(_read, max_images=max_images, shown=shown))],
        replays=[Replay("openai", SSE, partial(_resumed, shown=shown))],
        errors=OPENAI_ERRORS,
        description="cursor_gateway.dialects.chat.openapi",
        answer_id=answer_id,
    )


# --- ids --------------------------------------------------------------------------------------------


def completion_head(run: RunView, after: int = 0) -> CompletionHead:
    """The same for all readers of the run. Each reply of a run that pauses has its own id."""
    reply = f"-{after}" if after else ""
    id = f"{_PREFIX}{run.info.id.removeprefix(_RUN_PREFIX)}{reply}"
    return CompletionHead(id, run.created, run.info.model or "")


def answer_id(id: str) -> AnswerId | None:
    """Of a completion's id, as `completion_head` makes them."""
    if not id.startswith(_PREFIX):
        return None
    run, _, after = id.removeprefix(_PREFIX).partition("-")
    return AnswerId(_RUN_PREFIX + run, int(after) if after.isascii() and after.isdigit() and len(after) < 16 else 0)


# --- replies ----------------------------------------------------------------------------------------


class ChatReply(JsonReply, Struct, frozen=True, kw_only=True):
    agent_tools: AgentTools
    include_usage: bool = False
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    text: TextStyle = "exact"
    has_ids: bool = True

    def stream(self, run: RunView, start: ReplyStart) -> ChunkEncoder:
        return ChunkEncoder(
            completion_head(run, start.after),
            include_usage=self.include_usage,
            agent_tools=self.agent_tools,
            cutter=self.cutter(),
            prompt_tokens=self.prompt_tokens(run, start),
            text=self.text,
            after=start.after,
            has_ids=self.has_ids,
        )

    def whole(self, run: RunView, start: ReplyStart) -> CompletionFold:
        return CompletionFold(
            completion_head(run, start.after),
            agent_tools=self.agent_tools,
            cutter=self.cutter(),
            prompt_tokens=self.prompt_tokens(run, start),
            text=self.text,
            after=start.after,
        )

    def cutter(self) -> Cutter | None:
        return Cutter(self.stop, self.max_tokens) if self._is_limited else None

    def prompt_tokens(self, run: RunView, start: ReplyStart) -> int:
        """For the usage of an answer that is cut, which the agent does not report."""
        return context_tokens(run, start) if self._is_limited else 0

    @property
    def _is_limited(self) -> bool:
        return bool(self.stop) or self.max_tokens is not None


def _resumed(run: RunView, after: int, shown: ChatReply) -> tuple[Encoder, int]:
    return Resumed(lambda pause: shown.stream(run, ReplyStart(pause)), after, has_numbers=True), 0


# --- requests ---------------------------------------------------------------------------------------


def _read(body: bytes, headers: Mapping[str, str], max_images: int, shown: ChatReply) -> StartRun:
    asked, agent_tools = read_request(body, max_images), shown.agent_tools
    if asked.offer is not None and agent_tools == "tool_calls":
        raise InvalidRequest(
            "This gateway reports the agent's own tools as `tool_calls` (setting `agent_tools`), so a client would "
            "run them again; omit `tools`.",
            param="tools",
        )
    options = with_headers(asked.cursor, headers)
    client_session = headers.get("x-session-id") or headers.get("x-session-affinity") or ""
    return StartRun(
        messages=asked.messages,
        reply=_reply(asked, options.text or shown.text, shown),
        check=None if asked.format is None else Check(asked.format, asked.stop, asked.max_tokens),
        stream=asked.stream,
        images=asked.images,
        instructions=instructions(asked.format) if asked.format is not None else "",
        clients_retry=True,
        attempt=_attempt(asked.messages, headers),
        has_full_history=options.conversation_id is None,
        client_session=client_session,
        # Only clients that run tools themselves name their sessions, or quote calls that were not the agent's own.
        has_own_tools=agent_tools != "tool_calls" and (bool(client_session) or quotes_calls(asked.messages)),
        offer=asked.offer,
        model=asked.model,
        **run_options(options),
    )


def _attempt(messages: Sequence[Message], headers: Mapping[str, str]) -> Attempt:
    has_results = any(isinstance(message, ToolMessage) for message in messages[answered(messages) :])
    return "only" if has_results else numbered_attempt(headers)  # repeated results are recognized by themselves


def _reply(asked: CompletionRequest, text: TextStyle, shown: ChatReply) -> ChatReply:
    """Nothing is inserted into an answer that must have a format, and its events are not those of the run."""
    is_free = asked.format is None
    return replace(
        shown,
        include_usage=asked.include_usage,
        stop=asked.stop,
        max_tokens=asked.max_tokens,
        text=text if is_free else "exact",
        has_ids=is_free,
    )
