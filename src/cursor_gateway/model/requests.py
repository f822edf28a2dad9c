"""What a caller wants the agent to do, as far as its dialect can say: declared once, for every layer."""

from collections.abc import Sequence, Set

from msgspec import Struct

from cursor_gateway.model.caller_tools import Offer
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.images import Image
from cursor_gateway.model.messages import Message
from cursor_gateway.model.run_info import Attempt, Fences, Include, WhenClientLeaves, WhenRunnerLost

INTERACTIVE = "interactive"  # as `source`: the one that is best where a person can answer
NOT_STORED = b"null"  # as `AgentRequest.kept`: the client did not want the answer to be stored, or deleted it


class AgentRequest(Struct, frozen=True, kw_only=True):
    """What is None is left to the gateway's settings."""

    messages: Sequence[Message]
    images: Sequence[Image] = ()
    instructions: str = ""  # for this turn only, in addition to the conversation
    has_full_history: bool = False  # the messages are the whole conversation, not only what is new in it
    client_session: str = ""  # the client's own name for the conversation
    offer: Offer | None = None  # the caller's tools; then the agent may not use its own
    has_own_tools: bool = False  # the client runs tools itself, whether or not this request offers any
    may_be_asked: bool | None = False  # the caller can answer questions while the agent waits; None: it does not say
    source: str | None = None
    model: str | None = None
    mode: Mode | None = None
    workspace: str | None = None
    workspace_if_allowed: str | None = None  # instead of none: a folder that the client only mentions
    conversation_id: str | None = None  # or the id of an answer, in any dialect
    follows: str | None = None  # the id of an answer, not only of a conversation's last one, which it continues
    fences: Fences | None = None
    include: Set[Include] = frozenset()
    when_client_leaves: WhenClientLeaves | None = None
    when_runner_lost: WhenRunnerLost = "end"  # in a cluster
    needs: Sequence[str] = ()  # labels that the runner must have, in a cluster
    attempt: Attempt = "only"  # a retry gets the run that the first attempt started
    clients_retry: bool = False  # clients of its API repeat a request that failed, by themselves
    question_id: str = ""  # the client's own name for what it asks; its retries have the same
    kept: bytes = b""  # stored for its dialect, and returned when the answer is looked up; empty: it cannot be
