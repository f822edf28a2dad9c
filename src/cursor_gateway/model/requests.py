"""What a caller wants the agent to do, as far as its dialect can say: declared once, for every layer."""

from collections.abc import Iterable, Sequence, Set
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from msgspec import Meta, Struct

from cursor_gateway.model.caller_tools import Offer
from cursor_gateway.model.costs import Prices
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.messages import Image, Message

# --- what a run is told before it starts ------------------------------------------------------------


Fences: TypeAlias = Literal["split", "inline"]
Include: TypeAlias = Literal["thinking", "raw", "context"]
WhenClientLeaves: TypeAlias = Literal["cancel", "finish"]
WhenRunnerLost: TypeAlias = Literal["end", "resume"]
WhenBusy: TypeAlias = Literal["refuse", "wait", "interrupt"]

Label: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]  # of a runner, such as `gpu`
Labels: TypeAlias = Annotated[Sequence[Label], Meta(max_length=20)]

MOST_PRIORITY = 9
Time: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Priority: TypeAlias = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)]

# Of a client that sends the same request again by itself when a reply is lost: the one that it says this is, or
# `unknown` if it does not say. `only`: any other client; the same request again asks for another answer.
Attempt: TypeAlias = Literal["only", "first", "retry", "unknown"]


class TraceContext(Struct, frozen=True):
    """Of the request that a run belongs to, if it is traced: the headers of W3C Trace Context."""

    traceparent: str
    tracestate: str = ""
    received_ns: int = 0  # when the gateway got it, since 1970


class RunInfo(Struct, frozen=True, kw_only=True):
    id: str
    created: str  # ISO 8601, UTC
    mode: Mode = "agent"
    model: str | None = None  # None: the name that the agent reports
    conversation_id: str | None = None  # None: made of the agent's session
    fences: Fences = "split"
    include: Set[Include] = frozenset()
    # The address of the page on which refused calls can be allowed: empty if it is not known, None if nobody can.
    page_url: str | None = None
    known_tokens: int = 0  # estimated size of the agent's session without the prompt; for estimates
    prices: Prices = {}
    trace: TraceContext | None = None  # None: it is not traced


INTERACTIVE = "interactive"  # as `source`: the one that is best where a person can answer
NOT_STORED = b"null"  # as `AgentRequest.kept`: the client did not want the answer to be stored, or deleted it

NonEmpty: TypeAlias = Annotated[str, Meta(min_length=1)]

LeavingOption: TypeAlias = Annotated[
    WhenClientLeaves | None,
    "What happens to the run when its last reader disconnects: `cancel` or `finish`. The default is the operator's "
    "setting.",
]


class RunOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """The options that every API has, under the same names. What is None is left to the gateway's settings."""

    mode: Annotated[
        Mode | None,
        "`agent` makes changes, `plan` and `ask` do not, `debug` looks for causes first. The default is the operator's "
        "setting.",
    ] = None
    workspace: Annotated[NonEmpty | None, "The folder to work in: an allowed root or a folder below one."] = None
    fences: Annotated[
        Fences | None,
        "`split` turns code blocks into separate documents, `inline` leaves them in the text. The default is the "
        "operator's setting.",
    ] = None
    include: Annotated[
        Set[Include] | None,
        "Additional output: `thinking` documents, `raw` payloads of the agent's tools, the size of the `context`.",
    ] = None
    conversation_id: Annotated[NonEmpty | None, "Continues this conversation."] = None
    when_client_leaves: LeavingOption = None
    when_runner_lost: Annotated[
        WhenRunnerLost | None,
        "What happens to the run when the process that runs its agent dies, in a cluster: `end`, the default, or "
        "`resume` on another runner with the same volume, once.",
    ] = None
    when_busy: Annotated[
        WhenBusy | None,
        "What happens while the conversation has an active run: `refuse` returns 409, `wait` waits for its end, "
        "`interrupt` cancels it and keeps its partial answer. The default is the operator's setting.",
    ] = None
    priority: Annotated[
        Priority | None,
        "Among requests that wait for a slot, those with a higher priority come first; 0 is the default. An API key "
        "may use a priority above 0 only up to its limit in the operator's setting `priorities`.",
    ] = None
    run_at: Annotated[
        Time | None,
        "When to start the run, as a time with its offset, at most a year ahead; only where the answer is read later "
        "(`Prefer: respond-async`, or `background`). It waits in the queue until then.",
    ] = None
    needs: Annotated[
        Labels | None, "Labels that the runner must have, in a cluster; without such a runner the request gets 503."
    ] = None
    source: Annotated[
        NonEmpty | None, "The backend to use, one of those listed by `/health`. The default is the operator's setting."
    ] = None


class RunOptionFields(TypedDict, total=False):
    """The same as keyword arguments."""

    mode: Mode | None
    workspace: str | None
    fences: Fences | None
    include: Iterable[Include]
    conversation_id: str | None
    when_client_leaves: WhenClientLeaves | None
    when_runner_lost: WhenRunnerLost | None
    when_busy: WhenBusy | None
    priority: int | None
    run_at: str | None
    needs: Sequence[str]
    source: str | None


_options = attrgetter(*RunOptions.__struct_fields__)


def run_options(wanted: RunOptions) -> dict[str, Any]:
    """The options alone, of a request that has more."""
    return dict(zip(RunOptions.__struct_fields__, _options(wanted), strict=True))


class AgentRequest(RunOptions, frozen=True, kw_only=True, rename=None):
    """What is None is left to the gateway's settings, as with the options. `conversation_id` may also be the id of an
    answer, in any dialect."""

    messages: Sequence[Message]
    images: Sequence[Image] = ()
    instructions: str = ""  # for this turn only, in addition to the conversation
    has_full_history: bool = False  # the messages are the whole conversation, not only what is new in it
    client_session: str = ""  # the client's own name for the conversation
    offer: Offer | None = None  # the caller's tools; then the agent may not use its own
    has_own_tools: bool = False  # the client runs tools itself, whether or not this request offers any
    may_be_asked: bool | None = False  # the caller can answer questions while the agent waits; None: it does not say
    model: str | None = None
    workspace_if_allowed: str | None = None  # instead of none: a folder that the client only mentions
    follows: str | None = None  # the id of an answer, not only of a conversation's last one, which it continues
    attempt: Attempt = "only"  # a retry gets the run that the first attempt started
    clients_retry: bool = False  # clients of its API repeat a request that failed, by themselves
    question_id: str = ""  # the client's own name for what it asks; its retries have the same
    kept: bytes = b""  # stored for its dialect, and returned when the answer is looked up; empty: it cannot be

    @property
    def may_be_asked_again(self) -> bool:
        """Only the time distinguishes a retry from the same question asked again to get another answer."""
        return self.attempt == "unknown" and not self.question_id
