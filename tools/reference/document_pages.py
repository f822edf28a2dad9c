"""The definitions and the example run in; the pages about documents and streaming events out."""

import msgspec

from cursor_gateway import Document, NdjsonEncoder, SseEncoder, read_events
from cursor_gateway.schema import Json, json_schema
from tools.reference import examples
from tools.reference.markdown import code, fields_table, page, table

_DEFINED: dict[str, Json] = json_schema()["$defs"]


def documents_page() -> str:
    return page(
        "Documents",
        "An answer is a [ChatResponse](#chatresponse); its `documents` have the types below, in the order in\n"
        "which they started. An *extension* is a field that is not in the specification; it is present only\n"
        "when it carries information. Also available as JSON Schema ([schema.json](schema.json)) and TypeScript\n"
        "([documents.ts](documents.ts)).",
        "## Response",
        *_record("ChatResponse", level=3),
        *_record("UsageInfo", level=3),
        *_record("ResponseMetadata", level=3),
        "## Document",
        "Each document has a `type`, an `id` (`doc_001`, `doc_002`, …), a position `sequence` (from 1),\n"
        "`content` and `metadata`.",
        _types_table(),
        *(part for name in _members("Document") for part in _document(name)),
    )


def _types_table() -> str:
    rows = []
    for name in _members("Document"):
        content = _field(name, "content")["description"]
        rows.append((f"[`{_tag(name)}`](#{_tag(name)})", _meaning(name), content))
    return table(["type", "description", "`content`"], rows)


def _document(name: str) -> list[str]:
    example = next(document for document in examples.response().documents if _is(document, name))
    parts = [f"## {_tag(name)}", _meaning(name), f"`content`: {_field(name, 'content')['description']}"]
    parts += _record(_referred(_field(name, "metadata")), level=3)
    return [*parts, "Example:", code(_pretty(msgspec.json.encode(example)), "json")]


def _record(name: str, *, level: int) -> list[str]:
    """A record, and below it what its fields are made of."""
    parts = [f"{'#' * level} {name}", _meaning(name), fields_table(_DEFINED[name])]
    for field in _DEFINED[name]["properties"].values():
        item = field.get("items", field)
        if "$ref" in item and name != "ChatResponse":
            parts += _definition(_referred(item), level=level + 1)
    return parts


def _definition(name: str, *, level: int) -> list[str]:
    match _DEFINED[name]:
        case {"properties": _}:
            return _record(name, level=level)
        case {"enum": list(values)}:
            return [f"{'#' * level} {name}", _meaning(name), ", ".join(f"`{value}`" for value in values)]
        case _:
            return [f"{'#' * level} {name}", f"{_meaning(name)} See [documents](documents.md)."]


def events_page() -> str:
    events = list(read_events(examples.short_recording(), examples.RUN))
    sse, ndjson = SseEncoder(), NdjsonEncoder()
    return page(
        "Streaming events",
        "While the agent works, each document starts, grows and ends. `done` is the last event, however the run\n"
        "ends. The concatenated `delta`s of a document are its `finalContent`, which is its `content`; without\n"
        "`finalContent`, the content is null. The start and end events together contain the whole document.",
        _events_table(),
        "The three tool events are only for `tool_call` documents. Every document that starts also ends, before\n"
        "`done`. Several documents can be open at the same time if the agent runs tools in parallel.",
        "## Server-Sent Events",
        "The event name is the type, the data is the payload, and the id is the event number in the run.\n"
        "Numbers may be missing, because some events of a run have no representation here.",
        code(b"".join(sse.push(event) for event in events).decode(), "text"),
        "## NDJSON",
        "The same payloads, one object per line: `id` (the event number, an extension), `type`, `documentId`\n"
        "(not in `done`) and `data`. Lines are never empty: while the agent is silent, a space is sent from\n"
        "time to time, and the next line starts with it, which JSON allows.",
        code(b"".join(ndjson.push(event) for event in events).decode(), "json"),
        "## Payloads",
        *(part for name in _members("StreamEvent") for part in _record(_payload(name), level=3)),
    )


def _events_table() -> str:
    rows = [
        (f"`{_tag(name)}`", _meaning(name), f"[{_payload(name)}](#{_payload(name).lower()})")
        for name in _members("StreamEvent")
    ]
    return table(["event", "when", "payload"], rows)


def _payload(event: str) -> str:
    return _referred(_field(event, "data"))


def _members(name: str) -> list[str]:
    return [_referred(member) for member in _DEFINED[name]["oneOf"]]


def _tag(name: str) -> str:
    """The `type` of one of the alternatives."""
    return str(_field(name, "type")["const"])


def _meaning(name: str) -> str:
    return str(_DEFINED[name]["description"])


def _field(name: str, field: str) -> Json:
    schema: Json = _DEFINED[name]["properties"][field]
    return schema


def _referred(schema: Json) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _is(document: Document, name: str) -> bool:
    return type(document).__name__ == name


def _pretty(json: bytes) -> str:
    return msgspec.json.format(json, indent=2).decode()
