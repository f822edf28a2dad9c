"""Read and check the bodies of `POST /v1/chat` and `/v1/chat/{id}/answer`."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.dialects.requests import invalid
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model import caller_tools
from cursor_gateway.model.answers import Decision as PermissionDecision
from cursor_gateway.model.answers import Permission, PlanChoice
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.model.messages import check_images, read_image
from cursor_gateway.model.requests import LeavingOption, NonEmpty, RunOptions
from cursor_gateway.wire.json_body import read_json
from cursor_gateway.wire.payload import too_deep


class OfferedFunction(Struct, frozen=True, kw_only=True):
    """A tool that the caller runs, in OpenAI's form."""

    name: Annotated[NonEmpty, "The tool's name."]
    description: Annotated[str | None, "What it does, for the model."] = None
    parameters: Annotated[
        dict[str, Any] | None,
        "The JSON Schema of its arguments, which must be an object. Arguments are checked against it.",
    ] = None


class OfferedTool(Struct, frozen=True, kw_only=True):
    """A tool that the caller runs, either with these fields or in OpenAI's form in `function`."""

    name: Annotated[NonEmpty | None, "The tool's name."] = None
    description: Annotated[str | None, "What it does, for the model."] = None
    parameters: Annotated[
        dict[str, Any] | None,
        "The JSON Schema of its arguments, which must be an object. Arguments are checked against it.",
    ] = None
    function: Annotated[OfferedFunction | None, "The tool in OpenAI's form; the other fields are then ignored."] = None


class ChosenTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one tool that must be called."""

    name: Annotated[NonEmpty, "The name of one of `tools`."]


class ChatRequest(RunOptions, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One message to the agent."""

    message: Annotated[str, "The prompt; must not be empty."]
    follows: Annotated[
        str | None,
        "The id of a run, instead of `conversationId`: to continue after its answer. If later runs exist, this starts "
        "a new conversation with what was said up to there.",
    ] = None
    model: Annotated[str | None, "A model id from `GET /v1/models`. The default is the operator's setting."] = None
    stream: Annotated[bool, "Whether to stream the answer."] = False
    images: Annotated[list[str], "Images as data: URIs: png, jpeg, gif or webp in base64."] = []
    tools: Annotated[
        list[OfferedTool],
        "Tools that the caller runs, with unique names. They replace the agent's own tools. The run pauses when the "
        "agent calls one, and continues with `POST /v1/chat/{id}/answer`.",
    ] = []
    tool_choice: Annotated[
        Literal["auto", "none", "required"] | ChosenTool,
        "Whether the agent may call the caller's tools, must call one, or must call the named one.",
    ] = "auto"
    parallel_tool_calls: Annotated[bool, "Whether a reply may contain several tool calls."] = True
    # Whether an agent that can wait may ask questions; else they are skipped. True asks for an agent that can.
    may_ask: Annotated[
        bool | UnsetType,
        "Whether somebody can answer questions and decide about commands while the agent waits. If true, an agent that "
        "can wait is preferred, as with the source `interactive`, and the agent gets a tool for questions. If false, "
        "it has none. If omitted, only agents over ACP have it.",
    ] = UNSET


class ToolAnswer(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The result of one of the caller's tools."""

    tool_call_id: Annotated[NonEmpty, "The call's id, from `metadata.waitingFor`."]
    content: Annotated[
        Any, "A string, a list of parts (`text` and `image_url`, as in OpenAI's API), or any other JSON value."
    ]
    is_error: Annotated[bool, "Whether the tool failed."] = False


class QuestionAnswer(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An answer to one question."""

    question_id: Annotated[NonEmpty, "The question's id."]
    selected_option_ids: Annotated[list[str], "The ids of the chosen options."] = []
    text: Annotated[str, "A written answer, in addition to options or instead of them."] = ""


class PermissionAnswer(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A decision about one document."""

    document_id: Annotated[NonEmpty, "The document with `metadata.permission`."]
    decision: Annotated[
        PermissionDecision,
        "`once`, `conversation` (from now on in this conversation), `workspace` (from now on in this folder), or "
        "`deny`.",
    ]
    reason: Annotated[str, "With `deny`: the reason, which the agent gets."] = ""


class AnswerRequest(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a run waits for or has asked: one of `toolResults`, `answers`, `plan` and `permissions`."""

    tool_results: Annotated[
        Annotated[list[ToolAnswer], Meta(min_length=1)] | None,
        "The results of the caller's tools. Missing ones are requested again.",
    ] = None
    answers: Annotated[
        Annotated[list[QuestionAnswer], Meta(min_length=1)] | None,
        "Answers to the questions of a `clarification` document.",
    ] = None
    plan: Annotated[PlanChoice | None, "The decision on a `plan` document. An accepted plan is carried out."] = None
    permissions: Annotated[
        Annotated[list[PermissionAnswer], Meta(min_length=1)] | None,
        "Decisions about documents with `metadata.permission`. A run that waits continues; what was rejected before is "
        "tried again in the next turn.",
    ] = None
    text: Annotated[str, "A comment on the plan."] = ""
    stream: Annotated[bool, "Whether to stream the reply, from where the run paused."] = False
    when_client_leaves: Annotated[
        LeavingOption,
        "What happens to the run when its last reader disconnects: `cancel` or `finish`. The default is the operator's "
        "setting.",
    ] = None


def read_chat_request(body: bytes) -> ChatRequest:
    """Raises `InvalidRequest`."""
    request = read_json(body, ChatRequest)
    if not request.message.strip():
        raise InvalidRequest("`message` is empty; send a prompt.", param="message")
    if request.follows is not None and request.conversation_id is not None:
        raise InvalidRequest("Send `conversationId` or `follows`, not both.", param="follows")
    if request.model == "":
        raise InvalidRequest(
            "`model` is empty; use an id that `cursor-gateway models` lists, or omit it.",
            param="model",
        )
    return request


def offer_of(request: ChatRequest) -> caller_tools.Offer | None:
    """Raises `InvalidRequest`."""
    tools: dict[str, caller_tools.Tool] = {}
    for number, offered in enumerate(request.tools):
        param, tool = f"tools[{number}]", offered.function or offered
        if tool.name is None:
            raise InvalidRequest(f"{param}.name is missing; a tool needs a name.", param=f"{param}.name")
        if tool.name in tools:
            raise invalid(param, "Two tools have this name; rename one.")
        tools[tool.name] = caller_tools.make_tool(tool.name, tool.description, tool.parameters, param)
    choice = _choice(request, tools)
    return (
        caller_tools.Offer(tools=tuple(tools.values()), choice=choice, parallel=request.parallel_tool_calls)
        if tools
        else None
    )


def _choice(request: ChatRequest, tools: dict[str, caller_tools.Tool]) -> caller_tools.ToolChoice:
    match request.tool_choice:
        case "auto":
            return caller_tools.AutoTool()
        case "none":
            return caller_tools.NoTool()
        case "required" if tools:
            return caller_tools.RequiredTool()
        case ChosenTool(name=name) if name in tools:
            return caller_tools.NamedTool(name)
        case _:
            there = f"there are {', '.join(tools)}" if tools else "there are none"
            raise InvalidRequest(f"`toolChoice` names a tool that is not in `tools`; {there}.", param="toolChoice")


def read_answer(body: bytes) -> AnswerRequest:
    """Raises `InvalidRequest`."""
    request = read_json(body, AnswerRequest)
    given = [field is not None for field in (request.tool_results, request.answers, request.plan, request.permissions)]
    if sum(given) != 1:
        raise InvalidRequest("Send one of `toolResults`, `answers`, `plan` and `permissions`.", param="toolResults")
    if request.text and request.plan is None:
        raise InvalidRequest(
            "`text` can only be sent with `plan`; each entry of `answers` has its own `text`.", param="text"
        )
    return request


def permissions_of(answers: Sequence[PermissionAnswer]) -> dict[str, Permission]:
    """By their documents. Raises `InvalidRequest`."""
    decided: dict[str, Permission] = {}
    for number, answer in enumerate(answers):
        param = f"permissions[{number}]"
        if answer.reason and answer.decision != "deny":
            raise invalid(f"{param}.reason", "A reason can only be sent with `deny`; omit it.")
        if answer.document_id in decided:
            raise invalid(param, "This document is decided twice; send one decision.")
        decided[answer.document_id] = Permission(answer.decision, answer.reason)
    return decided


def answers_of(answers: Sequence[QuestionAnswer]) -> list[ClarificationAnswer]:
    return [
        ClarificationAnswer(
            question_id=answer.question_id,
            selected_option_ids=answer.selected_option_ids,
            text=answer.text or UNSET,
        )
        for answer in answers
    ]


def results_of(answers: Sequence[ToolAnswer], max_images: int = 50) -> dict[str, caller_tools.ToolResult]:
    """By their calls; of two for one call the first counts. Raises `InvalidRequest`."""
    check_images(sum(_count_images(answer.content) for answer in answers), max_images, "toolResults")
    results: dict[str, caller_tools.ToolResult] = {}
    for number, answer in enumerate(answers):
        if answer.tool_call_id not in results:
            results[answer.tool_call_id] = _result(answer, f"toolResults[{number}].content")
    return results


class _Text(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _Address(Struct, frozen=True):
    url: str


class _ImageUrl(Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: str | _Address


def _result(answer: ToolAnswer, param: str) -> caller_tools.ToolResult:
    match answer.content:
        case str(text):
            return caller_tools.ToolResult(text=text, is_error=answer.is_error)
        case [{"type": "text" | "image_url"}, *_]:
            return _of_parts(answer, param)
        case value if too_deep(value):
            raise invalid(param, "The value is nested too deeply; send a string.")
        case value:
            text = msgspec.json.encode(value).decode()
            return caller_tools.ToolResult(
                text=text, structured=UNSET if value is None else value, is_error=answer.is_error
            )


def _count_images(content: Any) -> int:
    match content:
        case [{"type": "text" | "image_url"}, *_]:
            return sum(isinstance(part, dict) and part.get("type") == "image_url" for part in content)
        case _:
            return 0


def _of_parts(answer: ToolAnswer, param: str) -> caller_tools.ToolResult:
    try:
        parts = msgspec.convert(answer.content, list[_Text | _ImageUrl])
    except msgspec.ValidationError as error:
        raise invalid(param, f"{error}; send parts of type text or image_url.") from None
    urls = [part.image_url for part in parts if isinstance(part, _ImageUrl)]
    return caller_tools.ToolResult(
        text="\n".join(part.text for part in parts if isinstance(part, _Text)),
        images=tuple(read_image(url if isinstance(url, str) else url.url, param) for url in urls),
        is_error=answer.is_error,
    )
