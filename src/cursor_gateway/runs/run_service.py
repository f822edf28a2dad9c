"""The interface between the HTTP server and the code that runs agents, in this process or in others."""

from collections.abc import Collection, Set
from typing import Protocol

from msgspec import Struct

from cursor_gateway.model.answers import PermissionEntry, RunAnswer
from cursor_gateway.model.changes import ReviewRequest, ReviewResult
from cursor_gateway.model.documents import Envelope
from cursor_gateway.model.requests import NOT_STORED
from cursor_gateway.runs.answering import Asker
from cursor_gateway.runs.continuing import Continued
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.image_files import ImagePlace
from cursor_gateway.runs.run_request import Defaults, RunRequest
from cursor_gateway.runs.service import Removed
from cursor_gateway.sources.base import Model, SourceState
from cursor_gateway.store.base import ConversationRecord, RunRecord, Store
from cursor_gateway.store.health import Figure


class ServiceState(Struct, frozen=True, kw_only=True):
    """For /health."""

    source: SourceState
    sources: list[str]  # that requests may name
    running: int
    limit: int  # how many may run at once
    workspace: str = ""  # the default folder
    problem: str = ""  # what does not work although runs can be started


class RunService(Protocol):
    """All methods raise a `GatewayError` for requests that cannot be fulfilled."""

    store: Store
    defaults: Defaults

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

    async def waiting_for_people(self, conversation_ids: Collection[str]) -> Set[str]:
        """Those of the conversations whose runs wait for a person's answer."""
        ...

    def runner_of(self, run: RunRecord) -> str:
        """The process that drives it, or did; empty if there is only one."""
        ...

    # --- the machine that agents work on ------------------------------------------------------------

    def state(self) -> ServiceState: ...

    async def models(self) -> list[Model]: ...

    def check_model(self, model: str) -> None:
        """Raises `ModelUnavailable` for a name that is known to be wrong."""
        ...

    async def files(self, owner: str, workspace: str | None, query: str, limit: int) -> list[str]:
        """Paths below the workspace, best match first."""
        ...

    async def folders(self, owner: str, query: str, limit: int) -> list[str]:
        """Folders that a conversation may use as its workspace."""
        ...

    async def review(self, conversation: ConversationRecord, request: ReviewRequest) -> ReviewResult:
        """Lists, reverts, keeps or commits what changed in the conversation's workspace."""
        ...

    async def image(self, conversation: ConversationRecord, place: ImagePlace) -> bytes:
        """Raises `NotFound`."""
        ...

    async def permissions(self, owner: str) -> list[PermissionEntry]:
        """The newest first."""
        ...

    async def revoke_permission(self, owner: str, id: str) -> bool:
        """False: there is none."""
        ...

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
    if stored is None or await service.store.kept_request(run_id, owner, after) == NOT_STORED:
        return False
    if not await service.store.keep_request(run_id, owner, after, None):
        return False
    if len(await service.store.runs_of(stored.conversation_id, owner)) == 1:
        await service.remove(stored.conversation_id, owner)
    else:
        await service.store.keep_request(run_id, owner, after, NOT_STORED)
    return True
