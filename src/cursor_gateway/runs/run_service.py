"""The interface between the HTTP server and the code that runs agents, in this process or in others: requests, replies,
and the service itself."""

import zlib
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.model.answers import RunAnswer
from cursor_gateway.model.caller_tools import Offer, Tool
from cursor_gateway.model.costs import Budget, Prices
from cursor_gateway.model.documents import Envelope, Mode, Usage
from cursor_gateway.model.health import RunnerEntry
from cursor_gateway.model.requests import NOT_STORED, AgentRequest, Fences, TraceContext, WhenBusy, WhenClientLeaves
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.sources.base import SourceState
from cursor_gateway.store.base import CONTINUATION, Claim, Store
from cursor_gateway.store.health import Figure
from cursor_gateway.store.queue import Entry, NamedWork
from cursor_gateway.workspace.host import Host

LARGEST_KEPT = 4 * 1024 * 1024  # bytes of a request; the answer to a larger one cannot be looked up


class RunRequest(AgentRequest, frozen=True, kw_only=True):
    """With what the gateway knows about the request besides."""

    owner: str
    request_id: str = ""
    client: str = ""  # the name of the program that sent it, for people
    forgets_session: bool = False  # the agent begins a new session with the whole conversation
    allow: Sequence[str] = ()  # rules for this run alone
    idempotency_key: str | None = None
    body: bytes = b""  # as it arrived: a repeated idempotency key must come with the same body
    repeat_key: str = ""  # identifies a request by its content; see `repeats`
    question_key: str = ""  # the same for requests that may be retries; see `repeats.FailedQuestions`
    queues: bool = False  # it may wait in the store: its client reads the answer later
    new_conversation: str = ""  # the id of the conversation that it begins, if it begins one; empty: any
    claim: Claim | None = None  # of the command that it came with, in a cluster, or of its entry in the queue
    trace: TraceContext | None = None


class Defaults(Struct, frozen=True, kw_only=True):
    """For what a request leaves out."""

    model: str
    model_aliases: Mapping[str, str] = {}  # the setting
    mode: Mode = "agent"
    fences: Fences = "split"
    wait_for_approval_seconds: float = 0  # for others than the caller
    page_url: str = ""  # where people open the page; empty: not known
    when_busy: WhenBusy = "refuse"
    when_client_leaves: WhenClientLeaves = "cancel"
    reconnect_seconds: float = 5  # for clients that retry by themselves
    prices: Prices = {}  # of the agent's tokens
    budgets: Mapping[str, Budget] = {}  # by the names of API keys; `*`: each of the others


class Continuation(Struct, frozen=True, kw_only=True):
    tools: Sequence[Tool]
    instructions: str = ""
    source: str | None = None
    needs: Sequence[str] = ()


def continuation_of(offer: Offer, request: RunRequest) -> bytes:
    kept = Continuation(
        tools=offer.tools, instructions=request.instructions, source=request.source, needs=request.needs or ()
    )
    return zlib.compress(msgspec.msgpack.encode(kept), 1)


async def stored_continuation(store: Store, run_id: str, owner: str) -> Continuation | None:
    """None: the run has completed, had no tools, or was begun by an older version."""
    kept = await store.kept_request(run_id, owner, CONTINUATION)
    return None if kept is None else msgspec.msgpack.decode(zlib.decompress(kept), type=Continuation)


class Asker(Struct, frozen=True, kw_only=True):
    """The caller that answers."""

    owner: str
    request_id: str = ""
    when_client_leaves: WhenClientLeaves | None = None
    claim: Claim | None = None  # in a cluster: the command that it came with
    trace: TraceContext | None = None


class Continued(Struct, frozen=True):
    """A run, and the number of the event after which the reply begins."""

    run: RunHandle
    after: int
    usage_before: Usage | None = None  # of the last model call before this reply
    key: str = ""  # identifies its request if it is repeated
    is_repeat: bool = False  # of an answer to a run; the reply to it is over


Removed: TypeAlias = Literal["removed", "pending", "unknown"]  # pending: agents still keep some of it, for now


class ServiceState(Struct, frozen=True, kw_only=True):
    """For /health."""

    source: SourceState
    sources: list[str]  # that requests may name
    running: int
    limit: int  # how many may run at once
    workspace: str = ""  # the default folder
    problem: str = ""  # what does not work although runs can be started


class Work(Protocol):
    """What waits to be started, and the processes that start it."""

    @property
    def is_shared(self) -> bool:
        """Whether a cluster does it."""
        ...

    async def entries(self, owner: str | None, limit: int) -> list[Entry]:
        """Of one owner's requests that wait, or of all; the next one first."""
        ...

    async def named(self, beginning: str) -> list[NamedWork]:
        """What waits or is active, and has an idempotency key that begins with that."""
        ...

    async def forget(self, id: str, owner: str) -> bool:
        """Removes a request from the queue. False: it is not in it."""
        ...

    async def runners(self) -> list[RunnerEntry]: ...

    async def set_draining(self, id: str, *, is_draining: bool) -> bool:
        """Whether a process accepts no new work. False: there is no such process in a cluster."""
        ...


class RunService(Protocol):
    """All methods raise a `GatewayError` for requests that cannot be fulfilled."""

    store: Store
    defaults: Defaults
    host: Host
    work: Work

    # --- starting, continuing and ending runs -------------------------------------------------------

    async def take(self, request: RunRequest) -> Continued:
        """The reply to a request: the one it got before, the next of a run that waits, or the first of a new run."""
        ...

    async def start(self, request: RunRequest) -> RunHandle: ...

    async def answer(self, id: str, asker: Asker, given: RunAnswer) -> Continued:
        """Continues the run of this id with what it waits for, or with answers to its agent's questions."""
        ...

    def delivered(self, owner: str, key: str) -> None:
        """A client was sent the whole reply to the request with this key (`Continued.key`)."""
        ...

    async def answered(self, request: RunRequest, run: RunHandle, answer: str) -> None:
        """The caller was sent a text that differs from the run's; its next request will quote it."""
        ...

    async def cancel(self, id: str, owner: str) -> Envelope:
        """How it ended: now, or before."""
        ...

    async def remove(self, conversation_id: str, owner: str) -> Removed:
        """A run in it is stopped."""
        ...

    # --- reading ------------------------------------------------------------------------------------

    async def find(self, id: str, owner: str) -> RunHandle:
        """Raises `NotFound`."""
        ...

    async def kept_request(self, id: str, owner: str, after: int) -> bytes | None:
        """As the store's; also of a run that has not begun."""
        ...

    async def waiting_for_people(self, conversation_ids: Collection[str]) -> Set[str]:
        """Those of the conversations whose runs wait for a person's answer."""
        ...

    def state(self) -> ServiceState: ...

    def figures(self) -> list[Figure]:
        """For the metrics, in addition to those of runs."""
        ...

    # --- the end ------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        """Why no new requests should be sent to this process; empty if it is ready."""
        ...

    async def retire(self) -> None:
        """From now on it is not ready, so that load balancers send no new requests."""
        ...

    async def drain(self, seconds: float) -> None:
        """No new runs; those that run here may finish within that time, then they are ended."""
        ...

    async def close(self) -> None: ...


async def delete_answer(service: RunService, run_id: str, owner: str, after: int) -> bool:
    """So that it is neither found nor continued; a conversation of one answer is removed. False: there is none."""
    stored = await service.store.run(run_id, owner)
    if stored is None and not after:
        return await service.work.forget(run_id, owner)
    if stored is None or await service.store.kept_request(run_id, owner, after) == NOT_STORED:
        return False
    if not await service.store.keep_request(run_id, owner, after, None):
        return False
    if len(await service.store.runs_of(stored.conversation_id, owner)) == 1:
        await service.remove(stored.conversation_id, owner)
    else:
        await service.store.keep_request(run_id, owner, after, NOT_STORED)
    return True
