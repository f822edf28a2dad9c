"""The laws themselves: each takes a recording, or the events of one, and fails when it does not hold."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import UNSET

from cursor_gateway.dialects.base import ReplyStart, RunView
from cursor_gateway.dialects.chat.encoder import ChunkEncoder, CompletionFold, CompletionHead
from cursor_gateway.dialects.deltas import AgentTools, refusal_line, without_marked
from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder, encode_response
from cursor_gateway.dialects.messages.dialect import MessagesReply
from cursor_gateway.dialects.messages.encoder import Display
from cursor_gateway.dialects.replies import TextEncoder
from cursor_gateway.dialects.responses.encoder import ResponseHead, ResponseStream
from cursor_gateway.dialects.responses.request import KeptRequest
from cursor_gateway.model import document_events
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.documents import (
    ChatResponse,
    Document,
    ErrorDocument,
    RefusedCall,
    ToolCallMetadata,
    document_type,
    whole_response,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState, Transcript
from tests import anthropic_shapes, responses_shapes
from tests.laws.folds import fold_chunks, fold_documents, frames_of, read_ndjson, read_sse

RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z")
HEAD = CompletionHead("chatcmpl-1", 1_771_842_600, "auto")
MESSAGES = MessagesReply(model="auto", display=Display(thinking=True, actions="text"))

Seen: TypeAlias = list[tuple[object, ...]]


def read(data: bytes, run: RunInfo = RUN) -> list[document_events.DocumentEvent]:
    return list(read_events([data], run))


def assemble(events: Iterable[AgentEvent], run: RunInfo = RUN) -> list[document_events.DocumentEvent]:
    assembler = Assembler(run)
    out = [out for event in events for out in assembler.push(event)]
    return [*out, *assembler.flush()]


def text_of(events: Iterable[document_events.DocumentEvent]) -> str:
    return "".join([document_events.source_text(event) for event in events])


def response_so_far(events: Iterable[document_events.DocumentEvent], run: RunInfo, prompt: str = "") -> ChatResponse:
    """As a reader gets it that asks before the end."""
    state, transcript = RunState(), Transcript()
    for event in events:
        state.push(event)
        transcript.push(event)
    return state.response(transcript.documents, run, prompt)


def response_of(events: Iterable[document_events.DocumentEvent]) -> ChatResponse:
    transcript = Transcript()
    for event in events:
        transcript.push(event)
    response = transcript.response()
    assert response is not None
    return response


class Reply(NamedTuple):
    """A run's events up to a pause of it or to its end."""

    events: list[document_events.DocumentEvent]
    after: int  # the number of the event before it


def replies(events: list[document_events.DocumentEvent]) -> list[Reply]:
    found: list[Reply] = []
    start = 0
    for number, event in enumerate(events, 1):
        if document_events.ends_reply(event):
            found.append(Reply(events[start:number], start))
            start = number
    return [*found, Reply(events[start:], start)]


def joined(events: Iterable[document_events.DocumentEvent]) -> Seen:
    """The events with adjacent deltas of one document, and of one thought, made one."""
    seen: Seen = []
    for event in events:
        match event:
            case document_events.ContentDelta(id=id, text=text):
                if seen and seen[-1][:2] == ("delta", id):
                    *_, before, source = seen.pop()
                    seen.append(("delta", id, f"{before}{text}", f"{source}{document_events.source_text(event)}"))
                else:
                    seen.append(("delta", id, text, document_events.source_text(event)))
            case document_events.Reasoning(text=text, opens=opens):
                if not opens and seen and seen[-1][0] == "reasoning":
                    _, opened, before = seen.pop()
                    seen.append(("reasoning", opened, f"{before}{text}"))
                else:
                    seen.append(("reasoning", opens, text))
            case _:
                seen.append((event,))
    return seen


# --- 1 ----------------------------------------------------------------------------------------------


def assert_chunking_does_not_matter(data: bytes, run: RunInfo = RUN) -> None:
    whole = read(data, run)
    for chunks in ([data[i : i + 1] for i in range(len(data))], data.splitlines(keepends=True), [data[:-1], data[-1:]]):
        events = list(read_events(chunks, run))
        assert joined(events) == joined(whole)
        assert response_of(events) == response_of(whole)


# --- 2 ----------------------------------------------------------------------------------------------


def assert_says_exactly(text: str, events: list[document_events.DocumentEvent]) -> None:
    """In each dialect, byte for byte."""
    assert text_of(events) == text
    plain = TextEncoder()
    assert b"".join(plain.push(event) for event in events) == text.encode()
    said = responded = written = ""
    for reply in replies(events):
        chunks = b"".join(map(ChunkEncoder(HEAD).push, reply.events))
        content = fold_chunks(chunks, include_usage=False)["choices"][0]["message"]["content"] or ""
        said += content.partition("▸\u2063 ")[0]  # an open question is not the agent's text
        head = ResponseHead("chat_1", reply.after, HEAD.created, HEAD.model, KeptRequest())
        responded += responses_shapes.text_of(responses_shapes.read_stream(ResponseStream(head).push_all(reply.events)))
        message = MESSAGES.stream(RunView(RUN, 0, ""), ReplyStart(reply.after)).push_all(reply.events)
        written += anthropic_shapes.text_sent(message)
    assert said == text
    assert responded == text
    has_failed = isinstance(done := events[-1], document_events.Done) and done.failure is not None
    assert (written.rstrip() == text.rstrip()) if has_failed else (written == text)


# --- 3 ----------------------------------------------------------------------------------------------


def assert_well_formed(events: list[document_events.DocumentEvent]) -> None:
    """Each document starts once, grows while it is open, ends once; `Done` is said once, last. The run may pause
    before, never within prose, for calls that have begun and not ended."""
    contents: dict[str, str] = {}  # of the open documents
    types: list[str] = []
    calls: dict[str, list[str]] = {}  # what has been told of an open tool_call
    call_ids: set[str] = set()
    prose: set[str] = set()
    *body, done = events
    assert isinstance(done, document_events.Done)
    for event in body:
        match event:
            case document_events.DocumentStarted(id=id, type=type, sequence=sequence):
                types.append(type)
                assert (id, sequence) == (f"doc_{len(types):03d}", len(types))
                contents[id] = ""
                if type in ("text", "code_block", "code_reference", "thinking"):
                    assert not prose, "two documents of prose are open"
                    prose.add(id)
            case document_events.ContentDelta(id=id, text=text):
                assert text or event.raw, "a delta that says nothing"
                contents[id] += text
            case document_events.TerminalOutput(id=id, text=text):
                assert text
                assert types[int(id[4:]) - 1] == "terminal_command"
                assert id in contents
            case document_events.ToolCallStarted(id=id, tool_call_id=call_id):
                assert types[int(id[4:]) - 1] == "tool_call"
                assert id in contents
                assert id not in calls
                assert call_id not in call_ids
                call_ids.add(call_id)
                calls[id] = ["start"]
            case document_events.ToolCallArguments(id=id):
                assert calls[id] == ["start"]
                calls[id].append("arguments")
            case document_events.ToolCallEnded(id=id):
                assert "result" not in calls[id]
                calls[id].append("result")
            case document_events.DocumentEnded(document=document):
                assert contents.pop(document.id) == (document.content or "")
                assert document_type(document.metadata) == types[document.sequence - 1]
                prose.discard(document.id)
                if types[document.sequence - 1] == "tool_call":
                    assert calls.pop(document.id)[-1] == "result"
            case document_events.Reasoning(text=text):
                assert text
            case document_events.Paused(envelope=envelope):
                assert envelope.status == "streaming"
                assert not prose, "a pause within prose"
                for call in envelope.metadata.waiting_for or ():
                    assert call.document_id in contents
                    assert "result" not in calls[call.document_id]
                    assert call.tool_call_id in call_ids
            case document_events.Done():
                raise AssertionError("done twice")
    assert not contents, "a document never ended"
    assert not calls


# --- 4 ----------------------------------------------------------------------------------------------


def assert_a_cut_is_told(data: bytes, cut: int, *, whole: str, run: RunInfo = RUN) -> None:
    """Input that ends after `cut` bytes is well formed, says that it failed, and says nothing that is not so."""
    events = read(data[:cut], run)
    assert_well_formed(events)
    response = response_of(events)
    if _has_result(data[:cut]):
        assert response.status == response_of(read(data, run)).status
        assert text_of(events) == whole
        return
    assert response.status == "error"
    assert isinstance(response.documents[-1], ErrorDocument)
    text = text_of(events)
    # the other half of a character that the cut took away is U+FFFD
    assert whole.startswith((text, text.removesuffix("\ufffd")))


def _has_result(data: bytes) -> bool:
    return any(record.get("type") == "result" for record in records_of(data))


def records_of(data: bytes) -> list[dict[str, Any]]:
    """The objects among a recording's lines."""
    records = []
    for line in data.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


# --- 5 ----------------------------------------------------------------------------------------------


def assert_the_stream_folds_to_the_response(events: list[document_events.DocumentEvent]) -> None:
    expected = json.loads(encode_response(response_of(events)))
    stream = b"".join(map(SseEncoder().push, events))
    lines = b"".join(map(NdjsonEncoder().push, events))
    frames = read_sse(stream)
    assert frames == read_ndjson(lines)
    assert [frame.id for frame in frames_of(stream)] == [str(json.loads(line)["id"]) for line in lines.splitlines()]
    assert fold_documents(frames) == expected
    live = SseEncoder(live=True)
    assert fold_documents(read_sse(b"".join(map(live.push, events)))) == expected
    assert msgspec.json.decode(json.dumps(expected), type=ChatResponse) == response_of(events)
    _assert_replies_are_pieces_of_the_stream(events, stream, lines)


def _assert_replies_are_pieces_of_the_stream(
    events: list[document_events.DocumentEvent], stream: bytes, lines: bytes
) -> None:
    """Each is over at its pause, whatever the run does then; joined, they are the stream of who reads on."""
    frames_told = lines_told = b""
    for reply in replies(events):
        sse, ndjson = SseEncoder(reply.after, until_pause=True), NdjsonEncoder(reply.after, until_pause=True)
        for event in events[reply.after :]:
            frames_told += sse.push(event)
            lines_told += ndjson.push(event)
        assert sse.is_over == ndjson.is_over == document_events.ends_reply(reply.events[-1])
    if not any(
        isinstance(event, document_events.Paused) and event.goes_on for event in events
    ):  # those readers alone are told
        assert (frames_told, lines_told) == (stream, lines)


def assert_a_pause_is_what_there_is(events: list[document_events.DocumentEvent]) -> None:
    """At a pause, what is there is the pause's envelope with the documents so far; of them its calls wait."""
    unfinished, transcript = RunState(), Transcript()
    started: list[str] = []
    for event in events:
        unfinished.push(event)
        transcript.push(event)
        if isinstance(event, document_events.DocumentStarted):
            started.append(event.id)
        if isinstance(event, document_events.Paused):
            response = unfinished.response(transcript.documents, RUN, "")
            documents = {document.id: document for document in response.documents}
            assert list(documents) == started
            assert response == whole_response(event.envelope, response.documents)
            for document in transcript.documents:
                assert documents.pop(document.id) == document
            for call in event.envelope.metadata.waiting_for or ():
                metadata = documents.pop(call.document_id).metadata
                assert isinstance(metadata, ToolCallMetadata)
                assert (metadata.state, metadata.ran_by) == ("waiting", "caller")
                result = (call.tool_call_id, call.tool_name, call.arguments)
                assert result == (metadata.tool_call_id, metadata.tool_name, metadata.arguments)
            assert {_state(document) for document in documents.values()} <= {"running", "waiting"}


def _state(document: Document) -> object:
    return getattr(document.metadata, "state", None)


# --- 6 ----------------------------------------------------------------------------------------------


def assert_the_chunks_fold_to_the_completion(
    events: list[document_events.DocumentEvent], *, agent_tools: AgentTools, include_usage: bool
) -> None:
    """Each reply of a run, with the context of its last model call; the last reply also tells what the run took."""
    contexts: list[int] = []
    usage: dict[str, Any] = {}
    cursor: dict[str, Any] | None = None
    for reply in replies(events):
        encoder = ChunkEncoder(HEAD, include_usage=include_usage, agent_tools=agent_tools)
        fold = CompletionFold(HEAD, agent_tools=agent_tools)
        stream = b""
        for event in events[reply.after :]:
            assert (fold.completion() is not None) == encoder.is_over
            stream += encoder.push(event)
            fold.push(event)
        expected: dict[str, Any] = json.loads(msgspec.json.encode(fold.completion()))
        usage, cursor = expected.pop("usage"), expected.pop("cursor", None)
        found = fold_chunks(stream, include_usage=include_usage)
        assert found.pop("usage", usage) == usage
        assert found.pop("cursor", cursor) == cursor
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
        assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
        assert found == expected
        if isinstance(pause := reply.events[-1], document_events.Paused):
            assert found["choices"][0]["finish_reason"] == "tool_calls"
            asked = [call.tool_call_id for call in pause.envelope.metadata.waiting_for or ()]
            calls = [call["id"] for call in found["choices"][0]["message"].get("tool_calls", [])]
            assert calls[len(calls) - len(asked) :] == asked
            assert cursor is None
        contexts.append(usage["prompt_tokens"])
    whole = response_of(events).usage
    assert cursor is not None
    assert cursor["usage"]["prompt_tokens"] == whole.prompt_tokens
    assert cursor["usage"]["completion_tokens"] == whole.completion_tokens
    if whole.estimated:
        assert contexts == sorted(contexts)  # it only grows
    else:
        assert usage["prompt_tokens"] <= whole.prompt_tokens
        assert usage["completion_tokens"] <= whole.completion_tokens


def assert_readable_text_has_blank_lines_between_tools(events: list[document_events.DocumentEvent]) -> None:
    """Where a tool lies between two texts without white space, and nowhere else; at the end a line about what a person
    can allow, if there is any. Without these it is the agent's text."""
    for reply in replies(events):
        encoder, fold = ChunkEncoder(HEAD, text="readable"), CompletionFold(HEAD, text="readable")
        stream = b""
        for event in reply.events:
            stream += encoder.push(event)
            fold.push(event)
        completion = fold.completion()
        assert completion is not None
        last, line = reply.events[-1], ""
        if isinstance(last, document_events.Done) and last.failure is None:
            line = refusal_line(last.envelope.metadata.refused or ())
        streamed = fold_chunks(stream, include_usage=False)["choices"][0]["message"]["content"]
        assert streamed == completion.choices[0].message.content
        if expected := _separated(reply.events):
            assert streamed == expected + ("\n\n" if line else "") + line
        assert without_marked(streamed or "").strip() == expected.strip()


def _separated(events: Iterable[document_events.DocumentEvent]) -> str:
    said = ""
    for text in filter(None, texts_between_tools(events)):
        is_joint = said != "" and not said[-1].isspace() and not text[0].isspace()
        said += ("\n\n" if is_joint else "") + text
    return said


def texts_between_tools(events: Iterable[document_events.DocumentEvent]) -> list[str]:
    texts = [""]
    for event in events:
        texts[-1] += document_events.source_text(event)
        if isinstance(event, document_events.DocumentStarted) and document_events.is_tool(event):
            texts.append("")
    return texts


# --- 7 ----------------------------------------------------------------------------------------------


def assert_a_strange_line_changes_nothing(lines: list[bytes], at: int, strange: bytes, run: RunInfo = RUN) -> None:
    plain = read(b"".join(lines), run)
    disturbed = read(b"".join([*lines[:at], strange + b"\n", *lines[at:]]), run)
    assert text_of(disturbed) == text_of(plain)
    before, after = response_of(plain), response_of(disturbed)
    count = (before.metadata.unrecognized or 0) + 1
    metadata = msgspec.structs.replace(before.metadata, unrecognized=count)
    assert after == msgspec.structs.replace(before, metadata=metadata)


def assert_strange_arguments_are_only_their_calls(
    lines: list[bytes], at: int, strange: bytes, plain: bytes, run: RunInfo = RUN
) -> None:
    """A call with strange arguments is said in every dialect, and all else is as if they were plain ones."""
    events, expected = (read(b"".join([*lines[:at], call + b"\n", *lines[at:]]), run) for call in (strange, plain))
    assert_well_formed(events)
    assert_says_exactly(text_of(expected), events)
    assert_the_stream_folds_to_the_response(events)
    for agent_tools in get_args(AgentTools):
        assert_the_chunks_fold_to_the_completion(events, agent_tools=agent_tools, include_usage=True)
    assert _without_the_arguments(response_of(events)) == _without_the_arguments(response_of(expected))


def _without_the_arguments(response: ChatResponse) -> Any:
    plain = msgspec.to_builtins(response)
    if plain["usage"].get("estimated"):
        del plain["usage"]  # the model wrote the arguments
    for document in plain["documents"]:
        if document["metadata"].get("toolName") == "foo":
            del document["metadata"]["arguments"]
            document["metadata"].pop("raw", None)
    return plain


# --- 8 ----------------------------------------------------------------------------------------------


def assert_thinking_only_adds_its_documents(data: bytes, run: RunInfo = RUN) -> None:
    with_it, without = (
        read(data, msgspec.structs.replace(run, include=include)) for include in (frozenset({"thinking"}), frozenset())
    )
    assert text_of(with_it) == text_of(without)
    shown, plain = response_of(with_it), response_of(without)
    kept = [document for document in shown.documents if document_type(document.metadata) != "thinking"]
    ids = {document.id: f"doc_{number:03d}" for number, document in enumerate(kept, 1)}
    refused = [_renamed(call, ids[call.document]) for call in shown.metadata.refused or ()]
    metadata = msgspec.structs.replace(shown.metadata, refused=refused or UNSET)
    assert msgspec.structs.replace(shown, documents=_renumbered(kept), metadata=metadata) == plain


def _renamed(call: RefusedCall, id: str) -> RefusedCall:
    link, url = (where.replace(call.document, id) if where else UNSET for where in (call.link, call.url))
    return msgspec.structs.replace(call, document=id, link=link, url=url)


def _renumbered(documents: list[Document]) -> list[Document]:
    return [
        msgspec.structs.replace(document, id=f"doc_{number:03d}", sequence=number)
        for number, document in enumerate(documents, 1)
    ]


def assert_fences_do_not_change_the_text(data: bytes) -> None:
    split, inline = (read(data, msgspec.structs.replace(RUN, fences=fences)) for fences in ("split", "inline"))
    assert text_of(split) == text_of(inline)
