"""The AI SDK's UI messages as a dialect: `POST /v1/ai-sdk`, its streams, and their resumption by the chat's id.

A message has parts of many types, and new ones come with new versions of the AI SDK: those that say nothing to the
agent are ignored.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.dialects import ui
from cursor_gateway.dialects.base import (
    SSE,
    Dialect,
    NamedStreams,
    Replay,
    ReplyStart,
    Route,
    RunAction,
    RunView,
)
from cursor_gateway.dialects.errors import Errors
from cursor_gateway.dialects.requests import invalid, is_image, read_text_file
from cursor_gateway.errors import RunCancelled
from cursor_gateway.model.answers import Permission, PlanDecision, QuestionAnswers
from cursor_gateway.model.messages import (
    Image,
    Instructions,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_content,
    check_images,
    check_length,
    read_image,
)
from cursor_gateway.model.requests import NonEmpty
from cursor_gateway.wire.json_body import read_json

if TYPE_CHECKING:
    from cursor_gateway.dialects.openapi import Description, Sample

# --- requests -----------------------------------------------------------------------------------------


class _Approval(Struct, frozen=True):
    """An approval that the page was asked for."""

    id: Annotated[str, "The id of the request for approval."]
    approved: Annotated[bool | None, "The person's decision."] = None
    reason: Annotated[str | None, "The reason, which the agent gets if it is denied."] = None


class UiPart(Struct, frozen=True, kw_only=True, rename="camel"):
    """One part of a message. Text, files with text or an image, and results of the page's tools are read."""

    type: Annotated[str, "`text`, `file`, `tool-…`, `dynamic-tool` or any other type."]
    text: Annotated[str, "The text of a text part."] = ""
    url: Annotated[str, "A file as a data: URI in base64: UTF-8 text, or a png, jpeg, gif or webp."] = ""
    filename: Annotated[str | None, "The name of a file, for the agent."] = None
    tool_call_id: Annotated[str, "The id of a tool call."] = ""
    tool_name: Annotated[str, "The name of a dynamic tool."] = ""
    state: Annotated[str, "The state of a tool call."] = ""
    input: Annotated[Any, "The arguments of a tool call."] = None
    output: Annotated[Any, "The result of a tool call."] = None
    error_text: Annotated[str | None, "Why a tool call failed."] = None
    provider_executed: Annotated[bool | None, "Whether the agent ran the tool."] = None
    approval: Annotated[_Approval | None, "What a person decided."] = None

    @property
    def is_image(self) -> bool:
        return self.type == "file" and (is_image(self.url) or not self.url.lower().startswith("data:"))

    @property
    def tool(self) -> str:
        """The name of the tool; empty if it is no call."""
        if self.type == "dynamic-tool":
            return self.tool_name
        return self.type.removeprefix("tool-") if self.type.startswith("tool-") else ""

    @property
    def is_question(self) -> bool:
        """Of the agent's, which the page answers."""
        return self.tool == ui.ASK_TOOLS["question"] and not self.provider_executed


class UiMessage(Struct, frozen=True, kw_only=True):
    """A message of the AI SDK's chat."""

    role: Annotated[Literal["system", "user", "assistant"], "Who says it."]
    parts: Annotated[list[UiPart], "Its parts."]
    id: Annotated[str, "The message's id."] = ""
    metadata: Annotated[Any, "Of an answer: `chatId` is the run that it came from."] = None

    @property
    def run_id(self) -> str | None:
        """The run that it is the answer of."""
        named = self.metadata.get("chatId") if isinstance(self.metadata, dict) else None
        return ui.run_in(named if isinstance(named, str) else self.id)


class UiChatBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `DefaultChatTransport` sends. Other fields are ignored."""

    messages: Annotated[list[UiMessage], Meta(min_length=1), "The conversation so far."]
    id: Annotated[str, "The chat's id, under which its stream can be resumed."] = ""
    trigger: Annotated[
        Literal["submit-message", "regenerate-message"],
        "`submit-message` again, for the same message, gets the same answer; `regenerate-message` asks for another.",
    ] = "submit-message"
    model: Annotated[NonEmpty | None, "A model id from `GET /v1/models`. The default is the operator's setting."] = None
    tools: Annotated[
        list[ui.PageTool],
        "Tools that the page runs. They replace the agent's own tools. Set them with the transport's `body`.",
    ] = []
    cursor: Annotated[
        ui.UiOptions | None, "Gateway options. Set them with the transport's `body`, or with headers."
    ] = None


class UiChat(Struct, frozen=True, kw_only=True):
    body: UiChatBody
    messages: list[Message]
    images: list[Image]
    answer: ui.UiAnswer | None
    follows: str | None  # the run whose answer the newest message follows

    @property
    def continued_message(self) -> str:
        """The id of the answer that the reply continues; empty: it is a new one."""
        last = self.body.messages[-1]
        return last.id if last.role == "assistant" else ""

    @property
    def question_id(self) -> str:
        """The same for the same question; empty: it asks for another answer."""
        last = self.body.messages[-1]
        is_new = self.body.trigger == "submit-message" and last.role == "user" and last.id and self.body.id
        return f"{self.body.id} {last.id}" if is_new else ""


def read_chat(body: bytes, max_images: int = 50) -> UiChat:
    """Raises `InvalidRequest`."""
    chat = read_json(body, UiChatBody, ui.OPTION_HINTS)
    check_length(sum(1 + len(message.parts) for message in chat.messages))
    check_images(sum(part.is_image for one in chat.messages for part in one.parts), max_images, "messages")
    answer = _answer(chat.messages[-1], f"messages[{len(chat.messages) - 1}]")
    said, images = ui.QuotedMessages(), list[Image]()
    for number, message in enumerate(chat.messages):
        _quote(message, said, images, f"messages[{number}].parts")
    messages = said.all()
    check_content(messages)
    *before, last = chat.messages
    if last.role == "assistant" and answer is None and not isinstance(messages[-1], ToolMessage):
        raise invalid("messages", ui.NOTHING_NEW)
    answers = [one.run_id for one in before if one.role == "assistant"] if last.role == "user" else []
    follows = answers[-1] if answers else None
    return UiChat(body=chat, messages=messages, images=images, answer=answer, follows=follows)


def _quote(message: UiMessage, said: ui.QuotedMessages, images: list[Image], param: str) -> None:
    match message.role:
        case "system":
            said.add(Instructions("\n".join(part.text for part in message.parts if part.type == "text")))
        case "user":
            texts, shown = list[str](), list[Image]()
            for place, part in enumerate(message.parts):
                if part.is_image:
                    shown.append(read_image(part.url, f"{param}[{place}].url", said.next))
                elif part.type == "file":
                    texts.append(read_text_file(part.url, part.filename or "", f"{param}[{place}].url"))
                elif part.type == "text":
                    texts.append(part.text)
            images += shown
            said.add(UserMessage("\n".join(texts), tuple(image.name for image in shown)))
        case "assistant":
            for part in message.parts:
                _quote_answer(part, said)


def _quote_answer(part: UiPart, said: ui.QuotedMessages) -> None:
    if part.type == "text":
        said.say(part.text)
    if not part.tool or part.provider_executed or ui.asked_in(part.tool_call_id) is not None:
        return
    arguments = msgspec.json.encode(part.input or {}).decode()
    said.call(ToolCall(part.tool_call_id, part.tool, arguments))
    match part.state:
        case "output-available":
            output = part.output if isinstance(part.output, str) else msgspec.json.encode(part.output).decode()
            said.result(ToolMessage(output, part.tool_call_id, part.tool))
        case "output-error":
            reason = part.error_text or "The tool failed."
            said.result(ToolMessage(reason, part.tool_call_id, part.tool, is_error=True))
        case _:
            pass


def _answer(message: UiMessage, param: str) -> ui.UiAnswer | None:
    """What the last step of the last message answers: what was asked before has been answered before."""
    if message.role != "assistant":
        return None
    steps = [place for place, part in enumerate(message.parts) if part.type == "step-start"]
    first = steps[-1] if steps else 0
    permissions: dict[str, Permission] = {}
    given: list[QuestionAnswers | PlanDecision] = []
    run_id = ""
    for place, part in enumerate(message.parts[first:], first):
        if (asked := ui.asked_in(part.tool_call_id)) is None:
            continue
        match part:
            case UiPart(state="approval-responded", approval=_Approval(approved=bool(approved), reason=reason)):
                run_id, document = asked
                if part.tool == ui.ASK_TOOLS["plan"]:
                    given.append(PlanDecision("accept" if approved else "reject"))
                else:
                    permissions[document] = ui.permission_of(ui.Approval(approved=approved, reason=reason or ""))
            case UiPart(state="output-available") if part.is_question:
                run_id = asked[0]
                given.append(ui.question_answers(part.output, f"{param}.parts[{place}].output"))
            case UiPart(state="output-error") if part.is_question:
                raise invalid(f"{param}.parts[{place}]", ui.UNANSWERED)
            case _:
                pass
    if not given and not permissions:
        return None
    return ui.UiAnswer(run_id, ui.all_answers(permissions, given))


# --- the stream ---------------------------------------------------------------------------------------


HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
_DONE = b"data: [DONE]\n\n"
_NEXT_STEP = ui.data_frame({"type": "finish-step"}) + ui.data_frame({"type": "start-step"})


class UiMessageEncoder(ui.PartsEncoder):
    def __init__(self, run: RunView, after: int = 0, message_id: str = "", *, through: int = 0) -> None:
        """`message_id`: of the message that it continues; empty: it is named after the run."""
        super().__init__(run.info.id, after, through)
        self._run, self._message_id = run.info, message_id or run.info.id

    def began(self) -> bytes:
        metadata = {"chatId": self._run.id, "conversationId": self._run.conversation_id, "model": self._run.model}
        start = {"type": "start", "messageId": self._message_id, "messageMetadata": metadata}
        return ui.data_frame(start) + ui.data_frame({"type": "start-step"})

    def encoded(self, parts: Sequence[ui.MessagePart], *, is_passed: bool) -> bytes:
        end = parts[-1] if parts and isinstance(parts[-1], ui.MessageEnded) else None
        asked = {one.id: one for one in end.asked} if end is not None else {}
        frames: list[bytes] = []
        for part in parts:
            match part:
                case ui.CallMade(id=id) if id in asked:
                    # A client sends its answers when every call of the last step has a result: others may still run.
                    frames.append(_NEXT_STEP if part.id == next(iter(asked)) else b"")
                    frames += map(ui.data_frame, _asked(part, asked[id]))
                case ui.MessageEnded():
                    frames.append(_NEXT_STEP if is_passed else _ended(part))
                case _:
                    frames.append(ui.data_frame(_chunk(part)))
        return b"".join(frames)


def _chunk(
    part: ui.ProseOpened | ui.ProseGrew | ui.ProseClosed | ui.CallMade | ui.CallReturned | ui.Shown | ui.TransientPart,
) -> dict[str, Any]:
    match part:
        case ui.ProseOpened(kind=kind, id=id):
            return {"type": f"{kind}-start", "id": id}
        case ui.ProseGrew(kind=kind, id=id, text=text):
            return {"type": f"{kind}-delta", "id": id, "delta": text}
        case ui.ProseClosed(kind=kind, id=id):
            return {"type": f"{kind}-end", "id": id}
        case ui.CallMade(id=id, name=name, input=input, by_caller=by_caller):
            chunk = {"type": "tool-input-available", "toolCallId": id, "toolName": name, "input": input}
            return chunk if by_caller else {**chunk, "providerExecuted": True, "dynamic": True}
        case ui.CallReturned(id=id, is_denied=True):
            return {"type": "tool-output-denied", "toolCallId": id}
        case ui.CallReturned(id=id, output=output, error=error, by_caller=by_caller):
            chunk = {"type": "tool-output-available", "toolCallId": id, "output": output}
            if error is not None:
                chunk = {"type": "tool-output-error", "toolCallId": id, "errorText": error}
            return chunk if by_caller else {**chunk, "dynamic": True}
        case ui.Shown(type=type, id=id, value=value):
            return {"type": f"data-{type}", "id": id, "data": value}
        case ui.TransientPart(name=name, value=value):
            return {"type": f"data-{name}", "data": value, "transient": True}


def _asked(call: ui.CallMade, asked: ui.Ask) -> list[dict[str, Any]]:
    """A question is a tool of the page, whose result is the answer; all else is approved or not."""
    chunks = [_chunk(call)]
    if asked.kind != "question":
        request = {"type": "tool-approval-request", "approvalId": call.id, "toolCallId": call.id}
        chunks.append({**request, "reason": asked.message} if asked.message else request)
    return chunks


def _ended(end: ui.MessageEnded) -> bytes:
    metadata: dict[str, Any] = {"usage": ui.usage_counts(end.usage)}
    if refused := end.envelope.metadata.refused:
        metadata["refused"] = refused
    chunks: list[dict[str, Any]] = [{"type": "finish-step"}]
    match end.failure:
        case None:
            reason = "tool-calls" if end.is_paused else "stop"
            chunks.append({"type": "finish", "finishReason": reason, "messageMetadata": metadata})
        case failure:
            # A client ignores what follows these.
            chunks.append({"type": "message-metadata", "messageMetadata": metadata})
            if failure.code == RunCancelled.code:
                chunks.append({"type": "abort", "reason": failure.message})
            else:
                chunks.append({"type": "error", "errorText": failure.message})
                chunks.append({"type": "finish", "finishReason": "error"})
    return b"".join(map(ui.data_frame, chunks)) + _DONE


# --- the dialect --------------------------------------------------------------------------------------


# A chat shows the body of a reply that failed as the error's message.
_ERRORS = Errors(lambda failure, request_id: failure.message.encode(), "text/plain; charset=utf-8")


def ai_sdk_dialect(max_images: int) -> Dialect:
    return Dialect(
        routes=[Route("/v1/ai-sdk", "ai_sdk", partial(_read, max_images=max_images))],
        replays=[
            Replay(
                "ai-sdk",
                SSE,
                UiReply().resumed,
                headers=HEADERS,
                reply=UiReply(),
            )
        ],
        named=NamedStreams(
            "/v1/ai-sdk/{id}/stream",
            "ai_sdk_stream",
            SSE,
            lambda run, after: UiMessageEncoder(run, through=after),
            HEADERS,
        ),
        errors=_ERRORS,
        description="cursor_gateway.dialects.ai_sdk",
    )


class UiReply(ui.StreamedReply, Struct, frozen=True):
    message_id: str = ""  # of the answer that it continues

    def headers(self, run: RunView) -> Mapping[str, str]:
        return HEADERS

    def stream(self, run: RunView, start: ReplyStart) -> UiMessageEncoder:
        return UiMessageEncoder(run, start.after, self.message_id)


def _read(body: bytes, headers: Mapping[str, str], max_images: int) -> RunAction:
    chat = read_chat(body, max_images)
    return ui.run_action(
        chat.answer,
        UiReply(chat.continued_message),
        ui.options_of(chat.body.cursor, headers),
        stream_name=chat.body.id,
        messages=chat.messages,
        images=chat.images,
        client_session=chat.body.id,
        follows=chat.follows,
        question_id=chat.question_id,
        offer=ui.offer_of(chat.body.tools),
        model=chat.body.model,
    )


# --- its description ----------------------------------------------------------------------------------


def describe(sample: "Sample") -> "Description":
    from cursor_gateway.dialects import openapi as api

    chunks = api.stream(
        "The data of each event is a chunk of the AI SDK's UI message stream, version 1; the last is `[DONE]`. The id "
        "of an event is its number in the run, for `/v1/chat/{id}/events?dialect=ai-sdk`.",
        api.sse_event(("AiSdkChunk",)),
        api.stream_example(sample, UiReply()),
    )
    streamed = api.ok("The answer.", {"text/event-stream": chunks}, api.RUN_HEADERS)
    envelope = api.ErrorForm("AiSdkError", _ERRORS)
    message: dict[str, Any] = {
        "id": "m1",
        "role": "user",
        "parts": [{"type": "text", "text": "What does this project do?"}],
    }
    call = {"type": "tool-weather", "toolCallId": "call_5d1e", "input": {"town": "Bergen"}}
    body = api.json_body(
        "AiSdkChatRequest",
        question=("A question", {"id": "chat-1", "messages": [message], "trigger": "submit-message"}),
        tools=(
            "The result of the page's tool",
            {
                "id": "chat-1",
                "messages": [
                    {**message, "parts": [{"type": "text", "text": "Do I need an umbrella in Bergen?"}]},
                    {
                        "id": "chat_7f3a2b1c",
                        "role": "assistant",
                        "parts": [{"type": "step-start"}, {**call, "state": "output-available", "output": "Rain."}],
                    },
                ],
                "tools": [api.WEATHER],
            },
        ),
    )
    operations = {
        "POST /v1/ai-sdk": api.operation(
            "createUiMessage",
            "Answer a chat of the AI SDK",
            "Takes what `useChat` sends, and streams the answer as a UI message. If the last message contains results "
            "of the page's tools, approvals or answers, the run that waits for them continues. The same message again "
            "joins the run that it has started.",
            body=body,
            replies=streamed,
            errors=api.run_errors(),
            envelope=envelope,
            parameters=[api.IDEMPOTENCY_KEY, *api.cursor_headers(ui.UiOptions)],
        ),
        "GET /v1/ai-sdk/{id}/stream": api.operation(
            "resumeUiMessage",
            "Resume the stream of a chat",
            "Streams the message that is being written in a chat, from its beginning.",
            replies={**streamed, "204": api.reply("The chat has no active stream.")},
            errors=api.OF_STORED,
            envelope=envelope,
            parameters=[api.path_id("The chat's id, as in the requests.", "chat-1")],
        ),
    }
    exact = {"AiSdkPageTool.parameters": api.TOOL_PARAMETERS}
    chunk = api.record(
        "AiSdkChunk", "A chunk.", {"type": (api.TEXT, "`text-delta`, `tool-input-available` and others.")}
    )
    error = {"title": "AiSdkError", "description": "What happened, and what to do.", "type": "string"}
    schemas = {**api.read_schemas([UiChatBody], _name, exact), **chunk, "AiSdkError": error}
    return api.Description("AI SDK", "For pages that use the AI SDK's `useChat`.", operations, schemas)


def _name(type: str) -> str:
    return "AiSdkChatRequest" if type == "UiChatBody" else f"AiSdk{type.removeprefix('Ui')}"
