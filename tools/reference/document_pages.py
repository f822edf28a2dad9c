"""The definitions and the example run in; the pages about documents and streaming events out."""

import msgspec

from cursor_gateway import Document, NdjsonEncoder, SseEncoder, read_events
from cursor_gateway.schema.catalogue import Alternatives, Choices, Field, ListOf, Named, Record, definitions
from tools.reference import examples
from tools.reference.markdown import code, fields_table, page, table

_DEFINED = {definition.name: definition for definition in definitions()}


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
        *(part for name in _members("Document") for part in _document(_the_record(name))),
    )


def _types_table() -> str:
    rows = []
    for name in _members("Document"):
        record = _the_record(name)
        rows.append((f"[`{_tag(name)}`](#{_tag(name)})", record.meaning, _field(record, "content").meaning))
    return table(["type", "description", "`content`"], rows)


def _document(record: Record) -> list[str]:
    content, metadata = _field(record, "content"), _field(record, "metadata")
    assert isinstance(metadata.shape, Named)
    example = next(document for document in examples.response().documents if _is(document, record.name))
    parts = [f"## {_tag(record.name)}", record.meaning, f"`content`: {content.meaning}"]
    parts += _record(metadata.shape.name, level=3)
    return [*parts, "Example:", code(_pretty(msgspec.json.encode(example)), "json")]


def _record(name: str, *, level: int) -> list[str]:
    """A record, and below it what its fields are made of."""
    record = _the_record(name)
    parts = [f"{'#' * level} {name}", record.meaning, fields_table(record)]
    for field in record.fields:
        shape = field.shape.item if isinstance(field.shape, ListOf) else field.shape
        if isinstance(shape, Named) and name != "ChatResponse":
            parts += _definition(shape.name, level=level + 1)
    return parts


def _definition(name: str, *, level: int) -> list[str]:
    match _DEFINED[name]:
        case Record():
            return _record(name, level=level)
        case Choices(meaning=meaning, values=values):
            return [f"{'#' * level} {name}", meaning, ", ".join(f"`{value}`" for value in values)]
        case Alternatives(meaning=meaning):
            return [f"{'#' * level} {name}", f"{meaning} See [documents](documents.md)."]


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
        (f"`{_tag(name)}`", _the_record(name).meaning, f"[{_payload(name)}](#{_payload(name).lower()})")
        for name in _members("StreamEvent")
    ]
    return table(["event", "when", "payload"], rows)


def _payload(event: str) -> str:
    data = _field(_the_record(event), "data").shape
    assert isinstance(data, Named)
    return data.name


def _members(name: str) -> list[str]:
    definition = _DEFINED[name]
    assert isinstance(definition, Alternatives)
    return [member.name for member in definition.members]


def _tag(name: str) -> str:
    """The `type` of one of the alternatives."""
    alternatives = [definition for definition in _DEFINED.values() if isinstance(definition, Alternatives)]
    return next(member.tag for one in alternatives for member in one.members if member.name == name and member.tag)


def _the_record(name: str) -> Record:
    definition = _DEFINED[name]
    assert isinstance(definition, Record)
    return definition


def _field(record: Record, name: str) -> Field:
    return next(field for field in record.fields if field.name == name)


def _is(document: Document, name: str) -> bool:
    return type(document).__name__ == name


def _pretty(json: bytes) -> str:
    return msgspec.json.format(json, indent=2).decode()
