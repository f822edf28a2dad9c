"""What a reply tells is read as a client would; a reply that is cut, or contradicts itself, is noticed."""

import pytest

from benchmarks.failing import BenchmarkFailed
from benchmarks.replies import body_of, documents_of, text_of_chunks
from benchmarks.run import RUN, pieces
from benchmarks.sessions import Session, session
from cursor_gateway import ChunkEncoder, CompletionHead, SseEncoder, read_events, read_response
from cursor_gateway.model.documents import document_type

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def recorded() -> Session:
    return session(400, tools=3, smallest_result=500, largest_result=900)


def _chunked(body: bytes, size: int) -> bytes:
    parts = pieces(body, size)
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_a_reply_that_is_cut_is_noticed() -> None:
    with pytest.raises(BenchmarkFailed):
        body_of(_chunked(b"data: 5\n\n", 4)[:-5])


def test_the_text_of_chunks_is_the_agents(recorded: Session) -> None:
    encoder = ChunkEncoder(CompletionHead("chatcmpl-1", 1_771_842_600, "opus"))
    body = b"".join(encoder.push(event) for event in read_events(pieces(recorded.data, 1000), RUN))
    assert text_of_chunks(body) == recorded.text
    assert text_of_chunks(body.replace(b"\n", b"\r\n")) == recorded.text  # as sse-starlette ends its lines
    half = body.split(b"\n\n")
    assert text_of_chunks(b"\n\n".join(half[: len(half) // 2])) != recorded.text


def test_documents_are_what_the_stream_says(recorded: Session) -> None:
    body = b"".join(SseEncoder().push(event) for event in read_events(pieces(recorded.data, 1000), RUN))
    response = read_response([recorded.data], RUN)
    expected = [(document_type(document.metadata), document.content or "") for document in response.documents]
    assert documents_of(body) == expected
    assert len(expected) > 3


def test_an_answer_that_was_not_stored_is_noticed() -> None:
    done = b'event: done\ndata: {"metadata":{"turnCount":1%b}}\n\n'
    assert documents_of(done % b"") == []
    with pytest.raises(BenchmarkFailed, match="not stored"):
        documents_of(done % b',"stored":false')


def test_a_document_that_ends_with_other_content_is_noticed() -> None:
    stream = (
        b'event: document_start\ndata: {"id":"doc_001","type":"text","sequence":1}\n\n'
        b'event: content_delta\ndata: {"documentId":"doc_001","delta":"one"}\n\n'
        b'event: document_end\ndata: {"documentId":"doc_001","finalContent":"%b"}\n\n'
    )
    assert documents_of(stream % b"one") == [("text", "one")]
    with pytest.raises(BenchmarkFailed, match="doc_001"):
        documents_of(stream % b"two")
