"""Read what an AG-UI client sends: the messages of a thread, its tools, and the answers to interrupts."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.dialects import ui_requests
from cursor_gateway.dialects.parts import asked_in
from cursor_gateway.dialects.requests import convert_field, invalid
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
    cursor: Annotated[
        ui_requests.UiOptions | None, "Gateway options. Clients that cannot send them can use headers."
    ] = None


class RunAgentInput(Struct, frozen=True, kw_only=True, rename="camel"):
    """What an AG-UI client sends. Other fields are ignored."""

    thread_id: Annotated[str, "The conversation, as the client names it."]
    run_id: Annotated[str, "This request, as the client names it. The same one again gets the same run."]
    messages: Annotated[list[AgUiMessage], "The thread so far."]
    tools: Annotated[list[ui_requests.PageTool], "Tools that the page runs. They replace the agent's own tools."] = []
    context: Annotated[list[ContextItem], "What the agent should know for this run."] = []
    state: Annotated[Any, "The application's state, which the agent is told."] = None
    forwarded_props: Annotated[ForwardedProps | None, "The model, and gateway options."] = None
    resume: Annotated[Annotated[list[ResumeEntry], Meta(min_length=1)] | None, "Answers to interrupts."] = None


class AgUiRun(Struct, frozen=True, kw_only=True):
    input: RunAgentInput
    messages: list[Message]
    images: list[Image]
    instructions: str
    answer: ui_requests.UiAnswer | None
    follows: str | None  # the run whose answer the newest message follows


def read_input(body: bytes, max_images: int = 50) -> AgUiRun:
    """Raises `InvalidRequest`."""
    hints = {f"forwardedProps.{name}": hint for name, hint in ui_requests.OPTION_HINTS.items()}
    asked = read_json(body, RunAgentInput, hints)
    said, images, follows = ui_requests.QuotedMessages(), list[Image](), None
    contents = [_parts(message, f"messages[{number}].content") for number, message in enumerate(asked.messages)]
    check_length(sum(1 + len(parts) for parts in contents))
    check_images(sum(part.type == "image" for parts in contents for part in parts), max_images, "messages")
    for number, (message, parts) in enumerate(zip(asked.messages, contents, strict=True)):
        images += _quote(message, parts, said, f"messages[{number}].content")
        if message.role == "assistant":
            follows = ui_requests.run_in(message.id)
    answer = _answer(asked.resume) if asked.resume else None
    messages = said.all()
    if answer is None:
        check_content(messages)
        last = [one for one in asked.messages if one.role in ("user", "assistant", "tool")][-1:]
        if last and (last[0].role == "assistant" or asked_in(last[0].tool_call_id) is not None):
            raise invalid("messages", ui_requests.NOTHING_NEW)
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


def _quote(message: AgUiMessage, parts: list[_Part], said: ui_requests.QuotedMessages, param: str) -> list[Image]:
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
                if asked_in(call.id) is None:  # else the agent has run it, or has asked
                    said.call(ToolCall(call.id, call.function.name, call.function.arguments))
        case "tool" if asked_in(message.tool_call_id) is None:
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


def _answer(entries: list[ResumeEntry]) -> ui_requests.UiAnswer:
    permissions: dict[str, Permission] = {}
    given: list[QuestionAnswers | PlanDecision] = []
    run_id = ""
    for number, entry in enumerate(entries):
        param = f"resume[{number}]"
        kind, _, call = entry.interrupt_id.partition(":")
        if (asked := asked_in(call)) is None:
            raise invalid(
                f"{param}.interruptId", "There is no such interrupt; send the id of one that a run ended with."
            )
        run_id, document = asked
        if kind == "question":
            if entry.status == "cancelled":
                raise invalid(f"{param}.status", ui_requests.UNANSWERED)
            given.append(ui_requests.question_answers(entry.payload, f"{param}.payload"))
            continue
        approval = ui_requests.Approval(approved=False)
        if entry.status == "resolved":
            approval = convert_field(
                entry.payload, ui_requests.Approval, f"{param}.payload", "Send {approved: true} or false."
            )
        if kind == "plan":
            given.append(PlanDecision("accept" if approval.approved else "reject"))
        else:
            permissions[document] = ui_requests.permission_of(approval)
    return ui_requests.UiAnswer(run_id, ui_requests.all_answers(permissions, given))
