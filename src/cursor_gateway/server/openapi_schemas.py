"""The types of requests and replies in; the schemas of the OpenAPI document, each with its meaning, out.

The documents come from `cursor_gateway.schema`; everything else from the msgspec types that read or write it. Where
a reader checks more than its types say, `_EXACT` says it, if a schema can; otherwise a sentence does.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.dialects.chat import request as openai_request
from cursor_gateway.dialects.chat.encoder import ChatCompletion, CompletionUsage, CursorFields
from cursor_gateway.dialects.deltas import FinishReason
from cursor_gateway.dialects.documents.request import AnswerRequest, ChatRequest
from cursor_gateway.dialects.errors import ErrorBody
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.history import ConversationChange, ConversationDetail, ConversationList, RunList
from cursor_gateway.model.permissions import PermissionList
from cursor_gateway.schema import openapi_components
from cursor_gateway.server.history import ConversationChanges
from cursor_gateway.server.models import ModelList, ModelPage
from cursor_gateway.server.workspace import WorkspaceFiles, WorkspaceFolders

Schema = dict[str, Any]

REFS = "#/components/schemas/"


def schemas() -> dict[str, Schema]:
    """In the order in which people read them: what is asked, what is answered, what both are made of."""
    documents = openapi_components()["schemas"]
    types = [ChatRequest, AnswerRequest, ConversationChange, openai_request._Body]
    asked = _described(_components(types, _REQUEST_NAMES, "ChatCompletionRequest"))
    told = _described(_always_written(_components(_REPLIES, _REPLY_NAMES, "ChatCompletion")))
    del told["ChatCompletion"]["properties"]["error"]  # over HTTP an error has its own reply
    first = {
        "ChatRequest": asked["ChatRequest"],
        "AnswerRequest": asked["AnswerRequest"],
        "ConversationChange": asked["ConversationChange"],
        "ChatResponse": documents["ChatResponse"],
        "FailedChatResponse": _FAILED,
        "StreamEvent": documents["StreamEvent"],
        "ChatCompletionRequest": asked["ChatCompletionRequest"],
    }
    found = {**first, **told, **asked, **documents}
    used = _reached(found, [*first, *documents, *(_REPLY_NAMES[type.__name__] for type in _REPLIES)])
    return {name: schema for name, schema in found.items() if name in used}


def _reached(schemas: dict[str, Schema], names: Iterable[str]) -> set[str]:
    """With all that they are made of."""
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _references(schemas[name])
    return reached


def _references(value: Any) -> Iterator[str]:
    match value:
        case {"$ref": str(ref)}:
            yield ref.removeprefix(REFS)
        case dict():
            for item in value.values():
                yield from _references(item)
        case list():
            for item in value:
                yield from _references(item)
        case _:
            pass


def ref(name: str) -> Schema:
    return {"$ref": f"{REFS}{name}"}


# --- shapes that no type of ours has: they are written from templates, or as plain dictionaries ---------


class FunctionDelta(Struct, frozen=True):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallDelta(Struct, frozen=True):
    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta | UnsetType = UNSET


class Delta(Struct, frozen=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    index: int
    delta: Delta
    finish_reason: FinishReason | None


class Chunk(Struct, frozen=True):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | UnsetType = UNSET
    cursor: CursorFields | UnsetType = UNSET


class ErrorReply(Struct, frozen=True):
    error: ErrorBody


class HealthSource(Struct, frozen=True):
    name: str
    detail: str
    demo: bool


class HealthRuns(Struct, frozen=True):
    running: int
    limit: int


class Health(Struct, frozen=True):
    status: Literal["ok", "unavailable"]
    version: str
    source: HealthSource
    mode: Mode
    model: str
    runs: HealthRuns
    workspace: str | UnsetType = UNSET


_FAILED = {
    "title": "FailedChatResponse",
    "description": "A failed run: the partial answer and the error.",
    "allOf": [{"$ref": f"{REFS}ChatResponse"}, {"$ref": f"{REFS}ErrorReply"}],
}
_REPLIES: list[type[Struct]] = [
    ErrorReply,
    ChatCompletion,
    Chunk,
    ModelList,
    ModelPage,
    Health,
    ConversationList,
    ConversationDetail,
    ConversationChanges,
    WorkspaceFiles,
    WorkspaceFolders,
    RunList,
    PermissionList,
]

# --- names: those of the types, with what keeps the two dialects apart --------------------------------

_REQUEST_NAMES = {
    "ChatRequest": "ChatRequest",
    "OfferedTool": "OfferedTool",
    "Declaration": "OfferedFunction",
    "ChosenTool": "ChosenTool",
    "AnswerRequest": "AnswerRequest",
    "ConversationChange": "ConversationChange",
    "ToolAnswer": "ToolAnswer",
    "QuestionAnswer": "QuestionAnswer",
    "PermissionAnswer": "PermissionAnswer",
    "CursorOptions": "CursorOptions",
    "_Body": "ChatCompletionRequest",
    "_System": "ChatCompletionSystemMessage",
    "_Developer": "ChatCompletionDeveloperMessage",
    "_User": "ChatCompletionUserMessage",
    "_Assistant": "ChatCompletionAssistantMessage",
    "_Tool": "ChatCompletionToolMessage",
    "_FunctionResult": "ChatCompletionFunctionMessage",
    "_Text": "ChatCompletionTextPart",
    "_Refusal": "ChatCompletionRefusalPart",
    "_ImageUrl": "ChatCompletionImagePart",
    "_Address": "ChatCompletionImageAddress",
    "_Offered": "ChatCompletionTool",
    "_Declaration": "ChatCompletionFunctionDefinition",
    "_Choice": "ChatCompletionToolChoice",
    "_Named": "ChatCompletionFunctionName",
    "_StreamOptions": "ChatCompletionStreamOptions",
    "_TextFormat": "ChatCompletionTextFormat",
    "_ObjectFormat": "ChatCompletionJsonObjectFormat",
    "_SchemaFormat": "ChatCompletionJsonSchemaFormat",
    "_Schema": "ChatCompletionJsonSchema",
}
_REPLY_NAMES = {
    "ErrorReply": "ErrorReply",
    "ErrorBody": "Error",
    "ChatCompletion": "ChatCompletion",
    "Chunk": "ChatCompletionChunk",
    "CompletionUsage": "ChatCompletionUsage",
    "CursorFields": "ChatCompletionCursor",
    "ModelList": "ModelList",
    "ModelPage": "ModelPage",
    "ModelEntry": "Model",
    "CodexModel": "CodexModel",
    "TruncationPolicy": "CodexTruncationPolicy",
    "Health": "Health",
    "HealthSource": "HealthSource",
    "HealthRuns": "HealthRuns",
    "ConversationList": "ConversationList",
    "ConversationEntry": "ConversationEntry",
    "ConversationDetail": "ConversationDetail",
    "MessageEntry": "MessageEntry",
    "RunEntry": "RunEntry",
    "ConversationChanges": "ConversationChanges",
    "FileChange": "FileChange",
    "Diff": "Diff",
    "WorkspaceFiles": "WorkspaceFiles",
    "WorkspaceFolders": "WorkspaceFolders",
    "RunList": "RunList",
    "PermissionList": "PermissionList",
    "PermissionEntry": "PermissionEntry",
    "RecentRun": "RecentRun",
    "Usage": "UsageInfo",
}


def _components(types: Iterable[Any], names: Mapping[str, str], prefix: str) -> dict[str, Schema]:
    """A type that has no name here yet gets its own, with the prefix."""
    _, found = msgspec.json.schema_components(types, ref_template=REFS + "{name}")
    renamed = {name: names.get(name) or prefix + name.lstrip("_") for name in found}
    refs = {REFS + old: REFS + new for old, new in renamed.items()}
    return {new: {**_mapped(found[old], refs), "title": new} for old, new in renamed.items()}


def _mapped(value: Any, strings: Mapping[str, str]) -> Any:
    match value:
        case dict():
            return {key: _mapped(item, strings) for key, item in value.items()}
        case list():
            return [_mapped(item, strings) for item in value]
        case str():
            return strings.get(value, value)
        case _:
            return value


def _always_written(components: dict[str, Schema]) -> dict[str, Schema]:
    """A default is for readers; what we write has the field."""
    for schema in components.values():
        properties = schema["properties"]
        schema["required"] = [
            name for name, field in properties.items() if name in schema.get("required", ()) or "default" in field
        ]
        for field in properties.values():
            field.pop("default", None)
    return components


# --- what a reader checks beside the types ------------------------------------------------------------

_IMAGE = {
    "type": "string",
    "pattern": "^data:image/(png|jpeg|gif|webp);base64,"
    "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)$",
}
_NULL = {"type": "null"}
_TEXT_PARTS = {
    "type": "array",
    "items": {"anyOf": [ref("ChatCompletionTextPart"), ref("ChatCompletionRefusalPart")]},
}
_TEXT = [{"type": "string"}, _TEXT_PARTS]  # images stand in messages of the user and of tools only

_PARAMETERS = {"anyOf": [{"type": "object", "properties": {"type": {"const": "object"}}}, _NULL]}


def _given(field: str, type: str) -> Schema:
    return {"properties": {field: {"type": type}}, "required": [field]}


# A field of a type, or a type as a whole.
_EXACT: dict[str, Schema] = {
    "ChatRequest.message": {"type": "string", "pattern": r"\S"},
    "ChatRequest.model": {"anyOf": [{"type": "string", "minLength": 1}, _NULL]},
    "ChatRequest.workspace": {"anyOf": [{"type": "string", "minLength": 1}, _NULL]},
    "ChatRequest.images": {"type": "array", "items": _IMAGE},
    "OfferedTool": {"anyOf": [_given("name", "string"), _given("function", "object")]},
    "OfferedTool.parameters": _PARAMETERS,
    "OfferedFunction.parameters": _PARAMETERS,
    "AnswerRequest": {
        "oneOf": [
            _given("toolResults", "array"),
            _given("answers", "array"),
            _given("plan", "string"),
            _given("permissions", "array"),
        ],
    },
    "ChatCompletionSystemMessage.content": {"anyOf": _TEXT},
    "ChatCompletionDeveloperMessage.content": {"anyOf": _TEXT},
    "ChatCompletionAssistantMessage.content": {"anyOf": [*_TEXT, _NULL]},
    "ChatCompletionFunctionMessage.content": {"anyOf": [*_TEXT, _NULL]},
    "ChatCompletionImagePart.image_url": {"anyOf": [_IMAGE, ref("ChatCompletionImageAddress")]},
    "ChatCompletionImageAddress.url": _IMAGE,
    "ChatCompletionFunctionDefinition.parameters": _PARAMETERS,
    "ChatCompletionRequest.functions": {"anyOf": [{"type": "array", "maxItems": 0}, _NULL]},
    "ChatCompletionRequest.n": {"enum": [1, None]},
    "ChatCompletionRequest.logprobs": {"enum": [False, None]},
    "ChatCompletionRequest.top_logprobs": {"enum": [0, None]},
    "ChatCompletionRequest.modalities": {"anyOf": [{"type": "array", "items": {"const": "text"}}, _NULL]},
}


def _described(components: dict[str, Schema]) -> dict[str, Schema]:
    for name, sentence in _IGNORED.items():
        type, _, field = name.partition(".")
        if type in components:
            components[type]["properties"].setdefault(field, {})["description"] = f"Ignored. {sentence}"
    for name, schema in components.items():
        schema["description"] = _MEANINGS.get(name, "")
        schema.update(_EXACT.get(name, {}))
        for field, its in schema["properties"].items():
            if (exact := _EXACT.get(f"{name}.{field}")) is not None:
                default = {"default": its["default"]} if "default" in its else {}
                schema["properties"][field] = its = {**exact, **default}
            if "description" not in its and (meaning := _meaning(name, field)):
                its["description"] = meaning
    return components


def _meaning(name: str, field: str) -> str:
    return _MEANINGS.get(f"{name}.{field}") or _MEANINGS.get(f".{field}", "")


_MESSAGE = "messages[]."
_IGNORED = {
    f"ChatCompletionAssistantMessage.{field.removeprefix(_MESSAGE)}"
    if field.startswith(_MESSAGE)
    else f"ChatCompletionRequest.{field}": sentence
    for field, sentence in openai_request.IGNORED.items()
}

# --- what everything means: `Type`, `Type.field`, or `.field` wherever it stands -----------------------

_MEANINGS: dict[str, str] = {
    # --- POST /v1/chat
    "ChatRequest": "One message to the agent.",
    "ChatRequest.message": "The prompt; must not be empty.",
    "ChatRequest.conversationId": "Continues this conversation. Without it, a new one starts.",
    "ChatRequest.model": "A model id from `GET /v1/models`. The default is the operator's setting.",
    "ChatRequest.stream": "Whether to stream the answer.",
    "ChatRequest.images": "Images as data: URIs: png, jpeg, gif or webp in base64.",
    "ChatRequest.tools": "Tools that the caller runs, with unique names. They replace the agent's own tools. The "
    "run pauses when the agent calls one, and continues with `POST /v1/chat/{id}/answer`.",
    "ChatRequest.follows": "The id of a run, instead of `conversationId`: to continue after its answer. If later runs "
    "exist, this starts a new conversation with what was said up to there.",
    "ChatRequest.mayAsk": "Whether an agent that can wait (`acp`) may ask questions. Otherwise they are skipped at "
    "once.",
    "ChatRequest.source": "The backend to use, one of those listed by `/health`; or `interactive`, which prefers an "
    "agent that waits for decisions and answers. The default is the operator's setting.",
    "CursorOptions.source": "The backend to use, one of those listed by `/health`. The default is the operator's "
    "setting.",
    "ChatRequest.toolChoice": "Whether the agent may call the caller's tools, must call one, or must call the "
    "named one.",
    "ChatRequest.parallelToolCalls": "Whether a reply may contain several tool calls.",
    "OfferedTool": "A tool that the caller runs, either with these fields or in OpenAI's form in `function`.",
    "OfferedTool.function": "The tool in OpenAI's form; the other fields are then ignored.",
    "OfferedFunction": "A tool that the caller runs, in OpenAI's form.",
    "ChosenTool": "The one tool that must be called.",
    **{
        f"{name}.{field}": sentence
        for name in ("OfferedTool", "OfferedFunction", "ChatCompletionFunctionDefinition")
        for field, sentence in {
            "name": "The tool's name.",
            "description": "What it does, for the model.",
            "parameters": "The JSON Schema of its arguments, which must be an object. Arguments are checked "
            "against it.",
        }.items()
    },
    "ChosenTool.name": "The name of one of `tools`.",
    # --- POST /v1/chat/{id}/answer
    "AnswerRequest": "What a run waits for or has asked: one of `toolResults`, `answers`, `plan` and `permissions`.",
    "AnswerRequest.toolResults": "The results of the caller's tools. Missing ones are requested again.",
    "AnswerRequest.answers": "Answers to the questions of a `clarification` document.",
    "AnswerRequest.plan": "The decision on a `plan` document. An accepted plan is carried out.",
    "AnswerRequest.permissions": "Decisions about documents with `metadata.permission`. A run that waits "
    "continues; what was rejected before is tried again in the next turn.",
    "PermissionAnswer": "A decision about one document.",
    "PermissionAnswer.documentId": "The document with `metadata.permission`.",
    "PermissionAnswer.decision": "`once`, `conversation` (from now on in this conversation), `workspace` (from now "
    "on in this folder), or `deny`.",
    "PermissionAnswer.reason": "With `deny`: the reason, which the agent gets.",
    "AnswerRequest.text": "A comment on the plan.",
    "AnswerRequest.stream": "Whether to stream the reply, from where the run paused.",
    "ToolAnswer": "The result of one of the caller's tools.",
    "ToolAnswer.toolCallId": "The call's id, from `metadata.waitingFor`.",
    "ToolAnswer.content": "A string, a list of parts (`text` and `image_url`, as in OpenAI's API), or any other "
    "JSON value.",
    "ToolAnswer.isError": "Whether the tool failed.",
    "QuestionAnswer": "An answer to one question.",
    "QuestionAnswer.questionId": "The question's id.",
    "QuestionAnswer.selectedOptionIds": "The ids of the chosen options.",
    "QuestionAnswer.text": "A written answer, in addition to options or instead of them.",
    ".mode": "`agent` makes changes, `plan` and `ask` do not, `debug` looks for causes first. The default is the "
    "operator's setting.",
    ".include": "Additional output: `thinking` documents, `raw` payloads of the agent's tools.",
    ".fences": "`split` turns code blocks into separate documents, `inline` leaves them in the text. The default "
    "is the operator's setting.",
    ".workspace": "The folder to work in: an allowed root or a folder below one.",
    # --- POST /v1/chat/completions
    "ChatCompletionRequest": "A chat completion request. Unknown fields are ignored, so that any client works.",
    "ChatCompletionRequest.messages": "The conversation. At least one message must not be empty.",
    "ChatCompletionRequest.model": "A model id from `GET /v1/models`. The default is the operator's setting.",
    "ChatCompletionRequest.stream": "Whether to stream the answer.",
    "ChatCompletionRequest.stream_options": "Options of a stream.",
    "ChatCompletionRequest.max_tokens": "The maximum length of the answer. If both limits are given, the smaller "
    "one applies.",
    "ChatCompletionRequest.max_completion_tokens": "The maximum length of the answer.",
    "ChatCompletionRequest.stop": "Sequences at which the answer ends.",
    "ChatCompletionRequest.response_format": "The format of the answer. It is checked, and requested once more if "
    "it does not match.",
    "ChatCompletionRequest.tools": "Functions that the caller runs, with unique names. They replace the agent's "
    "own tools. If the agent calls one, the reply ends with `tool_calls`, and the request with the results "
    "continues the same run.",
    "ChatCompletionRequest.tool_choice": "Whether the agent may call the caller's tools (`auto`, `none`), must "
    "call one (`required`), or must call the named one.",
    "ChatCompletionRequest.parallel_tool_calls": "Whether a reply may contain several tool calls.",
    "ChatCompletionRequest.functions": "The old form of `tools`. Not supported, because its results name no call; "
    "use `tools`.",
    "ChatCompletionRequest.cursor": "Gateway options. Clients that cannot send them can use headers.",
    "ChatCompletionRequest.n": "Must be 1.",
    "ChatCompletionRequest.logprobs": "Not supported by Cursor's agent.",
    "ChatCompletionRequest.top_logprobs": "Not supported by Cursor's agent.",
    "ChatCompletionRequest.modalities": "Only text is supported.",
    "CursorOptions": "Gateway options.",
    "CursorOptions.conversationId": "Continues this conversation.",
    "ChatCompletionSystemMessage": "Instructions.",
    "ChatCompletionDeveloperMessage": "Instructions; the newer name of a system message.",
    "ChatCompletionUserMessage": "A user message, which may contain images.",
    "ChatCompletionUserMessage.name": "Distinguishes several users.",
    "ChatCompletionAssistantMessage": "An earlier answer.",
    "ChatCompletionAssistantMessage.content": "The text; may be null if there are tool calls.",
    "ChatCompletionAssistantMessage.refusal": "The refusal, if there was one.",
    "ChatCompletionAssistantMessage.tool_calls": "The tool calls.",
    "ChatCompletionAssistantMessage.function_call": "The old form of `tool_calls`.",
    "ChatCompletionToolMessage": "The result of one of the caller's tools.",
    "ChatCompletionToolMessage.tool_call_id": "The id of the tool call.",
    "ChatCompletionToolMessage.name": "The tool's name.",
    "ChatCompletionFunctionMessage": "The old form of a tool message.",
    "ChatCompletionFunctionMessage.name": "The function's name.",
    ".role": "The role of the message.",
    ".content": "A string, or a list of parts.",
    "ChatCompletionTextPart": "A text part.",
    "ChatCompletionTextPart.text": "The text.",
    "ChatCompletionRefusalPart": "A refusal part.",
    "ChatCompletionRefusalPart.refusal": "The text.",
    "ChatCompletionImagePart": "An image part.",
    "ChatCompletionImagePart.image_url": "The image as a data: URI, as a string or in an object. Other URLs are "
    "not fetched.",
    "ChatCompletionImageAddress": "An image in the request itself.",
    "ChatCompletionImageAddress.url": "A data: URI: png, jpeg, gif or webp in base64.",
    "ChatCompletionTool": "A caller's tool.",
    "ChatCompletionTool.function": "The function.",
    "ChatCompletionFunctionDefinition": "A function that the agent can call.",
    "ChatCompletionFunctionDefinition.strict": "Accepted; arguments are checked either way.",
    "ChatCompletionToolChoice": "The one function that must be called.",
    "ChatCompletionToolChoice.function": "The function's name.",
    "ChatCompletionFunctionName": "A function's name.",
    "ChatCompletionStreamOptions": "Options of a stream.",
    "ChatCompletionStreamOptions.include_usage": "Whether a last chunk contains the usage.",
    "ChatCompletionTextFormat": "Any text.",
    "ChatCompletionJsonObjectFormat": "Any JSON object.",
    "ChatCompletionJsonSchemaFormat": "JSON that is valid against a schema.",
    "ChatCompletionJsonSchemaFormat.json_schema": "The schema, and its name.",
    "ChatCompletionJsonSchema": "A schema, and its name.",
    "ChatCompletionJsonSchema.name": "The name of the format.",
    "ChatCompletionJsonSchema.description": "A description of the format.",
    "ChatCompletionJsonSchema.schema": "The JSON Schema. References must stay within it.",
    ".strict": "Accepted; answers are checked either way.",
    "ChatCompletionRequestToolCall": "An earlier tool call.",
    "ChatCompletionRequestFunction": "The function that was called.",
    # --- its replies
    "ChatCompletion": "A chat completion.",
    "ChatCompletion.id": "The id of this answer, `chatcmpl-…`.",
    "ChatCompletion.choices": "The answer; always one choice.",
    "ChatCompletionChoice": "The answer.",
    "ChatCompletionChoice.message": "The message.",
    "ChatCompletionMessage": "The message.",
    "ChatCompletionMessage.content": "The agent's own text, byte for byte; null if there are only tool calls.",
    "ChatCompletionMessage.refusal": "Always null.",
    "ChatCompletionToolCall": "A tool call.",
    "ChatCompletionFunction": "The function and its arguments.",
    "ChatCompletion.usage": "The tokens of the last model call: the size of the conversation.",
    "ChatCompletion.cursor": "Gateway data.",
    "ChatCompletionCursor": "Gateway data.",
    "ChatCompletionCursor.usage": "The total of all model calls of the run, as reported by the agent.",
    "ChatCompletionUsage": "Tokens read and written.",
    "ChatCompletionUsage.prompt_tokens": "Tokens read, including those from the cache.",
    "ChatCompletionUsage.completion_tokens": "Tokens written.",
    "ChatCompletionUsage.total_tokens": "The sum of both.",
    "ChatCompletionUsage.prompt_tokens_details": "More about the tokens read.",
    "ChatCompletionUsage.completion_tokens_details": "More about the tokens written.",
    "ChatCompletionUsage.estimated": "Gateway extension: true if these are not the agent's own figures.",
    "ChatCompletionPromptTokensDetails": "More about the tokens read.",
    "ChatCompletionPromptTokensDetails.cached_tokens": "Tokens from the cache.",
    "ChatCompletionCompletionTokensDetails": "More about the tokens written.",
    "ChatCompletionCompletionTokensDetails.reasoning_tokens": "Always 0, because the agent does not report it.",
    "ChatCompletionChunk": "One event of a stream.",
    "ChatCompletionChunk.id": "The same for all chunks.",
    "ChatCompletionChunk.choices": "The changes; empty in the chunk with the usage.",
    "ChatCompletionChunk.usage": "The tokens of the last model call, in the last chunk, if requested.",
    "ChatCompletionChunk.cursor": "Gateway data, with `usage`.",
    "ChatCompletionChunkChoice": "The changes.",
    "ChatCompletionChunkChoice.delta": "The changes; the first chunk has the role.",
    "ChatCompletionChunkChoice.finish_reason": "Why the answer ends; null until then.",
    "ChatCompletionDelta": "The changes.",
    "ChatCompletionDelta.content": "The next piece of the text.",
    "ChatCompletionToolCallDelta": "The start of a call, or the next piece of its arguments.",
    "ChatCompletionToolCallDelta.index": "The index of the call.",
    "ChatCompletionToolCallDelta.id": "The call's id, only at its start.",
    "ChatCompletionToolCallDelta.type": "Only at the start of a call.",
    "ChatCompletionFunctionDelta": "The function's name, only at the start of a call, and its arguments.",
    "ChatCompletionFunctionDelta.name": "The function's name, only at the start of a call.",
    "ChatCompletionFunctionDelta.arguments": "The next piece of the JSON.",
    ".object": "The object type.",
    ".created": "When the run started, in seconds since 1970.",
    ".model": "The model that answered.",
    ".index": "Always 0.",
    ".logprobs": "Always null.",
    ".finish_reason": "`stop`, `length` if the answer was cut off, or `tool_calls` if the caller has to run tools; "
    "the run then waits for their results.",
    ".reasoning_content": "Thinking, and a line for each of the agent's actions. An extension that many clients read.",
    ".tool_calls": "Tool calls.",
    ".id": "The call's id.",
    ".type": "The object type.",
    ".function": "The function, and its arguments.",
    ".name": "The function's name.",
    ".arguments": "JSON, as the model wrote it.",
    # --- models, errors, health
    "ModelList": "The agent's models.",
    "ModelList.data": "The models in OpenAI's form.",
    "ModelList.models": "The models in Codex's form.",
    ".has_more": "Whether there is another page.",
    ".first_id": "The first id on the page.",
    ".last_id": "The last id on the page.",
    "ModelPage": "The models in Anthropic's form, for requests with `anthropic-version`.",
    "ModelPage.data": "The models. All ids contain `claude`, because Claude Code shows no others.",
    "CodexModel": "A model in Codex's catalogue.",
    "CodexModel.slug": "Its name in requests.",
    "CodexModel.description": "A description.",
    "CodexModel.supported_reasoning_levels": "Empty: effort is part of Cursor's model names.",
    "CodexModel.shell_type": "The shell tool that Codex offers.",
    "CodexModel.visibility": "Whether Codex lists it.",
    "CodexModel.supported_in_api": "Always true.",
    "CodexModel.priority": "Its position in the list.",
    "CodexModel.availability_nux": "Always null.",
    "CodexModel.upgrade": "Always null.",
    "CodexModel.support_verbosity": "Always false.",
    "CodexModel.default_verbosity": "Always null.",
    "CodexModel.apply_patch_tool_type": "Always null.",
    "CodexModel.truncation_policy": "How Codex shortens the output of tools.",
    "CodexModel.context_window": "Tokens (an assumption).",
    "CodexModel.experimental_supported_tools": "Always empty.",
    "CodexModel.input_modalities": "The supported inputs.",
    "CodexModel.base_instructions": "The instructions that Codex sends.",
    "CodexTruncationPolicy": "How Codex shortens the output of tools.",
    "CodexTruncationPolicy.mode": "The unit of the limit.",
    "CodexTruncationPolicy.limit": "The limit.",
    "Model": "A model.",
    "Model.id": "Its name in requests.",
    "Model.created": "When the gateway started, in seconds since 1970. The real date is unknown.",
    "Model.owned_by": "The provider.",
    "Model.name": "Gateway extension: the display name.",
    ".display_name": "The display name.",
    "Model.created_at": "When the gateway started.",
    "Model.lifecycle": "Always `active`.",
    "Model.max_input_tokens": "An assumption.",
    "Model.max_tokens": "An assumption.",
    # --- history
    ".whenClientLeaves": "What happens to the run when its last reader disconnects: `cancel` or `finish`. The "
    "default is the operator's setting.",
    "ConversationList": "A page of conversations.",
    "ConversationList.conversations": "Newest first.",
    "ConversationList.next": "Send this as `before` to get the next page; null on the last page.",
    "ConversationEntry": "A conversation without its messages.",
    "ConversationDetail": "A conversation with all its messages.",
    "ConversationDetail.messages": "The messages.",
    "ConversationDetail.runs": "The runs, oldest first.",
    "MessageEntry": "A message.",
    "MessageEntry.text": "The text; the documents of an answer are at `/v1/chat/{chatId}`.",
    "MessageEntry.chatId": "The run it belongs to.",
    "RunEntry": "A run.",
    "RunEntry.id": "Its id, for `/v1/chat/{id}`.",
    "RunEntry.state": "The state of the run.",
    "RunEntry.firstEventMs": "Time from the start to the first event.",
    "RunEntry.durationMs": "Time from the start to the end.",
    "RunEntry.errorCode": "The error code, if it failed.",
    "PermissionList": "The caller's decisions and the operator's rules.",
    "PermissionList.permissions": "The caller's own decisions, newest first.",
    "PermissionList.settings": "The rules of the setting `allow`, which apply to everyone.",
    "PermissionList.canAllow": "False if `permissions` is set to `deny`; decisions then have no effect.",
    "PermissionList.allowsEverything": "True if `force` is set.",
    "PermissionEntry": "A decision. `conversation` and `workspace` are rules that apply until they are revoked.",
    "PermissionEntry.id": "The id, for revoking it.",
    "PermissionEntry.decision": "The decision.",
    "PermissionEntry.rules": "What it allows, in the form of the agent's own configuration.",
    "PermissionEntry.subject": "What the agent wanted to do.",
    "PermissionEntry.reason": "Why it was denied.",
    "PermissionEntry.workspace": "The workspace in which it was decided.",
    "PermissionEntry.conversationId": "The conversation in which it was decided.",
    "PermissionEntry.chatId": "The run that asked.",
    "PermissionEntry.documentId": "The document that asked.",
    "PermissionEntry.created": "When it was decided: ISO 8601, UTC.",
    "ConversationChange": "Changes to a conversation. Omitted fields do not change.",
    "ConversationChange.title": "Its new title.",
    "ConversationChange.pinned": "Whether it is listed at the top.",
    "ConversationChanges": "The files that the agent changed in a conversation.",
    "ConversationChanges.files": "In the order in which they were first changed.",
    "FileChange": "The changes to a file.",
    "FileChange.path": "Its path, as the agent named it.",
    "FileChange.operation": "`create`, `edit`, `delete` or `rename`.",
    "FileChange.language": "The language of its code.",
    "FileChange.diffs": "Its changes, by line.",
    "WorkspaceFiles": "Files of a workspace.",
    "WorkspaceFiles.files": "Paths below the workspace, best match first.",
    "WorkspaceFolders": "Folders that a conversation may use.",
    "WorkspaceFolders.folders": "Their paths.",
    "RecentRun.prompt": "The first line of its prompt.",
    "RunList": "The most recent runs of all conversations.",
    "RunList.runs": "Newest first.",
    "RecentRun": "A run with its conversation.",
    "RecentRun.conversationId": "Its conversation.",
    "RecentRun.title": "The conversation's title.",
    "RecentRun.toolCalls": "The number of tool calls, including edits and commands; null until the run has ended.",
    **{
        f"RecentRun.{field}": sentence
        for field, sentence in {
            "id": "Its id, for `/v1/chat/{id}`.",
            "state": "The state of the run.",
            "firstEventMs": "Time from the start to the first event.",
            "durationMs": "Time from the start to the end.",
            "errorCode": "The error code, if it failed.",
        }.items()
    },
    **{
        f"{name}.{field}": sentence
        for name in ("ConversationEntry", "ConversationDetail")
        for field, sentence in {
            "id": "The id, to send as `conversationId`.",
            "title": "The first line of its first message.",
            "updated": "When it was last used.",
            "workspace": "Its workspace.",
            "isRunning": "Whether it has an active run.",
            "isWaiting": "Whether that run waits for a person's answer.",
            "pinned": "Whether it is listed at the top.",
            "snippet": "The text around the words that a search found.",
            "mode": "That of its latest run.",
            "model": "That of its latest run.",
            "created": "When it started.",
        }.items()
    },
    **{
        f"{name}.{field}": sentence
        for name in ("MessageEntry", "RunEntry", "RecentRun")
        for field, sentence in {
            "role": "The role.",
            "created": "When, in UTC.",
            "mode": "The mode of the run.",
            "model": "The requested model.",
            "usage": "Its tokens; null until it has ended.",
        }.items()
    },
    "ErrorReply": "An error.",
    "ErrorReply.error": "The error.",
    "Error": "The error, in OpenAI's form.",
    "Error.message": "What happened, and what to do.",
    "Error.type": "OpenAI's error type.",
    "Error.param": "The request field that caused it, if any.",
    "Error.code": "A stable error code.",
    "Error.details": "Gateway extension: the agent's own output, up to 2,000 characters.",
    "Health": "The state of the gateway.",
    "Health.status": "`ok`, or `unavailable` if no run can be started.",
    "Health.version": "The gateway's version.",
    "Health.source": "The backend.",
    "Health.mode": "The default mode.",
    "Health.model": "The default model.",
    "Health.runs": "The load.",
    "Health.workspace": "The default workspace; shown only if no API keys are configured.",
    "HealthSource": "The backend.",
    "HealthSource.name": "`cli` for Cursor's agent, `replay` for recordings, `demo` for the built-in one.",
    "HealthSource.detail": "The program and version, or the recordings; empty if API keys are configured.",
    "HealthSource.demo": "Whether the gateway runs as a demo.",
    "HealthRuns": "The load.",
    "HealthRuns.running": "Active runs.",
    "HealthRuns.limit": "The maximum; further runs get 429.",
}
