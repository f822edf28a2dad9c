"""A shell without a network: the meaning in; what it asked for, how long it paused and what it told, out."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct

from cursor_gateway.client.steps import (
    BatchCall,
    Call,
    Close,
    Head,
    Link,
    Lost,
    Open,
    Pause,
    Read,
    Request,
    Result,
    Step,
    next_batch,
)

T = TypeVar("T")

LINK = Link("http://gateway", (0.1, 1.0, 5.0))
LOST = Lost("reset")
REFUSED = Lost("refused", was_connected=False)


class Scripted(Struct):
    """A reply; its body in pieces, perhaps cut."""

    status: int = 200
    pieces: Sequence[bytes | Lost] = ()
    headers: Mapping[str, str] = {}


Answer: TypeAlias = Scripted | Lost


def answer(status: int, body: bytes = b"", **headers: str) -> Scripted:
    return Scripted(status, [body], {name.replace("_", "-"): value for name, value in headers.items()})


class Shell:
    def __init__(self, *answers: Answer, server: Callable[[Request], Answer] | None = None) -> None:
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.is_open = False
        self._answers = list(answers)
        self._server = server or (lambda request: self._answers.pop(0))
        self._pieces: list[bytes | Lost] = []

    def asked(self, steps: Call[T]) -> T:
        value = self.performed(steps)
        assert not self.is_open, "whoever is finished has closed the reply"
        return value

    def performed(self, steps: Call[T]) -> T:
        result: Result = None
        while True:
            try:
                result = self._do(steps.send(result))
            except StopIteration as end:
                value: T = end.value
                return value

    def batches(self, steps: BatchCall[T]) -> list[list[T]]:
        found: list[list[T]] = []
        while (batch := self.next_batch(steps)) is not None:
            found.append(batch)
        return found

    def next_batch(self, steps: BatchCall[T]) -> list[T] | None:
        batch = self.performed(next_batch(steps))
        assert batch is not None or not self.is_open
        return batch

    def _do(self, step: Step) -> Result:
        match step:
            case Open(request=request):
                assert not self.is_open, "one reply at a time"
                self.requests.append(request)
                answer = self._server(request)
                if isinstance(answer, Lost):
                    return answer
                self.is_open, self._pieces = True, list(answer.pieces)
                return Head(answer.status, answer.headers)
            case Read():
                assert self.is_open
                return self._pieces.pop(0) if self._pieces else b""
            case Close():
                self.is_open = False
            case Pause(seconds=seconds):
                assert not self.is_open, "a connection is not kept while nothing is read"
                self.pauses.append(seconds)
        return None
