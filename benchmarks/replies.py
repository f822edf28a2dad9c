"""A server's reply, byte for byte, in; the answer that it tells, out: so that nothing fast is also wrong."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from benchmarks.failing import BenchmarkFailed

Documents = list[tuple[str, str]]  # of each document: its type and its content


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta


class _Chunk(Struct):
    choices: list[_Choice]


class _Result(Struct):
    result: str


class _Start(Struct):
    id: str
    type: str


class _Growth(Struct, rename="camel"):
    document_id: str
    delta: str


class _End(Struct, rename="camel"):
    document_id: str
    final_content: str | None = None


class _TextDelta(Struct):
    delta: str


class _BlockText(Struct):
    text: str = ""  # other blocks have none


class _BlockDelta(Struct):
    delta: _BlockText


_RESPONSE_TEXT = b'{"type":"response.output_text.delta"'
_BLOCK_DELTA = b'{"type":"content_block_delta"'

_chunk = msgspec.json.Decoder(_Chunk).decode
_text_delta = msgspec.json.Decoder(_TextDelta).decode
_block_delta = msgspec.json.Decoder(_BlockDelta).decode
_start = msgspec.json.Decoder(_Start).decode
_growth = msgspec.json.Decoder(_Growth).decode
_end = msgspec.json.Decoder(_End).decode


def body_of(reply: bytes) -> bytes:
    """Without head and framing."""
    head, _, rest = reply.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return rest
    pieces: list[bytes] = []
    place = 0
    while (line_end := rest.find(b"\r\n", place)) >= 0:
        size = int(rest[place:line_end], 16)
        if not size:
            return b"".join(pieces)
        place = line_end + 2 + size + 2
        pieces.append(rest[line_end + 2 : place - 2])
    raise BenchmarkFailed("A reply ended before its last chunk.")


def text_of_chunks(body: bytes) -> str:
    """Of OpenAI's chunks: the answer."""
    text = []
    for data in _data(body):
        if data != b"[DONE]":
            text += [choice.delta.content or "" for choice in _chunk(data).choices]
    return "".join(text)


def text_of_response(body: bytes) -> str:
    """Of the events of OpenAI's responses: the answer."""
    return "".join(_text_delta(data).delta for data in _data(body) if data.startswith(_RESPONSE_TEXT))


def text_of_message(body: bytes) -> str:
    """Of the events of Anthropic's messages: the answer."""
    return "".join(_block_delta(data).delta.text for data in _data(body) if data.startswith(_BLOCK_DELTA))


def text_of_lines(body: bytes) -> str:
    """Of the agent's own lines, relayed: the answer is what the last one repeats."""
    last = body.rstrip(b"\n").rpartition(b"\n")[2]
    return msgspec.json.decode(last, type=_Result).result


def documents_of(body: bytes) -> Documents:
    """Of the documents dialect; what a document's end repeats must be what had come."""
    kinds: dict[str, str] = {}
    contents: dict[str, list[str]] = {}
    for frame in body.split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
        data = fields.get(b"data", b"")
        match fields.get(b"event"):
            case b"document_start":
                started = _start(data)
                kinds[started.id], contents[started.id] = started.type, []
            case b"content_delta":
                grown = _growth(data)
                contents[grown.document_id].append(grown.delta)
            case b"document_end":
                ended = _end(data)
                if (ended.final_content or "") != "".join(contents[ended.document_id]):
                    raise BenchmarkFailed(f"{ended.document_id} ended with other content than had been streamed.")
            case b"done" if b'"stored":false' in data:
                raise BenchmarkFailed("An answer was not stored: the history has to be on while the rest is measured.")
            case _:
                pass
    return [(kind, "".join(contents[id])) for id, kind in kinds.items()]


def _data(body: bytes) -> Iterator[bytes]:
    # sse-starlette ends its lines with CR LF
    return (line[6:].rstrip(b"\r") for line in body.split(b"\n") if line.startswith(b"data: "))
