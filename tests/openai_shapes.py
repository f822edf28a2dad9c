"""A reply of the OpenAI API in; its parts, or an AssertionError that says which rule it breaks, out.

The types are written from OpenAI's published API (its reference, and the types that the `openai` package
generates from it), not from our encoders: required keys, what may be null, the values that exist. What OpenAI does
not have is refused, but for the additions that we document, marked `ours` below. The rules of a stream are those
that some real client breaks on.
"""

from typing import Literal, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.wire.sse import SseDecoder, SseEvent

T = TypeVar("T")

# Without OpenAI's deprecated `function_call`: a client that does not know it loops (OpenCode).
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
ServiceTier: TypeAlias = Literal["auto", "default", "flex", "scale", "priority", "fast"]


class _Closed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


# --- errors -----------------------------------------------------------------------------------------


class Error(_Closed, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str | None
    details: str | UnsetType = UNSET  # ours


class ErrorReply(_Closed, frozen=True, kw_only=True):
    error: Error


# --- usage ------------------------------------------------------------------------------------------


class PromptTokensDetails(_Closed, frozen=True, kw_only=True):
    cached_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    audio_tokens: int | UnsetType = UNSET
    image_tokens: int | UnsetType = UNSET
    text_tokens: int | UnsetType = UNSET


class CompletionTokensDetails(_Closed, frozen=True, kw_only=True):
    reasoning_tokens: int | UnsetType = UNSET
    audio_tokens: int | UnsetType = UNSET
    accepted_prediction_tokens: int | UnsetType = UNSET
    rejected_prediction_tokens: int | UnsetType = UNSET
    text_tokens: int | UnsetType = UNSET


class Usage(_Closed, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType = UNSET
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET
    estimated: bool | UnsetType = UNSET  # ours


# --- logprobs ---------------------------------------------------------------------------------------


class TopLogprob(_Closed, frozen=True, kw_only=True):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob, frozen=True, kw_only=True):
    top_logprobs: list[TopLogprob]


class Logprobs(_Closed, frozen=True, kw_only=True):
    content: list[TokenLogprob] | None
    refusal: list[TokenLogprob] | None


# --- the whole --------------------------------------------------------------------------------------


class Function(_Closed, frozen=True, kw_only=True):
    name: str
    arguments: str


class ToolCall(_Closed, frozen=True, kw_only=True):
    id: str
    type: Literal["function"]
    function: Function


class Message(_Closed, frozen=True, kw_only=True):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    tool_calls: list[ToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET  # ours


class Choice(_Closed, frozen=True, kw_only=True):
    index: int
    message: Message
    logprobs: Logprobs | None
    finish_reason: FinishReason


class Refused(_Closed, frozen=True, kw_only=True):
    """Ours."""

    document: str
    subject: str
    rules: list[str] | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    link: str | UnsetType = UNSET
    url: str | UnsetType = UNSET


class Cursor(_Closed, frozen=True, kw_only=True):
    """Ours."""

    usage: Usage | UnsetType = UNSET
    refused_count: int | UnsetType = UNSET
    refused: list[Refused] | UnsetType = UNSET


class Completion(_Closed, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage  # OpenAI's may be left out; ours never is
    cursor: Cursor | UnsetType = UNSET  # ours
    system_fingerprint: str | UnsetType = UNSET
    service_tier: ServiceTier | UnsetType | None = UNSET


class FailedCompletion(Completion, frozen=True, kw_only=True):
    """Ours: what had arrived when the run failed, and why it did."""

    error: Error


# --- the stream -------------------------------------------------------------------------------------


class FunctionDelta(_Closed, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallDelta(_Closed, frozen=True, kw_only=True):
    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta | UnsetType = UNSET


class Delta(_Closed, frozen=True, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET  # ours


class ChunkChoice(_Closed, frozen=True, kw_only=True):
    index: int
    delta: Delta
    logprobs: Logprobs | UnsetType | None = UNSET
    finish_reason: FinishReason | None


class Chunk(_Closed, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    cursor: Cursor | UnsetType = UNSET  # ours
    system_fingerprint: str | UnsetType = UNSET
    service_tier: ServiceTier | UnsetType | None = UNSET


# --- models -----------------------------------------------------------------------------------------


class Model(_Closed, frozen=True, kw_only=True):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    name: str | UnsetType = UNSET  # ours


class Models(_Closed, frozen=True, kw_only=True):
    object: Literal["list"]
    data: list[Model]


# --- a reply that is one value ------------------------------------------------------------------------


def validate_completion(body: bytes) -> Completion:
    completion = _read(body, Completion, "the completion")
    _check_choices(completion)
    return completion


def validate_failed_completion(body: bytes) -> FailedCompletion:
    completion = _read(body, FailedCompletion, "the failed completion")
    _check_choices(completion)
    return completion


def validate_models(body: bytes) -> list[Model]:
    models = _read(body, Models, "the list of models").data
    ids = [model.id for model in models]
    _rule(len(ids) == len(set(ids)), f"a model is listed twice: {sorted(ids)}")
    return models


def validate_model(body: bytes) -> Model:
    return _read(body, Model, "the model")


def validate_error(body: bytes) -> Error:
    return _read(body, ErrorReply, "the error").error


def _check_choices(completion: Completion) -> None:
    _rule([choice.index for choice in completion.choices] == [0], "there must be one choice, with index 0")
    (choice,) = completion.choices
    if choice.finish_reason == "tool_calls":
        _rule(bool(choice.message.tool_calls), "the finish reason is `tool_calls`, but there are none")
    _check_usage(completion.usage)


def _check_usage(usage: Usage) -> None:
    total = usage.prompt_tokens + usage.completion_tokens
    _rule(usage.total_tokens == total, f"total_tokens is {usage.total_tokens}, not the sum {total}")


# --- a reply that is a stream -------------------------------------------------------------------------


class Stream(Struct, frozen=True):
    chunks: list[Chunk]
    error: Error | None  # the one that took the place of a finish reason

    @property
    def text(self) -> str:
        return "".join(delta.content or "" for delta in self._deltas)

    @property
    def reasoning(self) -> str:
        return "".join(delta.reasoning_content or "" for delta in self._deltas)

    @property
    def usage(self) -> Usage | None:
        return self.chunks[-1].usage or None if self.chunks else None

    @property
    def _deltas(self) -> list[Delta]:
        return [choice.delta for chunk in self.chunks for choice in chunk.choices]


def validate_stream(body: bytes, *, include_usage: bool = False) -> list[Chunk]:
    """The chunks of a stream, the one with usage included. `include_usage` is what the request asked for."""
    return read_stream(body, include_usage=include_usage).chunks


def read_stream(body: bytes, *, include_usage: bool = False) -> Stream:
    events = SseDecoder().push(body)
    _rule(bool(events), "the stream is empty")
    _rule(body.endswith(b"\n\n"), f"the stream ends inside an event: {body[-40:]!r}")
    *events, last = events
    _rule(last.data == "[DONE]", f"the last event must be [DONE], not {last.data!r}")
    chunks: list[Chunk] = []
    error: Error | None = None
    for number, event in enumerate(events, 1):
        _rule(error is None, f"event {number} comes after the error: {event.data}")
        result = _told(event, number)
        if isinstance(result, Error):
            error = result
        else:
            chunks.append(result)
    _rule(bool(chunks) or error is not None, "there is neither a chunk nor an error")
    _check_heads(chunks)
    _check_ends(chunks, error, include_usage)
    _check_tool_calls(chunks)
    return Stream(chunks, error)


def _told(event: SseEvent, number: int) -> Chunk | Error:
    where = f"event {number}"
    # Measured: a named ping and an event without data each kill several clients.
    _rule(event.event in ("message", "error"), f"{where} is named {event.event!r}; chunks have no name")
    _rule(event.data != "[DONE]", f"{where} is [DONE], but more follows")
    _rule(event.data.strip() != "", f"{where} has no data")
    try:
        is_error = "error" in msgspec.json.decode(event.data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        _broken(f"{where} is no JSON object ({error}): {event.data}")
    if is_error:
        return _read(event.data.encode(), ErrorReply, where).error
    return _read(event.data.encode(), Chunk, where)


def _check_heads(chunks: list[Chunk]) -> None:
    for name in ("id", "created", "model", "object", "system_fingerprint"):
        values = {getattr(chunk, name) for chunk in chunks}
        _rule(len(values) <= 1, f"`{name}` must be the same in all chunks, not {values}")
    if not chunks:
        return
    _rule(bool(chunks[0].choices), "the first chunk has no choice")
    first = chunks[0].choices[0].delta
    _rule(first.role == "assistant", f"the first delta must have the role: {_json(first)}")
    _rule(first.content == "", f"the first delta's content must be empty: {_json(first)}")


def _check_ends(chunks: list[Chunk], error: Error | None, include_usage: bool) -> None:
    finish: FinishReason | None = None
    counted = False
    for number, chunk in enumerate(chunks, 1):
        _rule(not counted, f"chunk {number} comes after the usage")
        if not chunk.choices:
            _rule(include_usage, f"chunk {number} tells the usage, which was not asked for: {_json(chunk)}")
            _rule(isinstance(chunk.usage, Usage), f"chunk {number} has neither choices nor usage: {_json(chunk)}")
            _rule(finish is not None, f"chunk {number} tells the usage before the finish reason")
            counted = True
            continue
        _rule(not chunk.usage, f"chunk {number} has usage beside choices: {_json(chunk)}")
        _rule([choice.index for choice in chunk.choices] == [0], f"chunk {number} must have one choice, with index 0")
        _rule(finish is None, f"chunk {number} comes after the finish reason: {_json(chunk)}")
        finish = chunk.choices[0].finish_reason
    if error is not None:
        _rule(finish is None, f"there is both the finish reason {finish!r} and an error")
        return
    # OpenCode asks again without end when neither comes.
    _rule(finish is not None, "there is neither a finish reason nor an error")
    _rule(counted or not include_usage, "the usage was asked for, but is missing")
    if counted and isinstance(usage := chunks[-1].usage, Usage):
        _check_usage(usage)
        _rule(bool(usage.prompt_tokens_details), "usage lacks `prompt_tokens_details`")
        _rule(bool(usage.completion_tokens_details), "usage lacks `completion_tokens_details`")


def _check_tool_calls(chunks: list[Chunk]) -> None:
    begun: list[str] = []
    choices = [choice for chunk in chunks for choice in chunk.choices]
    for call in [call for choice in choices for call in choice.delta.tool_calls or []]:
        function = call.function or FunctionDelta()
        if call.index < len(begun):
            later = (call.id, call.type, function.name) == (UNSET, UNSET, UNSET)
            _rule(later, f"a later delta of a call repeats its id, type or name: {_json(call)}")
            _rule(isinstance(function.arguments, str), f"a later delta of a call has no arguments: {_json(call)}")
            continue
        _rule(call.index == len(begun), f"the next call has index {len(begun)}, not {call.index}")
        _rule(bool(call.id), f"the first delta of a call has no id: {_json(call)}")
        _rule(call.id not in begun, f"two calls have the id {call.id!r}")
        _rule(call.type == "function", f"the first delta of a call has no type: {_json(call)}")
        _rule(bool(function.name), f"the first delta of a call has no name: {_json(call)}")
        _rule(function.arguments == "", f'the first delta of a call must have `arguments: ""`: {_json(call)}')
        begun.append(str(call.id))
    if any(choice.finish_reason == "tool_calls" for choice in choices):
        _rule(bool(begun), "the finish reason is `tool_calls`, but there are none")


# --- rules ------------------------------------------------------------------------------------------


def _read(body: bytes, type: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.MsgspecError as error:
        _broken(f"{what} is not what OpenAI's API has: {error}: {body.decode(errors='replace')}")


def _rule(holds: bool, otherwise: str) -> None:
    if not holds:
        _broken(otherwise)


def _broken(rule: str) -> NoReturn:
    raise AssertionError(rule)


def _json(value: Struct) -> str:
    return msgspec.json.encode(value).decode()
