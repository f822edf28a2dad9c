"""The laws of the Responses API, over any run of an agent: strict types, the order of events, the fold, the text."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.replies import Resumed, numbered
from cursor_gateway.dialects.responses.conversation import Declared, Forms
from cursor_gateway.dialects.responses.encoder import ResponseFold, ResponseHead, ResponseStream
from cursor_gateway.dialects.responses.request import KeptRequest
from cursor_gateway.model.agent_events import AgentEvent, TextDelta
from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.wire.sse import SseDecoder
from tests.laws.agent import Recording, Story, play
from tests.laws.laws import assemble, read, replies, text_of
from tests.laws.strategies import agent_events, examples, recordings, runs, stories, torn_recordings
from tests.responses_shapes import CustomToolCall, FunctionCall, read_events, read_response, read_stream
from tests.responses_shapes import text_of as text_of_response

FORMS = Forms({"bash": Declared("custom", "shell", "os")})
asked_for: st.SearchStrategy[KeptRequest] = st.builds(
    KeptRequest,
    model=st.just("auto"),
    forms=st.sampled_from([Forms(), FORMS]),
    is_codex=st.booleans(),
    knows_searches=st.booleans(),
    has_encrypted_content=st.booleans(),
    text=st.sampled_from(["exact", "readable"]),
)


def head(asked: KeptRequest, after: int = 0) -> ResponseHead:
    return ResponseHead("chat_1", after, 1_771_842_600, "auto", asked)


def assert_lawful(events: list[DocumentEvent], asked: KeptRequest) -> str:
    """Each reply of the run; the text of all of them."""
    said = ""
    for reply in replies(events):
        stream, whole = ResponseStream(head(asked, reply.after)), ResponseFold(head(asked, reply.after))
        sent = b""
        for event in events[reply.after :]:
            assert whole.is_over == stream.is_over
            read_response(whole.body())  # the answer so far
            sent += stream.push(event)
            whole.push(event)
        response = read_stream(sent)
        assert response == read_response(whole.body())
        assert SseDecoder().push(sent)[-1].data.encode().endswith(b'"response":%b}' % whole.body())
        calls = [item for item in response.output if isinstance(item, FunctionCall | CustomToolCall)]
        if isinstance(pause := reply.events[-1], Paused):
            assert response.status == "completed"
            assert [call.call_id for call in calls] == [
                call.tool_call_id for call in pause.envelope.metadata.waiting_for or ()
            ]
        else:
            assert not calls, "a client would run it again"
        said += text_of_response(response)
    return said


@examples(300)
@given(agent_events, runs, asked_for)
def test_any_events_give_a_lawful_response(events: list[AgentEvent], run: RunInfo, asked: KeptRequest) -> None:
    assembled = assemble(events, run)
    assert assert_lawful(assembled, asked) == text_of(assembled)


@examples(200)
@given(recordings, runs, asked_for)
def test_any_recording_gives_a_lawful_response(recording: Recording, run: RunInfo, asked: KeptRequest) -> None:
    assert assert_lawful(read(recording.data, run), asked) == recording.text


@examples(200)
@given(stories, st.booleans(), runs, asked_for)
def test_the_text_is_the_agents_to_the_byte(story: Story, partial: bool, run: RunInfo, asked: KeptRequest) -> None:
    recording = play(story, partial=partial)
    assert assert_lawful(read(recording.data, run), asked).encode() == recording.text.encode()


@examples(100)
@given(torn_recordings, runs, asked_for, st.floats(0, 1))
def test_a_run_that_is_cut_off_is_a_response_that_failed(
    recording: Recording, run: RunInfo, asked: KeptRequest, where: float
) -> None:
    assert_lawful(read(recording.data[: int(where * len(recording.data))], run), asked)


@examples(100)
@given(agent_events, runs, asked_for)
def test_one_character_at_a_time_gives_the_same_items(
    events: list[AgentEvent], run: RunInfo, asked: KeptRequest
) -> None:
    split: list[AgentEvent] = []
    for event in events:
        split += [TextDelta(character) for character in event.text] if isinstance(event, TextDelta) else [event]
    wholes = []
    for given_events in (events, split):
        whole = ResponseFold(head(asked))
        for document_event in assemble(given_events, run):
            whole.push(document_event)
        wholes.append(read_response(whole.body()).output)
    assert wholes[0] == wholes[1]


@examples(100)
@given(agent_events, runs, asked_for, st.integers(-1, 60))
def test_a_stream_from_any_event_on_is_the_rest_of_the_stream(
    events: list[AgentEvent], run: RunInfo, asked: KeptRequest, after: int
) -> None:
    assembled = assemble(events, run)
    all_of_it = ResponseStream(head(asked)).push_all(assembled)
    rest = ResponseStream(head(asked), after=after).push_all(assembled)
    assert all_of_it.endswith(rest)
    assert read_events(rest) == [event for event in read_events(all_of_it) if event.sequence_number > after]


@examples(100)
@given(agent_events, runs, asked_for, st.data())
def test_known_items_are_left_out_and_nothing_else(
    events: list[AgentEvent], run: RunInfo, asked: KeptRequest, data: st.DataObject
) -> None:
    assembled = assemble(events, run)
    all_of_it = ResponseStream(head(asked)).push_all(assembled)
    ids = [item.id for item in read_stream(all_of_it).output]
    known = frozenset(data.draw(st.lists(st.sampled_from(ids), unique=True))) if ids else frozenset()
    rest = read_events(ResponseStream(head(asked), known=known).push_all(assembled))

    def is_known(event: Any) -> bool:
        return (event.item.id if hasattr(event, "item") else getattr(event, "item_id", "")) in known

    assert rest == [event for event in read_events(all_of_it) if not is_known(event)]


@examples(100)
@given(agent_events, runs, st.integers(0, 40))
def test_a_reader_that_resumes_gets_what_it_lacks(events: list[AgentEvent], run: RunInfo, after: int) -> None:
    assembled = assemble(events, run)

    def make(pause: int) -> ResponseStream:
        return ResponseStream(head(KeptRequest(), pause))

    everything = b""
    for reply in replies(assembled):
        encoder = make(reply.after)
        for number, event in enumerate(reply.events, reply.after + 1):
            everything += numbered(encoder.push(event), number)
    resumed = Resumed(make, after).push_all(assembled)
    assert resumed in everything
    if after >= len(assembled):
        assert resumed == b""
