"""The Agent-User Interaction protocol, AG-UI 1.0, as a dialect: `POST /v1/ag-ui`, and its events for any run."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.dialects import ui
from cursor_gateway.dialects.base import (
    SSE,
    Dialect,
    Replay,
    ReplyStart,
    Route,
    RunAction,
    RunView,
)
from cursor_gateway.dialects.errors import OWN_ERRORS
from cursor_gateway.dialects.requests import convert_field, invalid
from cursor_gateway.errors import Failure, RunCancelled
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


class _Source(Struct, frozen=True, rename="camel"):
    """Where the bytes of an image are."""

    type: Annotated[str, "`data`; others are not fetched."]
    value: Annotated[str, "The image in base64."]
    mime_type: Annotated[str, "Its media type: png, jpeg, gif or webp."] = ""


class _Part(Struct, frozen=True):
    """One part of a message: text or an image."""

    type: Annotated[str, "`text` or `image`."]
    text: Annotated[str, "The text of a text part."] = ""
    source: Annotated[_Source | None, "The bytes of an image."] = None


_Content: TypeAlias = str | list[_Part]


class _Function(Struct, frozen=True):
    """The function that was called."""

    name: Annotated[str, "The tool's name."]
    arguments: Annotated[str, "JSON, as the model wrote it."] = "{}"


class _Call(Struct, frozen=True):
    """A call that an answer made."""

    id: Annotated[str, "The call's id."]
    function: Annotated[_Function, "The tool, and its arguments."]


class AgUiMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message of the thread. Activities and reasoning are ignored: they are not part of the conversation."""

    id: Annotated[str, "The message's id."]
    role: Annotated[
        Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"], "Who says it."
    ]
    content: Annotated[Any, "A string, or a list of parts."] = None
    name: Annotated[str | None, "Distinguishes several users."] = None
    tool_calls: Annotated[list[_Call], "The calls of an answer."] = []
    tool_call_id: Annotated[str, "The call whose result it is."] = ""
    error: Annotated[str | None, "Why the tool failed."] = None


class ContextItem(Struct, frozen=True):
    """What the page tells the agent for this run."""

    description: Annotated[str, "What it is."]
    value: Annotated[str, "The information."]


class ResumeEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to an interrupt."""

    interrupt_id: Annotated[str, "The interrupt's id."]
    status: Annotated[Literal["resolved", "cancelled"], "Whether it was answered."]
    payload: Annotated[
        Any,
        "`{approved, reason, decision}` for permissions and plans, where `decision` is `once`, `conversation` or "
        "`workspace`; `{answers}` for questions.",
    ] = None


class ForwardedProps(Struct, frozen=True, kw_only=True):
    """What the gateway reads of `forwardedProps`."""

    model: Annotated[NonEmpty | None, "A model id from `GET /v1/models`. The default is the operator's setting."] = None
    cursor: Annotated[ui.UiOptions | None, "Gateway options. Clients that cannot send them can use headers."] = None


class RunAgentInput(Struct, frozen=True, kw_only=True, rename="camel"):
    """What an AG-UI client sends. Other fields are ignored."""

    thread_id: Annotated[str, "The conversation, as the client names it."]
    run_id: Annotated[str, "This request, as the client names it. The same one again gets the same run."]
    messages: Annotated[list[AgUiMessage], "The thread so far."]
    tools: Annotated[list[ui.PageTool], "Tools that the page runs. They replace the agent's own tools."] = []
    context: Annotated[list[ContextItem], "What the agent should know for this run."] = []
    state: Annotated[Any, "The application's state, which the agent is told."] = None
    forwarded_props: Annotated[ForwardedProps | None, "The model, and gateway options."] = None
    resume: Annotated[Annotated[list[ResumeEntry], Meta(min_length=1)] | None, "Answers to interrupts."] = None


class AgUiRun(Struct, frozen=True, kw_only=True):
    input: RunAgentInput
    messages: list[Message]
    images: list[Image]
    instructions: str
    answer: ui.UiAnswer | None
    follows: str | None  # the run whose answer the newest message follows


def read_input(body: bytes, max_images: int = 50) -> AgUiRun:
    """Raises `InvalidRequest`."""
    hints = {f"forwardedProps.{name}": hint for name, hint in ui.OPTION_HINTS.items()}
    asked = read_json(body, RunAgentInput, hints)
    said, images, follows = ui.QuotedMessages(), list[Image](), None
    contents = [_parts(message, f"messages[{number}].content") for number, message in enumerate(asked.messages)]
    check_length(sum(1 + len(parts) for parts in contents))
    check_images(sum(part.type == "image" for parts in contents for part in parts), max_images, "messages")
    for number, (message, parts) in enumerate(zip(asked.messages, contents, strict=True)):
        images += _quote(message, parts, said, f"messages[{number}].content")
        if message.role == "assistant":
            follows = ui.run_in(message.id)
    answer = _answer(asked.resume) if asked.resume else None
    messages = said.all()
    if answer is None:
        check_content(messages)
        last = [one for one in asked.messages if one.role in ("user", "assistant", "tool")][-1:]
        if last and (last[0].role == "assistant" or ui.asked_in(last[0].tool_call_id) is not None):
            raise invalid("messages", ui.NOTHING_NEW)
    is_new = bool(messages) and isinstance(messages[-1], UserMessage)
    return AgUiRun(
        input=asked,
        messages=messages,
        images=images,
        instructions=_instructions(asked),
        answer=answer,
        follows=follows if is_new else None,
    )


def _parts(message: AgUiMessage, param: str) -> list[_Part]:
    match message.content:
        case None:
            return []
        case str(text):
            return [_Part("text", text)]
        case dict() if message.role == "activity":
            return []
        case content:
            return convert_field(content, list[_Part], param, "Send a string, or a list of parts.")


def _quote(message: AgUiMessage, parts: list[_Part], said: ui.QuotedMessages, param: str) -> list[Image]:
    text = "\n".join(part.text for part in parts if part.type == "text")
    images: list[Image] = []
    match message.role:
        case "developer" | "system":
            said.add(Instructions(text))
        case "user":
            images = _images(parts, said.next, param)
            said.add(UserMessage(text, tuple(image.name for image in images), message.name or ""))
        case "assistant":
            if text:
                said.say(text)
            for call in message.tool_calls:
                if ui.asked_in(call.id) is None:  # else the agent has run it, or has asked
                    said.call(ToolCall(call.id, call.function.name, call.function.arguments))
        case "tool" if ui.asked_in(message.tool_call_id) is None:
            images = _images(parts, said.next, param)
            names = tuple(image.name for image in images)
            shown = message.error or text
            said.result(ToolMessage(shown, message.tool_call_id, "", names, is_error=message.error is not None))
        case "tool" | "activity" | "reasoning":
            pass
    return images


def _images(parts: list[_Part], number: int, param: str) -> list[Image]:
    images: list[Image] = []
    for place, part in enumerate(parts):
        if part.type == "text":
            continue
        if part.type != "image" or part.source is None or part.source.type != "data":
            raise invalid(
                f"{param}[{place}]",
                "The agent accepts only text and images that the request contains; send parts of type text, or image "
                "with a source of type data.",
            )
        uri = f"data:{part.source.mime_type};base64,{part.source.value}"
        images.append(read_image(uri, f"{param}[{place}].source", number))
    return images


def _instructions(asked: RunAgentInput) -> str:
    """What the page tells the agent for this run alone."""
    known = [f"{item.description}: {item.value}" for item in asked.context]
    if asked.state:
        known.append(f"The state of the application: {msgspec.json.encode(asked.state).decode()}")
    return "\n\n".join(known)


def _answer(entries: list[ResumeEntry]) -> ui.UiAnswer:
    permissions: dict[str, Permission] = {}
    given: list[QuestionAnswers | PlanDecision] = []
    run_id = ""
    for number, entry in enumerate(entries):
        param = f"resume[{number}]"
        kind, _, call = entry.interrupt_id.partition(":")
        if (asked := ui.asked_in(call)) is None:
            raise invalid(
                f"{param}.interruptId", "There is no such interrupt; send the id of one that a run ended with."
            )
        run_id, document = asked
        if kind == "question":
            if entry.status == "cancelled":
                raise invalid(f"{param}.status", ui.UNANSWERED)
            given.append(ui.question_answers(entry.payload, f"{param}.payload"))
            continue
        approval = ui.Approval(approved=False)
        if entry.status == "resolved":
            approval = convert_field(entry.payload, ui.Approval, f"{param}.payload", "Send {approved: true} or false.")
        if kind == "plan":
            given.append(PlanDecision("accept" if approval.approved else "reject"))
        else:
            permissions[document] = ui.permission_of(approval)
    return ui.UiAnswer(run_id, ui.all_answers(permissions, given))


# --- the stream ---------------------------------------------------------------------------------------


Json = dict[str, Any]

# What a client may send as the payload of its answer, by what was asked.
_APPROVAL: Json = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}
_ANSWERS: Json = {
    "type": "object",
    "properties": {
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "questionId": {"type": "string"},
                    "selectedOptionIds": {"type": "array", "items": {"type": "string"}},
                    "text": {"type": "string"},
                },
                "required": ["questionId"],
            },
        }
    },
    "required": ["answers"],
}
_RESPONSES: dict[ui.AskKind, Json] = {"question": _ANSWERS, "permission": _APPROVAL, "plan": _APPROVAL}
_REASONS: dict[ui.AskKind, str] = {"question": "input_required", "permission": "tool_call", "plan": "confirmation"}


class AgUiEncoder(ui.PartsEncoder):
    def __init__(self, run: RunView, after: int = 0, thread_id: str = "", run_id: str = "") -> None:
        """`thread_id` and `run_id`: as the client names them; empty: as the gateway does."""
        super().__init__(run.info.id, after)
        self._ids = {
            "threadId": thread_id or run.info.conversation_id or run.info.id,
            "runId": run_id or run.info.id,
        }

    def began(self) -> bytes:
        return ui.data_frame({"type": "RUN_STARTED", **self._ids})

    def encoded(self, parts: Sequence[ui.MessagePart], *, is_passed: bool) -> bytes:
        return b"".join(ui.data_frame(event) for part in parts for event in self._events(part))

    def _events(self, part: ui.MessagePart) -> list[Json]:
        match part:
            case ui.ProseOpened(kind="text", id=id):
                return [{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}]
            case ui.ProseGrew(kind="text", id=id, text=text):
                return [{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text}]
            case ui.ProseClosed(kind="text", id=id):
                return [{"type": "TEXT_MESSAGE_END", "messageId": id}]
            case ui.ProseOpened(id=id):
                started = {"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"}
                return [{"type": "REASONING_START", "messageId": id}, started]
            case ui.ProseGrew(id=id, text=text):
                return [{"type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": text}]
            case ui.ProseClosed(id=id):
                return [{"type": "REASONING_MESSAGE_END", "messageId": id}, {"type": "REASONING_END", "messageId": id}]
            case ui.CallMade(id=id, name=name, input=input):
                return [
                    {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name},
                    {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": msgspec.json.encode(input).decode()},
                    {"type": "TOOL_CALL_END", "toolCallId": id},
                ]
            case ui.CallReturned():
                return [_result(part)]
            case ui.Shown(type=type, id=id, value=value):
                snapshot = {"type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": type}
                return [{**snapshot, "content": value, "replace": True}]
            case ui.TransientPart(name=name, value=value):
                return [{"type": "CUSTOM", "name": name, "value": value}]
            case ui.MessageEnded():
                return [self._ended(part)]

    def _ended(self, end: ui.MessageEnded) -> Json:
        usage = [{"model": end.envelope.model, **ui.usage_counts(end.usage)}]
        if end.failure is not None and end.failure.code != RunCancelled.code:
            return {**error_event(end.failure), "usage": usage}
        outcome: Json = {"type": "success"}
        if end.failure is not None:
            outcome = {"type": "cancelled"}
        elif end.asked:
            outcome = {"type": "interrupt", "interrupts": [_interrupt(one) for one in end.asked]}
        elif end.calls:
            outcome["pendingToolCallIds"] = end.calls
        return {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "usage": usage}


def error_event(failure: Failure) -> Json:
    return {"type": "RUN_ERROR", "message": failure.message, "code": failure.code}


def _interrupt(asked: ui.Ask) -> Json:
    interrupt = {"id": f"{asked.kind}:{asked.id}", "reason": _REASONS[asked.kind], "toolCallId": asked.id}
    said = {"message": asked.message} if asked.message else {}
    return {**interrupt, **said, "responseSchema": _RESPONSES[asked.kind]}


def _result(returned: ui.CallReturned) -> Json:
    output, is_error = returned.output, returned.error is not None or returned.is_denied
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    event = {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{returned.id}.result",
        "toolCallId": returned.id,
        "content": returned.error or text,
        "role": "tool",
    }
    return {**event, "metadata": {"isError": True}} if is_error else event


# --- the dialect --------------------------------------------------------------------------------------


def ag_ui_dialect(max_images: int) -> Dialect:
    return Dialect(
        routes=[Route("/v1/ag-ui", "ag_ui", partial(_read, max_images=max_images))],
        replays=[Replay("ag-ui", SSE, AgUiReply().resumed, reply=AgUiReply())],
        errors=OWN_ERRORS,
        description="cursor_gateway.dialects.ag_ui",
    )


class AgUiReply(ui.StreamedReply, Struct, frozen=True):
    thread_id: str = ""  # as the client names it
    run_id: str = ""

    streams_failures = True

    def stream(self, run: RunView, start: ReplyStart) -> AgUiEncoder:
        return AgUiEncoder(run, start.after, self.thread_id, self.run_id)


def _read(body: bytes, headers: Mapping[str, str], max_images: int) -> RunAction:
    asked = read_input(body, max_images)
    thread, run = asked.input.thread_id, asked.input.run_id
    props = asked.input.forwarded_props or ForwardedProps()
    return ui.run_action(
        asked.answer,
        AgUiReply(thread, run),
        ui.options_of(props.cursor, headers),
        messages=asked.messages,
        images=asked.images,
        instructions=asked.instructions,
        refused=_refused,
        client_session=thread,
        follows=asked.follows,
        question_id=f"{thread} {run}" if run else "",
        offer=ui.offer_of(asked.input.tools),
        model=props.model,
    )


def _refused(failure: Failure) -> bytes:
    return ui.data_frame(error_event(failure))


# --- its description ----------------------------------------------------------------------------------


def describe(sample: "Sample") -> "Description":
    from cursor_gateway.dialects import openapi as api

    events = api.stream(
        "The data of each event is an event of AG-UI 1.0. A run that fails, also before its first event, ends with "
        "`RUN_ERROR`. The id of an event is its number in the run, for `/v1/chat/{id}/events?dialect=ag-ui`.",
        api.sse_event(("AgUiEvent",)),
        api.stream_example(sample, AgUiReply()),
    )
    input: Json = {
        "threadId": "thread-1",
        "runId": "run-1",
        "messages": [{"id": "m1", "role": "user", "content": "What does this project do?"}],
    }
    body = api.json_body(
        "AgUiRunInput",
        question=("A question", input),
        tools=("A tool of the page", {**input, "tools": [api.WEATHER]}),
        resume=(
            "Allowing a command",
            {
                **input,
                "runId": "run-2",
                "resume": [
                    {
                        "interruptId": "permission:chat_7f3a2b1c.doc_002",
                        "status": "resolved",
                        "payload": {"approved": True},
                    }
                ],
            },
        ),
    )
    create = api.operation(
        "runAgent",
        "Run the agent for an AG-UI client",
        "Takes what an AG-UI client sends, and streams the run's events. Results of the page's tools, as messages, and "
        "answers to interrupts, in `resume`, continue the run that waits for them. The same `runId` again joins the "
        "run that it has started.",
        body=body,
        replies=api.ok("The events.", {"text/event-stream": events}, api.RUN_HEADERS),
        errors=api.run_errors(),
        parameters=[api.IDEMPOTENCY_KEY, *api.cursor_headers(ui.UiOptions)],
    )
    event = api.record(
        "AgUiEvent", "An event.", {"type": (api.TEXT, "`RUN_STARTED`, `TEXT_MESSAGE_CONTENT` and others.")}
    )
    exact = {"AgUiPageTool.parameters": api.TOOL_PARAMETERS}
    schemas = {**api.read_schemas([RunAgentInput], _name, exact), **event}
    return api.Description("AG-UI", "For pages that speak AG-UI.", {"POST /v1/ag-ui": create}, schemas)


def _name(type: str) -> str:
    return "AgUiRunInput" if type == "RunAgentInput" else f"AgUi{type.removeprefix('AgUi').removeprefix('Ui')}"
