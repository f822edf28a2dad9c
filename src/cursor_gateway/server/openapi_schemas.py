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
    "description": "A run that failed: what had arrived, and why there is no more.",
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
    "ChatRequest.message": "What the agent shall do; never empty.",
    "ChatRequest.conversationId": "Goes on with this conversation; left out, a new one begins.",
    "ChatRequest.model": "One of `GET /v1/models`; left out, the operator's choice.",
    "ChatRequest.stream": "Whether the answer comes as it happens.",
    "ChatRequest.images": "Images to look at, as data: URIs: png, jpeg, gif or webp in base64.",
    "ChatRequest.tools": "Tools that the caller runs, with different names. With any, the agent's own are switched "
    "off; the run pauses where the agent calls one, and goes on with `POST /v1/chat/{id}/answer`.",
    "ChatRequest.follows": "The id of a run, instead of `conversationId`: to continue after its answer. If later runs "
    "exist, this starts a new conversation with what was said up to there.",
    "ChatRequest.mayAsk": "Whether an agent that can wait (`acp`) may ask questions; else they are skipped at once.",
    "ChatRequest.source": "What answers, of those that `/health` names; without it the usual one.",
    "CursorOptions.source": "What answers, of those that `/health` names; without it the usual one.",
    "ChatRequest.toolChoice": "Whether the agent may call tools of the caller's, must call one, or must call this one.",
    "ChatRequest.parallelToolCalls": "Whether several calls may be asked of the caller at once.",
    "OfferedTool": "A tool that the caller runs: its name and what belongs to it, or all of that in `function`.",
    "OfferedTool.function": "The same in OpenAI's form; then the rest is ignored.",
    "OfferedFunction": "A tool that the caller runs, in OpenAI's form.",
    "ChosenTool": "The one tool that must be called.",
    **{
        f"{name}.{field}": sentence
        for name in ("OfferedTool", "OfferedFunction", "ChatCompletionFunctionDefinition")
        for field, sentence in {
            "name": "The tool's name.",
            "description": "What it does, for the model.",
            "parameters": "A JSON Schema of an object: its arguments, which are checked.",
        }.items()
    },
    "ChosenTool.name": "The name of one of `tools`.",
    # --- POST /v1/chat/{id}/answer
    "AnswerRequest": "What a run waits for, or what its agent has asked: one of `toolResults`, `answers`, `plan` and "
    "`permissions`.",
    "AnswerRequest.toolResults": "What the caller's tools gave. What is missing is asked for again.",
    "AnswerRequest.answers": "Answers to the questions of a `clarification` document; they are the next message.",
    "AnswerRequest.plan": "Whether a `plan` document is accepted: then it is carried out.",
    "AnswerRequest.permissions": "Decisions about documents with `metadata.permission`. A run that waits goes on; what "
    "was rejected before is tried again in the next turn.",
    "PermissionAnswer": "A decision about one document.",
    "PermissionAnswer.documentId": "The document with `metadata.permission`.",
    "PermissionAnswer.decision": "`once`; `conversation` or `workspace`: from now on, there; or `deny`.",
    "PermissionAnswer.reason": "With `deny`: what the agent is told.",
    "AnswerRequest.text": "What else there is to say to a plan.",
    "AnswerRequest.stream": "Whether the reply comes as it happens, from where the run had paused.",
    "ToolAnswer": "What one of the caller's tools gave.",
    "ToolAnswer.toolCallId": "The call, as `metadata.waitingFor` has it.",
    "ToolAnswer.content": "A text; a list of parts, `text` and `image_url` as OpenAI has them; or any other JSON.",
    "ToolAnswer.isError": "Whether the tool failed.",
    "QuestionAnswer": "An answer to one question.",
    "QuestionAnswer.questionId": "The question.",
    "QuestionAnswer.selectedOptionIds": "The options that are chosen.",
    "QuestionAnswer.text": "An answer in words, beside options or instead of them.",
    ".mode": "`agent` works, `plan` and `ask` change nothing, `debug` works and looks for causes first; left out, "
    "the operator's choice.",
    ".include": "What else to tell: `thinking` as documents, `raw` payloads of the agent's tools.",
    ".fences": "`split` makes documents of the code in a text, `inline` leaves it there; left out, the operator's "
    "choice.",
    ".workspace": "The folder to work in, below one that the operator allows.",
    # --- POST /v1/chat/completions
    "ChatCompletionRequest": "OpenAI's request. Fields that are not listed are ignored, so that any client works.",
    "ChatCompletionRequest.messages": "The conversation. At least one message must say something.",
    "ChatCompletionRequest.model": "One of `GET /v1/models`; left out, the operator's choice.",
    "ChatCompletionRequest.stream": "Whether the answer comes as it happens.",
    "ChatCompletionRequest.stream_options": "What a stream tells beside the answer.",
    "ChatCompletionRequest.max_tokens": "Where to cut the answer; the smaller one of both limits counts.",
    "ChatCompletionRequest.max_completion_tokens": "Where to cut the answer.",
    "ChatCompletionRequest.stop": "Texts before which the answer ends.",
    "ChatCompletionRequest.response_format": "The form of the answer: asked for, checked, and asked for once more "
    "when it does not fit.",
    "ChatCompletionRequest.tools": "Functions that the caller runs, with different names. With any, the agent's own "
    "tools are switched off; where the agent calls one, the reply ends with `tool_calls`, and the request that brings "
    "the results goes on with the same run.",
    "ChatCompletionRequest.tool_choice": "Whether the agent may call a tool of the caller's (`auto`, `none`), must "
    "call one (`required`), or must call the one that is named.",
    "ChatCompletionRequest.parallel_tool_calls": "Whether several calls may be asked of the caller at once.",
    "ChatCompletionRequest.functions": "The old form of `tools`, whose results name no call; send `tools`.",
    "ChatCompletionRequest.cursor": "Ours: what OpenAI has no field for. Clients that cannot send it have headers.",
    "ChatCompletionRequest.n": "A request has one answer.",
    "ChatCompletionRequest.logprobs": "Cursor's agent tells no probabilities.",
    "ChatCompletionRequest.top_logprobs": "Cursor's agent tells no probabilities.",
    "ChatCompletionRequest.modalities": "Answers are text.",
    "CursorOptions": "Ours: what OpenAI's API has no field for.",
    "CursorOptions.conversationId": "Goes on with this conversation of the gateway's.",
    "ChatCompletionSystemMessage": "Instructions.",
    "ChatCompletionDeveloperMessage": "Instructions, under their newer name.",
    "ChatCompletionUserMessage": "What the user says, with images if need be.",
    "ChatCompletionUserMessage.name": "Tells several users apart.",
    "ChatCompletionAssistantMessage": "What was answered before.",
    "ChatCompletionAssistantMessage.content": "The text; null beside calls.",
    "ChatCompletionAssistantMessage.refusal": "Why there was no answer.",
    "ChatCompletionAssistantMessage.tool_calls": "The tools that were called.",
    "ChatCompletionAssistantMessage.function_call": "The old form of `tool_calls`.",
    "ChatCompletionToolMessage": "What a tool of the caller's gave.",
    "ChatCompletionToolMessage.tool_call_id": "The call that it answers.",
    "ChatCompletionToolMessage.name": "The tool's name.",
    "ChatCompletionFunctionMessage": "The old form of a tool's message.",
    "ChatCompletionFunctionMessage.name": "The function's name.",
    ".role": "Whose message it is.",
    ".content": "A text, or parts.",
    "ChatCompletionTextPart": "A part that is text.",
    "ChatCompletionTextPart.text": "The text.",
    "ChatCompletionRefusalPart": "A part that says why there was no answer.",
    "ChatCompletionRefusalPart.refusal": "The text.",
    "ChatCompletionImagePart": "A part that is an image.",
    "ChatCompletionImagePart.image_url": "The image as a data: URI, bare or in an object. Nothing is fetched.",
    "ChatCompletionImageAddress": "Where an image is: in the request itself.",
    "ChatCompletionImageAddress.url": "A data: URI: png, jpeg, gif or webp in base64.",
    "ChatCompletionTool": "A tool of the caller's.",
    "ChatCompletionTool.function": "The function.",
    "ChatCompletionFunctionDefinition": "A function that can be called.",
    "ChatCompletionFunctionDefinition.strict": "Accepted; arguments are checked either way.",
    "ChatCompletionToolChoice": "The one function that must be called.",
    "ChatCompletionToolChoice.function": "Which one.",
    "ChatCompletionFunctionName": "A function's name.",
    "ChatCompletionStreamOptions": "What a stream tells beside the answer.",
    "ChatCompletionStreamOptions.include_usage": "Whether a last chunk tells the tokens.",
    "ChatCompletionTextFormat": "Any text.",
    "ChatCompletionJsonObjectFormat": "Any JSON object.",
    "ChatCompletionJsonSchemaFormat": "JSON that is valid against a schema.",
    "ChatCompletionJsonSchemaFormat.json_schema": "The schema, and its name.",
    "ChatCompletionJsonSchema": "A schema, and its name.",
    "ChatCompletionJsonSchema.name": "What the answer is called.",
    "ChatCompletionJsonSchema.description": "What the answer is for.",
    "ChatCompletionJsonSchema.schema": "The JSON Schema itself. References lead nowhere but into it.",
    ".strict": "Accepted; answers are checked either way.",
    "ChatCompletionRequestToolCall": "A call that was made before.",
    "ChatCompletionRequestFunction": "The function that was called.",
    # --- its replies
    "ChatCompletion": "OpenAI's reply.",
    "ChatCompletion.id": "The id of this answer, `chatcmpl-…`.",
    "ChatCompletion.choices": "The answer: always one.",
    "ChatCompletionChoice": "The answer.",
    "ChatCompletionChoice.message": "What is answered.",
    "ChatCompletionMessage": "What is answered.",
    "ChatCompletionMessage.content": "The agent's own text, byte for byte; null where there are only calls.",
    "ChatCompletionMessage.refusal": "Always null.",
    "ChatCompletionToolCall": "A call.",
    "ChatCompletionFunction": "The function that is called.",
    "ChatCompletion.usage": "The tokens of the last model call: the size of the conversation.",
    "ChatCompletion.cursor": "Ours: what OpenAI's API has no place for.",
    "ChatCompletionCursor": "What OpenAI's API has no place for.",
    "ChatCompletionCursor.usage": "The tokens of all model calls of the run added up, as the agent reports them.",
    "ChatCompletionUsage": "Tokens that were read and written.",
    "ChatCompletionUsage.prompt_tokens": "Tokens read, those from the cache included.",
    "ChatCompletionUsage.completion_tokens": "Tokens written.",
    "ChatCompletionUsage.total_tokens": "The sum of both.",
    "ChatCompletionUsage.prompt_tokens_details": "More about the tokens read.",
    "ChatCompletionUsage.completion_tokens_details": "More about the tokens written.",
    "ChatCompletionUsage.estimated": "Ours: true when these are not the agent's own figures.",
    "ChatCompletionPromptTokensDetails": "More about the tokens read.",
    "ChatCompletionPromptTokensDetails.cached_tokens": "Those that came from the cache.",
    "ChatCompletionCompletionTokensDetails": "More about the tokens written.",
    "ChatCompletionCompletionTokensDetails.reasoning_tokens": "Always 0: the agent does not tell.",
    "ChatCompletionChunk": "One event of a stream: what is new.",
    "ChatCompletionChunk.id": "The same in all chunks.",
    "ChatCompletionChunk.choices": "What is new; empty in the chunk that tells the usage.",
    "ChatCompletionChunk.usage": "The tokens of the last model call, in a last chunk, when they were asked for.",
    "ChatCompletionChunk.cursor": "Ours, beside `usage`.",
    "ChatCompletionChunkChoice": "What is new.",
    "ChatCompletionChunkChoice.delta": "What is new; the first one has the role.",
    "ChatCompletionChunkChoice.finish_reason": "Why the answer ends; null while it goes on.",
    "ChatCompletionDelta": "What is new.",
    "ChatCompletionDelta.content": "The next piece of the text.",
    "ChatCompletionToolCallDelta": "The beginning of a call, or the next piece of its arguments.",
    "ChatCompletionToolCallDelta.index": "Which call.",
    "ChatCompletionToolCallDelta.id": "The call's id, at its beginning only.",
    "ChatCompletionToolCallDelta.type": "At its beginning only.",
    "ChatCompletionFunctionDelta": "A function's name, at the beginning of a call only, and arguments.",
    "ChatCompletionFunctionDelta.name": "The function's name, at the beginning of a call only.",
    "ChatCompletionFunctionDelta.arguments": "The next piece of the JSON.",
    ".object": "What it is.",
    ".created": "When it began, in seconds since 1970.",
    ".model": "The model that answered.",
    ".index": "Always 0.",
    ".logprobs": "Always null.",
    ".finish_reason": "`stop`, `length` for an answer that is cut short, or `tool_calls` where the caller is to run "
    "some: then the run waits for their results.",
    ".reasoning_content": "Ours, as many clients read it: thinking, and a line for each thing that the agent did.",
    ".tool_calls": "Calls of tools.",
    ".id": "The call's id.",
    ".type": "What it is.",
    ".function": "The function, and its arguments.",
    ".name": "The function's name.",
    ".arguments": "JSON, as the model wrote it.",
    # --- models, errors, health
    "ModelList": "The models of the agent.",
    "ModelList.data": "One by one, as OpenAI's clients read them.",
    "ModelList.models": "The same for Codex.",
    ".has_more": "Whether there is another page.",
    ".first_id": "The first of the page.",
    ".last_id": "The last of the page.",
    "ModelPage": "The models, as Anthropic's clients read them: for requests with `anthropic-version`.",
    "ModelPage.data": "One by one. All have `claude` in their ids, as Claude Code shows no others.",
    "CodexModel": "A model in Codex's catalogue.",
    "CodexModel.slug": "Its name in requests.",
    "CodexModel.description": "What it is.",
    "CodexModel.supported_reasoning_levels": "None: Cursor's models have their effort in their names.",
    "CodexModel.shell_type": "The shell tool that Codex offers.",
    "CodexModel.visibility": "Whether Codex lists it.",
    "CodexModel.supported_in_api": "Always true.",
    "CodexModel.priority": "Its place in the list.",
    "CodexModel.availability_nux": "Nothing.",
    "CodexModel.upgrade": "Nothing.",
    "CodexModel.support_verbosity": "Always false.",
    "CodexModel.default_verbosity": "Nothing.",
    "CodexModel.apply_patch_tool_type": "Nothing.",
    "CodexModel.truncation_policy": "How Codex shortens the output of tools.",
    "CodexModel.context_window": "Tokens; an assumption.",
    "CodexModel.experimental_supported_tools": "None.",
    "CodexModel.input_modalities": "What it takes.",
    "CodexModel.base_instructions": "The instructions that Codex sends.",
    "CodexTruncationPolicy": "How Codex shortens the output of tools.",
    "CodexTruncationPolicy.mode": "What is counted.",
    "CodexTruncationPolicy.limit": "The most of it.",
    "Model": "A model.",
    "Model.id": "Its name in requests.",
    "Model.created": "When the gateway was started, in seconds since 1970: nobody knows better.",
    "Model.owned_by": "Who offers it.",
    "Model.name": "Ours: its name for people.",
    ".display_name": "Its name for people.",
    "Model.created_at": "When the gateway was started.",
    "Model.lifecycle": "Always `active`.",
    "Model.max_input_tokens": "An assumption.",
    "Model.max_tokens": "An assumption.",
    # --- history
    ".whenClientLeaves": "What happens to the run when nobody reads it any more: it is cancelled, or it finishes; left "
    "out, the operator's choice.",
    "ConversationList": "A page of conversations.",
    "ConversationList.conversations": "The newest first.",
    "ConversationList.next": "What to send as `before` for the next page; null on the last.",
    "ConversationEntry": "One conversation, in short.",
    "ConversationDetail": "One conversation, with all that was said in it.",
    "ConversationDetail.messages": "What was said.",
    "ConversationDetail.runs": "The runs, the oldest first.",
    "MessageEntry": "What somebody said.",
    "MessageEntry.text": "The text; the documents of an answer are at `/v1/chat/{chatId}`.",
    "MessageEntry.chatId": "The run that it belongs to.",
    "RunEntry": "One run of a conversation.",
    "RunEntry.id": "Its id, for `/v1/chat/{id}`.",
    "RunEntry.state": "How it ended, if it has.",
    "RunEntry.firstEventMs": "From its start to the first event for readers.",
    "RunEntry.durationMs": "From its start to its end.",
    "RunEntry.errorCode": "Why it failed, if it did.",
    "PermissionList": "What callers have allowed, and the operator's own rules.",
    "PermissionList.permissions": "The caller's own decisions, the newest first.",
    "PermissionList.settings": "The rules of the setting `allow`, which hold for everybody.",
    "PermissionList.canAllow": "False if the operator has set `permissions` to `deny`: then these have no effect.",
    "PermissionList.allowsEverything": "True if the operator has set `force`.",
    "PermissionEntry": "One decision. `conversation` and `workspace` are rules, which hold until they are revoked.",
    "PermissionEntry.id": "The id to revoke it by.",
    "PermissionEntry.decision": "What was decided.",
    "PermissionEntry.rules": "What it allows, in the form of the agent's own configuration.",
    "PermissionEntry.subject": "What the agent wanted to do.",
    "PermissionEntry.reason": "Why it was denied.",
    "PermissionEntry.workspace": "The workspace in which it was decided.",
    "PermissionEntry.conversationId": "The conversation in which it was decided.",
    "PermissionEntry.chatId": "The run that asked.",
    "PermissionEntry.documentId": "The document that asked.",
    "PermissionEntry.created": "When it was decided: ISO 8601, UTC.",
    "ConversationChange": "What to change of a conversation; what is left out stays.",
    "ConversationChange.title": "Its new title.",
    "ConversationChange.pinned": "Whether it is listed at the top.",
    "ConversationChanges": "The files that the agent changed in a conversation.",
    "ConversationChanges.files": "In the order in which they were first changed.",
    "FileChange": "What became of a file.",
    "FileChange.path": "Its path, as the agent named it.",
    "FileChange.operation": "`create`, `edit`, `delete` or `rename`.",
    "FileChange.language": "The language of its code.",
    "FileChange.diffs": "Its changes, by line.",
    "WorkspaceFiles": "Files of a workspace.",
    "WorkspaceFiles.files": "Paths below the workspace, best match first.",
    "WorkspaceFolders": "Folders that a conversation may use.",
    "WorkspaceFolders.folders": "Their paths.",
    "RecentRun.prompt": "The first line of its prompt.",
    "RunList": "The newest runs of all conversations.",
    "RunList.runs": "The newest first.",
    "RecentRun": "One run of any conversation.",
    "RecentRun.conversationId": "Its conversation.",
    "RecentRun.title": "The conversation's title.",
    "RecentRun.toolCalls": "How many tools were used, edits and commands included; null until it has ended.",
    **{
        f"RecentRun.{field}": sentence
        for field, sentence in {
            "id": "Its id, for `/v1/chat/{id}`.",
            "state": "How it ended, if it has.",
            "firstEventMs": "From its start to the first event for readers.",
            "durationMs": "From its start to its end.",
            "errorCode": "Why it failed, if it did.",
        }.items()
    },
    **{
        f"{name}.{field}": sentence
        for name in ("ConversationEntry", "ConversationDetail")
        for field, sentence in {
            "id": "To go on with it, as `conversationId`.",
            "title": "The first line of its first message.",
            "updated": "When it was used last.",
            "workspace": "The folder that it works in.",
            "isRunning": "Whether it has a run now.",
            "isWaiting": "Whether that run waits for a person's answer.",
            "pinned": "Whether it is listed at the top.",
            "snippet": "Where the words of a search were found.",
            "mode": "Of its newest run.",
            "model": "Of its newest run.",
            "created": "When it began.",
        }.items()
    },
    **{
        f"{name}.{field}": sentence
        for name in ("MessageEntry", "RunEntry", "RecentRun")
        for field, sentence in {
            "role": "Who said it.",
            "created": "When, in UTC.",
            "mode": "The mode of the run.",
            "model": "The model that was asked for.",
            "usage": "Its tokens; null until it has ended.",
        }.items()
    },
    "ErrorReply": "Why there is no answer.",
    "ErrorReply.error": "What went wrong.",
    "Error": "What went wrong, in OpenAI's form.",
    "Error.message": "What happened, and what to do, in a sentence.",
    "Error.type": "OpenAI's kind of error.",
    "Error.param": "The field of the request that is to blame, if one is.",
    "Error.code": "A stable name of what went wrong.",
    "Error.details": "Ours: what the agent itself said about it, up to 2,000 characters.",
    "Health": "Whether the gateway is there, and what answers.",
    "Health.status": "It answers.",
    "Health.version": "The gateway's version.",
    "Health.source": "What answers.",
    "Health.mode": "The default mode.",
    "Health.model": "The default model.",
    "Health.runs": "How busy it is.",
    "Health.workspace": "The folder of requests that name none; told only where no API keys are needed.",
    "HealthSource": "What answers.",
    "HealthSource.name": "`cli` for Cursor's agent, `replay` for recordings, `demo` for the built-in one.",
    "HealthSource.detail": "Which program and version, or which recordings; empty where API keys are needed.",
    "HealthSource.demo": "Whether answers are only a demonstration.",
    "HealthRuns": "How busy it is.",
    "HealthRuns.running": "Runs at this moment.",
    "HealthRuns.limit": "The most at a time; the next one gets 429.",
}
