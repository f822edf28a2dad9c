"""The `RunService` of a process that runs its agents itself."""

import time
from collections.abc import Collection, Set
from functools import cached_property

from msgspec.structs import replace

from cursor_gateway.errors import InvalidRequest, NotFound
from cursor_gateway.fair_threads import FairThreads, IsGone
from cursor_gateway.model.answers import (
    PermissionDecisions,
    PermissionEntry,
    PlanDecision,
    QuestionAnswers,
    RunAnswer,
    ToolResults,
)
from cursor_gateway.model.changes import ListedChanges, ListRequest, PatchRequest, ReviewRequest, ReviewResult
from cursor_gateway.runs.answering import Answering, Asker
from cursor_gateway.runs.continuing import Continued, Continuing
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.image_files import ImagePlace, read_image_file
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.runs.run_service import ServiceState
from cursor_gateway.runs.service import Service
from cursor_gateway.runs.starter import unwritable
from cursor_gateway.runs.whole_answers import quote_answer
from cursor_gateway.sources.base import Model
from cursor_gateway.store.base import ConversationRecord, RunRecord
from cursor_gateway.store.health import Figure
from cursor_gateway.workspace.files import find_files

_THREADS = 4
_LIST_SECONDS = 5.0


class LocalRunService(Service):
    _is_retired = False

    # --- starting, continuing and ending runs -------------------------------------------------------

    async def take(self, request: RunRequest) -> Continued:
        _check_needs(request)
        return await Continuing(self).take(request)

    async def start(self, request: RunRequest) -> RunHandle:
        _check_needs(request)
        return await super().start(request)

    async def answer(self, id: str, asker: Asker, given: RunAnswer) -> Continued:
        continued = await self._answer(id, asker, given)
        return replace(continued, is_repeat=continued.run.done is not None)  # a run that has just begun is not over

    async def _answer(self, id: str, asker: Asker, given: RunAnswer) -> Continued:
        answering = Answering(self)
        match given:
            case ToolResults(results=results):
                return await answering.with_results(id, asker, results)
            case QuestionAnswers(answers=answers):
                return await answering.with_answers(id, asker, answers)
            case PlanDecision(decision=decision, text=text):
                return await answering.with_decision(id, asker, decision, text)
            case PermissionDecisions(permissions=permissions):
                return await answering.with_permissions(id, asker, permissions)

    def delivered(self, owner: str, key: str) -> None:
        self.deliveries.note(owner, key)

    async def answered(self, request: RunRequest, run: RunHandle, answer: str) -> None:
        if run.begun is not None:
            await quote_answer(self.store, request, run, answer, self.defaults.mode)

    # --- reading ------------------------------------------------------------------------------------

    async def waiting_for_people(self, conversation_ids: Collection[str]) -> Set[str]:
        latest = {id: self.conversations.latest(id) for id in conversation_ids}
        return {id for id, run in latest.items() if run is not None and run.is_waiting and run.caller is None}

    def runner_of(self, run: RunRecord) -> str:
        return ""

    # --- the machine that agents work on ------------------------------------------------------------

    def state(self) -> ServiceState:
        return ServiceState(
            source=self.source.state(),
            sources=self.source.names,
            running=self.runs.running,
            limit=self.runs.limit,
            workspace=str(self.workspaces.default),
            problem=self.store.health.problem,
        )

    async def models(self) -> list[Model]:
        return await self.source.models()

    def check_model(self, model: str) -> None:
        self.source.check_model(model)

    @cached_property
    def _threads(self) -> FairThreads:
        """For files of workspaces: their disks may be slow, and their folders large."""
        return FairThreads("workspace", _THREADS)

    async def files(self, owner: str, workspace: str | None, query: str, limit: int) -> list[str]:
        def find(is_gone: IsGone) -> list[str]:
            return find_files(self.workspaces.find(workspace), query, limit, is_gone=is_gone)

        return await self._threads.run(owner, find)

    async def folders(self, owner: str, query: str, limit: int) -> list[str]:
        return await self._threads.run(owner, lambda _: self.workspaces.folders(query, limit))

    async def review(self, conversation: ConversationRecord, request: ReviewRequest) -> ReviewResult:
        """One at a time in each conversation."""
        is_reading = isinstance(request, ListRequest | PatchRequest)
        if self.snapshots is None:
            if is_reading:
                return ListedChanges([])
            raise NotFound("This gateway does not record what files were (`snapshots` is false).")
        find = self.workspaces.allowed if is_reading else self.workspaces.find
        folder = find(conversation.workspace) or ""  # then no file exists, for a list
        await self.snapshots.settled(conversation.id)
        log, until = self.snapshots.log(conversation.id), time.monotonic() + _LIST_SECONDS

        def work(is_gone: IsGone) -> ReviewResult:
            from cursor_gateway.workspace.review import Review  # most gateways' lives pass without it

            return Review(folder, log, conversation.title, lambda: is_gone() or time.monotonic() > until).perform(
                request
            )

        async with self._locks.holding(("changes", conversation.id)):
            return await self._threads.run(conversation.owner, work)

    async def image(self, conversation: ConversationRecord, place: ImagePlace) -> bytes:
        workspace = self.workspaces.allowed(conversation.workspace)
        folder = self.conversations.folder(conversation.id)
        return await self._threads.run(conversation.owner, lambda _: read_image_file(place, folder, workspace))

    async def permissions(self, owner: str) -> list[PermissionEntry]:
        try:
            return self.decisions.every(owner)
        except OSError as error:
            raise unwritable(error) from error

    async def revoke_permission(self, owner: str, id: str) -> bool:
        try:
            return self.decisions.revoke(owner, id)
        except OSError as error:
            raise unwritable(error) from error

    def figures(self) -> list[Figure]:
        return self.store.health.figures()

    # --- the end ------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        return "The gateway is shutting down." if self._is_retired else ""

    async def retire(self) -> None:
        self._is_retired = True

    async def drain(self, seconds: float) -> None:
        await self.source.end_spares()
        await self.runs.close(seconds)

    async def close(self, drain_seconds: float = 0) -> None:
        self._threads.close()
        await super().close(drain_seconds)


def _check_needs(request: RunRequest) -> None:
    """A runner that claimed the request already has the labels."""
    if request.needs and request.claim is None:
        raise InvalidRequest(
            "`needs` chooses a runner of a cluster, and this gateway is not part of one; omit it.", param="needs"
        )
