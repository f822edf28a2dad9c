"""The client for programs that wait: HTTP and sleep; what it all means is in `calls`, `steps` and `following`."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from cursor_gateway.client import calls
from cursor_gateway.client.calls import AnswerFields, Health, ModelEntry
from cursor_gateway.client.connection import (
    LOCAL,
    PAUSES,
    SILENCE_SECONDS,
    ChatOptions,
    built,
    checked,
    http_options,
    limits,
    lost,
    request_of,
)
from cursor_gateway.client.following import Following, Prose, Reading
from cursor_gateway.client.steps import Close, Head, Heard, Link, Open, Pause, Read, Step, Telling, Told, TurnBuilder
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import ChatResponse, Envelope
from cursor_gateway.model.history import ConversationDetail, ConversationEntry
from cursor_gateway.model.permissions import PermissionList

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class Client:
    """A gateway, for programs that wait. Threads may share one; `with` closes its connections."""

    def __init__(
        self,
        url: str = LOCAL,
        api_key: str | None = None,
        *,
        timeout: float = SILENCE_SECONDS,
        pauses: Sequence[float] = PAUSES,
        socket: str | None = None,
    ) -> None:
        """`timeout`: seconds of silence after which a connection counts as lost. `pauses`: seconds before each new try.

        `socket`: the path of a Unix socket to connect to, instead of the host and port of `url`.
        Raises `ValueError` for an address or a key that can be none.
        """
        import httpx2

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
        """The answer as it comes; to be used in a `with`. Whoever leaves it before the end stops the run."""
        return Stream(self._http, Following(self._link, start=request_of(message, options)))

    # --- a run that goes on, or that was ------------------------------------------------------------

    def response(self, id: str) -> ChatResponse:
        """The whole answer, or what there is of it now: its status is `streaming` then."""
        return self._asked(calls.response(self._link, id))

    def events(self, id: str, after: int = 0) -> "Stream":
        """The run's events, from the first on or after the one with that number. Leaving it does not stop the run."""
        return Stream(self._http, Following(self._link, id=id, after=after))

    def answer(self, id: str, **told: Unpack[AnswerFields]) -> str:
        """What the run waits for, or its agent has asked: `tool_results`, `answers`, `plan` or `permissions`.

        Returns the id of the run that goes on with it: the same, whose stream goes on, or the conversation's next.
        """
        return self._asked(calls.answer(self._link, id, told))

    def cancel(self, id: str) -> Envelope:
        """How the run ended: now, or before."""
        return self._asked(calls.cancel(self._link, id))

    # --- the history --------------------------------------------------------------------------------

    def conversations(self, query: str | None = None, limit: int | None = None) -> Iterator[ConversationEntry]:
        """The newest first; those where all words of `query` were said. Fetched page by page, as they are read."""
        steps, line = calls.conversations(self._link, query, limit), _Line(self._http)
        while (page := line.told(steps)) is not None:
            yield from page

    def conversation(self, id: str) -> ConversationDetail:
        return self._asked(calls.conversation(self._link, id))

    def delete_conversation(self, id: str) -> None:
        """With all its runs; one that goes on is stopped."""
        return self._asked(calls.delete_conversation(self._link, id))

    # --- permissions --------------------------------------------------------------------------------

    def permissions(self) -> PermissionList:
        """What was allowed, and the operator's rules."""
        return self._asked(calls.permissions(self._link))

    def revoke_permission(self, id: str) -> None:
        """From the next run on."""
        return self._asked(calls.revoke_permission(self._link, id))

    # --- the gateway --------------------------------------------------------------------------------

    def models(self) -> list[ModelEntry]:
        return self._asked(calls.models(self._link))

    def health(self) -> Health:
        return self._asked(calls.health(self._link))

    def _asked(self, steps: TurnBuilder[T]) -> T:
        return _Line(self._http).asked(steps)


class Stream(Reading):
    """A run's events, each once and in order, however often the connection breaks."""

    def __init__(self, http: "httpx2.Client", following: Following) -> None:
        super().__init__(following)
        self._http, self._line = http, _Line(http)

    def __enter__(self) -> "Stream":
        """Raises `CallFailed` when the gateway refuses."""
        try:
            self._take(self._line.told(self._steps))
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
        """The events that came together, for those who draw after each."""
        while self._fill():
            yield self._all()

    @property
    def text(self) -> Iterator[str]:
        """What the agent says in words and code, as it comes; a blank line is between documents."""
        prose = Prose()
        return (text for event in self if (text := prose.push(event)))

    def result(self) -> ChatResponse:
        """Waits for the end. Raises `CallFailed`, also for a run that failed."""
        while self._fill():
            self._all()
        return self._following.result()

    def cancel(self) -> None:
        """Stops the run; its last events can still be read."""
        _Line(self._http).asked(self._following.cancel())

    def close(self) -> None:
        """Stops the run if it is this stream's, and not over."""
        self._steps.close()
        try:
            self._line.asked(self._following.leave())
        finally:
            self._line.close()

    def _fill(self) -> bool:
        """Whether there is anything more."""
        while not self._pending:
            batch = self._line.told(self._steps)
            if batch is None:
                return False
            self._take(batch)
        return True


class _Line:
    """One connection at a time, as the steps want it."""

    def __init__(self, http: "httpx2.Client") -> None:
        self._http = http
        self._reply: httpx2.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def asked(self, steps: TurnBuilder[T]) -> T:
        heard: Heard = None
        while True:
            try:
                step = steps.send(heard)
            except StopIteration as end:
                value: T = end.value
                return value
            heard = self._do(step)

    def told(self, steps: Telling[T]) -> list[T] | None:
        """None at the end."""
        heard: Heard = None
        while True:
            try:
                step = steps.send(heard)
            except StopIteration:
                return None
            if isinstance(step, Told):
                return step.items
            heard = self._do(step)

    def close(self) -> None:
        if self._reply is not None:
            reply, self._reply = self._reply, None
            reply.close()

    def _do(self, step: Step) -> Heard:
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
