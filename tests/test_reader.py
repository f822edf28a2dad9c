"""The front door: bytes in any pieces to document events, or to the whole response."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from cursor_gateway.errors import RunCancelled
from cursor_gateway.model.document_events import Done
from cursor_gateway.model.documents import ErrorDocument
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import DocumentReader, aread_events, aread_response, read_events, read_response, whole_line
from cursor_gateway.stages.run_state import Transcript
from tests.laws.agent import Ends, Recording, Says, Starts, Thinks, play
from tests.laws.laws import joined, text_of

RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z")
RECORDING = play([Thinks("hm"), Says("Let "), Says("me."), Starts(0), Ends(0, "success"), Says("Done")], partial=True)


def pieces(recording: Recording, size: int) -> list[bytes]:
    return [recording.data[start : start + size] for start in range(0, len(recording.data), size)]


@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
def test_the_size_of_the_pieces_does_not_matter(size: int) -> None:
    events = list(read_events(pieces(RECORDING, size), RUN))
    assert joined(events) == joined(read_events([RECORDING.data], RUN))
    assert text_of(events) == "Let me.Done"


def test_whole_lines_are_reported_at_once() -> None:
    reader = DocumentReader(RUN)
    result = [bool(reader.push(line)) for line in RECORDING.lines]
    #       init  user  thought  "Let " "me." its flush  started completed "Done" its flush result
    assert result == [False, False, True, True, True, False, True, True, True, False, True]
    assert reader.flush() == []


def test_the_prompt_is_known_as_soon_as_the_agent_repeats_it() -> None:
    reader = DocumentReader(RUN)
    result = []
    for line in RECORDING.lines[:2]:
        result.append(reader.prompt)
        reader.push(line)
    assert result == ["", ""]
    assert reader.prompt


def test_half_a_line_waits_for_its_other_half() -> None:
    reader = DocumentReader(RUN)
    line = RECORDING.lines[2]
    assert reader.push(line[:20]) == []
    assert reader.push(b"") == []
    assert reader.push(line[20:-1]) == []
    assert len(reader.push(line[-1:])) == 1


def test_the_last_line_may_lack_its_line_end() -> None:
    assert read_response([RECORDING.data.rstrip(b"\n")], RUN) == read_response([RECORDING.data], RUN)


@pytest.mark.parametrize("end", [None, -2], ids=["whole", "cut"])
async def test_an_asynchronous_reader_gets_the_same(end: int | None) -> None:
    given = pieces(RECORDING, 50)[:end]

    async def chunks() -> AsyncIterator[bytes]:
        for piece in given:
            yield piece

    assert [event async for event in aread_events(chunks(), RUN)] == list(read_events(given, RUN))


def test_the_response_is_the_fold_of_the_events() -> None:
    transcript = Transcript()
    for event in read_events([RECORDING.data], RUN):
        transcript.push(event)
    assert read_response([RECORDING.data], RUN) == transcript.response()


def test_no_input_is_a_failed_run_and_no_exception() -> None:
    response = read_response([], RUN)
    assert response.status == "error"
    (document,) = response.documents
    assert isinstance(document, ErrorDocument)


def test_the_caller_may_know_why_the_output_ended() -> None:
    reader = DocumentReader(RUN)
    reader.push(RECORDING.lines[0])
    done = reader.flush(RunCancelled("Stopped.").failure())[-1]
    assert isinstance(done, Done)
    assert done.failure == RunCancelled("Stopped.").failure()


def test_the_model_is_known_from_the_first_line() -> None:
    reader = DocumentReader(RUN)
    assert reader.model == "unknown"
    reader.push(RECORDING.lines[0])
    assert reader.model == "Auto"


@pytest.mark.parametrize(
    ("data", "recognized", "stray"),
    [
        (b"", False, ""),
        (b"\n\n", False, ""),
        (b"Error: No prompt\nprovided", False, "Error: No prompt\nprovided"),
        (b'{"hello":"world"}\n', False, ""),
        (RECORDING.lines[0], True, ""),
        (b"oops\n" + RECORDING.data, True, "oops"),
    ],
)
def test_a_reader_knows_whether_any_of_it_was_the_agents(data: bytes, recognized: bool, stray: str) -> None:
    reader = DocumentReader(RUN)
    reader.push(data)
    reader.flush()
    assert bool(reader.recognized) == recognized
    assert reader.stray_text == stray


def test_the_whole_response_is_the_same_from_an_async_source() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces(RECORDING, 50):
            yield piece

    assert asyncio.run(aread_response(chunks(), RUN)) == read_response([RECORDING.data], RUN)


@pytest.mark.parametrize("form", [bytes.decode, bytes.strip, lambda line: line + b"\r\n"])
def test_lines_may_be_text_and_may_lack_their_ends(form: Callable[[bytes], str | bytes]) -> None:
    lines = [form(line.rstrip(b"\n")) for line in RECORDING.lines]
    assert read_response(map(whole_line, lines), RUN) == read_response([RECORDING.data], RUN)
