"""The protocol of a dialect: all that the HTTP server knows of the APIs that it speaks.

A dialect is a folder beside this module. It reads the bodies of its routes (`Route`), encodes a run's events as a
stream or as a whole answer (`Reply`), lets a reader resume (`Replay`) or look an answer up by its id (`StoredAnswers`)
or its name (`NamedStreams`), and has its own errors and ids. All of it is pure: the server starts runs, waits for their
events and writes the bytes.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.errors import Errors
from cursor_gateway.errors import Failure
from cursor_gateway.model.answers import AnswerId, RunAnswer
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import Usage
from cursor_gateway.model.requests import AgentRequest, RunInfo, WhenClientLeaves

# --- replies ----------------------------------------------------------------------------------------


class StreamForm(Struct, frozen=True):
    media_type: str
    keep_alive: bytes


SSE = StreamForm("text/event-stream; charset=utf-8", b": keep-alive\n\n")
# White space before a JSON value belongs to it: the next line begins with it, and there is no empty line.
NDJSON = StreamForm("application/x-ndjson", b" ")


class RunView(Struct, frozen=True):
    """What an encoder may know of a run beside its events."""

    info: RunInfo
    created: int  # seconds since 1970
    prompt: str  # for estimates; may be empty


class ReplyStart(Struct, frozen=True):
    """Where a reply begins. A run that pauses has several replies."""

    after: int = 0  # the number of the last event before it
    usage: Usage | None = None  # of the reply before
    kept: bytes = b""  # `StartRun.kept` of the request that it answers
    request_id: str = ""  # of that request


class Encoder(Protocol):
    def push_all(self, events: Sequence[DocumentEvent], /) -> bytes:
        """Events that arrived together."""
        ...

    def keep_alive(self) -> bytes:
        """What is sent after some seconds of silence."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it ignores all further events."""
        ...

    @property
    def is_cut(self) -> bool:
        """Whether it is over although the run is not: the rest is not needed."""
        ...

    @property
    def is_slow(self) -> bool:
        """Whether it renders, which would block the event loop."""
        ...

    @property
    def place(self) -> Hashable | None:
        """Encoders of a run with the same one encode the next events to the same bytes. None: it has its own state."""
        ...

    def skip(self, count: int, /) -> None:
        """So many events were encoded by another one with the same place."""
        ...


class WholeReply(Protocol):
    """A whole answer in the making."""

    @property
    def after(self) -> int:
        """It must be given all events after this number."""
        ...

    def push(self, event: DocumentEvent, /) -> None: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def is_cut(self) -> bool: ...

    @property
    def failure(self) -> Failure | None:
        """Why the run failed, if the reply is to be an error: it decides the status."""
        ...

    def error_body(self, failure: Failure) -> bytes | None:
        """The reply of a run that failed. None: the error alone, as `Errors` encodes it."""
        ...

    def body(self) -> bytes:
        """The answer. A dialect with `StoredAnswers` has one for a run that is not over, or has failed, too."""
        ...


class Reply(Protocol):
    """How one request wants its answer."""

    @property
    def form(self) -> StreamForm:
        """Of the stream."""
        ...

    @property
    def media_type(self) -> str:
        """Of the whole answer."""
        ...

    @property
    def streams_failures(self) -> bool:
        """Whether a stream reports a run that failed before its first event. Otherwise the reply's status does."""
        ...

    def headers(self, run: RunView) -> Mapping[str, str]:
        """Beside those of every reply."""
        ...

    @property
    def is_resumable(self) -> bool:
        """Whether a stream that ends early can be continued at `/v1/chat/{id}/events`, after its last event."""
        ...

    def stream(self, run: RunView, start: ReplyStart) -> Encoder: ...

    def whole(self, run: RunView, start: ReplyStart) -> WholeReply: ...


# --- requests ---------------------------------------------------------------------------------------


class StartRun(AgentRequest, frozen=True, kw_only=True):
    """A request for an answer, and how its client wants it."""

    reply: Reply
    check: Check | None = None  # before it is shown
    refused: Callable[[Failure], bytes] | None = None  # the stream of a run that cannot start; None: a status says it
    stream: bool = False
    stream_name: str = ""  # under which a reader can find the stream again: see `NamedStreams`
    responds_async: bool = False  # only the run's id is wanted
    background: bool = False  # reply at once with the answer so far; the run continues without readers
    references: Mapping[
        int, AnswerId
    ] = {}  # by the number of an answer in `messages`, where its text and its calls are


class ContinueRun(Struct, frozen=True, kw_only=True):
    """What a run waits for, or what its agent has asked."""

    given: RunAnswer
    reply: Reply
    run_id: str = ""  # instead of the path's `{id}`
    stream: bool = False
    stream_name: str = ""  # see `StartRun`
    responds_async: bool = False
    when_client_leaves: WhenClientLeaves | None = None


RunAction: TypeAlias = StartRun | ContinueRun


Read = TypeVar("Read")


class Route(Struct, Generic[Read], frozen=True):
    """A path: of its body and its headers, `read` makes what is wanted of a run, or the JSON of a reply without one."""

    path: str
    name: str  # in the metrics
    read: Callable[[bytes, Mapping[str, str]], Read]  # raises a `GatewayError`
    method: Literal["GET", "POST"] = "POST"
    takes_dialect: bool = False  # `?dialect=` chooses the stream that it replies with


class StoredAnswers(Struct, frozen=True, kw_only=True):
    """Answers that can be read again, cancelled and deleted by their ids, as long as `StartRun.kept` is stored."""

    path: str  # with `{id}`
    items_path: str  # of the request
    name: str  # in the metrics
    open: Callable[[bytes, Mapping[str, str]], tuple[Reply, bool]]  # of what was kept and the query; whether to stream
    items: Callable[[bytes, Mapping[str, str]], bytes]
    deleted: Callable[[str], bytes]  # what is replied when the answer of this id is deleted


# --- dialects ---------------------------------------------------------------------------------------


class Replay(Struct, frozen=True):
    """A run's stream for readers that resume it: one value of `?dialect=`."""

    name: str
    form: StreamForm
    open: Callable[[RunView, int], tuple[Encoder, int]]
    """Takes the number of the last event that the reader has. Returns an encoder, and the event after which it must be
    given all."""
    preferred: Mapping[str, Callable[[RunView, int], tuple[Encoder, int]]] = {}  # in its place, by a value of Prefer
    headers: Mapping[str, str] = {}
    reply: Reply | None = None  # to a request of another dialect that asks for this one


class NamedStreams(Struct, frozen=True):
    """The streams of replies by `stream_name`, for readers that do not know their run. 204 if none is active."""

    path: str  # with `{id}`
    name: str  # in the metrics
    form: StreamForm
    open: Callable[[RunView, int], Encoder]
    """From the beginning of the run; takes the number of the event after which the reply begins."""
    headers: Mapping[str, str] = {}


class Dialect(Struct, frozen=True, kw_only=True):
    routes: Sequence[Route[RunAction]]
    replays: Sequence[Replay]
    errors: Errors
    header: str = ""  # that its clients send with every request: `errors` are then used on all paths
    computed: Sequence[Route[bytes]] = ()  # answered without an agent
    answers: StoredAnswers | None = None
    named: NamedStreams | None = None
    answer_id: Callable[[str], AnswerId | None] = lambda answer: None  # None: it is no id of this dialect
    description: str = ""  # the module whose `describe` has it (`dialects/openapi.py`); few gateways are asked for it
