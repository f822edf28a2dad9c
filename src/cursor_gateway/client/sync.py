"""The blocking client: HTTP and sleep. The logic is in `calls`, `steps` and `following`."""

import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from cursor_gateway.client import calls
from cursor_gateway.client.connection import BaseClient, ChatOptions, built, describe, lost, request_of
from cursor_gateway.client.following import BaseStream, Following, PrintableText
from cursor_gateway.client.steps import BatchCall, Call, Close, Head, Link, Open, Pause, Read, Result, Step, next_batch
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.history import ConversationEntry

if TYPE_CHECKING:
    import httpx2

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(call: Callable[Concatenate[Link, P], Call[T]]) -> Callable[Concatenate["Client", P], T]:
    """A method that makes this call."""

    @wraps(call)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._call(call(client._link, *args, **kwargs))

    describe(method, call)
    return method


class Client(BaseClient["httpx2.Client"]):
    """A blocking client of a gateway. Threads may share one; `with` closes its connections."""

    def _open(self, options: dict[str, Any], socket: str | None) -> "httpx2.Client":
        import httpx2

        limits = options["limits"]
        transport = None if socket is None else httpx2.HTTPTransport(uds=socket, verify=False, limits=limits)
        return httpx2.Client(**options, transport=transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # --- asking -------------------------------------------------------------------------------------

    def chat(self, message: str, **options: Unpack[ChatOptions]) -> ChatResponse:
        """Waits for the whole answer. Raises `CallFailed`, also for a run that failed."""
        with self.stream(message, **options) as stream:
            return stream.result()

    def stream(self, message: str, **options: Unpack[ChatOptions]) -> "Stream":
        """Streams the answer; use it in a `with`. Leaving it before the end stops the run."""
        return Stream(self._http, Following(self._link, start=request_of(message, options)))

    def start(self, message: str, **options: Unpack[ChatOptions]) -> str:
        """Starts a run that nobody has to wait for, and returns its id. Read it with `events` or `response`."""
        return self._call(calls.start(self._link, request_of(message, options))).id

    def events(self, id: str, after: int = 0) -> "Stream":
        """The run's events, from the first, or after the event `after`. Leaving it does not stop the run."""
        return Stream(self._http, Following(self._link, id=id, after=after))

    def conversations(self, query: str | None = None, limit: int | None = None) -> Iterator[ConversationEntry]:
        """Newest first; with `query`, those that contain all its words. Fetched page by page."""
        return self._entries(calls.conversations(self._link, query, limit))

    def links(self) -> Iterator[ConversationEntry]:
        """The conversations that have a read-only link. Fetched page by page."""
        return self._entries(calls.links(self._link))

    def _entries(self, steps: BatchCall[ConversationEntry]) -> Iterator[ConversationEntry]:
        connection = _Connection(self._http)
        while (page := connection.run(next_batch(steps))) is not None:
            yield from page

    # --- the other calls of a gateway ---------------------------------------------------------------

    response = _blocking(calls.response)
    answer = _blocking(calls.answer)
    cancel = _blocking(calls.cancel)
    conversation = _blocking(calls.conversation)
    delete_conversation = _blocking(calls.delete_conversation)
    create_link = _blocking(calls.create_link)
    revoke_link = _blocking(calls.revoke_link)
    changes = _blocking(calls.changes)
    patch = _blocking(calls.patch)
    trace = _blocking(calls.trace)
    revert = _blocking(calls.revert)
    keep = _blocking(calls.keep)
    commit = _blocking(calls.commit)
    files = _blocking(calls.files)
    permissions = _blocking(calls.permissions)
    revoke_permission = _blocking(calls.revoke_permission)
    new_login = _blocking(calls.new_login)
    devices = _blocking(calls.devices)
    forget_device = _blocking(calls.forget_device)
    models = _blocking(calls.models)
    health = _blocking(calls.health)

    def _call(self, steps: Call[T]) -> T:
        return _Connection(self._http).run(steps)


class Stream(BaseStream):
    """A run's events, each once and in order, however often the connection breaks."""

    def __init__(self, http: "httpx2.Client", following: Following) -> None:
        super().__init__(following)
        self._http, self._connection = http, _Connection(http)

    def __enter__(self) -> "Stream":
        """Raises `CallFailed` if the gateway rejects the request."""
        try:
            self._take(self._connection.run(next_batch(self._steps)))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> DocumentEvent:
        if not self._pending and not self._connection.run(self._fill()):
            raise StopIteration
        return self._next()

    def batches(self) -> Iterator[list[DocumentEvent]]:
        """The events in batches, as they arrive."""
        while self._connection.run(self._fill()):
            yield self._all()

    @property
    def text(self) -> Iterator[str]:
        """The agent's text and code as it arrives, with an empty line between documents."""
        prose = PrintableText()
        return (text for event in self if (text := prose.push(event)))

    def result(self) -> ChatResponse:
        """Waits for the end. Raises `CallFailed`, also for a run that failed."""
        return self._connection.run(self._finish())

    def cancel(self) -> None:
        """Stops the run; its last events can still be read."""
        _Connection(self._http).run(self._following.cancel())

    def close(self) -> None:
        """Stops the run, if this stream started it and it is not over."""
        self._steps.close()
        try:
            self._connection.run(self._following.leave())
        finally:
            self._connection.close()


class _Connection:
    """Performs steps, with one open reply at a time."""

    def __init__(self, http: "httpx2.Client") -> None:
        self._http = http
        self._reply: httpx2.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def run(self, steps: Call[T]) -> T:
        result: Result = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                value: T = end.value
                return value
            result = self._do(step)

    def close(self) -> None:
        if self._reply is not None:
            reply, self._reply = self._reply, None
            reply.close()

    def _do(self, step: Step) -> Result:
        import httpx2

        try:
            match step:
                case Open(request=request):
                    self.close()
                    self._reply = reply = self._http.send(built(self._http, request), stream=True)
                    self._pieces = reply.iter_bytes()
                    return Head(reply.status_code, dict(reply.headers))
                case Read():
                    return next(self._pieces, b"")
                case Close():
                    self.close()
                case Pause(seconds=seconds):
                    time.sleep(seconds)
        except httpx2.HTTPError as error:
            return lost(error)
        return None
