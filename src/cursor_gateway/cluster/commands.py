"""The commands that a front sends to a runner, and their outcomes, as values and as bytes.

Processes of two versions may work together (`store.cluster.LEVEL`): fields and arguments may be added, and a runner
refuses what it does not know.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from inspect import signature
from typing import Any, TypeAlias, get_type_hints

import msgspec
from msgspec import Struct

from cursor_gateway.errors import Failure
from cursor_gateway.model.answers import RunAnswer
from cursor_gateway.model.changes import REVIEWS, ReviewRequest
from cursor_gateway.model.documents import Usage
from cursor_gateway.runs.run_service import Asker, RunRequest, RunService
from cursor_gateway.store.base import ConversationRecord, RunRecord
from cursor_gateway.workspace.host import Host


class Take(Struct, frozen=True, tag="take"):
    request: RunRequest


class StartCommand(Struct, frozen=True, tag="start"):
    request: RunRequest


class Resume(Struct, frozen=True, tag="resume"):
    """Continues the run that this request started: its runner was lost."""

    request: RunRequest


class AnswerCommand(Struct, frozen=True, tag="answer"):
    run_id: str
    asker: Asker
    given: RunAnswer


class Stop(Struct, frozen=True, tag="stop"):
    """Returns at once."""

    run_id: str
    owner: str
    why: Failure


class MethodCall(Struct, frozen=True, tag="call"):
    """Any other method of `RunService` or `Host`, whose signature is the schema of its arguments and of its value."""

    method: str
    arguments: dict[str, msgspec.Raw]


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
        if self.kind not in REVIEWS:
            raise msgspec.ValidationError(f"unknown request {self.kind!r}")
        return msgspec.msgpack.decode(self.request, type=REVIEWS[self.kind][0])


RunnerCommand: TypeAlias = Take | StartCommand | Resume | AnswerCommand | Stop | MethodCall | ReviewChanges

_METHODS = frozenset(
    {
        "cancel",
        "remove",
        "models",
        "files",
        "folders",
        "image",
        "permissions",
        "revoke_permission",
    }
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


CommandOutcome: TypeAlias = Replied | Failed | Returned

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(RunnerCommand)
_outcomes = msgspec.msgpack.Decoder(CommandOutcome)


def encode(value: RunnerCommand | CommandOutcome) -> bytes:
    return _encoder.encode(value)


def command_of(data: bytes) -> RunnerCommand:
    """Raises `msgspec.DecodeError`, also for a command of a newer version."""
    decoded: RunnerCommand = _commands.decode(data)
    return decoded


def outcome_of(data: bytes) -> CommandOutcome:
    decoded: CommandOutcome = _outcomes.decode(data)
    return decoded


def call(method: Callable[..., object], *args: object, **kwargs: object) -> MethodCall:
    """Of a method of `RunService` or `Host`, without its `self`."""
    arguments = signature(method).bind(None, *args, **kwargs).arguments
    encoded = {name: msgspec.Raw(_encoder.encode(value)) for name, value in arguments.items() if name != "self"}
    return MethodCall(method.__name__, encoded)


def arguments_of(call: MethodCall) -> dict[str, Any]:
    """Raises `msgspec.DecodeError` for a call of another version. Arguments that this one does not know are ignored."""
    if call.method not in _METHODS:
        raise msgspec.ValidationError(f"unknown method {call.method!r}")
    kinds = get_type_hints(getattr(RunService if hasattr(RunService, call.method) else Host, call.method))
    del kinds["return"]
    if missing := kinds.keys() - call.arguments.keys():
        raise msgspec.ValidationError(f"{call.method}: without {', '.join(sorted(missing))}")
    return {name: msgspec.msgpack.decode(call.arguments[name], type=kind) for name, kind in kinds.items()}


def hinted_outcome(command_id: str, outcome: CommandOutcome) -> str:
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
