"""The parts of an OpenAPI 3.1 document: operations, parameters, replies, errors and schemas.

Each dialect describes its own paths in its `openapi.py`, and `server/openapi.py` the others; `server/openapi.py`
puts everything together. Schemas come from the msgspec types, errors from the classes in `errors`, and the examples
of replies from a sample run through the dialect's own encoders, so none of them can fall behind.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Struct

from cursor_gateway import errors
from cursor_gateway.dialects.base import Reply, ReplyStart, RunView
from cursor_gateway.dialects.errors import OPENAI_ERRORS, OWN_ERRORS, ErrorBody, Errors
from cursor_gateway.dialects.requests import CursorOptions, header_names
from cursor_gateway.errors import AgentError, Failure, GatewayError, KeyRefused, MethodRefused
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.requests import RunOptions

Json = dict[str, Any]
Fields = dict[str, tuple[Json, str]]  # the schema and the meaning of each field
Exact = Mapping[str, Json]  # of `Type` or `Type.field`: in the place of what the types say
Naming = Callable[[str], str]  # the name of the schema of a type, by the type's name

_REFS = "#/components/schemas/"
_NAMES = {"Usage": "UsageInfo", "ErrorBody": "Error", "RefusedCall": "RefusedCall", "CursorOptions": "CursorOptions"}
TEXT: Json = {"type": "string"}
NAME: Json = {"type": "string", "minLength": 1}
COUNT: Json = {"type": "integer", "minimum": 0}
OBJECT: Json = {"type": "object"}
NULL: Json = {"type": "null"}
IMAGE: Json = {
    "type": "string",
    "pattern": "^data:image/(png|jpeg|gif|webp);base64,"
    "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)$",
}
TOOL_PARAMETERS: Json = {"anyOf": [{"type": "object", "properties": {"type": {"const": "object"}}}, NULL]}

WEATHER: Json = {  # a caller's tool, in examples
    "name": "weather",
    "description": "The weather in a town.",
    "parameters": {"type": "object", "properties": {"town": TEXT}, "required": ["town"]},
}


class Sample(Struct, frozen=True):
    """A short run, for the examples in the description of the API."""

    run: RunView
    events: Sequence[DocumentEvent]


class Description(Struct, frozen=True):
    """A group of paths in the terms of OpenAPI."""

    tag: str
    about: str
    operations: Mapping[str, dict[str, Any]]  # by method and path
    schemas: Mapping[str, dict[str, Any]] = {}


# --- operations -------------------------------------------------------------------------------------


class ErrorForm(Struct, frozen=True):
    """The form of a path's errors."""

    schema: str
    errors: Errors
    other: str = ""  # the schema of the form that a header chooses

    def example(self, failure: Failure) -> object:
        encoded = self.errors.encode(failure, "")
        return msgspec.json.decode(encoded) if self.errors.media_type == "application/json" else encoded.decode()


OWN_ENVELOPE = ErrorForm("ErrorReply", OWN_ERRORS)
OPENAI_ENVELOPE = ErrorForm("ErrorReply", OPENAI_ERRORS)


def operation(
    id: str,
    summary: str,
    description: str,
    *,
    replies: Json,
    body: Json | None = None,
    errors: Iterable[type[GatewayError]] = (),
    failed_run: str = "",
    parameters: Iterable[Json] = (),
    is_open: bool = False,
    envelope: ErrorForm = OWN_ENVELOPE,
) -> Json:
    """`errors` are those that not every operation has; `failed_run` is the schema of the reply when a run fails."""
    every: set[type[GatewayError]] = {*_ANYWHERE, *errors}
    if not is_open:
        every.add(KeyRefused)
    return {
        "operationId": id,
        "summary": summary,
        "description": description,
        "parameters": [*parameters, *([] if is_open else [{"$ref": "#/components/parameters/X-Request-Id"}])],
        **({} if body is None else {"requestBody": body}),
        "responses": {**replies, **_error_responses(every, failed_run, envelope)},
        **({"security": []} if is_open else {}),
    }


def json_body(schema: str, **examples: tuple[str, Json]) -> Json:
    shown = {name: {"summary": summary, "value": value} for name, (summary, value) in examples.items()}
    return {"required": True, "content": {"application/json": {"schema": ref(schema), "examples": shown}}}


# An empty body is accepted too. It is marked as required, because clients would omit its type otherwise.
EMPTY_BODY: Json = {"required": True, "content": {"application/json": {"schema": OBJECT, "example": {}}}}


def path_id(about: str, example: str) -> Json:
    return {"name": "id", "in": "path", "required": True, "description": about, "schema": NAME, "example": example}


def header(name: str, about: str, schema: Json = NAME) -> Json:
    return {"name": name, "in": "header", "description": about, "schema": schema}


def query(name: str, about: str, schema: Json = TEXT) -> Json:
    return {"name": name, "in": "query", "description": about, "schema": schema}


def page_size(default: int) -> Json:
    return query("limit", "The page size.", {"type": "integer", "minimum": 1, "maximum": 100, "default": default})


IDEMPOTENCY_KEY = header(
    "Idempotency-Key",
    "A unique key for this request. Repeating the request with the same key joins the existing run instead of starting "
    "another.",
    {"type": "string", "pattern": "^[!-~]{1,255}$"},
)
SESSION_HEADERS = [
    header(name, "The client's session id. It separates conversations that start with the same messages.")
    for name in ("X-Session-Id", "X-Session-Affinity")
]


def cursor_headers(options: type[RunOptions]) -> list[Json]:
    """The headers for clients that cannot send a `cursor` object."""
    (schema,) = _components([options], str).values()
    found = []
    for field, name in header_names(options).items():
        shape = next(shape for shape in schema["properties"][field]["anyOf"] if shape != NULL)
        about = f"For clients that cannot send `cursor.{field}`, which takes precedence."
        if shape.get("type") == "array":
            words = shape["items"].get("enum")
            word = f"({'|'.join(words)})" if words else "[^,]+"
            about, shape = f"{about} Separated by commas.", {"type": "string", "pattern": f"^{word}( *, *{word})*$"}
        found.append(header(name.title(), about, shape))
    return found


# --- replies ----------------------------------------------------------------------------------------

RUN_HEADERS = ("X-Chat-Id", "X-Conversation-Id")
_EVERY_REPLY = ("X-Request-Id", "X-Cursor-Gateway-Source")


def reply(about: str, content: Json | None = None, headers: Iterable[str] = ()) -> Json:
    shown = {name: {"$ref": f"#/components/headers/{name}"} for name in (*_EVERY_REPLY, *headers)}
    return {"description": about, "headers": shown, **({"content": content} if content else {})}


def ok(about: str, content: Json, headers: Iterable[str] = ()) -> Json:
    return {"200": reply(about, content, headers)}


def json_content(schema: Json, example: Json) -> Json:
    return {"application/json": {"schema": schema, "example": example}}


def json_ok(about: str, schema: str, example: Json) -> Json:
    return ok(about, json_content(ref(schema), example))


def stream(about: str, item: Json, example: str) -> Json:
    # What a stream consists of is `itemSchema` from OpenAPI 3.2 on; a `schema` would be about all of it at once.
    return {"x-itemSchema": {**item, "description": about}, "example": example}


def sse_event(data: Iterable[str], **fields: Json) -> Json:
    """A Server-Sent Event whose data is JSON of one of these schemas."""
    content = {"anyOf": [ref(name) for name in data]}
    payload = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    return {"type": "object", "properties": {**fields, "data": payload}, "required": [*fields, "data"]}


def whole_example(sample: Sample, reply: Reply) -> Json:
    whole = reply.whole(sample.run, ReplyStart())
    for event in sample.events:
        whole.push(event)
    example: Json = msgspec.json.decode(whole.body())
    return example


def stream_example(sample: Sample, reply: Reply) -> str:
    return reply.stream(sample.run, ReplyStart()).push_all(sample.events).decode()


# --- errors -----------------------------------------------------------------------------------------

_ANYWHERE = (
    errors.InvalidRequest,
    errors.RequestForbidden,
    errors.MethodRefused,
    errors.RequestTooSlow,
    errors.HeadTooLarge,
    errors.GatewayFault,
    errors.HostExhausted,
    errors.ShuttingDown,
    errors.TooManyConnections,
)
OF_STORED = (errors.NotFound, errors.HistoryDamaged, errors.StoreUnavailable)  # of what is looked up by an id
OF_BODIES = (errors.MediaTypeRefused, errors.RequestTooLarge)
_NOT_OF_RUNS = {
    errors.FileChanged,
    errors.LogReset,
    errors.SettingsError,
    errors.UnusableInput,
    errors.WebSocketRefused,
}


def run_errors(of: type[GatewayError] = GatewayError) -> set[type[GatewayError]]:
    """Those that the reply of a run may have."""
    return set(_leaves(of)) - _NOT_OF_RUNS


def _leaves(error: type[GatewayError]) -> Iterator[type[GatewayError]]:
    if "code" in vars(error):
        yield error
    for child in [child for child in error.__subclasses__() if child.__module__ == errors.__name__]:
        yield from _leaves(child)


def _error_responses(errors: Iterable[type[GatewayError]], failed_run: str, envelope: ErrorForm) -> Json:
    failures = [envelope.errors.shown(error(_sentence(error)).failure()) for error in errors]
    grouped: dict[str, list[Failure]] = {}
    for failure in sorted(failures, key=lambda failure: (failure.status, failure.code)):
        grouped.setdefault(str(failure.status), []).append(failure)
    return {status: _error_response(group, failed_run, envelope) for status, group in grouped.items()}


def _error_response(failures: Sequence[Failure], failed_run: str, envelope: ErrorForm) -> Json:
    codes = {failure.code for failure in failures}
    is_of_run = bool(failed_run) and any(failure.source == AgentError.source for failure in failures)
    headers = [
        *(RUN_HEADERS if is_of_run else ()),
        "X-Should-Retry",
        *(["Retry-After"] if any(failure.retry_after is not None for failure in failures) else ()),
        *(["WWW-Authenticate"] if KeyRefused.code in codes else ()),
        *(["Allow"] if MethodRefused.code in codes else ()),
    ]
    forms = dict.fromkeys(filter(None, [failed_run if is_of_run else "", envelope.schema, envelope.other]))
    schema = {"anyOf": [ref(form) for form in forms]} if len(forms) > 1 else ref(envelope.schema)
    examples = {
        failure.code: {"summary": _meaning(failure), "value": envelope.example(failure)} for failure in failures
    }
    about = " ".join(f"`{failure.code}`: {_meaning(failure)}" for failure in failures)
    return reply(about, {envelope.errors.media_type: {"schema": schema, "examples": examples}}, headers)


def _sentence(error: type[GatewayError]) -> str:
    """The docstring, which Python's -OO leaves out."""
    return error.__doc__ or f"{error.code.replace('_', ' ').capitalize()}."


def _meaning(failure: Failure) -> str:
    return failure.message if failure.retry_after is None else f"{failure.message} `Retry-After` says when to retry."


# --- schemas ----------------------------------------------------------------------------------------


def ref(name: str) -> Json:
    return {"$ref": f"{_REFS}{name}"}


def list_of(name: str) -> Json:
    return {"type": "array", "items": ref(name)}


def record(title: str, about: str, fields: Fields, required: Iterable[str] | None = None) -> dict[str, Json]:
    """A schema without a type. All fields are required by default."""
    properties = {name: {**schema, "description": meaning} for name, (schema, meaning) in fields.items()}
    names = list(properties if required is None else required)
    return {
        title: {"title": title, "description": about, "type": "object", "properties": properties, "required": names}
    }


def read_schemas(types: Iterable[type[Struct]], naming: Naming = str, exact: Exact | None = None) -> dict[str, Json]:
    """The schemas of the types of requests."""
    return _described(_exactly(_components(types, naming), exact or {}), types, naming)


def written_schemas(types: Iterable[type[Struct]], naming: Naming = str, exact: Exact | None = None) -> dict[str, Json]:
    """Of the types of replies. A default is for readers; a reply always has the field."""
    schemas = _components(types, naming)
    for schema in schemas.values():
        required, properties = schema.get("required", ()), schema["properties"]
        schema["required"] = [name for name, field in properties.items() if name in required or "default" in field]
        for field in properties.values():
            field.pop("default", None)
    return _described(_exactly(schemas, exact or {}), types, naming)


def ignore(schema: Json, reasons: Mapping[str, str]) -> None:
    """Says of the fields of a request that they have no effect, and why."""
    for name, why in reasons.items():
        if not {".", "["} & set(name):
            schema["properties"].setdefault(name, {})["description"] = f"Ignored. {why}"


def shared_schemas() -> dict[str, Json]:
    """Of what more than one dialect has."""
    return read_schemas([CursorOptions]) | written_schemas([ErrorReply])


class ErrorReply(Struct, frozen=True):
    """An error."""

    error: Annotated[ErrorBody, "The error."]


def described(hint: Any) -> tuple[Any, str]:
    """A type, and the sentence about it in its `Annotated`."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    return hint.__origin__, next((about for about in hint.__metadata__ if isinstance(about, str)), "")


def _structs(hint: Any, found: dict[str, type[Struct]]) -> None:
    """Those that a type consists of, by name."""
    if isinstance(hint, type) and issubclass(hint, Struct) and hint.__name__ not in found:
        found[hint.__name__] = hint
        for field in msgspec.structs.fields(hint):
            _structs(field.type, found)
    for part in get_args(hint):
        _structs(part, found)


def _components(types: Iterable[type[Struct]], naming: Naming) -> dict[str, Json]:
    _, found = msgspec.json.schema_components(types, ref_template=_REFS + "{name}")
    structs: dict[str, type[Struct]] = {}
    for root in types:
        _structs(root, structs)
    for name, schema in found.items():
        for field in msgspec.structs.fields(structs[name]):
            if about := described(field.type)[1]:
                schema["properties"][field.encode_name]["description"] = about
    renamed = {name: _NAMES.get(name) or naming(name.lstrip("_")) for name in found}
    text = re.sub(rf'"{_REFS}(\w+)"', lambda ref: f'"{_REFS}{renamed[ref[1]]}"', json.dumps(found))
    schemas = {renamed[name]: {**schema, "title": renamed[name]} for name, schema in json.loads(text).items()}
    for schema in schemas.values():
        required = schema.get("required", ())  # these first, whichever type they are inherited from
        schema["properties"] = dict(sorted(schema["properties"].items(), key=lambda field: field[0] not in required))
    return schemas


def _exactly(schemas: dict[str, Json], exact: Exact) -> dict[str, Json]:
    """With what the reader of a type or a field checks beyond its type."""
    for name, exact_schema in exact.items():
        type, _, field = name.partition(".")
        if not field:
            schemas[type].update(exact_schema)
        else:
            told = schemas[type]["properties"][field]
            kept = {key: told[key] for key in ("default", "description") if key in told}
            schemas[type]["properties"][field] = {**kept, **exact_schema}
    return schemas


def _described(schemas: dict[str, Json], types: Iterable[type[Struct]], naming: Naming) -> dict[str, Json]:
    """Those that are still referred to. A field without a sentence of its own has that of its value."""
    used: dict[str, Json] = {}
    waiting = [naming(type.__name__.lstrip("_")) for type in types]
    while waiting:
        if (name := waiting.pop()) in schemas and name not in used:
            used[name] = schema = schemas[name]
            waiting += re.findall(rf'"{_REFS}(\w+)"', json.dumps(schema))
            for shape in schema["properties"].values():
                if "description" not in shape and (meaning := _own_meaning(shape, schemas)):
                    shape["description"] = meaning
    return used


def _own_meaning(shape: Json, schemas: Mapping[str, Json]) -> str:
    """Of a constant; or that of the schema that it refers to."""
    match shape:
        case {"type": "null"}:
            return "Always null."
        case {"enum": [value]}:
            return f"Always `{value}`."
        case {"$ref": str(ref)} | {"anyOf": [{"$ref": str(ref)}, *_]}:
            return str(schemas.get(ref.removeprefix(_REFS), {}).get("description", ""))
        case _:
            return ""
