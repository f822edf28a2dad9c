"""OpenAI's Responses API as a dialect: `/v1/responses` and the paths below it."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
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
    StoredAnswers,
    StreamForm,
)
from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.deltas import TextStyle
from cursor_gateway.dialects.replies import (
    Resumed,
    context_tokens,
)
from cursor_gateway.dialects.requests import numbered_attempt
from cursor_gateway.dialects.responses.conversation import (
    PREVIOUS_RESPONSE,
    Forms,
    Placed,
    declared_tools,
    pack,
    read_conversation,
    read_items,
)
from cursor_gateway.dialects.responses.encoder import (
    ResponseFold,
    ResponseHead,
    ResponseStream,
    failure_frames,
    keep_alive,
)
from cursor_gateway.dialects.responses.request import KeptRequest, ResponsesRequest, read_body, read_request
from cursor_gateway.dialects.responses.shapes import (
    RESPONSES_ERRORS,
    CompactionItem,
    ResponseCompaction,
    ResponseDeleted,
    ResponseInputItems,
    ResponseTokenCount,
    answer_id,
    estimated_input,
)
from cursor_gateway.errors import Failure, InvalidRequest, WebSocketRefused
from cursor_gateway.model.messages import Instructions, without_call_ids
from cursor_gateway.model.requests import NOT_STORED, run_options
from cursor_gateway.prompting.prompt import quotes_calls
from cursor_gateway.prompting.structured import instructions
from cursor_gateway.stages.tokens import estimate_tokens_by_sample

_PATH = "/v1/responses"
_CODEX_SSE = StreamForm(SSE.media_type, keep_alive())
_NO_RUN = "chat_none"


def responses_dialect(max_images: int, now: Callable[[], float], text: TextStyle = "exact") -> Dialect:
    """`now` returns the seconds since 1970; `text` is the default of requests that do not say how they want it."""
    return Dialect(
        routes=[Route(_PATH, "responses", partial(_read, max_images=max_images, now=now, text=text))],
        computed=[
            Route(_PATH, "responses", _refuse_websocket, "GET"),
            Route(f"{_PATH}/input_tokens", "input_tokens", count_tokens),
            Route(f"{_PATH}/compact", "compact", partial(compact, now=now)),
        ],
        answers=StoredAnswers(
            path=f"{_PATH}/{{id}}",
            items_path=f"{_PATH}/{{id}}/input_items",
            name="responses",
            open=_open,
            items=lambda kept, query: list_items(_kept(kept).input, query),
            deleted=deleted,
        ),
        replays=[Replay("responses", SSE, _resumed)],
        errors=RESPONSES_ERRORS,
        description="cursor_gateway.dialects.responses.openapi",
        answer_id=answer_id,
    )


# --- replies ----------------------------------------------------------------------------------------


class ResponsesReply(Struct, frozen=True, kw_only=True):
    asked: KeptRequest
    known: frozenset[str] = frozenset()  # the items that the client has got before
    starting_after: int = -1  # the number of the last event that it has
    media_type: str = "application/json"
    is_resumable: bool = False

    @property
    def form(self) -> StreamForm:
        return _CODEX_SSE if self.asked.is_codex else SSE

    @property
    def streams_failures(self) -> bool:
        """Codex shows the message of a response that failed, but retries most statuses."""
        return self.asked.is_codex

    def headers(self, run: RunView) -> Mapping[str, str]:
        """Codex repeats it in the later requests of the turn, so that logs and proxies see which run they belong to."""
        return {"x-codex-turn-state": run.info.id} if self.asked.is_codex else {}

    def stream(self, run: RunView, start: ReplyStart) -> ResponseStream:
        head = _head(self.asked, run, start.after)
        return ResponseStream(head, context_tokens(run, start), known=self.known, after=self.starting_after)

    def whole(self, run: RunView, start: ReplyStart) -> ResponseFold:
        return ResponseFold(_head(self.asked, run, start.after), context_tokens(run, start))


def _head(asked: KeptRequest, run: RunView, after: int) -> ResponseHead:
    return ResponseHead(run.info.id, after, run.created, run.info.model or asked.model, asked)


def _resumed(run: RunView, after: int) -> tuple[Encoder, int]:
    return Resumed(lambda pause: ResponseStream(_head(KeptRequest(), run, pause)), after), 0


def _open(kept: bytes, query: Mapping[str, str]) -> tuple[ResponsesReply, bool]:
    reply = ResponsesReply(asked=_kept(kept), starting_after=starting_after(query))
    return reply, query.get("stream") == "true"


def _kept(kept: bytes) -> KeptRequest:
    return msgspec.json.decode(kept, type=KeptRequest)


# --- requests ---------------------------------------------------------------------------------------


def _read(
    body: bytes, headers: Mapping[str, str], max_images: int, now: Callable[[], float], text: TextStyle
) -> StartRun:
    request = read_request(body, headers, max_images)
    request = replace(request, asked=replace(request.asked, text=request.cursor.text or text))
    codex, options, messages = request.codex, request.cursor, request.conversation.messages
    session = codex.session if codex is not None else headers.get("x-session-id") or headers.get("session-id") or ""
    parts = [request.instructions, instructions(request.format) if request.format is not None else ""]
    conversation_id = request.conversation_id or options.conversation_id
    start = StartRun(
        messages=messages,
        reply=ResponsesReply(asked=request.asked, known=request.known),
        check=_check(request),
        refused=partial(_refused, request.asked, now) if codex is not None and request.stream else None,
        stream=request.stream,
        background=request.background,
        kept=msgspec.json.encode(request.asked) if request.store else NOT_STORED,
        attempt=numbered_attempt(headers) if codex is None else "unknown",
        question_id=codex.turn if codex is not None else "",
        references=request.conversation.references,
        images=request.conversation.images,
        instructions="\n\n".join(filter(None, parts)),
        clients_retry=True,
        has_full_history=conversation_id is None and request.follows is None,
        client_session=session,
        # Only clients that run tools themselves name their sessions, or quote calls.
        has_own_tools=bool(session) or quotes_calls(messages),
        offer=request.toolbox.offer,
        model=request.model,
        workspace_if_allowed=codex.workspace if codex is not None else None,
        follows=request.follows,
        **run_options(replace(options, conversation_id=conversation_id)),
    )
    is_summary = request.asked.is_compaction or (codex is not None and codex.is_compaction)
    return _beside(start) if is_summary else start


def _refused(asked: KeptRequest, now: Callable[[], float], failure: Failure) -> bytes:
    return failure_frames(ResponseHead(_NO_RUN, 0, int(now()), asked.model, asked), failure)


def _beside(start: StartRun) -> StartRun:
    """A summary is written in a conversation of its own: a run that waits for results must not take them for it, and
    nothing must be changed for it."""
    return replace(
        start,
        messages=without_call_ids(start.messages),
        has_full_history=False,
        client_session=f"{start.client_session} summary",
        mode="ask",
    )


def _check(request: ResponsesRequest) -> Check | None:
    """Of an answer in the background, the JSON is taken when it is read."""
    if request.format is None or request.background:
        return None
    return Check(request.format, max_tokens=request.asked.max_tokens, param="text.format")


# --- without an agent -------------------------------------------------------------------------------


def _refuse_websocket(body: bytes, headers: Mapping[str, str]) -> bytes:
    raise WebSocketRefused("This gateway does not speak WebSocket; send a POST request.")


def count_tokens(body: bytes, headers: Mapping[str, str]) -> bytes:
    """An estimate: the model's own count is known only after it has answered."""
    wire = read_body(body)
    items = read_items(wire.input)
    guidance = wire.instructions if isinstance(wire.instructions, str) else ""
    tools = [*(wire.tools or ()), *(tool for _, tool in declared_tools(items))]
    offered = sum(estimate_tokens_by_sample(msgspec.json.encode(tool).decode()) for tool in tools)
    return msgspec.json.encode(ResponseTokenCount(input_tokens=_tokens(items, guidance) + offered))


def _tokens(items: list[Placed], guidance: str) -> int:
    read = read_conversation(items, guidance, Forms(), len(items) * 100).messages if items else [Instructions(guidance)]
    return sum(estimate_tokens_by_sample(message.text) for message in read)


def compact(body: bytes, headers: Mapping[str, str], now: Callable[[], float]) -> bytes:
    """The conversation as one item: it is packed, not shortened, which is for the agent to do when it has to."""
    wire = read_body(body)
    if wire.model is None:
        raise InvalidRequest("model is missing.", param="model")
    items = read_items(wire.input)
    packed_items = [placed.item for placed in items]
    if wire.previous_response_id is not None:
        packed_items.insert(0, {"type": PREVIOUS_RESPONSE, "id": wire.previous_response_id})
    packed = pack(packed_items)
    tokens = _tokens(items, "")
    name = hashlib.sha256(packed.encode()).hexdigest()[:32]
    compacted = ResponseCompaction(
        id=f"resp_{name}",
        created_at=int(now()),
        output=[CompactionItem(id=f"cmp_{name}", encrypted_content=packed)],
        usage=estimated_input(tokens),
    )
    return msgspec.json.encode(compacted)


# --- stored responses -------------------------------------------------------------------------------


_DEFAULT_LIMIT, _MOST = 20, 100
_PREFIXES = {
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}


def deleted(id: str) -> bytes:
    return msgspec.json.encode(ResponseDeleted(id=id))


def starting_after(query: Mapping[str, str]) -> int:
    """The number of the last event that a reader has; -1 for none."""
    asked = query.get("starting_after", "")
    if not asked:
        return -1
    if not (asked.isascii() and asked.isdigit() and len(asked) < 16):
        raise InvalidRequest("starting_after must be the sequence_number of an event.", param="starting_after")
    return int(asked)


def list_items(input: list[dict[str, Any]], query: Mapping[str, str]) -> bytes:
    """One page of the input items, the latest first unless another order is asked for."""
    items = [_complete(item, number) for number, item in enumerate(input)]
    order = query.get("order") or "desc"
    if order not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc.", param="order")
    if order == "desc":
        items.reverse()
    if after := query.get("after", ""):
        places = [place for place, item in enumerate(items, 1) if item["id"] == after]
        if not places:
            raise InvalidRequest("after must be the id of an input item of this response.", param="after")
        items = items[places[0] :]
    limit = _limit(query)
    page = items[:limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else ("", "")
    return msgspec.json.encode(ResponseInputItems(data=page, first_id=first, last_id=last, has_more=len(items) > limit))


def _limit(query: Mapping[str, str]) -> int:
    asked = query.get("limit", "") or str(_DEFAULT_LIMIT)
    if not (asked.isascii() and asked.isdigit() and len(asked) < 4 and 1 <= int(asked) <= _MOST):
        raise InvalidRequest(f"limit must be a number from 1 to {_MOST}.", param="limit")
    return int(asked)


def _complete(item: dict[str, Any], number: int) -> dict[str, Any]:
    """With what a client may leave out."""
    kind = item.get("type") or "message"
    full = {**item, "type": kind, "id": item.get("id") or f"{_PREFIXES.get(kind, 'msg')}_input_{number}"}
    if kind == "message":
        full.setdefault("status", "completed")
        if isinstance(full.get("content"), str):
            part = "output_text" if full.get("role") == "assistant" else "input_text"
            more: dict[str, Any] = {"annotations": []} if part == "output_text" else {}
            full["content"] = [{"type": part, "text": full["content"], **more}]
    return full
