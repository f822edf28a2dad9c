"""The blocking client: HTTP and sleep. The logic is in `calls`, `steps` and `following`."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from cursor_gateway.client import calls
from cursor_gateway.client.calls import AnswerFields, Health, ModelEntry
from cursor_gateway.client.connection import (
    PAUSES,
    SILENCE_SECONDS,
    ChatOptions,
    address,
    built,
    checked,
    http_options,
    limits,
    lost,
    request_of,
)
from cursor_gateway.client.following import Following, Prose, Reading
from cursor_gateway.client.steps import Call, Close, Head, Link, Open, Pause, Read, Result, Step, next_batch
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse, Envelope
from cursor_gateway.model.history import ConversationDetail, ConversationEntry
from cursor_gateway.model.permissions import PermissionList

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class Client:
    """A blocking client of a gateway. Threads may share one; `with` closes its connections."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = SILENCE_SECONDS,
        pauses: Sequence[float] = PAUSES,
        socket: str | None = None,
    ) -> None:
        """Without `url` and `api_key`: those of the environment (CURSOR_GATEWAY_URL, CURSOR_GATEWAY_API_KEY), or a
        gateway on this machine, on the usual port.

        `timeout`: seconds without data after which a connection counts as lost. `pauses`: seconds before each retry.

        `socket`: the path of a Unix socket to connect to, instead of the host and port of `url`.
        Raises `ValueError` for an invalid URL or key.
        """
        import httpx2

        url, api_key = address(url, api_key)
        self._link = Link(checked(url), tuple(pauses))
        transport = None if socket is None else httpx2.HTTPTransport(uds=socket, verify=False, limits=limits())
        self._http = httpx2.Client(**http_options(self._link.url, api_key, timeout), transport=transport)

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

    # --- an earlier run, or one that continues ------------------------------------------------------------

    def response(self, id: str) -> ChatResponse:
        """The whole answer, or a snapshot with the status `streaming`."""
        return self._call(calls.response(self._link, id))

    def events(self, id: str, after: int = 0) -> "Stream":
        """The run's events, from the first, or after the event `after`. Leaving it does not stop the run."""
        return Stream(self._http, Following(self._link, id=id, after=after))

    def answer(self, id: str, **fields: Unpack[AnswerFields]) -> str:
        """Answers a run: send one of `tool_results`, `answers`, `plan` (and perhaps `text`) and `permissions`.

        Returns the id of the run that continues: the same one, or the next in the conversation.
        """
        return self._call(calls.answer(self._link, id, fields))

    def cancel(self, id: str) -> Envelope:
        """Stops the run, and returns how it ended."""
        return self._call(calls.cancel(self._link, id))

    # --- the history --------------------------------------------------------------------------------

    def conversations(self, query: str | None = None, limit: int | None = None) -> Iterator[ConversationEntry]:
        """Newest first; with `query`, those that contain all its words. Fetched page by page."""
        steps, connection = calls.conversations(self._link, query, limit), _Connection(self._http)
        while (page := connection.run(next_batch(steps))) is not None:
            yield from page

    def conversation(self, id: str) -> ConversationDetail:
        return self._call(calls.conversation(self._link, id))

    def delete_conversation(self, id: str) -> None:
        """With all its runs. An active run is stopped."""
        return self._call(calls.delete_conversation(self._link, id))

    # --- permissions --------------------------------------------------------------------------------

    def permissions(self) -> PermissionList:
        """The caller's decisions and the operator's rules."""
        return self._call(calls.permissions(self._link))

    def revoke_permission(self, id: str) -> None:
        """Applies from the next run on."""
        return self._call(calls.revoke_permission(self._link, id))

    # --- the gateway --------------------------------------------------------------------------------

    def models(self) -> list[ModelEntry]:
        return self._call(calls.models(self._link))

    def health(self) -> Health:
        return self._call(calls.health(self._link))

    def _call(self, steps: Call[T]) -> T:
        return _Connection(self._http).run(steps)


class Stream(Reading):
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
        if not self._fill():
            raise StopIteration
        return self._next()

    def batches(self) -> Iterator[list[DocumentEvent]]:
        """The events in batches, as they arrive."""
        while self._fill():
            yield self._all()

    @property
    def text(self) -> Iterator[str]:
        """The agent's text and code as it arrives, with an empty line between documents."""
        prose = Prose()
        return (text for event in self if (text := prose.push(event)))

    def result(self) -> ChatResponse:
        """Waits for the end. Raises `CallFailed`, also for a run that failed."""
        while self._fill():
            self._all()
        return self._following.result()

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

    def _fill(self) -> bool:
        """Whether there are more events."""
        while not self._pending:
            batch = self._connection.run(next_batch(self._steps))
            if batch is None:
                return False
            self._take(batch)
        return True


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
