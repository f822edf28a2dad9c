"""However often the connection breaks, a reader has each event once, in order, and one run was begun."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.client.calls import chat_request
from cursor_gateway.client.failures import CallFailed, CannotReach
from cursor_gateway.client.following import BaseStream, Following, PrintableText
from cursor_gateway.client.steps import Request
from cursor_gateway.dialects.documents.encoder import SseEncoder
from cursor_gateway.errors import AgentOverloaded
from cursor_gateway.model.agent_events import AgentEvent, RunFailed, RunFinished, TextDelta
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, Done
from cursor_gateway.model.documents import ChatResponse
from tests.client.scripted import LINK, LOST, REFUSED, Answer, Scripted, Shell, answer
from tests.laws.laws import assemble, response_of
from tests.laws.strategies import agent_events, examples

START = chat_request("hello", "key", (), {})
KEEP_ALIVE = b": keep-alive\n\n"
SAID = ["Hello, ", "wörld", "!\n\n```python\nx = 1\n```\n\nDone."]
EVENTS = assemble([*map(TextDelta, SAID), RunFinished()])
NUMBERS = list(range(1, len(EVENTS) + 1))


class Gateway:
    """One run, over connections that break after so many bytes each; those after them are good."""

    def __init__(self, events: Sequence[DocumentEvent], cuts: Sequence[int] = (), size: int = 1000) -> None:
        encoder = SseEncoder()
        self._frames = [encoder.push(event) for event in events]
        self._cuts, self._size = list(cuts), size
        self.begun: set[str] = set()

    def __call__(self, request: Request) -> Answer:
        if request.method == "POST":
            self.begun.add(request.headers["idempotency-key"])
            after = 0
        else:
            assert request.path == ("v1", "chat", "chat_1", "events")
            after = int(request.headers["last-event-id"])
        headers = {"content-type": "text/event-stream", "x-chat-id": "chat_1", "x-conversation-id": "conv_1"}
        headers["x-cursor-gateway-fallback"] = "cli"
        if after >= len(self._frames):
            return Scripted(204, headers=headers)
        body = KEEP_ALIVE + b"".join(self._frames[after:])
        cut = self._cuts.pop(0) if self._cuts else len(body)
        if cut == 0:
            return LOST
        pieces = [body[place : min(place + self._size, cut)] for place in range(0, min(cut, len(body)), self._size)]
        return Scripted(200, [*pieces, LOST] if cut % 2 else pieces, headers)


def followed(gateway: Gateway, following: Following | None = None) -> list[DocumentEvent]:
    following = following or Following(LINK, start=START)
    batches = Shell(server=gateway).batches(following.follow())
    numbered = [one for batch in batches for one in batch]
    numbers = [number for number, _ in numbered]
    assert numbers == sorted(set(numbers))
    return [event for _, event in numbered]


def over(events: Sequence[DocumentEvent]) -> list[DocumentEvent]:
    """What a reader sees whose connection does not break."""
    return followed(Gateway(events))


# --- the law --------------------------------------------------------------------------------------------


def assert_nothing_is_lost_or_repeated(events: Sequence[DocumentEvent], cuts: Sequence[int], size: int) -> None:
    gateway, following = Gateway(events, cuts, size), Following(LINK, start=START)
    assert followed(gateway, following) == over(events)
    assert following.response == response_of(events)
    assert gateway.begun == {"key"}


def test_a_cut_after_any_byte() -> None:
    length = len(KEEP_ALIVE + b"".join(map(SseEncoder().push, EVENTS)))
    for cut in range(length + 1):
        assert_nothing_is_lost_or_repeated(EVENTS, [cut], 1000)
    for cut in range(0, length + 1, 5):
        assert_nothing_is_lost_or_repeated(EVENTS, [cut, 0, cut + 1, cut, 0], 7)


@examples(100)
@given(agent_events, st.lists(st.integers(1, 400), max_size=20), st.integers(1, 100))
def test_any_cuts_of_any_run(events: list[AgentEvent], cuts: list[int], size: int) -> None:
    assert_nothing_is_lost_or_repeated(assemble(events), cuts, size)


# --- reading --------------------------------------------------------------------------------------------


def test_a_run_that_is_begun() -> None:
    following, shell = Following(LINK, start=START), Shell(server=Gateway(EVENTS))
    steps = following.follow()
    assert (following.id, following.response) == ("", None)
    assert shell.next_batch(steps) == []  # there is a run, which has said nothing yet
    assert (following.id, following.conversation_id) == ("chat_1", "conv_1")
    batches = shell.batches(steps)
    assert [number for batch in batches for number, _ in batch] == NUMBERS
    assert following.response == following.result() == response_of(EVENTS)
    assert shell.requests == [START]
    assert shell.pauses == []


def test_pauses_grow_until_something_is_heard() -> None:
    shell = Shell(server=Gateway(EVENTS, [200, 0, 0, 300, 0]))
    shell.batches(Following(LINK, start=START).follow())
    assert shell.pauses == [0.1, 1.0, 5.0, 0.1, 1.0]


def test_a_gateway_that_is_started_anew() -> None:
    """What stands before it says so, or nobody answers; the run goes on where it was."""
    gateway = Gateway(EVENTS, [200])
    away: list[Answer] = [answer(502, b"<html>"), REFUSED]
    shell = Shell(server=lambda request: away.pop() if shell.requests[1:] and away else gateway(request))
    events = [event for batch in shell.batches(Following(LINK, start=START).follow()) for _, event in batch]
    assert events == over(EVENTS)


def test_a_gateway_that_is_gone_for_good() -> None:
    gateway = Gateway(EVENTS, [200, 0, 0, 0])
    following, shell = Following(LINK, start=START), Shell(server=gateway)
    with pytest.raises(CannotReach, match="reset") as caught:
        shell.batches(following.follow())
    assert caught.value.chat_id == "chat_1"
    assert shell.pauses == list(LINK.pauses)
    with pytest.raises(CannotReach):
        following.result()
    shell.asked(following.leave())  # the run may go on: whoever comes back will read it
    assert len(shell.requests) == 4


def test_a_refusal() -> None:
    following = Following(LINK, start=START)
    shell = Shell(answer(409, b'{"error":{"message":"Busy.","code":"conversation_busy"}}', retry_after="1"))
    with pytest.raises(CallFailed, match="Busy") as caught:
        shell.batches(following.follow())
    assert (caught.value.code, caught.value.retry_after, caught.value.chat_id) == ("conversation_busy", 1, "")
    assert following.error is caught.value
    shell.asked(following.leave())
    assert shell.requests == [START]


def test_a_run_that_has_lost_events_is_reported_and_not_asked_for_again() -> None:
    """Its caller has had events that are not there any more: only the caller can drop them."""
    gateway = Gateway(EVENTS, [200])
    reset = answer(409, b'{"error":{"message":"The run has no event 3.","code":"log_reset"}}')
    following = Following(LINK, start=START)
    shell = Shell(server=lambda request: reset if shell.requests[1:] else gateway(request))
    with pytest.raises(CallFailed, match="has no event") as caught:
        shell.batches(following.follow())
    assert (caught.value.code, caught.value.chat_id, len(shell.requests)) == ("log_reset", "chat_1", 2)


def test_a_refusal_that_is_cut_is_asked_for_again() -> None:
    following = Following(LINK, start=START)
    with pytest.raises(CallFailed, match="Busy"):
        Shell(Scripted(409, [b'{"er', LOST]), answer(409, b'{"error":{"message":"Busy."}}')).batches(following.follow())


@pytest.mark.parametrize(
    "headers", [{}, {"content-type": "text/html", "x-chat-id": "1"}, {"content-type": "text/event-stream"}]
)
def test_what_is_no_gateway(headers: dict[str, str]) -> None:
    with pytest.raises(CallFailed, match="no run's stream") as caught:
        Shell(Scripted(200, [b""], headers)).batches(Following(LINK, start=START).follow())
    assert caught.value.code == "not_a_gateway"


def test_a_frame_that_cannot_be_read() -> None:
    headers = {"content-type": "text/event-stream", "x-chat-id": "chat_1"}
    frame = b'id: 1\nevent: content_delta\ndata: {"documentId":"doc_009","delta":"x"}\n\n'
    with pytest.raises(CallFailed, match="doc_009") as caught:
        Shell(Scripted(200, [frame], headers)).batches(Following(LINK, start=START).follow())
    assert (caught.value.code, caught.value.chat_id) == ("not_a_gateway", "chat_1")


def test_a_run_that_has_become_shorter() -> None:
    """A gateway whose disk was full, and that was then killed, knows less than it has said."""
    gateway = Gateway(EVENTS, [len(KEEP_ALIVE + b"".join(map(SseEncoder().push, EVENTS[:4])))])
    shell = Shell(server=lambda request: gateway(request) if len(shell.requests) == 1 else answer(204))
    with pytest.raises(CallFailed, match="shorter"):
        shell.batches(Following(LINK, start=START).follow())


def test_frames_without_numbers_are_taken_as_they_come() -> None:
    encoder = SseEncoder()
    frames = [encoder.push(event).partition(b"\n")[2] for event in EVENTS]
    headers = {"content-type": "text/event-stream", "x-chat-id": "chat_1"}
    (begun, result) = Shell(Scripted(200, [b"".join(frames)], headers)).batches(Following(LINK, start=START).follow())
    assert begun == []
    assert [event for _, event in result] == over(EVENTS)


def test_frames_that_only_newer_readers_know_are_counted() -> None:
    following = Following(LINK, start=START)
    headers = {"content-type": "text/event-stream", "x-chat-id": "chat_1"}
    shell = Shell(Scripted(200, [b"id: 5\nevent: weather\ndata: {}\n\n"], headers), REFUSED, REFUSED, REFUSED)
    with pytest.raises(CannotReach):
        shell.batches(following.follow())
    assert shell.requests[1].headers["last-event-id"] == "5"


def test_what_comes_again_is_not_reported_again() -> None:
    """As from a cache in between that gives what it has."""
    gateway = Gateway(EVENTS, [200])
    shell = Shell(server=lambda request: gateway(START if shell.requests[1:] else request))
    events = [event for batch in shell.batches(Following(LINK, start=START).follow()) for _, event in batch]
    assert events == over(EVENTS)


# --- reading a run that somebody else began -------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 3, len(EVENTS) - 1, len(EVENTS)])
def test_reading_on(after: int) -> None:
    """In the midst of a document, too, and with the whole answer in the end."""
    following, gateway = Following(LINK, id="chat_1", after=after), Gateway(EVENTS, [150, 0, 90])
    assert followed(gateway, following) == over(EVENTS)[after:]
    assert following.response == response_of(EVENTS)
    assert gateway.begun == set()


# --- what it came to ------------------------------------------------------------------------------------


def test_a_run_that_failed() -> None:
    events = assemble([TextDelta("Hel"), RunFailed(failure=AgentOverloaded("Full.").failure())])
    following = Following(LINK, start=START)
    assert isinstance(followed(Gateway(events), following)[-1], Done)  # to a stream that is no error
    with pytest.raises(CallFailed, match="Full") as caught:
        following.result()
    error = caught.value
    assert (error.code, error.status, error.retry_after, error.chat_id) == ("agent_overloaded", 429, 10, "chat_1")
    assert error.response == response_of(events)


def test_a_run_that_was_left_has_no_result() -> None:
    following = Following(LINK, id="chat_1")
    with pytest.raises(CallFailed, match="left") as caught:
        following.result()
    assert caught.value.chat_id == "chat_1"


# --- stopping -------------------------------------------------------------------------------------------


def left(following: Following, shell: Shell) -> list[str]:
    """What is asked for on leaving."""
    asked = len(shell.requests)
    shell.is_open = False  # shells close what is open first
    shell.asked(following.leave())
    shell.asked(following.leave())  # a second time there is nothing to do
    return [f"{one.method} {'/'.join(one.path)}" for one in shell.requests[asked:]]


def test_cancel() -> None:
    following, shell = Following(LINK, id="chat_1"), Shell(LOST, answer(200, b"{}"))
    shell.asked(following.cancel())
    assert [one.path for one in shell.requests] == [("v1", "chat", "chat_1", "cancel")] * 2


@pytest.mark.parametrize("reply", [answer(200), answer(404), LOST, REFUSED])
def test_leaving_stops_the_run(reply: Answer) -> None:
    """Or tries to, once."""
    gateway, following = Gateway(EVENTS), Following(LINK, start=START)
    shell = Shell(server=lambda request: reply if shell.requests[1:] else gateway(request))
    shell.next_batch(following.follow())
    assert left(following, shell) == ["POST v1/chat/chat_1/cancel"]
    assert shell.requests[-1].seconds == 5


def test_leaving_before_anything_was_sent() -> None:
    assert left(Following(LINK, start=START), Shell()) == []


def test_leaving_when_nobody_was_there() -> None:
    following, shell = Following(LINK, start=START), Shell(REFUSED)
    with pytest.raises(CannotReach):
        shell.batches(following.follow())
    following.error = None  # as if interrupted while it was tried again
    assert left(following, shell) == []


def test_leaving_before_the_run_has_a_name() -> None:
    """The gateway holds its reply back until the agent says something; who leaves then asks for the name first."""
    following, shell = Following(LINK, start=START), Shell(answer(202, b"{}", x_chat_id="chat_1"), answer(200))
    following.follow().send(None)  # the request is on its way
    assert left(following, shell) == ["POST v1/chat", "POST v1/chat/chat_1/cancel"]
    assert shell.requests[0].body == START.body
    assert shell.requests[0].headers == {**START.headers, "prefer": "respond-async"}
    assert shell.requests[0].seconds == 5


@pytest.mark.parametrize("reply", [LOST, answer(503)])
def test_leaving_when_the_run_has_no_name(reply: Answer) -> None:
    following, shell = Following(LINK, start=START), Shell(reply)
    following.follow().send(None)
    assert left(following, shell) == ["POST v1/chat"]


def test_leaving_what_is_not_ours_or_over() -> None:
    reading, shell = Following(LINK, id="chat_1"), Shell(server=Gateway(EVENTS))
    shell.next_batch(reading.follow())
    assert left(reading, shell) == []
    ended = Following(LINK, start=START)
    shell.batches(ended.follow())
    assert left(ended, shell) == []
    kept = Following(LINK, start=START)
    shell.next_batch(kept.follow())
    BaseStream(kept).let_finish()
    assert left(kept, shell) == []


# --- what a stream knows without waiting ----------------------------------------------------------------


class Read(BaseStream):
    """A shell of its own, without any waiting."""

    def __init__(self, following: Following, shell: Shell) -> None:
        super().__init__(following)
        self._shell = shell

    def fill(self) -> list[int]:
        self._take(self._shell.next_batch(self._steps))
        return [number for number, _ in self._pending]

    def has_more(self) -> bool:
        return self._shell.performed(self._fill())

    def finish(self) -> ChatResponse:
        return self._shell.asked(self._finish())

    def one(self) -> DocumentEvent:
        return self._next()

    def all(self) -> list[DocumentEvent]:
        return self._all()


def test_a_stream_knows_its_place() -> None:
    stream = Read(Following(LINK, start=START), Shell(server=Gateway(EVENTS, size=10_000)))
    assert stream.fill() == []
    assert (stream.id, stream.conversation_id, stream.response, stream.last_event) == ("chat_1", "conv_1", None, 0)
    assert stream.fallback == "cli"
    assert stream.fill() == NUMBERS
    assert stream.last_event == 0  # arrived, but not read
    assert stream.one() == over(EVENTS)[0]
    assert stream.last_event == 1
    assert stream.all() == over(EVENTS)[1:]
    assert stream.last_event == len(EVENTS)
    assert stream.response == response_of(EVENTS)
    assert stream.fill() == []


def prose(events: Sequence[DocumentEvent]) -> Iterator[str]:
    said = PrintableText()
    return filter(None, map(said.push, events))


def test_prose_is_what_the_agent_says() -> None:
    assert "".join(prose(over(EVENTS))).startswith("Hello, wörld!\n\nx = 1\n\nDone.")


def test_prose_is_not_what_tools_say() -> None:
    assert list(
        prose([ContentDelta("doc_001", "a"), ContentDelta("doc_002", "x", raw=""), ContentDelta("doc_001", "b")])
    ) == [*("a", "b")]


def test_a_stream_is_filled_when_it_is_empty() -> None:
    stream = Read(Following(LINK, start=START), Shell(server=Gateway(EVENTS, size=10_000)))
    assert stream.has_more()
    assert stream.has_more()  # without another request
    assert len(stream.all()) == len(NUMBERS)
    assert not stream.has_more()


def test_a_stream_is_read_to_its_end() -> None:
    stream = Read(Following(LINK, start=START), Shell(server=Gateway(EVENTS)))
    assert stream.finish() == stream.response
