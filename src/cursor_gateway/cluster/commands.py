"""The commands that a front sends to a runner, and their outcomes, as values and as bytes."""

from base64 import b64decode, b64encode
from typing import TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.errors import Failure
from cursor_gateway.model.answers import RunAnswer
from cursor_gateway.model.changes import REVIEWS, ReviewRequest
from cursor_gateway.model.documents import Usage
from cursor_gateway.runs.answering import Asker
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.store.base import ConversationRecord, RunRecord


class Take(Struct, frozen=True, tag="take"):
    request: RunRequest


class Start(Struct, frozen=True, tag="start"):
    request: RunRequest


class Resume(Struct, frozen=True, tag="resume"):
    """Continues the run that this request started: its runner was lost."""

    request: RunRequest


class Answer(Struct, frozen=True, tag="answer"):
    run_id: str
    asker: Asker
    given: RunAnswer


class Cancel(Struct, frozen=True, tag="cancel"):
    """Its value is how the run ended."""

    run_id: str
    owner: str


class Stop(Struct, frozen=True, tag="stop"):
    """Returns at once."""

    run_id: str
    owner: str
    why: Failure


class Remove(Struct, frozen=True, tag="remove"):
    conversation_id: str
    owner: str


class ListModels(Struct, frozen=True, tag="models"):
    pass


class FindFiles(Struct, frozen=True, tag="files"):
    workspace: str | None
    query: str
    limit: int
    owner: str = ""  # earlier versions do not send it


class FindFolders(Struct, frozen=True, tag="folders"):
    query: str
    limit: int
    owner: str = ""  # earlier versions do not send it


class ReviewChanges(Struct, frozen=True, tag="review"):
    """A request about the changed files of a conversation; `kind` is one of `REVIEWS`."""

    conversation: ConversationRecord
    kind: str
    request: msgspec.Raw

    @classmethod
    def of(cls, conversation: ConversationRecord, request: ReviewRequest) -> "ReviewChanges":
        kind = next(kind for kind, (wanted, _) in REVIEWS.items() if isinstance(request, wanted))
        return cls(conversation, kind, msgspec.Raw(_encoder.encode(request)))

    def decoded(self) -> ReviewRequest:
        return msgspec.msgpack.decode(self.request, type=REVIEWS[self.kind][0])


class ListPermissions(Struct, frozen=True, tag="permissions"):
    owner: str


class RevokePermission(Struct, frozen=True, tag="revoke"):
    owner: str
    id: str


Command: TypeAlias = (
    Take
    | Start
    | Resume
    | Answer
    | Cancel
    | Stop
    | Remove
    | ListModels
    | FindFiles
    | FindFolders
    | ReviewChanges
    | ListPermissions
    | RevokePermission
)


class Replied(Struct, frozen=True, tag="replied"):
    """A run, and the number of the event after which the reply begins."""

    run_id: str
    after: int
    usage_before: Usage | None = None
    record: RunRecord | None = None  # of a run that has just begun: then it need not be looked up
    is_repeat: bool = False  # see `Continued`


class Failed(Struct, frozen=True, tag="failed"):
    failure: Failure


class Returned(Struct, frozen=True, tag="returned"):
    value: msgspec.Raw


Outcome: TypeAlias = Replied | Failed | Returned

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(Command)
_outcomes = msgspec.msgpack.Decoder(Outcome)


def encode(value: Command | Outcome) -> bytes:
    return _encoder.encode(value)


def command_of(data: bytes) -> Command:
    """Raises `msgspec.DecodeError`, also for a command of a newer version."""
    decoded: Command = _commands.decode(data)
    return decoded


def outcome_of(data: bytes) -> Outcome:
    decoded: Outcome = _outcomes.decode(data)
    return decoded


def hinted_outcome(command_id: str, outcome: Outcome) -> str:
    """For a hint: the command, and its outcome if that is short and contains no content of a run."""
    if not isinstance(outcome, Replied):
        return command_id
    return f"{command_id} {b64encode(encode(outcome)).decode()}"


def outcome_in(hinted: str) -> tuple[str, bytes | None]:
    command_id, _, data = hinted.partition(" ")
    return command_id, b64decode(data) if data else None


def returned(value: object) -> Returned:
    return Returned(msgspec.Raw(_encoder.encode(value)))


def begun(run_id: str) -> bytes:
    """The outcome of a command whose run has begun, as it is stored."""
    return encode(Replied(run_id, 0))
