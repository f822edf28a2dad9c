"""What the replies of most dialects have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from cursor_gateway.dialects.base import SSE, Encoder, ReplyStart, RunView, StreamForm
from cursor_gateway.model.document_events import DocumentEvent, ends_reply, source_text
from cursor_gateway.stages.tokens import estimate_tokens_by_sample


class JsonReply:
    """What the replies of most dialects have in common."""

    form: StreamForm = SSE
    media_type = "application/json"
    streams_failures = False
    is_resumable = False

    def headers(self, run: RunView) -> Mapping[str, str]:
        return {}


def context_tokens(run: RunView, start: ReplyStart) -> int:
    """About how many tokens the agent has before it when it begins this reply."""
    if start.usage is None:
        return run.info.known_tokens + estimate_tokens_by_sample(run.prompt)
    return start.usage.total_tokens


class EventEncoder(ABC):
    """An `Encoder` that encodes each event by itself, and fast."""

    is_slow = False

    @property
    def place(self) -> Hashable | None:
        return None

    def skip(self, count: int, /) -> None:
        """Not called: only encoders with a `place` share what they encode."""
        raise NotImplementedError

    @abstractmethod
    def push(self, event: DocumentEvent, /) -> bytes: ...

    def push_all(self, events: Sequence[DocumentEvent], /) -> bytes:
        return b"".join(map(self.push, events))

    def keep_alive(self) -> bytes:
        return SSE.keep_alive


# --- resumed streams --------------------------------------------------------------------------------


class ReplyEncoder(Encoder, Protocol):
    """Of one reply."""

    def push(self, event: DocumentEvent, /) -> bytes: ...


class Resumed(EventEncoder):
    """All events are pushed, also those before: what was sent already decides how it continues.

    A run that paused has several replies: `encoder` makes the one for each, by the number of the pause before it. Each
    event's number is its id, so that the reader can resume again.
    """

    def __init__(self, encoder: Callable[[int], ReplyEncoder], after: int, *, has_numbers: bool = False) -> None:
        """`has_numbers`: the encoder writes them itself."""
        self._has_numbers = has_numbers
        self._make, self._encoder, self._after, self._number = encoder, encoder(0), after, 0

    @property
    def is_over(self) -> bool:
        return self._encoder.is_over

    @property
    def is_cut(self) -> bool:
        return self._encoder.is_cut

    def keep_alive(self) -> bytes:
        return self._encoder.keep_alive()

    def push(self, event: DocumentEvent, /) -> bytes:
        self._number += 1
        frames = self._encoder.push(event)
        if self._number > self._after:
            return frames if self._has_numbers else numbered(frames, self._number)
        if ends_reply(event):
            self._encoder = self._make(self._number)
        return b""


def numbered(frames: bytes, number: int) -> bytes:
    """The frames of one event of the run, the last of them with the event's number as its id: a reader that got only
    some of them gets them all again."""
    if not frames:
        return b""
    end = frames.rfind(b"\n\n", 0, -2)  # of the last frame but one
    last = end + 2 if end >= 0 else 0
    return b"%bid: %d\n%b" % (frames[:last], number, frames[last:])


# --- the agent's text -------------------------------------------------------------------------------


class TextEncoder:
    def push(self, event: DocumentEvent, /) -> bytes:
        return source_text(event).encode()
