"""Read what the AI SDK's chat sends: its messages with their parts, and what they answer.

A message has parts of many types, and new ones come with new versions of the AI SDK: those that say nothing to the
agent are ignored.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.dialects import ui_requests
from cursor_gateway.dialects.parts import ASK_TOOLS, asked_in
from cursor_gateway.dialects.requests import invalid, is_image, read_text_file
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
        return ui_requests.run_in(named if isinstance(named, str) else self.id)


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
        list[ui_requests.PageTool],
        "Tools that the page runs. They replace the agent's own tools. Set them with the transport's `body`.",
    ] = []
    cursor: Annotated[
        ui_requests.UiOptions | None, "Gateway options. Set them with the transport's `body`, or with headers."
    ] = None


class UiChat(Struct, frozen=True, kw_only=True):
    body: UiChatBody
    messages: list[Message]
    images: list[Image]
    answer: ui_requests.UiAnswer | None
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
    chat = read_json(body, UiChatBody, ui_requests.OPTION_HINTS)
    check_length(sum(1 + len(message.parts) for message in chat.messages))
    check_images(sum(part.is_image for one in chat.messages for part in one.parts), max_images, "messages")
    answer = _answer(chat.messages[-1], f"messages[{len(chat.messages) - 1}]")
    said, images = ui_requests.QuotedMessages(), list[Image]()
    for number, message in enumerate(chat.messages):
        _quote(message, said, images, f"messages[{number}].parts")
    messages = said.all()
    check_content(messages)
    *before, last = chat.messages
    if last.role == "assistant" and answer is None and not isinstance(messages[-1], ToolMessage):
        raise invalid("messages", ui_requests.NOTHING_NEW)
    answers = [one.run_id for one in before if one.role == "assistant"] if last.role == "user" else []
    follows = answers[-1] if answers else None
    return UiChat(body=chat, messages=messages, images=images, answer=answer, follows=follows)


def _quote(message: UiMessage, said: ui_requests.QuotedMessages, images: list[Image], param: str) -> None:
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


def _quote_answer(part: UiPart, said: ui_requests.QuotedMessages) -> None:
    if part.type == "text":
        said.say(part.text)
    if not part.tool or part.provider_executed or asked_in(part.tool_call_id) is not None:
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


def _answer(message: UiMessage, param: str) -> ui_requests.UiAnswer | None:
    """What the last step of the last message answers: what was asked before has been answered before."""
    if message.role != "assistant":
        return None
    steps = [place for place, part in enumerate(message.parts) if part.type == "step-start"]
    first = steps[-1] if steps else 0
    permissions: dict[str, Permission] = {}
    given: list[QuestionAnswers | PlanDecision] = []
    run_id = ""
    for place, part in enumerate(message.parts[first:], first):
        if (asked := asked_in(part.tool_call_id)) is None:
            continue
        match part:
            case UiPart(state="approval-responded", approval=_Approval(approved=bool(approved), reason=reason)):
                run_id, document = asked
                if part.tool == ASK_TOOLS["plan"]:
                    given.append(PlanDecision("accept" if approved else "reject"))
                else:
                    permissions[document] = ui_requests.permission_of(
                        ui_requests.Approval(approved=approved, reason=reason or "")
                    )
            case UiPart(state="output-available") if part.tool == ASK_TOOLS["question"] and not part.provider_executed:
                run_id = asked[0]
                given.append(ui_requests.question_answers(part.output, f"{param}.parts[{place}].output"))
            case UiPart(state="output-error") if part.tool == ASK_TOOLS["question"] and not part.provider_executed:
                raise invalid(f"{param}.parts[{place}]", ui_requests.UNANSWERED)
            case _:
                pass
    if not given and not permissions:
        return None
    return ui_requests.UiAnswer(run_id, ui_requests.all_answers(permissions, given))
